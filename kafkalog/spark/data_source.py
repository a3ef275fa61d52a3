"""The data source "kafkalog": Kafka's log dirs as a DataFrame, with the schema and options of Spark's Kafka source.

A Python process on the driver plans each query once. Executors read; they need the package and the same paths. Filters
are not pushed down: in Spark up to 4.3 all scans of a DataFrame share the filters that one of them pushed, which gives
wrong results. The options `filters` and `columns`, and a schema given by the user, leave out what is not needed.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from kafkalog.spark import types
from kafkalog.spark.source_options import parse_options

_NO_TABLES: Final = (
    "Spark does not pass the options of a table to Python sources. Use a snapshot: CREATE TEMPORARY VIEW name USING"
    " kafkalog OPTIONS (log_dir '...'). Or name the log dir in each query: SELECT ... FROM name WITH (log_dir='...')"
)


class KafkaLogSource(DataSource):
    """``spark.read.format("kafkalog")``, ``spark.readStream`` and ``df.write``."""

    @classmethod
    def name(cls) -> str:
        """Return the name to pass to `format`."""
        return "kafkalog"

    def schema(self) -> StructType:
        """Return the schema of Spark's Kafka source, with headers if `includeHeaders`; or the columns in `columns`."""
        if "provider" in self.options:
            raise ValueError(f"CREATE TABLE is not supported: {_NO_TABLES}")
        options = parse_options(self.options)
        if options.decode is None:
            return types.spark_schema(options.columns)
        from kafkalog.spark.offsets import open_paths
        from kafkalog.spark.reader import record_batches

        return options.decode.schema(options.columns, open_paths(options.paths), partial(record_batches, options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query."""
        from kafkalog.spark.reader import KafkaLogReader

        if not self.options:
            raise ValueError(f"no path given; if this is a table: {_NO_TABLES}")
        options = parse_options(self.options)
        options.check_batch()
        return KafkaLogReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader of a streaming query."""
        from kafkalog.spark.stream_reader import KafkaLogStreamReader

        options = parse_options(self.options)
        options.check_stream()
        return KafkaLogStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer for ``df.write``."""
        from kafkalog.spark.sink_options import parse_sink_options
        from kafkalog.spark.writer import KafkaLogWriter

        if overwrite:
            raise ValueError('a log only grows: use mode("append"), or remove the topic first')
        return KafkaLogWriter(parse_sink_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Raise: a stream is written by `foreachBatch`."""
        raise ValueError(
            'write a stream with foreachBatch and write.format("kafkalog"), with the number of the batch as the option'
            " jobId (see the guide on Spark)"
        )
