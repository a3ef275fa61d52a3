"""Export: writes a scan to a file, a directory of partitioned files, or a stream; all of it or nothing.

Records are read and written batch by batch, so memory is bounded for a log of any size. A file or a directory is
written under another name first (`kafkalog.storage.staging`). The destination appears when everything is written and
durable; a failure leaves it as it was. A stream gets its bytes as they are made.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, TypedDict, Unpack, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog.errors import DEFAULT_LIMITS, Finding, LimitExceededError, OutputExistsError, Reason
from kafkalog.interchange.arrow_buffers import milliseconds
from kafkalog.interchange.file_types import FORMATS, SUFFIXES, TEXT_FORMATS, file_type
from kafkalog.interchange.input_paths import NULL_DIRECTORY
from kafkalog.interchange.record_writers import ROW_GROUP_BYTES, OutputFormat, RecordSink
from kafkalog.log.open import Paths
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.operations.resuming import ResumedExport, check_options
from kafkalog.scanning.query import ScanOptions, Target
from kafkalog.scanning.scan import Scan
from kafkalog.storage.output_paths import check_outside
from kafkalog.storage.staging import StagedDirectory, StagedFile, staged_directory, staged_file

PARTITION_KEYS: Final = ("topic", "partition", "date")

MAX_OPEN_FILES: Final = 64
"""The most files of a partitioned export that are open at a time; a closed one is continued by another part."""

_MS_PER_DAY: Final = 86_400_000
_FIRST_DAY: Final = int(np.datetime64("0001-01-01", "D").astype(np.int64))
_LAST_DAY: Final = int(np.datetime64("9999-12-31", "D").astype(np.int64))
_NO_DAY: Final = np.iinfo(np.int64).min


@dataclass(frozen=True, slots=True)
class ExportResult:
    """The result of an export.

    Attributes
    ----------
    n_records, n_bytes, n_files : int
        What was written.
    findings : list of Finding
        The findings of the scan.
    """

    n_records: int
    n_bytes: int
    n_files: int
    findings: list[Finding] = field(repr=False)


class OutputOptions(TypedDict, total=False):
    """The options of `export` about what is written."""

    format: str | None
    partition_by: str | Sequence[str]
    compression: str | None
    row_group_rows: int | None
    encoding: str | None
    null: str | None
    escape_formulas: bool
    overwrite: bool
    resume: bool


class ExportOptions(OutputOptions, ScanOptions, total=False):
    """The keyword arguments of `export`."""


class Exporter:
    """An export that has not run yet; takes the parameters of `kafkalog.export`.

    The constructor raises for an invalid option, before anything is read. `run` does the work.

    Attributes
    ----------
    scan : Scan
        The scan that is exported.
    """

    def __init__(
        self,
        path: Any,
        output: str | os.PathLike[str] | BinaryIO,
        **options: Unpack[ExportOptions],
    ) -> None:
        scan: dict[str, Any] = {**options}
        given = {name: scan.pop(name) for name in OutputOptions.__annotations__ if name in scan}
        self._to = to = output
        self._overwrite = given.pop("overwrite", False)
        self._keys = check_keys(given.pop("partition_by", ()))
        is_resumed = given.pop("resume", False)
        self._resumed: ResumedExport | None = None
        format, compression = _format_of(
            to, given.pop("format", None), given.pop("compression", None), bool(self._keys) or is_resumed
        )
        self._options = OutputFormat(format, compression, **given)
        if self._keys and not isinstance(to, (str, os.PathLike)):
            raise ValueError("partition_by makes a directory: name one to write to")
        self._limits = scan.get("limits") or DEFAULT_LIMITS
        self.scan = self._open(path, scan)
        shown = self._columns if self._columns is not None else self.scan.columns
        self._schema = pa.schema([self.scan.schema.field(name) for name in shown if name not in self._keys])
        if not self._schema.names:
            raise ValueError("partition_by takes all the columns: nothing is left to write into the files")
        if is_resumed:
            self._resume(path, scan, format)

    def _resume(self, path: Any, options: dict[str, Any], format: str) -> None:
        """Restrict the scan to what is new since the last run."""
        if not isinstance(self._to, (str, os.PathLike)) or isinstance(path, Scan) or self._overwrite:
            raise ValueError("resume takes a path to a log, a directory to add to, and no overwrite")
        check_options(options)
        check_outside(self._to, _sources(self.scan))
        self._resumed = resumed = ResumedExport(self._to)
        try:
            output = {"format": format, "partition_by": list(self._keys)}
            ranges = resumed.begin(self.scan, options, output)
            # limits and memory_map are those of the target, which is open
            options = {name: value for name, value in options.items() if name not in ("limits", "memory_map")} | ranges
            self.scan = self._open(self.scan.target, options)
        except BaseException:
            resumed.close()
            raise

    def _open(self, path: Any, options: dict[str, Any]) -> Scan:
        """Return the scan, with the columns that `partition_by` needs added to those that are written."""
        self._columns: Sequence[str] | None = None
        needed = ["timestamp" if key == "date" else key for key in self._keys]
        if isinstance(path, Scan):
            if options:
                raise TypeError(f"a Scan has its options already: {', '.join(options)}")
            if missing := [name for name in needed if name not in path.columns]:
                raise ValueError(f"partition_by needs the scan to have the columns {', '.join(missing)}")
            return path
        columns = options.get("columns")
        if columns is not None and not isinstance(columns, str):
            self._columns = list(columns)
            options = {**options, "columns": [*columns, *(name for name in needed if name not in columns)]}
        return Scan(path, **options)

    def run(self) -> ExportResult:
        """Read and write everything.

        Raises
        ------
        KafkalogError
            See `kafkalog.export`.
        """
        to = self._to
        if not isinstance(to, (str, os.PathLike)):
            n_records, n_bytes = self._write(to)
            return ExportResult(n_records, n_bytes, 1, self.scan.findings)
        check_outside(to, _sources(self.scan))
        if self._resumed is not None:
            return self._add(self._resumed)
        if not self._keys:
            with staged_file(to, overwrite=self._overwrite) as file:
                n_records, n_bytes = self._write(file)
            return ExportResult(n_records, n_bytes, 1, self.scan.findings)
        if self._overwrite:
            check_replaceable(Path(to))
        with staged_directory(to, overwrite=self._overwrite) as directory:
            files = self._write_files(directory, "part")
        return ExportResult(files.n_records, files.n_bytes, files.n_files, self.scan.findings)

    def _add(self, resumed: ResumedExport) -> ExportResult:
        """Write what is new, and add it to the directory."""
        try:
            directory = resumed.stage()
            try:
                files = self._write_files(directory, f"part-{resumed.n_run}")
                resumed.commit(directory)
            finally:
                directory.discard()
        finally:
            resumed.close()
        findings = [*resumed.findings, *self.scan.findings]
        return ExportResult(files.n_records, files.n_bytes, files.n_files, findings)

    def _write_files(self, directory: StagedDirectory, name: str) -> PartitionedFiles:
        """Write all records to files `name` in a directory, in directories by the values of the keys."""
        files = PartitionedFiles(directory, self._schema, self._options, self._limits.max_directories, name)
        try:
            for batch in self._batches():
                for key, part in split_by_directory(batch, self._keys):
                    files.write(key, part)
            files.close()
        except BaseException:
            files.abandon()
            raise
        return files

    def _write(self, file: Any) -> tuple[int, int]:
        sink = self._options.open(file, self._schema)
        try:
            for batch in self._batches():
                sink.write(batch.select(self._schema.names))
            sink.close()
        except BaseException:
            sink.abandon()
            raise
        return sink.n_records, sink.n_bytes

    def _batches(self) -> Iterator[pa.RecordBatch]:
        with contextlib.closing(cast(Any, self.scan.to_batches())) as stream:
            yield from stream


class PartitionedFiles:
    """The files of a partitioned directory.

    At most `MAX_OPEN_FILES` are open at a time. Together they buffer no more than one row group.

    Parameters
    ----------
    directory : StagedDirectory
    schema : pyarrow.Schema
        Schema of the files.
    options : OutputFormat
    max_directories : int
        The most directories to make.
    name : str
        What the names of files begin with.

    Attributes
    ----------
    n_records, n_bytes, n_files : int
        Totals of the files that are closed.
    """

    def __init__(
        self,
        directory: StagedDirectory,
        schema: pa.Schema,
        options: OutputFormat,
        max_directories: int,
        name: str = "part",
    ) -> None:
        self._directory, self._schema, self._options = directory, schema, options
        self._max_directories, self._name = max_directories, name
        self._open: OrderedDict[str, tuple[RecordSink, StagedFile]] = OrderedDict()
        self._n_parts: dict[str, int] = {}
        self.n_records = self.n_bytes = self.n_files = 0

    def write(self, key: str, batch: pa.RecordBatch) -> None:
        """Write records to the directory whose relative path is `key`."""
        if key not in self._open:
            self._create(key)
        self._open.move_to_end(key)
        self._open[key][0].write(batch.select(self._schema.names))
        # flush only the file that holds most: this frees the memory with the fewest small row groups
        if sum(sink.held_bytes for sink, _ in self._open.values()) >= ROW_GROUP_BYTES:
            max((sink for sink, _ in self._open.values()), key=lambda sink: sink.held_bytes).flush()

    def _create(self, key: str) -> None:
        part = self._n_parts.get(key, 0)
        if not part and len(self._n_parts) == self._max_directories:
            raise LimitExceededError(
                Reason.TOO_MANY_DIRECTORIES,
                f"the records want more than {self._max_directories} directories",
                path=self._directory.target,
            )
        while len(self._open) >= MAX_OPEN_FILES:
            self._close(next(iter(self._open)))  # the least recently used
        self._n_parts[key] = part + 1
        name = f"{self._name}-{part}{self._options.suffix}"
        file = self._directory.create(f"{key}/{name}" if key else name)
        self._open[key] = self._options.open(file, self._schema), file

    def _close(self, key: str) -> None:
        sink, file = self._open[key]
        sink.close()
        file.close()
        del self._open[key]
        self.n_records += sink.n_records
        self.n_bytes += sink.n_bytes
        self.n_files += 1

    def close(self) -> None:
        """Finish all files."""
        for key in list(self._open):
            self._close(key)

    def abandon(self) -> None:
        """Drop what the open files have buffered, and write nothing more."""
        for sink, _ in self._open.values():
            sink.abandon()


def split_by_directory(batch: pa.RecordBatch, keys: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split the records of a batch by directory, and keep their order in each.

    The batch must be of one segment: its topic and partition are taken from the first record.
    """
    names = {
        name: f"{name}={NULL_DIRECTORY if (value := batch.column(name)[0].as_py()) is None else value}"
        for name in keys
        if name != "date"
    }
    if "date" not in keys:
        yield "/".join(names[key] for key in keys), batch
        return
    for day, part in _split_by_day(batch):
        names["date"] = f"date={NULL_DIRECTORY if day == _NO_DAY else np.datetime64(day, 'D')}"
        yield "/".join(names[key] for key in keys), part


def _split_by_day(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    days = _days(batch.column("timestamp"))
    starts = np.flatnonzero(np.diff(days)) + 1
    if starts.size >= np.unique(days).size:  # the records of a day are not contiguous: sort, and keep their order
        order = np.argsort(days, kind="stable")
        batch = batch.take(pa.Array.from_buffers(pa.int64(), order.size, [None, pa.py_buffer(order)]))
        days = days[order]
        starts = np.flatnonzero(np.diff(days)) + 1
    bounds = [0, *starts.tolist(), days.size]
    for start, stop in itertools.pairwise(bounds):
        yield int(days[start]), batch.slice(start, stop - start)


def _days(timestamps: pa.Array) -> npt.NDArray[np.int64]:
    """Return days since 1970 (UTC); `_NO_DAY` without a timestamp, or outside of the years 1 to 9999."""
    stamps = milliseconds(timestamps)
    days: npt.NDArray[np.int64] = stamps // _MS_PER_DAY
    days[(stamps == -1) | (days < _FIRST_DAY) | (days > _LAST_DAY)] = _NO_DAY
    return days


def _sources(scan: Scan) -> list[Path]:
    target = scan.target
    return [target.path] if isinstance(target, (Partition, Segment)) else target.paths


def check_keys(keys: str | Sequence[str]) -> tuple[str, ...]:
    """Return the keys to partition by as a tuple; raises ValueError for an unknown or repeated key."""
    keys = (keys,) if isinstance(keys, str) else tuple(keys)
    for key in keys:
        if key not in PARTITION_KEYS:
            raise ValueError(f"partition_by takes {', '.join(PARTITION_KEYS)}, not {key!r}")
    if len(set(keys)) != len(keys):
        raise ValueError("partition_by names a key twice")
    return keys


def _format_of(to: Any, format: str | None, compression: str | None, is_directory: bool) -> tuple[str, str | None]:
    """Return format and compression: the arguments, or else what the suffix of the name implies."""
    if not isinstance(to, (str, os.PathLike)):
        if format is None:
            raise ValueError(f"format must be given: one of {', '.join(FORMATS)}")
        return format, compression
    named, packed = file_type(to)
    if format is None:
        format = named or ("parquet" if is_directory else None)
        if format is None:
            raise ValueError(
                f"{os.fspath(to)}: what format? End the name in {SUFFIXES} or say format; partition_by makes a"
                " directory"
            )
    if packed is not None and format in TEXT_FORMATS:
        if compression not in (None, packed):
            raise ValueError(f"{os.fspath(to)} is named like {packed}, and compression is {compression}")
        compression = packed
    return format, compression


MANIFEST: Final = "_kafkalog_export.json"
"""A file that lists the contents of a directory that a Spark job made; other tools skip names with a leading `_`."""

_OURS: Final = re.compile(rf"(topic|partition|date)=.+|part-\d+(-\d+)?\.\w+(\.gz|\.zst)?|{re.escape(MANIFEST)}")


def check_replaceable(path: Path) -> None:
    """Check that a directory holds nothing but an export's files before it is replaced.

    The whole directory is replaced, so a mistyped path must not cost somebody a home directory.

    Raises
    ------
    OutputExistsError
        Something in the directory was not made by an export.
    """
    for root, directories, names in os.walk(path):
        for name in (*directories, *names):
            if not _OURS.fullmatch(name):
                raise OutputExistsError(
                    Reason.OUTPUT_EXISTS,
                    f"{Path(root) / name} is nothing that an export made, so the directory is not replaced",
                    path=path,
                )


def export(
    path: Paths | Target | Scan,
    output: str | os.PathLike[str] | BinaryIO,
    **options: Unpack[ExportOptions],
) -> ExportResult:
    """Write records to a file or a directory, all of them or nothing, in bounded memory.

    Parameters
    ----------
    path : path-like, sequence of path-like, what `open` returned, or a Scan
    output : path-like or binary file
        The destination. A path must not exist yet (see `overwrite`), and must not be inside a log dir. It appears when
        everything is written and durable; a failure leaves it as it was. A binary file gets its bytes as they are made.
    format : {"parquet", "arrow", "arrows", "csv", "jsonl"}, optional
        Default: by the suffix of the name; for a directory, Parquet. `arrow` is Arrow's IPC file, `arrows` its stream.
    partition_by : sequence of {"topic", "partition", "date"}
        Make a directory, with ``topic=orders/partition=0/date=2026-11-21/part-0.parquet`` and so on. The topic and the
        partition are then in the path and not in the files. The date is the timestamp's in UTC; without one it is
        ``__HIVE_DEFAULT_PARTITION__``.
    compression : str, optional
        Parquet: zstd (default), snappy, lz4, gzip, brotli, none. Arrow: none (default), lz4, zstd. CSV and JSON lines:
        none (default), gzip, zstd; a suffix such as ``.csv.gz`` selects it too.
    row_group_rows : int, optional
        Most rows in a Parquet row group (default: 2**20, and 64 MiB in memory) or in a record batch of an Arrow file.
    encoding : {"base64", "utf8", "hex"}, optional
        Encoding of keys, values and header values in CSV and JSON lines; default: base64.
    null : str, optional
        The text for null in CSV. Default: nothing between the commas; an empty value is ``""`` in quotes.
    escape_formulas : bool
        In CSV, put ``'`` before keys, values and names that a spreadsheet takes for a formula (``= + - @``, a tab or a
        carriage return in front). Such values are changed.
    overwrite : bool
        Replace a file, or a directory that an export made.
    resume : bool
        Add to a directory what is new in each partition since the last export into it, exactly once. The directory has
        a manifest, `kafkalog.operations.resuming.MANIFEST`; the first export makes both. The other options must be the
        same each time. If an export is killed, the next one finishes or repeats it.
    columns, topics, start_offset, on_corruption, threads, ...
        The options of `scan`.

    Returns
    -------
    ExportResult
        Has `n_records`, `n_bytes`, `n_files` and `findings`.

    Raises
    ------
    ValueError, TypeError
        An option is invalid.
    OutputExistsError, UnsafePathError
        The destination exists; or it is a source, is inside a log dir, or contains a source.
    WriteError
        The destination could not be written.
    KafkalogError
        The log is damaged, with `on_corruption="raise"` (see `scan`). The destination is left as it was.

    Examples
    --------
    >>> import tempfile
    >>> to = tempfile.mkdtemp() + "/p-multi.parquet"
    >>> kafkalog.export("tests/golden/log_dir", to, topics="p-multi")
    ExportResult(n_records=303, n_bytes=..., n_files=1)
    >>> import pyarrow.parquet
    >>> pyarrow.parquet.read_table(to).equals(kafkalog.read_table("tests/golden/log_dir", topics="p-multi"))
    True
    """
    return Exporter(path, output, **options).run()
