"""Run by test_cluster in a process of its own: a driver that starts a task again while its first attempt is slow."""

import json
import os
import socket
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

N_TASKS, N_ROWS = 2, 40_000
HOSTS = ("127.0.0.1", "127.0.0.2")
"""Spark starts no second attempt on the host of the first."""


def slow(batches):
    """Rows as they are; the first attempt of a task stops in the middle until the second has given all of its rows."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    marker, n = Path(os.environ["KAFKALOG_TEST_MARKER"]), 0
    is_slow = context.partitionId() == 0 and context.attemptNumber() == 0
    for batch in batches:
        yield batch
        n += batch.num_rows
        while is_slow and n > N_ROWS // N_TASKS // 2 and not marker.exists():
            time.sleep(0.05)
    if context.partitionId() == 0:
        marker.touch()


def twice(step, work):
    """Work that two attempts of task 0 do; each goes on only when the other has done it, too."""

    def body(batches):
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        if context.partitionId() != 0:
            yield from work(batches)
            return
        marker, attempt = os.environ["KAFKALOG_TEST_MARKER"], context.attemptNumber()
        try:
            made = [*work(batches)]
        finally:
            # of a task that fails, too: nobody waits for it
            Path(f"{marker}-{step}-{attempt}").touch()
        while not Path(f"{marker}-{step}-{1 - min(attempt, 1)}").exists():
            time.sleep(0.05)
        yield from made

    return body


def start_cluster(scratch):
    """A master and a worker on each host; returns the URL of the master."""
    with socket.socket() as one:
        one.bind((HOSTS[0], 0))
        port = one.getsockname()[1]
    program = str(Path(os.environ["SPARK_HOME"]) / "bin" / "spark-class")
    url = f"spark://{HOSTS[0]}:{port}"
    deploy = "org.apache.spark.deploy"
    commands = [[f"{deploy}.master.Master", "--host", HOSTS[0], "--port", str(port), "--webui-port", "0"]]
    for host in HOSTS:
        options = ["--host", host, "--cores", "1", "--memory", "600m", "--webui-port", "0"]
        commands.append([f"{deploy}.worker.Worker", *options, "--work-dir", str(scratch / host), url])
    return url, [
        subprocess.Popen([program, *command], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for command in commands
    ]


def write(url, scratch, sink):
    from pyspark.sql import SparkSession

    settings = json.loads(os.environ["KAFKALOG_TEST_SETTINGS"])
    speculation = {"": "true", ".interval": "50ms", ".multiplier": "1.1", ".quantile": "0.5"}
    builder = SparkSession.builder.master(url)
    for name, value in {
        **settings,
        **{f"spark.speculation{name}": value for name, value in speculation.items()},
        "spark.executor.memory": "512m",
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": "300s",
        "spark.cores.max": str(N_TASKS),
        "spark.local.dir": scratch,
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
        "spark.executorEnv.KAFKALOG_TEST_MARKER": os.environ["KAFKALOG_TEST_MARKER"],
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    columns = ("cast(cast(id as string) as binary) as key", "cast('a value' as binary) as value")
    rows = spark.range(0, N_ROWS, 1, N_TASKS).selectExpr(*columns, "spark_partition_id() as partition")
    rows.mapInArrow(slow, rows.schema).write.format("kafkalog").mode("append").option("topic", "t").save(sink)
    read = spark.read.format("kafkalog").option("taskBytes", 2**16).load(sink).select("partition", "offset", "key")
    found = read.mapInArrow(twice("read", lambda batches: batches), read.schema).collect()
    print(json.dumps(sorted([row.partition, row.offset, row.key.decode()] for row in found)))
    run_jobs(spark, sink)
    spark.stop()


def run_jobs(spark, log):
    """Run jobs whose tasks write files, each stage with a task that runs twice; what they make lies beside the log."""
    from kafkalog import spark as jobs
    from kafkalog.spark import runner

    run = runner.run
    run_tasks = runner._run_tasks
    stages = []

    def patched(spark, pieces, function, schema, **options):
        assert len(pieces) > 1  # of a stage with one task no second attempt is started
        step = f"{job}{len(stages)}"
        stages.append(step)
        runner._run_tasks = lambda function, batches: twice(step, partial(run_tasks, function))(batches)
        return run(spark, pieces, function, schema, **options)

    runner.run = patched
    place = Path(log).parent
    job = "export"
    jobs.export(spark, log, place / job, task_bytes=2**16)
    job = "reindex"
    jobs.reindex(spark, log, output=place / job, task_bytes=2**10)
    print(json.dumps(["read", *stages]))


def main(scratch, sink):
    url, processes = start_cluster(Path(scratch))
    try:
        write(url, scratch, sink)
    finally:
        for process in processes:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
