"""Which copies count: the chain of leader epochs, and not what is newest or longest."""

import builder
import pytest

import kafkalog
from kafkalog.storage.location import Location
from kafkalog.system_topics.remote_log import RemoteLog, RemoteSegment
from kafkalog.tiered.chain import Hole, Link, ListingFinder, MetadataFinder, chain, cut_positions
from kafkalog.tiered.layouts import Copy, Extent, PartitionId

OF = PartitionId("t", "id", 0)


def finder(*segments, lost=""):
    """Finished segments with their id, last offset and epochs, in the order of their events."""
    log = RemoteLog()
    copies = []
    for name, end, epochs in segments:
        start = min(epochs.values())
        one = RemoteSegment("t", "id", 0, name, start, end, 1, 0, 0, 1, epochs, "COPY_SEGMENT_FINISHED")
        log.append(one)
        log._refer(one)
        if name not in lost:
            copies.append(Copy(OF, start, name, {".log": Location(None, name)}))
    return MetadataFinder(log, ("id", 0), copies)


def read(found):
    """Ids and ranges."""
    links, holes = found
    return [(link.copy.segment_id, link.first, link.last) for link in links], [(one.first, one.last) for one in holes]


def test_segments_follow_one_another():
    found = chain(finder(("a", 9, {0: 0}), ("b", 19, {0: 10}), ("c", 29, {0: 20})), [(0, 0)], 5, 20)
    assert read(found) == ([("a", 5, 9), ("b", 10, 19)], [])


def test_epochs_within_a_segment_are_one_link():
    found = chain(finder(("a", 29, {0: 0, 2: 10, 5: 20}), ("b", 39, {5: 30})), [(0, 0), (2, 10), (5, 20)], 0, 40)
    assert read(found) == ([("a", 0, 29), ("b", 30, 39)], [])


def test_the_branch_of_a_leader_that_lost_is_left_out():
    # epoch 0 went on to 49 at a leader whose end was lost: it ends at 19 in the chain
    segments = [("a", 9, {0: 0}), ("dead", 49, {0: 10}), ("b", 29, {0: 10, 3: 20}), ("c", 39, {3: 30})]
    found = chain(finder(*segments), [(0, 0), (3, 20)], 0, 40)
    # `b` begins where `dead` does and is shorter: for epoch 0 the map may have either; the chain cuts both at 19
    ids, holes = read(found)
    assert not holes
    assert [(first, last) for _, first, last in ids][-1] == (30, 39)
    assert sum(last - first + 1 for _, first, last in ids) == 40
    assert ids[-2][0] == "b"


def test_a_longer_segment_replaces_those_that_it_covers():
    segments = [("a", 9, {0: 0}), ("b", 19, {0: 10}), ("ab", 25, {0: 0})]
    assert read(chain(finder(*segments), [(0, 0)], 0, 26)) == ([("ab", 0, 25)], [])


def test_holes_are_found():
    segments = [("a", 9, {0: 0}), ("c", 29, {0: 20}), ("d", 39, {1: 30})]
    found = chain(finder(*segments, lost="c"), [(0, 0), (1, 30)], 0, 50)
    assert read(found) == ([("a", 0, 9), ("d", 30, 39)], [(10, 19), (20, 29), (40, 49)])
    assert isinstance(found[1][1], Hole)
    assert found[1][1].segment is not None


def test_without_an_end_the_last_copy_ends_the_chain():
    found = chain(finder(("a", 9, {0: 0}), ("b", 19, {0: 10})), [(0, 0)], 0, 2**63 - 1)
    assert read(found) == ([("a", 0, 9), ("b", 10, 19)], [])


def test_the_last_offset_of_a_segment_is_in_it():
    segments = finder(("a", 9, {0: 0}), ("b", 19, {0: 10}))
    assert read(chain(segments, [(0, 0)], 9, 20)) == ([("a", 9, 9), ("b", 10, 19)], [])


def test_a_copy_that_goes_on_past_its_epoch_is_cut_there():
    # the leader of epoch 0 went on to 49, and lost: from 20 on the records are those of epoch 3
    segments = finder(("lost", 49, {0: 10}), ("b", 29, {3: 20}))
    assert read(chain(segments, [(0, 0), (3, 20)], 10, 30)) == ([("lost", 10, 19), ("b", 20, 29)], [])


def listed(*copies):
    """Copies that say of themselves where they end, and of which epochs they are."""
    found = []
    for start, end, epochs in copies:
        copy = Copy(OF, start, f"{start}", {".log": Location(None, f"{start}")})
        copy.__dict__["extent"] = Extent(end, epochs)
        found.append(copy)
    return ListingFinder(found)


def test_a_segment_of_one_record_counts_and_one_without_any_does_not():
    found = chain(listed((0, 4, {0: 0}), (5, 5, {0: 5})), [(0, 0)], 0, 6)
    assert read(found) == ([("0", 0, 4), ("5", 5, 5)], [])
    empty = listed((0, 4, {0: 0}), (5, 4, {0: 5}))
    assert empty.first_after(0, 4) is None
    assert read(chain(empty, [(0, 0)], 0, 8)) == ([("0", 0, 4)], [(5, 7)])


def test_a_copy_that_lacks_objects_gives_way_to_a_complete_one():
    """It may be of a copying that failed, however far it reaches."""
    copies = [Copy(OF, 0, name, {".log": Location(None, name)}) for name in ("torn", "whole")]
    copies[0].required = (".log", ".index")
    for copy, end in zip(copies, (9, 5), strict=True):
        copy.__dict__["extent"] = Extent(end, {0: 0})
    assert read(chain(ListingFinder(copies), [(0, 0)], 0, 10)) == ([("whole", 0, 5), ("torn", 6, 9)], [])


@pytest.mark.parametrize(
    ("first", "last", "rows"), [(2, 5, (1, None)), (3, 5, (1, None)), (4, 5, (2, None)), (0, 3, (0, 2))]
)
def test_a_link_begins_with_the_batch_that_has_its_first_offset(tmp_path, first, last, rows):
    records = [builder.record_v2(0), builder.record_v2(1)]
    batches = [builder.batch_v2(records, base_offset=base) for base in (0, 2, 4)]
    (tmp_path / "a.log").write_bytes(b"".join(batches))
    copy = Copy(OF, 0, "a", {".log": kafkalog.location((tmp_path / "a.log").as_uri())})
    places = [sum(map(len, batches[:number])) for number in range(3)]
    wanted = tuple(None if row is None else places[row] for row in rows)
    assert cut_positions(Link(first, last, copy, 5), is_first=first == 0) == wanted
