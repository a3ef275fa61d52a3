"""LogConfig: the settings of a topic, from Kafka's defaults, a topic's properties or a broker's `server.properties`.

Mirrors `LogConfig`, `TopicConfig` and `ServerTopicConfigSynonyms`. Names and defaults are those of Kafka 4.3; setting
names become fields in snake_case. Writers use the settings that affect bytes and segments. The others are only kept,
so that a configuration can be passed on. Broker settings that are not defaults of topic settings are skipped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from typing import Any, Final

from kafkalog import format as kf
from kafkalog.calls import leading_class, leading_names
from kafkalog.errors import ConfigWarning, warn
from kafkalog.state.properties import read_settings
from kafkalog.text import near

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
COMPACT: Final = "compact"
DELETE: Final = "delete"
"""The policies in a `cleanup.policy`, which has one or both."""

_HOUR: Final = 3_600_000
_INTERNAL_SEGMENT_BYTES: Final = "internal.segment.bytes"
_MISSPELT: Final = 0.9
"""Similarity from which a name counts as a misspelt setting; other broker settings (2.8 to 4.3) stay below 0.88."""


def _setting(
    default: object,
    *synonyms: str | tuple[str, int],
    at_least: float | None = None,
    at_most: float | None = None,
    choices: tuple[str, ...] = (),
    refused_below: int | None = None,
    also: int | None = None,
) -> Any:
    """Define a field: broker names in order of precedence, each with a factor to the field's unit; valid values."""
    names = tuple((name, 1) if isinstance(name, str) else name for name in synonyms)
    rules = {"at_least": at_least, "at_most": at_most, "choices": choices, "refused_below": refused_below, "also": also}
    return field(default=default, metadata={"synonyms": names, **rules})


def _int(default: int, *synonyms: str | tuple[str, int], at_least: int, at_most: int = INT_MAX, **rules: Any) -> Any:
    return _setting(default, *synonyms, at_least=at_least, at_most=at_most, **rules)


def _level(codec: kf.Codec) -> Any:
    levels, default = kf.CODEC_LEVELS[codec], kf.DEFAULT_LEVELS[codec]
    also = None if default in levels else default
    setting = f"compression.{codec.name.lower()}.level"
    return _int(default, setting, at_least=levels.start, at_most=levels.stop - 1, also=also)


def _long(default: int, *synonyms: str | tuple[str, int], at_least: int = -LONG_MAX - 1) -> Any:
    return _setting(default, *synonyms, at_least=at_least, at_most=LONG_MAX)


@leading_names
@leading_class
@dataclass(frozen=True, kw_only=True)
class LogConfig:
    """The settings of a topic. Fields are Kafka's topic settings with dots as underscores; defaults are Kafka's.

    Writers use the settings that have a description; the others are only checked.

    Raises
    ------
    ValueError
        A value is outside the range of Kafka 2.8 to 4.3; the message has the range.
    TypeError
        A value has another type.

    Notes
    -----
    Source: LogConfig, TopicConfig, Kafka 4.3.

    Examples
    --------
    >>> from kafkalog import LogConfig
    >>> LogConfig(segment_bytes=2**20).segment_ms
    604800000
    >>> LogConfig.from_properties({"log.roll.hours": "2", "log.segment.bytes": "52428800"}).segment_ms
    7200000
    """

    cleanup_policy: tuple[str, ...] = _setting(("delete",), "log.cleanup.policy", choices=("compact", "delete"))
    """"delete", "compact" or both; a comma-separated string is accepted, too."""
    compression_gzip_level: int = _level(kf.Codec.GZIP)
    """-1 (zlib's default) or 1 to 9."""
    compression_lz4_level: int = _level(kf.Codec.LZ4)
    """1 to 17."""
    compression_type: str = _setting(
        "producer", "compression.type", choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
    )
    """"producer" (as produced), "uncompressed", "gzip", "snappy", "lz4" or "zstd"."""
    compression_zstd_level: int = _level(kf.Codec.ZSTD)
    """-131072 to 22."""
    delete_retention_ms: int = _long(24 * _HOUR, "log.cleaner.delete.retention.ms", at_least=0)
    file_delete_delay_ms: int = _long(60_000, "log.segment.delete.delay.ms", at_least=0)
    flush_messages: int = _long(LONG_MAX, "log.flush.interval.messages", at_least=1)
    flush_ms: int = _long(LONG_MAX, "log.flush.interval.ms", "log.flush.scheduler.interval.ms", at_least=0)
    follower_replication_throttled_replicas: tuple[str, ...] = _setting(())
    index_interval_bytes: int = _int(kf.INDEX_INTERVAL_BYTES, "log.index.interval.bytes", at_least=0)
    """Bytes of log between index entries."""
    leader_replication_throttled_replicas: tuple[str, ...] = _setting(())
    local_retention_bytes: int = _long(-2, "log.local.retention.bytes", at_least=-2)
    local_retention_ms: int = _long(-2, "log.local.retention.ms", at_least=-2)
    max_compaction_lag_ms: int = _long(LONG_MAX, "log.cleaner.max.compaction.lag.ms", at_least=1)
    """Upper bound of `segment_ms` if the policy includes "compact"."""
    max_message_bytes: int = _int(1_048_588, "message.max.bytes", at_least=0)
    """Largest batch."""
    message_timestamp_after_max_ms: int = _long(_HOUR, "log.message.timestamp.after.max.ms", at_least=0)
    message_timestamp_before_max_ms: int = _long(LONG_MAX, "log.message.timestamp.before.max.ms", at_least=0)
    message_timestamp_type: str = _setting(
        "CreateTime", "log.message.timestamp.type", choices=("CreateTime", "LogAppendTime")
    )
    """"CreateTime" or "LogAppendTime"."""
    min_cleanable_dirty_ratio: float = _setting(0.5, "log.cleaner.min.cleanable.ratio", at_least=0, at_most=1)
    min_compaction_lag_ms: int = _long(0, "log.cleaner.min.compaction.lag.ms", at_least=0)
    min_insync_replicas: int = _int(1, "min.insync.replicas", at_least=1)
    preallocate: bool = _setting(False, "log.preallocate")
    remote_log_copy_disable: bool = _setting(False)
    remote_log_delete_on_disable: bool = _setting(False)
    remote_storage_enable: bool = _setting(False)
    retention_bytes: int = _long(-1, "log.retention.bytes")
    retention_ms: int = _long(
        7 * 24 * _HOUR,
        "log.retention.ms",
        ("log.retention.minutes", 60_000),
        ("log.retention.hours", _HOUR),
        at_least=-1,
    )
    segment_bytes: int = _int(2**30, "log.segment.bytes", at_least=14, refused_below=2**20)
    """Largest `.log`; at least 14, as in Kafka 2.8. A broker of 4.1 or later rejects less than 1048576."""
    segment_index_bytes: int = _int(10 * 2**20, "log.index.size.max.bytes", at_least=12)
    """Size at which an index is full. A broker accepts 4 or more, but with less than 12 each of its appends fails."""
    segment_jitter_ms: int = _long(0, "log.roll.jitter.ms", ("log.roll.jitter.hours", _HOUR), at_least=0)
    """Upper bound of the random part by which a writer reduces `segment_ms`, so that not all segments end at once."""
    segment_ms: int = _long(7 * 24 * _HOUR, "log.roll.ms", ("log.roll.hours", _HOUR), at_least=1)
    """Milliseconds between record timestamps after which a segment ends."""
    unclean_leader_election_enable: bool = _setting(False, "unclean.leader.election.enable")

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if value is not item.default:  # Kafka's own defaults need no check
                object.__setattr__(self, item.name, _converted(topic_name(item), item, value))
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ValueError(
                f"min.compaction.lag.ms={self.min_compaction_lag_ms} is larger than "
                f"max.compaction.lag.ms={self.max_compaction_lag_ms}"
            )

    @property
    def is_compacted(self) -> bool:
        """Whether the cleaner compacts the topic."""
        return COMPACT in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """Milliseconds after which a segment ends: `segment_ms`; if compacted, at most `max_compaction_lag_ms`.

        Notes
        -----
        Source: LogConfig.maxSegmentMs, Kafka 4.3.
        """
        # a compacted topic rolls in time for the cleaner, which leaves the active segment alone
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.is_compacted else self.segment_ms

    @classmethod
    def from_properties(cls, properties: Mapping[str, object] | str | os.PathLike[str]) -> LogConfig:
        """Make a configuration from settings under their topic names or their broker names.

        Parameters
        ----------
        properties : mapping or path-like
            Names and values, or a file in Java's properties format such as `server.properties`. Topic names
            (`segment.bytes`) take precedence over broker names (`log.segment.bytes`), and among these the finer unit
            does (`log.roll.ms` over `log.roll.hours`). `internal.segment.bytes` accepts any size.

        Returns
        -------
        LogConfig

        Raises
        ------
        ValueError
            A value that no Kafka of 2.8 to 4.3 accepts; the message has the range.

        Warns
        -----
        ConfigWarning
            A name is nearly that of a setting, or a broker of 4.x rejects a value. Other names are passed over without
            a word: they may be a broker's.

        Notes
        -----
        Source: ServerTopicConfigSynonyms, KafkaConfig.extractLogConfigMap, LogConfig.fromProps, Kafka 4.3.
        """
        given = dict(properties) if isinstance(properties, Mapping) else read_settings(properties)
        for name in given:
            if not isinstance(name, str):
                raise TypeError(f"the name of a setting is a str, not {name!r}")
            meant = None if is_setting(name) else nearest_setting(name, cutoff=_MISSPELT)
            if meant is not None:
                warn(f"{name} is not a topic setting and is ignored; did you mean {meant}?", ConfigWarning)
        values: dict[str, object] = {}
        for item in fields(cls):
            names = _NAMES[item.name]
            if names.keys().isdisjoint(given):
                continue
            setting = _winning(names, given)
            if not setting:
                continue
            [(name, value)] = setting.items()
            if (factor := names[name]) != 1:
                value = _whole(name, value) * factor
            if name.startswith("log.retention.") and name != "log.retention.bytes":
                value = _retention(name, value)
            values[item.name] = _converted(name, item, value)
        internal = given.get(_INTERNAL_SEGMENT_BYTES)
        if internal is not None:
            size = next(item for item in fields(cls) if item.name == "segment_bytes")
            values["segment_bytes"] = _converted(_INTERNAL_SEGMENT_BYTES, size, internal)
        else:
            _warn_of_refused(cls, values)
        return cls(**values)  # type: ignore[arg-type]

    def to_properties(self) -> dict[str, str]:
        """Return every setting by its topic name, as text that Kafka and `from_properties` accept."""
        return {topic_name(item): _text(getattr(self, item.name)) for item in fields(self)}


INTERNAL_SETTINGS: Final[dict[str, dict[str, str]]] = {
    kf.CONSUMER_OFFSETS: {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    },
    kf.TRANSACTION_STATE: {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "segment.bytes": "104857600",
        "min.insync.replicas": "1",
        "unclean.leader.election.enable": "false",
    },
    kf.SHARE_GROUP_STATE: {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "segment.bytes": "104857600",
        "min.insync.replicas": "1",
        "retention.ms": "-1",
    },
}
"""The settings with which a broker creates its internal topics. Without them, it deletes offsets by their age."""
COMPACTED: Final = frozenset(topic for topic, names in INTERNAL_SETTINGS.items() if COMPACT in names["cleanup.policy"])
"""Topics that a broker creates with `cleanup.policy=compact`."""


NEVER_ROLLS: Final[dict[str, Any]] = {"segment_bytes": kf.MAX_SEGMENT_BYTES, "segment_ms": LONG_MAX}
"""Settings of a writer whose caller decides where segments end."""


@cache
def topic_name(item: Field[Any]) -> str:
    """The topic's name of a setting, such as `retention.ms`."""
    return item.name.replace("_", ".")


_NAMES: Final = {item.name: {topic_name(item): 1, **dict(item.metadata["synonyms"])} for item in fields(LogConfig)}
"""The names of a setting by its field, in order of precedence, with the factor of each to the field's unit."""
_INTERNAL_NAMES: Final = {"segment_bytes": (_INTERNAL_SEGMENT_BYTES,)}
_TOPIC_NAMES: Final = {field: (*_INTERNAL_NAMES.get(field, ()), next(iter(names))) for field, names in _NAMES.items()}
_BROKER_NAMES: Final = {field: (*_INTERNAL_NAMES.get(field, ()), *[*names][1:]) for field, names in _NAMES.items()}
"""The names that a topic's settings have for a field, and those that a broker's have."""
_KNOWN: Final = {_INTERNAL_SEGMENT_BYTES}.union(*_NAMES.values())


@cache
def default_config() -> LogConfig:
    """Kafka's defaults: checked once, as each new one would be."""
    return LogConfig()


def checked_config(config: LogConfig | None) -> LogConfig:
    """Check a `config=` argument: returns Kafka's defaults for None, raises TypeError for other types, even a dict."""
    if config is None:
        return default_config()
    if not isinstance(config, LogConfig):
        raise TypeError(
            f"config is a LogConfig, not {type(config).__name__}: LogConfig.from_properties makes one of a dict of"
            " Kafka's settings, or of a file"
        )
    return config


def is_setting(name: str) -> bool:
    """Whether this is the name of a topic setting, or of a broker setting that is the default of one."""
    return name in _KNOWN


@cache
def nearest_setting(name: str, *, cutoff: float = 0.6) -> str | None:
    """The setting with the most similar name; None if none is similar enough."""
    return near(name, sorted(_KNOWN), cutoff)


def topic_setting(item: Field[Any], settings: Mapping[str, object]) -> dict[str, object]:
    """The name and value that the settings of a topic have for a field; empty if they have none."""
    return _winning(_TOPIC_NAMES[item.name], settings)


def broker_setting(item: Field[Any], settings: Mapping[str, object]) -> dict[str, object]:
    """The name and value that the settings of a broker have for a field, the finer unit first; empty without one.

    A broker ignores the topic's names: `retention.ms` in a `server.properties` has no effect.
    """
    return _winning(_BROKER_NAMES[item.name], settings)


def _winning(names: Iterable[str], settings: Mapping[str, object]) -> dict[str, object]:
    """The first of some names that is given, and its value; empty if none is."""
    for name in names:
        if settings.get(name) is not None:
            return {name: settings[name]}
    return {}


def _retention(name: str, value: object) -> int:
    """Convert a broker's retention time: any negative value means no limit, zero raises. Source: KafkaConfig."""
    milliseconds = _whole(name, value)
    if milliseconds == 0:
        raise ValueError(f"{name}=0: must be -1 (no limit) or at least 1")
    return max(milliseconds, -1)


def _warn_of_refused(cls: type[LogConfig], values: Mapping[str, object]) -> None:
    for item in fields(cls):
        least, value = item.metadata["refused_below"], values.get(item.name)
        if least is not None and isinstance(value, int) and value < least:
            warn(
                f"{topic_name(item)}={value}: a broker of Kafka 4.x takes no less than {least} "
                f"({_INTERNAL_SEGMENT_BYTES} sets any size without this warning)",
                ConfigWarning,
            )


def _converted(name: str, item: Field[Any], value: object) -> object:
    """Convert a value, also from text, to the field's type.

    Raises ValueError if it is outside the field's range, TypeError for other types.
    """
    default = item.default
    assert default is not MISSING
    kind: type[Any] = type(default)
    return _CONVERTERS[kind](name, item.metadata, value)


def boolean_of(text: str) -> bool | None:
    """Return the boolean that a setting is as text; None if Kafka takes it for neither.

    Source: `ConfigDef.parseType`, Kafka 4.3.

    >>> boolean_of(" TRUE"), boolean_of("false"), boolean_of("yes")
    (True, False, None)
    """
    return {"true": True, "false": False}.get(text.strip().lower())


def is_tiered_by(settings: Mapping[str, str]) -> bool:
    """Return whether settings of a topic have its segments copied to remote storage."""
    return boolean_of(settings.get("remote.storage.enable", "")) is True


def _flag(name: str, _rules: Mapping[str, Any], value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        if (flag := boolean_of(value)) is not None:
            return flag
        raise ValueError(f"{name}={value!r}: true or false is expected")
    raise TypeError(f"{name} is a bool, not {value!r}")


_DIGITS: Final = re.compile(r"[+-]?\d{1,19}")


def _whole(name: str, value: object) -> int:
    if isinstance(value, str):
        if not _DIGITS.fullmatch(value.strip()):
            raise ValueError(f"{name}={value!r}: a whole number is expected")
        return int(value)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is an int, not {value!r}")
    return int(value.__index__())


def _number(name: str, rules: Mapping[str, Any], value: object) -> int:
    number = _whole(name, value)
    least, most, also = rules["at_least"], rules["at_most"], rules["also"]
    if not least <= number <= most and number != also:
        other = "" if also is None else f", or {also}"
        raise ValueError(f"{name}={number}: must be {least} to {most}{other}")
    return number


def _ratio(name: str, rules: Mapping[str, Any], value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise TypeError(f"{name} is a float, not {value!r}")
    try:
        number = float(value)
    except ValueError:
        raise ValueError(f"{name}={value!r}: a number is expected") from None
    if not rules["at_least"] <= number <= rules["at_most"]:
        raise ValueError(f"{name}={value}: must be {rules['at_least']} to {rules['at_most']}")
    return number


def _word(name: str, rules: Mapping[str, Any], value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is a str, not {value!r}")
    if value.strip() not in rules["choices"]:
        raise ValueError(f"{name}={value!r}: must be one of {', '.join(rules['choices'])}")
    return value.strip()


def _list(name: str, rules: Mapping[str, Any], value: object) -> tuple[str, ...]:
    if isinstance(value, str):
        words = [word.strip() for word in value.split(",")] if value.strip() else []
    elif isinstance(value, Iterable) and not isinstance(value, bytes):
        words = list(value)
    else:
        raise TypeError(f"{name} is a list of str, not {value!r}")
    choices = rules["choices"]
    for word in words:
        if not isinstance(word, str):
            raise TypeError(f"{name} is a list of str, not of {word!r}")
        if not word or (choices and word not in choices):
            known = f"each must be one of {', '.join(choices)}" if choices else "no item may be empty"
            raise ValueError(f"{name}={value!r}: {known}")
    return tuple(dict.fromkeys(words))


_CONVERTERS: Final[dict[type[Any], Callable[[str, Mapping[str, Any], object], Any]]] = {
    bool: _flag,
    int: _number,
    float: _ratio,
    str: _word,
    tuple: _list,
}


def _text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(value) if isinstance(value, tuple) else str(value)
