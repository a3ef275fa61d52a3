"""Consumer groups, from `__consumer_offsets` and `__share_group_state`: members, assignments, offsets and lag.

Knows classic, consumer (KIP-848), share and streams groups, as a broker has them after it has loaded these topics.
Expired offsets are among them until a broker has written their tombstones.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from itertools import groupby
from operator import attrgetter
from typing import Any, ClassVar, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog.calls import leading_names
from kafkalog.errors import DEFAULT_LIMITS, Finding, KafkalogError, Limits
from kafkalog.format import CONSUMER_OFFSETS, TopicPartition, partition_order
from kafkalog.html import JsonFields, Result
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import Paths, open_log_dir
from kafkalog.parsing import Time, name_matcher
from kafkalog.protocol.decoder import MessageError
from kafkalog.protocol.json_form import ASSIGNMENT, SUBSCRIPTION, decode_member
from kafkalog.records.byte_columns import BinaryColumn
from kafkalog.result_kinds import arrow_schema
from kafkalog.state.checkpoints import java_number, known_topic_id
from kafkalog.state.cluster_metadata import cluster_metadata
from kafkalog.survey.next_steps import paths_read
from kafkalog.system_topics.commits import (
    OUT_OF_RANGE,
    Commits,
    CommittedOffsets,
    Standing,
    is_expired,
    read_commits,
)
from kafkalog.system_topics.coordinator_load import LoadCheck, with_load_failures
from kafkalog.system_topics.group_types import GROUP_TYPES, split_record_type
from kafkalog.system_topics.reading import AsOf, StateList, check_known
from kafkalog.system_topics.replay import load_topic
from kafkalog.system_topics.share_state import Delivery, ShareState, read_share_state

_RETENTION_MINUTES: Final = 7 * 24 * 60
"""Kafka's default of `offsets.retention.minutes`."""


@leading_names
@dataclass(slots=True)
class GroupOffset:
    """Where a group stands in a partition."""

    topic: str
    """The topic id if its name is not known here (share groups store the id alone)."""
    partition: int
    offset: int
    """The next offset that the group wants; of a share group, the first that is not done with. -1 for none."""
    leader_epoch: int = -1
    """Of the last consumed record; -1 for none."""
    metadata: str = ""
    """What the client added to the commit."""
    commit_timestamp: int | None = None
    """In ms."""
    expire_timestamp: int | None = None
    """When a broker deletes the offset, in ms, whatever `offsets.retention.minutes` is. Brokers before 2.1, and clients
    that name a retention, write it. None for an offset without a time of its own.
    """
    log_end_offset: int | None = None
    lag: int | None = None
    """Records that the group has not done yet. Negative for an offset past the log end, as Kafka's tool shows it.
    None if the partition is not in this log dir, or if `n_done` of a share group is not known.
    """
    out_of_range: str | None = None
    """``past_end`` if the log ends before the offset, ``before_start`` if the log starts after it: the group's
    consumers are reset as `auto.offset.reset` says. None otherwise.
    """
    n_done: int | None = None
    """Of a share group: records at and after `offset` that are done, as the group counts them (4.2 and newer)."""
    deliveries: list[Delivery] = field(default_factory=list)
    """Of a share group: records at and after `offset` that were delivered, and in which state they are."""


@dataclass(slots=True)
class GroupMember(JsonFields):
    """A member of a group."""

    # the state of the group says whether all members are stable
    _json_without: ClassVar[tuple[str, ...]] = ("is_stable",)

    member_id: str
    client_id: str | None = None
    client_host: str | None = None
    instance_id: str | None = None
    subscribed: list[str] = field(default_factory=list)
    """Topics; a regular expression has a ``~`` in front."""
    assigned: dict[str, list[int]] = field(default_factory=dict)
    """Partitions by topic; by the topic id if its name is not known here. Of a streams group, those of the topics that
    its active tasks read; by subtopology if its topics are not known here.
    """
    tasks: dict[str, list[int]] = field(default_factory=dict)
    """Of a streams group: the active tasks, partitions by subtopology."""
    epoch: int = -1
    """Group epoch up to which the member has followed; -1 in classic groups."""
    assignor: str | None = None
    """Server-side assignor that a member of a consumer group asks for."""
    is_stable: bool = True
    """False while partitions move to or from the member."""


@dataclass
class Group(Result):
    """A group."""

    name: str
    type: str = "classic"
    """One of 'classic', 'consumer', 'share', 'streams'."""
    epoch: int = -1
    """Group epoch; of a classic group its generation. -1 if only offsets are known."""
    assignment_epoch: int = -1
    """Group epoch that the target assignment was made for; -1 in classic groups."""
    protocol: str | None = None
    """Assignor of a classic group; of a consumer group the one that most members ask for, None for the broker's
    default.
    """
    topology_epoch: int = -1
    validated_topology_epoch: int = -1
    """Of a streams group; -1 for none."""
    state_timestamp: int | None = None
    """When a classic group got into its last state, in ms; None if its record does not tell."""
    members: list[GroupMember] = field(default_factory=list)
    offsets: list[GroupOffset] = field(default_factory=list)
    """Sorted by topic and partition."""
    pending: list[GroupOffset] = field(default_factory=list)
    """Offsets that open transactions commit: they do not count yet, and a consumer that starts waits for their end."""
    _committed: tuple[CommittedOffsets, slice] | None = field(default=None, init=False, repr=False, compare=False)
    """What `offsets` are made of once they are asked for."""

    def __getattr__(self, name: str) -> Any:
        if name != "offsets" or self._committed is None:
            return super().__getattr__(name)  # type: ignore[misc]
        committed, rows = self._committed
        self.offsets, self._committed = [GroupOffset(*row) for row in committed.rows(rows)], None
        return self.offsets

    @property
    def state(self) -> str:
        """Empty, Stable, Assigning, Reconciling or NotReady: as a broker has it after it loaded the topic.

        Source: ConsumerGroup.maybeUpdateGroupState, StreamsGroup.maybeUpdateGroupState, Kafka 4.3.
        """
        if not self.members:
            return "Empty"
        if self.type == "streams" and not 0 <= self.topology_epoch == self.validated_topology_epoch:
            return "NotReady"
        if GROUP_TYPES[self.type].stable is not None:
            if self.epoch > self.assignment_epoch:
                return "Assigning"
            if not all(member.is_stable and member.epoch == self.assignment_epoch for member in self.members):
                return "Reconciling"
        return "Stable"

    def expired(self, now_ms: int, retention_ms: int | None = None) -> list[GroupOffset]:
        """The committed offsets that a broker deletes when it looks for expired ones, as ten minutes after its start.

        An offset has a time of expiry of its own, or expires after `retention_ms` (`offsets.retention.minutes`; None if
        that is not known). Offsets of topics that a member consumes stay. Source:
        OffsetMetadataManager.cleanupExpiredOffsets, ClassicGroup.offsetExpirationCondition, Kafka 4.3.
        """
        consumed = self._consumed
        since = None if self.members else self.state_timestamp
        unread = _unread(self)
        if consumed is None or (unread and not unread[0].may_expire(unread[1], now_ms, since, retention_ms)):
            return []
        waiting = {(one.topic, one.partition) for one in self.pending}
        known = [one for one in self.offsets if one.topic not in consumed and (one.topic, one.partition) not in waiting]
        expiry = _times((one.expire_timestamp for one in known), -1)
        begin = _times((one.commit_timestamp for one in known), now_ms) if since is None else since
        is_over = is_expired(expiry, begin, now_ms, retention_ms)
        return [one for one, is_gone in zip(known, is_over.tolist(), strict=True) if is_gone]

    @property
    def _consumed(self) -> set[str] | None:
        """The topics that members consume; None if they do not tell: of other protocols, or by a regular expression."""
        topics = {topic for member in self.members for topic in member.subscribed}
        is_known = all(member.subscribed for member in self.members) and not any(topic[0] == "~" for topic in topics)
        return topics if is_known and GROUP_TYPES[self.type].commits_offsets else None

    @property
    def lag(self) -> int | None:
        """Sum of the known lags; None if none is known."""
        if (unread := _unread(self)) is not None:
            return unread[0].lag_of(unread[1])
        known = [one.lag for one in self.offsets if one.lag is not None]
        return sum(known) if known else None

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return {
            "group": self.name,
            "type": self.type,
            "state": self.state,
            "lag": self.lag,
            "epoch": self.epoch,
            "protocol": self.protocol,
            "members": [member.as_dict() for member in self.members],
            "offsets": [asdict(one) for one in self.offsets],
            "pending": [asdict(one) for one in self.pending],
        }


class Groups(StateList[Group]):
    """Groups, sorted by name."""

    noun = "group"

    def summary(self) -> str:
        """Return the known lag of all groups."""
        known = [lag for lag in (group.lag for group in self) if lag is not None]
        return f"lag {sum(known):,}" if known else ""

    def to_arrow(self) -> pa.Table:
        """Committed offsets as a table: group, type, and the fields of `GroupOffset`."""
        batches: list[pa.RecordBatch] = []
        for unread, some in groupby(self, lambda group: (_unread(group) or (None,))[0]):
            part = [*some]
            batches += _batches(part) if unread is None else _committed_batches(part, unread)
        return pa.Table.from_batches(batches, _SCHEMA)


def offsets_retention_ms(properties: Mapping[str, object]) -> int:
    """How long brokers keep committed offsets (`offsets.retention.minutes`), by a `server.properties`."""
    minutes = java_number(str(properties.get("offsets.retention.minutes", "")).strip(), 31)
    return (_RETENTION_MINUTES if minutes is None else minutes) * 60_000


def _times(times: Iterable[int | None], missing: int) -> npt.NDArray[np.int64]:
    return np.array([missing if time is None else time for time in times], np.int64)


def _unread(group: Group) -> tuple[CommittedOffsets, slice] | None:
    """The columns and rows of a group's offsets that have not been turned into objects yet."""
    return None if "offsets" in vars(group) else group._committed


def _committed_batches(groups: list[Group], committed: CommittedOffsets) -> Iterator[pa.RecordBatch]:
    """Offsets of groups whose rows nobody has asked for yet."""
    bounds = np.array([(rows.start, rows.stop) for _, rows in filter(None, map(_unread, groups))])
    sizes = bounds[:, 1] - bounds[:, 0]
    number = np.repeat(np.arange(len(groups)), sizes)
    names, types = (pa.array([getattr(group, name) for group in groups]) for name in ("name", "type"))
    rows = np.arange(number.size) + (bounds[:, 1] - np.cumsum(sizes))[number]
    deliveries = _SCHEMA.field("deliveries").type
    no_delivery = pa.array([], deliveries.value_type)
    n_done = _SCHEMA.field("n_done").type
    first = 0
    for batch in committed.to_arrow(rows, _SCHEMA):
        some = pa.array(number[first : first + batch.num_rows])
        first += batch.num_rows
        nothing = pa.ListArray.from_arrays(np.zeros(batch.num_rows + 1, np.int32), no_delivery, deliveries)
        of_share_groups = [pa.nulls(batch.num_rows, n_done), nothing]
        yield pa.RecordBatch.from_arrays(
            [names.take(some), types.take(some), *batch.columns, *of_share_groups], schema=_SCHEMA
        )


def _batches(groups: list[Group]) -> list[pa.RecordBatch]:
    offsets = [one for group in groups for one in group.offsets]
    columns: dict[str, list[Any]] = {
        "group": [group.name for group in groups for _ in group.offsets],
        "type": [group.type for group in groups for _ in group.offsets],
        **{name: [*map(attrgetter(name), offsets)] for name in _SCHEMA.names[2:]},
    }
    columns["deliveries"] = [[asdict(delivery) for delivery in some] if some else [] for some in columns["deliveries"]]
    batches: list[pa.RecordBatch] = pa.Table.from_pydict(columns, schema=_SCHEMA).to_batches()
    return batches


_SCHEMA: Final = pa.schema(
    [
        *(pa.field(name, pa.string()) for name in ("group", "type")),
        *arrow_schema(GroupOffset, {"partition": pa.int32(), "leader_epoch": pa.int32(), "delivery_count": pa.int16()}),
    ]
)


def groups(
    path: Paths | LogDir,
    *,
    groups: str | Sequence[str] | None = None,
    end_offset: int | None = None,
    end_timestamp: Time | None = None,
    limits: Limits | None = None,
) -> Groups:
    """Read the groups of a log dir: members, assignments, committed offsets and lag.

    Parameters
    ----------
    path : path-like, sequence of path-like, or LogDir
        A log dir, or partitions of ``__consumer_offsets`` and ``__share_group_state``. Lag and the names of topics
        that are stored by id need the other directories of the log dir.
    groups : str or sequence of str, optional
        Only these: names or globs such as ``billing-*``.
    end_offset : int, optional
        The state right before this offset of each partition of these topics.
    end_timestamp : int (ms), str or aware datetime, optional
        The state right before this time instead of the latest. Records that compaction has removed are missing then.
    limits : Limits, optional
        Of the log dir, if `path` is not opened yet.

    Returns
    -------
    Groups
        A list of `Group`. Damage does not raise: reading continues after it, and `findings` has it.

    Raises
    ------
    UnknownNameError
        No group has a name, or matches a glob, that was asked for, and it is the latest state that was.

    Examples
    --------
    >>> kafkalog.groups("tests/golden/log_dir")
    Groups(0 groups)
    """
    log_dir = path if isinstance(path, LogDir) else open_log_dir(path, limits=limits or DEFAULT_LIMITS)
    as_of = AsOf.of(log_dir, [CONSUMER_OFFSETS], end_offset, end_timestamp)
    known, _ = load_groups(log_dir, as_of)
    is_wanted = name_matcher(groups)
    found = Groups(one for one in known if is_wanted(one.name))
    found.findings, found.log_dirs = known.findings, paths_read(log_dir)
    check_known("group", groups, [one.name for one in known], as_of, found.findings)
    return found


def load_groups(log_dir: LogDir, as_of: AsOf) -> tuple[Groups, list[Finding]]:
    """All groups, and the partitions that a coordinator does not load (`LoadCheck`): their topic is read once."""
    loader, check = _Loader(log_dir), LoadCheck(log_dir, CONSUMER_OFFSETS)
    report = loader.findings.append
    for record, last in load_topic(log_dir, CONSUMER_OFFSETS, as_of, report, loader.take, watch=check.feed):
        loader.apply(record.type, record.key or {}, record.value or {}, is_pending=last.is_pending)
    loader.share_states(read_share_state(log_dir, as_of, report))
    loader.findings = with_load_failures(loader.findings, check.failures)
    found = Groups(loader.finished())
    found.findings = loader.findings
    return found, check.failures


def _set_lag(offset: GroupOffset, bounds: tuple[int, int], *, is_share: bool) -> None:
    """Set what follows from the start and the end offset of the partition."""
    offset.log_end_offset = bounds[1]
    standing = Standing.of(offset.offset, *bounds, offset.n_done or 0)
    if standing.is_known:
        # of share groups of before 4.2 it is not known what is done
        offset.lag = None if is_share and offset.n_done is None else standing.lag
        offset.out_of_range = OUT_OF_RANGE[int(standing.range_number)]


class _Loader:
    """Builds groups from the last records of their topics."""

    def __init__(self, log_dir: LogDir) -> None:
        self.log_dir = log_dir
        self.findings: list[Finding] = []
        self._groups: dict[str, Group] = {}
        self._members: dict[tuple[str, str], GroupMember] = {}
        self._names: dict[str, str] = {}
        self._commits: Commits | None = None
        self._sources: dict[str, dict[str, list[str]]] = {}
        """The topics that each subtopology of a streams group reads."""
        for root in log_dir.paths:
            metadata = cluster_metadata(root)
            if metadata is not None:
                self.findings += metadata.findings
                # newer records have ids of topics, and only the cluster's metadata has their names
                self._names |= {topic_id: name for name, topic_id in metadata.topic_ids.items()}

    def take(self, keys: BinaryColumn, values: BinaryColumn) -> npt.NDArray[np.bool_]:
        """Take the commits among some records; which of them these are."""
        is_commit, self._commits = read_commits(keys, values)
        return is_commit

    def _group(self, name: str) -> Group:
        group = self._groups.get(name)
        if group is None:
            group = self._groups[name] = Group(name)
        return group

    def apply(self, kind: str, key: dict[str, Any], value: dict[str, Any], *, is_pending: bool) -> None:
        """Apply a record of `__consumer_offsets`; one that is pending has no effect but that its group is there."""
        group = self._group(key["group"] if "group" in key else key["groupId"])
        if kind.endswith("OffsetCommit"):
            self._commit(group.pending if is_pending else group.offsets, key, value)
        elif is_pending:
            return
        elif kind == "GroupMetadata":
            self._classic(group, value)
        elif parts := split_record_type(kind):
            group.type, what = parts
            self._modern(group, what, key, value)

    def _name_of(self, topic_id: str) -> str:
        """The topic's name, from the metadata log or else from a partition's file; the id if neither is here."""
        if topic_id not in self._names:
            for key in self.log_dir:
                if (known := known_topic_id(self.log_dir.path_of(key).path)) is not None:
                    self._names.setdefault(known, key.topic)
            self._names.setdefault(topic_id, topic_id)
        return self._names[topic_id]

    def share_states(self, states: Mapping[tuple[str, str, int], ShareState]) -> None:
        """Add where share groups stand."""
        for (name, topic_id, number), state in states.items():
            group = self._groups.setdefault(name, Group(name, "share"))
            group.offsets.append(
                GroupOffset(
                    self._name_of(topic_id),
                    number,
                    state.start_offset,
                    state.leader_epoch,
                    deliveries=state.deliveries,
                    n_done=state.n_done,
                )
            )

    def _add_commits(self, committed: CommittedOffsets) -> None:
        """Give the groups their offsets among the commits taken."""
        for name, numbers in committed.groups():
            group = self._group(name)
            if group.offsets:
                group.offsets += [GroupOffset(*row) for row in committed.rows(numbers)]
            else:
                del group.offsets
                group._committed = committed, numbers

    def finished(self) -> Iterable[Group]:
        """The groups, with their lags."""
        bounds_of = cache(self._bounds)
        if self._commits is not None:
            self._add_commits(CommittedOffsets(self._commits, bounds_of))
        for name in sorted(self._groups):
            group = self._groups[name]
            group.pending.sort(key=partition_order)
            if group.type == "streams":
                self._assign_topics(group)
            if group.type == "consumer":
                # a broker takes the assignor that most members ask for
                asked = Counter(member.assignor for member in group.members if member.assignor)
                group.protocol = asked.most_common(1)[0][0] if asked else None
            if _unread(group) is None:
                group.offsets.sort(key=partition_order)
                for offset in group.offsets:
                    bounds = bounds_of(TopicPartition(offset.topic, offset.partition))
                    if bounds is not None:
                        _set_lag(offset, bounds, is_share=not GROUP_TYPES[group.type].commits_offsets)
            yield group

    def _assign_topics(self, group: Group) -> None:
        sources = self._sources.get(group.name, {})
        for member in group.members:
            found: dict[str, set[int]] = {}
            for subtopology, partitions in member.tasks.items():
                for topic in sources.get(subtopology) or [subtopology]:
                    found.setdefault(topic, set()).update(partitions)
            member.assigned = {topic: sorted(partitions) for topic, partitions in sorted(found.items())}

    def _bounds(self, where: TopicPartition) -> tuple[int, int] | None:
        """The log start and log end offsets of a partition; None if they are not known."""
        if where not in self.log_dir:
            return None
        try:
            partition = self.log_dir[where]
            return partition.log_start_offset, partition.log_end_offset
        except KafkalogError as error:
            self.findings.append(error.to_finding())
            return None

    def _commit(self, offsets: list[GroupOffset], key: dict[str, Any], value: dict[str, Any]) -> None:
        offsets.append(
            GroupOffset(
                key["topic"],
                key["partition"],
                value["offset"],
                value.get("leaderEpoch", -1),
                value["metadata"],
                value["commitTimestamp"],
                expiry if (expiry := value.get("expireTimestamp", -1)) >= 0 else None,
            )
        )

    def _classic(self, group: Group, value: dict[str, Any]) -> None:
        group.epoch, group.protocol = value["generation"], value["protocol"]
        if value["protocolType"] and (time := value.get("currentStateTimestamp", -1)) >= 0:
            group.state_timestamp = time
        for one in value["members"]:
            member = GroupMember(one["memberId"], one["clientId"], one["clientHost"], one["groupInstanceId"])
            if value["protocolType"] == "consumer":
                member.subscribed = _decoded(SUBSCRIPTION, one["subscription"]).get("topics", [])
                assigned = _decoded(ASSIGNMENT, one["assignment"]).get("assignedPartitions", ())
                member.assigned = {part["topic"]: part["partitions"] for part in assigned}
            group.members.append(member)

    def _modern(self, group: Group, kind: str, key: dict[str, Any], value: dict[str, Any]) -> None:
        if kind == "Metadata":
            group.epoch = value["epoch"]
            group.validated_topology_epoch = value.get("validatedTopologyEpoch", -1)
        elif kind == "Topology":
            group.topology_epoch = value["epoch"]
            self._sources[group.name] = {
                one["subtopologyId"]: [
                    *one["sourceTopics"],
                    *(topic["name"] for topic in one["repartitionSourceTopics"]),
                ]
                for one in value["subtopologies"] or ()
            }
        elif kind == "TargetAssignmentMetadata":
            group.assignment_epoch = value["assignmentEpoch"]
        elif kind in ("MemberMetadata", "CurrentMemberAssignment"):
            member = self._member(group, key["memberId"])
            if kind == "MemberMetadata":
                member.client_id, member.client_host = value["clientId"], value["clientHost"]
                member.instance_id, member.assignor = value.get("instanceId"), value.get("serverAssignor")
                member.subscribed = list(value.get("subscribedTopicNames", ()))
                if value.get("subscribedTopicRegex"):
                    # no topic's name may hold a tilde
                    member.subscribed.append("~" + value["subscribedTopicRegex"])
            else:
                member.epoch = value["memberEpoch"]
                member.is_stable = value.get("state") == GROUP_TYPES[group.type].stable
                for part in value.get("assignedPartitions", ()):
                    member.assigned[self._names.get(part["topicId"], part["topicId"])] = part["partitions"]
                for part in value.get("activeTasks", ()):
                    member.tasks[part["subtopologyId"]] = part["partitions"]

    def _member(self, group: Group, member_id: str) -> GroupMember:
        member = self._members.get((group.name, member_id))
        if member is None:
            member = self._members[group.name, member_id] = GroupMember(member_id)
            group.members.append(member)
        return member


def _decoded(name: str, data: bytes) -> dict[str, Any]:
    """The metadata that a member of a classic group sent; empty if it is not of the consumers' protocol."""
    try:
        return decode_member(name, data)
    except MessageError:
        return {}
