"""Committed offsets of groups in a file: JSON lines or CSV, as `boot --groups` reads them, or CSV for Kafka's tool."""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from kafkalog import format as kf
from kafkalog.errors import NotKafkaError, ReadError, Reason
from kafkalog.interchange.file_types import TEXT_FORMATS, file_type
from kafkalog.parsing import parse_milliseconds
from kafkalog.system_topics.group_types import GROUP_TYPES
from kafkalog.system_topics.groups import Group

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
        if GROUP_TYPES[group.type].commits_offsets
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
