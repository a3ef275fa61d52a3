"""Sinks: write record batches to a binary file as Parquet, Arrow, CSV or JSON lines, in bounded memory.

A sink writes to any object with `write(bytes)`. It does not open, name or publish files.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from kafkalog.interchange.file_types import COMPRESSIONS, TEXT_FORMATS, check_format, packed_suffix
from kafkalog.interchange.table_types import Conversion, stored_schema
from kafkalog.interchange.text_output import CsvRows, JsonLines, LineFormat, check_encoding
from kafkalog.parsing import integer
from kafkalog.records.columns import HEADERS

_DEFAULT_COMPRESSION: Final = {"parquet": "zstd"}

ROW_GROUP_BYTES: Final = 2**26
"""Bytes of records (in memory) after which a Parquet row group is written."""
ROW_GROUP_ROWS: Final = 2**20
_JOINED: Final = 256

_TEXT_BYTES = 2**22  # bytes of records to convert to text at a time

# columns with repeating values; for others Parquet would build a dictionary and throw it away
_DICTIONARY_COLUMNS = {"topic", "partition", "segment", "timestamp_type", "key", "headers.list.element.key"}
_DICTIONARY_COLUMNS |= {"compression", "leader_epoch", "producer_id", "producer_epoch"}


@dataclass(frozen=True, slots=True)
class OutputFormat:
    """The format of a file of records, and its options; ValueError for one that is invalid or not of this format."""

    format: str
    """`arrow` is Arrow's IPC file format (Feather), `arrows` its IPC stream format."""
    compression: str | None = None
    """One of `COMPRESSIONS`; default: zstd for Parquet, else none."""
    row_group_rows: int | None = None
    """Maximum number of rows in a Parquet row group, or in a record batch of an Arrow file."""
    encoding: str | None = None
    """Encoding of bytes in the text formats."""
    null: str | None = None
    """Text for null in CSV."""
    escape_formulas: bool = False
    """For CSV; see `CsvRows`."""

    def __post_init__(self) -> None:
        check_format(self.format)
        known = COMPRESSIONS[self.format]
        if self.compression is not None and self.compression not in known:
            raise ValueError(
                f"compression of {self.format} must be one of {', '.join(known)}, not {self.compression!r}"
            )
        if self.row_group_rows is not None:
            if self.format in TEXT_FORMATS:
                raise ValueError(f"{self.format} has no row groups")
            integer("row_group_rows", self.row_group_rows, 1)
        if self.encoding is not None:
            if self.format not in TEXT_FORMATS:
                raise ValueError(f"encoding is for csv and jsonl; {self.format} holds bytes as they are")
            check_encoding(self.encoding)
        if self.null is not None and self.format != "csv":
            raise ValueError("null is for csv: the other formats have a null of their own")
        if self.escape_formulas and self.format != "csv":
            raise ValueError("escape_formulas is for csv")
        if self.format == "csv":
            CsvRows(encoding=self.encoding or "base64", null=self.null or "")

    @property
    def suffix(self) -> str:
        """The file name suffix, such as ``.csv.gz``."""
        packed = packed_suffix(self.compression or "none") if self.format in TEXT_FORMATS else ""
        return f".{self.format}{packed}"

    def stored(self, schema: pa.Schema) -> pa.Schema:
        """The schema as such a file has it: formats that lack a type of Arrow have another one in its place."""
        return stored_schema(schema, self.format) if self.format == "parquet" else schema

    def open(self, file: Any, schema: pa.Schema) -> RecordSink:
        compression = self.compression or _DEFAULT_COMPRESSION.get(self.format, "none")
        if self.format == "parquet":
            return ParquetSink(file, schema, compression, self.row_group_rows or ROW_GROUP_ROWS)
        if self.format in ("arrow", "arrows"):
            return ArrowSink(file, schema, compression, self.row_group_rows, is_file=self.format == "arrow")
        encoding = self.encoding or "base64"
        if self.format == "csv":
            rows = CsvRows(
                schema.names,
                encoding=encoding,
                null=self.null or "",
                escape_formulas=self.escape_formulas,
                embeds_json=True,
            )
            return TextSink(file, rows, compression, rows.header)
        return TextSink(file, JsonLines(schema.names, encoding=encoding, embeds_json=True), compression)


class RecordSink(ABC):
    """Writes record batches of one schema; `held_bytes` of them are buffered to be written together.

    For `lost` see `kafkalog.interchange.table_types.Conversion`.
    """

    def __init__(self, file: Any) -> None:
        self.n_records = self.held_bytes = 0
        self.lost: Counter[tuple[tuple[str, ...], str]] = Counter()
        self._tap = _Tap(file)

    @property
    def n_bytes(self) -> int:
        return self._tap.n_bytes

    def write(self, batch: pa.RecordBatch) -> None:
        self.n_records += batch.num_rows
        self._write(batch)

    @abstractmethod
    def _write(self, batch: pa.RecordBatch) -> None: ...

    def flush(self) -> None:  # noqa: B027 - most sinks buffer nothing
        """Write the buffered records."""

    @abstractmethod
    def close(self) -> None:
        """Write the end of the format, such as a footer. The file stays open."""

    def abandon(self) -> None:
        """Stop writing: discard anything that the underlying writers still write, such as a footer."""
        self._tap.is_shut = True


def _with_statistics(schema: pa.Schema) -> bool | list[str]:
    """Columns of which a row group's least and largest value are written; True for all.

    Not of values as bytes: Parquet's writer keeps up to six copies of the largest, and writes none over 4 KiB.
    """
    if any(pa.types.is_nested(field.type) and field.name != HEADERS for field in schema):
        return True
    is_left_out = {HEADERS} | {field.name for field in schema if field.name == "value" and field.type in _BYTES}
    return [name for name in schema.names if name not in is_left_out]


_BYTES: Final = (pa.binary(), pa.large_binary())


class ParquetSink(RecordSink):
    """Writes Parquet. Records are buffered until they fill a row group of `ROW_GROUP_BYTES` or `row_group_rows`.

    Once it is closed, `metadata` has the `pyarrow.parquet.FileMetaData`.
    """

    def __init__(self, file: Any, schema: pa.Schema, compression: str, row_group_rows: int) -> None:
        import pyarrow.parquet as pq

        super().__init__(file)
        self._conversion = Conversion(stored_schema(schema, "parquet"), "parquet")
        self.lost = self._conversion.lost
        self._schema = schema = self._conversion.schema
        self._writer = pq.ParquetWriter(
            self._tap,
            schema,
            compression=compression,
            use_dictionary=[name for name in _DICTIONARY_COLUMNS if name.partition(".")[0] in schema.names],
            write_statistics=_with_statistics(schema),
        )
        self._row_group_rows = row_group_rows
        self._held: list[pa.RecordBatch] = []
        self._n_held = self._n_joined = 0

    def _write(self, batch: pa.RecordBatch) -> None:
        batch = self._conversion.of(batch)
        while batch.num_rows:
            part = batch.slice(0, self._row_group_rows - self._n_held)
            self._held.append(part)
            self._n_held += part.num_rows
            # of thousands of tiny partitions: a batch of a few rows takes kilobytes
            if len(self._held) - self._n_joined >= _JOINED:
                recent = pa.Table.from_batches(self._held[self._n_joined :], self._schema)
                self._held[self._n_joined :] = recent.combine_chunks().to_batches()
                self._n_joined = len(self._held)
            self.held_bytes += part.nbytes
            if self._n_held == self._row_group_rows or self.held_bytes >= ROW_GROUP_BYTES:
                self.flush()
            batch = batch.slice(part.num_rows)

    def flush(self) -> None:
        if self._n_held:
            self._writer.write_table(pa.Table.from_batches(self._held, self._schema), row_group_size=self._n_held)
        self._held, self._n_held, self._n_joined, self.held_bytes = [], 0, 0, 0

    def close(self) -> None:
        self.flush()
        self._writer.close()
        self.metadata = self._writer.writer.metadata


class ArrowSink(RecordSink):
    """Writes Arrow's IPC format: the record batches as they come, cut to `max_rows`."""

    def __init__(self, file: Any, schema: pa.Schema, compression: str, max_rows: int | None, *, is_file: bool) -> None:
        super().__init__(file)
        options = pa.ipc.IpcWriteOptions(compression=None if compression == "none" else compression)
        # the IPC writer makes many small writes, of metadata and padding: buffer them
        self._buffer = io.BufferedWriter(self._tap, 2**18)
        self._conversion = Conversion(schema, "arrow")
        self.lost = self._conversion.lost
        self._writer = (pa.ipc.new_file if is_file else pa.ipc.new_stream)(self._buffer, schema, options=options)
        self._max_rows = max_rows

    def _write(self, batch: pa.RecordBatch) -> None:
        batch = self._conversion.of(batch)
        step = self._max_rows or max(batch.num_rows, 1)
        for start in range(0, batch.num_rows, step):
            self._writer.write_batch(batch.slice(start, step))

    def close(self) -> None:
        self._writer.close()
        self._buffer.flush()


class TextSink(RecordSink):
    def __init__(self, file: Any, lines: LineFormat, compression: str, header: str = "") -> None:
        super().__init__(file)
        self._file: Any = self._tap if compression == "none" else pa.CompressedOutputStream(self._tap, compression)
        self._is_packed = compression != "none"
        self._lines = lines
        self._put(header)

    def _put(self, text: str) -> None:
        for start in range(0, len(text), _TEXT_BYTES):  # no second copy of a very long line
            self._file.write(text[start : start + _TEXT_BYTES].encode("utf-8"))

    def _write(self, batch: pa.RecordBatch) -> None:
        for part in _cut(batch, _TEXT_BYTES):
            self._put(self._lines.lines(part))

    def close(self) -> None:
        if self._is_packed:
            self._file.close()


class _Tap(io.RawIOBase):
    """The file that writers write to. It counts bytes, stays open when they close it, and can be shut off."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self.n_bytes = 0
        self.is_shut = False

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.n_bytes

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        # writers write a footer when they are collected, too, and a failed export must not look whole
        if not self.is_shut:
            self._file.write(data)
            self.n_bytes += size
        return size


def _cut(batch: pa.RecordBatch, size: int) -> Iterator[pa.RecordBatch]:
    """Slices of about `size` bytes."""
    n = batch.num_rows
    step = max(n * size // max(batch.nbytes, size), 1)
    for start in range(0, n, step):
        yield batch.slice(start, step)
