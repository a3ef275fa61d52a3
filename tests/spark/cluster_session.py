"""Run by test_cluster in a process of its own: a driver whose executors are other processes."""

from __future__ import annotations

import json
import os
import sys
import time


def main(root: str, damaged: str, scratch: str) -> None:
    from pyspark.sql import SparkSession

    settings = json.loads(os.environ["KAFKALOG_TEST_SETTINGS"])
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    for name, value in {**settings, "spark.executor.memory": "512m", "spark.local.dir": scratch}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    answer: dict[str, object] = {}

    def place(_: int) -> int:
        time.sleep(0.5)
        return os.getppid()

    answer["processes"] = spark.sparkContext.parallelize(range(4), 4).map(place).distinct().count()
    frame = spark.read.format("kafkalog").option("taskBytes", "64k")  # nobody registered it
    counts = frame.load(root).groupBy("topic").count().collect()
    answer["counts"] = {row["topic"]: row["count"] for row in counts}
    committed = frame.option("kafka.isolation.level", "read_committed").load(root)
    answer["committed"] = committed.filter("topic = 'p-txn'").count()
    try:
        frame.load(damaged).count()
    except Exception as error:
        answer["error"] = str(error)
    spark.stop()
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
