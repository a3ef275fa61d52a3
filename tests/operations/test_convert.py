"""Converted logs: what is v2 stays byte for byte, the rest reads the same, and filters take what a scan would."""

from __future__ import annotations

import hashlib
import hmac
import shutil
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import builder
import golden_sets
import numpy as np
import pytest
import reference
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog import format as kf
from kafkalog.errors import CorruptionError, OutputExistsError, Reason, UnsafePathError
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.operations.converting.assemble import empty_batches
from kafkalog.operations.converting.redaction import Redaction
from kafkalog.operations.list_producers import list_producers

COLUMNS = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
Row = tuple[Any, ...]


def write_partition(directory: Path, segments: list[tuple[int, bytes]]) -> Path:
    directory.mkdir()
    for base_offset, data in segments:
        (directory / kf.segment_file_name(base_offset)).write_bytes(data)
    return directory


@contextmanager
def partition_of(segments: list[tuple[int, bytes]]) -> Iterator[Path]:
    """A partition directory ``t-0`` in a directory of its own."""
    with tempfile.TemporaryDirectory() as folder:
        yield write_partition(Path(folder) / "t-0", segments)


def logs(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.log"))}


def batches_of(directory: Path) -> list[reference.Batch]:
    found: list[reference.Batch] = []
    for data in logs(directory).values():
        result = reference.read_segment(data)
        assert result.problem is None
        found += result.batches
    return found


def raw_batches(directory: Path) -> list[bytes]:
    return [data[start:stop] for data in logs(directory).values() for start, stop in builder.batch_positions(data)]


def rows(path: Path | Partition, **options: Any) -> list[Row]:
    """Records as the log has them, but that a v0 record reads like one without a timestamp."""
    records = kafkalog.read_numpy(path, columns=COLUMNS, threads=1, **options)
    return list(
        zip(
            records.offset.tolist(),
            np.ma.filled(records.timestamp, -1).tolist(),
            np.maximum(records.timestamp_type, 0).tolist(),
            records.key.to_pylist(),
            records.value.to_pylist(),
            records.headers.to_pylist(),
            strict=True,
        )
    )


def stands(path: Path) -> tuple[Any, ...]:
    """Producers and transactions, apart from when a producer's last batch was."""
    partition = Partition(path)
    listed = list_producers(partition, now_ms=0)
    producers = [
        (
            one.producer_id,
            one.producer_epoch,
            one.last_sequence,
            one.last_offset,
            one.coordinator_epoch,
            one.transaction_start_offset,
        )
        for one in listed.producers
    ]
    aborted = partition.aborted_transactions().tolist()
    return producers, aborted, partition.last_stable_offset, partition.log_end_offset, partition.log_start_offset


# --------------------------------------------------------------------------------------------------------- golden


def healthy(set_name: str) -> list[tuple[str, Path]]:
    """Those that are partitions of topics."""
    left_out = ("__cluster_metadata-0",)
    found = golden_sets.partitions(set_name).items()
    return [(name, path) for name, path in found if "." not in name and name not in left_out]


@pytest.fixture(scope="module", params=golden_sets.SETS)
def converted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A golden set, converted without an option but that nothing is left out."""
    target = tmp_path_factory.mktemp("converted") / "out"
    report = kafkalog.convert(golden_sets.unpacked(request.param), target, include_deleted=True, internal=True)
    assert report.is_written
    assert report.total("n_records_before") == report.total("n_records_after") > 0
    return request.param, target


def test_what_is_v2_comes_out_byte_for_byte(converted: tuple[str, Path]) -> None:
    set_name, target = converted
    n_files = 0
    for name, source in healthy(set_name):
        for file, data in logs(source).items():
            if all(data[start + 16] == 2 for start, _ in builder.batch_positions(data)):
                assert (target / name / file).read_bytes() == data, f"{name}/{file}"
                n_files += 1
    assert n_files >= {"k44": 98, "k28": 25, "k44_extra": 10}[set_name]


def test_every_record_reads_as_before(converted: tuple[str, Path]) -> None:
    set_name, target = converted
    n_legacy = 0
    for name, source in healthy(set_name):
        before, after = batches_of(source), batches_of(target / name)
        if all(batch.magic == 2 for batch in before):
            continue
        n_legacy += 1
        assert {batch.magic for batch in after} == {2}
        for level in ("read_uncommitted", "read_committed"):
            options = {"include_deleted": True, "isolation_level": level}
            assert rows(target / name, **options) == rows(source, **options), name
        before_records = [record for batch in before for record in batch.records]
        after_records = [record for batch in after for record in batch.records]
        assert [(r.offset, r.key, r.value, r.codec) for r in before_records] == [
            (r.offset, r.key, r.value, r.codec) for r in after_records
        ]
    assert n_legacy == {"k44": 0, "k28": 26, "k44_extra": 0}[set_name]


def test_producers_and_transactions_are_as_before(converted: tuple[str, Path]) -> None:
    set_name, target = converted
    for name, source in healthy(set_name):
        if name not in golden_sets.log_start_offsets(set_name):
            assert stands(target / name) == stands(source), name


def test_what_is_written_is_healthy(converted: tuple[str, Path]) -> None:
    _, target = converted
    verification = kafkalog.verify(target, deep=True)
    assert [str(finding) for finding in verification.all_findings() if finding.damage] == []


# ------------------------------------------------------------------------------------------- legacy, by hypothesis


@settings(max_examples=30)
@given(segment=strategies.segments(max_batches=5, as_brokers_write=True), batch_size=st.sampled_from([None, 1, 300]))
def test_any_log_reads_as_before(segment: strategies.Segment, batch_size: int | None) -> None:
    with partition_of([(segment.base_offset, segment.data)]) as source:
        target = source.parent / "out" / "t-0"
        target.parent.mkdir()
        kafkalog.convert(source, target, batch_size=batch_size, threads=1)
        assert rows(target) == rows(source)
        after = batches_of(target)
        assert {batch.magic for batch in after} <= {2}
        if all(segment.data[start + 16] == 2 for start, _ in segment.batches) and batch_size is None:
            assert b"".join(logs(target).values()) == segment.data


def test_single_messages_are_put_together_and_a_wrapper_stays_one_batch(tmp_path: Path) -> None:
    single = b"".join(builder.message(offset, b"k", b"v" * 100, timestamp=offset) for offset in range(1000))
    inner = [builder.message(i, b"k", b"w", timestamp=7) for i in (0, 2)]
    wrapped = builder.wrapper(inner, offset=1002, codec=builder.LZ4, timestamp=7)
    source = write_partition(tmp_path / "t-0", [(0, single + wrapped)])
    kafkalog.convert(source, tmp_path / "u-3")
    after = batches_of(tmp_path / "u-3")
    assert 5 <= len(after) < 15
    assert all(batch.size_in_bytes <= 16384 for batch in after)
    last = after[-1]
    assert (last.base_offset, last.last_offset, [record.offset for record in last.records]) == (
        1000,
        1002,
        [1000, 1002],
    )
    assert last.records[0].codec == builder.LZ4


def test_log_append_time_stays_what_it_is(tmp_path: Path) -> None:
    messages = [
        builder.message(offset, b"k", b"v", timestamp=stamp, log_append_time=True)
        for offset, stamp in enumerate([5, 5, 6, 6, 6])
    ]
    source = write_partition(tmp_path / "t-0", [(0, b"".join(messages))])
    kafkalog.convert(source, tmp_path / "u-0")
    assert [(batch.max_timestamp, len(batch.records)) for batch in batches_of(tmp_path / "u-0")] == [(5, 2), (6, 3)]
    assert [row[1:3] for row in rows(tmp_path / "u-0")] == [(5, 1), (5, 1), (6, 1), (6, 1), (6, 1)]


def test_legacy_messages_get_the_leader_epoch_before_them(tmp_path: Path) -> None:
    record = builder.record_v2(0, 0, b"k", b"v")
    parts = [
        builder.message(0, b"k", b"v"),
        builder.batch_v2([record], base_offset=1, leader_epoch=4),
        builder.message(2, b"k", b"v"),
        builder.batch_v2([record], base_offset=3, leader_epoch=6),
    ]
    source = write_partition(tmp_path / "t-0", [(0, b"".join(parts))])
    kafkalog.convert(source, tmp_path / "u-0")
    epochs = kafkalog.open(tmp_path / "u-0").segments[0].batches.partition_leader_epoch  # type: ignore[union-attr]
    assert epochs.tolist() == [0, 4, 4, 6]


# -------------------------------------------------------------------------------------------------------- filters

FILTERS = st.sampled_from(
    [
        [("offset", ">=", 5)],
        [("offset", "in", [1, 3, 4, 8, 9, 20])],
        [("value", "contains", b"1")],
        [("value", "starts_with", b"old")],
        [("key", "==", b"k"), ("offset", "<", 9)],
        [("key", "is null")],
        [("producer_id", "==", 1)],
        [("is_transactional", "==", True)],
        [("timestamp", ">", 0)],
        [[("sequence", ">=", 0)], [("compression", "==", "lz4")]],
    ]
)


@settings(max_examples=25)
@given(log=strategies.transaction_logs(), filters=FILTERS, is_drop=st.booleans(), threads=st.sampled_from([1, 2]))
def test_filters_take_what_a_scan_takes_and_leave_the_rest_alone(
    log: strategies.TransactionLog, filters: Any, is_drop: bool, threads: int
) -> None:
    with partition_of(log.segments) as source:
        target = source.parent / "out" / "t-0"
        target.parent.mkdir()
        kafkalog.convert(source, target, threads=threads, **{"drop" if is_drop else "filters": filters})
        wanted = {row[0] for row in rows(source, filters=filters)}
        for level in ("read_uncommitted", "read_committed"):
            expected = [row for row in rows(source, isolation_level=level) if (row[0] in wanted) != is_drop]
            assert rows(target, isolation_level=level) == expected
        assert stands(target) == stands(source)

        raw = set(raw_batches(source))
        kept_offsets = {row[0] for row in rows(target)}
        for data, batch in zip(raw_batches(source), batches_of(source), strict=True):
            is_whole = batch.magic == 2 and {record.offset for record in batch.records} <= kept_offsets
            if is_whole and (batch.is_control or batch.records):
                assert data in raw_batches(target)
        before = {batch.base_offset: batch for batch in batches_of(source)}
        for data, batch in zip(raw_batches(target), batches_of(target), strict=True):
            if data in raw or batch.base_offset not in before or before[batch.base_offset].magic < 2:
                continue
            same = before[batch.base_offset]
            for name in ("last_offset", "producer_id", "producer_epoch", "base_sequence", "leader_epoch"):
                assert getattr(batch, name) == getattr(same, name)
            assert batch.records or len(data) == 61


@pytest.mark.parametrize(
    ("set_name", "name"),
    [
        ("k44", "p-txn-0"),
        ("k44", "p-idem-0"),
        ("k44", "p-compact-idem-0"),
        ("k44_extra", "p-compact-txn-now-0"),
        ("k28", "p-v2-txn-0"),
        ("k28", "p-v1v2-mixed-0"),
    ],
)
def test_what_is_left_of_a_real_log_is_healthy_and_its_producers_are_known(
    set_name: str, name: str, tmp_path: Path
) -> None:
    source = golden_sets.partitions(set_name)[name]
    for number, share in enumerate((7, 2, 1)):
        drop = [("offset", "in", [offset for offset in range(2000) if offset % share == 0])]
        (tmp_path / str(number)).mkdir()
        report = kafkalog.convert(source, tmp_path / str(number) / name, drop=drop)
        target = Path(report.partitions[0].path)
        assert report.partitions[0].n_records_dropped > 0
        assert [row[0] for row in rows(target)] == [row[0] for row in rows(source) if row[0] % share]
        assert stands(target) == stands(source)
        verification = kafkalog.verify(target, deep=True)
        assert [str(finding) for finding in verification.all_findings() if finding.damage] == []


def idempotent(offset: int, sequence: int, n: int = 3, producer_id: int = 7, **options: Any) -> bytes:
    records = [builder.record_v2(i, i, b"k%d" % (offset + i), b"v") for i in range(n)]
    return builder.batch_v2(
        records, base_offset=offset, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, **options
    )


def test_the_last_batch_of_a_producer_and_of_the_log_stay_as_empty_ones(tmp_path: Path) -> None:
    plain = builder.batch_v2([builder.record_v2(0, 0, b"k9", b"v")], base_offset=9)
    parts = [idempotent(0, 0), idempotent(3, 3), idempotent(6, 0, producer_id=8), plain]
    source = write_partition(tmp_path / "t-0", [(0, b"".join(parts))])
    report = kafkalog.convert(source, tmp_path / "u-0", filters=[("key", "==", b"nobody")])
    after = batches_of(tmp_path / "u-0")
    assert [(batch.base_offset, batch.last_offset, batch.size_in_bytes) for batch in after] == [
        (3, 5, 61),
        (6, 8, 61),
        (9, 9, 61),
    ]
    assert stands(tmp_path / "u-0") == stands(source)
    assert report.partitions[0].n_records_dropped == 10
    assert kafkalog.open(tmp_path / "u-0").log_end_offset == 10  # type: ignore[union-attr]


def test_an_empty_batch_is_what_the_log_cleaner_writes() -> None:
    found = 0
    for name, partition in golden_sets.partitions("k44_extra").items():
        for batches in (segment.batches for segment in Partition(partition).segments):
            empty = batches[(batches.records_count == 0) & (batches.magic == 2)]
            if len(empty):
                made = empty_batches(empty)
                for name in ("base_offset", "last_offset", "attributes", "base_timestamp", "crc", "base_sequence"):
                    assert np.array_equal(getattr(made.batches, name), getattr(empty, name)), name
                found += len(empty)
    assert found > 3


def test_markers_stay_and_a_transaction_begins_where_it_began(tmp_path: Path) -> None:
    def txn(offset: int, **options: Any) -> bytes:
        return idempotent(offset, offset, n=1, transactional=True, **options)

    abort = builder.control_batch(builder.ABORT, base_offset=3, producer_id=7)
    parts = [txn(0), txn(1), txn(2), abort, txn(4, producer_id=9), txn(5, producer_id=9)]
    source = write_partition(tmp_path / "t-0", [(0, b"".join(parts))])
    kafkalog.convert(source, tmp_path / "u-0", filters=[("key", "==", b"k1")])
    after = batches_of(tmp_path / "u-0")
    assert [(batch.base_offset, len(batch.records)) for batch in after] == [
        (0, 0),
        (1, 1),
        (2, 0),
        (3, 1),
        (4, 0),
        (5, 0),
    ]
    assert stands(tmp_path / "u-0") == stands(source)
    assert rows(tmp_path / "u-0", isolation_level="read_committed") == []


def test_records_below_the_log_start_offset_are_left_out(tmp_path: Path) -> None:
    root = golden_sets.unpacked("k44")
    start = golden_sets.log_start_offsets("k44")["p-delrec-0"]
    report = kafkalog.convert(root, tmp_path / "out", topics="p-delrec")
    target = kafkalog.open(tmp_path / "out" / "p-delrec-0")
    assert isinstance(target, Partition)
    assert target.log_start_offset == report.partitions[0].start_offset == start > 0
    assert rows(target) == rows(root, topics="p-delrec")
    first = batches_of(target.path)[0]
    assert first.base_offset == start
    whole = kafkalog.convert(root, tmp_path / "whole", topics="p-delrec", include_deleted=True)
    assert logs(tmp_path / "whole" / "p-delrec-0") == logs(root / "p-delrec-0")
    assert whole.partitions[0].n_records_after > report.partitions[0].n_records_after


def test_a_batch_that_begins_below_the_log_start_offset_keeps_its_sequence_numbers(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    source = write_partition(tmp_path / "log" / "t-0", [(0, idempotent(0, 2**31 - 2, n=5))])
    (tmp_path / "log" / kf.LOG_START_OFFSET_CHECKPOINT).write_text("0\n1\nt 0 3\n")
    kafkalog.convert(source, tmp_path / "u-0")
    (batch,) = batches_of(tmp_path / "u-0")
    assert (batch.base_offset, batch.base_sequence, [record.sequence for record in batch.records]) == (3, 1, [1, 2])
    assert list(logs(tmp_path / "u-0")) == [kf.segment_file_name(3)]


# ------------------------------------------------------------------------------------------------------- redaction


def test_a_value_made_null_is_a_tombstone_and_its_bytes_are_gone(tmp_path: Path) -> None:
    records = [builder.record_v2(i, 0, b"user-%d" % (i % 3), b"secret %d" % i, [(b"h", b"x")]) for i in range(6)]
    source = write_partition(tmp_path / "t-0", [(0, builder.batch_v2(records))])
    report = kafkalog.convert(
        source, tmp_path / "u-0", redact={"value": "null"}, redact_where=[("key", "==", b"user-1")]
    )
    assert [row[3:5] for row in rows(tmp_path / "u-0")] == [
        (b"user-%d" % (i % 3), None if i % 3 == 1 else b"secret %d" % i) for i in range(6)
    ]
    assert b"secret 1" not in b"".join(logs(tmp_path / "u-0").values())
    assert report.partitions[0].n_records_redacted == 2


def test_keys_and_headers_can_be_hashed_or_removed(tmp_path: Path) -> None:
    headers = [(b"mail", b"a@b"), (b"n", None), (b"mail", None), (b"mail", b"")]
    records = [builder.record_v2(0, 0, b"ann", None, headers), builder.record_v2(1, 0, None, b"v", headers)]
    source = write_partition(tmp_path / "t-0", [(0, builder.batch_v2(records))])
    kafkalog.convert(source, tmp_path / "u-0", redact={"key": "hash", "headers.mail": "hash"}, redact_secret="s")
    first, second = rows(tmp_path / "u-0")

    def digest(data: bytes) -> bytes:
        return hmac.new(b"s", data, hashlib.sha256).hexdigest().encode()

    hashed = [(b"mail", digest(b"a@b")), (b"n", None), (b"mail", None), (b"mail", digest(b""))]
    assert first[3:] == (digest(b"ann"), None, hashed)
    assert second[3:] == (None, b"v", hashed)
    kafkalog.convert(
        source, tmp_path / "u-1", redact={"headers": None, "value": "hash"}, redact_where=[("offset", "==", 1)]
    )
    first, second = rows(tmp_path / "u-1")
    assert first[3:] == (b"ann", None, headers)
    assert second[3:] == (None, hashlib.sha256(b"v").hexdigest().encode(), [])


def test_null_keys_in_a_compacted_topic_are_warned_of(tmp_path: Path) -> None:
    compacted = golden_sets.partitions("k44")["p-compact-0"]
    plain = golden_sets.partitions("k44")["p-multi-0"]
    compact = kafkalog.LogConfig(cleanup_policy="compact")  # type: ignore[arg-type]
    nulls, hashes = {"key": "null"}, {"key": "hash"}
    with pytest.warns(kafkalog.ConfigWarning, match="^p-compact is compacted and its keys become null"):
        kafkalog.convert(compacted, tmp_path / "p-compact-0", redact=nulls)
    assert {row[3] for row in rows(tmp_path / "p-compact-0")} == {None}
    with pytest.warns(kafkalog.ConfigWarning, match="^p-multi is compacted"):
        kafkalog.convert(plain, tmp_path / "p-multi-0", redact=nulls, config=compact, dry_run=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kafkalog.convert(plain, tmp_path / "p-multi-0", redact=nulls, dry_run=True)
        kafkalog.convert(compacted, tmp_path / "p-multi-0", redact=hashes, dry_run=True)


@pytest.mark.parametrize(
    ("redact", "words"),
    [
        ({}, "names nothing"),
        ({"offset": "null"}, "key, value, headers, headers.NAME"),
        ({"value": "md5"}, "'null' or 'hash'"),
        ({"headers": "hash"}, "headers.NAME"),
        ({"headers.": "null"}, "can be made"),
    ],
)
def test_a_redaction_that_is_none_is_refused(redact: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Redaction.parse(redact)


# ------------------------------------------------------------------------------------- codecs, batches and segments


@pytest.mark.parametrize("codec", kf.CODEC_NAMES[:5])
def test_another_codec_changes_the_batches_that_have_not_got_it(codec: str, tmp_path: Path) -> None:
    source = golden_sets.partitions("k44")["p-mixcodec-0"]
    kafkalog.convert(source, tmp_path / "t-0", compression=codec)
    assert rows(tmp_path / "t-0") == rows(source)
    after = batches_of(tmp_path / "t-0")
    assert {batch.attributes & kf.CODEC_MASK for batch in after} == {kf.CODEC_NAMES.index(codec)}
    n_same = 0
    for data in raw_batches(source):
        if data[22] & kf.CODEC_MASK == kf.CODEC_NAMES.index(codec):
            n_same += 1
            assert data in raw_batches(tmp_path / "t-0")
    assert n_same
    assert stands(tmp_path / "t-0") == stands(source)


@pytest.mark.parametrize("name", ["p-txn-0", "p-idem-0", "p-compact-idem-0", "p-logappend-0", "p-headers-0"])
def test_another_batch_size_keeps_records_sequences_and_producers(name: str, tmp_path: Path) -> None:
    source = golden_sets.partitions("k44")[name]
    expected = [record for batch in batches_of(source) for record in batch.records]
    n_after = []
    for batch_size in (200, 3000, 10**6):
        target = tmp_path / str(batch_size) / name
        target.parent.mkdir()
        report = kafkalog.convert(source, target, batch_size=batch_size, compression="zstd", compression_level=5)
        found = [record for batch in batches_of(target) for record in batch.records]
        neutral = {"codec": 0, "batch_base_offset": 0, "batch_position": 0}
        assert [r._replace(**neutral) for r in found] == [r._replace(**neutral) for r in expected]
        assert stands(target) == stands(source)
        n_after.append(report.partitions[0].n_batches_after)
    assert n_after[0] >= n_after[1] >= n_after[2]
    assert name != "p-headers-0" or n_after[0] > 3 * n_after[1] > 9 * n_after[2] > 9, n_after


def test_segments_are_cut_anew_by_a_config(tmp_path: Path) -> None:
    source = golden_sets.partitions("k28")["p-v0-gzip-0"]
    kafkalog.convert(source, tmp_path / "t-0", config=kafkalog.LogConfig(segment_bytes=4000))
    after = logs(tmp_path / "t-0")
    assert len(after) > 10
    assert all(len(data) <= 4000 for data in after.values())
    assert rows(tmp_path / "t-0") == rows(source)


def test_the_number_of_threads_changes_nothing(tmp_path: Path) -> None:
    root = golden_sets.unpacked("k28")
    options: dict[str, Any] = {"topics": ["p-v1-lz4", "p-v2-txn"], "compression": "zstd", "batch_size": 5000}
    for threads in (1, 3):
        kafkalog.convert(root, tmp_path / str(threads), threads=threads, drop=[("value", "contains", b"a1")], **options)
    for name in ("p-v1-lz4-0", "p-v2-txn-0"):
        assert logs(tmp_path / "1" / name) == logs(tmp_path / "3" / name)


# ---------------------------------------------------------------------------------------------- damage and refusals


def damaged_copy(tmp_path: Path) -> tuple[Path, int]:
    """A partition of which one batch in the middle has a flipped byte, and how many records that batch has."""
    source = Path(shutil.copytree(golden_sets.partitions("k44")["p-zstd-java-0"], tmp_path / "t-0"))
    file = source / kf.segment_file_name(0)
    data = bytearray(file.read_bytes())
    start, stop = builder.batch_positions(bytes(data))[5]
    data[stop - 3] ^= 8
    file.write_bytes(data)
    return source, int.from_bytes(data[start + 57 : start + 61], "big")


def test_damage_raises_and_leaves_nothing(tmp_path: Path) -> None:
    source, _ = damaged_copy(tmp_path)
    for options in ({}, {"filters": [("offset", ">", 3)]}, {"compression": "none"}):
        with pytest.raises(CorruptionError) as caught:
            kafkalog.convert(source, tmp_path / "u-0", **options)  # type: ignore[arg-type]
        assert caught.value.reason is Reason.CRC_MISMATCH
        assert sorted(path.name for path in tmp_path.iterdir()) == ["t-0"]


@pytest.mark.parametrize("options", [{}, {"compression": "lz4"}, {"drop": [("offset", "==", 3)]}])
def test_damage_is_left_out_or_ends_the_log(options: dict[str, Any], tmp_path: Path) -> None:
    source, n_lost = damaged_copy(tmp_path)
    for mode in ("skip", "stop"):
        with pytest.warns(kafkalog.CorruptionWarning):
            report = kafkalog.convert(source, tmp_path / f"{mode}-0", on_corruption=mode, **options)  # type: ignore[arg-type]
        assert [finding.reason for finding in report.findings.rows if finding.damage] == [Reason.CRC_MISMATCH]
        scan = kafkalog.scan(source, on_corruption=mode, columns=["offset"])  # type: ignore[arg-type]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
            left = scan.to_numpy().offset.tolist()
        expected = [offset for offset in left if not ("drop" in options and offset == 3)]
        assert [row[0] for row in rows(tmp_path / f"{mode}-0")] == expected
    assert len(rows(tmp_path / "skip-0")) >= 600 - n_lost - 1


@pytest.mark.parametrize("options", [{}, {"compression": "lz4"}, {"config": kafkalog.LogConfig(segment_bytes=200)}])
def test_a_batch_whose_offsets_reach_beyond_the_next_segment_is_damage(options: Any, tmp_path: Path) -> None:
    one = [builder.record_v2(0, 0, b"k", b"v")]
    far = builder.batch_v2(one, base_offset=1095)  # a flipped bit: no checksum covers the offset
    segments = [
        (0, builder.batch_v2(one, base_offset=0) + far),
        (340, builder.batch_v2(one, base_offset=340)),
        (500, builder.batch_v2(one, base_offset=500)),
    ]
    source = write_partition(tmp_path / "t-0", segments)
    with pytest.raises(CorruptionError, match="offset_outside_segment"):
        kafkalog.convert(source, tmp_path / "u-0", **options)
    with pytest.warns(kafkalog.CorruptionWarning):
        report = kafkalog.convert(source, tmp_path / "u-0", on_corruption="skip", **options)
    assert [row[0] for row in rows(tmp_path / "u-0")] == [0, 340, 500]
    assert Reason.OFFSET_OUTSIDE_SEGMENT in {finding.reason for finding in report.findings.rows}


def test_a_log_that_would_begin_where_no_record_can_be_is_damage(tmp_path: Path) -> None:
    source = write_partition(tmp_path / "t-0", [(2**63 - 1, builder.batch_v2([builder.record_v2(0, 0, b"k", b"v")]))])
    for mode in ("raise", "skip"):
        with pytest.raises(CorruptionError, match="no record can be"):
            kafkalog.convert(source, tmp_path / "u-0", on_corruption=mode)  # type: ignore[arg-type]


DAMAGE: dict[str, tuple[Callable[[bytearray, int, int], object], set[Reason]]] = {
    "crc": (lambda data, start, stop: data.__setitem__(stop - 1, data[stop - 1] ^ 1), {Reason.CRC_MISMATCH}),
    "size": (
        lambda data, start, stop: data.__setitem__(slice(start + 8, start + 12), b"\xff\xff\xff\xf0"),
        {Reason.SIZE_NEGATIVE, Reason.SIZE_TOO_SMALL},
    ),
    "magic": (lambda data, start, stop: data.__setitem__(start + 16, 9), {Reason.BAD_MAGIC}),
    "torn": (lambda data, start, stop: data.__delitem__(slice(stop - 4, None)), {Reason.PARTIAL_TAIL}),
    "unreadable": (lambda data, start, stop: None, {Reason.FILE_UNREADABLE}),
}


def three_segments(directory: Path, how: str, number: int, row: int) -> list[tuple[int, int]]:
    """Segments of three idempotent batches with a gap before each, one batch damaged; (offset, segment) of them."""
    places, segments = [], []
    for segment in range(3):
        offsets = [100 * segment + 10 * n for n in range(1, 4)]
        data = bytearray(b"".join(idempotent(one, one, n=2, producer_id=one) for one in offsets))
        places += [(one, segment) for one in offsets]
        if segment == number:
            DAMAGE[how][0](data, *builder.batch_positions(bytes(data))[row])
        segments.append((100 * segment, bytes(data)))
    write_partition(directory, segments)
    return places


@pytest.mark.parametrize("options", [{}, {"config": kafkalog.LogConfig()}, {"drop": [("offset", "==", 10)]}])
@pytest.mark.parametrize("how", ["size", "magic", "torn", "unreadable"])
def test_damage_that_cannot_be_walked_ends_the_log_where_a_bad_checksum_does(
    how: str, options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Segment.open
    bad: list[Path] = []

    def refuse(self: Segment) -> Any:
        if self.path in bad:
            raise kafkalog.ReadError("file_unreadable", "Input/output error", path=self.path)
        return opened(self)

    monkeypatch.setattr(Segment, "open", refuse)
    for number in range(2 if how == "torn" else 3):
        for row in (0, 2):
            if (how == "torn" and row == 0) or (how == "unreadable" and row):
                continue  # of a file without a whole batch behind, and of all of a file
            found = []
            for one in (how, "crc"):
                folder = tmp_path / f"{number}-{row}-{one}"
                folder.mkdir()
                places = three_segments(folder / "t-0", one, number, row)
                source = Partition(folder / "t-0")
                bad[:] = [source.segments[number].path] if one == "unreadable" else []
                with pytest.warns(kafkalog.CorruptionWarning, match="the log ends here, [1-9][0-9]* bytes"):
                    report = kafkalog.convert(source, folder / "u-0", on_corruption="stop", **options)
                bad.clear()
                assert {each.reason for each in report.findings.rows if each.damage} <= DAMAGE[one][1]
                (done,) = report.partitions
                ends = (done.start_offset, done.end_offset, done.n_records_before, done.n_records_after)
                assert Partition(folder / "u-0").log_end_offset == done.end_offset
                found.append((ends, logs(folder / "u-0"), stands(folder / "u-0"), report.findings.n_damage))
            assert found[0] == found[1]
            left = places[: 3 * number + row]
            assert done.end_offset == (left[-1][0] + 2 if left else 0)
            assert [each[0] for each in rows(folder / "u-0")][-1:] == [left[-1][0] + 1 for _ in left[:1]]
            if "config" not in options:
                assert len(logs(folder / "u-0")) == 1 + (left[-1][1] if left else 0)


@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_unreadable_file_is_left_out_and_the_next_one_comes(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    places = three_segments(tmp_path / "t-0", "unreadable", 0, 0)
    source = Partition(tmp_path / "t-0")
    bad = source.segments[number].path
    opened = Segment.open

    def refuse(self: Segment) -> Any:
        if self.path == bad:
            raise kafkalog.ReadError("file_unreadable", "Input/output error", path=self.path)
        return opened(self)

    expected = [first + n for first, segment in places for n in (0, 1) if segment != number]
    for name, drop in (("u-0", None), ("v-0", [("offset", "in", [10, 11])])):
        monkeypatch.setattr(Segment, "open", refuse)
        with pytest.raises(kafkalog.ReadError):
            kafkalog.convert(source, tmp_path / name, drop=drop)
        with pytest.warns(kafkalog.CorruptionWarning, match="bytes passed over"):
            report = kafkalog.convert(source, tmp_path / name, on_corruption="skip", drop=drop)
        monkeypatch.setattr(Segment, "open", opened)
        (finding,) = (each for each in report.findings.rows if each.damage)
        assert (finding.path, finding.position, finding.length) == (str(bad), 0, bad.stat().st_size)
        assert [row[0] for row in rows(tmp_path / name)] == [one for one in expected if not drop or one > 11]
        assert report.partitions[0].end_offset == Partition(tmp_path / name).log_end_offset


@settings(max_examples=30)
@given(data=st.data(), repair=st.booleans(), rewrite=st.sampled_from([{}, {"compression": "gzip"}, {"batch_size": 99}]))
def test_bad_bytes_become_findings_and_never_a_bad_log(data: st.DataObject, repair: bool, rewrite: Any) -> None:
    segment = data.draw(strategies.segments(max_batches=4))
    bad = data.draw(strategies.damaged(segment, repair=repair))
    with partition_of([(segment.base_offset, bad.data)]) as source, warnings.catch_warnings():
        warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
        target = source.parent / "out" / "t-0"
        target.parent.mkdir()
        limits = kafkalog.Limits(max_decompressed_bytes=2**20)
        kafkalog.convert(source, target, on_corruption="skip", threads=1, limits=limits, **rewrite)
        if "batch_size" in rewrite:
            rows(target)  # else what has the right checksum is copied, whatever is in it, as a broker would
        last = -1
        for batch in raw_batches(target):
            base = int.from_bytes(batch[:8], "big", signed=True)
            assert base > last
            last = base + int.from_bytes(batch[23:27], "big", signed=True)


def test_records_out_of_order_cannot_be_rewritten(tmp_path: Path) -> None:
    records = [builder.record_v2(delta, 0, b"k", b"v") for delta in (0, 2, 1)]
    good = builder.batch_v2([records[0]], base_offset=3)
    source = write_partition(tmp_path / "t-0", [(0, builder.batch_v2(records) + good)])
    kafkalog.convert(source, tmp_path / "same-0")
    assert logs(tmp_path / "same-0") == logs(source)
    with pytest.raises(CorruptionError, match="do not rise"):
        kafkalog.convert(source, tmp_path / "u-0", compression="zstd")
    with pytest.warns(kafkalog.CorruptionWarning, match="do not rise"):
        kafkalog.convert(source, tmp_path / "u-0", compression="zstd", on_corruption="skip")
    assert [row[0] for row in rows(tmp_path / "u-0")] == [3]


def test_a_torn_tail_is_left_behind(tmp_path: Path) -> None:
    record = builder.record_v2(0, 0, b"k", b"v")
    whole = builder.batch_v2([record])
    source = write_partition(tmp_path / "t-0", [(0, whole + builder.batch_v2([record], base_offset=1)[:-3])])
    report = kafkalog.convert(source, tmp_path / "u-0")
    assert b"".join(logs(tmp_path / "u-0").values()) == whole
    assert [(finding.reason, finding.damage) for finding in report.findings.rows] == [(Reason.PARTIAL_TAIL, False)]


def test_the_destination_must_be_new_and_elsewhere(tmp_path: Path) -> None:
    source = write_partition(tmp_path / "t-0", [(0, builder.batch_v2([builder.record_v2()]))])
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UnsafePathError):
        kafkalog.convert(source, source / "u-0")
    with pytest.raises(UnsafePathError):
        kafkalog.convert(source, source)
    with pytest.raises(UnsafePathError):
        kafkalog.convert(source, tmp_path)
    (tmp_path / "u-0").mkdir()
    with pytest.raises(OutputExistsError):
        kafkalog.convert(source, tmp_path / "u-0")
    (tmp_path / "u-0").rmdir()
    for link in (tmp_path / "u-0", tmp_path / "copy"):
        link.symlink_to(tmp_path / "nowhere")
        with pytest.raises(OutputExistsError):
            kafkalog.convert(source, link)
        link.unlink()
    assert sorted(tmp_path.rglob("*")) == before


def test_a_dry_run_says_the_same_and_writes_nothing(tmp_path: Path) -> None:
    root = golden_sets.unpacked("k28")
    options: dict[str, Any] = {"topics": ["p-v1-none", "p-v2-txn"], "drop": [("value", "contains", b"alpha")]}
    dry = kafkalog.convert(root, tmp_path / "out", dry_run=True, **options)
    assert list(tmp_path.iterdir()) == []
    wet = kafkalog.convert(root, tmp_path / "out", **options)
    assert dry.partitions == wet.partitions
    assert (dry.is_written, wet.is_written) == (False, True)
    for partition in wet.partitions:
        assert partition.n_bytes_after == sum(map(len, logs(Path(partition.path)).values()))
        assert partition.n_records_after == len(rows(Path(partition.path))) < partition.n_records_before
        assert partition.n_batches_after == len(raw_batches(Path(partition.path)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"compression_level": 3}, "needs compression"),
        ({"redact_where": [("key", "==", b"")]}, "need redact"),
        ({"batch_size": 0}, "batch_size must be"),
        ({"threads": 0}, "threads must be"),
        ({"on_corruption": "ignore"}, "on_corruption must be"),
        ({"filters": [("nope", "==", 1)]}, "no column 'nope'"),
        ({"topics": "nope"}, "no topic 'nope'"),
        ({"partitions": 99}, "no partition here"),
    ],
)
def test_options_that_are_none_are_refused(options: dict[str, Any], words: str, tmp_path: Path, log_dir: Path) -> None:
    with pytest.raises(ValueError, match=words):
        kafkalog.convert(log_dir, tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_lone_file_and_a_partition_without_records_convert(tmp_path: Path) -> None:
    file = golden_sets.log_files(golden_sets.partitions("k28")["p-v1-lz4-0"])[1]
    kafkalog.convert(file, tmp_path / "t-0")
    assert rows(tmp_path / "t-0") == rows(file)
    assert list(logs(tmp_path / "t-0")) == [file.name]
    empty = golden_sets.partitions("k44")["p-empty-0"]
    kafkalog.convert(empty, tmp_path / "copy")
    assert logs(tmp_path / "copy" / "p-empty-0") == {kf.segment_file_name(0): b""}


def test_a_log_that_ends_in_an_empty_segment_ends_there_still(tmp_path: Path) -> None:
    record = builder.record_v2(0, 0, b"k", b"v")
    source = write_partition(tmp_path / "t-0", [(0, builder.batch_v2([record])), (9, b"")])
    for number, options in enumerate([{}, {"config": kafkalog.LogConfig()}, {"filters": [("key", "==", b"x")]}]):
        kafkalog.convert(source, tmp_path / f"u-{number}", **options)  # type: ignore[arg-type]
        assert kafkalog.open(tmp_path / f"u-{number}").log_end_offset == 9  # type: ignore[union-attr]
