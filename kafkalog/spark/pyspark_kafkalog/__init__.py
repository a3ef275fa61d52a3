"""Installed as a top-level module, by whose name Spark finds the data source; imports fast and never raises."""

import contextlib

with contextlib.suppress(Exception):  # Spark imports every pyspark_* module, for any source that it looks up
    from kafkalog.spark.source import KafkaLogSource as DefaultSource  # noqa: F401
