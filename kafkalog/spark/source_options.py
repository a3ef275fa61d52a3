"""Parses the options of the data source: those of Spark's Kafka source, with its names and meanings.

Mirrors `KafkaSourceProvider`, `JsonUtils` and `KafkaOffsetRangeLimit` of Spark's connector, including the precedence of
options. Partitions that a JSON of offsets or timestamps does not name begin and end at the defaults.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, get_args

from kafkalog import format as kf
from kafkalog.errors import OnCorruption
from kafkalog.parsing import is_to_end, parse_duration, parse_milliseconds
from kafkalog.read_methods import with_remote_segments
from kafkalog.scanning.options import RecordOptions
from kafkalog.scanning.planning import TASK_BYTES
from kafkalog.spark.decoded import DECODE_OPTIONS, Decode, parse_decoding
from kafkalog.spark.options import Options, parse_json
from kafkalog.spark.runner import absolute
from kafkalog.spark.types import KAFKA_COLUMNS, check_columns
from kafkalog.state.read_committed import ISOLATION_LEVELS
from kafkalog.storage.location import PUBLIC_OPTIONS, is_public_option
from kafkalog.text import near

EARLIEST: Final = -2
LATEST: Final = -1
"""The values in the JSON of offsets, as in Kafka's protocol."""

_SUPPORTED: Final = (
    *("path", "paths", "log_dir", "tiered", "assign", "subscribe", "subscribePattern", "internal"),
    *("startingOffsets", "endingOffsets", "startingTimestamp", "endingTimestamp"),
    *("startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "startingOffsetsByTimestampStrategy"),
    *("minPartitions", "maxRecordsPerPartition", "taskBytes"),
    *("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay"),
    *("includeHeaders", "columns", "filters", "useTimeIndex"),
    *("failOnDataLoss", "kafka.isolation.level", "onCorruption", "checkCrcs", "highWatermark"),
    *DECODE_OPTIONS,
)
_OTHER_NAMES: Final = {"topic": "subscribe", "topics": "subscribe", "filter": "filters"}
"""Options of `kafkalog.scan` that mean the same here."""
_STORAGE: Final = "storage."
"""Prefix of the options of the store that a URL names."""
_EXAMPLE_PARTITIONS: Final = '{"topicA":[0,1],"topicB":[0,1]}'
_EXAMPLE_NUMBERS: Final = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'


@dataclass(frozen=True, slots=True)
class Bound:
    """The start or the end of a query."""

    offsets: int | Mapping[kf.TopicPartition, int] = EARLIEST
    """Offsets, `EARLIEST` or `LATEST` for each partition; or `EARLIEST` or `LATEST` for all."""
    timestamps: int | str | Mapping[kf.TopicPartition, int] | None = None
    """Timestamps in ms, for all or for each partition, or a time such as ``end-1h``. If given, `offsets` is ignored."""

    @property
    def values(self) -> int | str | Mapping[kf.TopicPartition, int]:
        """The timestamps, or else the offsets."""
        return self.offsets if self.timestamps is None else self.timestamps

    def is_anywhere(self, offset: int) -> bool:
        """Whether `EARLIEST` or `LATEST` is asked for, for all partitions or for one."""
        offsets = self.offsets.values() if isinstance(self.offsets, Mapping) else (self.offsets,)
        return self.timestamps is None and offset in offsets


@dataclass(frozen=True, slots=True)
class Topics:
    """The partitions to read: by partition, by topic, by a pattern, or all of topics that are not internal."""

    assigned: frozenset[kf.TopicPartition] | None = None
    subscribed: frozenset[str] | None = None
    pattern: str = ".*"
    internal: bool = False
    """Whether a pattern or the default includes internal topics."""

    def wants(self, key: kf.TopicPartition) -> bool:
        """Whether to read this partition."""
        if self.assigned is not None:
            return key in self.assigned
        if self.subscribed is not None:
            return key.topic in self.subscribed
        is_wanted = self.internal or key.topic not in kf.INTERNAL_TOPICS
        return is_wanted and re.search(self.pattern, key.topic) is not None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The checked options of a reader; see the documentation of the data source for each of them."""

    paths: tuple[str, ...]
    """Log dirs, partitions or segments; with the remote segments if `tiered` names their storage."""
    followed: tuple[str, ...]
    """The same paths without remote segments: where a stream sees new records."""
    topics: Topics
    starting: Bound
    ending: Bound
    latest_without_match: bool
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    """How long a stream waits for `min_offsets_per_trigger`."""
    fail_on_data_loss: bool
    columns: tuple[str, ...]
    high_watermark: Literal["ignore", "checkpoint"]
    decode: Decode | None
    planning: dict[str, Any]
    """Options of `kafkalog.scanning.planning.plan`."""
    reading: RecordOptions
    """Options of `kafkalog.scanning.tasks.read_task`."""
    given: frozenset[str]

    def check_batch(self) -> None:
        """Raise ValueError for an option that is not valid in a batch query."""
        if self.starting.is_anywhere(LATEST):
            raise ValueError("starting offset can't be latest for batch queries on Kafka")
        if self.ending.is_anywhere(EARLIEST):
            raise ValueError("ending offset can't be earliest for batch queries on Kafka")

    def check_stream(self) -> None:
        """Raise ValueError for an option that is not valid in a streaming query."""
        for name in ("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp"):
            if name in self.given:
                raise ValueError(f"{name} is not valid in streaming queries: a stream has no end")
        least, most = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            raise ValueError(f"minOffsetsPerTrigger {least} is higher than maxOffsetsPerTrigger {most}")


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Check the options of a reader, as Spark passes them; raises ValueError for an invalid one."""
    storage = {name: value for name, value in given.items() if name.lower().startswith(_STORAGE)}
    own = {_OTHER_NAMES.get(name.lower(), name): value for name, value in given.items() if name not in storage}
    if len(own) + len(storage) < len(given):
        raise ValueError("topics is subscribe, which is there twice")
    options = Options(own)
    options.check_names(_SUPPORTED)
    stores = {name.lower().removeprefix(_STORAGE): value for name, value in storage.items()}
    paths, tiered = _paths(options, stores), options.get("tiered")
    decode, filters = parse_decoding(options)
    return SourceOptions(
        paths=paths if tiered is None else tuple(_joined(path, tiered, stores) for path in paths),
        followed=paths,
        topics=_topics(options, paths),
        starting=_bound(options, "starting", EARLIEST),
        ending=_bound(options, "ending", LATEST),
        latest_without_match=options.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), "error")
        == "latest",
        max_offsets_per_trigger=options.number("maxOffsetsPerTrigger"),
        min_offsets_per_trigger=options.number("minOffsetsPerTrigger"),
        max_trigger_delay_ms=parse_duration("maxTriggerDelay", options.get("maxtriggerdelay", "15m").strip().lower()),
        fail_on_data_loss=options.flag("failOnDataLoss", default=True),
        columns=_columns(options, () if decode is None else decode.formats),
        high_watermark=options.choice("highWatermark", ("ignore", "checkpoint"), "ignore"),
        decode=decode,
        planning={
            "isolation_level": options.choice("kafka.isolation.level", ISOLATION_LEVELS, "read_uncommitted"),
            "on_corruption": options.choice("onCorruption", get_args(OnCorruption), "raise"),
            "task_bytes": options.n_bytes("taskBytes", TASK_BYTES),
            "min_tasks": options.number("minPartitions"),
            "max_records": options.number("maxRecordsPerPartition"),
        },
        reading={
            "filters": filters,
            "check_crcs": options.flag("checkCrcs", default=True),
            "use_time_index": options.flag("useTimeIndex", default=False),
        },
        given=frozenset(options),
    )


def _paths(options: Options, storage: dict[str, str]) -> tuple[str, ...]:
    if secret := next((name for name in storage if not is_public_option(name)), None):
        if meant := near(secret, PUBLIC_OPTIONS):
            raise ValueError(f"no option 'storage.{secret}'; did you mean storage.{meant}?")
        raise ValueError(
            f"storage.{secret}: Spark would show this credential in its plans; set it in the environment of each host"
        )
    # Spark adds a path of its own to the options of a table
    named = [options[name] for name in ("log_dir", "path") if name in options][:1]
    if "paths" in options and "log_dir" not in options:
        named = parse_json(options["paths"], '["/a", "/b"] as paths', lambda value: isinstance(value, list))
    if not named:
        raise ValueError("no path given: name a log dir in load(path)")
    return tuple(absolute(str(one), storage) for one in named)


def _joined(path: str, tiered: str, storage: dict[str, str]) -> Any:
    """A path with its segments in remote storage."""
    return with_remote_segments(path, absolute(tiered, storage))


def _topics(options: Options, paths: tuple[str, ...]) -> Topics:
    internal = options.flag("internal", default=False) or any(map(_is_internal, paths))
    chosen = [name for name in ("subscribe", "subscribepattern", "assign") if name in options]
    if len(chosen) > 1:
        raise ValueError(f"only one of subscribe, subscribePattern and assign: not {' and '.join(chosen)}")
    if "assign" in options:
        return Topics(assigned=frozenset(_partitions(options["assign"])))
    if (subscribed := options.names("subscribe")) is not None:
        return Topics(subscribed=frozenset(subscribed))
    pattern = options.get("subscribepattern", ".*").strip()
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"subscribePattern is no regular expression: {error}") from error
    if not pattern:
        raise ValueError("subscribePattern is empty")
    return Topics(pattern=pattern, internal=internal)


def _is_internal(path: str) -> bool:
    """Whether a path is the directory of an internal topic's partition, or a segment in it."""
    path = str(path)
    directory = os.path.dirname(path) if path.endswith(kf.LOG_SUFFIX) else path
    found = kf.parse_partition_directory(os.path.basename(directory))
    return found is not None and found.topic_partition.topic in kf.INTERNAL_TOPICS


def _bound(options: Options, which: str, default: int) -> Bound:
    """Parse a start or an end.

    As in Spark's Kafka source, one timestamp for all takes precedence over timestamps of partitions, and these over
    offsets.
    """
    timestamp = options.get(f"{which}timestamp")
    if timestamp is not None:
        is_relative = is_to_end(timestamp)
        return Bound(timestamps=timestamp if is_relative else parse_milliseconds(f"{which}Timestamp", timestamp))
    timestamps = options.get(f"{which}offsetsbytimestamp")
    if timestamps is not None:
        return Bound(timestamps=_numbers(timestamps))
    text = options.get(f"{which}offsets")
    if text is None:
        return Bound(default)
    named = {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())
    return Bound(_numbers(text) if named is None else named)


def _columns(options: Options, decoded: Collection[str]) -> tuple[str, ...]:
    columns = options.names("columns")
    if columns is not None:
        return check_columns(columns, decoded)
    return (*KAFKA_COLUMNS, "headers") if options.flag("includeHeaders", default=False) else KAFKA_COLUMNS


def _partitions(text: str) -> list[kf.TopicPartition]:
    def is_right(value: Any) -> bool:
        return isinstance(value, dict) and all(
            isinstance(numbers, list) and all(type(one) is int for one in numbers) for numbers in value.values()
        )

    value = parse_json(text, _EXAMPLE_PARTITIONS, is_right)
    return [kf.TopicPartition(topic, number) for topic, numbers in value.items() for number in numbers]


def _numbers(text: str) -> dict[kf.TopicPartition, int]:
    """Parse JSON with a number for each partition."""

    def is_right(value: Any) -> bool:
        return isinstance(value, dict) and all(
            isinstance(numbers, dict) and all(name.isdecimal() and type(one) is int for name, one in numbers.items())
            for numbers in value.values()
        )

    value = parse_json(text, _EXAMPLE_NUMBERS, is_right)
    items = ((topic, name, number) for topic, numbers in value.items() for name, number in numbers.items())
    return {kf.TopicPartition(topic, int(name)): number for topic, name, number in items}
