"""Producer snapshots as brokers left them, and as nobody did; and the state that brokers wrote them from."""

import builder
import golden_sets
import numpy as np
import pytest
import strategies
from hypothesis import given
from hypothesis import strategies as st

import kafkalog
from kafkalog import format as kf
from kafkalog._kernels.crc import checksum_crc32c
from kafkalog.errors import SidecarError
from kafkalog.records.header_walk import walk
from kafkalog.state.producers import (
    ProducerSnapshot,
    ProducerState,
    encode_snapshot,
    kept_snapshots,
    read_markers,
    read_snapshot,
)
from kafkalog.state.transactions import Outcome
from kafkalog.storage.source import BufferSource


@pytest.mark.parametrize(
    ("offsets", "options", "kept"),
    [
        ([10, 20, 30, 40], {}, [20, 30, 40]),  # none at the log start
        ([20, 25, 35, 40], {}, [20, 40]),  # the last one without a segment
        ([20, 25], {}, [20]),  # before the last segment
        ([20, 40, 41], {}, [20]),  # past the end, and so is the one that a broker looks at
        ([20, 30, 40], {"recovered_from": 20}, [20, 30]),
        ([20, 30, 40], {"recovered_from": 0}, [20, 30]),
    ],
)
def test_a_broker_that_loads_a_log_keeps_snapshots_at_its_segments_and_one_at_its_end(offsets, options, kept):
    assert kept_snapshots(offsets, [0, 10, 20, 30], start=10, end=40, **options) == kept


def snapshot(entries, *, n=None, version=1, crc=None):
    size = kf.PRODUCER_SNAPSHOT_DTYPE.itemsize
    body = (len(entries) // size if n is None else n).to_bytes(4, "big") + entries
    whole = np.frombuffer(body, np.uint8)
    return version.to_bytes(2, "big") + (checksum_crc32c(whole) if crc is None else crc).to_bytes(4, "big") + body


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "snapshot_size"),
        (snapshot(b"")[:9], "snapshot_size"),
        (snapshot(b"", version=2), "snapshot_version"),
        (snapshot(b"", crc=1), "snapshot_crc"),
        (snapshot(b"\0" * 46)[:-1], "snapshot_crc"),
        (snapshot(b"\0" * 46, n=2), "snapshot_size"),
        (snapshot(b"", n=2**32 - 1), "snapshot_size"),
    ],
)
def test_a_bad_snapshot_is_refused_with_its_reason(tmp_path, content, reason):
    path = tmp_path / "00000000000000000000.snapshot"
    path.write_bytes(content)
    with pytest.raises(SidecarError) as caught:
        read_snapshot(path)
    assert caught.value.reason == reason


# ------------------------------------------------------------------------------------------------------------- replay


def feed(state, source, *, rows=2**20):
    """Replay a segment; the transactions that ended in it."""
    ended = []
    for window in walk(BufferSource(source) if isinstance(source, bytes) else source):
        table = window.batches
        control = np.flatnonzero(table.is_control)
        epochs = np.full(len(table), -1, np.int32)
        table.control_type[control], epochs[control] = read_markers(window, table, control)
        for first in range(0, len(table), rows):
            part = slice(first, first + rows)
            ended.append(state.update(table[part], coordinator_epoch=epochs[part]))
    return np.concatenate(ended) if ended else np.empty(0)


def index_bytes(ended):
    """The transaction index that a broker writes of them."""
    aborted = ended[ended["outcome"] == Outcome.ABORTED] if ended.size else ended
    entries = np.zeros(aborted.size, kf.TRANSACTION_INDEX_DTYPE)
    for name in ("producer_id", "first_offset", "last_offset", "last_stable_offset") if aborted.size else ():
        entries[name] = aborted[name]
    return entries.tobytes()


@pytest.mark.parametrize("rows", [1, 3, 2**20])
@pytest.mark.parametrize("name", golden_sets.SETS)
def test_replaying_a_partition_gives_the_snapshots_and_indexes_that_its_broker_wrote(name, rows):
    n_snapshots = n_producers = n_entries = 0
    for path in golden_sets.partitions(name).values():
        if "compact" in path.name or path.name.startswith("__cluster"):
            continue  # the cleaner takes away what their brokers had seen
        partition = kafkalog.Partition(path)
        state = ProducerState()
        ends = [segment.base_offset for segment in partition.segments[1:]]
        for segment, end in zip(partition.segments, [*ends, partition.log_end_offset], strict=True):
            with segment.open() as source:
                ended = feed(state, source, rows=rows)
            index = segment.path.with_suffix(kf.TRANSACTION_INDEX_SUFFIX)
            assert index_bytes(ended) == (index.read_bytes() if index.exists() else b""), index
            n_entries += len(index_bytes(ended)) // kf.TRANSACTION_INDEX_DTYPE.itemsize
            snapshot = path / kf.segment_file_name(end, kf.PRODUCER_SNAPSHOT_SUFFIX)
            if snapshot.exists():
                assert encode_snapshot(state.entries()) == snapshot.read_bytes(), snapshot
                n_snapshots += 1
                n_producers += len(state)
    assert n_snapshots > 5
    assert n_producers > 5
    assert n_entries > 2


@given(log=strategies.transaction_logs(), cut=st.integers(0, 5), rows=st.sampled_from([1, 2, 1000]))
def test_a_state_that_was_written_and_loaded_goes_on_as_if_it_had_stayed(log, cut, rows):
    state, loaded = ProducerState(), ProducerState()
    for number, (_, content) in enumerate(log.segments):
        if number == cut:
            loaded = ProducerState(ProducerSnapshot(None, state.entries()))
            assert sorted(loaded.entries().tolist()) == sorted(state.entries().tolist())
        ended = feed(state, content)
        again = feed(loaded, content, rows=rows)
        names = ["producer_id", "producer_epoch", "outcome", "first_offset", "last_offset", "last_stable_offset"]
        assert (ended.tolist() and ended[names].tolist()) == (again.tolist() and again[names].tolist())
        assert sorted(loaded.entries().tolist()) == sorted(state.entries().tolist())


def batch(offset, producer_id, epoch, sequence, n=1, *, timestamp=5):
    records = [builder.record_v2(i) for i in range(n)]
    return builder.batch_v2(
        records,
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        base_timestamp=timestamp,
    )


def entry(state):
    """Epoch, last sequence, last offset, offset delta, timestamp, coordinator epoch of the only producer."""
    (only,) = state.entries().tolist()
    return tuple(only[1:7])


def test_a_marker_of_another_epoch_makes_the_batch_forgotten_and_one_of_the_same_does_not():
    def marker(offset, epoch):
        return builder.control_batch(
            1, base_offset=offset, producer_id=7, producer_epoch=epoch, coordinator_epoch=4, timestamp=9
        )

    state = ProducerState()
    feed(state, batch(0, 7, 2, 2**31 - 1, 3))
    assert entry(state) == (2, 1, 2, 2, 5, -1)
    feed(state, marker(3, 2))
    assert entry(state) == (2, 1, 2, 2, 9, 4)
    feed(state, marker(4, 3))
    assert entry(state) == (3, -1, -1, 0, 9, 4)
    feed(state, batch(5, 7, 3, 0) + marker(6, 4) + batch(7, 7, 4, 1, timestamp=6))
    assert entry(state) == (4, 1, 7, 0, 6, 4)


def test_producers_that_are_idle_expire_unless_a_transaction_is_open():
    data = [batch(0, 1, 0, 0, timestamp=100), batch(1, 2, 0, 0, timestamp=300)]
    held = builder.batch_v2([builder.record_v2()], base_offset=2, producer_id=3, producer_epoch=0, transactional=True)
    state = ProducerState()
    feed(state, b"".join([*data, held]))
    snapshot = ProducerSnapshot(3, state.entries())
    state = ProducerState(snapshot, now_ms=1100, expiration_ms=1000)
    assert state.entries()["producer_id"].tolist() == [2, 3]
    assert len(ProducerState(snapshot, now_ms=1099, expiration_ms=1000)) == 3
    feed(state, batch(3, 1, 5, 8))
    assert state.entries()["producer_id"].tolist() == [1, 2, 3]


@pytest.mark.parametrize(("n", "n_buckets"), [(11, 16), (12, 16), (13, 32), (24, 32), (25, 64)])
def test_the_hash_map_grows_with_the_entry_that_is_more_than_three_quarters(n, n_buckets):
    # multiples of 16 would all share the first bucket until it grows; odd ones keep it from being a tree
    ids = [16 * i + i % 7 for i in range(n)]
    state = ProducerState()
    feed(state, b"".join(batch(offset, producer_id, 0, 0) for offset, producer_id in enumerate(ids)))
    expected = sorted(ids, key=lambda producer_id: producer_id % n_buckets)
    assert expected != sorted(ids, key=lambda producer_id: producer_id % (2 * n_buckets))
    assert state.entries()["producer_id"].tolist() == expected
    # a broker that loads the snapshot puts them into a map of its own, in the order of the file
    loaded = ProducerState(ProducerSnapshot(n, state.entries()))
    assert loaded.entries()["producer_id"].tolist() == expected


def test_a_snapshot_of_columns_is_written_and_opened(tmp_path, log_dir):
    n = 0
    for path in sorted(log_dir.glob("*/*.snapshot")):
        snapshot = ProducerSnapshot.open(path)
        copy = ProducerSnapshot.from_columns(snapshot.end_offset, **snapshot.columns())
        copy.tofile(tmp_path / f"{path.parent.name}-{path.name}")
        assert (tmp_path / f"{path.parent.name}-{path.name}").read_bytes() == path.read_bytes() == copy.tobytes()
        assert snapshot.to_numpy().dtype.isnative
        assert snapshot.to_numpy().tolist() == np.asarray(snapshot).tolist() == snapshot.entries.tolist()
        assert snapshot.to_pandas().to_dict("list") == {name: c.tolist() for name, c in snapshot.columns().items()}
        n += len(snapshot)
    assert n > 0
    assert len(ProducerSnapshot.empty()) == 0
    columns = snapshot.columns() | {"producer_epoch": [2**15] * len(snapshot)}
    with pytest.raises(TypeError, match="the columns of ProducerSnapshot are producer_id, "):
        ProducerSnapshot.from_columns(5, producer_id=[1])
    with pytest.raises(ValueError, match="producer_epoch does not fit the 2 bytes of its field"):
        ProducerSnapshot.from_columns(5, **{name: [2**15] for name in columns})
