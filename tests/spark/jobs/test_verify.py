"""A verification by Spark finds what one without Spark finds."""

from pathlib import Path

import pytest
from job_results import arrow, findings_of, flip

import kafkalog
import kafkalog.spark as jobs

pytestmark = pytest.mark.spark


def test_verify_finds_what_verify_finds(spark, damaged):
    (damaged / "p-multi-2" / "foo.index").touch()
    for path in (damaged / "p-txn-0").glob("00000000000000000304.*index"):
        path.unlink()
    expected = kafkalog.verify(damaged)
    rows = arrow(jobs.verify(spark, damaged, task_bytes=2**15)).to_pylist()
    found = [finding for row in rows for finding in findings_of(row["findings"])]
    assert sorted(map(str, found)) == sorted(map(str, expected.findings))
    assert {str(one) for one in found if one.damage} == {str(one) for one in expected.findings if one.damage}
    assert sum(finding.damage for finding in found) >= 5
    facts = {Path(finding.path or "").name for finding in found if not finding.damage}
    assert facts >= {"00000000000000000304.index", "00000000000000000304.txnindex"}
    by_path = {row["path"]: row for row in rows}
    for partition in expected.partitions:
        for segment in partition.segments:
            row = by_path[segment.path]
            assert (row["base_offset"], row["last_offset"]) == (segment.base_offset, segment.last_offset)
            assert (row["n_batches"], row["ok"]) == (segment.n_batches, segment.ok)
        assert by_path[partition.path]["ok"] == partition.ok
    kinds = [row["kind"] for row in rows]
    assert [kinds.count(kind) for kind in ("segment", "partition", "log_dir")] == [27, 10, 1]


def test_findings_beyond_the_limit_are_counted(spark, log_dir_copy):
    path = log_dir_copy / "p-multi-1" / "00000000000000000000.log"
    for position in kafkalog.Segment(path).batches.position.tolist():
        flip(path, position + 70)
    frame = jobs.verify(spark, log_dir_copy / "p-multi-1", limits=kafkalog.Limits(max_findings=3))
    row = frame.where("kind = 'segment'").collect()[0]
    assert len(row.findings) == 3
    assert row.n_damage > 10
