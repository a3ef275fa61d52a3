"""The settings of a broker's topics: compacted, tiered, kept for how long, and by which file each value is known.

A setting has, in this order, the value of the topic, of this one broker, of all brokers (these three are in the
cluster's metadata log), of `server.properties`, and Kafka's default. The metadata log may be on another disk of the
broker. A setting is unknown if a file that may set it is not at hand or damaged. Commands that delete then refuse: a
default in its place would delete records.

Mirrors `DynamicBrokerConfig`, `KafkaConfigSchema` and `LogConfig`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import Field, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, ConfigWarning, Finding, KafkalogError, Limits, NotKafkaError, Reason
from kafkalog.log.partition import Partition
from kafkalog.state.checkpoints import checkpointed_topics, java_number, known_properties, node_number_of
from kafkalog.state.cluster_image import BROKER, OF_TOPIC, ClusterMetadata
from kafkalog.state.cluster_metadata import cluster_metadata, leading_metadata
from kafkalog.state.log_config import COMPACTED, LogConfig, broker_setting, default_config, topic_name, topic_setting
from kafkalog.state.properties import read_settings
from kafkalog.storage.file_locks import is_locked
from kafkalog.storage.location import Place, parent_of, refuse_url
from kafkalog.survey.startup_config import NO_CONFIG, BrokerConfig
from kafkalog.text import first_names

DEFAULT: Final = "default"
SERVER_PROPERTIES: Final = "server.properties"
_HOW_KNOWN: Final = "Name a log dir with the cluster's metadata log (--metadata)"


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The settings of a topic on a broker."""

    topic: str
    config: LogConfig
    """Where a value is unknown, the one that the other places have, or Kafka's default."""
    origins: Mapping[str, str]
    """Where each value comes from: "topic", "broker N", "all brokers", "server.properties" or "default"."""
    unknown: Mapping[str, str]
    """Why a setting is unknown, by its name."""
    cleaner: str = ""
    """Evidence that the topic was compacted, if its `cleanup.policy` is unknown."""

    def is_known(self, name: str) -> bool:
        """Whether a setting is known, such as `retention.ms`."""
        return name not in self.unknown

    def why_unknown(self, *names: str) -> str:
        """The names that are unknown, and why; "" if all are known."""
        lacking = [name for name in names if name in self.unknown]
        return f"{' and '.join(lacking)} of {self.topic}: {self.unknown[lacking[0]]}" if lacking else ""

    @property
    def is_tiered(self) -> bool | None:
        """Whether older segments are in remote storage (`remote.storage.enable`); None if it is unknown."""
        return self.config.remote_storage_enable if self.is_known("remote.storage.enable") else None


@dataclass(frozen=True, slots=True)
class _Level:
    """A place that may set settings."""

    origin: str
    settings: Mapping[str, object]
    doubt: str = ""
    """Why it may have other settings than these."""
    doubted: frozenset[str] | None = None
    """The names in doubt; None for all."""

    def setting(self, item: Field[Any]) -> dict[str, object]:
        return (topic_setting if self.origin == OF_TOPIC else broker_setting)(item, self.settings)

    def may_set(self, item: Field[Any]) -> bool:
        """Whether a file that is not at hand may set this here, where there is a doubt."""
        if self.origin != OF_TOPIC and not item.metadata["synonyms"]:
            return False
        return self.doubted is None or bool(broker_setting(item, dict.fromkeys(self.doubted, "")))


@dataclass(slots=True)
class TopicSettings:
    """The settings of a broker's topics. `of` reads the files once."""

    metadata: ClusterMetadata | None
    """The cluster's metadata, complete or not; None without a metadata log."""
    node_id: int | None
    """The broker's id."""
    properties: Mapping[str, object] | None = None
    """The content of `server.properties`; None if it was not given."""
    doubt: str = ""
    """Why settings in the metadata are unknown; "" if all are known."""
    note: str = ""
    """A remark for users about the place of the settings."""
    _read: Mapping[str, Any] = field(default_factory=dict, repr=False)
    _configs: dict[tuple[str, str, str], TopicConfig] = field(default_factory=dict, repr=False)

    @classmethod
    def of(
        cls,
        roots: Iterable[Place],
        *,
        config: str | os.PathLike[str] | None = None,
        metadata: str | os.PathLike[str] | None = None,
        limits: Limits = DEFAULT_LIMITS,
    ) -> TopicSettings:
        """Read the settings of a broker's topics from some of its log dirs, and from the other ones of its `config`.

        `metadata` is a log dir with the cluster's metadata log, instead of the broker's own. Raises NotKafkaError if it
        has none, and ValueError if `config` has a value that no broker accepts.
        """
        roots = list(dict.fromkeys(roots))
        properties = None if config is None else read_settings(config)
        if properties is not None:
            LogConfig.from_properties(properties)  # raises for wrong values, and warns of names that are misspelt
        broker = NO_CONFIG if config is None else BrokerConfig.of(config, properties or {})
        others = broker.others(roots) or []
        if metadata is not None:
            refuse_url(metadata)
        places = [*roots, *others] if metadata is None else [_log_dir_of(Path(metadata))]
        image, place, problem, later = _leading_image(places, broker, limits)
        if image is None and metadata is not None:
            raise NotKafkaError(
                Reason.NOT_KAFKA, f"it has no {kf.METADATA_DIRECTORY}: name a log dir that has", path=metadata
            )
        found = cls(image, _broker_id([*roots, *others], broker), properties)
        found._read = {"roots": roots, "config": config, "metadata": metadata, "limits": limits}
        if problem:
            found.doubt = f"{problem}. {_HOW_KNOWN}"
        elif image is not None and place is not None:
            found.doubt = f"{later}. {_HOW_KNOWN}" if later else _doubt_of(image, place)
        else:
            found.doubt, found.note = _without_metadata(roots, properties)
        return found

    @property
    def findings(self) -> list[Finding]:
        """Errors in the metadata log."""
        return [] if self.metadata is None else list(self.metadata.findings)

    def reread(self) -> TopicSettings:
        """The settings as they are now; these, if they were not read."""
        return TopicSettings.of(**self._read) if self._read else self

    def config(self, partition: Partition) -> TopicConfig:
        """The settings of a partition's topic."""
        key = partition.topic_partition
        topic = "" if key is None else key.topic
        cleaned = checkpointed_topics(parent_of(partition.path) / kf.CLEANER_OFFSET_CHECKPOINT) if topic else ()
        evidence = compacted_by(topic, cleaned)
        doubt = self.doubt or self._other_topic(topic, partition)
        known = self._configs.get((topic, doubt, evidence))
        if known is None:
            known = self._configs[topic, doubt, evidence] = self._resolved(topic, doubt, evidence)
        return known

    def _other_topic(self, topic: str, partition: Partition) -> str:
        """Why the metadata are not about this topic."""
        if self.metadata is None or topic in COMPACTED:
            return ""
        known = self.metadata.topic_ids.get(topic)
        if known is None:
            return f"the metadata log has no such topic. {_HOW_KNOWN}"
        try:
            topic_id = partition.topic_id
        except KafkalogError:
            topic_id = None
        if topic_id is None or topic_id == known:
            return ""
        return f"its topic id is {topic_id}, but {known} in the metadata log. {_HOW_KNOWN}"

    def _levels(self, topic: str, doubt: str) -> Iterator[_Level]:
        metadata = ClusterMetadata() if self.metadata is None else self.metadata
        others = [named for (kind, name), named in metadata.settings.items() if kind == BROKER and name]
        for origin, settings in metadata.setting_levels(topic, self.node_id).items():
            yield _Level(origin, settings, doubt if origin == OF_TOPIC else self.doubt)
            if origin == OF_TOPIC and self.node_id is None and others and not self.doubt:
                why = "brokers have settings of their own in the metadata log, and the id of this broker is unknown"
                yield _Level("broker", {}, f"{why} (--config)", frozenset().union(*others))
        missing = "the topic does not set it, and the broker's server.properties is not given (--config)"
        yield _Level(SERVER_PROPERTIES, self.properties or {}, missing if self.properties is None else "")

    def _resolved(self, topic: str, doubt: str, evidence: str) -> TopicConfig:
        values: dict[str, object] = {}
        origins: dict[str, str] = {}
        unknown: dict[str, str] = {}
        levels = [level for level in self._levels(topic, doubt) if level.settings or level.doubt]
        for item in fields(LogConfig):
            origins[topic_name(item)], setting = _setting_of(item, levels, unknown)
            values |= setting
        try:
            config = _config_of(values)
        except ValueError as error:  # two that contradict each other
            config = default_config()
            unknown |= {name: str(error) for name in origins if name not in unknown}
        is_set = origins["cleanup.policy"] not in (SERVER_PROPERTIES, DEFAULT) or self._has_defaults(topic)
        if is_set and "cleanup.policy" not in unknown:
            evidence = ""
        if evidence and (topic in COMPACTED or not config.is_compacted):
            config = replace(config, cleanup_policy=("compact",))
        return TopicConfig(topic, config, origins, unknown, evidence)

    def _has_defaults(self, topic: str) -> bool:
        """Whether the topic is known to have the defaults where nothing sets it otherwise."""
        return self.metadata is not None and topic in self.metadata.topic_ids and self.properties is not None


def _setting_of(
    item: Field[Any], levels: Iterable[_Level], unknown: dict[str, str]
) -> tuple[str, Mapping[str, object]]:
    """Return where the value of a setting comes from, and the value; add to `unknown` why it may be another."""
    name = topic_name(item)
    for level in levels:
        # brokers with another log.cleanup.policy than Kafka's are rare, and the cleaner's checkpoint shows them
        is_rare = level.origin == SERVER_PROPERTIES and name == "cleanup.policy"
        if level.doubt and not is_rare and level.may_set(item):
            unknown.setdefault(name, level.doubt)
        setting = level.setting(item) if level.settings else {}
        if setting and _is_valid(setting):
            return level.origin, setting
        if setting:
            unknown.setdefault(name, f"the value {next(iter(setting.values()))!r} is not valid")
    return DEFAULT, {}


def names_of(topics: Collection[str]) -> str:
    """The first names of some topics, sorted, and how many more there are."""
    return first_names(sorted(topics))


def also_unknown(reasons: Mapping[str, str]) -> str:
    """The end of a message with the first of the reasons why topics' settings are unknown: the other topics."""
    others = [*reasons][1:]
    return f". The same is unknown of {names_of(others)}" if others else ""


def compacted_by(topic: str, cleaned: Collection[str]) -> str:
    """The evidence that a topic was compacted, if its `cleanup.policy` is not known.

    "" if there is none. `cleaned` has the topics of the cleaner's checkpoint.
    """
    if topic in COMPACTED:
        return "brokers create it so"
    return f"{kf.CLEANER_OFFSET_CHECKPOINT} names it" if topic in cleaned else ""


def _is_valid(setting: Mapping[str, object]) -> bool:
    try:
        _config_of(setting)
    except ValueError:
        return False
    return True


def _config_of(values: Mapping[str, object]) -> LogConfig:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConfigWarning)  # the broker has them already
        return LogConfig.from_properties(values)


def _log_dir_of(path: Place) -> Place:
    return path.parent if path.name == kf.METADATA_DIRECTORY else path


def _broker_id(roots: Iterable[Place], broker: BrokerConfig) -> int | None:
    """The id in the first log dir that has it, or else in the broker's configuration."""
    node_id = next((known for known in map(node_number_of, roots) if known is not None), None)
    return java_number(broker.node_id or "", 31) if node_id is None else node_id


def _leading_image(
    places: Sequence[Place], broker: BrokerConfig, limits: Limits
) -> tuple[ClusterMetadata | None, Place | None, str, str]:
    """Return the cluster's metadata, their log dir, why they cannot be read, and why others may be later.

    That of the configured metadata log dir comes first.
    """
    images: list[tuple[Place, ClusterMetadata]] = []
    problem = ""
    for place in places:
        try:
            image = cluster_metadata(place, limits=limits)
        except (KafkalogError, OSError) as error:
            problem = f"the metadata log in {place} cannot be read ({error})"
            continue
        if image is not None:
            images.append((place, image))
    if not images:
        return None, None, problem, ""
    configured = [one for one in images if broker.holds_metadata_log(one[0])]
    place, image, later = leading_metadata(configured or images, limits=limits)
    return image, place, "", later


def _doubt_of(image: ClusterMetadata, place: Place) -> str:
    """Why the metadata may lack the last settings; "" if they are complete."""
    where = f"the metadata log in {place}"
    if image.gaps:
        return f"{where} is not complete: {image.gaps[0].detail.partition(':')[0]}. {_HOW_KNOWN}"
    if not image.is_complete:
        return f"{where} is empty. {_HOW_KNOWN}"
    for finding in image.findings:
        if finding.reason is Reason.INTERNAL_RECORD:
            return f"{where} has a record that cannot be decoded: {finding.detail}. {_HOW_KNOWN}"
        # a running broker is just writing; otherwise damage may look like an end
        if finding.is_torn and not is_locked(place):
            return f"{where} ends in the middle of a batch ({finding.detail}). kafkalog recover cuts it"
    return ""


def _without_metadata(roots: Sequence[Place], properties: Mapping[str, object] | None) -> tuple[str, str]:
    """Return why the settings of topics are unknown without a metadata log, and a note on those that are used."""
    meta = next(filter(None, map(known_properties, roots)), {})
    given = properties or {}
    if meta.get("version") == "0" or "zookeeper.connect" in given:
        return f"ZooKeeper has the topics' settings, not this disk. {_HOW_KNOWN}", ""
    is_plain = properties is not None and "process.roles" not in given
    # the disks of brokers that can have several have an id each; without one, the metadata log was here, and is lost
    is_only_disk = properties is None and meta.get("version") == "1" and "directory.id" not in meta
    if is_plain or is_only_disk:
        why = "no metadata log is at hand: settings that topics have of their own do not count"
        return "", why
    where = ", ".join(map(str, roots))
    return f"no metadata log in {where}. {_HOW_KNOWN}, or all of the broker's log.dirs (--config)", ""
