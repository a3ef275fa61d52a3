"""`kafkalog.spark.recover` gives what `kafkalog.recover` gives, byte for byte."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kafkalog
import kafkalog.spark as jobs
from kafkalog.errors import CorruptionError, OutputExistsError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
from job_results import NOW, arrow, flip, tree

pytestmark = pytest.mark.spark


@pytest.fixture
def crashed(damaged: Path) -> Path:
    """A log dir after a crash: recovery points, damage in and below them, a `.swap` file, a log that ends too early."""
    logs = sorted((damaged / "p-txn-0").glob("*.log"))
    flip(logs[-2], 300)
    sorted((damaged / "p-zstd-java-0").glob("*.index"))[0].unlink()
    headers = sorted((damaged / "p-headers-0").glob("*.log"))
    headers[-1].rename(f"{headers[-1]}.swap")
    (damaged / "log-start-offset-checkpoint").write_text("0\n1\np-multi 2 100000\n")
    (damaged / "recovery-point-offset-checkpoint").write_text(
        f"0\n2\np-txn 0 {int(logs[-2].stem)}\np-zstd-java 0 100000\n"
    )
    (damaged / ".kafka_cleanshutdown").unlink(missing_ok=True)
    return damaged


@pytest.mark.slow
@pytest.mark.parametrize("all_segments", [False, True])
def test_the_output_is_that_of_a_recovery_without_spark(
    spark: SparkSession, crashed: Path, tmp_path: Path, all_segments: bool
) -> None:
    expected = kafkalog.recover(crashed, output=tmp_path / "expected", all_segments=all_segments, now=NOW)
    frame = jobs.recover(spark, crashed, output=tmp_path / "made", all_segments=all_segments, now=NOW, task_bytes=2**15)
    assert tree(tmp_path / "made") == tree(tmp_path / "expected")
    assert (tmp_path / "made" / ".kafka_cleanshutdown").exists()
    assert sorted(os.listdir(tmp_path)) == ["expected", "log_dir", "made"]
    rows = {row["path"]: row for row in arrow(frame).to_pylist()}
    assert set(rows) == {one.path for one in expected.partitions}
    for one in expected.partitions:
        row = rows[one.path]
        assert (row["log_start_offset"], row["log_end_offset"]) == (one.log_start_offset, one.log_end_offset)
        assert (row["n_bytes"], row["n_bytes_lost"]) == (one.n_bytes, one.n_bytes_lost)
        assert [part["action"] for part in row["segments"]] == [part.action for part in one.segments]
    actions = {part["action"] for row in rows.values() for part in row["segments"]}
    assert {"cut", "recovered"} <= actions
    found = sorted(finding["detail"] for row in rows.values() for finding in row["findings"])
    assert found == sorted(finding.detail for finding in expected.findings.rows)


def test_one_partition_a_dry_run_and_what_is_refused(spark: SparkSession, crashed: Path, tmp_path: Path) -> None:
    before = tree(crashed)
    (row,) = jobs.recover(spark, crashed / "p-txn-0", dry_run=True).collect()
    assert row.n_bytes_lost > 0
    assert tree(crashed) == before
    jobs.recover(spark, crashed / "p-txn-0", output=tmp_path / "p-txn-0")
    kafkalog.recover(crashed / "p-txn-0", output=tmp_path / "expected")
    assert tree(tmp_path / "p-txn-0") == tree(tmp_path / "expected")
    with pytest.raises(OutputExistsError):
        jobs.recover(spark, crashed, output=tmp_path / "expected")
    with pytest.raises(ValueError, match="output="):
        jobs.recover(spark, crashed)


@pytest.mark.slow
def test_a_partition_that_cannot_be_recovered_is_left_out_and_named(
    spark: SparkSession, crashed: Path, tmp_path: Path
) -> None:
    (crashed / "p-multi-0" / "partition.metadata").write_text("version: 0\ntopic_id: none\n")
    expected = kafkalog.recover(crashed, output=tmp_path / "expected")
    frame = jobs.recover(spark, crashed, output=tmp_path / "made")
    assert tree(tmp_path / "made") == tree(tmp_path / "expected")
    assert not (tmp_path / "made" / ".kafka_cleanshutdown").exists()
    errors = {row["path"]: row["error"] for row in arrow(frame).to_pylist() if row["error"]}
    assert errors == {one.path: one.error for one in expected.partitions if one.error}
    shutil.rmtree(tmp_path / "made")
    with pytest.raises(CorruptionError):
        jobs.recover(spark, crashed / "p-multi-0", output=tmp_path / "made")
    assert not (tmp_path / "made").exists()


def test_a_recovery_in_place_is_refused_and_says_who_does_it(spark: SparkSession, crashed: Path) -> None:
    with pytest.raises(ValueError, match=r"kafkalog\.recover\(path, in_place=True, backup=\.\.\.\) does it"):
        jobs.recover(spark, crashed, in_place=True, backup=crashed.parent / "old")
