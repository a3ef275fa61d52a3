"""Parses the options of the data source: those of Spark's Kafka source, with its names, meanings and messages.

Mirrors `KafkaSourceProvider`, `JsonUtils` and `KafkaOffsetRangeLimit` of Spark's connector, including the precedence of
options. An option that only a broker could honour is rejected, with the reason. So is an unknown option: ignoring a
misspelt one would silently read other records.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, cast

from kafkalog import format as kf
from kafkalog.errors import OnCorruption
from kafkalog.parsing import TopicPatterns
from kafkalog.scanning.planning import TASK_BYTES
from kafkalog.spark.decoded import DECODE_OPTIONS, Decode, parse_decoding, parse_json
from kafkalog.spark.runner import absolute
from kafkalog.spark.types import KAFKA_COLUMNS, check_columns
from kafkalog.state.read_committed import ISOLATION_LEVELS, IsolationLevel
from kafkalog.text import near

EARLIEST: Final = -2
LATEST: Final = -1
"""The values in the JSON of offsets, as in Kafka's protocol."""

_SUPPORTED: Final = (
    "path",
    "paths",
    "assign",
    "subscribe",
    "subscribePattern",
    "topics",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "includeHeaders",
    "internal",
    "failOnDataLoss",
    "kafka.isolation.level",
    "isolationLevel",
    "columns",
    "filters",
    "onCorruption",
    "checkCrcs",
    "taskBytes",
    "highWatermark",
    "latest",
    "useTimeIndex",
    *DECODE_OPTIONS,
)
_NO_BROKER = "this source reads files and asks no broker"
_REFUSED: Final = {
    "kafka.auto.offset.reset": (
        "Kafka option 'auto.offset.reset' is not supported.\n"
        "Instead set the source option 'startingoffsets' to 'earliest' or 'latest' to specify where to start."
    ),
    "kafka.key.deserializer": (
        "Kafka option 'key.deserializer' is not supported as keys are deserialized as byte arrays with"
        " ByteArrayDeserializer. Use DataFrame operations to explicitly deserialize the keys."
    ),
    "kafka.value.deserializer": (
        "Kafka option 'value.deserializer' is not supported as values are deserialized as byte arrays with"
        " ByteArrayDeserializer. Use DataFrame operations to explicitly deserialize the values."
    ),
    "kafka.enable.auto.commit": "Kafka option 'enable.auto.commit' is not supported",
    "kafka.interceptor.classes": "Kafka option 'interceptor.classes' is not supported",
    "kafka.bootstrap.servers": f"it names brokers, and {_NO_BROKER}: name the log dir in load(path)",
    "kafka.group.id": f"consumer groups are a broker's, and {_NO_BROKER}",
    "groupidprefix": f"consumer groups are a broker's, and {_NO_BROKER}",
    "kafkaconsumer.polltimeoutms": f"nothing is polled: {_NO_BROKER}",
    "fetchoffset.numretries": f"no offset is fetched: {_NO_BROKER}",
    "fetchoffset.retryintervalms": f"no offset is fetched: {_NO_BROKER}",
    "location": "Spark tells no source where a table is: CREATE TEMPORARY VIEW ... USING kafkalog OPTIONS (path ...)",
    "where": "a Python function does not fit into an option: use filters=, or kafkalog.spark's jobs",
}
# what else one might call an option, and what it is called here
_OTHER_NAMES: Final = {
    "topic": "topics",
    "startoffset": "startingOffsets",
    "start_offset": "startingOffsets",
    "endoffset": "endingOffsets",
    "end_offset": "endingOffsets",
    "start_timestamp": "startingTimestamp",
    "end_timestamp": "endingTimestamp",
    "limit": "load(path).limit(n)",
    "filter": "filters",
}
_EXAMPLE_PARTITIONS = '{"topicA":[0,1],"topicB":[0,1]}'
_EXAMPLE_OFFSETS = '{"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}'
_EXAMPLE_TIMESTAMPS = '{"topicA": {"0": 123456789, "1": 123456789},\n"topicB": {"0": 123456789, "1": 123456789}}'
_UNITS: Final = {"": 1, "k": 2**10, "m": 2**20, "g": 2**30}
_SECONDS: Final = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}


@dataclass(frozen=True, slots=True)
class Bound:
    """The start or the end of a query."""

    offsets: int | Mapping[kf.TopicPartition, int] = EARLIEST
    """Offsets, `EARLIEST` or `LATEST` for each partition; or `EARLIEST` or `LATEST` for all."""
    timestamps: int | Mapping[kf.TopicPartition, int] | None = None
    """Timestamps in ms, for all or for each partition. If given, `offsets` is ignored."""


@dataclass(frozen=True, slots=True)
class Topics:
    """The partitions to read: by partition, by topic, by a pattern, or all of topics that are not internal."""

    assigned: frozenset[kf.TopicPartition] | None = None
    subscribed: frozenset[str] | None = None
    pattern: str | None = None
    patterns: tuple[str, ...] | None = None
    """Names, globs and exclusions, as `kafkalog.scan` takes them."""
    internal: bool = False
    """Whether a pattern or the default includes internal topics."""

    def wants(self, key: kf.TopicPartition) -> bool:
        """Whether to read this partition."""
        if self.assigned is not None:
            return key in self.assigned
        if self.subscribed is not None:
            return key.topic in self.subscribed
        if self.patterns is not None:
            return TopicPatterns(self.patterns, internal=self.internal).wants(key.topic)
        if key.topic in kf.INTERNAL_TOPICS and not self.internal:
            return False
        return self.pattern is None or re.fullmatch(self.pattern, key.topic) is not None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """The checked options of a reader; see the documentation of the data source for each of them."""

    paths: tuple[str, ...]
    topics: Topics
    starting: Bound
    ending: Bound
    latest_without_match: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay: float
    fail_on_data_loss: bool
    isolation_level: IsolationLevel
    columns: tuple[str, ...]
    filters: Any
    on_corruption: OnCorruption
    check_crcs: bool
    use_time_index: bool
    task_bytes: int
    high_watermark: Literal["ignore", "checkpoint"]
    latest: Literal["key"] | None
    decode: Decode | None
    given: frozenset[str]

    def check_batch(self) -> None:
        """Check the options of a batch query.

        Raises
        ------
        ValueError
            An option is not valid in a batch query.
        """
        if self.starting.timestamps is None:
            if self.starting.offsets == LATEST:
                raise ValueError("starting offset can't be latest for batch queries on Kafka")
            for key, offset in _items(self.starting.offsets):
                if offset == LATEST:
                    raise ValueError(f"startingOffsets for {key} can't be latest for batch queries on Kafka")
        if self.ending.timestamps is None:
            if self.ending.offsets == EARLIEST:
                raise ValueError("ending offset can't be earliest for batch queries on Kafka")
            for key, offset in _items(self.ending.offsets):
                if offset == EARLIEST:
                    raise ValueError(f"ending offset for {key} can't be earliest for batch queries on Kafka")

    def check_stream(self) -> None:
        """Check the options of a streaming query.

        Raises
        ------
        ValueError
            An option is not valid in a streaming query.
        """
        if "endingoffsets" in self.given:
            raise ValueError("ending offset not valid in streaming queries")
        if self.given & {"endingtimestamp", "endingoffsetsbytimestamp"}:
            raise ValueError("ending timestamp not valid in streaming queries")
        if self.latest is not None:
            raise ValueError("latest not valid in streaming queries: what is the latest record changes")
        least, most = self.min_offsets_per_trigger, self.max_offsets_per_trigger
        if least is not None and most is not None and least > most:
            raise ValueError(
                f"The value of minOffsetPerTrigger({least}) is higher than the maxOffsetsPerTrigger({most})."
            )


def parse_options(options: Mapping[str, str]) -> SourceOptions:
    """Check the options of a reader.

    Parameters
    ----------
    options : mapping of str to str
        The options as Spark passes them; the case of names does not matter.

    Raises
    ------
    ValueError
        An option is invalid. The message is that of Spark's Kafka source where that rejects the same.
    """
    given = {name.lower(): value for name, value in options.items()}
    _check_names(given)
    level = given.get("kafka.isolation.level", given.get("isolationlevel", "read_uncommitted"))
    if level not in ISOLATION_LEVELS:
        raise ValueError(f"kafka.isolation.level must be one of: read_committed, read_uncommitted, not {level!r}")
    topics = _topics(given)
    decode, filters = parse_decoding(given)
    columns = _columns(given, () if decode is None else decode.formats)
    on_corruption = given.get("oncorruption", "raise").lower()
    if on_corruption not in ("raise", "stop", "skip"):
        raise ValueError(f"onCorruption must be raise, stop or skip, not {on_corruption!r}")
    strategy = given.get("startingoffsetsbytimestampstrategy", "error").upper()
    if strategy not in ("ERROR", "LATEST"):
        raise ValueError(f"startingOffsetsByTimestampStrategy must be error or latest: No value found for '{strategy}'")
    high_watermark = given.get("highwatermark", "ignore").lower()
    if high_watermark not in ("ignore", "checkpoint"):
        raise ValueError(f"highWatermark must be ignore or checkpoint, not {high_watermark!r}")
    return SourceOptions(
        paths=_paths(given),
        topics=topics,
        starting=_bound(given, "starting", LATEST if "startingoffsets" in given else EARLIEST),
        ending=_bound(given, "ending", LATEST),
        latest_without_match=strategy == "LATEST",
        min_partitions=_positive(given, "minPartitions"),
        max_records_per_partition=_positive(given, "maxRecordsPerPartition"),
        max_offsets_per_trigger=_positive(given, "maxOffsetsPerTrigger"),
        min_offsets_per_trigger=_positive(given, "minOffsetsPerTrigger"),
        max_trigger_delay=_seconds(given.get("maxtriggerdelay", "15m")),
        fail_on_data_loss=_boolean(given, "failOnDataLoss", True),
        isolation_level=cast(IsolationLevel, level),
        columns=columns,
        filters=filters,
        on_corruption=cast(OnCorruption, on_corruption),
        check_crcs=_boolean(given, "checkCrcs", True),
        use_time_index=_boolean(given, "useTimeIndex", False),
        task_bytes=_bytes(given.get("taskbytes", str(TASK_BYTES))),
        high_watermark=cast(Literal["ignore", "checkpoint"], high_watermark),
        latest=_latest(given),
        decode=decode,
        given=frozenset(given),
    )


def _latest(given: Mapping[str, str]) -> Literal["key"] | None:
    if "latest" not in given:
        return None
    if given["latest"].lower() != "key":
        raise ValueError(f"latest must be key, not {given['latest']!r}")
    if "maxrecordsperpartition" in given:
        raise ValueError("maxRecordsPerPartition divides partitions, and latest reads each as a whole")
    return "key"


def _check_names(given: Mapping[str, str]) -> None:
    known = {name.lower(): name for name in _SUPPORTED}
    for name in given:
        if name in _REFUSED:
            reason = _REFUSED[name]
            raise ValueError(reason if reason.startswith("Kafka option") else f"option {name!r} is refused: {reason}")
        if name in known:
            continue
        if name.startswith("kafka."):
            raise ValueError(f"option {name!r} is refused: it is for a Kafka client, and {_NO_BROKER}")
        meant = _OTHER_NAMES.get(name) or near(name, _SUPPORTED)
        raise ValueError(
            f"no option {name!r}" + (f"; did you mean {meant}?" if meant else f"; there are {', '.join(_SUPPORTED)}")
        )


def _paths(given: Mapping[str, str]) -> tuple[str, ...]:
    if "paths" in given:
        paths = parse_json(given["paths"], "paths", lambda value: isinstance(value, list))
        return tuple(absolute(str(path)) for path in paths)
    if "path" not in given:
        raise ValueError("no path given: name a log dir (a value of log.dirs, or a copy of one) in load(path)")
    return (absolute(given["path"]),)


def _topics(given: Mapping[str, str]) -> Topics:
    internal = _boolean(given, "internal", False) or any(map(_is_internal, _paths(given)))
    strategies = [name for name in ("subscribe", "subscribepattern", "assign", "topics") if name in given]
    if len(strategies) > 1:
        raise ValueError(
            "Only one of the following options can be specified for Kafka source: subscribe, subscribepattern, assign."
            " See the docs for more details."
        )
    if "assign" in given:
        value = given["assign"]
        if not value.strip().startswith("{"):
            raise ValueError(f"No topicpartitions to assign as specified value for option 'assign' is '{value}'")
        return Topics(assigned=frozenset(_partitions(value)))
    if "subscribe" in given:
        value = given["subscribe"]
        names = frozenset(filter(None, map(str.strip, value.split(","))))
        if not names:
            raise ValueError(f"No topics to subscribe to as specified value for option 'subscribe' is '{value}'")
        return Topics(subscribed=names)
    if "subscribepattern" in given:
        value = given["subscribepattern"]
        if not value.strip():
            raise ValueError(
                f"Pattern to subscribe is empty as specified value for option 'subscribePattern' is '{value}'"
            )
        try:
            re.compile(value.strip())
        except re.error as error:
            raise ValueError(f"subscribePattern is no regular expression: {error}") from error
        return Topics(pattern=value.strip(), internal=internal)
    if "topics" in given:
        patterns = tuple(filter(None, map(str.strip, given["topics"].split(","))))
        if not patterns:
            raise ValueError("the option topics names none: give names or globs, such as orders.*,!*-changelog")
        return Topics(patterns=patterns, internal=internal)
    return Topics(internal=internal)


def _is_internal(path: str) -> bool:
    """Whether a path is the directory of an internal topic's partition, or a segment in it."""
    location = os.path.abspath(path)
    names = [os.path.basename(location), os.path.basename(os.path.dirname(location))]
    found = [kf.parse_partition_directory(name) for name in (names if location.endswith(kf.LOG_SUFFIX) else names[:1])]
    return any(one is not None and one.topic_partition.topic in kf.INTERNAL_TOPICS for one in found)


def _bound(given: Mapping[str, str], which: str, default: int) -> Bound:
    """Parse a start or an end.

    As in Spark's Kafka source, one timestamp for all takes precedence over timestamps of partitions, and these over
    offsets.
    """
    timestamp = given.get(f"{which}timestamp")
    if timestamp is not None:
        try:
            return Bound(timestamps=int(timestamp))
        except ValueError:
            raise ValueError(f"Expected a single long value, got {timestamp}") from None
    timestamps = given.get(f"{which}offsetsbytimestamp")
    if timestamps is not None:
        return Bound(timestamps=_numbers(timestamps, _EXAMPLE_TIMESTAMPS))
    text = given.get(f"{which}offsets")
    if text is None:
        return Bound(EARLIEST if which == "starting" else default)
    named = {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())
    return Bound(_numbers(text, _EXAMPLE_OFFSETS) if named is None else named)


def _columns(given: Mapping[str, str], decoded: Collection[str]) -> tuple[str, ...]:
    if "columns" in given:
        return check_columns([name.strip() for name in given["columns"].split(",") if name.strip()] or [""], decoded)
    return (*KAFKA_COLUMNS, "headers") if _boolean(given, "includeHeaders", False) else KAFKA_COLUMNS


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _partitions(text: str) -> list[kf.TopicPartition]:
    def is_right(value: Any) -> bool:
        return isinstance(value, dict) and all(
            isinstance(numbers, list) and all(map(_is_number, numbers)) for numbers in value.values()
        )

    value = parse_json(text, _EXAMPLE_PARTITIONS, is_right)
    return [kf.TopicPartition(topic, number) for topic, numbers in value.items() for number in numbers]


def _numbers(text: str, example: str) -> dict[kf.TopicPartition, int]:
    """Parse JSON with a number for each partition."""

    def is_right(value: Any) -> bool:
        return isinstance(value, dict) and all(
            isinstance(numbers, dict)
            and all(partition.isdecimal() and _is_number(number) for partition, number in numbers.items())
            for numbers in value.values()
        )

    value = parse_json(text, example, is_right)
    return {
        kf.TopicPartition(topic, int(partition)): number
        for topic, numbers in value.items()
        for partition, number in numbers.items()
    }


def _items(offsets: int | Mapping[kf.TopicPartition, int]) -> list[tuple[kf.TopicPartition, int]]:
    return list(offsets.items()) if isinstance(offsets, Mapping) else []


def _positive(given: Mapping[str, str], name: str) -> int | None:
    text = given.get(name.lower())
    if text is None:
        return None
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f'{name} must be a number: For input string: "{text}"') from None
    if value <= 0:
        raise ValueError(f"{name} must be positive")
    return value


def _boolean(given: Mapping[str, str], name: str, default: bool) -> bool:
    text = given.get(name.lower())
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise ValueError(f'{name} must be true or false: For input string: "{text}"')
    return text.lower() == "true"


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d+)\s*([kmg]?)(i?b)?", text.strip().lower())
    if match is None or not int(match[1]):
        raise ValueError(f"taskBytes must be a number of bytes, such as 67108864 or 64m, not {text!r}")
    return int(match[1]) * _UNITS[match[2]]


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+)\s*(ms|s|m|min|h|d)?", text.strip().lower())
    if match is None:
        raise ValueError(f"maxTriggerDelay must be a time, such as 15m, not {text!r}")
    return int(match[1]) * _SECONDS[match[2] or "s"]
