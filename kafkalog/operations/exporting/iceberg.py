"""Exports into an Iceberg table (with the package `pyiceberg`).

The property `PROPERTY` of the table, and of the snapshot that a run adds, says up to which offset each partition was
exported. Both are in the same commit as the rows, so rows and offsets appear together or not at all. A run commits only
on top of the snapshot that it read: of two runs at a time, or where anything else wrote meanwhile, one fails and adds
nothing. What a killed run leaves are data files that no snapshot names.

A table that is rolled back to an earlier snapshot is refused.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from kafkalog.errors import FileChangedError, Reason, not_installed
from kafkalog.operations.exporting.delta import PROPERTY, rows_of_others
from kafkalog.operations.exporting.parts import PartWriter, WrittenPart, batches_of
from kafkalog.operations.exporting.resuming import (
    ResumedTable,
    RowOptions,
    TableRows,
    manifest_of,
    reading_table,
    writing_table,
)
from kafkalog.scanning.scan import Scan

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.io import FileIO
    from pyiceberg.manifest import DataFile
    from pyiceberg.table import Table, Transaction
    from pyiceberg.table.metadata import TableMetadata
    from pyiceberg.table.snapshots import Snapshot

_CHUNK_BYTES: Final = 2**27
"""Rows in memory after which a data file is written."""


def _catalog_of(name: str) -> Catalog:
    """Load a catalog of pyiceberg's configuration; raises ValueError with what to configure if it is in none."""
    from pyiceberg.catalog import load_catalog

    try:
        return load_catalog(name)
    except ValueError as error:
        if "URI missing" not in str(error):
            raise
        raise ValueError(
            f"no Iceberg catalog {name!r}: set its address with PYICEBERG_CATALOG__{name.upper()}__URI=URL, such as"
            " http://HOST:8181 or sqlite:////DIR/catalog.db, or in ~/.pyiceberg.yaml"
        ) from error


class ResumedIceberg(ResumedTable):
    """A run that adds rows to an Iceberg table: a `Table`, or ``CATALOG.NAMESPACE.TABLE``, which it may make.

    Raises OutputExistsError for a table with rows that kafkalog did not export, and FileChangedError for one that was
    rolled back.
    """

    def __init__(self, target: Any) -> None:
        try:
            from pyiceberg.exceptions import NoSuchTableError
        except ImportError as error:
            raise ImportError(not_installed("an export to Iceberg needs pyiceberg", "iceberg")) from error
        self._catalog: Catalog
        self._table: Table | None = None
        if isinstance(target, str):
            catalog, _, self._identifier = target.partition(".")
            if "." not in self._identifier:
                raise ValueError(f"an Iceberg table is named CATALOG.NAMESPACE.TABLE, not {target!r}")
            with reading_table(target), contextlib.suppress(NoSuchTableError):
                self._catalog = _catalog_of(catalog)
                self._table = self._catalog.load_table(self._identifier)
        else:
            self._table = target.refresh()
            target = ".".join(target.name())
        old = None if self._table is None else _manifest(self._table, target)
        if self._table is not None and old is None and _has_rows(self._table):
            raise rows_of_others(target)
        super().__init__(target, old)

    def close(self) -> None:
        """Do nothing: the table is locked by nobody."""

    def append(self, spread: Callable[[PartWriter], list[WrittenPart]], rows: RowOptions) -> list[WrittenPart]:
        from pyiceberg.exceptions import CommitFailedException

        known = None if self._table is None else self._table.schema().as_arrow()
        made = TableRows(rows.schema, "iceberg", known)
        is_made = is_done = False
        try:
            with writing_table(self.where, CommitFailedException):
                table = self._table or self._create(made.schema, rows.keys)
                is_made = self._table is None
                # a retry would commit on top of what another run added, and double its records
                transaction = self._begun(_without_retries(table), made.schema)
            parts = spread(IcebergWriter(transaction.table_metadata, table.io, made))
            with writing_table(self.where, CommitFailedException):
                with transaction.update_snapshot({PROPERTY: self._told()}).fast_append() as added:
                    for part in parts:
                        for file in part.files.values():
                            added.append_data_file(file)
                transaction.commit_transaction()
                is_done = True
        finally:
            # a table that another process has made meanwhile is not ours to drop
            if is_made and not is_done:
                with contextlib.suppress(Exception):
                    self._catalog.drop_table(self._identifier)
        return parts

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

    def _begun(self, table: Table, schema: pa.Schema) -> Transaction:
        """The transaction that adds the rows, so far with the property and all columns."""
        transaction = table.transaction()
        transaction.set_properties({PROPERTY: json.dumps(self.new)})
        if self._table is not None:
            with transaction.update_schema() as update:
                update.union_by_name(schema)
        return transaction

    def _told(self) -> str:
        """The properties of the snapshot that describe this run."""
        before = self.old["partitions"]
        changed = {key: at for key, at in self.new["partitions"].items() if at != before.get(key)}
        return json.dumps({"version": 1, "n_runs": self.new["n_runs"], "partitions": changed})


@dataclass(frozen=True, slots=True)
class IcebergWriter:
    """Writes data files of an Iceberg table; of each there is its entry for a manifest."""

    metadata: TableMetadata
    io: FileIO
    rows: TableRows

    def write(self, scan: Scan) -> WrittenPart:
        """Write the records of a scan."""
        # what `Table.append` calls
        from pyiceberg.io.pyarrow import _dataframe_to_data_files

        rows, identity, counter = self.rows.of_part(), uuid.uuid4(), itertools.count()
        files: list[DataFile] = []
        with batches_of(scan) as batches:
            for chunk in _chunks(batches, rows):
                files += _dataframe_to_data_files(self.metadata, chunk, self.io, identity, counter)
        n_records, n_bytes = (sum(map(attrgetter(name), files)) for name in ("record_count", "file_size_in_bytes"))
        return WrittenPart({file.file_path: file for file in files}, n_records, n_bytes, rows.lost).about(scan)


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
    """What was exported to the table; FileChangedError if its snapshot is one from before the last export."""
    text = table.properties.get(PROPERTY)
    if text is None:
        return None
    newest = manifest_of(text, where)
    snapshot = table.current_snapshot()
    while snapshot is not None:
        if (said := _said(snapshot)) is not None:
            last = manifest_of(said, where)
            if last["n_runs"] == newest["n_runs"] and not last.get("is_partial"):
                return newest
            break
        parent = snapshot.parent_snapshot_id
        snapshot = None if parent is None else table.snapshot_by_id(parent)
    # the snapshots of exports may have expired, which changes no rows
    if any(_said(one) is not None for one in table.snapshots()):
        detail = "the table was rolled back to before its last export: roll it forward, or name a new table"
        raise FileChangedError(Reason.FILE_CHANGED, detail, path=where)
    return newest


def _said(snapshot: Snapshot) -> str | None:
    """The properties of a snapshot that describe the export that made it."""
    return None if snapshot.summary is None else snapshot.summary.additional_properties.get(PROPERTY)
