"""Run by test_pipeline in a process of its own, which is killed: the nightly pipeline of the guide."""

import sys

PIPELINE = """
def nightly(spark, log_dir, lake):
    stream = spark.readStream.format("kafkalog").options(
        subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger=400,
        valueFormat="json", valueSchema="customer string, amount bigint", onDecodeError="null",
    ).load(log_dir)
    totals = (
        stream.withWatermark("timestamp", "1 minute")
        .groupBy(F.window("timestamp", "1 hour"), "value.customer")
        .agg(F.sum("value.amount").alias("amount"), F.count("*").alias("n"))
    )
    writer = totals.select("window.start", "customer", "amount", "n").writeStream.format("parquet").outputMode("append")
    return writer.option("checkpointLocation", f"{lake}/state").trigger(availableNow=True).start(f"{lake}/totals")
"""


def main(log_dir, lake, settings):
    import json

    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    builder = SparkSession.builder.master("local[2]")
    for name, value in json.loads(settings).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    names = {"F": F}
    exec(PIPELINE, names)
    query = names["nightly"](spark, log_dir, lake)
    print("started", flush=True)
    query.awaitTermination()
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
