"""Coordinators' topics in a boot: committed offsets and transactional ids that survive, or offsets from a file.

A group or transactional id belongs to one partition of its topic, by a hash of its name. So the topic has to keep its
number of partitions exactly. Mirrors `GroupCoordinator.partitionFor` and `OffsetCommitValue`.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from kafkalog import format as kf
from kafkalog.booting.sources import Copy
from kafkalog.errors import Finding, Limits, NotKafkaError, ReadError, Reason
from kafkalog.interchange.file_types import TEXT_FORMATS, file_type
from kafkalog.log.log_dir import LogDir
from kafkalog.parsing import parse_milliseconds
from kafkalog.protocol.encoder import encode_keyed_record
from kafkalog.protocol.printed import java_hash
from kafkalog.records.byte_columns import BinaryColumn
from kafkalog.records.columns import RecordColumns
from kafkalog.system_topics.coordinator_load import load_failures
from kafkalog.system_topics.groups import Group, groups
from kafkalog.system_topics.reading import AsOf
from kafkalog.system_topics.replay import decoded_records
from kafkalog.system_topics.transactions import Transaction, transactions
from kafkalog.writing.partition_writer import PartitionWriter

DEFAULT_PARTITIONS: Final = 50
"""Default of `offsets.topic.num.partitions` and its like."""
_MOST_PARTITIONS: Final = 1000
_ENOUGH_NAMES: Final = 3
FIELDS: Final = ("group", "topic", "partition", "offset", "leader_epoch", "metadata", "commit_timestamp")
"""The columns of a file with committed offsets; the last three are optional."""


@dataclass(frozen=True, slots=True)
class Commit:
    """A committed offset."""

    group: str
    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""
    commit_timestamp: int | None = None
    """In ms; None for the time of the boot."""

    @property
    def key(self) -> kf.TopicPartition:
        """The partition of the offset."""
        return kf.TopicPartition(self.topic, self.partition)


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
            found.unloaded += load_failures(log_dir, damage=True)
            if topic == kf.CONSUMER_OFFSETS:
                there = groups(log_dir)
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
        {group.name for copy in copies for group in groups(LogDir(copy.path, limits=limits)) if group.type == "share"}
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


def read_text(path: str | os.PathLike[str]) -> str:
    """Read a file of UTF-8 text; raises `ReadError`, or `NotKafkaError` if it is none."""
    try:
        return Path(path).read_bytes().decode("utf-8-sig")  # text mode would change line ends inside of values
    except OSError as error:
        raise ReadError.of(error, path) from error
    except UnicodeDecodeError as error:
        raise NotKafkaError(Reason.NOT_KAFKA, f"it is not UTF-8 text ({error.reason})", path=path) from error


def read_commits_file(path: str | os.PathLike[str]) -> list[Commit]:
    """Read committed offsets from JSON lines, or from CSV if the name ends so, also without a header, as Kafka has it.

    Raises NotKafkaError for a line that is none, and for two of the same group and partition.
    """
    text, found = read_text(path), dict[tuple[str, str, int], Commit]()
    for number, row in _csv_rows(text) if is_csv(path) else json_rows(text):
        try:
            commit = _commit(row)
        except (ValueError, TypeError, KeyError) as error:
            reason = f"{error} is missing" if isinstance(error, KeyError) else str(error)
            detail = f"line {number}: {reason}; each line needs {', '.join(FIELDS[:4])}"
            raise NotKafkaError(Reason.COLUMN_VALUE, detail, path=path) from error
        key = commit.group, *commit.key
        if key in found:
            detail = f"line {number}: group {commit.group!r} has two offsets for {commit.key}; keep one of them"
            raise NotKafkaError(Reason.COLUMN_TWICE, detail, path=path)
        found[key] = commit
    return [*found.values()]


def is_csv(path: str | os.PathLike[str]) -> bool:
    """Whether a file of committed offsets is CSV, by its name; raises ValueError for the name of another format."""
    format, packed = file_type(path)
    if packed or format not in (None, *TEXT_FORMATS) or Path(path).suffix.lower() in _OTHER_SUFFIXES:
        raise ValueError(f"committed offsets are JSON lines or CSV: end {Path(path).name} in .jsonl or .csv")
    return format == "csv"


_OTHER_SUFFIXES: Final = (".tsv", ".xml", ".yaml", ".yml", ".xlsx", ".txt")
"""Besides those of formats of records that are neither JSON lines nor CSV."""


def encode_commits(commits: Iterable[Commit], *, as_csv: bool = False) -> bytes:
    """Encode committed offsets as `read_commits_file` reads them."""
    rows = map(asdict, commits)
    if not as_csv:
        return "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, FIELDS)
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def encode_for_kafka(commits: Iterable[Commit]) -> bytes:
    """Encode committed offsets as ``kafka-consumer-groups --reset-offsets --from-file`` takes them: CSV, no header.

    Kafka takes lines without the group if one group is reset, and with it otherwise. Source: CsvUtils, Kafka 4.3.
    """
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerows(
        (one.group, one.topic, one.partition, one.offset) for one in commits
    )
    return text.getvalue().encode()


def commits_of(found: Iterable[Group]) -> list[Commit]:
    """The committed offsets of groups, without share groups, which have none."""
    return [
        Commit(group.name, *(getattr(one, name) for name in FIELDS[1:]))
        for group in found
        if group.type != "share"
        for one in group.offsets
    ]


def _csv_rows(text: str) -> Iterator[tuple[int, Any]]:
    first = next(csv.reader(io.StringIO(text, newline="")), [])
    # Kafka's own tool writes and reads no header
    names = FIELDS[:4] if len(first) == 4 and first[2].isdecimal() else None
    rows = csv.DictReader(io.StringIO(text, newline=""), names)
    for row in rows:
        yield (
            rows.line_num,
            {name: value for name, value in row.items() if value is not None and (value or name == "group")},
        )


def json_rows(text: str) -> Iterator[tuple[int, Any]]:
    """The objects of JSON lines with their numbers; None for a line that is none."""
    # not splitlines: JSON text may hold other line ends, such as U+2028
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            try:
                yield number, json.loads(line)
            except (ValueError, RecursionError):
                yield number, None


def _commit(row: Any) -> Commit:
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    _check_names(row)
    bits = {"partition": 31, "offset": 63, "leader_epoch": 31}
    numbers = {name: _whole(name, row[name], n) for name, n in bits.items() if row.get(name) is not None}
    if missing := {"partition", "offset"} - numbers.keys():
        raise KeyError(min(missing))
    time = row.get("commit_timestamp")
    if time is not None:
        time = int(time) if str(time).lstrip("-").isdecimal() else parse_milliseconds("commit_timestamp", time)
    metadata = row.get("metadata") or ""
    if not isinstance(metadata, str) or len(metadata.encode()) > _LONGEST_NAME:
        raise ValueError(f"metadata must be text of at most {_LONGEST_NAME} bytes")
    return Commit(row["group"], row["topic"], **numbers, metadata=metadata, commit_timestamp=time)


_LONGEST_NAME: Final = 32_767


def _check_names(row: dict[str, Any]) -> None:
    """Check the group and the topic of a commit; raises ValueError."""
    for name in ("group", "topic"):
        # brokers take the empty text for a group
        if not isinstance(row[name], str) or (name == "topic" and not row[name]):
            raise ValueError(f"{name} must be a name, not {row[name]!r}")
        if len(row[name].encode()) > _LONGEST_NAME:
            raise ValueError(f"{name} is longer than {_LONGEST_NAME} bytes")
    if kf.parse_partition_directory(f"{row['topic']}-0") is None:
        raise ValueError(f"{row['topic']!r} is not a topic name")


def _whole(name: str, value: Any, bits: int) -> int:
    least = -1 if name == "leader_epoch" else 0
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError(f"{name} must be a whole number, not {value!r}")
    number = int(value)
    if not least <= number < 2**bits:
        raise ValueError(f"{name} is out of range: {number}")
    return number


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
