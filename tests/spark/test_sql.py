"""Log dirs in SQL: views, filters that are pushed down, many partitions."""

import sys
from pathlib import Path

import pytest

import kafkalog
import kafkalog.spark

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def append(root, n):
    with kafkalog.PartitionWriter(root / "t-0") as writer:
        writer.append({"value": [b"v"] * n})


def test_a_view_is_a_snapshot_until_it_is_made_again(session, tmp_path):
    append(tmp_path, 5)
    view = f"create or replace temporary view records using kafkalog options (log_dir '{tmp_path}')"
    count = "select count(*) from records"
    session.sql(view)
    assert session.sql(count).first()[0] == 5
    append(tmp_path, 2)
    session.sql("refresh table records")
    assert session.sql(count).first()[0] == 5
    session.sql(view)
    assert session.sql(count).first()[0] == 7


def test_a_table_is_refused_with_what_works(session, tmp_path):
    append(tmp_path, 5)
    with pytest.raises(Exception, match="VIEW"):
        session.sql(f"create table refused using kafkalog options (log_dir '{tmp_path}')")
    assert "refused" not in [table.name for table in session.catalog.listTables()]
    # with columns, Spark asks no source before the first query
    session.sql(f"create table columns_given (offset bigint) using kafkalog options (log_dir '{tmp_path}')")
    try:
        with pytest.raises(Exception, match="VIEW") as refused:
            session.sql("select * from columns_given").collect()
        assert "SELECT ... FROM name WITH (log_dir='...')" in str(refused.value)
        assert session.sql(f"select * from columns_given with (log_dir='{tmp_path}')").count() == 5
        assert session.read.option("log_dir", str(tmp_path)).table("columns_given").columns == ["offset"]
    finally:
        session.sql("drop table columns_given")


def test_scans_of_a_relation_still_share_pushed_filters(spark):
    from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, InputPartition

    class Reader(DataSourceReader):
        def __init__(self):
            self.only = None

        def pushFilters(self, filters):
            for one in filters:
                if isinstance(one, EqualTo):
                    self.only = one.value
                else:
                    yield one

        def partitions(self):
            return [InputPartition(n) for n in range(20) if self.only in (None, n)]

        def read(self, partition):
            yield (partition.value,)

    class Source(DataSource):
        @classmethod
        def name(cls):
            return "numbers_of_20"

        def schema(self):
            return "n int"

        def reader(self, schema):
            return Reader()

    spark.dataSource.register(Source)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = spark.read.format("numbers_of_20").load()
        counts = frame.where("n = 3").count(), frame.count()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert counts == (1, 1), "Spark counts right, (1, 20): the data source can push filters now"


BENCH = Path(__file__).parents[2] / "asv_bench"


def test_jobs_over_many_small_segments_stay_small(spark, tmp_path, monkeypatch, capsys):
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
