"""Converted logs: what is v2 stays byte for byte, the rest reads the same, and filters take what a scan would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import builder
import golden_sets
import pytest
import strategies
from conversions import (
    batches_of,
    logs,
    partition_of,
    rows,
    stands,
    write_partition,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog import format as kf
from kafkalog.errors import OutputExistsError, UnsafePathError

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


@pytest.mark.parametrize("converted", ["k28"], indirect=True)
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
    assert n_legacy == 26


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


# -------------------------------------------------------------------------------------------------------- filters


# ------------------------------------------------------------------------------------------------------- redaction


# ------------------------------------------------------------------------------------- codecs, batches and segments


def test_the_number_of_threads_changes_nothing(tmp_path: Path) -> None:
    root = golden_sets.unpacked("k28")
    options: dict[str, Any] = {"topics": ["p-v1-lz4", "p-v2-txn"], "compression": "zstd", "batch_size": 5000}
    for threads in (1, 3):
        kafkalog.convert(root, tmp_path / str(threads), threads=threads, drop=[("value", "contains", b"a1")], **options)
    for name in ("p-v1-lz4-0", "p-v2-txn-0"):
        assert logs(tmp_path / "1" / name) == logs(tmp_path / "3" / name)


# ---------------------------------------------------------------------------------------------- damage and refusals


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
