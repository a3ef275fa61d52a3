"""Parses the options of the sink, and checks its columns: those of Spark's Kafka sink, and Kafka's topic settings.

An option that only a broker could honour is rejected, with the reason. So is an unknown one.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from pyspark.sql.types import StructType

from kafkalog import format as kf
from kafkalog.interchange.arrow_input import PLACE_COLUMNS, WRITTEN_COLUMNS
from kafkalog.spark.runner import absolute
from kafkalog.spark.types import ALL_COLUMNS
from kafkalog.state.checkpoints import parse_topic_id
from kafkalog.state.log_config import LogConfig
from kafkalog.writing.partitioner import MAX_PARTITIONS
from kafkalog.writing.routing import check_topic

_SUPPORTED: Final = (
    "path",
    "topic",
    "partitions",
    "preserveOffsets",
    "includeHeaders",
    "truncateTimestamps",
    "topicId",
    "jobId",
    "stageIn",
    "compression",
    "batch.size",
)
_CONFIG: Final = {item.name.replace("_", "."): item.name for item in fields(LogConfig)}
_NO_BROKER: Final = "this sink writes files and asks no broker"
_REFUSED: Final = {
    "kafka.bootstrap.servers": f"it names brokers, and {_NO_BROKER}: name the log dir in save(path)",
    "kafka.acks": f"acknowledgements are a broker's, and {_NO_BROKER}",
    "kafka.transactional.id": f"transactions are coordinated by a broker, and {_NO_BROKER}",
    "kafka.linger.ms": "batches are filled to batch.size: nothing lingers",
    "kafka.key.serializer": "keys are bytes or strings: serialize them in the query",
    "kafka.value.serializer": "values are bytes or strings: serialize them in the query",
}


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


def parse_sink_options(options: Mapping[str, str]) -> SinkOptions:
    """Check the options of a writer.

    Parameters
    ----------
    options : mapping of str to str
        The options as Spark passes them; the case of names does not matter. Kafka's settings may begin with ``kafka.``.

    Raises
    ------
    ValueError
        An option is invalid.
    """
    given = {name.lower(): value for name, value in options.items()}
    for name, reason in _REFUSED.items():
        if name in given:
            raise ValueError(f"option {name!r} is not supported: {reason}")
    # as for Spark's Kafka sink, so that a query needs few changes
    kafka = {name.removeprefix("kafka."): value for name, value in given.items() if name.startswith("kafka.")}
    given = {**kafka, **{name: value for name, value in given.items() if not name.startswith("kafka.")}}
    known = {name.lower() for name in _SUPPORTED} | set(_CONFIG) | {"internal.segment.bytes"}
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, sorted(known), 1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise ValueError(f"option {name!r} is not known{hint}")
    path = given.get("path", "")
    if not path:
        raise ValueError("which log dir? Name it in save(path)")
    settings = {name: value for name, value in given.items() if name in _CONFIG or name == "internal.segment.bytes"}
    compression = given.get("compression")
    if settings.get("compression.type") == "none":  # a producer's name for it; the topic setting is "uncompressed"
        compression, settings["compression.type"] = "none", "uncompressed"
    topic = given.get("topic")
    if topic is not None:
        check_topic(topic)
    partitions = _whole(given, "partitions", at_most=MAX_PARTITIONS)
    preserve = _flag(given, "preserveOffsets", default=False)
    if preserve and partitions is not None:
        raise ValueError("preserveOffsets keeps records in their partitions, and partitions spreads them: name one")
    if "topicid" in given and topic is None:
        raise ValueError("topicId is the id of one topic: the option topic has to name it")
    if given.get("jobid") == "":
        raise ValueError("jobId is empty")
    return SinkOptions(
        path=absolute(path),
        topic=topic,
        partitions=partitions,
        preserve_offsets=preserve,
        include_headers=_flag(given, "includeHeaders", default=True),
        truncate_timestamps=_flag(given, "truncateTimestamps", default=True),
        topic_id=None if "topicid" not in given else parse_topic_id(given["topicid"]),
        job_id=given.get("jobid"),
        stage_in=given.get("stagein"),
        compression=compression,
        batch_size=_whole(given, "batch.size") or kf.BATCH_SIZE,
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
            f"a record has no column {', '.join(map(repr, unknown))}: drop it, or name it one of"
            f" {', '.join((*WRITTEN_COLUMNS, *PLACE_COLUMNS))}"
        )
    if "value" not in names:
        raise ValueError("Required attribute 'value' not found.")
    if options.topic is None and "topic" not in names:
        raise ValueError("topic option required when no 'topic' attribute is present. Use the topic option for setting")
    if options.preserve_offsets:
        for needed in ("offset", "partition"):
            if needed not in names:
                raise ValueError(f"preserveOffsets needs the column {needed!r}")
    else:
        names.pop("offset", None)
    if options.topic is not None:
        names.pop("topic", None)
    if options.partitions is not None:
        names.pop("partition", None)
    if not options.include_headers:
        names.pop("headers", None)
    return names


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = given.get(name.lower(), str(default)).lower()
    if value not in ("true", "false"):
        raise ValueError(f"{name} is true or false, not {value!r}")
    return value == "true"


def _whole(given: Mapping[str, str], name: str, *, at_most: int = 2**31 - 1) -> int | None:
    value = given.get(name.lower())
    if value is None:
        return None
    if not value.isascii() or not value.isdecimal() or not 1 <= int(value) <= at_most:
        raise ValueError(f"{name} is a whole number of 1 to {at_most}, not {value!r}")
    return int(value)
