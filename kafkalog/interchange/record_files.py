"""Reads files of records, in any format that an export writes, as a stream of record batches.

Of Parquet and Arrow files only the needed columns are read. Memory grows neither with the size of the file nor with the
size of its row groups. Errors have the path of the file. Nothing here knows Kafka.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

import pyarrow as pa

from kafkalog.errors import KafkalogError, NotKafkaError, ReadError, Reason, UnknownNameError
from kafkalog.interchange.arrow_buffers import no_rows
from kafkalog.interchange.file_types import check_format, file_type, unknown_format
from kafkalog.interchange.text_input import (
    CSV_BLOCK_BYTES,
    MAX_LINE_BYTES,
    LongRowError,
    Names,
    TextOptions,
    read_csv,
    read_json_lines,
    read_json_rows,
    rows_of_text,
    token_columns,
)
from kafkalog.storage.listing import nearest

_BATCH_BYTES: Final = 2**21
_BUFFER_BYTES: Final = 2**20
_STREAM_BLOCK_BYTES: Final = 2**25


class RecordFile:
    """A file of records, in the format given or in that of its suffix.

    A stream is read once, and needs `format`. Parquet and Arrow's file format need a file. `texts` are `TextOptions`.
    `size` is 0 if it is not known; `done` is the approximate number of bytes read so far.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | BinaryIO,
        format: str | None = None,
        **texts: Any,
    ) -> None:
        self._path: Any = path
        self._is_stream = self._is_read_once = not isinstance(path, (str, os.PathLike))
        self.name = "<stdin>" if self._is_stream else os.fspath(path)  # type: ignore[arg-type]
        self.notes: list[str] = []
        """What was decided about columns; after they are read."""
        self.done = 0
        self.size = 0
        if not self._is_stream:
            self._look()
        self.format, self._packed = ("", None) if self._is_stream else _format_of(self.name, format)
        if self._is_stream:
            if not hasattr(path, "read"):
                kind = type(path).__name__
                raise TypeError(f"inputs are paths or binary files, not {kind}; write_table takes data in memory")
            if format not in ("arrows", "csv", "jsonl"):
                raise ValueError(f"a stream is of format arrows, csv or jsonl, not {format}")
            self.format = format
        self._texts = TextOptions(**texts)

    def _look(self) -> None:
        """Read the size of the file; raises if there is no such file."""
        try:
            found = os.stat(self.name)
        except (OSError, ValueError) as error:
            detail = getattr(error, "strerror", None) or str(error)
            if isinstance(error, FileNotFoundError):
                detail += nearest(Path(self.name))
            raise ReadError(Reason.FILE_UNREADABLE, detail, path=self.name) from error
        if stat.S_ISDIR(found.st_mode):
            raise NotKafkaError(Reason.NOT_A_FILE, "this is a directory: name the files in it", path=self.name)
        self.size = found.st_size
        # such as a pipe, or `<(...)` of a shell
        self._is_read_once = not stat.S_ISREG(found.st_mode)

    def batches(self, wanted: Names) -> Iterator[pa.RecordBatch]:
        """The record batches of the file. They have the wanted columns, and maybe others.

        Raises ReadError if it cannot be read or is not of its format, UnwritableError if a line cannot become a record.
        """
        with self._errors():
            yield from _READERS[self.format](self, wanted)
        self.done = self.size

    @contextlib.contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except KafkalogError as error:
            error.path = self.name if error.path is None else error.path
            raise
        except UnknownNameError:
            raise  # about the options, not the file
        except (pa.ArrowException, OSError, EOFError, ValueError, MemoryError) as error:
            text = " ".join(str(error).split()) or type(error).__name__
            detail = f"not readable as {self.format}: {text}"
            raise ReadError(Reason.FILE_UNREADABLE, detail, path=self.name) from error

    @contextlib.contextmanager
    def _raw(self) -> Iterator[BinaryIO]:
        """The file as a stream of decompressed bytes; reading it advances `done`."""
        if self._is_stream:
            yield self._path
            return
        with open(self.name, "rb", buffering=0) as file:
            counted: Any = io.BufferedReader(_Counting(file, self), _BUFFER_BYTES)
            if self._packed is None:
                yield counted
            else:
                unpacked = pa.CompressedInputStream(pa.PythonFile(counted, mode="r"), self._packed)
                yield io.BufferedReader(_Unpacked(unpacked), _BUFFER_BYTES)

    def _csv(self, wanted: Names) -> Iterator[pa.RecordBatch]:
        # A pipe or stream cannot be read again with larger blocks, or to count lines: use large blocks at once.
        reopened = None if self._is_read_once else self._raw
        block, n_done = _STREAM_BLOCK_BYTES if self._is_read_once else CSV_BLOCK_BYTES, 0
        while True:
            n_known = n_done  # rows yielded before a retry with larger blocks: skip them
            try:
                with self._raw() as stream:
                    for batch in read_csv(stream, self._texts, wanted, block_bytes=block, reopened=reopened):
                        n_old = min(n_known, batch.num_rows)
                        n_known -= n_old
                        n_done += batch.num_rows - n_old
                        if n_old < batch.num_rows or not batch.num_rows:
                            yield batch.slice(n_old)
                return
            except LongRowError:
                if self._is_read_once or block >= MAX_LINE_BYTES:
                    raise
            block, self.done = min(8 * block, MAX_LINE_BYTES), 0

    def _csv_lines(self, wanted: Names) -> Iterator[pa.RecordBatch]:
        if not self._texts.has_rows:
            yield from self._csv(wanted)
            return
        guesses = self._texts.guesses_types
        tokens: set[str] | None = None if guesses else set()
        if guesses and not self._is_read_once:
            tokens = self._tokens(self._csv(wanted))
        for batch in self._csv(wanted):
            if tokens is None:  # what is read once has the types of its first rows
                tokens = self._tokens([batch])
            yield rows_of_text(batch, tokens)

    def _tokens(self, batches: Iterable[pa.RecordBatch]) -> set[str]:
        """The columns whose cells are numbers or booleans."""
        tokens, changed = token_columns(batches)
        kept = self._texts.kept_as_text
        columns = ", ".join(f"{name} (such as {text})" for name, text in changed.items() if name not in kept)
        if columns:
            self.notes.append(
                f"{self.name}: these columns stay text, since JSON would print their numbers in another way: {columns};"
                " a schema (--schema) gives them another type"
            )
        return tokens.difference(kept)

    def _json_lines(self, wanted: Names) -> Iterator[pa.RecordBatch]:
        with self._raw() as stream:
            if self._texts.has_rows:
                yield from read_json_rows(stream, self._texts)
            else:
                yield from read_json_lines(stream, self._texts, wanted)

    def _arrow_stream(self, _wanted: Names) -> Iterator[pa.RecordBatch]:
        with self._raw() as stream, pa.ipc.open_stream(pa.PythonFile(stream, mode="r")) as reader:
            yield no_rows(reader.schema)
            yield from reader

    def _arrow_file(self, wanted: Names) -> Iterator[pa.RecordBatch]:
        with pa.OSFile(self.name) as file:
            schema = pa.ipc.open_file(file).schema
            names = wanted(schema)
            fields = [i for i, name in enumerate(schema.names) if name in names]
            with pa.ipc.open_file(file, options=pa.ipc.IpcReadOptions(included_fields=fields)) as reader:
                yield no_rows(reader.schema)
                n = reader.num_record_batches
                for number in range(n):
                    yield reader.get_batch(number)
                    self.done = self.size * (number + 1) // n

    def _parquet(self, wanted: Names) -> Iterator[pa.RecordBatch]:
        import pyarrow.parquet as pq

        # without buffer_size, a whole column of a row group is read before its first value
        with pq.ParquetFile(self.name, buffer_size=_BUFFER_BYTES, pre_buffer=False) as file:
            names = list(wanted(file.schema_arrow))
            yield no_rows(pa.schema([file.schema_arrow.field(name) for name in names]))
            n_done, n_rows = 0, file.metadata.num_rows
            for group in range(file.num_row_groups):
                about = file.metadata.row_group(group)
                # a row group may hold gigabytes: only so many rows of it are decoded at a time
                rows = max(1, min(2**16, _BATCH_BYTES * about.num_rows // max(about.total_byte_size, 1)))
                for batch in file.iter_batches(rows, row_groups=[group], columns=names, use_threads=False):
                    yield batch
                    n_done += batch.num_rows
                    self.done = self.size * n_done // max(n_rows, 1)


_READERS: Final[dict[str, Callable[[RecordFile, Names], Iterator[pa.RecordBatch]]]] = {
    "parquet": RecordFile._parquet,
    "arrow": RecordFile._arrow_file,
    "arrows": RecordFile._arrow_stream,
    "csv": RecordFile._csv_lines,
    "jsonl": RecordFile._json_lines,
}


class _Counting(io.RawIOBase):
    def __init__(self, file: Any, owner: RecordFile) -> None:
        self._file, self._owner = file, owner

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        n = int(self._file.readinto(buffer) or 0)
        self._owner.done += n
        return n


class _Unpacked(io.RawIOBase):
    """An Arrow input stream as a Python file."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


_OF_TEXT: Final = (".txt", ".text", ".out", ".lst")


def _format_of(name: str, format: str | None) -> tuple[str, str | None]:
    named, packed = file_type(name)
    found = format or named
    if found is None:
        to_json = f"; lines of text become JSON lines with jq -Rc '{{value: .}}' {name}"
        raise unknown_format(name, f", or set format (--format){to_json if name.endswith(_OF_TEXT) else ''}")
    check_format(found, _READERS)
    # both are read from their end, and a compressed stream has only a beginning
    if packed is not None and found in ("parquet", "arrow"):
        raise ValueError(f"{name}: {found} is not read from a {packed} file; unpack it first")
    return found, packed
