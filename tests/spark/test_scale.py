"""The scale script, on a small log dir: driver and workers stay small, tasks follow bytes, results are right."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]

BENCH = Path(__file__).parents[2] / "asv_bench"


def test_jobs_over_many_small_segments_stay_small(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(BENCH)
    monkeypatch.setenv("KAFKALOG_BENCH_CACHE", str(tmp_path / "cache"))
    import spark_logs
    import spark_scale

    made = spark_logs.make(tmp_path / "logs", "B", 1, 8, 40)
    assert made.n_segments == 40
    try:
        assert spark_scale.run(spark, made, tmp_path, made.n_bytes // 4, 8, [1]) == []
    finally:
        for name in ("spark_logs", "spark_scale", "shapes"):
            sys.modules.pop(name, None)
    table = capsys.readouterr().out
    assert table.count("| verify |") == table.count("| rebuild |") == table.count("| export |") == 1
