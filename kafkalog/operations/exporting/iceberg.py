"""Exports into an Iceberg table (with the package `pyiceberg`).

The property `PROPERTY` of the table, and of the snapshot that a run adds, says up to which offset each partition was
exported. Both are in the same commit as the rows, so rows and offsets appear together or not at all. A run commits only
on top of the snapshot that it read: of two runs at a time, or where anything else wrote meanwhile, one fails and adds
nothing. What a killed run leaves are data files that no snapshot names.

A table that is rolled back to an earlier snapshot has what that snapshot says, and gets the later records again.
"""

from __future__ import annotations

import contextlib
import json
import uuid
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafkalog.errors import FileChangedError, OutputExistsError, Reason
from kafkalog.operations.exporting.delta import PROPERTY, check_columns
from kafkalog.operations.exporting.resuming import (
    Exported,
    ResumedTable,
    manifest_of,
    reading_table,
    writing_table,
)
from kafkalog.operations.exporting.table_rows import TableRows

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.snapshots import Snapshot

_WIDER: Final = {pa.int8(): pa.int32(), pa.int16(): pa.int32()}
_CHUNK_BYTES: Final = 2**27
"""Rows in memory after which a data file is written."""


class ResumedIceberg(ResumedTable):
    """A run that adds rows to an Iceberg table.

    Parameters
    ----------
    target : str or pyiceberg.table.Table
        A table, or ``CATALOG.NAMESPACE.TABLE`` with a catalog of pyiceberg's configuration. It is made if it does not
        exist.

    Raises
    ------
    ImportError
        `pyiceberg` is not installed.
    OutputExistsError
        The table has rows, and kafkalog did not export them.
    FileChangedError
        The table was rolled back, and the snapshots that say what it has are gone.
    """

    def __init__(self, target: Any) -> None:
        try:
            from pyiceberg.catalog import load_catalog
            from pyiceberg.exceptions import NoSuchTableError
        except ImportError as error:
            raise ImportError("an export to Iceberg needs pyiceberg: pip install pyiceberg") from error
        self._catalog: Catalog
        self._table: Table | None = None
        if isinstance(target, str):
            catalog, _, self._identifier = target.partition(".")
            if "." not in self._identifier:
                raise ValueError(f"an Iceberg table is named CATALOG.NAMESPACE.TABLE, not {target!r}")
            with reading_table(target), contextlib.suppress(NoSuchTableError):
                self._catalog = load_catalog(catalog)
                self._table = self._catalog.load_table(self._identifier)
        else:
            self._table = target.refresh()
            target = ".".join(target.name())
        old = None if self._table is None else _manifest(self._table, target)
        if self._table is not None and old is None and _has_rows(self._table):
            detail = f"the table has rows, and no export with resume made it: it has no property {PROPERTY}"
            raise OutputExistsError(Reason.OUTPUT_EXISTS, detail, path=target)
        super().__init__(target, old)

    def close(self) -> None:
        """Do nothing: the table is locked by nobody."""

    def append(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema, keys: tuple[str, ...]) -> Exported:
        from pyiceberg.exceptions import CommitFailedException

        rows = TableRows(schema, keys, _WIDER, with_date=False)
        with writing_table(self.where, CommitFailedException):
            table = self._table or self._create(rows.schema, keys)
            check_columns(rows.schema, {field.name for field in table.schema().fields}, self.where)
            # a retry would commit on top of what another run added, and double its records
            transaction = self._write(_without_retries(table), batches, rows)
            transaction.commit_transaction()
        self.findings += rows.findings()
        snapshot = table.current_snapshot()
        said = {} if snapshot is None or snapshot.summary is None else snapshot.summary.additional_properties
        return Exported(rows.n_records, int(said.get("added-files-size", 0)), int(said.get("added-data-files", 0)))

    def _create(self, schema: pa.Schema, keys: tuple[str, ...]) -> Table:
        from pyiceberg.transforms import DayTransform

        namespace = self._identifier.rpartition(".")[0]
        self._catalog.create_namespace_if_not_exists(namespace)
        with self._catalog.create_table_transaction(self._identifier, schema) as made, made.update_spec() as spec:
            for key in keys:
                if key == "date":
                    spec.add_field("timestamp", DayTransform(), "date")
                else:
                    spec.add_identity(key)
        return self._catalog.load_table(self._identifier)

    def _write(self, table: Table, batches: Iterable[pa.RecordBatch], rows: TableRows) -> Transaction:
        """Write the data files, and return the transaction that adds them."""
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        before = self.old["partitions"]
        changed = {key: at for key, at in self.new["partitions"].items() if at != before.get(key)}
        told = {"version": 1, "n_runs": self.new["n_runs"], "partitions": changed}
        transaction = table.transaction()
        transaction.set_properties({PROPERTY: json.dumps(self.new)})
        with transaction.update_snapshot(snapshot_properties={PROPERTY: json.dumps(told)}).fast_append() as append:
            for chunk in _chunks(batches, rows):
                # each with an id of its own: it is in the names of the files
                for file in _dataframe_to_data_files(
                    transaction.table_metadata, df=chunk, io=table.io, write_uuid=uuid.uuid4()
                ):
                    append.append_data_file(file)
        return transaction


def _chunks(batches: Iterable[pa.RecordBatch], rows: TableRows) -> Iterator[pa.Table]:
    """Tables of about `_CHUNK_BYTES`."""
    held: list[pa.RecordBatch] = []
    n_bytes = 0
    for batch in batches:
        held.append(rows.of(batch))
        n_bytes += held[-1].nbytes
        if n_bytes >= _CHUNK_BYTES:
            yield pa.Table.from_batches(held, rows.schema)
            held, n_bytes = [], 0
    if held:
        yield pa.Table.from_batches(held, rows.schema)


def _without_retries(table: Table) -> Table:
    """The table, with transactions that fail if its snapshot is no longer the one that was read."""
    properties = {**table.metadata.properties, "commit.retry.num-retries": "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})
    return table


def _has_rows(table: Table) -> bool:
    snapshot = table.current_snapshot()
    if snapshot is None:
        return False
    return snapshot.summary is None or snapshot.summary.additional_properties.get("total-records") != "0"


def _manifest(table: Table, where: str) -> dict[str, Any] | None:
    """What was exported to the table as it is now."""
    text = table.properties.get(PROPERTY)
    if text is None:
        return None
    newest = manifest_of(text, where)
    ours: list[dict[str, Any]] = []
    snapshot = table.current_snapshot()
    is_whole = snapshot is None
    # the parent of a snapshot may have expired, and may not be named then: the first of all has the number 1
    while snapshot is not None:
        if (said := _said(snapshot)) is not None:
            ours.append(manifest_of(said, where))
            if ours[0]["n_runs"] == newest["n_runs"]:
                return newest
        parent = snapshot.parent_snapshot_id
        is_whole = snapshot.sequence_number == 1
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    if is_whole:  # the table was rolled back
        partitions: dict[str, Any] = {}
        for run in reversed(ours):
            partitions |= run["partitions"]
        return {**newest, "partitions": partitions} if ours or not _has_rows(table) else None
    # older snapshots have expired, those of exports among them
    if ours or any(_said(one) is not None for one in table.snapshots()):
        detail = "the table was rolled back, and snapshots that say what was exported to it have expired"
        raise FileChangedError(Reason.FILE_CHANGED, detail, path=where)
    return newest


def _said(snapshot: Snapshot) -> str | None:
    """What a snapshot says of the export that made it."""
    return None if snapshot.summary is None else snapshot.summary.additional_properties.get(PROPERTY)
