"""Run by test_executors in a process of its own: a driver that sees what its executors, in other processes, do not."""

import importlib
import json
import os
import sys
from pathlib import Path


def error_of(function):
    try:
        return f"no error: {function()}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def answers(spark, log):
    """What jobs and the source do with the golden log dir."""
    from kafkalog import spark as jobs

    found = {}
    # a path that leads to the log dir in the driver alone: the executors work in other folders
    hidden = "/proc/self/cwd"
    found["verify"] = error_of(lambda: jobs.verify(spark, hidden).count())
    found["export"] = error_of(lambda: jobs.export(spark, hidden, Path(os.environ["SCRATCH"]) / "out").count())
    source = spark.read.format("kafkalog").option("failOnDataLoss", "false")
    found["source"] = error_of(lambda: source.load(hidden).count())
    found["relative"] = spark.read.format("kafkalog").load(".").count()
    found["relative job"] = jobs.verify(spark, "p-multi-0").where("kind = 'segment' and ok").count()
    # a module that the driver alone has, and a function of this script
    sys.path.append(os.environ["ALONE"])
    only_here = importlib.import_module("only_here")

    found["module"] = error_of(lambda: jobs.scan(spark, log, topics="p-multi", where=only_here.wanted).count())
    where = jobs.scan(spark, log, topics="p-multi", where=lambda offset: offset < 5)
    found["function"] = where.count()
    spark.sparkContext.addPyFile(only_here.__file__)
    found["shipped"] = jobs.scan(spark, log, topics="p-multi", where=only_here.wanted).count()
    return found


def main(log):
    from pyspark.sql import SparkSession

    os.chdir(log)
    builder = SparkSession.builder.master("local-cluster[2,1,1024]")
    for name, value in {**json.loads(os.environ["KAFKALOG_TEST_SETTINGS"]), "spark.executor.memory": "512m"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    answer = answers(spark, log)
    spark.stop()
    # executors that import another kafkalog, which has no kernels
    builder = builder.config("spark.executorEnv.PYTHONPATH", os.environ["BROKEN"])
    spark = builder.getOrCreate()
    from kafkalog import spark as jobs

    answer["package"] = error_of(lambda: jobs.verify(spark, log, topics="p-multi").count())
    spark.stop()
    print(json.dumps(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
