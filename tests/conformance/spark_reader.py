"""A Spark of its own behind a pipe: reads with either source, one JSON object a line in, one out.

A process of its own, because a session takes jars only when it begins, and a Python process has one.
"""

import json
import os
import sys
import traceback

import pyarrow as pa


def session(master, jars, scratch):
    from pyspark.sql import SparkSession

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "700m",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "OFF",
        "spark.local.dir": f"{scratch}/local",
        "spark.sql.warehouse.dir": f"{scratch}/warehouse",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
    }
    if jars:
        settings["spark.jars"] = jars.replace(os.pathsep, ",")
    builder = SparkSession.builder.master(master)
    for name, value in settings.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def read(spark, format, options, path, to):
    frame = spark.read.format(format).options(**options).load(path)
    table = frame.toArrow()
    with pa.OSFile(to, "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)
    return {"rows": table.num_rows, "partitions": frame.rdd.getNumPartitions(), "schema": frame.schema.json()}


def start(spark, options, path, folder):
    frame = spark.readStream.format("kafkalog").options(**options).load(path)
    writer = frame.selectExpr("topic", "partition", "offset", "hex(value) value").writeStream.format("json")
    writer = writer.option("path", f"{folder}/out").option("checkpointLocation", f"{folder}/checkpoint")
    return writer.trigger(processingTime="200 milliseconds").start()


def main(master, jars, scratch):
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what Spark prints is no answer
    spark = session(master, jars, scratch)
    import kafkalog.spark

    kafkalog.spark.register(spark)
    query = None
    for line in sys.stdin:
        command = json.loads(line)
        do, number = command.pop("do"), command.pop("number")
        try:
            answer = {}
            if do == "read":
                answer = read(spark, **command)
            elif do == "start":
                query = start(spark, **command)
            elif query is not None and do == "state":
                error = query.exception()
                answer = {"is_active": query.isActive, "exception": None if error is None else str(error)}
            elif query is not None and do == "stop":
                query.stop()
        except Exception as error:
            traceback.print_exc()
            answer = {"error": f"{type(error).__name__}: {error}"}
        out.write(json.dumps({"number": number, **answer}) + "\n")
        out.flush()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
