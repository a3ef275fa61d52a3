"""Parses the options of the sink, and checks its columns: those of Spark's Kafka sink, and Kafka's topic settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from pyspark.sql.types import StructType

from kafkalog import format as kf
from kafkalog.interchange.arrow_input import PLACE_COLUMNS, WRITTEN_COLUMNS
from kafkalog.spark.options import Options
from kafkalog.spark.runner import absolute
from kafkalog.spark.types import ALL_COLUMNS
from kafkalog.state.checkpoints import parse_topic_id
from kafkalog.state.log_config import LogConfig
from kafkalog.storage.location import refuse_url
from kafkalog.writing.partitioner import MAX_PARTITIONS
from kafkalog.writing.routing import check_topic

_SUPPORTED: Final = (
    *("path", "topic", "partitions", "preserveOffsets", "includeHeaders", "truncateTimestamps", "topicId", "jobId"),
    *("stageIn", "compression", "batch.size"),
)
_CONFIG: Final = (*(item.name.replace("_", ".") for item in fields(LogConfig)), "internal.segment.bytes")


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """The checked options of a writer; see the documentation of the sink for each of them."""

    path: str
    """The log dir."""
    topic: str | None
    """Takes precedence over the column."""
    partitions: int | None
    """Number of partitions over which Kafka's partitioner spreads records. None: the column `partition` decides, or
    without one the partitions that the topic has.
    """
    preserve_offsets: bool
    include_headers: bool
    truncate_timestamps: bool
    topic_id: str | None
    job_id: str | None
    stage_in: str | None
    compression: str | None
    batch_size: int
    config: LogConfig

    def writer_options(self) -> dict[str, Any]:
        """Return the options of a `PartitionWriter`."""
        return {name: getattr(self, name) for name in ("config", "compression", "batch_size", "topic_id")}


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Check the options of a writer.

    Parameters
    ----------
    given : mapping of str to str
        The options as Spark passes them; the case of names does not matter. Kafka's settings may begin with ``kafka.``,
        as for Spark's Kafka sink.

    Raises
    ------
    ValueError
        An option is invalid.
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
    elif "topicid" in options:
        raise ValueError("topicId requires the option topic")
    partitions = options.number("partitions", at_most=MAX_PARTITIONS)
    preserve = options.flag("preserveOffsets", default=False)
    if preserve and partitions is not None:
        raise ValueError(
            "preserveOffsets and partitions exclude each other: one keeps the partitions of records, the other changes"
            " them"
        )
    return SinkOptions(
        path=absolute(options["path"]),
        topic=topic,
        partitions=partitions,
        preserve_offsets=preserve,
        include_headers=options.flag("includeHeaders", default=True),
        truncate_timestamps=options.flag("truncateTimestamps", default=True),
        topic_id=None if "topicid" not in options else parse_topic_id(options["topicid"]),
        job_id=options.get("jobid"),
        stage_in=options.get("stagein"),
        compression=compression,
        batch_size=options.number("batch.size", at_most=2**31 - 1) or kf.BATCH_SIZE,
        config=LogConfig.from_properties(settings),
    )


def match_columns(schema: StructType, options: SinkOptions) -> dict[str, str]:
    """Return the names of a DataFrame's columns by record column; other columns of the data source are ignored.

    Raises
    ------
    ValueError
        A column is not one of a record, or is missing.
    """
    names: dict[str, str] = {}
    unknown: list[str] = []
    spelling = {name.lower(): name for name in (*WRITTEN_COLUMNS, *PLACE_COLUMNS)}
    passed = {name.lower() for name in ALL_COLUMNS}
    for name in schema.names:
        own = spelling.get(name.lower())
        if own in names:
            raise ValueError(f"there are two columns {own!r}")
        if own is not None:
            names[own] = name
        elif name.lower() not in passed:
            unknown.append(name)
    if unknown:
        raise ValueError(
            f"unknown column {', '.join(map(repr, unknown))}: drop it, or rename it to one of"
            f" {', '.join((*WRITTEN_COLUMNS, *PLACE_COLUMNS))}"
        )
    needed = {"value": "", "topic": " or the option topic"}
    if options.topic is not None:
        del needed["topic"]
        names.pop("topic", None)
    if options.preserve_offsets:
        needed |= {"offset": ", for preserveOffsets", "partition": ", for preserveOffsets"}
    else:
        names.pop("offset", None)
    for name, why in needed.items():
        if name not in names:
            raise ValueError(f"the sink needs the column {name!r}{why}")
    if options.partitions is not None:
        names.pop("partition", None)
    if not options.include_headers:
        names.pop("headers", None)
    return names
