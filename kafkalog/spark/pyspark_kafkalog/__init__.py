"""The top-level module by whose name Spark finds the data source; imports fast and never raises."""

import contextlib

# Spark imports every pyspark_* module whenever it looks up any source: an error here would break other sources
with contextlib.suppress(Exception):
    from kafkalog.spark.data_source import KafkaLogSource as DefaultSource  # noqa: F401
