"""Whether a coordinator loads a partition of `__consumer_offsets` or `__transaction_state`.

A coordinator replays every record of its partition. One that it cannot decode, or that contradicts earlier ones, ends
the load: no group of that partition has a coordinator then, although all offsets are in the log. Compaction leaves such
records after a group has changed between the classic and the consumer protocol, and tombstones of a part of a member.

Mirrors `CoordinatorLoaderImpl`, `GroupMetadataManager.replay`, `ConsumerGroup.updateMember` and
`TransactionStateManager.loadTransactionMetadata`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.errors import Finding, Limits, Reason
from kafkalog.format import CONSUMER_OFFSETS, TRANSACTION_STATE, TopicPartition
from kafkalog.log.log_dir import LogDir
from kafkalog.protocol.decoder import MessageError, UnknownVersionError
from kafkalog.protocol.framing import InternalRecord, UnknownTypeError, decode_record
from kafkalog.protocol.printed import TRANSACTION_STATES
from kafkalog.records.byte_columns import BinaryColumn
from kafkalog.records.columns import RecordColumns
from kafkalog.storage.location import Place
from kafkalog.system_topics.commits import read_commits
from kafkalog.system_topics.group_types import split_record_type
from kafkalog.system_topics.reading import AsOf, TopicRecords, listed, read_topic

COORDINATED: Final = (CONSUMER_OFFSETS, TRANSACTION_STATE)
"""The topics whose partitions are checked."""
_NO_EPOCH: Final = -1
_LEFT: Final = -1
_ADVICE: Final = {
    CONSUMER_OFFSETS: (
        "Its groups get no coordinator (NOT_COORDINATOR). kafkalog groups -o FILE writes their offsets, and kafkalog"
        " boot --groups FILE makes a cluster that serves them"
    ),
    TRANSACTION_STATE: "It does not know the transactional ids and states of later records",
}


class ReplayError(ValueError):
    """A record on which a coordinator stops; the text says why."""


@dataclass(slots=True)
class _Member:
    epoch: int = 0
    """-1 once it has left."""
    owned: list[tuple[str, int]] = field(default_factory=list)
    """Partitions that are assigned to it, or that it has to give up."""


@dataclass(slots=True)
class _NewProtocolGroup:
    """A group of another protocol than the classic one."""

    kind: str
    members: dict[str, _Member] = field(default_factory=dict)
    targets: set[str] = field(default_factory=set)
    """Members with a target assignment."""
    assignment_epoch: int = 0
    """-1 once its tombstone came; a group starts with 0."""
    owners: dict[tuple[str, int], int] = field(default_factory=dict)
    """The member epoch with which a partition is owned."""


class GroupReplay:
    """The groups of one partition of `__consumer_offsets`, as its coordinator builds them; Kafka 4.3.

    One of before 4.0 (`is_old`) passes over groups of new protocols.
    """

    def __init__(self, *, is_old: bool = False) -> None:
        self._is_old = is_old
        self._classic: dict[str, bool] = {}
        """Classic groups, and whether one is simple: it has no members, and no type of protocol."""
        self._groups: dict[str, _NewProtocolGroup] = {}

    def commit(self, name: str) -> None:
        """Replay a committed offset: without a group, it makes a simple one."""
        if name not in self._groups:
            self._classic.setdefault(name, True)

    def apply(self, record: InternalRecord) -> None:
        """Replay another record; raises ReplayError."""
        name, key, value = _group_of(record), record.key or {}, record.value
        if record.type.endswith("OffsetCommit"):
            if value is not None:
                self.commit(name)
        elif record.type == "GroupMetadata":
            self._remove(name)
            if value is not None:
                self._classic[name] = not value["protocolType"] and not value["members"]
        else:
            parts = None if self._is_old else split_record_type(record.type)
            if parts is not None:
                self._apply(name, *parts, key, value)

    def _remove(self, name: str) -> None:
        self._classic.pop(name, None)
        self._groups.pop(name, None)

    def _apply(self, name: str, kind: str, what: str, key: Mapping[str, Any], value: Mapping[str, Any] | None) -> None:
        group = self._group(name, kind, is_made=value is not None)
        if group is None:  # a tombstone of a group that is not there
            return
        if what == "MemberMetadata":
            self._member(group, key["memberId"], value)
        elif what == "CurrentMemberAssignment":
            self._assign(group, key["memberId"], value)
        elif what == "TargetAssignmentMember":
            (group.targets.discard if value is None else group.targets.add)(key["memberId"])
        elif what == "TargetAssignmentMetadata":
            if value is None and group.targets:
                raise ReplayError(
                    f"a tombstone deletes the target assignment of group {name}, which still has"
                    f" {len(group.targets)} members"
                )
            group.assignment_epoch = _NO_EPOCH if value is None else value["assignmentEpoch"]
        elif what == "Metadata" and value is None:
            self._delete(group, name)

    def _group(self, name: str, kind: str, *, is_made: bool) -> _NewProtocolGroup | None:
        """Return a group of a type; source: GroupMetadataManager.getOrMaybeCreatePersistedConsumerGroup."""
        group = self._groups.get(name)
        if group is not None and group.kind == kind:
            return group
        is_free = name not in self._classic or (self._classic[name] and kind != "share")
        if group is not None or not is_free:
            raise ReplayError(f"group {name} is not a {kind} group")
        # a simple group gives way even to a tombstone
        if not is_made and name not in self._classic:
            return None
        self._classic.pop(name, None)
        self._groups[name] = _NewProtocolGroup(kind)
        return self._groups[name]

    def _member(self, group: _NewProtocolGroup, member_id: str, value: Mapping[str, Any] | None) -> None:
        if value is not None:
            group.members.setdefault(member_id, _Member())
        elif member_id in group.members:
            if group.members[member_id].epoch != _LEFT or member_id in group.targets:
                raise ReplayError(f"a tombstone deletes member {member_id}, which still has an assignment")
            del group.members[member_id]

    def _assign(self, group: _NewProtocolGroup, member_id: str, value: Mapping[str, Any] | None) -> None:
        if value is None and member_id not in group.members:
            return
        member = group.members.setdefault(member_id, _Member())
        for where in member.owned:
            if group.owners.get(where) == member.epoch:
                del group.owners[where]
        member.epoch, member.owned = _LEFT, []
        if value is None:
            return
        member.epoch = value["memberEpoch"]
        if group.kind != "consumer":
            return
        for part in (*value["assignedPartitions"], *value["partitionsPendingRevocation"]):
            for number in part["partitions"]:
                where = part["topicId"], number
                owner = group.owners.get(where)
                if owner is not None and owner >= member.epoch:
                    raise ReplayError(
                        f"member {member_id} gets partition {number} of topic {part['topicId']} with epoch"
                        f" {member.epoch}, and another still owns it with epoch {owner}"
                    )
                group.owners[where] = member.epoch
                member.owned.append(where)

    def _delete(self, group: _NewProtocolGroup, name: str) -> None:
        left = {
            "members": bool(group.members),
            "a target assignment": bool(group.targets) and group.kind != "streams",
            "an assignment epoch": group.assignment_epoch != _NO_EPOCH,
        }
        for what, is_left in left.items():
            if is_left:
                raise ReplayError(f"a tombstone deletes group {name}, which still has {what}")
        self._remove(name)


def with_load_failures(findings: Iterable[Finding], failures: Iterable[Finding]) -> list[Finding]:
    """Findings about the records of a topic, and those of `load_failures`, which replace those of the same record."""
    stops = {(one.path, one.base_offset): one for one in failures}
    replaced = [
        stops.pop((one.path, one.base_offset), one) if one.reason is Reason.INTERNAL_RECORD else one for one in findings
    ]
    return [*replaced, *stops.values()]


def load_failure(path: Place, key: TopicPartition | None, limits: Limits, *, damage: bool = False) -> Finding | None:
    """Why a coordinator does not load the partition in a directory; None if it does, or has nothing to load there."""
    if key is None or key.topic not in COORDINATED:
        return None
    return next(load_failures(LogDir(path, limits=limits), damage=damage), None)


def load_failures(
    log_dir: LogDir,
    topics: Collection[str] = COORDINATED,
    as_of: AsOf | None = None,
    *,
    damage: bool = False,
    is_old: bool = False,
) -> Iterator[Finding]:
    """The partitions that a coordinator of Kafka 4.3 does not load, or not to the end, each with the first reason.

    `is_old` is for the coordinator before 4.0: it knows classic groups alone, and does not check how records follow one
    another.

    Records that cannot be read are not among the reasons; those who read them report them.
    """
    for topic in sorted(set(topics) & set(log_dir.topics) & set(COORDINATED)):
        check = LoadCheck(log_dir, topic, damage=damage, is_old=is_old)
        for part in read_topic(log_dir, topic, as_of or AsOf(), lambda finding: None):
            check.feed(part)
            yield from check.failures
            check.failures.clear()


class LoadCheck:
    """Finds the partitions of a topic that a coordinator does not load, see `load_failures`, while others read it."""

    def __init__(self, log_dir: LogDir, topic: str, *, damage: bool = False, is_old: bool = False) -> None:
        self._log_dir, self._topic, self._damage, self._is_old = log_dir, topic, damage, is_old
        self._replays: dict[int, GroupReplay | None] = {}
        self.failures: list[Finding] = []

    def feed(self, part: TopicRecords) -> None:
        """Replay the next records of a partition."""
        replay = self._replays.setdefault(part.partition, GroupReplay(is_old=self._is_old))
        if replay is None or not part.columns.n_records:
            return
        try:
            _replay(replay, part, self._topic)
        except _StopsAt as stop:
            self._replays[part.partition] = None
            where = TopicPartition(self._topic, part.partition)
            verb = "does not load" if self._topic == CONSUMER_OFFSETS else "stops loading"
            detail = f"a coordinator {verb} {where}: offset {stop.offset}: {stop.why}. {_ADVICE[self._topic]}"
            path = str(self._log_dir.path_of(where).path)
            found = Finding(Reason.INTERNAL_RECORD, detail, path, base_offset=stop.offset, damage=self._damage)
            self.failures.append(found)


class _StopsAt(ValueError):
    def __init__(self, offset: int, why: str) -> None:
        super().__init__(why)
        self.offset, self.why = offset, why


def _replay(replay: GroupReplay, part: TopicRecords, topic: str) -> None:
    """Replay some records; raises _StopsAt."""
    columns = part.columns
    keys, values = columns["key"], columns["value"]
    assert isinstance(keys, BinaryColumn)
    assert isinstance(values, BinaryColumn)
    is_other, commits = np.ones(columns.n_records, np.bool_), None
    if topic == CONSUMER_OFFSETS:
        is_commit, commits = read_commits(keys, values)
        is_other = ~is_commit
    if "is_control" in columns:
        is_other &= ~np.asarray(columns["is_control"])
    rows = np.flatnonzero(is_other)
    records = [*_decoded(topic, columns.take(rows))]
    if commits is None:
        _check_states(records)
        return
    # of groups with other records too, the order counts
    names = {_group_of(one) for _, one in records if isinstance(one, InternalRecord)}
    coded = commits.group.dictionary_encode()
    is_mixed = pc.is_in(coded.dictionary, pa.array([*names], coded.dictionary.type)).take(coded.indices)
    events: list[tuple[int, int, Any]] = [(row, *one) for row, one in zip(rows.tolist(), records, strict=True)]
    places = np.flatnonzero(np.asarray(is_mixed))
    commit_rows = np.flatnonzero(is_commit)[places].tolist()
    events += [(row, 0, name) for row, name in zip(commit_rows, commits.group.take(places).to_pylist(), strict=True)]
    for _, offset, record in sorted(events, key=lambda event: event[0]):
        if isinstance(record, str):
            replay.commit(record)
        else:
            _apply(replay, offset, record)
    for name in coded.dictionary.to_pylist():
        if name not in names:
            replay.commit(name)


def _apply(replay: GroupReplay, offset: int, record: InternalRecord | MessageError | None) -> None:
    """Replay a record that is no commit; raises _StopsAt."""
    try:
        if isinstance(record, MessageError):
            raise record
        if record is not None:
            replay.apply(record)
    except (MessageError, ReplayError) as error:
        raise _StopsAt(offset, str(error)) from error


def _decoded(topic: str, columns: RecordColumns) -> Iterator[tuple[int, InternalRecord | MessageError | None]]:
    """Offset and record of each row; the error if it cannot be decoded, None for a type that is not known."""
    lists = [listed(columns[name]) for name in ("offset", "key", "value")]
    for offset, key, value in zip(*lists, strict=True):
        try:
            yield offset, decode_record(topic, key, value)
        except UnknownVersionError as error:
            # a coordinator passes over a type that it does not know, that of transactions over a version as well
            is_passed_over = isinstance(error, UnknownTypeError) or topic == TRANSACTION_STATE
            yield offset, None if is_passed_over else error
        except MessageError as error:
            yield offset, error


def _group_of(record: InternalRecord) -> str:
    key = record.key or {}
    name: str = key["group"] if "group" in key else key["groupId"]
    return name


def _check_states(records: Iterable[tuple[int, InternalRecord | MessageError | None]]) -> None:
    """Check what a transaction coordinator reads; raises _StopsAt."""
    for offset, record in records:
        if isinstance(record, MessageError):
            raise _StopsAt(offset, str(record))
        value = None if record is None else record.value
        if value is not None and value["transactionStatus"] not in TRANSACTION_STATES:
            raise _StopsAt(offset, f"unknown transaction state {value['transactionStatus']}")
