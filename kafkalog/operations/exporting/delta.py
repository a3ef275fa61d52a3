"""Exports into a Delta table (with the package `deltalake`).

Of each partition the table's log has a transaction of the application ``kafkalog TOPIC-PARTITION``, whose version is
the offset up to which it was exported. It is in the same commit as the rows, so rows and offset appear together or not
at all; a checkpoint of the table's log keeps it. A run commits only as the next version after the one that it read:
of two runs at a time, or where anything else wrote meanwhile, one fails and adds nothing. What a killed run leaves are
data files that no version of the table names; `VACUUM` removes them. Further transactions of a partition hold the
fields of its `LastBatch`.

The property `PROPERTY` of the table has the options of the export and the ids of the topics. It is set before the first
rows.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from functools import partial
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.types as pt

from kafkalog import format as kf
from kafkalog.errors import OutputExistsError, Reason, not_installed
from kafkalog.interchange.input_paths import NULL_DIRECTORY
from kafkalog.interchange.record_writers import OutputFormat, ParquetSink
from kafkalog.log.log_dir import located
from kafkalog.operations.exporting.last_batch import LastBatch
from kafkalog.operations.exporting.partitioned_files import PARTITION_KEYS, PartitionedFiles, split_by_directory
from kafkalog.operations.exporting.parts import PartWriter, WrittenPart, write_files
from kafkalog.operations.exporting.resuming import (
    ResumedTable,
    RowOptions,
    TableRows,
    manifest_of,
    reading_table,
    writing_table,
)
from kafkalog.scanning.scan import Scan
from kafkalog.storage.atomic import sync_files
from kafkalog.storage.location import Place, is_url, place_of
from kafkalog.storage.output_paths import is_occupied
from kafkalog.storage.uploads import files_in

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from pyarrow.parquet import FileMetaData

PROPERTY: Final = "kafkalog.export"
"""The property of a table that kafkalog exports to."""

_APPLICATION: Final = "kafkalog"
_MOST_COLUMNS: Final = 32
"""Columns with statistics, as Delta's default of `delta.dataSkippingNumIndexedCols`."""
_MOST_CHARACTERS: Final = 256
_FILE_BYTES: Final = 2**27
"""Bytes after which a data file ends."""
_FORGETS: Final = "delta.setTransactionRetentionDuration"


def rows_of_others(where: str) -> OutputExistsError:
    """The error about a table whose rows are from something else than exports with `resume`."""
    detail = f"the table has rows, but not from an export with resume: it has no property {PROPERTY}"
    return OutputExistsError(Reason.OUTPUT_EXISTS, detail, path=where)


class ResumedDelta(ResumedTable):
    """A run that adds rows to a Delta table: a directory or a URL, which is made if it does not exist.

    Raises OutputExistsError for another table with rows, or for files.
    """

    def __init__(self, target: str, storage_options: Mapping[str, Any] | None = None) -> None:
        try:
            from deltalake import DeltaTable
        except ImportError as error:
            raise ImportError(not_installed("an export to Delta needs deltalake", "delta")) from error
        self._target = target
        self._options = _options_of_store(target, storage_options)
        self._place = place_of(located(target, storage_options))
        self._table: DeltaTable | None = None
        old = None
        with reading_table(target):
            if DeltaTable.is_deltatable(target, self._options):
                self._table = DeltaTable(target, storage_options=self._options)
        if self._table is not None:
            settings = self._table.metadata().configuration
            if _FORGETS in settings:
                raise ValueError(
                    f"{target}: remove its property {_FORGETS}, which deletes the offsets of earlier exports"
                )
            if PROPERTY in settings:
                old = manifest_of(settings[PROPERTY], target)
            elif self._table.get_add_actions().num_rows:
                raise rows_of_others(target)
        elif is_occupied(Path(target)):
            raise OutputExistsError(
                Reason.OUTPUT_EXISTS, "exists, but is not a Delta table; name another output", path=target
            )
        super().__init__(target, old)

    def close(self) -> None:
        """Do nothing: the table is locked by nobody."""

    @property
    def is_changed(self) -> bool:
        """Whether the log has offsets that no run has exported; after `begin`."""
        return bool(self._changed())

    def known(self, key: str) -> dict[str, Any] | None:
        """What the table says of a partition after the last run; None if it was not exported."""
        if self._table is None or (offset := self._table.transaction_version(f"{_APPLICATION} {key}")) is None:
            return None
        known: dict[str, Any] = {
            "next_offset": offset,
            "topic_id": self.old.get("topic_ids", {}).get(_topic(key)),
        }
        fields = {name: self._table.transaction_version(f"{_APPLICATION} {key} {name}") for name in LastBatch._fields}
        # those of an earlier run, if the last one had no such batch
        last = fields["last_offset"]
        if last is not None and last >= offset - 1:
            known["last_batch"] = fields
        return known

    def _changed(self) -> dict[str, int]:
        """The next offset of each partition that has another one, or another topic, than at the end of the last run."""
        changed = {}
        for key, at in self.new["partitions"].items():
            known = self.known(key) or {"next_offset": None, "topic_id": None}
            is_other = None not in (at["topic_id"], known["topic_id"]) and at["topic_id"] != known["topic_id"]
            if is_other or known["next_offset"] != at["next_offset"]:
                changed[key] = int(at["next_offset"])
        return changed

    def append(self, spread: Callable[[PartWriter], list[WrittenPart]], rows: RowOptions) -> list[WrittenPart]:
        from deltalake import CommitProperties, Transaction
        from deltalake.exceptions import CommitFailedError
        from deltalake.transaction import AddAction, RemoveAction

        known = None if self._table is None else pa.schema(self._table.schema().to_arrow())
        made = TableRows(rows.schema, "delta", known, with_date="date" in rows.keys)
        changed = self._changed()
        was_free = self._table is None and not os.path.lexists(self._target)
        first_version = 0 if self._table is None else self._table.version() + 1
        is_done = False
        try:
            with writing_table(self._target, CommitFailedError):
                table = self._prepared(made.schema, rows.keys)
            keys = _partition_keys(table)
            parts = spread(DeltaWriter(self._place, made, keys, rows.max_directories))
            now = int(time.time() * 1000)
            added: list[AddAction | RemoveAction] = [
                AddAction(path, size, values, now, True, text)
                for one in parts
                for path, (size, values, text) in one.files.items()
            ]
            with writing_table(self._target, CommitFailedError):
                table.create_write_transaction(
                    added,
                    "append",
                    table.schema(),
                    list(keys),
                    commit_properties=CommitProperties(
                        app_transactions=[
                            Transaction(f"{_APPLICATION} {name}", version)
                            for key in changed
                            for name, version in self._versions(key)
                        ],
                        max_commit_retries=0,
                    ),
                )
                is_done = True
                table.update_incremental()
        finally:
            # a table that another process has made meanwhile is not ours to remove
            if was_free and self._table is not None and not is_done and os.path.isdir(self._target):
                shutil.rmtree(self._target, ignore_errors=True)
        self._sync([one.path for one in added], first_version)
        return parts

    def _prepared(self, schema: pa.Schema, keys: tuple[str, ...]) -> DeltaTable:
        """The table with all columns and the property: commits of their own, which without rows do no harm."""
        from deltalake import CommitProperties, DeltaTable, write_deltalake

        once = CommitProperties(max_commit_retries=0)
        if self._table is None:
            options: dict[str, Any] = {"raise_if_key_not_exists": False, "storage_options": self._options}
            self._table = DeltaTable.create(
                self._target, schema, partition_by=list(keys), configuration=self._property(), **options
            )
            return self._table
        if self._property()[PROPERTY] != self._table.metadata().configuration.get(PROPERTY):
            self._table.alter.set_table_properties(self._property(), raise_if_not_exists=False, commit_properties=once)
        if pa.schema(self._table.schema().to_arrow()) != schema:
            nothing = pa.RecordBatchReader.from_batches(schema, [])
            write_deltalake(self._table, nothing, mode="append", schema_mode="merge", commit_properties=once)
        return self._table

    def _versions(self, key: str) -> Iterator[tuple[str, int]]:
        """The transactions that say what of a partition is exported."""
        entry = self.new["partitions"][key]
        yield key, int(entry["next_offset"])
        for name, number in (entry.get("last_batch") or {}).items():
            yield f"{key} {name}", number

    def _sync(self, added: Sequence[str], first_version: int) -> None:
        """Make what was added to a local table durable, which its library does not."""
        if self._table is not None and "://" not in self._target:
            log = [f"_delta_log/{version:020d}.json" for version in range(first_version, self._table.version() + 1)]
            # the names are those of URLs
            sync_files(Path(self._target), {*added, *map(unquote, added), *log})

    def _property(self) -> dict[str, str]:
        """The property for the table, with the options and the topics of this run."""
        ids = {_topic(key): at["topic_id"] for key, at in self.new["partitions"].items() if at["topic_id"]}
        told = {"version": 1, "n_runs": 0, "partitions": {}, "settings": self.new["settings"]}
        return {PROPERTY: json.dumps({**told, "topic_ids": {**self.old.get("topic_ids", {}), **ids}}, sort_keys=True)}


@dataclass(frozen=True, slots=True)
class DeltaWriter:
    """Writes data files of a Delta table. Of each there are its size, the values of its partition and statistics."""

    target: Place
    rows: TableRows
    keys: tuple[str, ...]
    max_directories: int

    def write(self, scan: Scan) -> WrittenPart:
        """Write the records of a scan."""
        rows = self.rows.of_part()
        schema = pa.schema([field for field in rows.schema if field.name not in self.keys])
        # no version of the table names the files yet
        directory = files_in(self.target)
        values: dict[str, dict[str, str | None]] = {}
        files = PartitionedFiles(
            directory,
            schema,
            OutputFormat("parquet"),
            self.max_directories,
            f"part-{uuid.uuid4()}",
            max_file_bytes=_FILE_BYTES,
            describe=lambda sink: (sink.n_bytes, _statistics(cast(ParquetSink, sink).metadata, schema)),
        )
        try:
            part = write_files(scan, files, partial(self._split, rows, values))
        except BaseException:
            directory.discard()
            raise
        part.lost = rows.lost
        part.files = {path: (size, values[path.rpartition("/")[0]], text) for path, (size, text) in part.files.items()}
        return part

    def _split(
        self, rows: TableRows, values: dict[str, dict[str, str | None]], batch: pa.RecordBatch
    ) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Rows by directory; `values` gets those of the partition columns there."""
        if not {*self.keys} <= {*PARTITION_KEYS}:
            yield from _by_values(rows.of(batch), self.keys, values)
            return
        for directory, part in split_by_directory(batch, self.keys):
            pairs = (name.partition("=") for name in directory.split("/") if name)
            values[directory] = {name: None if value == NULL_DIRECTORY else value for name, _, value in pairs}
            yield directory, rows.of(part)


def _by_values(
    rows: pa.RecordBatch, keys: Sequence[str], values: dict[str, dict[str, str | None]]
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Rows by the values of other columns: the table is one of the user, which keeps its partitioning."""
    groups: dict[tuple[str | None, ...], list[int]] = {}
    for number, texts in enumerate(zip(*(_texts(rows.column(name)) for name in keys), strict=True)):
        groups.setdefault(texts, []).append(number)
    for texts, numbers in groups.items():
        # a directory has any name: the table's log has the values
        directory = hashlib.blake2b(repr(texts).encode(), digest_size=8).hexdigest()
        values[directory] = dict(zip(keys, texts, strict=True))
        yield directory, rows.take(pa.array(numbers, pa.int64()))


def _texts(column: pa.Array) -> list[str | None]:
    """Values as Delta's log writes those of partitions."""
    kind = column.type
    if pt.is_boolean(kind):
        return [None if value is None else str(value).lower() for value in column.to_pylist()]
    if not (pt.is_string(kind) or pt.is_integer(kind) or pt.is_date32(kind) or pt.is_decimal(kind)):
        raise ValueError(f"the Delta table is partitioned by a column of {kind}, which kafkalog does not write")
    # to Delta an empty text is null
    return [None if value is None else str(value) or None for value in column.to_pylist()]


def _statistics(metadata: FileMetaData, schema: pa.Schema) -> str:
    """The statistics of a data file for the table's log, by which readers skip files; from its footer.

    There are bounds of whole numbers, text, dates and times. Floats have none, as Parquet leaves out NaN. Decimals have
    none, as readers of JSON round them.
    """
    lowest: dict[str, Any] = {}
    highest: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    columns = enumerate(itertools.islice(_leaves(pa.struct(list(schema)), ()), _MOST_COLUMNS))
    for number, (path, kind) in columns:
        groups = [metadata.row_group(at).column(number).statistics for at in range(metadata.num_row_groups)]
        # a nested value may have several of a column
        if path is None or not all(one is not None and one.has_null_count for one in groups):
            continue
        _put(nulls, path, sum(one.null_count for one in groups))
        # a group of nulls alone has no bounds, but neither has one of values that are too long
        bounded = [one for one in groups if one.num_values]
        if bounded and all(one.has_min_max for one in bounded):
            _put(lowest, path, _shown(min(map(attrgetter("min_raw"), bounded)), kind))
            _put(highest, path, _shown(max(map(attrgetter("max_raw"), bounded)), kind))
    found = {"numRecords": metadata.num_rows, "minValues": lowest, "maxValues": highest, "nullCount": nulls}
    return json.dumps(found)


def _leaves(kind: pa.DataType, path: tuple[str, ...] | None) -> Iterator[tuple[tuple[str, ...] | None, pa.DataType]]:
    """The columns of Parquet that a type becomes, in order; without a path if several values may belong to a row."""
    if pt.is_struct(kind):
        for field in kind:
            yield from _leaves(field.type, None if path is None else (*path, field.name))
    elif pt.is_map(kind):
        yield from _leaves(kind.key_type, None)
        yield from _leaves(kind.item_type, None)
    elif pt.is_list(kind):
        yield from _leaves(kind.value_type, None)
    else:
        yield path, kind


def _put(where: dict[str, Any], path: tuple[str, ...], value: Any) -> None:
    if value is None:
        return
    for name in path[:-1]:
        where = where.setdefault(name, {})
    where[path[-1]] = value


def _shown(raw: Any, kind: pa.DataType) -> Any:
    """A bound as Delta writes it; None if it has no form there, so that readers skip nothing."""
    if pt.is_integer(kind):
        return raw
    if pt.is_string(kind):
        text = raw.decode() if isinstance(raw, bytes) else raw
        return text if len(text) <= _MOST_CHARACTERS else None
    try:
        if pt.is_date32(kind):
            return (date(1970, 1, 1) + timedelta(days=raw)).isoformat()
        if pt.is_timestamp(kind):
            moment = datetime(1970, 1, 1) + timedelta(microseconds=raw)
            return moment.isoformat(timespec="microseconds") + ("Z" if kind.tz else "")
    except OverflowError:
        return None  # not in the years 1 to 9999
    return None


def _options_of_store(target: str, options: Mapping[str, Any] | None) -> dict[str, str] | None:
    """The options of a table's store; None for a local table."""
    if not is_url(target):
        return None
    from kafkalog.storage.stores import delta_options

    return delta_options(target, options or {})


def _partition_keys(table: DeltaTable) -> tuple[str, ...]:
    """The columns that a table is partitioned by; ValueError for a table with constraints."""
    about = table.metadata()
    keys = tuple(about.partition_columns)
    if rules := [name for name in about.configuration if name.startswith("delta.constraints.")]:
        raise ValueError(f"the Delta table has the constraint {rules[0]}, which kafkalog does not check: remove it")
    return keys


def _topic(key: str) -> str:
    directory = kf.parse_partition_directory(key)
    return key if directory is None else directory.topic_partition.topic
