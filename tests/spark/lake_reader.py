"""Run by test_spark_reads_tables, by a Python with another PySpark: rows of a Delta and an Iceberg table, as JSON."""

import json
import sys


def main(jars, lake, scratch):
    from pyspark.sql import SparkSession

    extensions = (
        "io.delta.sql.DeltaSparkSessionExtension",
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    )
    catalog = "spark.sql.catalog.lake"
    options = {
        "spark.jars": jars,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "ERROR",
        "spark.local.dir": scratch,
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.extensions": ",".join(extensions),
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "jdbc",
        f"{catalog}.uri": f"jdbc:sqlite:{lake}/catalog.db",
        f"{catalog}.warehouse": f"file://{lake}",
        f"{catalog}.jdbc.schema-version": "V1",
    }
    builder = SparkSession.builder.master("local[1]")
    for name, value in options.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    frames = {"delta": spark.read.format("delta").load(f"{lake}/table"), "iceberg": spark.table("lake.kafka.orders")}
    for format, frame in frames.items():
        rows = frame.select("partition", "offset", "value.a", "value.b").orderBy("partition", "offset").collect()
        print(json.dumps({format: [[*row] for row in rows]}))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
