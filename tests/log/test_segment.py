"""Segments and lookups: right with any index, wrong ones included."""

import itertools
from pathlib import Path

import numpy as np
import pytest
from effort import thinned

import kafkalog
from kafkalog import format as kf
from kafkalog.log.segment import Segment

PARTITIONS = ["p-compact-0", "p-delrec-0", "p-headers-0", "p-txn-0", "p-v0v1v2-mixed-0", "p-v1-lz4-0", "p-zstd-java-0"]


def entries(path):
    return np.frombuffer(path.read_bytes(), kf.OFFSET_INDEX_DTYPE).copy()


def swapped(path):
    rows = entries(path)
    return rows[::-1].tobytes()


def sparse(path):
    return entries(path)[::20].tobytes()


def into_the_middle(path):
    rows = entries(path)
    rows["position"] += 7
    return rows.tobytes()


def shifted(path):
    rows = entries(path)
    rows["position"] = np.roll(rows["position"], 1)
    return rows.tobytes()


def too_high(path):
    rows = entries(path)
    rows["relative_offset"] -= 3
    return rows.tobytes()


def past_the_end(path):
    rows = entries(path)
    rows["position"] = 2**31 - 1
    return rows.tobytes()


def negative(path):
    rows = entries(path)
    rows["position"] = -5
    rows["relative_offset"][::2] = -7
    return rows.tobytes()


DAMAGE = {
    "as_it_is": Path.read_bytes,
    "missing": lambda path: None,
    "empty": lambda path: b"",
    "padded": lambda path: path.read_bytes() + bytes(8 * 500),
    "all_zero": lambda path: bytes(4096),
    "odd_size": lambda path: path.read_bytes()[:-3],
    "odd_tail": lambda path: path.read_bytes() + b"\x00\x00\x01",
    "random": lambda path: np.random.default_rng(5).bytes(1000),
    "swapped": swapped,
    "sparse": sparse,
    "into_the_middle": into_the_middle,
    "shifted": shifted,
    "too_high": too_high,
    "past_the_end": past_the_end,
    "negative": negative,
}


def linear(segment, offsets):
    table = segment.batches
    row = np.searchsorted(table.last_offset, offsets)
    position = np.append(table.position, -1)
    return position[row].tolist()


@pytest.mark.parametrize(("name", "damage"), thinned(itertools.product(PARTITIONS, DAMAGE), 8))
def test_lookups_equal_a_linear_scan_whatever_the_index_holds(log_dir_copy, name, damage):
    directory = log_dir_copy / name
    expected_records = kafkalog.read_table(log_dir_copy, topics=name.rpartition("-")[0])
    for path in sorted(directory.glob("*.index")):
        content = DAMAGE[damage](path)
        path.unlink()
        if content is not None:
            path.write_bytes(content)
    for path in sorted(directory.glob("*.timeindex")):
        if damage == "missing":
            path.unlink()
        elif damage != "as_it_is":
            path.write_bytes(np.random.default_rng(3).bytes(240))
    partition = kafkalog.open(directory)
    assert isinstance(partition, kafkalog.Partition)
    rng = np.random.default_rng(7)
    for segment in partition.segments:
        last = int(segment.batches.last_offset[-1]) if len(segment.batches) else segment.base_offset
        queries = rng.integers(segment.base_offset - 2, last + 4, 300)
        assert segment.find_offsets(queries)["position"].tolist() == linear(segment, queries)
        assert segment.next_offset == (last + 1 if len(segment.batches) else segment.base_offset)
    assert kafkalog.read_table(log_dir_copy, topics=name.rpartition("-")[0]).equals(expected_records)
    offsets = expected_records.column("offset").to_numpy()
    for start in rng.choice(offsets, 5).tolist():
        part = kafkalog.read_table(directory, start_offset=start, columns=["offset"])
        assert part.column("offset").to_pylist() == offsets[offsets >= start].tolist()


@pytest.mark.parametrize("name", PARTITIONS)
def test_find_timestamps_is_the_first_record_by_offset_at_or_after(log_dir, name):
    for path in sorted((log_dir / name).glob("*.log")):
        segment = kafkalog.open(path)
        assert isinstance(segment, Segment)
        records = kafkalog.read_numpy(path, include_control=True, columns=["offset", "timestamp", "leader_epoch"])
        stamps, offsets = records.timestamp, records.offset
        queries = np.unique(np.concatenate([stamps - 1, stamps, stamps + 1, [0, 2**62]]))
        queries = np.random.default_rng(0).permutation(queries)[:400]
        answers = segment.find_timestamps(queries)
        for query, answer in zip(queries.tolist(), answers, strict=True):
            later = np.flatnonzero(stamps >= query)
            if later.size:
                first = later[0]
                expected = (stamps[first], offsets[first], records.leader_epoch[first])
            else:
                expected = (-1, -1, -1)
            assert answer.tolist() == expected


def test_queries_keep_their_shape_and_none_is_none(log_dir):
    segment = kafkalog.open(log_dir / "p-multi-0" / "00000000000000000000.log")
    assert isinstance(segment, Segment)
    assert segment.find_offsets([]).shape == (0,)
    assert segment.find_timestamps([]).shape == (0,)
    first = int(segment.batches.base_timestamp[0])
    queries = np.array([first - 1, first], np.int64)
    assert segment.find_timestamps(queries.astype("M8[ms]")).tolist() == segment.find_timestamps(queries).tolist()
    assert segment.find_offsets(5).shape == ()
    assert segment.find_offsets([[1, 2], [3, 10**12]]).shape == (2, 2)
    assert segment.find_offsets([[1, 2], [3, 10**12]])[1, 1].tolist() == (-1, -1, -1, -1)


def test_an_index_entry_into_a_record_that_holds_a_batch_is_not_mistaken_for_a_later_batch(tmp_path):
    """A record whose value is a whole valid batch, and an index that points at it: later offsets are found."""
    import builder

    directory = tmp_path / "t-0"
    directory.mkdir()
    doll = builder.batch_v2([builder.record_v2(key=b"doll", value=b"inside")], base_offset=5)
    outer = builder.batch_v2([builder.record_v2(key=b"outer", value=doll)], base_offset=0)
    rest = builder.batch_v2([builder.record_v2(key=b"last", value=b"one")], base_offset=9)
    (directory / "00000000000000000000.log").write_bytes(outer + rest)
    rows = np.array([(5, (outer + rest).index(doll))], kf.OFFSET_INDEX_DTYPE)
    (directory / "00000000000000000000.index").write_bytes(rows.tobytes())
    keys = kafkalog.read_table(directory, start_offset=7).column("key").to_pylist()
    assert keys == [b"last"]
