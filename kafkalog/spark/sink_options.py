"""Parses the options of the sink, and checks its columns: those of Spark's Kafka sink, and Kafka's topic settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Final

from pyspark.sql.types import StructType

from kafkalog import format as kf
from kafkalog.interchange.arrow_input import PLACE_COLUMNS, WRITTEN_COLUMNS
from kafkalog.spark.options import Options
from kafkalog.spark.runner import absolute
from kafkalog.spark.types import ALL_COLUMNS
from kafkalog.state.log_config import LogConfig
from kafkalog.storage.location import refuse_url
from kafkalog.writing.routing import check_topic

_SUPPORTED: Final = (
    *("path", "topic", "preserveOffsets", "includeHeaders", "jobId", "stageIn", "compression", "batch.size"),
)
_CONFIG: Final = (*(item.name.replace("_", ".") for item in fields(LogConfig)), "internal.segment.bytes")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The checked options of a writer; see the documentation of the sink for each of them."""

    path: str
    """The log dir."""
    topic: str | None
    """Takes precedence over the column."""
    preserve_offsets: bool
    include_headers: bool
    job_id: str | None
    stage_in: str | None
    compression: str | None
    batch_size: int
    config: LogConfig


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Check the options of a writer; raises ValueError for an invalid one.

    Kafka's settings may begin with ``kafka.``, as for Spark's Kafka sink.
    """
    options = Options({name.lower().removeprefix("kafka."): value for name, value in given.items()})
    options.check_names((*_SUPPORTED, *_CONFIG))
    if not options.get("path"):
        raise ValueError("no log dir: name one in save(path)")
    if not options["path"].startswith("file:"):
        refuse_url(options["path"])
    if options.get("jobid") == "":
        raise ValueError("jobId is empty")
    settings = {name: value for name, value in options.items() if name in _CONFIG}
    compression = options.get("compression")
    if settings.get("compression.type") == "none":  # a producer's name for it; the topic setting is "uncompressed"
        compression, settings["compression.type"] = "none", "uncompressed"
    topic = options.get("topic")
    if topic is not None:
        check_topic(topic)
    return SinkOptions(
        path=absolute(options["path"]),
        topic=topic,
        preserve_offsets=options.flag("preserveOffsets", default=False),
        include_headers=options.flag("includeHeaders", default=True),
        job_id=options.get("jobid"),
        stage_in=options.get("stagein"),
        compression=compression,
        batch_size=options.number("batch.size", at_most=2**31 - 1) or kf.BATCH_SIZE,
        config=LogConfig.from_properties(settings),
    )


def match_columns(schema: StructType, options: SinkOptions) -> dict[str, str]:
    """Return the names of a DataFrame's columns by record column; other columns of the data source are ignored.

    Raises ValueError for a column that is not one of a record, and for a missing one.
    """
    names: dict[str, str] = {}
    spelling = {name.lower(): name for name in (*WRITTEN_COLUMNS, *PLACE_COLUMNS)}
    passed = {name.lower() for name in ALL_COLUMNS}
    for name in schema.names:
        own = spelling.get(name.lower())
        if own in names:
            raise ValueError(f"there are two columns {own!r}")
        if own is not None:
            names[own] = name
        elif name.lower() not in passed:
            raise ValueError(f"unknown column {name!r}: drop it, or rename it to one of {', '.join(spelling)}")
    needed = {"value": "", "partition": ": kafkalog.spark.prepare(df, partitions=...) adds it"}
    if options.topic is None:
        needed["topic"] = " or the option topic"
    else:
        names.pop("topic", None)
    if options.preserve_offsets:
        needed["offset"] = ", for preserveOffsets"
    else:
        names.pop("offset", None)
    for name, why in needed.items():
        if name not in names:
            raise ValueError(f"the sink needs the column {name!r}{why}")
    if not options.include_headers:
        names.pop("headers", None)
    return names
