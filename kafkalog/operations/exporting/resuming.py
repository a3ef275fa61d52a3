"""Exports that add to what earlier exports wrote: each adds only what is new in the log, exactly once.

Up to which offset each partition was exported is kept with the output, and changes in the same step that makes the new
records appear. How that is done differs: see `ResumedDirectory`, `RemoteExport`, `ResumedDelta` and `ResumedIceberg`.
`TableRows` converts records to the types of a table.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from kafkalog import format as kf
from kafkalog.errors import FileChangedError, Finding, KafkalogError, ReadError, Reason, SidecarError, WriteError
from kafkalog.interchange.table_types import Conversion, evolved_schema, stored_schema, without_nulls
from kafkalog.log.partition import Partition
from kafkalog.log.searching.missing import offsets_finding
from kafkalog.operations.exporting.last_batch import LastBatch
from kafkalog.operations.exporting.partitioned_files import NO_DAY, days_of
from kafkalog.operations.exporting.parts import PartWriter, WrittenPart
from kafkalog.scanning.query import Query
from kafkalog.scanning.scan import Scan
from kafkalog.text import offset_range

_NOT_RESULT: Final = frozenset(
    {"batch_size", "limits", "memory_map", "on_corruption", "storage_options", "threads", "window_bytes"}
)
_DEFAULTS: Final = {**{field.name: repr(field.default) for field in dataclasses.fields(Query)}, "internal": "False"}
_NOT_RESUMED: Final = ("start_offset", "end_offset", "limit", "where", "extract")


def check_options(options: Mapping[str, Any]) -> None:
    """Raise ValueError for an option of the scan that an export which is continued cannot have."""
    given = [name for name in _NOT_RESUMED if options.get(name) is not None]
    if given:
        raise ValueError(f"resume exports the new records of each partition, so it excludes {given[0]}")


def _settings_of(options: Mapping[str, Any]) -> dict[str, str]:
    """The options of a scan that change its rows, as text; without those that have their default."""
    given = {name: repr(value) for name, value in options.items() if value is not None and name not in _NOT_RESULT}
    return {name: _listed(value) for name, value in given.items() if value != _DEFAULTS.get(name)}


def _listed(value: str) -> str:
    """The text of an option; a single name as the list with it, which the command makes of it."""
    return f"[{value}]" if value.startswith(("'", '"')) else value


class Resumption(ABC):
    """One run that continues an export to `where`.

    `old` is the manifest of the last run: `n_runs`, `settings`, and of each partition `next_offset`, `topic_id` and
    `last_batch`, the fields of a `LastBatch`.
    `findings` has offsets that the log deleted before they were exported.
    """

    def __init__(self, where: str, old: dict[str, Any] | None) -> None:
        self.where = where
        self.findings: list[Finding] = []
        self.old: dict[str, Any] = old or {"version": 1, "n_runs": 0, "partitions": {}}
        self.new: dict[str, Any] = {}

    @property
    def n_run(self) -> int:
        """How many runs there were before."""
        return int(self.old["n_runs"])

    @property
    def is_changed(self) -> bool:
        """Whether the log has offsets that no run has exported; after `begin`."""
        return bool(self.new["partitions"] != self.old["partitions"])

    @abstractmethod
    def close(self) -> None:
        """Give back what is held until the run is done."""

    def known(self, key: str) -> dict[str, Any] | None:
        """What the manifest says of a partition after the last run; None if it was not exported."""
        found: dict[str, Any] | None = self.old["partitions"].get(key)
        return found

    def begin(self, scan: Scan, options: Mapping[str, Any], output: Mapping[str, Any]) -> dict[str, Any]:
        """Compare the options with those of the earlier runs; return the options of a scan of what is new.

        `scan` is one of everything, `options` are as the caller passed them, and `output` decides how the output looks.
        Raises ValueError if earlier runs had other options. Raises FileChangedError if a log ends before what was
        exported of it, has other records at these offsets, or if its topic is another one.
        """
        settings = {**output, **_settings_of(options)}
        # an earlier version also kept options that have their default
        kept = self.old.get("settings", settings).items()
        before = {
            name: _listed(value) if isinstance(value, str) else value
            for name, value in kept
            if value != _DEFAULTS.get(name)
        }
        for name in sorted({*settings, *before}):
            if settings.get(name) != before.get(name):
                was, now = before.get(name), settings.get(name)
                raise ValueError(f"{name} must match the first export: expected {was}, not {now}")
        starts: dict[kf.TopicPartition, int] = {}
        ends: dict[kf.TopicPartition, int] = {}
        done: dict[str, Any] = {**self.old["partitions"]}
        is_committed = options.get("isolation_level") == "read_committed"
        for key, partition in scan.partitions():
            if key is None:
                raise ValueError(f"resume needs directories that are named after a partition, not {partition.path}")
            # later offsets may still be aborted: a later run exports them
            end = partition.last_stable_offset if is_committed else partition.log_end_offset
            starts[key] = self._start(partition, self.known(str(key)), end)
            ends[key] = end
            done[str(key)] = self._done(partition, self.known(str(key)), end)
        gone = sorted(self.old["partitions"].keys() - {str(key) for key in starts})
        if gone:
            detail = f"{', '.join(gone[:20])}: exported before, but not in the log now; nothing is added for these"
            self.findings.append(Finding(Reason.FILE_CHANGED, detail, damage=False))
        kept_columns = {name: self.old[name] for name in ("columns",) if name in self.old}
        self.new = {"version": 1, "n_runs": self.n_run + 1, "settings": settings, "partitions": done, **kept_columns}
        return {"start_offset": starts, "end_offset": ends}

    def evolved(self, schema: pa.Schema) -> pa.Schema:
        """The columns of new files: those of earlier ones, and new fields. The manifest keeps them."""
        # readers take the types of one file, and no other type can be read as null
        schema = pa.schema(without_nulls(pa.struct(list(schema))))
        text = self.old.get("columns")
        if text is not None:
            schema = evolved_schema(pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text))), schema)
        self.new["columns"] = base64.b64encode(schema.serialize()).decode("ascii")
        return schema

    def _start(self, partition: Partition, done: dict[str, Any] | None, end: int) -> int:
        if done is None:
            return partition.log_start_offset
        start, known = int(done["next_offset"]), done.get("topic_id")
        where: dict[str, Any] = {"path": str(partition.path), "base_offset": start}
        # its offsets begin at 0 again, so that they say nothing of what was exported
        problem = None
        if known and partition.topic_id and known != partition.topic_id:
            problem = f"its topic was created again since the export: its id is {partition.topic_id}, and was {known}"
        elif end < start:
            problem = f"the log ends at {end}, and was exported up to {start}: it was truncated, or created again"
        if problem is not None:
            raise FileChangedError(Reason.FILE_CHANGED, f"{problem}. Name another output", **where)
        if (batch := LastBatch.of(done)) is not None:
            batch.check(partition, start)
        first = partition.log_start_offset
        if first > start:
            detail = f"offsets {offset_range(start, first)} were deleted from the log before they were exported"
            path = str(partition.path)
            self.findings.append(offsets_finding(Reason.OFFSET_GAP, detail, path, start, first, damage=False))
        return max(start, first)

    @staticmethod
    def _done(partition: Partition, before: dict[str, Any] | None, end: int) -> dict[str, Any]:
        """The manifest's entry for a partition that is exported up to `end`."""
        entry: dict[str, Any] = {"next_offset": end, "topic_id": partition.topic_id}
        if before is not None and before["next_offset"] == end and before.get("last_batch") is not None:
            # as it was exported: a cleaner may have changed it since
            return {**entry, "last_batch": before["last_batch"]}
        batch = LastBatch.before(partition, end)
        return entry if batch is None else {**entry, "last_batch": batch._asdict()}


class ResumedTable(Resumption):
    """A run that adds rows to a table."""

    @abstractmethod
    def append(self, spread: Callable[[PartWriter], list[WrittenPart]], rows: RowOptions) -> list[WrittenPart]:
        """Add the records of the new ranges to the table, and with them what was exported; all of it or nothing.

        `spread` writes the data files. Raises WriteError if the table could not be written, or if something else wrote
        to it meanwhile.
        """


class RowOptions(NamedTuple):
    """How the rows of a table are made."""

    schema: pa.Schema
    """The wanted columns."""
    keys: tuple[str, ...]
    """By which a new table is partitioned."""
    max_directories: int


def first_line(error: BaseException) -> str:
    """The message of an error of a table's library without the stack that some have."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


@contextlib.contextmanager
def reading_table(where: str) -> Iterator[None]:
    """Turn what the library of a table raises into a `ReadError`."""
    try:
        yield
    except (KafkalogError, ValueError, ImportError):
        raise
    except Exception as error:  # the errors of catalogs and object stores have no type in common
        raise ReadError(Reason.FILE_UNREADABLE, f"the table cannot be read: {first_line(error)}", path=where) from error


@contextlib.contextmanager
def writing_table(where: str, conflict: type[Exception]) -> Iterator[None]:
    """Turn what the library of a table raises into a `WriteError`; `conflict` is raised if something else wrote."""
    try:
        yield
    except (KafkalogError, ValueError):
        raise
    except conflict as error:
        detail = f"nothing was added: another process wrote to the table; run it again ({first_line(error)})"
        raise WriteError(Reason.WRITE_FAILED, detail, path=where) from error
    except Exception as error:
        detail = f"the write failed; the next run detects whether rows were added: {first_line(error)}"
        raise WriteError(Reason.WRITE_FAILED, detail, path=where) from error


def manifest_of(text: str | bytes, path: Any) -> dict[str, Any]:
    """The JSON object that an export left with its output; SidecarError for something else."""
    try:
        found: dict[str, Any] = json.loads(text)
        is_ours = isinstance(found, dict) and (
            (isinstance(found.get("partitions"), dict) and isinstance(found.get("n_runs"), int)) or "manifest" in found
        )
        if not is_ours:
            raise ValueError("fields are missing")
    except ValueError as error:
        raise SidecarError(Reason.CHECKPOINT_SYNTAX, f"not a manifest of an export: {error}", path=path) from error
    return found


_DATE: Final = pa.field("date", pa.date32())


class TableRows:
    """Makes the rows of a Delta or Iceberg table from records with the columns of `schema`.

    `known` has the columns of a table that exists: they stay, and new ones follow. Raises ValueError or UnwritableError
    if the table cannot have two of the columns.
    """

    def __init__(
        self, schema: pa.Schema, target: str, known: pa.Schema | None = None, *, with_date: bool = False
    ) -> None:
        self._with_date, self._target = with_date, target
        if with_date:
            if _DATE.name in schema.names:
                raise ValueError("partition_by date adds a column date, but the table already has one")
            schema = schema.append(_DATE)
        self.schema = stored_schema(schema, target)
        if known is not None:
            # checked again: a new field may differ from an old one by case only
            known = evolved_schema(stored_schema(known, target), self.schema, widens=target == "iceberg")
            self.schema = stored_schema(known, target)
        self._conversion = Conversion(self.schema, target)

    @property
    def lost(self) -> Counter[tuple[tuple[str, ...], str]]:
        """Values of the records that the rows cannot hold; see `Conversion`."""
        return self._conversion.lost

    def of_part(self) -> TableRows:
        """The same, which counts what is lost by itself."""
        part = copy(self)
        part._conversion = Conversion(self.schema, self._target)
        return part

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for a record batch of the scan."""
        if self._with_date:
            days = days_of(batch.column("timestamp"))
            dates = pa.array(days.astype(np.int32), pa.int32(), mask=days == NO_DAY).cast(_DATE.type)
            batch = pa.RecordBatch.from_arrays([*batch.columns, dates], schema=batch.schema.append(_DATE))
        return self._conversion.of(batch)
