"""A range of times with `use_time_index`: the same records from fewer bytes; and without it, whatever indexes say."""

import itertools
import random

import builder
import golden_sets
import numpy as np
import pytest
from effort import THOROUGH, thinned

import kafkalog
from kafkalog import format as kf
from kafkalog.indexes.time_hints import position_of_younger
from kafkalog.log.segment import Segment
from kafkalog.records.readers import header_reader
from kafkalog.storage.source import FileSource

START = 1_700_000_000_000
N_SEGMENTS, N_BATCHES = 4, 120


def make(root, seed, *, disorder):
    """A partition of some segments, whose timestamps rise but for `disorder` milliseconds."""
    rng = random.Random(seed)
    path = root / "t-0"
    path.mkdir(parents=True)
    at = 0
    for _ in range(N_SEGMENTS):
        base, batches = at, []
        for _ in range(N_BATCHES):
            n = rng.randrange(1, 5)
            stamps = [START + (at + one) * 1000 + rng.randrange(-disorder, disorder + 1) for one in range(n)]
            if rng.random() < 0.02:
                stamps = [-1] * n
            records = [
                builder.record_v2(one, stamp - stamps[0], b"k", b"v" * rng.randrange(200, 900))
                for one, stamp in enumerate(stamps)
            ]
            batches.append(
                builder.batch_v2(records, base_offset=at, base_timestamp=stamps[0], max_timestamp=max(stamps))
            )
            at += n
        (path / kf.segment_file_name(base)).write_bytes(b"".join(batches))
    kafkalog.reindex(path, in_place=True)
    return path


def n_bytes(path, **options):
    """The offsets found, and the bytes read for them."""
    scan = kafkalog.scan(path, columns=["offset"], **options)
    counts = []
    scan.progress = counts.append
    found = scan.to_table()["offset"].to_pylist()
    return found, sum(counts)


def spoil(path, rng):
    """Make something wrong of the indexes."""
    for times in sorted(path.glob("*.timeindex")):
        entries = np.frombuffer(bytearray(times.read_bytes()), kf.TIME_INDEX_DTYPE).copy()
        match rng.randrange(8):
            case 0:
                entries["timestamp"] += rng.choice([-3_600_000, 3_600_000, 1])
            case 1:
                entries["relative_offset"] += rng.choice([-7, 7, 1000])
            case 2:
                entries = entries[::-1].copy()
            case 3:
                entries["timestamp"][-1] = 2**62
            case 4:
                data = bytearray(entries.tobytes())
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                entries = np.frombuffer(bytes(data), kf.TIME_INDEX_DTYPE)
            case 5:
                entries = np.frombuffer(rng.randbytes(entries.nbytes), kf.TIME_INDEX_DTYPE)
            case 6:
                times.with_suffix(".index").write_bytes(rng.randbytes(80))
            case 7:
                times.write_bytes(rng.choice(sorted(path.glob("*.timeindex"))).read_bytes())
                continue
        times.write_bytes(entries.tobytes())


@pytest.mark.parametrize(("seed", "disorder"), thinned(itertools.product(range(2), [0, 3_000, 100_000]), 2))
def test_the_records_are_those_that_all_headers_give(tmp_path, seed, disorder):
    path, rng = make(tmp_path, seed, disorder=disorder), random.Random(seed)
    last = kafkalog.open_partition(path).log_end_offset
    fewer = 0
    for _ in range(25):
        start = START + rng.randrange(-5, last + 5) * 1000 + rng.randrange(1000)
        options = {"start_timestamp": start}
        if rng.random() < 0.5:
            options["end_timestamp"] = start + rng.randrange(100_000)
        if rng.random() < 0.3:
            options["start_offset"] = rng.randrange(last)
        if rng.random() < 0.3:
            options["isolation_level"] = "read_committed"
        if rng.random() < 0.3:
            options["threads"] = 1
        expected, most = n_bytes(path, **options)
        found, least = n_bytes(path, use_time_index=True, **options)
        assert found == expected, options
        fewer += least < most
    assert fewer >= 10


@pytest.mark.parametrize("disorder", [0, 3_000, 100_000])
def test_offsets_for_timestamps_are_those_that_all_headers_give(tmp_path, monkeypatch, disorder):
    path, rng = make(tmp_path, 7, disorder=disorder), random.Random(disorder)
    monkeypatch.setattr(header_reader, "read_headers", lambda *arguments: 0)  # as if the system had nothing in memory
    last = kafkalog.open_partition(path).log_end_offset
    read = []
    window = FileSource.window
    monkeypatch.setattr(
        FileSource, "window", lambda self, begin, end: read.append(end - begin) or window(self, begin, end)
    )
    n_bytes = {True: 0, False: 0}
    for _ in range(8):
        stamps = [START + rng.randrange(-5, last + 5) * 1000 + rng.randrange(1000) for _ in range(rng.randrange(1, 4))]
        found = []
        for uses in (True, False):
            read.clear()
            found.append(kafkalog.open_partition(path).list_offsets.answer(stamps, use_time_index=uses).tolist())
            n_bytes[uses] += sum(read)
        assert found[0] == found[1], stamps
        partition = kafkalog.open_partition(path)
        for stamp in stamps:  # what one search walked is of use to the next only if it is whole
            found[0] = partition.list_offsets.answer(stamp, use_time_index=rng.random() < 0.7).tolist()
            assert found[0] == kafkalog.open_partition(path).find_timestamps(stamp).tolist()
    assert n_bytes[True] < n_bytes[False]


@pytest.mark.parametrize("seed", range(4))
def test_wrong_indexes_change_nothing_for_those_who_do_not_use_them_and_are_noticed_by_those_who_do(tmp_path, seed):
    path, rng = make(tmp_path, seed, disorder=3_000), random.Random(seed)
    last = kafkalog.open_partition(path).log_end_offset
    starts = [START + rng.randrange(-5, last + 5) * 1000 for _ in range(8)]
    expected = [n_bytes(path, start_timestamp=start)[0] for start in starts]
    spoil(path, rng)
    for start, offsets in zip(starts, expected, strict=True):
        assert n_bytes(path, start_timestamp=start)[0] == offsets
        assert n_bytes(path, start_timestamp=start, use_time_index=True)[0] == offsets


def test_an_index_that_is_cut_or_begins_late(tmp_path):
    path = make(tmp_path, 1, disorder=0)
    log = min(path.glob("*.log"))
    times = log.with_suffix(".timeindex")
    whole = times.read_bytes()
    late = START + 10**9
    position = position_of_younger(Segment(log), late)
    assert log.stat().st_size - position < 5_000  # the last entry of a closed segment is about its end
    times.write_bytes(whole[: len(whole) // 24 * 12])
    assert 0 < position_of_younger(Segment(log), late) < position
    times.write_bytes(whole[: len(whole) // 24 * 12] + bytes(120))  # as a broker has it that appends
    assert 0 < position_of_younger(Segment(log), late) < position
    for data in (whole[24:], b"", whole[:5]):  # a broker that found none goes on with an empty one
        times.write_bytes(data)
        assert position_of_younger(Segment(log), late) == 0
    times.unlink()
    assert position_of_younger(Segment(log), late) == 0
    times.write_bytes(whole)
    log.with_suffix(".index").unlink()
    assert position_of_younger(Segment(log), late) == 0


def test_one_hour_of_a_long_topic_reads_few_bytes(tmp_path):
    path = make(tmp_path, 1, disorder=500)
    size = sum(log.stat().st_size for log in path.glob("*.log"))
    last = kafkalog.open_partition(path).log_end_offset
    options = {"start_timestamp": START + (last - 30) * 1000}
    expected, most = n_bytes(path, **options)
    found, least = n_bytes(path, use_time_index=True, **options)
    assert found == expected
    assert most == size
    assert least < size / 8
    hour = [("timestamp", ">=", START + (last - 30) * 1000)]
    assert n_bytes(path, filters=hour, use_time_index=True) == (found, least)
    dataset = kafkalog.dataset(path, use_time_index=True)
    assert dataset.filter(_after(options)).count_rows() == len(found)
    assert "by the time indexes" in str(kafkalog.scan(path, use_time_index=True, **options).explain())


def _after(options):
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.field("timestamp") >= pa.scalar(options["start_timestamp"], pa.timestamp("ms", "UTC"))


@pytest.mark.parametrize("broker", thinned(["k44", "k28"], 2))
def test_indexes_that_brokers_wrote(broker):
    root = golden_sets.unpacked(broker)
    whole = kafkalog.read_table(root, columns=["topic", "partition", "offset", "timestamp"])
    stamps = sorted({stamp.value for stamp in whole["timestamp"] if stamp.value is not None and stamp.value > 0})
    for stamp in stamps[:: len(stamps) // (3 if THOROUGH else 1)]:
        options = {"columns": whole.column_names, "start_timestamp": stamp, "threads": 1}
        for level in ("read_uncommitted", "read_committed"):
            expected = kafkalog.read_table(root, isolation_level=level, **options)
            assert kafkalog.read_table(root, isolation_level=level, use_time_index=True, **options).equals(expected)
    parts = kafkalog.scan(root, use_time_index=True, **options).plan(target_bytes=2**14)
    assert sum(part.count_rows() for part in parts) == kafkalog.scan(root, **options).count_rows()
