"""Tables to which exports add: made, read and killed."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod

import duckdb
import pytest

import kafkalog
from kafkalog.operations.exporting.export import Exporter

KEYS = ["topic", "partition"]


def grow(root, n, partition=0, **options):
    """Append records to a partition of the topic orders."""
    root.mkdir(exist_ok=True)
    with kafkalog.PartitionWriter(root / f"orders-{partition}", **options) as writer:
        writer.append(
            {"value": [b"%d" % at for at in range(n)], "timestamp": [1_700_000_000_000 + at for at in range(n)]}
        )


class Lake(ABC):
    """Where exports go."""

    format: str
    script = """
import sys, kafkalog
print("ready", flush=True)
kafkalog.export(sys.argv[1], sys.argv[2], format=sys.argv[3], partition_by=["topic", "partition"], resume=True)
"""

    def __init__(self, path):
        self.path = path

    @property
    def output(self):
        return self.path / "table"

    @property
    def name(self):
        """The output on a command line."""
        return str(self.output)

    @property
    def environment(self):
        return {}

    def exporter(self, root, **options):
        return Exporter(root, self.output, **{"format": self.format, "partition_by": KEYS, **options}, resume=True)

    def run(self, root, **options):
        return self.exporter(root, **options).run()

    @abstractmethod
    def files(self):
        """What the table consists of now: its Parquet files, or their directory."""

    def scanned(self):
        """What DuckDB reads, in SQL."""
        files = self.files()
        return f"read_parquet({files}, hive_partitioning = true)" if files else _NOTHING

    @abstractmethod
    def exists(self): ...

    def offsets(self, partition=0):
        query = f'select "offset" from {self.scanned()} where partition = ? order by all'
        return [row[0] for row in duckdb.execute(query, [partition]).fetchall()]


class Directory(Lake):
    format = "parquet"

    def files(self):
        return [str(self.output)]

    def scanned(self):
        return f"read_parquet('{self.output}/**/*.parquet', hive_partitioning = true)"

    def exists(self):
        return any(self.output.rglob("*.parquet"))


class Delta(Lake):
    format = "delta"

    def table(self):
        return pytest.importorskip("deltalake", reason="not tested here: deltalake is not installed").DeltaTable(
            self.output
        )

    def files(self):
        return [os.path.join(self.output, path) for path in _column(self.table().get_add_actions(), "path")]

    def exists(self):
        return (self.output / "_delta_log").exists()


class Iceberg(Lake):
    format = "iceberg"

    @property
    def catalog(self):
        catalogs = pytest.importorskip("pyiceberg.catalog.sql", reason="not tested here: pyiceberg is not installed")
        pytest.importorskip("pyiceberg_core", reason="not tested here: pyiceberg-core is not installed")
        self.path.mkdir(exist_ok=True)
        return catalogs.SqlCatalog("lake", uri=f"sqlite:///{self.path}/catalog.db", warehouse=f"file://{self.path}")

    @property
    def environment(self):
        return {
            "PYICEBERG_CATALOG__LAKE__URI": f"sqlite:///{self.path}/catalog.db",
            "PYICEBERG_CATALOG__LAKE__WAREHOUSE": f"file://{self.path}",
        }

    @property
    def name(self):
        return "lake.kafka.orders"

    @property
    def output(self):
        return self.catalog.load_table("kafka.orders")

    def exporter(self, root, **options):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("pyiceberg.catalog.load_catalog", lambda name: self.catalog)
            return Exporter(root, self.name, **{"format": self.format, "partition_by": KEYS, **options}, resume=True)

    def files(self):
        return [name.removeprefix("file://") for name in self.output.inspect.files()["file_path"].to_pylist()]

    def exists(self):
        return (self.path / "catalog.db").exists() and bool(self.catalog.table_exists("kafka.orders"))


_NOTHING = '(select 0 as partition, 0 as "offset" limit 0)'
LAKES = {"directory": Directory, "delta": Delta, "iceberg": Iceberg}


def _column(table, name):
    import pyarrow as pa

    return pa.table(table)[name].to_pylist()
