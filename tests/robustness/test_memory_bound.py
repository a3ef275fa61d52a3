"""What a batch of very many tiny records costs, or of a large one: no more than is stated, whatever is done with it."""

import random

import builder
import pyarrow as pa
import pytest
import zstandard
from effort import THOROUGH
from peaks import NEEDS_PROC, printed_by

import kafkalog
from kafkalog.errors import LimitExceededError, Limits, Reason
from kafkalog.format import segment_file_name

MIB = 2**20
MAX_RECORDS = 150_000
READING, TEXT = (2, 80), (5, 120)
"""Copies of `max_decompressed_bytes` and bytes a record, beside 64 MiB and what the imports take: see `Limits`."""

TINY = b"\x0c\0\0\0\x01\x01\0"


def tiny_records(directory, n, magic):
    """A partition of one batch with `n` records without key and value."""
    directory.mkdir()
    if magic == 2:
        payload = zstandard.ZstdCompressor(level=3).compress(TINY * n)
        batch = builder.batch_v2([], codec=4, payload=payload, records_count=n, last_offset_delta=n - 1)
    else:
        payload = builder.gzip_member(builder.message(0, None, None, magic=magic) * n)
        batch = builder.wrapper([], offset=n, magic=magic, codec=1, payload=payload)
    (directory / segment_file_name(0)).write_bytes(batch)
    return directory


EVERYTHING = """
import gc, shutil, sys
from pathlib import Path
import pyarrow as pa, pyarrow.csv, pyarrow.parquet
import kafkalog
from kafkalog.errors import KafkalogError, Limits
from peaks import begin, peak
partition, out, golden = map(Path, sys.argv[1:4])
limits = Limits(max_records_per_batch=int(sys.argv[4]), max_decompressed_bytes=int(sys.argv[5]))

def drain(iterator):
    for _ in iterator:
        pass

def calls(partition, out):
    log = next(partition.glob("*.log"))
    options = {"limits": limits, "threads": 1}
    yield lambda: drain(kafkalog.scan(partition, **options).to_batches())
    yield lambda: kafkalog.scan(partition, filters=[("value", "==", b"x")], **options).count_rows()
    yield lambda: kafkalog.verify(partition, deep=True, threads=1, limits=limits)
    yield None
    for number, rewrite in enumerate(({"compression": "lz4"}, {"batch_size": 9999}, {"drop": [("offset", "<", 5)]})):
        yield lambda: kafkalog.convert(partition, out / f"c-{number}", **rewrite, **options)
    yield None
    for suffix in ("csv", "jsonl", "parquet", "arrow"):
        yield lambda: kafkalog.export(partition, out / f"x.{suffix}", **options)
    dump = kafkalog.dump(log, print_data_log=True, limits=limits)
    yield lambda: drain(dump.chunks())
    yield lambda: drain(dump.rows())

out.mkdir()
for call in filter(None, calls(golden, out)):
    call()
shutil.rmtree(out)
out.mkdir()
gc.collect()
before = begin()
refused, grown = 0, [0]
for call in calls(partition, out):
    if call is None:
        grown.append(0)
        continue
    if sys.argv[6] == "True":  # what calls before have left to the allocators is not counted
        gc.collect()
        before = begin()
    try:
        call()
    except KafkalogError as error:
        refused += 1
    grown[-1] = max(grown[-1], peak() - before)
print(*grown, refused)
"""


@pytest.mark.slow
@NEEDS_PROC
@pytest.mark.parametrize(("times", "magic"), [(1, 2), (1, 0), (2, 2), (2, 0)])
def test_a_batch_of_very_many_tiny_records_stays_within_the_stated_bound(times, magic, tmp_path, log_dir):
    partition = tiny_records(tmp_path / "t-0", times * MAX_RECORDS, magic)
    refused = stays_within_the_bound(partition, log_dir, MAX_RECORDS, 16 * MIB)
    # what is refused is refused by all but verify, which reports it
    assert refused >= 8 if times > 1 else refused <= 3


@pytest.mark.slow
@NEEDS_PROC
@pytest.mark.parametrize("is_random", [False, True])
def test_a_large_record_stays_within_the_stated_bound(is_random, tmp_path, log_dir):
    partition = tmp_path / "t-0"
    partition.mkdir()
    size = 64 * MIB if THOROUGH else 24 * MIB
    value = random.Random(54).randbytes(size - 100) if is_random else bytes(size - 100)
    payload = zstandard.ZstdCompressor(level=3).compress(builder.record_v2(value=value))
    batch = builder.batch_v2([], codec=4, payload=payload, records_count=1, last_offset_delta=0)
    (partition / segment_file_name(0)).write_bytes(batch)
    assert stays_within_the_bound(partition, log_dir, 1000, size) == 0


def stays_within_the_bound(partition, log_dir, n_records, decompressed):
    """Do everything with a partition in a new process; returns how many of the calls were refused."""
    # what compresses badly is written as large as it was read
    batch_bytes = max(path.stat().st_size for path in partition.iterdir())
    is_text = batch_bytes < decompressed // 2
    arguments = partition, partition.with_name("out"), log_dir / "p-multi-0"
    printed = printed_by(EVERYTHING, *arguments, n_records, decompressed, not is_text)
    *grown, refused = map(int, printed.split())
    bounds = [
        ("read", *READING, 1),
        ("convert", *READING, 3),  # the new batch, twice
        ("export", *(TEXT if is_text else (8, 120)), 1),  # three bytes for each that is no text
    ]
    for (what, n_copies, per_record, n_batches), n_bytes in zip(bounds, grown, strict=True):
        bound = 64 * MIB + n_copies * decompressed + per_record * n_records + n_batches * batch_bytes
        assert n_bytes < bound, f"{what}: {n_bytes / MIB:.0f} MiB of {bound / MIB:.0f}"
    return refused


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("check_crcs", [True, False])
def test_a_batch_of_more_records_than_allowed_is_named_and_the_others_are_read(magic, check_crcs, tmp_path):
    partition = tiny_records(tmp_path / "t-0", 500, magic)
    log = partition / segment_file_name(0)
    behind = builder.batch_v2([builder.record_v2(0, 0, b"k", b"v")], base_offset=10_000)
    log.write_bytes(log.read_bytes() + behind)
    allowed, refused = Limits(max_records_per_batch=500), Limits(max_records_per_batch=499)
    assert kafkalog.read_table(partition, limits=allowed, check_crcs=check_crcs).num_rows == 501
    with pytest.raises(LimitExceededError) as caught:
        kafkalog.read_table(partition, limits=refused, check_crcs=check_crcs)
    assert (caught.value.reason, caught.value.position) == (Reason.TOO_MANY_RECORDS, 0)
    with pytest.warns(kafkalog.CorruptionWarning):
        table = kafkalog.read_table(partition, limits=refused, on_corruption="skip", check_crcs=check_crcs)
    assert table["offset"].to_pylist() == [10_000]


@pytest.mark.parametrize("codec", [0, 1])
def test_a_wrong_checksum_or_count_is_found_before_too_many_records_are(codec, tmp_path):
    limits = Limits(max_records_per_batch=4)
    records = [builder.record_v2(0, i, None, b"v") for i in range(5)]
    good = builder.batch_v2(records, codec=codec)
    flipped = good[:-1] + bytes([good[-1] ^ 1])
    lied = builder.batch_v2(records, codec=codec, records_count=2**31 - 1)
    directory = tmp_path / "t-0"
    directory.mkdir()
    for batch, reason in ((good, "too_many_records"), (flipped, "crc_mismatch"), (lied, "record_count")):
        (directory / segment_file_name(0)).write_bytes(batch)
        with pytest.raises(kafkalog.KafkalogError, match=reason):
            kafkalog.read_table(directory, limits=limits)


def test_what_is_written_can_be_read_again(tmp_path):
    n = Limits().max_records_per_batch + 1
    kafkalog.write_table(pa.table({"value": pa.nulls(n, pa.binary())}), tmp_path, topic="t", batch_size=2**26)
    batches = kafkalog.batches(tmp_path).to_table()
    assert sum(batches["records_count"].to_pylist()) == n
    assert kafkalog.scan(tmp_path, columns=["offset"]).count_rows() == n


PEAK = """
import sys, pyarrow
import kafkalog
from peaks import peak

before = peak()
try:
    {call}
except kafkalog.KafkalogError as error:
    assert "too_many_records" in str(error)
print(before, peak())
"""


@pytest.mark.slow
@NEEDS_PROC
@pytest.mark.parametrize(
    "call",
    [
        "for _ in kafkalog.scan(sys.argv[1], threads=1).to_batches(): pass",
        "assert not kafkalog.verify(sys.argv[1], deep=True, threads=1).ok",
    ],
)
def test_35_million_tiny_records_in_22_kb_stay_within_the_bound_of_the_default_limits(call, tmp_path):
    partition = tiny_records(tmp_path / "t-0", 35_000_000, 2)
    assert (partition / segment_file_name(0)).stat().st_size < 25_000
    before, peak = map(int, printed_by(PEAK.format(call=call), partition).split())
    limits = Limits()
    bound = 64 * MIB + 2 * limits.max_decompressed_bytes + 80 * limits.max_records_per_batch
    assert peak - before < bound, f"{peak / MIB:.0f} MiB, {before / MIB:.0f} of them imports"
