"""Run by test_nights_in_stores in a process of its own, which is killed: a night of exports into tables of a store."""

import json
import os
import sys

TABLES = [(format, value) for format in ("delta", "iceberg") for value in ("json", "avro")]


def options_of(value, schemas):
    """The options of each export of a topic, by Spark and by the command."""
    more = {"schemas": schemas} if value == "avro" else {}
    return {
        "topics": value,
        "decode": {"value": value},
        "columns": ["offset", "timestamp", "value"],
        "partition_by": ["partition"],
        "resume": True,
        **more,
    }


def main(log, lake, schemas):
    from pyspark.sql import SparkSession

    import kafkalog.spark

    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    for name, value in {**json.loads(os.environ["KAFKALOG_TEST_SETTINGS"]), "spark.executor.memory": "512m"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    print("ready", flush=True)
    for format, value in TABLES:
        to = f"{lake}/{value}" if format == "delta" else f"lake.kafka.{value}"
        frame = kafkalog.spark.export(spark, log, to, format=format, task_bytes=2000, **options_of(value, schemas))
        print(format, value, sum(row["n_records"] for row in frame.toArrow().to_pylist()), flush=True)
    spark.stop()
    print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
