"""A range of times gives what is left of the whole log, whichever reader reads which part of it."""

import random
from collections import Counter

import builder
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from effort import thinned
from refusals import fails_with

import kafkalog
from kafkalog import format as kf
from kafkalog.records.readers import record_reader
from kafkalog.records.readers.header_reader import HeaderReader, RangeReader
from kafkalog.records.readers.record_reader import RecordReader
from kafkalog.scanning import execution
from kafkalog.storage.source import FileSource

N_BATCHES = 400
COLUMNS = ["offset", "timestamp", "key", "value"]


def make(root, rng, disorder):
    """A partition of two segments, with messages and batches of all formats; a record a millisecond."""
    path = root / "t-0"
    path.mkdir()
    at = 0
    for _ in range(2):
        base, batches = at, []
        for number in range(N_BATCHES // 2):
            n = rng.randrange(1, 6)
            stamps = [max(at + one + rng.randrange(-disorder, disorder + 1), 0) for one in range(n)]
            texts = [rng.randbytes(rng.choice([10, 800])) for _ in range(n)]
            kind = rng.random()
            if kind < 0.05 and number > 100:
                batches.append(builder.message(at, b"k", texts[0], magic=0))
                n = 1
            elif kind < 0.1:
                batches.append(builder.message(at, b"k", texts[0], magic=1, timestamp=stamps[0]))
                n = 1
            else:
                records = [builder.record_v2(i, stamps[i] - stamps[0], b"k%d" % i, texts[i]) for i in range(n)]
                attributes = kf.TIMESTAMP_TYPE_BIT if kind < 0.2 else 0
                times = {"base_timestamp": stamps[0], "max_timestamp": max(stamps)}
                batches.append(builder.batch_v2(records, base_offset=at, attributes=attributes, **times))
            at += n
        (path / kf.segment_file_name(base)).write_bytes(b"".join(batches))
    return path


@pytest.fixture
def used(monkeypatch):
    """How many windows each reader gave; windows are small."""
    counts = Counter()
    for kind in (HeaderReader, RecordReader, RangeReader):
        read = kind.read

        def counted(self, *arguments, read=read, kind=kind):
            window = read(self, *arguments)
            counts[kind] += window is not None
            return window

        monkeypatch.setattr(kind, "read", counted)
    for name in ("_ALONE_BYTES", "_TOGETHER_BYTES", "_MIN_WINDOW_BYTES", "_RUN_BYTES"):
        monkeypatch.setattr(execution, name, 30_000)
    monkeypatch.setattr(record_reader, "_FIRST_STEP", 2_000)
    monkeypatch.setattr(record_reader, "_LEAST_STEP", 1_000)
    return counts


def in_range(table, start, end):
    stamps = table["timestamp"].cast(pa.int64())
    mask = pc.is_valid(stamps)
    if start is not None:
        mask = pc.and_kleene(mask, pc.greater_equal(stamps, start))
    if end is not None:
        mask = pc.and_kleene(mask, pc.less(stamps, end))
    return table.filter(mask)


@pytest.mark.parametrize("disorder", thinned([30, 0, 2_000], 3))
def test_the_same_as_of_the_whole(disk_path, used, disorder):
    rng = random.Random(disorder)
    path = make(disk_path, rng, disorder)
    everything = kafkalog.read_table(path, columns=COLUMNS)
    last = len(everything)
    n_found = 0
    for number in range(30):
        start, end = sorted(rng.randrange(-5, last + 5) for _ in range(2))
        bounds = rng.choice([(start, end), (start, None), (None, end), (start, start + 40), (0, last * 2)])
        options = {
            "threads": rng.choice([1, 2, 3]),
            "memory_map": rng.choice(["auto", True, False]),
            "isolation_level": rng.choice(["read_uncommitted", "read_uncommitted", "read_committed"]),
            "binary_type": rng.choice([pa.binary(), pa.large_binary(), pa.binary_view()]),
            "check_crcs": rng.random() < 0.8,
        }
        columns = rng.sample(COLUMNS, rng.randrange(1, 5))
        expected = in_range(everything, *bounds).select(columns)
        scan = kafkalog.scan(path, columns=columns, start_timestamp=bounds[0], end_timestamp=bounds[1], **options)
        found = scan.to_table()
        assert found.cast(expected.schema).to_pylist() == expected.to_pylist(), (number, bounds, options)
        terms = [("timestamp", ">=", bounds[0]), ("timestamp", "<", bounds[1])]
        filters = [term for term in terms if term[2] is not None]
        assert kafkalog.scan(path, filters=filters, **options).count_rows() == len(expected), (number, bounds, options)
        columns_found = scan.to_numpy()
        assert (columns_found.n_records, [*columns_found]) == (len(expected), columns)
        n_found += len(expected)
    assert n_found > 5_000
    assert min(used[kind] for kind in (HeaderReader, RecordReader, RangeReader)) > 25, used


def test_of_a_range_little_else_is_read(disk_path, used):
    path = make(disk_path, random.Random(1), 0)
    scan = kafkalog.scan(path, columns=["offset"], start_timestamp=500, end_timestamp=520, threads=1)
    offsets = scan.to_table()["offset"].to_pylist()
    assert 10 < len(offsets) <= 20
    assert used[RecordReader] <= 4
    assert used[HeaderReader] >= 2


def test_damage_is_told_in_the_range_and_not_before_it(tmp_path, used):
    path = make(tmp_path, random.Random(2), 0)
    log = sorted(path.glob("*.log"))[0]
    batches = kafkalog.open(log).batches
    row = 100
    content = bytearray(log.read_bytes())
    content[int(batches.next_position[row]) - 1] ^= 1
    log.write_bytes(content)
    first, last = int(batches.base_offset[row]), int(batches.last_offset[row])
    assert kafkalog.scan(path, start_timestamp=last + 1).count_rows() > 0
    with fails_with("crc_mismatch"):
        kafkalog.scan(path, start_timestamp=first - 20).count_rows()
    scan = kafkalog.scan(path, start_timestamp=first - 20, on_corruption="skip")
    with pytest.warns(kafkalog.CorruptionWarning):
        offsets = scan.to_table()["offset"].to_pylist()
    assert offsets[:20] == list(range(first - 20, first))
    assert offsets[20] == last + 1
    assert [(one.base_offset, one.last_offset) for one in scan.findings] == [(first, last)]


def test_the_end_of_a_range_rules_out_batches_with_log_append_time(tmp_path):
    log = tmp_path / f"{0:020d}.log"
    batches = []
    for number in range(50):
        records = [builder.record_v2(one, -7 * one, b"k", bytes(500)) for one in range(3)]
        times = {"base_timestamp": number, "max_timestamp": number}
        attributes = kf.TIMESTAMP_TYPE_BIT if number % 5 else 0
        batches.append(builder.batch_v2(records, base_offset=3 * number, attributes=attributes, **times))
    log.write_bytes(b"".join(batches))
    everything = kafkalog.read_table(log, columns=COLUMNS)
    for end in range(-20, 60, 7):
        scan = kafkalog.scan(log, columns=COLUMNS, start_timestamp=3, end_timestamp=end)
        assert scan.to_table() == in_range(everything, 3, end)
        counts = scan.explain().statistics
        # of the others, each fifth, a header does not say the smallest
        assert counts.n_batches_decoded == len([one for one in range(3, 50) if one % 5 == 0 or one < end])


@pytest.mark.parametrize("magic", [1, 2])
def test_who_reads_a_batch_does_not_decide_which_of_its_records_are_found(tmp_path, magic):
    """Headers that say too little of the timestamps rule out their batches for every reader."""
    path, batches = tmp_path / "t-0", []
    path.mkdir()
    for number in range(2000):
        stamp = -1 if number % 10 == 3 else number
        record = builder.record_v2(0, number, b"k", bytes(20))
        if magic == 2:
            batches.append(builder.batch_v2([record], base_offset=number, base_timestamp=0, max_timestamp=stamp))
        else:
            inner = [builder.message(0, b"k", bytes(20), timestamp=number)]
            batches.append(builder.wrapper(inner, offset=number, codec=builder.GZIP, timestamp=stamp))
    (path / f"{0:020d}.log").write_bytes(b"".join(batches))
    options = {"start_timestamp": 500, "threads": 1}
    expected = [number for number in range(500, 2000) if number % 10 != 3]
    scan = kafkalog.scan(path, columns=["offset"], **options)
    assert scan.to_table()["offset"].to_pylist() == expected
    statistics = scan.explain(analyze=True).statistics
    assert statistics.n_records == statistics.n_records_selected == len(expected)
    filters = [("timestamp", ">=", 500), ("key", "==", b"k")]
    assert kafkalog.scan(path, filters=filters).count_rows() == len(expected)
    assert kafkalog.scan(path, include_control=True, **options).count_rows() == len(expected)
    assert sum(part.count_rows() for part in scan.plan(target_bytes=20_000)) == len(expected)


def test_bounds_of_a_segment_alone_may_be_anything(tmp_path):
    path = tmp_path / "t-0"
    path.mkdir()
    names = [kf.segment_file_name(base) for base in (0, 10)]
    for base, name in zip((0, 10), names, strict=True):
        (path / name).write_bytes(builder.batch_v2([builder.record_v2(0)], base_offset=base))
    for value in (-(2**63), -(2**70), 2**63 - 1, 2**70):
        for operation in ("<", "<=", ">", ">=", "=="):
            filters = [[("segment", "==", names[0]), ("offset", operation, value)], [("segment", "==", names[1])]]
            found = kafkalog.scan(path, columns=["offset"], filters=filters).to_table()["offset"].to_pylist()
            is_wanted = value > 0 if operation in ("<", "<=") else value < 0 and operation != "=="
            assert found == ([0, 10] if is_wanted else [10]), (operation, value)


def test_headers_with_gaps_behind_them_are_not_read_one_by_one(tmp_path, monkeypatch):
    """Of a compacted log each batch is one behind which offsets are missing: its checksum is compared with "skip"."""
    log = tmp_path / f"{0:020d}.log"
    record = builder.record_v2(0, 0, b"k", bytes(200))
    log.write_bytes(b"".join(builder.batch_v2([record], base_offset=2 * number) for number in range(2000)))
    n_read = 0
    window = FileSource.window

    def counted(self, start, stop):
        nonlocal n_read
        n_read += 1
        return window(self, start, stop)

    monkeypatch.setattr(FileSource, "window", counted)
    kafkalog.batches(log, on_corruption="skip").to_table()
    assert n_read < 60
