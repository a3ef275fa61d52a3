"""Releases of Kafka: the levels of their features, the settings that they reject, and whether they load some disks.

`release_problems` compares records, features and settings with what a release knows: those of its own jars
(`protocol.releases`). A lower release than that of the disks answers a downgrade.

Source: MetadataVersion.fromFeatureLevel, ClusterControlManager.registerBroker, MetadataRecordSerde,
CoordinatorRecordSerde, of the releases in `protocol/releases.json`.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from kafkalog import format as kf
from kafkalog.errors import ConfigWarning, Finding, Limits, Reason
from kafkalog.log.log_dir import LogDir
from kafkalog.protocol.decoder import MessageError, UnknownVersionError
from kafkalog.protocol.definitions import Versions
from kafkalog.protocol.framing import KEYED, decode_record, type_and_version
from kafkalog.protocol.releases import DEFAULT_RELEASE, METADATA_VERSION, feature_range, is_since, level_name, releases
from kafkalog.state.cluster_image import TOPIC, ClusterMetadata
from kafkalog.state.cluster_metadata import loaded_values
from kafkalog.state.log_config import LogConfig
from kafkalog.survey.startup_config import BrokerConfig
from kafkalog.survey.startup_root import Effect, StartProblem, has_metadata_log, is_kraft, is_zookeeper
from kafkalog.system_topics.coordinator_load import COORDINATED, LoadCheck
from kafkalog.system_topics.reading import AsOf, of_each_version, read_topic, records_of


@dataclass(frozen=True, slots=True)
class Target:
    """A release of Kafka.

    `eligible.leader.replicas.version` stays at 0. At level 1, a controller removes a broker without a matching earlier
    registration from every ISR, and no partition has a leader.
    """

    release: str
    metadata_version: int
    features: Mapping[str, int]
    """Levels of the features other than `metadata.version`."""
    is_below_release: bool = False
    """Whether the release has higher levels, to which `kafka-features` raises them."""

    @property
    def levels(self) -> dict[str, int]:
        """Levels of all features."""
        return {METADATA_VERSION: self.metadata_version, **self.features}

    def setting_problem(self, name: str, value: str) -> str:
        """Return why a broker of this release does not start with a topic's setting; "" if it does.

        Brokers ignore unknown names. One invalid value stops the whole broker.
        """
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConfigWarning)
            try:
                config = LogConfig.from_properties({name: value})
            except (ValueError, TypeError) as error:
                return str(error)
        least = releases()[self.release]["least_segment_bytes"]
        if name == "segment.bytes" and config.segment_bytes < least:
            return f"{name}={value}: it must be at least {least}"
        return ""


_GROUPS: Final = {"group.version": 1, "transaction.version": 2}
_ALL: Final = {**_GROUPS, "share.version": 1, "streams.version": 1}
TARGETS: Final = {
    target.release: target
    for target in (
        Target("3.9", 21, {}),
        Target("4.0", 25, _GROUPS),
        *(Target(release, 25, _GROUPS, is_below_release=True) for release in ("4.1", "4.2")),
        Target(DEFAULT_RELEASE, 30, _ALL),
        Target("4.4", 30, _ALL, is_below_release=True),
    )
}
_READ_BY_BROKERS: Final = kf.INTERNAL_TOPICS - {kf.METADATA_TOPIC}
_PASSES_OVER_VERSIONS: Final = "4.3"
"""The first release whose transaction coordinator passes over a value of an unknown version; others do not load it."""
_WITHOUT_ZOOKEEPER: Final = "4.0"
_WAY_BACK: Final = "a newer release that still runs takes features back with kafka-features.sh downgrade"
_GROUPS_FILE: Final = "kafkalog groups -o FILE keeps the offsets, and kafkalog boot --groups FILE serves them"
_BOOT: Final = "kafkalog boot --release {} makes a directory for it"


def release_of(cluster: ClusterMetadata | None) -> str:
    """The release to make a directory for: that of a cluster's `metadata.version`, if it is no later than the default.

    A later release starts on it as well, and an earlier one may not.
    """
    level = None if cluster is None else cluster.features.get(METADATA_VERSION)
    name = "" if level is None else level_name(level).partition("-")[0]
    known = [*TARGETS]
    return name if name in known[: known.index(DEFAULT_RELEASE)] else DEFAULT_RELEASE


def release_problems(
    roots: Sequence[Path], cluster: ClusterMetadata | None, config: BrokerConfig, release: str, limits: Limits
) -> list[StartProblem]:
    """Return why a broker of a release does not start on its log dirs, or not with everything."""
    found = [*_zookeeper_problems(roots, cluster, config, release)]
    if cluster is not None:
        found += _feature_problems(roots, cluster, release)
        found += _setting_problems(roots, cluster, release)
        for root in roots:
            found += _metadata_problems(root, cluster, release, limits)
    return [*found, *_coordinator_problems(roots, release, limits)]


def torn_problems(cluster: ClusterMetadata) -> list[StartProblem]:
    """Return the records of a metadata log that no release can read or apply: its controller does not start."""
    found = []
    for torn in cluster.torn:
        detail = f"{kf.METADATA_DIRECTORY}: offset {torn.base_offset}: {torn.detail}: no controller reads this record;"
        detail += " kafkalog boot makes a directory without it"
        found.append(StartProblem(torn.reason, torn.path or "", detail))
    return found


def _zookeeper_problems(
    roots: Sequence[Path], cluster: ClusterMetadata | None, config: BrokerConfig, release: str
) -> Iterator[StartProblem]:
    if not is_since(release, _WITHOUT_ZOOKEEPER):
        return
    way = f"Kafka {release} has no ZooKeeper: migrate with 3.9 first, or {_BOOT.format(release)}"
    if config.path and not config.roles:
        yield StartProblem(Reason.META_PROPERTIES, config.path, f"process.roles is not set. {way}")
    # a broker with a configuration for KRaft starts, and renames all partitions to -stray
    if cluster is None and not config.roles and any(map(is_zookeeper, roots)) and not any(map(is_kraft, roots)):
        detail = f"the log dir of a broker with ZooKeeper: it has no metadata log. {way}"
        yield StartProblem(Reason.META_PROPERTIES, str(roots[0]), detail)


def _feature_problems(roots: Sequence[Path], cluster: ClusterMetadata, release: str) -> Iterator[StartProblem]:
    path = str(next(filter(has_metadata_log, roots), roots[0]))
    for name, level in sorted(cluster.features.items()):
        first, last = feature_range(release, name)
        if not first <= level <= last:
            known = f"{level} ({text})" if name == METADATA_VERSION and (text := level_name(level)) else f"{level}"
            supported = f"levels {first} to {last}" if last else "no such feature"
            way = _WAY_BACK if level > last else "first raise it with a release that supports both"
            detail = f"{name} is finalized at level {known}, and Kafka {release} has {supported}: {way}, or"
            yield StartProblem(Reason.METADATA_INCOMPLETE, path, f"{detail} {_BOOT.format(release)}")


def _setting_problems(roots: Sequence[Path], cluster: ClusterMetadata, release: str) -> Iterator[StartProblem]:
    for (kind, topic), settings in sorted(cluster.settings.items()):
        for name, value in settings.items() if kind == TOPIC and topic in cluster.topic_ids else ():
            problem = TARGETS[release].setting_problem(name, value)
            if problem:
                way = "change it with kafka-configs.sh while the old release runs"
                detail = f"topic {topic}: Kafka {release} does not start with {problem}: {way}"
                yield StartProblem(Reason.METADATA_INCOMPLETE, str(roots[0]), detail)


def _metadata_problems(root: Path, cluster: ClusterMetadata, release: str, limits: Limits) -> Iterator[StartProblem]:
    told: set[str] = set()
    has_level = cluster.features.get(METADATA_VERSION, 0) <= feature_range(release, METADATA_VERSION)[1]
    for path, offset, value in loaded_values(root, cluster.start_offset, limits=limits):
        unknown = _unknown(release, kf.METADATA_TOPIC, None, value)
        # of a level that the release has, a version is no reason if its fields are known
        is_read = unknown is None or (has_level and unknown.is_read)
        # see `torn_problems`
        if unknown is not None and not (is_read or unknown.is_torn or unknown.why in told):
            told.add(unknown.why)
            detail = f"{kf.METADATA_DIRECTORY}: offset {offset}: {unknown.why}: {_WAY_BACK}, or {_BOOT.format(release)}"
            yield StartProblem(Reason.INTERNAL_RECORD, str(path), detail)


def _coordinator_problems(roots: Sequence[Path], release: str, limits: Limits) -> Iterator[StartProblem]:
    log_dir = LogDir(roots, limits=limits)
    stopped: set[str] = set()
    failures: list[Finding] = []
    for topic in sorted(_READ_BY_BROKERS & {*log_dir.topics}):
        told: set[tuple[int, str]] = set()
        check = LoadCheck(log_dir, topic, is_old=not is_since(release, _WITHOUT_ZOOKEEPER))
        for part in read_topic(log_dir, topic, AsOf(), lambda finding: None):
            if topic in COORDINATED:
                check.feed(part)
            for record in records_of(of_each_version(part) if topic in KEYED else part):
                unknown = None if record.is_control else _unknown(release, topic, record.key, record.value)
                if unknown is None or (record.partition, unknown.why) in told:
                    continue
                told.add((record.partition, unknown.why))
                where = kf.TopicPartition(topic, record.partition)
                effect: Effect = "loses metadata" if unknown.is_passed_over else "no coordinator"
                told_what = "its coordinator passes over such records" if unknown.is_passed_over else _GROUPS_FILE
                detail = f"{where}: offset {record.offset}: {unknown.why}: {told_what}"
                path = str(log_dir.path_of(where).path)
                stopped |= set() if unknown.is_passed_over else {path}
                yield StartProblem(Reason.INTERNAL_RECORD, path, detail, effect=effect)
        failures += check.failures
    for failure in failures:
        if (path := failure.path or "") not in stopped:
            yield StartProblem(failure.reason, path, failure.detail, effect="no coordinator")


class _Unknown(NamedTuple):
    """Why a release does not know a record."""

    why: str
    is_passed_over: bool = False
    """Whether a coordinator continues with the next one: after a type that it does not know, and some versions."""
    is_read: bool = False
    """Whether a controller reads it all the same."""
    is_torn: bool = False
    """Whether no release can read it."""


def _unknown(release: str, topic: str, key: bytes | None, value: bytes | None) -> _Unknown | None:
    """Why a release does not know a record; None if it does."""
    known: Mapping[str, str] = releases()[release]["records"][topic]
    try:
        number, version = type_and_version(topic, key, value)
    except MessageError as error:
        return _Unknown(str(error), is_torn=not isinstance(error, UnknownVersionError))
    versions = known.get(str(number))
    if versions is None:
        return _Unknown(f"Kafka {release} knows no record type {number}", is_passed_over=True)
    own, why = Versions.parse(versions), ""
    if version is not None and version not in own:
        why = f"Kafka {release} knows versions {versions} of record type {number}, and this is {version}"
    if topic != kf.METADATA_TOPIC:
        is_passed_over = topic == kf.TRANSACTION_STATE and is_since(release, _PASSES_OVER_VERSIONS)
        return _Unknown(why, is_passed_over) if why else None
    try:
        # a controller reads a newer version as its last one, and ends at what is too much or too little
        decode_record(topic, key, value, as_version=min(version or 0, own.last))
    except MessageError as error:
        return _Unknown(why or str(error), is_torn=not (why or isinstance(error, UnknownVersionError)))
    return _Unknown(why, is_read=True) if why else None
