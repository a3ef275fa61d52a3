"""Parts of a partition, read by themselves: what lies at their borders, and files that changed."""

import itertools
import os
import shutil

import builder
import pytest
from effort import thinned
from plans import batch, make, offsets, read
from refusals import fails_with

import kafkalog
from kafkalog import format as kf
from kafkalog.errors import CorruptionError, ReadError, Reason
from kafkalog.indexes.index_files import OffsetIndex
from kafkalog.scanning.planning import plan
from kafkalog.storage.broker_lock import hold_locks


@pytest.fixture
def log(tmp_path):
    """Three segments of a hundred batches each."""
    return make(tmp_path, {base: [batch(base + 4 * i) for i in range(100)] for base in (0, 400, 800)})


@pytest.mark.slow
def test_a_cut_inside_a_value_that_holds_batches_is_noticed_by_who_reads_up_to_it(tmp_path):
    inner = b"".join(batch(6 + 2 * i, n=1, size=16000) for i in range(150))
    record = builder.record_v2(0, 0, None, inner)
    log = make(tmp_path, {0: [batch(0), builder.batch_v2([record], base_offset=5), batch(6000)]})
    (path,) = log.glob("*.log")
    at = path.read_bytes().index(inner) + builder.batch_positions(inner)[30][0]
    before = path.read_bytes().index(inner) + builder.batch_positions(inner)[29][0]
    entries = OffsetIndex.open(path.with_suffix(".index"), 0).entries[[0, 0]]
    entries["relative_offset"], entries["position"] = [64, 66], [before, at]  # both lie, in accord with each other
    path.with_suffix(".index").write_bytes(entries.tobytes())
    tasks = plan(log, task_bytes=2**21)
    if len(tasks.tasks) == 1:
        pytest.fail("the index was not believed: the test shows nothing")
    with fails_with("size_exceeds_file"):
        read(tasks)


@pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")
@pytest.mark.parametrize("n_copies", [1, 2, 7])
@pytest.mark.parametrize("rest", [[], [batch(400), batch(404)]])
def test_copies_of_batches_that_another_part_has_are_given_once(tmp_path, n_copies, rest):
    batches = [batch(4 * i, size=400) for i in range(100)]  # no cut is near the copies
    log = make(tmp_path, {0: batches})
    with (log / kf.segment_file_name(0)).open("ab") as file:
        file.write(b"".join([*batches[5 : 5 + n_copies], *rest]))
    expected = kafkalog.read_table(log, on_corruption="skip")["offset"].to_pylist()
    assert expected == list(range(400 + 4 * len(rest)))
    tasks = plan(log, task_bytes=2**14, on_corruption="skip")
    assert len(tasks.tasks) > 10
    assert offsets(tasks) == expected


@pytest.mark.parametrize("more", [[batch(400, n=1)], [batch(400 + 4 * i) for i in range(10)]], ids=["by one", "by 40"])
def test_a_segment_whose_offsets_reach_into_the_next_is_reported_by_the_task_that_ends_there(tmp_path, more):
    first = [*(batch(4 * i) for i in range(100)), *more]
    log = make(tmp_path, {0: first, 400: [batch(400 + 4 * i) for i in range(100)]})
    tasks = plan(log, task_bytes=2**14)
    with pytest.raises(CorruptionError) as whole:
        kafkalog.read_table(log)
    with pytest.raises(CorruptionError) as parts:
        read(tasks)
    assert str(parts.value) == str(whole.value)
    assert parts.value.reason is Reason.OFFSET_ORDER


def test_a_batch_that_says_to_reach_into_the_next_part_is_damage(log):
    tasks = plan(log, task_bytes=2**14)
    borders = [one for task in tasks.tasks for part in task.parts for one in part.segments]
    border = next(one for one in borders if one.start and one.is_last)
    path = log / border.name
    data = bytearray(path.read_bytes())
    positions = [position for position, _ in builder.batch_positions(bytes(data))]
    position = positions[positions.index(border.start) - 1]
    size = int.from_bytes(data[position + 8 : position + 12], "big")
    data[position + 8 : position + 12] = (size + 10).to_bytes(4, "big")
    path.write_bytes(data)
    with fails_with("size_exceeds_file") as raised:
        read(tasks)
    assert (raised.value.path, raised.value.position) == (str(path), position)


def test_a_planned_segment_that_is_gone_is_data_loss(log):
    tasks, plan_before = plan(log, task_bytes=2**14), plan(log, isolation_level="read_committed")
    gone = log / kf.segment_file_name(400)
    gone.unlink()
    with pytest.raises(ReadError, match=str(gone)):
        read(tasks)
    for made in (tasks, plan_before):
        found = []
        assert offsets(made, on_data_loss="skip", report=found.append) == [*range(400), *range(800, 1200)]
        assert {finding.path for finding in found} == {str(gone)}


@pytest.mark.parametrize("same_size", [False, True])
def test_a_segment_that_was_replaced_is_not_taken_for_the_planned_one(log, same_size):
    tasks = plan(log, task_bytes=2**14)
    path = log / kf.segment_file_name(400)
    data = path.read_bytes()
    cleaned = b"".join([batch(400, n=1, size=10), batch(404)])
    if same_size:
        cleaned = b"".join(batch(400 + 4 * i + 2, n=4) for i in range(99))
        cleaned += batch(797, n=1, size=(len(data) - len(cleaned)) // 4 - 30)
        cleaned += b"\0" * (len(data) - len(cleaned))
    path.write_bytes(cleaned[: len(data)])
    with fails_with("file_changed"):
        read(tasks)


@pytest.mark.parametrize("has_id", [True, False])
def test_a_topic_that_was_made_again_since_the_plan_is_not_read(log, has_id):
    (log / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n" * has_id)
    tasks, parts = plan(log, task_bytes=2**14), kafkalog.scan(log).plan(target_bytes=2**14)
    expected = offsets(tasks)
    aside = log.with_name("aside")
    log.rename(aside)
    shutil.copytree(aside, log)  # with the same files and another inode: as on another mount
    assert offsets(tasks) == expected
    if has_id:
        (log / "partition.metadata").write_text("version: 0\ntopic_id: BBBBBBBBBBBBBBBBBBBBBB\n")
        with pytest.raises(ReadError) as raised:
            read(tasks)
        assert raised.value.path == str(log)
        found = []
        assert offsets(tasks, on_data_loss="skip", report=found.append) == []
        assert {(one.reason, one.path) for one in found} == {(Reason.PARTITION_REMOVED, str(log))}
    (log.parent / ".lock").touch()
    with hold_locks([log.parent]):
        for part in parts:  # in the process that planned, the inode tells, too
            with fails_with("partition_removed"):
                part.to_table()


def test_a_topic_that_is_made_again_while_it_is_planned_is_not_read(log):
    (log / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n")
    opened = kafkalog.Partition(log)
    (log / "partition.metadata").write_text("version: 0\ntopic_id: BBBBBBBBBBBBBBBBBBBBBB\n")
    os.utime(log / "partition.metadata", ns=(1, 1))  # a test is quicker than the clock of a file system
    with fails_with("partition_removed"):
        read(plan(opened))


@pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")
@pytest.mark.parametrize("n_rest", [0, 10])
def test_no_part_begins_at_a_large_batch_before_a_copy(tmp_path, n_rest):
    # alone with the copy, the batch would be the one whose offset is wrong
    batches = [batch(4 * i, size=400) for i in range(20)]
    large, rest = batch(80, size=100_000), [batch(84 + 4 * i, size=400) for i in range(n_rest)]
    log = make(tmp_path, {0: [*batches, large]})
    with (log / kf.segment_file_name(0)).open("ab") as file:
        file.write(b"".join([batches[5], *rest]))
    expected = kafkalog.read_table(log, on_corruption="skip")["offset"].to_pylist()
    assert expected == list(range(84 + 4 * n_rest))
    tasks = plan(log, task_bytes=2**12, on_corruption="skip")
    assert len(tasks.tasks) > 2
    assert offsets(tasks) == expected


@pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")
@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("number", [1, 7, 18])
def test_no_plan_ends_at_a_wrong_offset(tmp_path, number, index):
    # no checksum covers it, and it lies behind the end that is asked for
    batches = [batch(4 * i) for i in range(20)]
    log = make(tmp_path, {0: batches})
    batches[number] = (10**6).to_bytes(8, "big") + batches[number][8:]
    (log / kf.segment_file_name(0)).write_bytes(b"".join(batches))
    if not index:
        (log / kf.segment_file_name(0, ".index")).unlink()
    wanted = {"on_corruption": "skip", "end_offset": 500}
    expected = kafkalog.read_table(log, **wanted)["offset"].to_pylist()
    assert expected == [i for i in range(80) if i // 4 != number]
    assert offsets(plan(log, task_bytes=1000, **wanted)) == expected


@pytest.mark.parametrize(("shift", "side"), thinned(itertools.product([1000, 40, -3, -40, -(2**20)], [-1, 0]), 3))
def test_a_flipped_offset_at_the_border_of_a_task_is_blamed_itself(log, side, shift):
    borders = [
        (one.name, one.start)
        for task in plan(log, task_bytes=2**14).tasks
        for part in task.parts
        for one in part.segments
        if one.start
    ]
    assert len(borders) > 3
    name, start = borders[2]
    data = bytearray((log / name).read_bytes())
    positions = [position for position, _ in builder.batch_positions(bytes(data))]
    row = positions.index(start) + side
    offset = int.from_bytes(data[positions[row] : positions[row] + 8], "big")
    data[positions[row] : positions[row] + 8] = max(offset + shift, 0).to_bytes(8, "big")
    (log / name).write_bytes(data)
    with pytest.raises(CorruptionError) as raised:
        read(plan(log, task_bytes=2**14))
    assert (raised.value.path, raised.value.position) == (str(log / name), positions[row])
    found = []
    with pytest.warns(kafkalog.CorruptionWarning):
        left = offsets(plan(log, task_bytes=2**14, on_corruption="skip"), report=found.append)
    assert left == [one for one in range(1200) if not offset <= one < offset + 4]
    assert [(one.position, one.base_offset, one.n_records) for one in found] == [(positions[row], offset, 4)]
