"""Run by test_cluster in a process of its own: a driver whose executors are other processes."""

import json
import os
import signal
import sys
import time
from pathlib import Path

N_TASKS, N_ROWS = 4, 120_000


def deadly(batches):
    """Rows as they are; in the middle of the first attempt, one task loses its worker, and one its executor."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    victims = {0: os.getpid(), 1: int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])}
    n = 0
    for batch in batches:
        n += batch.num_rows
        if n > N_ROWS // N_TASKS // 2 and context.attemptNumber() == 0 and context.partitionId() in victims:
            time.sleep(1)  # until the sink has written what came before
            os.kill(victims[context.partitionId()], signal.SIGKILL)
        yield batch


def export_twice(spark, log, lake):
    """Let a log of JSON grow, and add what is new to tables, twice; returns the numbers of tasks and records."""
    import kafkalog
    from kafkalog import spark as jobs

    options = {"decode": {"value": "json"}, "columns": ["offset", "value"], "partition_by": ["partition"]}
    done = []
    log.mkdir()
    for fields in (["a"], ["a", "b"]):
        for partition in range(2):
            with kafkalog.PartitionWriter(log / f"orders-{partition}", batch_size=500) as writer:
                writer.append({"value": [json.dumps(dict.fromkeys(fields, n)).encode() for n in range(100)]})
        for format, to in (("delta", f"{lake}/table"), ("iceberg", "lake.kafka.orders")):
            rows = jobs.export(spark, log, to, format=format, task_bytes=1000, resume=True, **options).collect()
            done.append([len(rows) > 1, sum(row.n_records for row in rows)])
    return done


def main(root, damaged, scratch, sink, tiered, remote):
    from pyspark.sql import SparkSession

    settings = json.loads(os.environ["KAFKALOG_TEST_SETTINGS"])
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    # no task begins before both executors are there
    both = {
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "200s",
    }
    for name, value in {**settings, **both, "spark.executor.memory": "512m", "spark.local.dir": scratch}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    answer = {}

    def place(_):
        time.sleep(0.5)
        return os.getppid()

    answer["processes"] = spark.sparkContext.parallelize(range(4), 4).map(place).distinct().count()
    frame = spark.read.format("kafkalog").option("taskBytes", "64k")  # nobody registered it
    counts = frame.load(root).groupBy("topic").count().collect()
    answer["counts"] = {row["topic"]: row["count"] for row in counts}
    committed = frame.option("kafka.isolation.level", "read_committed").load(root)
    answer["committed"] = committed.filter("topic = 'p-txn'").count()
    answer["tiered"] = spark.read.format("kafkalog").option("tiered", remote).load(tiered).count()
    answer["exports"] = export_twice(spark, Path(sink).with_name("orders"), Path(sink).with_name("lake"))
    try:
        frame.load(damaged).count()
    except Exception as error:
        answer["error"] = str(error)
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", 1000)
    columns = "cast(cast(id as string) as binary) as key, cast('a value' as binary) as value"
    rows = spark.range(0, N_ROWS, 1, N_TASKS).selectExpr(*columns.split(", "), "spark_partition_id() as partition")
    rows.mapInArrow(deadly, rows.schema).write.format("kafkalog").mode("append").option("topic", "t").save(sink)
    statuses = spark.sparkContext.statusTracker()
    answer["failed"] = sum(
        stage.numFailedTasks
        for job in statuses.getJobIdsForGroup()
        for number in (getattr(statuses.getJobInfo(job), "stageIds", ()) or ())
        if (stage := statuses.getStageInfo(number)) is not None
    )
    spark.stop()
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
