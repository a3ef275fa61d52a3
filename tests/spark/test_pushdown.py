"""Why filters are options: Spark's scans of one relation share what one of them has pushed to a Python source.

These tests fail with the first Spark that counts right. Then the source can push filters, from that version on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def test_scans_of_a_relation_still_share_pushed_filters(spark: SparkSession) -> None:
    from pyspark.sql.datasource import DataSource, DataSourceReader, EqualTo, Filter, InputPartition

    class Reader(DataSourceReader):
        def __init__(self) -> None:
            self.only: int | None = None

        def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
            for one in filters:
                if isinstance(one, EqualTo):
                    self.only = one.value
                else:
                    yield one

        def partitions(self) -> list[InputPartition]:
            return [InputPartition(n) for n in range(20) if self.only in (None, n)]

        def read(self, partition: Any) -> Iterator[tuple[int]]:
            yield (partition.value,)

    class Source(DataSource):
        @classmethod
        def name(cls) -> str:
            return "numbers_of_20"

        def schema(self) -> str:
            return "n int"

        def reader(self, schema: Any) -> DataSourceReader:
            return Reader()

    spark.dataSource.register(Source)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        frame = spark.read.format("numbers_of_20").load()
        counts = frame.where("n = 3").count(), frame.count()
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")
    assert counts == (1, 1), "Spark counts right, (1, 20): the data source can push filters now"
