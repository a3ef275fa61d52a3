"""`Scan.explain`: what it counts is what is there, and what it says was ruled out was not read."""

import functools
import struct

import builder
import pytest
from effort import thinned

import kafkalog
from kafkalog.log.segment_reader import ScanStatistics

N_SEGMENTS, N_BATCHES, N_RECORDS = 3, 8, 10
VALUE = b"v" * 600


def make(directory, *, indexed=True):
    """Three segments of eight batches of ten records each; the sizes of the batches."""
    directory.mkdir(parents=True)
    files, sizes = content(indexed)
    for name, data in files.items():
        (directory / name).write_bytes(data)
    return sizes


@functools.cache
def content(indexed):
    """Its files, and the sizes of their batches.

    Offset n has timestamp 1000 + n; every other batch is compressed, the last of each segment is a control batch.
    """
    files = {}
    sizes = []
    offset = 0
    for _ in range(N_SEGMENTS):
        base, data, index = offset, b"", b""
        mine = []
        for number in range(N_BATCHES):
            if number == N_BATCHES - 1:
                batch = builder.control_batch(builder.COMMIT, base_offset=offset, timestamp=1000 + offset)
                n = 1
            else:
                n = N_RECORDS
                records = [builder.record_v2(i, i, b"k%d" % (offset + i), VALUE) for i in range(n)]
                batch = builder.batch_v2(
                    records, base_offset=offset, codec=builder.ZSTD if number % 2 else 0, base_timestamp=1000 + offset,
                    max_timestamp=1000 + offset + n - 1, producer_id=number,
                )  # fmt: skip
            if number and indexed:
                index += struct.pack(">ii", offset + n - 1 - base, len(data))
            data += batch
            mine.append(len(batch))
            offset += n
        files[f"{base:020d}.log"] = data
        if indexed:
            files[f"{base:020d}.index"] = index
        sizes.append(mine)
    return files, sizes


PER_SEGMENT = (N_BATCHES - 1) * N_RECORDS + 1


@pytest.fixture
def log(tmp_path):
    root = tmp_path / "log"
    sizes = make(root / "t-0")
    make(root / "t-1")
    make(root / "u-0")
    return root, sizes


def counts(path, analyze=True, **options):
    return kafkalog.scan(path, **options).explain(analyze=analyze).statistics


def test_a_scan_of_everything_reads_everything(log):
    root, sizes = log
    n_bytes = 3 * sum(map(sum, sizes))
    found = counts(root, include_control=True)
    assert found == ScanStatistics(
        n_partitions=3, n_partitions_read=3, n_segments=9, n_segments_read=9, n_bytes=n_bytes, n_bytes_jumped=0,
        n_bytes_read=n_bytes, n_batches=72, n_batches_decoded=72, n_records=9 * PER_SEGMENT,
        n_records_selected=9 * PER_SEGMENT,
    )  # fmt: skip
    without = counts(root)
    assert (without.n_batches, without.n_batches_decoded, without.n_records) == (72, 63, 630)


@pytest.mark.parametrize("threads", thinned([1, 4], 2))
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        # partitions
        ({"topics": "t"}, {"n_partitions_read": 2, "n_segments": 6, "n_segments_read": 6}),
        ({"filters": [("topic", "==", "t")]}, {"n_partitions_read": 2, "n_segments": 6, "n_segments_read": 6}),
        ({"filters": [("topic", "==", "t"), ("partition", ">", 0)]}, {"n_partitions_read": 1, "n_segments_read": 3}),
        ({"filters": [("topic", "==", "x")]}, {"n_partitions_read": 0, "n_segments": 0, "n_bytes": 0, "n_records": 0}),
        # segments
        ({"topics": "u", "filters": [("segment", "==", f"{71:020d}.log")]}, {"n_segments_read": 1, "n_batches": 8}),
        ({"topics": "u", "end_offset": 71}, {"n_segments_read": 1, "n_batches": 8, "n_batches_decoded": 7}),
        ({"topics": "u", "filters": [("offset", "<", 71)]}, {"n_segments_read": 1, "n_records_selected": 70}),
        ({"topics": "u", "start_offset": 142}, {"n_segments_read": 1, "n_batches_decoded": 7, "n_records": 70}),
        ({"topics": "u", "filters": [("offset", "in", [80, 81])]}, {"n_segments_read": 1, "n_records_selected": 2}),
        # batches
        ({"topics": "u", "filters": [("compression", "==", "zstd")]}, {"n_batches": 24, "n_batches_decoded": 9}),
        ({"topics": "u", "filters": [("producer_id", "in", [0, 6])]}, {"n_batches_decoded": 6, "n_records": 60}),
        ({"topics": "u", "filters": [("is_control", "==", True)]}, {"n_batches_decoded": 0, "n_records": 0}),
        (
            {"topics": "u", "filters": [("is_control", "==", True)], "include_control": True},
            {"n_batches_decoded": 3, "n_records": 3, "n_records_selected": 3},
        ),
        ({"topics": "u", "start_timestamp": 1000 + 208}, {"n_batches_decoded": 1, "n_records_selected": 4}),
        ({"topics": "u", "filters": [("timestamp", ">", 1208)]}, {"n_batches_decoded": 1, "n_records_selected": 3}),
        (
            {"topics": "u", "filters": [[("offset", "==", 75)], [("producer_id", "==", 3)]]},
            {"n_batches_decoded": 4, "n_records": 40, "n_records_selected": 31},
        ),
        # records
        ({"topics": "u", "filters": [("key", "==", b"k75")]}, {"n_records": 210, "n_records_selected": 1}),
        ({"topics": "u", "where": eval("lambda offset: offset < 5")}, {"n_records": 210, "n_records_selected": 5}),
    ],
)  # fmt: skip
def test_each_level_counts_what_it_rules_out(log, options, expected, threads):
    root, _ = log
    found = counts(root, threads=threads, **options).as_dict()
    assert {name: found[name] for name in expected} == expected
    assert found["n_records_selected"] == kafkalog.scan(root, **options).count_rows()
    # headers alone say the same, and nothing of records
    quick = counts(root, analyze=False, threads=threads, **options).as_dict()
    assert (quick.pop("n_records"), quick.pop("n_records_selected")) == (None, None)
    # headers alone are not read in windows: the walk may end a batch of 78 bytes earlier behind a range of offsets
    n_fewer = found["n_batches"] - quick.pop("n_batches")
    assert n_fewer in ((0, 1) if "end_offset" in options or "offset" in str(options) else (0,))
    assert quick.pop("n_bytes_read") == found["n_bytes_read"] - 78 * n_fewer
    assert quick == {name: found[name] for name in quick}


def test_what_was_ruled_out_is_not_read(log):
    root, sizes = log
    path = root / "t-0"
    # damage where nothing has to be looked at
    for number, base in enumerate((0, PER_SEGMENT)):
        file = path / f"{base:020d}.log"
        data = bytearray(file.read_bytes())
        for start in (61, sum(sizes[number][:3]) + 61):
            data[start + 5] ^= 0xFF
        file.write_bytes(data)
    for options in (
        {"filters": [("offset", ">=", 2 * PER_SEGMENT)]},
        {"filters": [("segment", "==", f"{2 * PER_SEGMENT:020d}.log")]},
        {"filters": [("producer_id", "in", [1, 2, 4])]},
        {"filters": [("offset", "<", 2 * PER_SEGMENT), ("compression", "==", "zstd"), ("producer_id", "!=", 3)]},
    ):
        assert kafkalog.scan(path, **options).count_rows() > 0
    with pytest.raises(kafkalog.errors.CorruptionError):
        kafkalog.scan(path, filters=[("key", "==", b"k200")]).count_rows()


def test_damage_in_headers_is_met_as_a_scan_meets_it(log):
    root, sizes = log
    file = root / "t-0" / f"{0:020d}.log"
    data = bytearray(file.read_bytes())
    data[sizes[0][0] + 8 : sizes[0][0] + 12] = struct.pack(">i", -5)
    file.write_bytes(data)
    scan = kafkalog.scan(root / "t-0")
    with pytest.raises(kafkalog.errors.CorruptionError):
        scan.explain()
    stopped = kafkalog.scan(root / "t-0", on_corruption="stop").explain().statistics
    assert stopped.n_batches == 1
