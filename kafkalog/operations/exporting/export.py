"""Export: writes a scan to a file, a directory of partitioned files, or a stream; all of it or nothing.

Records are read and written batch by batch, so memory is bounded for a log of any size. A file or a directory is
written under another name first (`kafkalog.storage.staging`). The destination appears when everything is written and
durable; a failure leaves it as it was. A stream gets its bytes as they are made.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, TypedDict, Unpack

import pyarrow as pa

from kafkalog.calls import leading_names
from kafkalog.errors import DEFAULT_LIMITS, Finding, OutputExistsError, Reason
from kafkalog.interchange.file_types import FORMATS, TABLE_FORMATS, TEXT_FORMATS, check_name, file_type, unknown_format
from kafkalog.interchange.record_writers import OutputFormat
from kafkalog.interchange.table_types import lost_findings
from kafkalog.log.log_dir import located
from kafkalog.log.open import Paths
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.operations.exporting.directory import MANIFEST, RemoteExport, ResumedDirectory
from kafkalog.operations.exporting.partitioned_files import PARTITION_KEYS, check_topics
from kafkalog.operations.exporting.parts import (
    DirectoryWriter,
    Spread,
    WrittenPart,
    batches_of,
    in_process,
    lost_in,
)
from kafkalog.operations.exporting.resuming import ResumedTable, Resumption, RowOptions, check_options
from kafkalog.scanning.options import OPENING, ScanOptions, with_formats
from kafkalog.scanning.query import Target
from kafkalog.scanning.scan import Scan
from kafkalog.storage.location import Location, Place, kind_of, remote_place
from kafkalog.storage.output_paths import check_outside
from kafkalog.storage.staging import StagedDirectory, staged_directory, staged_file
from kafkalog.storage.uploads import RemoteDirectory, remote_file
from kafkalog.survey.next_steps import Advised, paths_read
from kafkalog.words import unknown_keyword


@leading_names
@dataclass(frozen=True, slots=True, repr=False)
class ExportResult(Advised):
    """The result of an export."""

    n_records: int
    n_bytes: int
    n_files: int
    """What was written."""
    findings: list[Finding] = field(repr=False)
    """The findings of the scan."""
    n_undecoded: int = 0
    """How many values, and fields of others, did not decode (`decode`). They are null, or their records left out."""
    log_dirs: list[str] = field(default_factory=list, repr=False)
    """What was exported."""
    path: str = field(default="", repr=False)
    """Where it was written: a file, a directory or a table; "" for an open file, and in a dry run."""

    def __repr__(self) -> str:
        undecoded = f", n_undecoded={self.n_undecoded}" if self.n_undecoded else ""
        return f"ExportResult(n_records={self.n_records}, n_bytes={self.n_bytes}, n_files={self.n_files}{undecoded})"


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
    on_decode_error: Literal["null", "skip"] | None


class ExportOptions(OutputOptions, ScanOptions, total=False):
    """The keyword arguments of `export`."""

    dry_run: bool


class Exporter:
    """An export of `scan` that has not run yet; takes the parameters of `kafkalog.export`.

    The constructor raises for an invalid option, before anything is read. `run` does the work. With `is_directory`, it
    writes a directory even without `partition_by`.
    """

    def __init__(
        self,
        path: Any,
        output: str | os.PathLike[str] | BinaryIO | None,
        *,
        is_directory: bool = False,
        **options: Unpack[ExportOptions],
    ) -> None:
        scan = _scan_options(options)
        given = {name: scan.pop(name) for name in OutputOptions.__annotations__ if name in scan}
        self._is_dry = scan.pop("dry_run", False)
        to: Any = _named(output, is_dry=self._is_dry)
        if isinstance(to, (str, os.PathLike)) and given.get("format") not in TABLE_FORMATS:
            to = located(to, scan.get("storage_options"))
        self._to = to
        self._overwrite = given.pop("overwrite", False)
        on_decode_error = given.pop("on_decode_error", None)
        check_on_decode_error(on_decode_error)
        self._keys = check_keys(given.pop("partition_by", ()))
        is_resumed = given.pop("resume", False)
        self._is_directory = is_directory or bool(self._keys)
        self._resumed: Resumption | None = None
        format = given.pop("format", None)
        if format in TABLE_FORMATS:
            _check_table(format, to, given, is_resumed=is_resumed)
        else:
            format, compression = _format_of(
                to, format, given.pop("compression", None), self._is_directory or is_resumed
            )
            self._options = OutputFormat(format, compression, **given)
            if self._is_directory and not isinstance(to, (str, os.PathLike)):
                raise ValueError("partition_by writes a directory: name one as the output")
        self._limits = scan.get("limits") or DEFAULT_LIMITS
        self.scan = self._open(path, scan)
        self._shown = self._written_columns(is_table=format in TABLE_FORMATS)
        _check_directory(to, format, resume=is_resumed, partition_by=bool(self._keys))
        if is_resumed and not self._is_dry:
            self._resume(path, scan, format)
        if on_decode_error == "skip":
            self.scan = self.scan.without_undecoded()
        if not is_resumed:
            _ = self._schema

    def _written_columns(self, *, is_table: bool) -> list[str]:
        """The columns of the rows; those that `partition_by` names are in the paths of files."""
        shown = self._columns if self._columns is not None else self.scan.columns
        # the columns that a table is partitioned by are columns of its rows, too
        if is_table:
            written = [*shown, *(name for name in self._keys if name != "date" and name not in shown)]
        else:
            written = [name for name in shown if name not in self._keys]
        if not written:
            raise ValueError("partition_by names all columns, so the files would have none")
        if "topic" in self._keys and not is_table:
            check_topics({key.topic for key, _ in self.scan.partitions() if key is not None})
        return written

    @functools.cached_property
    def _schema(self) -> pa.Schema:
        """The columns to write. With `resume`, the types of decoded ones are those of what is new."""
        return pa.schema([self.scan.schema.field(name) for name in self._shown])

    def _resume(self, path: Any, options: dict[str, Any], format: str) -> None:
        """Restrict the scan to what is new since the last run."""
        to = self._to
        if (
            not (isinstance(to, (str, os.PathLike)) or format in TABLE_FORMATS)
            or isinstance(path, Scan)
            or self._overwrite
        ):
            raise ValueError("resume needs the path of a log and of a directory or table, and excludes overwrite")
        check_options(options)
        if remote_place(to) or (isinstance(to, (str, os.PathLike)) and format != "iceberg" and "://" not in str(to)):
            check_outside(to, _sources(self.scan))
        self._resumed = resumed = _resumption(format, to, options.get("storage_options"))
        try:
            output = {"format": format, "partition_by": list(self._keys)}
            # the ends are fixed here: what a running broker appends meanwhile is of the next run
            ranges = resumed.begin(self.scan, options, output)
            # limits and memory_map are those of the target, which is open
            options = {
                name: value for name, value in options.items() if name not in ("limits", "memory_map", *OPENING)
            } | ranges
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

    def run(self, spread: Spread = in_process) -> ExportResult:
        """Read and write everything.

        `spread` runs the writer of directories and tables, perhaps for parts of the scan in other processes.
        """
        to = self._to
        if self._is_dry:
            n_records = self.scan.count_rows()
            return self._made(n_records, 0, 0, self.scan.findings, self.scan.n_undecoded)
        if isinstance(self._resumed, ResumedTable):
            return self._append(self._resumed, spread)
        if not isinstance(to, (str, os.PathLike)):
            return self._write(to)
        check_outside(to, _sources(self.scan))
        if isinstance(self._resumed, (ResumedDirectory, RemoteExport)):
            return self._add(self._resumed, spread)
        if (remote := remote_place(to)) is not None:
            return self._upload(remote, spread)
        if not self._is_directory:
            with staged_file(to, overwrite=self._overwrite, parents=True) as file:
                return self._write(file)
        if self._overwrite:
            check_replaceable(Path(to))
        with staged_directory(to, overwrite=self._overwrite) as directory:
            parts = self._write_files(directory, "part", self._schema, spread)
        return self._result(parts)

    def _upload(self, to: Location, spread: Spread) -> ExportResult:
        """Write all records to a new object, or to a new directory of a store."""
        if not self._is_directory:
            with remote_file(to, overwrite=self._overwrite) as file:
                return self._write(file)
        remote = RemoteExport(to, is_resumed=False, overwrite=self._overwrite)
        directory = remote.stage()
        try:
            parts = self._write_files(directory, remote.run_name, self._schema, spread)
            remote.commit(directory, _sizes(parts))
        finally:
            directory.discard()
        return self._result(parts)

    def _result(self, parts: Sequence[WrittenPart], more: Sequence[Finding] = ()) -> ExportResult:
        if self._resumed is not None:
            where: str | None = self._resumed.where
        else:
            where = os.fspath(self._to) if isinstance(self._to, (str, os.PathLike)) else None
        of_scan = [finding for part in parts for finding in part.findings]
        findings = [*more, *lost_findings(lost_in(parts), where), *of_scan]
        n_records, n_bytes = sum(part.n_records for part in parts), sum(part.n_bytes for part in parts)
        n_undecoded = sum(part.n_undecoded for part in parts)
        return self._made(n_records, n_bytes, sum(len(part.files) for part in parts), findings, n_undecoded, where)

    def _made(
        self, n_records: int, n_bytes: int, n_files: int, findings: list[Finding], n: int, where: str | None = None
    ) -> ExportResult:
        return ExportResult(n_records, n_bytes, n_files, findings, n, paths_read(self.scan.target), where or "")

    def _append(self, resumed: ResumedTable, spread: Spread) -> ExportResult:
        """Write what is new, and add it to the table."""
        parts: list[WrittenPart] = []
        if resumed.is_changed:
            rows = RowOptions(self._schema, self._keys, self._limits.max_directories)
            parts = resumed.append(lambda writer: spread(writer, self.scan), rows)
        return self._result(parts, resumed.findings)

    def _add(self, resumed: ResumedDirectory | RemoteExport, spread: Spread) -> ExportResult:
        """Write what is new, and add it to the directory."""
        try:
            directory: Any = resumed.stage()
            try:
                # without new records there is nothing to learn types from
                schema = pa.schema([])
                if resumed.is_changed:
                    schema = resumed.evolved(self._options.stored(self._schema))
                parts = self._write_files(directory, resumed.run_name, schema, spread)
                resumed.commit(directory, _sizes(parts))
            finally:
                directory.discard()
        finally:
            resumed.close()
        return self._result(parts, resumed.findings)

    def _write_files(
        self, directory: StagedDirectory | RemoteDirectory, name: str, schema: pa.Schema, spread: Spread
    ) -> list[WrittenPart]:
        """Write all records to files `name` in a directory, in directories by the values of the keys."""
        if not schema.names:
            return []
        most = self._limits.max_directories
        parts = spread(DirectoryWriter(directory, name, schema, self._options, self._keys, most), self.scan)
        if isinstance(directory, RemoteDirectory):
            directory.adopt(_sizes(parts))
        return parts

    def _write(self, file: Any) -> ExportResult:
        sink = self._options.open(file, self._schema)
        try:
            with batches_of(self.scan) as batches:
                for batch in batches:
                    sink.write(batch.select(self._schema.names))
            sink.close()
        except BaseException:
            sink.abandon()
            raise
        return self._result([WrittenPart({"": sink.n_bytes}, sink.n_records, sink.n_bytes, sink.lost).about(self.scan)])


def _sizes(parts: Sequence[WrittenPart]) -> dict[str, int]:
    """The sizes of the files of a directory, by their names in it."""
    return {name: size for part in parts for name, size in part.files.items()}


def _check_directory(to: Any, format: str, **options: bool) -> None:
    """Raise ValueError for the name of a file where an option writes a directory, unless it is there already."""
    option = next((name for name, given in options.items() if given and format not in TABLE_FORMATS), None)
    if option is None or not isinstance(to, (str, os.PathLike)) or kind_of(to) == "directory":
        return
    if file_type(os.fspath(to))[0] is not None:
        name = os.path.basename(os.fspath(to))
        raise ValueError(f"with {option} the output is a directory, and {name} is a name for a file")


def _check_table(format: str, to: Any, options: dict[str, Any], *, is_resumed: bool) -> None:
    """Raise ValueError for options that a table does not have."""
    if not is_resumed:
        raise ValueError(f"an export to {format.capitalize()} needs resume=True (--resume)")
    if given := [name for name, value in options.items() if value is not None and value is not False]:
        raise ValueError(f"{given[0]} does not work with {format}: a table has its own properties")
    if not isinstance(to, (str, os.PathLike)) and (format == "delta" or not hasattr(to, "catalog")):
        raise ValueError(f"the output of {format} must be a str, not {type(to).__name__}")


def _scan_options(options: ExportOptions) -> dict[str, Any]:
    """The options with formats in `decode`; raises TypeError for an unknown one."""
    if unknown := sorted(set(options) - set(ExportOptions.__annotations__)):
        known = [*ExportOptions.__annotations__, "output"]
        raise TypeError(f"export has no option {unknown[0]!r}; {unknown_keyword(unknown[0], known)}")
    scan: dict[str, Any] = {name: value for name, value in options.items() if not name.endswith("_format")}
    if decode := with_formats(scan.get("decode"), options):
        scan["decode"] = decode
    return scan


def _named(output: Any, *, is_dry: bool) -> Any:
    """The output; a dry run needs none."""
    if output is None and not is_dry:
        raise ValueError("output names the file or directory to write; or use dry_run=True")
    return "export.parquet" if output is None else output


def _resumption(format: str, to: Any, storage_options: Mapping[str, Any] | None) -> Resumption:
    """The object that knows how far earlier runs came."""
    if format == "delta":
        from kafkalog.operations.exporting.delta import ResumedDelta

        return ResumedDelta(os.fspath(to) if "://" in str(to) else os.path.abspath(to), storage_options)
    if format == "iceberg":
        from kafkalog.operations.exporting.iceberg import ResumedIceberg

        return ResumedIceberg(to)
    remote = remote_place(to)
    return ResumedDirectory(to) if remote is None else RemoteExport(remote, is_resumed=True)


def check_on_decode_error(value: str | None) -> None:
    """Raise ValueError for an unknown value of `on_decode_error`."""
    if value not in (None, "null", "skip"):
        raise ValueError(f"on_decode_error (--on-decode-error) takes null or skip, not {value!r}")


def _sources(scan: Scan) -> Sequence[Place]:
    target = scan.target
    return [target.path] if isinstance(target, (Partition, Segment)) else target.paths


def check_keys(keys: str | Sequence[str]) -> tuple[str, ...]:
    """Return the keys to partition by as a tuple; raises ValueError for an unknown or repeated key."""
    keys = (keys,) if isinstance(keys, str) else tuple(keys)
    for key in keys:
        if key not in PARTITION_KEYS:
            raise ValueError(f"partition_by (--partition-by) takes {', '.join(PARTITION_KEYS)}, not {key!r}")
    if len(set(keys)) != len(keys):
        raise ValueError("partition_by names a key twice")
    return keys


def _format_of(to: Any, format: str | None, compression: str | None, is_directory: bool) -> tuple[str, str | None]:
    """Return format and compression: the arguments, or else what the suffix of the name implies."""
    if not isinstance(to, (str, os.PathLike)):
        if format is None:
            raise ValueError(f"format is required: one of {', '.join(FORMATS)}")
        return format, compression
    named, packed = file_type(to)
    if format is None:
        format = named or ("parquet" if is_directory else None)
        if format is None:
            otherwise = ", set format (--format), or use partition_by (--partition-by) for a directory"
            raise unknown_format(to, otherwise)
        if not is_directory:
            check_name(to)
    if packed is not None and format in TEXT_FORMATS:
        if compression not in (None, packed):
            raise ValueError(f"{os.fspath(to)}: the name ends in {packed}, but compression is {compression}")
        compression = packed
    return format, compression


_OURS: Final = re.compile(rf"(topic|partition|date)=.+|part-\d+(-\d+){{0,2}}\.\w+(\.gz|\.zst)?|{re.escape(MANIFEST)}")


def check_replaceable(path: Path) -> None:
    """Raise OutputExistsError unless a directory holds nothing but an export's files.

    The whole directory is replaced, so a mistyped path must not cost somebody a home directory.
    """
    for root, directories, names in os.walk(path):
        for name in (*directories, *names):
            if not _OURS.fullmatch(name):
                raise OutputExistsError(
                    Reason.OUTPUT_EXISTS,
                    f"not replaced: {Path(root) / name} is not from an export. Remove the directory, or name another"
                    " output",
                    path=path,
                )


def export(
    path: Paths | Target | Scan,
    output: str | os.PathLike[str] | BinaryIO | None = None,
    **options: Unpack[ExportOptions],
) -> ExportResult:
    """Write records to a file or a directory, all of them or nothing, in bounded memory.

    Parameters
    ----------
    path : path-like, sequence of path-like, what `open` returned, or a Scan
    output : path-like, binary file or pyiceberg.table.Table
        The destination. A path must not exist yet (see `overwrite`), and must not be inside a log dir. It appears when
        everything is written and durable; a failure leaves it as it was. A binary file gets its bytes as they are made.
        The URL of an object store is also accepted: a directory there gets its manifest last.
    format : {"parquet", "arrow", "arrows", "csv", "jsonl", "delta", "iceberg"}, optional
        Default: by the suffix of the name; for a directory, Parquet. `arrow` is Arrow's IPC file, `arrows` its stream.
        `delta` and `iceberg` are tables, for `resume`. `output` is the directory or URL of a Delta table; an Iceberg
        table is ``CATALOG.NAMESPACE.TABLE``, with a catalog of pyiceberg's configuration, or a `Table` of pyiceberg.
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
        Encoding of keys, values and header values in CSV and JSON lines; default: base64. With `utf8`, bytes that are
        not UTF-8 are ``{"base64": ...}``, which `load` reads with `encoding="utf8"`.
    null : str, optional
        The text for null in CSV. Default: nothing between the commas; an empty value is ``""`` in quotes.
    escape_formulas : bool
        In CSV, put ``'`` before keys, values and names that a spreadsheet treats as a formula (``= + - @``, a tab or a
        carriage return in front). Such values are changed.
    dry_run : bool
        Check the options and count the records; write nothing. No output has to be named.
    overwrite : bool
        Replace a file, or a directory that an export made.
    resume : bool
        Add to a directory or table what is new in each partition since the last export into it, exactly once. A
        directory has a manifest, `kafkalog.operations.exporting.directory.MANIFEST`; tables keep it in their
        log. The first export makes both. The other options must be the same each time. If an export is killed, the next
        one finishes or repeats it. New fields are added. Values that do not fit the type of a field are in the field
        ``NAME__text``.
    on_decode_error : {"null", "skip"}, optional
        What to do with values, and fields of others, that do not decode. `skip` leaves their records out. Default, and
        `null`: they are null. In each case `ExportResult.n_undecoded` counts them. The command ends with exit code 1
        if there are any, unless this option is set.
    columns, topics, start_offset, on_corruption, threads, ...
        The options of `scan`. With `decode`, the columns `value_error`, `value_bytes`, `key_error` and `key_bytes` hold
        the reasons and the original bytes; `load` writes these bytes again.

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
