"""Plans the topics of a boot: ids, numbers of partitions, settings, and where missing partitions continue.

A fact comes from the cluster's metadata log if one survives, else from the files of the partitions, else from a guess.
The plan has the origin of each.
"""

from __future__ import annotations

import contextlib
import json
import os
import uuid
from collections import Counter
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Final

from kafkalog import format as kf
from kafkalog.booting.coordinators import DEFAULT_PARTITIONS, CoordinatorState
from kafkalog.booting.known_topics import ACCEPTED
from kafkalog.booting.sources import Copy
from kafkalog.calls import leading_names
from kafkalog.errors import (
    DEFAULT_LIMITS,
    Finding,
    KafkalogError,
    LimitExceededError,
    NotKafkaError,
    Reason,
    UnsafePathError,
)
from kafkalog.log.searching.missing import copied_segments, offsets_finding, with_copies
from kafkalog.parsing import check_names, integer
from kafkalog.repair.recovering.targets import Target
from kafkalog.state.checkpoints import parse_topic_id
from kafkalog.state.cluster_image import BROKER, TOPIC, ClusterMetadata
from kafkalog.state.log_config import COMPACT, DELETE, INTERNAL_SETTINGS, LogConfig, is_tiered_by
from kafkalog.survey.absent_partitions import is_directory_id, on_another_disk
from kafkalog.survey.topics import compacted_by
from kafkalog.system_topics.commits_file import json_rows, read_text
from kafkalog.text import counted, first_names, number_ranges, offset_range

Settings = Mapping[str, Mapping[str, str | int | float | bool | None]]
"""Settings by topic or glob; None removes one."""
RETENTION: Final = "retention"
"""The name that, with the value "as-was", keeps the old retention of a topic."""
TOPIC_ID: Final = "topic.id"
"""The name of a topic's id among settings."""

KEPT: Final = {"retention.ms": "-1", "retention.bytes": "-1"}
"""Topic settings with which a broker deletes nothing."""
OFF: Final = "off until you decide"
"""The origin of such a setting that boot has made."""
_RETENTION_DEFAULTS: Final = frozenset(f"log.retention.{unit}" for unit in ("ms", "minutes", "hours", "bytes"))
_LOST_STATE: Final = {
    kf.CONSUMER_OFFSETS: ". Groups whose offsets were there lose them",
    kf.TRANSACTION_STATE: ". Transactional ids there lose their epochs, and nobody ends their open transactions",
    kf.SHARE_GROUP_STATE: ". Share groups that were there start again",
}
_OF_OLD_BROKERS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
_LISTED: Final = "settings file"
RESTORES: Final = "Name the root of that storage with --tiered URL: boot restores them then"
"""What to do about segments in remote storage."""
_MOST_ELSEWHERE: Final = 4
_OF_TIERS: Final = ("remote.", "local.retention.")


@leading_names
@dataclass(slots=True)
class TopicPlan:
    """A topic of the new cluster."""

    name: str
    topic_id: str
    n_partitions: int
    id_origin: str
    count_origin: str
    replication_factor: int = 1
    """Its partition count before, as far as known."""
    settings: dict[str, str] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    """Where each setting comes from."""
    replaced: dict[str, str] = field(default_factory=dict)
    """Settings of the old cluster that are not carried over, or have another value for now."""
    missing: dict[int, int] = field(default_factory=dict)
    """Partitions that no source has, and the offset at which each continues."""
    committed: dict[int, int] = field(default_factory=dict)
    """Partitions with offsets from a file, and their log end offsets."""

    n_expiring: int = 0
    """Offsets that a broker deletes soon after the retention that boot has turned off is on again: at most as many
    records.
    """

    @property
    def is_internal(self) -> bool:
        """Whether it is a topic for the state of brokers."""
        return self.name in kf.INTERNAL_TOPICS

    @property
    def is_deleted(self) -> bool:
        """Whether a broker deletes old segments of the topic, as it does without a setting."""
        return DELETE in self.settings.get("cleanup.policy", DELETE)

    @property
    def is_set(self) -> bool:
        """Whether a setting of it comes from the metadata log, a file or an option."""
        return bool(self.replaced) or any(
            one in ("cluster metadata", _LISTED, "option") for one in self.origins.values()
        )

    def set(self, name: str, value: str, origin: str) -> None:
        """Give a setting a value."""
        self.settings[name], self.origins[name] = value, origin

    def drop(self, name: str) -> None:
        """Take a setting out."""
        if name in self.settings:
            self.replaced[name] = self.settings.pop(name)
            del self.origins[name]

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        settings = {name: {"value": self.settings[name], "from": self.origins[name]} for name in sorted(self.settings)}
        return {
            "topic": self.name,
            "topic_id": self.topic_id,
            "topic_id_from": self.id_origin,
            "partitions": self.n_partitions,
            "partitions_from": self.count_origin,
            "settings": settings,
            "replaced_settings": self.replaced,
            "n_expiring": self.n_expiring,
            "missing": [{"partition": number, "continues_at": at} for number, at in sorted(self.missing.items())],
        }

    def old_retention(self, defaults: Mapping[str, str]) -> LogConfig:
        """The retention without what boot has turned off; `defaults` are the settings of all brokers."""
        config = LogConfig.from_properties({name: defaults[name] for name in defaults if name in _RETENTION_DEFAULTS})
        own = {name: self.settings[name] for name in KEPT if self.origins.get(name, OFF) != OFF}
        own |= {name: value for name, value in self.replaced.items() if name in KEPT and name not in own}
        with contextlib.suppress(ValueError):
            ms = int(own.get("retention.ms", config.retention_ms))
            return replace(
                config, retention_ms=ms, retention_bytes=int(own.get("retention.bytes", config.retention_bytes))
            )
        return config


@dataclass(frozen=True, slots=True)
class ListedTopic:
    """An entry of a file of topics that a cluster had."""

    topic: str
    """A name or glob."""
    settings: dict[str, str]
    n_partitions: int = 0
    topic_id: str | None = None

    @classmethod
    def of(cls, row: Any) -> ListedTopic:
        """Check an entry; raises ValueError."""
        if not (isinstance(row, dict) and isinstance(row.get("topic"), str) and isinstance(row.get("configs"), dict)):
            raise ValueError('not an object with "topic" (a name) and "configs" (an object)')
        settings = {name: setting_text(name, value) for name, value in row["configs"].items()}
        for name in {RETENTION, TOPIC_ID} & {*settings}:
            raise ValueError(f"{name} is no setting of brokers: use --set {row['topic']}:{name}=... (settings)")
        topic_id = None if row.get("topic_id") is None else parse_topic_id(row["topic_id"])
        return cls(row["topic"], settings, integer("partitions", row.get("partitions", 0), 0), topic_id)


def setting_text(name: str, value: Any) -> str:
    """The text of a setting, as Kafka writes it; raises ValueError."""
    if not isinstance(value, str | int | float):
        raise ValueError(f"{name} is {value!r}, which is no value of a setting")
    return str(value).lower() if isinstance(value, bool) else str(value)


def read_topics_file(path: str | os.PathLike[str]) -> list[ListedTopic]:
    """Read topics and their settings: JSON lines of `kafkalog metadata`, or one object with settings by topic.

    Raises `ReadError`, or `NotKafkaError` if it has neither form.
    """
    text = read_text(path)
    try:
        whole = json.loads(text)
    except (ValueError, RecursionError):
        whole = None
    rows = json_rows(text)
    if isinstance(whole, dict) and not isinstance(whole.get("topic"), str):
        rows = enumerate(({"topic": name, "configs": one} for name, one in whole.items()), 1)
    found = []
    for number, row in rows:
        # the command prints other tables, too
        if not isinstance(row, dict) or row.get("kind", "topics") == "topics":
            try:
                found.append(ListedTopic.of(row))
            except (ValueError, TypeError) as error:
                detail = f"entry {number}: {error}; print the file with kafkalog metadata DIR --show topics --json"
                raise NotKafkaError(Reason.COLUMN_VALUE, detail, path=path) from error
    return found


@dataclass(frozen=True, slots=True)
class TopicOptions:
    """The caller's options about topics."""

    target: Target
    settings: Settings = field(default_factory=dict)
    is_strict: bool = False
    """Whether missing and damaged partitions are refused, and copies of one that differ."""
    max_partitions: int = DEFAULT_LIMITS.max_directories
    """Of a topic: a wrong number in a name or a file must not make billions."""
    listed: Sequence[ListedTopic] = ()
    """Topics of a file."""

    def __post_init__(self) -> None:
        """Check the settings that are no settings of brokers; raises ValueError."""
        for pattern, settings in self.settings.items():
            if settings.get(RETENTION, "as-was") != "as-was":
                raise ValueError(f"{pattern}: retention is as-was; for a time or a size, set retention.ms or .bytes")
            if settings.get(TOPIC_ID) is not None:
                parse_topic_id(str(settings[TOPIC_ID]))

    def chosen(self, name: str) -> dict[str, str | int | float | None]:
        """The settings of a topic that the caller chose."""
        matching = (one for pattern, one in self.settings.items() if fnmatchcase(name, pattern))
        return {key: value for settings in matching for key, value in settings.items()}

    def is_compacted(self, name: str, metadata: ClusterMetadata | None) -> bool | None:
        """Whether the log cleaner compacts a topic; None if its `cleanup.policy` is set nowhere, and has to be guessed.

        Without a policy in the metadata, `server.properties` of the old brokers may have had one.
        """
        listed = {key: value for one in self.listed_as(name) for key, value in one.settings.items()}
        settings = listed | self.chosen(name)
        if "cleanup.policy" in settings:
            policy = settings["cleanup.policy"]
            return None if policy is None else COMPACT in str(policy)
        return None if metadata is None else metadata.is_compacted(name)

    def keeps_retention(self, name: str) -> bool:
        """Whether a topic keeps its old retention."""
        return RETENTION in self.chosen(name)

    def topic_id(self, name: str) -> str | None:
        """The id of a topic that the caller chose."""
        found = self.chosen(name).get(TOPIC_ID)
        return None if found is None else parse_topic_id(str(found))

    def listed_as(self, name: str) -> list[ListedTopic]:
        """The entries of the file that are about a topic."""
        return [one for one in self.listed if fnmatchcase(name, one.topic)]


@dataclass(slots=True)
class Evidence:
    """Facts about the cluster besides its partitions."""

    metadata: ClusterMetadata | None
    state: CoordinatorState
    ends: Mapping[kf.TopicPartition, int]
    """The highest offset of each partition in the checkpoints of all log dirs."""
    cleaned: Mapping[kf.TopicPartition, int]
    """The cleaner's checkpoint."""
    note: Callable[[Finding], object]
    doubt: str = ""
    """Why the metadata lack the last changes."""
    directory_ids: Container[str | None] = ()
    """The ids of the log dirs of the sources."""
    elsewhere: Mapping[kf.TopicPartition, str] = field(default_factory=dict)
    """Of partitions that no source has: what may have them, and what to do about it."""

    def has_settings(self, topic: str) -> bool:
        """Whether the metadata have all settings of a topic."""
        return self.metadata is not None and topic in self.metadata.topic_ids and not self.doubt


def plan_topics(
    copies: Mapping[kf.TopicPartition, Sequence[Copy]],
    evidence: Evidence,
    options: TopicOptions,
    is_wanted: Callable[[str], bool],
) -> list[TopicPlan]:
    """Plan the topics, sorted by name.

    Raises UnknownNameError for settings of a topic that is not here. Raises UnsafePathError if directories of one topic
    have different ids, a setting stops a broker of the target, or a partition is missing and the options are strict.
    """
    by_topic: dict[str, list[Copy]] = {}
    for key, some in copies.items():
        by_topic.setdefault(key.topic, []).extend(some)
    known = [] if evidence.metadata is None else list(evidence.metadata.topic_ids)
    names = {*by_topic, *filter(is_wanted, known)} - {kf.METADATA_TOPIC}
    plans = [_plan(name, by_topic.get(name, []), evidence, options) for name in sorted(names)]
    for name in INTERNAL_SETTINGS:
        # created here, so that no setting of a broker decides on their replicas when they are used first
        has_share_groups = name != kf.SHARE_GROUP_STATE or "share.version" in options.target.features
        if name not in names and has_share_groups:
            plans.append(TopicPlan(name, new_id(), DEFAULT_PARTITIONS, "new", "default"))
            _set_all(plans[-1], [], evidence, options)
    check_names("topic for --set (settings)", [*options.settings], [plan.name for plan in plans])
    _check_ids(plans)
    _note_unknown_commits({plan.name for plan in plans}, evidence)
    if lost := [one.topic for one in options.listed if not any(fnmatchcase(plan.name, one.topic) for plan in plans)]:
        detail = f"no source has these topics of the settings file: {', '.join(lost[:8])}{', ...' if lost[8:] else ''}"
        evidence.note(Finding(Reason.METADATA_INCOMPLETE, detail, damage=False))
    return sorted(plans, key=lambda plan: plan.name)


def new_id() -> str:
    """A random id of a topic, a directory or a cluster; none that looks like an option."""
    while True:
        found = parse_topic_id(uuid.uuid4())
        if not found.startswith("-"):
            return found


def _plan(name: str, copies: Sequence[Copy], evidence: Evidence, options: TopicOptions) -> TopicPlan:
    topic_id, id_origin = _topic_id(name, copies, evidence, options)
    n_partitions, count_origin = _n_partitions(name, copies, evidence)
    n_listed = max((one.n_partitions for one in options.listed_as(name)), default=0)
    # names hash to few partitions and to many: the file knows better
    if count_origin != "cluster metadata" and n_listed > (0 if count_origin == "hashes of names" else n_partitions):
        n_partitions, count_origin = max([n_listed, *(1 + copy.key.partition for copy in copies)]), _LISTED
    if n_partitions > options.max_partitions:
        detail = (
            f"{name} would have {n_partitions:,} partitions ({count_origin}), more than max_directories. Leave out the"
            " directory or the commit with that number, or raise the limit"
        )
        raise LimitExceededError(Reason.TOO_MANY_DIRECTORIES, detail)
    plan = TopicPlan(name, topic_id, n_partitions, id_origin, count_origin)
    assigned = {} if evidence.metadata is None else evidence.metadata.partitions(name)
    n_copies = max(Counter(copy.key for copy in copies).values(), default=1)
    plan.replication_factor = max([len(one.replicas) for one in assigned.values()], default=n_copies)
    _set_all(plan, copies, evidence, options)
    _find_missing(plan, copies, evidence, options)
    return plan


def _topic_id(name: str, copies: Sequence[Copy], evidence: Evidence, options: TopicOptions) -> tuple[str, str]:
    found: dict[str, Copy] = {}
    for copy in copies:
        try:
            if copy.topic_id is not None:
                found.setdefault(copy.topic_id, copy)
        except KafkalogError as error:
            # the metadata log or another copy has the id; without them, a topic gets a new one, as without the file
            evidence.note(error.to_finding(damage=False))
    chosen = options.topic_id(name)
    if chosen is not None:
        return chosen, "option"
    known = None if evidence.metadata is None else evidence.metadata.topic_ids.get(name)
    differ = len(found) > 1
    if known is not None:
        found.setdefault(known, copies[0] if copies else None)  # type: ignore[arg-type]
    if len(found) > 1:
        wrong, copy = next(one for one in found.items() if one[0] != known)
        other = known or next(one for one in found if one != wrong)
        where = "the cluster's metadata has" if known else f"{found[other].path} has"
        detail = f"its topic id is {wrong}, but {where} {other}: it belongs to another topic of that name"
        if differ or options.is_strict:
            detail += f". Leave it out. {ACCEPTED.format(name, other)}"
            raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=copy.path)
        # there is no other copy
        evidence.note(Finding(Reason.UNPROVEN, f"{detail}, or the file is wrong; it is taken", path=str(copy.path)))
    if known is not None:
        return known, "cluster metadata"
    if found:
        return next(iter(found)), "partition.metadata"
    listed = next((one.topic_id for one in options.listed_as(name) if one.topic_id), None)
    return (new_id(), "new") if listed is None else (listed, _LISTED)


def _check_ids(plans: Iterable[TopicPlan]) -> None:
    seen: dict[str, str] = {}
    for plan in plans:
        other = seen.setdefault(plan.topic_id, plan.name)
        if other != plan.name:
            detail = f"topics {other} and {plan.name} have the same id {plan.topic_id}; give one of them another id"
            raise UnsafePathError(Reason.UNSAFE_PATH, f"{detail} (--set {plan.name}:topic.id=ID)")


def _n_partitions(name: str, copies: Sequence[Copy], evidence: Evidence) -> tuple[int, str]:
    known = {} if evidence.metadata is None else evidence.metadata.partitions(name)
    numbers = {copy.key.partition for copy in copies}
    if known:
        return max([*known, *numbers]) + 1, "cluster metadata"
    # a damaged metadata log may name a topic and have lost its partitions
    n = max(numbers, default=0) + 1
    if name in (kf.CONSUMER_OFFSETS, kf.TRANSACTION_STATE):
        told = evidence.state.n_partitions(name, n)
        return told, "directories" if told == n else "hashes of names"
    committed = [commit.partition for commit in evidence.state.commits if commit.topic == name]
    checkpointed = [key.partition for key in evidence.ends if key.topic == name]
    more = max([n, *(number + 1 for number in (*committed, *checkpointed))])
    return more, "directories" if more == n else "checkpoints and commits"


def _set_all(plan: TopicPlan, copies: Sequence[Copy], evidence: Evidence, options: TopicOptions) -> None:
    """Put the settings of a topic together, and check them."""
    for name, value in INTERNAL_SETTINGS.get(plan.name, {}).items():
        plan.set(name, value, "default of the internal topic")
    carried = {} if evidence.metadata is None else evidence.metadata.settings.get((TOPIC, plan.name), {})
    for name, value in carried.items():
        plan.set(name, value, "cluster metadata")
    for name, value in [pair for one in options.listed_as(plan.name) for pair in one.settings.items()]:
        plan.set(name, value, _LISTED)
    is_tiered = is_tiered_by(plan.settings)
    for name in [*plan.settings]:
        if name in _OF_OLD_BROKERS or name.startswith(_OF_TIERS):
            plan.drop(name)
    if is_tiered:
        _note_remote_part(plan, copies, evidence)
    cluster = {} if evidence.metadata is None else evidence.metadata.settings.get((BROKER, ""), {})
    if "cleanup.policy" not in plan.settings and "log.cleanup.policy" not in cluster:
        _guess_policy(plan, copies, evidence)
    if not plan.is_internal and not options.keeps_retention(plan.name):
        for name, value in KEPT.items():
            if plan.settings.get(name) != value:
                plan.drop(name)
                plan.set(name, value, OFF)
    for name, chosen in options.chosen(plan.name).items():
        if name in (RETENTION, TOPIC_ID):
            continue
        plan.drop(name)
        if chosen is not None:
            plan.set(name, setting_text(name, chosen), "option")
    for name, value in plan.settings.items():
        if problem := options.target.setting_problem(name, value):
            detail = (
                f"topic {plan.name}: {problem}, and a broker of Kafka {options.target.release} does not start with it."
                f" Set another value with --set {plan.name}:{name}=VALUE (settings), or none with {plan.name}:{name}="
            )
            raise UnsafePathError(Reason.UNSAFE_PATH, detail)


def _note_remote_part(plan: TopicPlan, copies: Sequence[Copy], evidence: Evidence) -> None:
    """Report the offsets of a tiered topic that only the remote storage has, for the copy that begins first."""
    firsts: dict[kf.TopicPartition, Copy] = {}
    for copy in copies:
        known = firsts.setdefault(copy.key, copy)
        firsts[copy.key] = min(known, copy, key=lambda one: one.first_base_offset)
    restored = {copy.key for copy in copies if copy.is_restored}
    n_lost = 0
    for key, copy in sorted(firsts.items()):
        if key in restored:
            continue  # what remote storage lacks is a finding of it
        start, end = copy.root.offsets(kf.LOG_START_OFFSET_CHECKPOINT).get(key, 0), copy.first_base_offset
        if end > start:
            n_lost += 1
            detail = f"{key} is tiered: offsets {offset_range(start, end)} are only in the remote storage. {RESTORES}"
            evidence.note(offsets_finding(Reason.SEGMENT_MISSING, detail, str(copy.path), start, end))
    if not n_lost:
        detail = (
            f"{plan.name} was tiered: the settings of tiers are left out, and all of its offsets are local. To tier it"
            " again, set remote.storage.enable once the new cluster has remote storage"
        )
        evidence.note(Finding(Reason.SEGMENT_MISSING, detail, damage=False))


def _guess_policy(plan: TopicPlan, copies: Sequence[Copy], evidence: Evidence) -> None:
    """Without its `cleanup.policy`, a compacted topic would be one whose records are deleted by age."""
    why = compacted_by(plan.name, {key.topic for key in evidence.cleaned})
    origin = f"guessed: {why}" if why else ""
    if not origin and any(copy.has_horizons for copy in copies):
        origin = "guessed: its batches have delete horizons"
    if origin:
        plan.set("cleanup.policy", "compact", origin)
    elif not evidence.has_settings(plan.name) and any(copy.has_gaps for copy in copies):
        detail = (
            f"{plan.name} has gaps in its offsets, as after compaction, and its cleanup.policy is lost. It stays"
            f" uncompacted; if it was compacted, use --set {plan.name}:cleanup.policy=compact"
        )
        evidence.note(Finding(Reason.METADATA_INCOMPLETE, detail, damage=False))


def _find_missing(plan: TopicPlan, copies: Sequence[Copy], evidence: Evidence, options: TopicOptions) -> None:
    bare = {copy.key.partition: copy for copy in copies if copy.is_bare}
    gone = sorted({*range(plan.n_partitions)} - {copy.key.partition for copy in copies} | {*bare})
    if not gone:
        return
    if options.is_strict:
        detail = (
            f"no source has {counted(len(gone), 'partition')} of {plan.name} ({number_ranges(gone)})."
            " Add their disks, or boot without --strict (strict=False): they begin empty"
        )
        raise UnsafePathError(Reason.SEGMENT_MISSING, detail)
    for number in gone:
        key = kf.TopicPartition(plan.name, number)
        committed = [commit.offset for commit in evidence.state.commits if commit.key == key]
        ends = [evidence.ends.get(key, 0), *(copy.known_end for copy in copies if copy.key == key)]
        plan.missing[number] = max([*ends, *committed])
    for numbers in filter(None, (sorted({*gone} & {*bare}), sorted({*gone} - {*bare}))):
        evidence.note(_about_missing(plan, numbers, bare, _other_disks(plan.name, numbers, evidence)))


def _other_disks(topic: str, numbers: Sequence[int], evidence: Evidence) -> str:
    """The disks that may have partitions of a topic: sources, and others that the metadata log names."""
    here = [text for number in numbers if (text := evidence.elsewhere.get(kf.TopicPartition(topic, number)))]
    if here:
        return "".join(here[:_MOST_ELSEWHERE])
    assigned = {} if evidence.metadata is None else evidence.metadata.partitions(topic)
    places = [
        f"{directory} of node {node}"
        for one in (assigned[number] for number in numbers if number in assigned)
        for node, directory in zip(one.replicas, one.directories, strict=False)
        if is_directory_id(directory) and directory not in evidence.directory_ids
    ]
    if not places:
        return ""
    which = first_names([*dict.fromkeys(places)])
    return f". The metadata log has it {on_another_disk(which)}"


def _about_missing(plan: TopicPlan, numbers: Sequence[int], bare: Mapping[int, Copy], others: str) -> Finding:
    """The finding about partitions of a topic that no source has, or that are directories without a `.log`.

    `others` tells where they may be.
    """
    path = str(bare[numbers[0]].path) if numbers[0] in bare else None
    which, last = f"{plan.name}-{numbers[0]}", None
    if len(numbers) > 1:
        which = f"{len(numbers)} of the {plan.n_partitions} partitions of {plan.name} ({number_ranges(numbers)})"
    elif plan.missing[numbers[0]]:
        last = plan.missing[numbers[0]] - 1
    known = [f"{number} at {plan.missing[number]}" for number in numbers if plan.missing[number]]
    files = "the .log files of " if path else ""
    detail = f"no source has {files}{which}: {'they begin' if numbers[1:] else 'it begins'} empty"
    if known:
        detail += f" at the highest known offset (partition {first_names(known)})"
    detail += others + _LOST_STATE.get(plan.name, "")
    names = [name for number in numbers if number in bare for name in bare[number].names]
    return with_copies(Finding(Reason.SEGMENT_MISSING, detail, path=path, last_offset=last), copied_segments(names))


def _note_unknown_commits(names: set[str], evidence: Evidence) -> None:
    lost = sorted({commit.topic for commit in evidence.state.commits} - names)
    if lost:
        detail = (
            f"groups have committed offsets of {counted(len(lost), 'topic')} that no source has:"
            f" {', '.join(lost[:8])}{', ...' if len(lost) > 8 else ''}. They may have been deleted; if not, add their"
            " disks"
        )
        evidence.note(Finding(Reason.METADATA_INCOMPLETE, detail, damage=False))
