"""Coordinators' topics in a boot: committed offsets and transactional ids that survive, or offsets from a file.

A group or transactional id belongs to one partition of its topic, by a hash of its name. So the topic has to keep its
number of partitions exactly. Mirrors `GroupCoordinator.partitionFor` and `OffsetCommitValue`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np

from kafkalog import format as kf
from kafkalog.booting.sources import Copy
from kafkalog.errors import Finding, Limits
from kafkalog.log.log_dir import LogDir
from kafkalog.protocol.encoder import encode_keyed_record
from kafkalog.protocol.printed import java_hash
from kafkalog.records.byte_columns import BinaryColumn
from kafkalog.records.columns import RecordColumns
from kafkalog.system_topics.commits_file import Commit, commits_of
from kafkalog.system_topics.coordinator_load import load_failures
from kafkalog.system_topics.group_types import GROUP_TYPES
from kafkalog.system_topics.groups import groups, load_groups
from kafkalog.system_topics.reading import AsOf
from kafkalog.system_topics.replay import decoded_records
from kafkalog.system_topics.transactions import Transaction, transactions
from kafkalog.writing.partition_writer import PartitionWriter

DEFAULT_PARTITIONS: Final = 50
"""Default of `offsets.topic.num.partitions` and its like."""
_MOST_PARTITIONS: Final = 1000
_ENOUGH_NAMES: Final = 3


@dataclass(slots=True)
class CoordinatorState:
    """The content of the coordinators' topics in the sources."""

    commits: list[Commit] = field(default_factory=list)
    transactions: list[Transaction] = field(default_factory=list)
    expiring: dict[str, int] = field(default_factory=dict)
    """Groups with commits that a broker deletes at a time of their own, and the first of these times in ms."""
    expiring_commits: dict[int, list[Commit]] = field(default_factory=dict)
    """These commits, by partition of `__consumer_offsets`."""
    producer_id: int = -1
    """The highest one in a record of `__transaction_state`, replaced records among them."""
    names: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    """Groups or transactional ids by topic and partition."""
    findings: list[Finding] = field(default_factory=list)
    unloaded: list[Finding] = field(default_factory=list)
    """Partitions that no coordinator loads."""

    @classmethod
    def read(cls, copies: Iterable[Copy], limits: Limits) -> CoordinatorState:
        """Read the partitions of coordinators' topics among some copies."""
        found = cls()
        for copy in copies:
            topic, number = copy.key
            if topic not in (kf.CONSUMER_OFFSETS, kf.TRANSACTION_STATE):
                continue
            names = found.names.setdefault(topic, {}).setdefault(number, [])
            log_dir = LogDir(copy.path, limits=limits)
            if topic == kf.CONSUMER_OFFSETS:
                there, unloaded = load_groups(log_dir, AsOf())
                found.unloaded += [replace(one, damage=True) for one in unloaded]
                found.findings += there.findings
                names += [group.name for group in there]
                found.commits += commits_of(there)
                for group in there:
                    offsets = [one for one in group.offsets if one.expire_timestamp is not None]
                    if offsets:
                        found.expiring[group.name] = min(one.expire_timestamp or 0 for one in offsets)
                        commits = commits_of([replace(group, offsets=offsets)])
                        found.expiring_commits.setdefault(number, []).extend(commits)
            else:
                found.unloaded += load_failures(log_dir, damage=True)
                known = transactions(log_dir, read_partitions=False)
                found.findings += known.findings
                names += [one.transactional_id for one in known if one.transactional_id is not None]
                found.transactions += known
                found.producer_id = max(found.producer_id, highest_transactional_id(log_dir))
        return found

    def n_partitions(self, topic: str, n_known: int) -> int:
        """Return the partition count of a coordinators' topic with which every name hashes to its partition.

        `n_known` is the count that the directories imply.
        """
        names = self.names.get(topic, {})
        n_names = sum(map(len, names.values()))

        def fits(n: int) -> bool:
            return all(coordinator_partition(name, n) == at for at, some in names.items() for name in some)

        # few partitions of many fit either number: enough names tell them apart
        if (
            n_known < DEFAULT_PARTITIONS
            and (n_names >= _ENOUGH_NAMES or not fits(n_known))
            and fits(DEFAULT_PARTITIONS)
        ):
            return DEFAULT_PARTITIONS
        return next(filter(fits, range(n_known, _MOST_PARTITIONS)), n_known)


def share_groups(copies: Iterable[Copy], limits: Limits) -> list[str]:
    """The share groups in partitions of `__consumer_offsets`, sorted."""
    return sorted(
        {
            group.name
            for copy in copies
            for group in groups(LogDir(copy.path, limits=limits))
            if not GROUP_TYPES[group.type].commits_offsets
        }
    )


def highest_transactional_id(log_dir: LogDir) -> int:
    """The highest producer id that a transaction coordinator has used, or has kept for later; -1 for none."""
    names = ("producerId", "previousProducerId", "nextProducerId")
    values = (one.value or {} for one in decoded_records(log_dir, kf.TRANSACTION_STATE, AsOf(), lambda finding: None))
    return max((value.get(name, -1) for value in values for name in names), default=-1)


def coordinator_partition(name: str, n_partitions: int) -> int:
    """The partition of a coordinators' topic that a group or transactional id belongs to.

    Source: Utils.abs(String.hashCode()) % partitions, GroupCoordinatorService.partitionFor, Kafka 4.3.
    """
    number = java_hash(name)
    number -= (number >> 31) << 32
    # Java has no positive number for the smallest one
    return 0 if number == -(2**31) else abs(number) % n_partitions


def by_partition(commits: Iterable[Commit], n_partitions: int) -> dict[int, list[Commit]]:
    """Committed offsets by the partition of `__consumer_offsets` that they belong to."""
    found: dict[int, list[Commit]] = {}
    for commit in commits:
        found.setdefault(coordinator_partition(commit.group, n_partitions), []).append(commit)
    return found


def write_commits(directory: Path, partitions: Mapping[int, Sequence[Commit]], topic_id: str, now_ms: int) -> None:
    """Write committed offsets as partitions of `__consumer_offsets`.

    No record of a group's members is needed: the group is empty, and a consumer of either protocol takes it over.
    """
    for number, some in sorted(partitions.items()):
        path = directory / f"{kf.CONSUMER_OFFSETS}-{number}"
        with PartitionWriter(path, topic_id=topic_id, leader_epoch=0) as writer:
            writer.append(_commit_records(some, now_ms))


def append_commits(directory: Path, commits: Sequence[Commit], now_ms: int) -> int:
    """Append committed offsets to a partition of `__consumer_offsets`, and return the offset after them.

    As newer records, they replace older ones.
    """
    with PartitionWriter(directory) as writer:
        writer.append(_commit_records(commits, now_ms))
        return writer.next_offset


def _commit_records(commits: Sequence[Commit], now_ms: int) -> RecordColumns:
    """The records of commits, in the version that has no time of expiry."""
    pairs = [
        encode_keyed_record(
            "OffsetCommit",
            3,
            {"group": one.group, "topic": one.topic, "partition": one.partition},
            {
                "offset": one.offset,
                "leaderEpoch": one.leader_epoch,
                "metadata": one.metadata,
                "commitTimestamp": now_ms if one.commit_timestamp is None else one.commit_timestamp,
            },
        )
        for one in commits
    ]
    return RecordColumns(
        len(pairs),
        {
            "timestamp": np.full(len(pairs), now_ms, np.int64),
            "key": BinaryColumn.of([key for key, _ in pairs]),
            "value": BinaryColumn.of([value for _, value in pairs]),
        },
    )
