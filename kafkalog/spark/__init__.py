"""Kafka's log on Spark: a data source, and jobs for a cluster or one machine; needs ``kafkalog[spark]``.

    `data_source`     the data source "kafkalog", for `spark.read`, `readStream` and `df.write`
    `source_options`  its options
    `options`         checks names and values of options, of the source and the sink
    `decoded`         decoded keys and values: options, and their types in Spark
    `offsets`         topics, offsets and timestamps in options to offset ranges
    `reader`          reads one task on an executor
    `stream_reader`   follows log dirs that grow
    `types`           Arrow's record columns to those that Spark takes
    `writer`          the sink: a DataFrame to the partitions of a log dir
    `sink_options`    the sink's options, and its columns
    `repartition`     brings the records of each Kafka partition together, for the sink
    `task_losses`     counts of what tasks lost, on the driver
    `runner`          runs a function for pieces of a log on executors, and publishes their files
    `jobs`            scan, batches, verify, reindex and export

If the package is installed, Spark finds the data source by itself. If it is only importable, as from a source tree,
call `register`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafkalog.spark.repartition import prepare

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kafkalog.spark.jobs.export import export as export
    from kafkalog.spark.jobs.reindex import reindex as reindex
    from kafkalog.spark.jobs.scan import batches as batches
    from kafkalog.spark.jobs.scan import scan as scan
    from kafkalog.spark.jobs.verify import verify as verify
    from kafkalog.spark.task_losses import losses as losses

__all__ = ["batches", "export", "losses", "prepare", "register", "reindex", "scan", "verify"]


def __getattr__(name: str) -> Any:
    """Import jobs on first use: executors that read for the data source need none of them."""
    if name in __all__:
        from kafkalog.spark import task_losses
        from kafkalog.spark.jobs import export, reindex, scan, verify

        modules = {"export": export, "losses": task_losses, "reindex": reindex, "verify": verify}
        return getattr(modules.get(name, scan), name)
    from kafkalog.text import missing_in_module

    return missing_in_module(__name__, __all__, name)


def register(spark: SparkSession) -> None:
    """Register the data source with a session, so that ``format("kafkalog")`` works.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
    """
    from kafkalog.spark.data_source import KafkaLogSource

    spark.dataSource.register(KafkaLogSource)
