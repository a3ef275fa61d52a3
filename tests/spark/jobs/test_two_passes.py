"""Segments in a first pass, the partitions around them in a second."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kafkalog.spark as jobs
from kafkalog.spark.jobs import verify as verifying

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
from job_results import arrow

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_a_verification_goes_on_where_it_was_stopped(
    spark: SparkSession, log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def then_fail(frame: Any) -> Any:
        arrow(frame)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(verifying, "run_now", then_fail)
        with pytest.raises(KeyboardInterrupt):
            jobs.verify(spark, log_dir, topics="p-multi", work_dir=tmp_path / "work")
    kept = sorted((tmp_path / "work").rglob("result"))
    assert len(kept) == 4
    for path in kept:  # what is kept is believed, so a lie shows
        segment, seconds = pickle.loads(path.read_bytes())
        segment.n_batches = 4711
        path.write_bytes(pickle.dumps((segment, seconds)))
    rows = jobs.verify(spark, log_dir, topics="p-multi", work_dir=tmp_path / "work").where("kind = 'segment'").collect()
    assert [row.n_batches for row in rows] == [4711] * 4
    assert not (tmp_path / "work").exists()
    again = jobs.verify(spark, log_dir, topics="p-multi").where("kind = 'segment'").collect()
    assert 4711 not in [row.n_batches for row in again]
