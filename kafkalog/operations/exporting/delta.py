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

import json
import os
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import unquote

import pyarrow as pa

from kafkalog import format as kf
from kafkalog.errors import OutputExistsError, Reason, WriteError
from kafkalog.operations.exporting.last_batch import LastBatch
from kafkalog.operations.exporting.resuming import (
    Exported,
    ResumedTable,
    TableRows,
    manifest_of,
    reading_table,
    writing_table,
)
from kafkalog.storage.atomic import sync_files
from kafkalog.storage.output_paths import is_occupied

if TYPE_CHECKING:
    from deltalake import DeltaTable

PROPERTY: Final = "kafkalog.export"
"""The property of a table that kafkalog exports to."""

_APPLICATION: Final = "kafkalog"
_FORGETS: Final = "delta.setTransactionRetentionDuration"


class ResumedDelta(ResumedTable):
    """A run that adds rows to a Delta table: a directory or a URL, which is made if it does not exist.

    Raises OutputExistsError for another table with rows, or for files.
    """

    def __init__(self, target: str) -> None:
        try:
            from deltalake import DeltaTable
        except ImportError as error:
            raise ImportError("an export to Delta needs deltalake: pip install deltalake") from error
        self._target = target
        self._table: DeltaTable | None = None
        old = None
        with reading_table(target):
            if DeltaTable.is_deltatable(target):
                self._table = DeltaTable(target)
        if self._table is not None:
            settings = self._table.metadata().configuration
            if _FORGETS in settings:
                raise ValueError(
                    f"{target}: remove its property {_FORGETS}, which deletes the offsets of earlier exports"
                )
            if PROPERTY in settings:
                old = manifest_of(settings[PROPERTY], target)
            elif self._table.get_add_actions().num_rows:
                detail = f"the table has rows, but not from an export with resume: it has no property {PROPERTY}"
                raise OutputExistsError(Reason.OUTPUT_EXISTS, detail, path=target)
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

    def append(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, keys: tuple[str, ...]) -> Exported:
        from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
        from deltalake.exceptions import CommitFailedError

        known = None if self._table is None else pa.schema(self._table.schema().to_arrow())
        rows = TableRows(schema, "delta", known, with_date="date" in keys)
        changed = self._changed()
        source = _RowSource(batches, rows)
        is_new = self._table is None
        first_version = 0 if self._table is None else self._table.version() + 1
        is_done = False
        try:
            with writing_table(self._target, CommitFailedError):
                if self._table is None:
                    options: dict[str, Any] = {"raise_if_key_not_exists": False}
                    self._table = DeltaTable.create(
                        self._target, rows.schema, partition_by=list(keys), configuration=self._property(), **options
                    )
                # a commit of its own, before the rows: without them it does no harm
                elif self._property()[PROPERTY] != self._table.metadata().configuration.get(PROPERTY):
                    self._table.alter.set_table_properties(
                        self._property(),
                        raise_if_not_exists=False,
                        commit_properties=CommitProperties(max_commit_retries=0),
                    )
                # listed before the rows are added: Delta's writer does not say which files it made
                before = set() if is_new else set(_files(self._table))
                write_deltalake(
                    self._table,
                    pa.RecordBatchReader.from_batches(rows.schema, source),
                    mode="append",
                    schema_mode="merge",
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
        except WriteError:
            # the error of the log, not that of the writer which it ended
            if source.error is not None:
                raise source.error from None
            raise
        finally:
            if is_new and not is_done and os.path.isdir(self._target):
                shutil.rmtree(self._target, ignore_errors=True)
        self.findings += rows.findings(self._target)
        added = {path: size for path, size in _files(self._table).items() if path not in before}
        self._sync([*added], first_version)
        return Exported(rows.n_records, sum(added.values()), len(added))

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


class _RowSource:
    """Row iterator that keeps the original exception, since deltalake replaces it."""

    def __init__(self, batches: Iterable[pa.RecordBatch], rows: TableRows) -> None:
        self._batches, self._rows = batches, rows
        self.error: BaseException | None = None

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._batches:
                yield self._rows.of(batch)
        except GeneratorExit:  # the writer has failed, and reads no further
            raise
        except BaseException as error:
            self.error = error
            raise


def _files(table: DeltaTable) -> dict[str, int]:
    """The data files of the table, with their sizes."""
    actions = pa.table(table.get_add_actions())
    return dict(zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), strict=True))


def _topic(key: str) -> str:
    directory = kf.parse_partition_directory(key)
    return key if directory is None else directory.topic_partition.topic
