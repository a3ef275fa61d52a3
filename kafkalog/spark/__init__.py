"""Kafka's log on Spark: a data source, and jobs that run on a cluster as on one machine; needs ``kafkalog[spark]``.

The data source is found without registering where the package is installed; `register` is for where it is only
importable, as from a source tree.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kafkalog.spark.distribution import prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["prepare", "register"]


def register(spark: SparkSession) -> None:
    """Make ``format("kafkalog")`` known to a session.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
    """
    from kafkalog.spark.source import KafkaLogSource

    spark.dataSource.register(KafkaLogSource)
