"""Converted logs: v2 batches stay byte for byte, the rest reads the same, and filters are those of a scan."""

import hashlib
import hmac
import shutil
import warnings
from pathlib import Path

import builder
import golden_sets
import numpy as np
import pytest
import strategies
from conversions import (
    batches_of,
    logs,
    partition_of,
    raw_batches,
    rows,
    stands,
    write_partition,
)
from effort import examples, thinned, trials
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog import format as kf
from kafkalog.errors import OutputExistsError, UnsafePathError
from kafkalog.log.partition import Partition
from kafkalog.operations.converting.assemble import empty_batches
from kafkalog.operations.converting.redaction import Redaction

# --------------------------------------------------------------------------------------------------------- golden


def healthy(set_name):
    """Those that are partitions of topics."""
    left_out = ("__cluster_metadata-0",)
    found = golden_sets.partitions(set_name).items()
    return [(name, path) for name, path in found if "." not in name and name not in left_out]


@pytest.fixture(scope="module", params=golden_sets.SETS)
def converted(request, tmp_path_factory):
    """A golden set, converted without an option but that nothing is left out."""
    target = tmp_path_factory.mktemp("converted") / "out"
    report = kafkalog.convert(golden_sets.unpacked(request.param), target, include_deleted=True, internal=True)
    assert report.is_written
    assert report.total("n_records_before") == report.total("n_records_after") > 0
    return request.param, target


def test_what_is_v2_comes_out_byte_for_byte(converted):
    set_name, target = converted
    n_files = 0
    for name, source in healthy(set_name):
        for file, data in logs(source).items():
            if all(data[start + 16] == 2 for start, _ in builder.batch_positions(data)):
                assert (target / name / file).read_bytes() == data, f"{name}/{file}"
                n_files += 1
    assert n_files >= {"k44": 98, "k28": 25, "k44_extra": 10}[set_name]


@pytest.mark.parametrize("converted", ["k28"], indirect=True)
def test_every_record_reads_as_before(converted):
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
    assert n_legacy == 26


def test_producers_and_transactions_are_as_before(converted):
    set_name, target = converted
    for name, source in healthy(set_name):
        if name not in golden_sets.log_start_offsets(set_name):
            assert stands(target / name) == stands(source), name


def test_what_is_written_is_healthy(converted):
    _, target = converted
    verification = kafkalog.verify(target, deep=True)
    assert [str(finding) for finding in verification.findings if finding.damage] == []


# ------------------------------------------------------------------------------------------- legacy, by hypothesis


@settings(max_examples=trials(8, 90))
@given(segment=strategies.segments(max_batches=5, as_brokers_write=True), batch_size=st.sampled_from([None, 1, 300]))
def test_any_log_reads_as_before(segment, batch_size):
    with partition_of([(segment.base_offset, segment.data)]) as source:
        target = source.parent / "out" / "t-0"
        target.parent.mkdir()
        kafkalog.convert(source, target, batch_size=batch_size, threads=1)
        assert rows(target) == rows(source)
        after = batches_of(target)
        assert {batch.magic for batch in after} <= {2}
        if all(segment.data[start + 16] == 2 for start, _ in segment.batches) and batch_size is None:
            assert b"".join(logs(target).values()) == segment.data


# ---------------------------------------------------------------------------------------------- damage and refusals


def test_the_destination_must_be_new_and_elsewhere(tmp_path):
    source = write_partition(tmp_path / "t-0", [(0, builder.batch_v2([builder.record_v2()]))])
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UnsafePathError):
        kafkalog.convert(source, source / "u-0")
    with pytest.raises(UnsafePathError):
        kafkalog.convert(source, source)
    with pytest.raises(UnsafePathError):
        kafkalog.convert(source, tmp_path)
    (tmp_path / "u-0").mkdir()
    (tmp_path / "u-0/kept").touch()
    with pytest.raises(OutputExistsError):
        kafkalog.convert(source, tmp_path / "u-0")
    shutil.rmtree(tmp_path / "u-0")
    for link in (tmp_path / "u-0", tmp_path / "copy"):
        link.symlink_to(tmp_path / "nowhere")
        with pytest.raises(OutputExistsError):
            kafkalog.convert(source, link)
        link.unlink()
    assert sorted(tmp_path.rglob("*")) == before


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
        ({"partitions": 99}, "no partition 99 here"),
    ],
)
def test_options_that_are_none_are_refused(options, words, tmp_path, log_dir):
    with pytest.raises(ValueError, match=words):
        kafkalog.convert(log_dir, tmp_path / "out", **options)
    assert list(tmp_path.iterdir()) == []


def test_a_lone_file_and_a_partition_without_records_convert(tmp_path):
    file = golden_sets.log_files(golden_sets.partitions("k28")["p-v1-lz4-0"])[1]
    kafkalog.convert(file, tmp_path / "t-0")
    assert rows(tmp_path / "t-0") == rows(file)
    assert list(logs(tmp_path / "t-0")) == [file.name]
    empty = golden_sets.partitions("k44")["p-empty-0"]
    kafkalog.convert(empty, tmp_path / "copy")
    assert logs(tmp_path / "copy" / "p-empty-0") == {kf.segment_file_name(0): b""}


def test_an_empty_batch_is_what_the_log_cleaner_writes():
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


def test_a_dry_run_says_the_same_and_writes_nothing(tmp_path):
    root = golden_sets.unpacked("k28")
    options = {"topics": ["p-v1-none", "p-v2-txn"], "drop": [("value", "contains", b"alpha")]}
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
    ("set_name", "name"),
    thinned(
        [
            ("k44", "p-txn-0"),
            ("k44", "p-idem-0"),
            ("k28", "p-v1v2-mixed-0"),
            ("k44", "p-compact-idem-0"),
            ("k44_extra", "p-compact-txn-now-0"),
            ("k28", "p-v2-txn-0"),
        ],
        2,
    ),
)
def test_what_is_left_of_a_real_log_is_healthy_and_its_producers_are_known(set_name, name, tmp_path):
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
        assert [str(finding) for finding in verification.findings if finding.damage] == []


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


# holes that compaction leaves may be between segments, where a log that is dense otherwise seems to lack one
@pytest.mark.filterwarnings("ignore:.*offset_gap. no segment holds offsets:kafkalog.CorruptionWarning")
@settings(max_examples=examples(60))
@given(log=strategies.transaction_logs(), filters=FILTERS, is_drop=st.booleans(), threads=st.sampled_from([1, 2]))
def test_filters_take_what_a_scan_takes_and_leave_the_rest_alone(log, filters, is_drop, threads):
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


def test_records_below_the_log_start_offset_are_left_out(tmp_path):
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


def test_a_value_made_null_is_a_tombstone_and_its_bytes_are_gone(tmp_path):
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


def test_keys_and_headers_can_be_hashed_or_removed(tmp_path):
    headers = [(b"mail", b"a@b"), (b"n", None), (b"mail", None), (b"mail", b"")]
    records = [builder.record_v2(0, 0, b"ann", None, headers), builder.record_v2(1, 0, None, b"v", headers)]
    source = write_partition(tmp_path / "t-0", [(0, builder.batch_v2(records))])
    kafkalog.convert(source, tmp_path / "u-0", redact={"key": "hash", "headers.mail": "hash"}, redact_secret="s")
    first, second = rows(tmp_path / "u-0")

    def digest(data):
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


def test_null_keys_in_a_compacted_topic_are_warned_of(tmp_path):
    compacted = golden_sets.partitions("k44")["p-compact-0"]
    plain = golden_sets.partitions("k44")["p-multi-0"]
    compact = kafkalog.LogConfig(cleanup_policy="compact")
    nulls, hashes = {"key": "null"}, {"key": "hash"}
    with pytest.warns(kafkalog.ConfigWarning, match="^p-compact"):
        kafkalog.convert(compacted, tmp_path / "p-compact-0", redact=nulls)
    assert {row[3] for row in rows(tmp_path / "p-compact-0")} == {None}
    with pytest.warns(kafkalog.ConfigWarning, match="^p-multi"):
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
        ({"headers.": "null"}, "redact"),
    ],
)
def test_a_redaction_that_is_none_is_refused(redact, words):
    with pytest.raises(ValueError, match=words):
        Redaction.parse(redact)
