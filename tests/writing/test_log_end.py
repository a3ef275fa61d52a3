"""The state an append continues from: the last batch, the producers, a torn or damaged end."""

import shutil

import pytest
from refusals import fails_with
from writing import SMALL, columns_of, draw, files_in, nothing_left, sound, unclean, write

import kafkalog
from kafkalog import PartitionWriter
from kafkalog.errors import (
    TransactionWarning,
    TruncatedTailError,
)
from kafkalog.state.producers import encode_snapshot, read_snapshot
from kafkalog.writing.batch_builder import next_sequence


def test_producers_are_known_without_a_snapshot(path):
    with (
        pytest.warns(TransactionWarning, match="producer 9"),
        PartitionWriter(path, config=SMALL, batch_size=200, producer=(9, 4)) as writer,
    ):
        writer.append(columns_of(draw(100)), transactional=True)
    for kept in (4, 1, 0):  # and from an older one
        for file in sorted(path.glob("*.snapshot"))[kept:]:
            file.unlink()
        with PartitionWriter(path, producer=(9, 4)) as again:
            producers = again._files.producers
            assert 9 in producers.transactions
        sequence = next_sequence(producers, kafkalog.Producer(9, 4))
        assert sequence == 100


@pytest.mark.parametrize("tail", ["", "half a batch", "zeros", "a batch of which a page is missing"])
def test_a_torn_tail_is_refused_unless_it_may_be_cut(path, tail):
    write(path, producer=(3, 0))
    clean = files_in(path)
    last = kafkalog.Partition(path).segments[-1].path
    batch = bytearray(last.read_bytes()[-int(kafkalog.Segment(last).batches.size_in_bytes[-1]) :])
    batch[:8] = (1000).to_bytes(8, "big")
    torn = {"": b"", "half a batch": bytes(batch[: len(batch) // 2]), "zeros": bytes(5000)}
    missing = bytes(batch[:61]) + bytes(len(batch) - 61)
    unclean(path, torn.get(tail, missing))
    old = files_in(path)
    with pytest.raises(TruncatedTailError):
        PartitionWriter(path)
    assert files_in(path) == old
    with PartitionWriter(path, config=SMALL, truncate_tail=True) as writer:
        assert writer.next_offset == 150
        assert files_in(path) == old
    assert files_in(path) == {
        **old,
        last.name: clean[last.name],
        **{name: clean[name] for name in clean if name[:20] == last.name[:20] and name.endswith("index")},
    }
    unclean_again = files_in(path)
    with PartitionWriter(path, config=SMALL) as writer:
        writer.append(columns_of(draw(50)))
    assert {name: content for name, content in files_in(path).items() if name in unclean_again} == unclean_again
    assert sound(path) == []
    assert kafkalog.scan(path).count_rows() == 200


def test_an_entry_of_zeros_for_timestamp_0_is_no_unclean_shutdown(path):
    for n_before in range(3):
        with PartitionWriter(path) as writer:
            assert writer.next_offset == n_before
            writer.append({"value": [b"v"], "timestamp": [0]})
    assert [one.read_bytes() for one in path.glob("*.timeindex")] == [bytes(12)] * 3
    assert sound(path) == []
    (path / f"{2:020d}.timeindex").write_bytes(bytes(24))
    with fails_with("index_padding"):
        PartitionWriter(path)


def test_nothing_is_appended_behind_damage(path):
    write(path)
    log = kafkalog.Partition(path).segments[-1].path
    content = bytearray(log.read_bytes())
    content[100] ^= 1
    log.write_bytes(content)
    old = files_in(path)
    for truncate_tail in (False, True):
        with fails_with("crc_mismatch"):
            PartitionWriter(path, truncate_tail=truncate_tail)
    assert files_in(path) == old
    assert nothing_left(path)


@pytest.mark.parametrize("n_before", [0, 1])
def test_the_first_batch_behind_a_snapshot_is_replayed_and_none_before_it(path, n_before):
    table = {"value": [b"a", b"b"], "timestamp": [1, 2]}
    with PartitionWriter(path) as writer:
        writer.append(table, producer=(7, 0))
        writer.append(table, producer=(7, 0))
        writer.roll()
        for _ in range(n_before):
            writer.append(table)
        writer.append(table, producer=(8, 0))
    end = 6 + 2 * n_before
    names = sorted(file.name for file in path.glob("*.snapshot"))
    assert names == [f"{4:020}.snapshot", f"{end:020}.snapshot"]
    (path / names[1]).unlink()
    # what lies before the snapshot is not looked at again
    log = path / f"{0:020}.log"
    content = bytearray(log.read_bytes())
    content[80] ^= 1
    log.write_bytes(content)
    with PartitionWriter(path) as writer:
        writer.append(table, producer=(8, 0))
        writer.append(table, producer=(7, 0))
    last = kafkalog.Partition(path).segments[-1].batches
    assert last.base_offset.tolist() == [end, end + 2]
    assert last.producer_id.tolist() == [8, 7]
    assert last.base_sequence.tolist() == [2, 4]


def test_a_snapshot_in_the_middle_of_a_segment_is_gone_on_from(path):
    table = {"value": [b"a", b"b"], "timestamp": [1, 2]}
    with PartitionWriter(path) as writer:
        writer.append(table, producer=(7, 0))
    with PartitionWriter(path.with_name("orders-1"), start_offset=2) as writer:
        writer.append(table, producer=(8, 0))
    # as where a broker was killed behind its snapshot: the segment goes on
    with (path / f"{0:020}.log").open("ab") as log:
        log.write((path.with_name("orders-1") / f"{2:020}.log").read_bytes())
    shutil.rmtree(path.with_name("orders-1"))
    # what a snapshot tells is not replayed once more
    snapshot = path / f"{2:020}.snapshot"
    entries = read_snapshot(snapshot).entries.copy()
    entries["last_sequence"] = 41
    snapshot.write_bytes(encode_snapshot(entries))
    with PartitionWriter(path) as writer:
        for producer in ((8, 0), (7, 0)):
            writer.append(table, producer=producer)
    last = kafkalog.Partition(path).segments[-1].batches
    assert (last.base_offset.tolist(), last.base_sequence.tolist()) == ([4, 6], [2, 42])
