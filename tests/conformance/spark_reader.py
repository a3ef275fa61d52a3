"""A Spark of its own behind a pipe: reads with either source, one JSON object a line in, one out.

A process of its own, because a session takes jars only when it begins, and a Python process has one.
"""

import json
import os
import sys
import traceback

import pyarrow as pa


def session(master, settings):
    from pyspark.sql import SparkSession

    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["PYSPARK_PYTHON"] = sys.executable
    return SparkSession.builder.master(master).config(map=json.loads(settings)).getOrCreate()


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


def main(master, settings):
    out = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)  # what Spark prints is no answer
    spark = session(master, settings)
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
