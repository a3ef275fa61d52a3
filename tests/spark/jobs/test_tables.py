"""Exports by Spark continue a table or directory, also one of the command, and the command continues theirs."""

import json
import logging

import duckdb
import pyarrow as pa
import pytest
from lakes import LAKES, grow

import kafkalog
import kafkalog.spark as jobs
from kafkalog.errors import FileChangedError
from kafkalog.operations.exporting.directory import MANIFEST

pytestmark = pytest.mark.spark

KEYS = ["topic", "partition"]


class ByBoth:
    """Exports into a lake, by Spark and by the command in turns."""

    def __init__(self, spark, lake, root, patch):
        self.spark, self.lake, self.root = spark, lake, root
        lake.path.mkdir(exist_ok=True)
        if lake.format == "iceberg":
            patch.setattr("pyiceberg.catalog.load_catalog", lambda name: lake.catalog)

    def by_spark(self, **options):
        """Rows of the job's result."""
        out = self.lake.name if self.lake.format == "iceberg" else self.lake.output
        options = {"partition_by": KEYS, "task_bytes": 1000, **options}
        return jobs.export(self.spark, self.root, out, format=self.lake.format, resume=True, **options)

    def by_command(self, **options):
        return self.lake.run(self.root, **options)

    def values(self):
        """What the table holds, in the order of the offsets."""
        files = [f"{self.lake.output}/**/*.parquet"] if self.lake.format == "parquet" else self.lake.files()
        found = duckdb.execute(f'select value from read_parquet({files}, union_by_name = true) order by "offset"')
        return [_plain(row[0]) for row in found.fetchall()]


@pytest.fixture(params=LAKES)
def table(request, spark, tmp_path, monkeypatch):
    return ByBoth(spark, LAKES[request.param](tmp_path / "lake"), tmp_path / "logs", monkeypatch)


def n_of(frame):
    return sum(row["n_records"] for row in frame.toArrow().to_pylist())


@pytest.mark.slow
def test_spark_and_the_command_continue_each_others_tables(table):
    for night in range(4):
        for partition in range(3):
            grow(table.root, 200, partition)
        if night % 2:
            assert table.by_command().n_records == 600
        else:
            frame = table.by_spark()
            assert n_of(frame) == 600
            assert frame.count() >= 3
        assert n_of(table.by_spark()) == 0
        assert table.by_command().n_records == 0
    for partition in range(3):
        assert table.lake.offsets(partition) == [*range(800)]
    with pytest.raises(ValueError, match="partition_by"):
        table.by_spark(partition_by=())
    if table.lake.format == "parquet":
        assert json.loads((table.lake.output / MANIFEST).read_text())["n_runs"] > 4


@pytest.mark.slow
def test_fields_come_and_go_and_what_does_not_decode_is_counted(table, caplog):
    """Of JSON values, whose types are those of all records."""
    options = {"decode": {"value": "json"}, "columns": ["offset", "value"]}
    table.root.mkdir()
    truth = []
    nights = [[{"a": 1}], [{"a": 2, "b": {"c": "x"}}, None], [{"d": [1, 2]}], [{"a": 3, "d": [3]}, None]]
    for number, values in enumerate(nights):
        with kafkalog.PartitionWriter(table.root / "orders-0") as writer:
            writer.append({"value": [b"oops" if one is None else json.dumps(one).encode() for one in values]})
        truth += values
        if number % 2:
            with caplog.at_level(logging.INFO, "kafkalog.spark"):
                rows = table.by_spark(**options).toArrow().to_pylist()
            assert sum(row["n_undecoded"] for row in rows) == 1
            assert sum(row["n_lost_records"] for row in rows) == 0
            (record,) = [one for one in caplog.records if one.name == "kafkalog.spark"][-1:]
            assert "1 undecoded value, 0 lost records" in record.getMessage()
            assert record.levelname == "WARNING"
        else:
            table.by_command(**options)
    assert table.values() == truth


def _plain(value):
    """A value without fields that are null."""
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items() if one is not None} or None
    return value


@pytest.mark.slow
def test_a_table_of_another_log_is_refused_before_any_task(table):
    grow(table.root, 20)
    table.by_spark()
    kafkalog.write_table(
        pa.table({"topic": ["orders"] * 30, "partition": pa.array([0] * 30, pa.int32()), "value": [b"other"] * 30}),
        table.root.with_name("other"),
    )
    table.root = table.root.with_name("other")
    before = table.lake.offsets()
    with pytest.raises(FileChangedError):
        table.by_spark()
    assert table.lake.offsets() == before
