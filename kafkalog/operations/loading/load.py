"""Bulk loads: tables and files of records become partition directories of a log dir, all of them or none.

Records are routed to partitions by a column or by Kafka's default partitioner, collected until they fill batches, and
written by one `PartitionWriter` per partition. Everything is staged first. The last step is one rename for a new log
dir, or one rename per partition for an existing log dir. This module does not append to existing partitions.
"""

from __future__ import annotations

import contextlib
import dataclasses
import fnmatch
import functools
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, Unpack, cast

import pyarrow as pa

from kafkalog import format as kf
from kafkalog.errors import (
    DEFAULT_LIMITS,
    LimitExceededError,
    Limits,
    NotKafkaError,
    OutputExistsError,
    Reason,
    UnsafePathError,
    UnwritableError,
)
from kafkalog.interchange.arrow_input import ColumnReader, InputOptions, slices
from kafkalog.interchange.arrow_output import HEADER_FIELD
from kafkalog.interchange.arrow_streams import open_batches
from kafkalog.interchange.file_types import file_type
from kafkalog.interchange.input_paths import input_files, with_place
from kafkalog.interchange.record_files import RecordFile
from kafkalog.operations.exporting.export import check_on_decode_error
from kafkalog.operations.loading.avro_files import AvroFile
from kafkalog.operations.loading.install import BrokerLogDir, load_target, stray_note
from kafkalog.operations.loading.loaded_partitions import LoadedPartition, LoadResult
from kafkalog.operations.loading.merging import Source, merged_by_offset
from kafkalog.operations.loading.rows import Rows, in_rows
from kafkalog.parsing import TopicPatterns, one_of
from kafkalog.records.byte_columns import BinaryColumn
from kafkalog.records.codecs import Compression
from kafkalog.records.columns import RecordColumns
from kafkalog.records.partitioner import PARTITIONERS
from kafkalog.state.log_config import LogConfig, default_config
from kafkalog.storage.broker_lock import hold_locks, refuse_if_locked
from kafkalog.storage.location import kind_of
from kafkalog.storage.output_paths import check_log_dir, refuse_existing
from kafkalog.survey.retention import retention_note
from kafkalog.text import counted
from kafkalog.values.encoding import ValueEncoder
from kafkalog.values.schemas import imports_beside
from kafkalog.writing.partition_writer import PartitionWriter, check_partition_name
from kafkalog.writing.routing import Router, WaitingRecords, check_topic

_STAMPED: Final = ("LogAppendTime", kf.TimestampType.LOG_APPEND_TIME)


class WriteKeywords(InputOptions, total=False):
    """The keyword arguments of `write_table` that `LoadOptions` has, less those of its signature."""

    only_topics: Iterable[str] | str | None
    internal: bool
    partitioner: str | None
    config: LogConfig | None
    compression: str | Compression | None
    compression_level: int | None
    batch_size: int
    max_records_per_batch: int | None
    keep_offsets: bool | None
    leader_epoch: int
    topic_id: str | bytes | None
    timestamp_type: str | None
    log_append_time: int | None
    stage_in: str | os.PathLike[str] | None
    limits: Limits
    value_format: str | None
    schema: str | os.PathLike[str] | None
    message: str | None
    schema_id: int | None
    key_format: str | None
    header_columns: Sequence[str]
    text_columns: Sequence[str]
    on_decode_error: Literal["null", "skip"] | None


class LoadKeywords(WriteKeywords, total=False):
    """The keyword arguments of `load` that `LoadOptions` has."""

    topic: str | None
    partitions: int | None


@dataclass(frozen=True, kw_only=True)
class LoadOptions:
    """How records are read and written; see `write_table`."""

    topic: str | None = None
    only_topics: Iterable[str] | str | None = None
    internal: bool = False
    partitions: int | None = None
    partitioner: str | None = None
    config: LogConfig | None = None
    compression: str | Compression | None = None
    compression_level: int | None = None
    batch_size: int = kf.BATCH_SIZE
    max_records_per_batch: int | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    ignore_columns: Sequence[str] | bool = ()
    naive_timezone: str | None = None
    truncate_timestamps: bool = False
    keep_offsets: bool | None = None
    leader_epoch: int = 0
    topic_id: str | bytes | None = None
    timestamp_type: str | None = None
    log_append_time: int | None = None
    stage_in: str | os.PathLike[str] | None = None
    limits: Limits = DEFAULT_LIMITS
    value_format: str | None = None
    schema: str | os.PathLike[str] | None = None
    message: str | None = None
    schema_id: int | None = None
    key_format: str | None = None
    header_columns: Sequence[str] = ()
    text_columns: Sequence[str] = ()
    on_decode_error: Literal["null", "skip"] | None = None

    @functools.cached_property
    def rows(self) -> Rows | None:
        """How rows become records; None if the input has records."""
        if self.value_format is None:
            for name in ("schema", "message", "schema_id", "header_columns", "text_columns"):
                if getattr(self, name) not in (None, ()):
                    option = f"--{name.replace('_', '-')}"
                    raise ValueError(f"{name} ({option}) needs value_format (--value-format), which encodes values")
            if self.key_format is None:
                return None
            encoder = None
        else:
            encoder = ValueEncoder(
                self.value_format,
                self.schema,
                message=self.message,
                schema_id=self.schema_id,
                imports=imports_beside(self.schema),
            )
        key_encoder = None if self.key_format is None else ValueEncoder(self.key_format)
        return Rows(
            encoder,
            key_encoder,
            dict(self.columns),
            tuple(self.header_columns),
            self.of_value,
            leaves_out=self.on_decode_error == "skip",
        )

    @property
    def of_value(self) -> frozenset[str]:
        """Roles that an option sets for all records, so that columns of these names belong to the value."""
        is_given = {
            "topic": self.topic is not None,
            "partition": self.partitions is not None,
            "offset": not self.keeps_offsets,
        }
        return frozenset(role for role, given in is_given.items() if given and role not in self.columns)

    @property
    def keeps_offsets(self) -> bool:
        if self.keep_offsets is not None:
            return self.keep_offsets
        return self.partitions is None or self.partitions == 1

    def __post_init__(self) -> None:
        check_on_decode_error(self.on_decode_error)
        if self.partitions is not None and not 1 <= self.partitions <= self.limits.max_directories:
            raise ValueError(
                f"partitions must be 1 to {self.limits.max_directories} (max_directories), not {self.partitions}"
            )
        if self.partitioner is not None:
            one_of("partitioner", self.partitioner, [*PARTITIONERS])
            if self.partitions is None:
                raise ValueError("partitioner (--partitioner) needs partitions (--partitions), their number")
        if self.only_topics is not None:
            if self.topic is not None:
                raise ValueError("only_topics selects by the column 'topic', which topic replaces: use one of the two")
            names = self.only_topics
            object.__setattr__(self, "only_topics", (names,) if isinstance(names, str) else tuple(names))
        if self.topic is not None:
            if not isinstance(self.topic, str):
                raise TypeError(f"topic is a str, not {type(self.topic).__name__}")
            try:
                check_topic(self.topic)
            except UnsafePathError as error:
                raise ValueError(f"topic {self.topic!r}: {error.detail}") from None
        elif self.topic_id is not None:
            raise ValueError("topic_id (--topic-id) requires topic (--topic)")

    def wants(self, topic: str) -> bool:
        """Whether to write the records of a topic in the column `topic`."""
        return TopicPatterns(self.only_topics, internal=self.internal).wants(topic)

    def writer_options(self) -> dict[str, Any]:
        """The options for every `PartitionWriter`, less its config."""
        names = ("compression", "compression_level", "batch_size", "max_records_per_batch", "leader_epoch", "topic_id")
        return {name: getattr(self, name) for name in (*names, "timestamp_type", "log_append_time", "limits")}


def write_table(
    data: Any,
    path: str | os.PathLike[str],
    *,
    topic: str | None = None,
    partitions: int | None = None,
    dry_run: bool = False,
    **options: Unpack[WriteKeywords],
) -> LoadResult:
    """Write a table as the partitions of a log dir.

    Parameters
    ----------
    data : object
        Any object with Arrow's C interface: pyarrow, pandas, Polars, DuckDB, a `Scan`; or a dict of arrays. Columns:
        `value`, and any of `key`, `timestamp`, `headers`, `offset`, `partition`, `topic`. It is read as a stream.
        NumPy's structured arrays, rows of bytes and big-endian numbers are bytes, and its times are UTC.
    path : path-like
        A log dir: the parent of directories such as ``orders-0``. It is created if it does not exist.
    topic : str, optional
        The topic of all records; default: the column `topic`.
    only_topics : str or sequence of str, optional
        Write only the records of these topics in the column `topic`: names or globs.
    internal : bool
        Whether to write records of internal topics (`kafkalog.format.INTERNAL_TOPICS`), such as
        ``__consumer_offsets``, in the column `topic`. By default they are skipped and counted in `LoadResult.notes`,
        unless `only_topics` names them.
    partitions : int, optional
        Number of partitions of each topic. Kafka's default partitioner then chooses the partition, and a column
        `partition` is ignored. Default: the column `partition`; without that column, partition 0.
    partitioner : str, optional
        With `partitions`, the client whose partitioner is used: ``kafka`` (murmur2 of the key; default), librdkafka's
        ``consistent_random`` (its default: CRC32 of the key), ``consistent``, ``murmur2_random``, ``murmur2``,
        ``fnv1a_random`` and ``fnv1a``, or ``sarama`` (FNV-1a). Where such a client chooses at random, partitions are
        taken in turn.
    dry_run : bool
        Read everything, write nothing, and report what would be written.
    config : LogConfig, optional
        Settings of the topics: sizes and times of segments, timestamp type, compression. Default: with `install`, the
        settings of each topic in the cluster's metadata, with a note; else Kafka's.
    compression, compression_level, batch_size, max_records_per_batch, leader_epoch, topic_id, timestamp_type, \
log_append_time
        See `PartitionWriter`.
    columns, ignore_columns, naive_timezone, truncate_timestamps
        Names of columns, columns to skip, and how timestamps are converted: see
        `kafkalog.interchange.arrow_input.record_slices`.
    keep_offsets : bool, optional
        Whether records keep the offsets of a column `offset`; default: True, unless `partitions` is above 1.
    value_format : {"json", "avro", "protobuf", "utf8", "long", ...}, optional
        Encode rows of any columns: the value is the column `value`, or else a row without the columns `key`,
        `timestamp`, `headers`, `offset`, `partition`, `topic` and `headers.NAME`. A column that `columns` names as one
        of these is in the value, too. One of `kafkalog.values.encoding.FORMATS`.
    key_format : {"json", "utf8", "long", ...}, optional
        Encode keys, too. Default: keys are bytes, and those that are neither bytes nor text become JSON text.
    schema : str or path-like, optional
        The Avro or Protobuf schema of values.
    message : str, optional
        The message of a Protobuf schema; default: the first one.
    schema_id : int, optional
        Values get Confluent's frame with this id.
    header_columns : sequence of str, optional
        With `value_format`, columns that become headers of their names. A column ``headers.NAME`` does so in any
        input. Null is no header.
    text_columns : sequence of str, optional
        With `value_format="json"`, columns of CSV that stay text. Others are numbers or booleans if all their values
        are, and if JSON prints these numbers as they are written: 12E12 and 1.10 stay text, with a note.
    on_decode_error : {"null", "skip"}, optional
        What to do with rows of an export whose key or value did not decode (`value_error`), and whose original bytes
        are not there (`value_bytes`). `skip` leaves them out. Default, and `null`: they are null, which is a tombstone.
        `LoadResult.n_undecoded` counts them.
    stage_in : path-like, optional
        Directory on the same file system to stage files in; default: beside the log dir.
    limits : Limits
        `max_directories` is the largest number of partitions.

    Returns
    -------
    LoadResult

    Raises
    ------
    UnwritableError
        A column has an unsupported type or is unknown; a value does not fit a record; offsets do not increase.
    OutputExistsError
        One of the partitions exists. Use `PartitionWriter` to append to it.
    UnsafePathError
        A broker holds the lock of the log dir; a topic's name is invalid; the path lies inside a log dir or partition.
    WriteError
        The partitions could not be written, or the process may not open enough files. Nothing is published.

    Notes
    -----
    A new log dir appears in one step. In an existing log dir each partition appears in one step, once all of them are
    complete and durable. An error moves partitions back out; a crash between two renames leaves the partitions renamed
    before it, each complete, and none of the others.

    Memory is bounded: about 100 MiB on top of the imported modules for a dozen partitions, and one batch per partition
    for many. Each partition needs two open files. The soft limit is raised as far as needed; a load that exceeds the
    hard limit (``ulimit -Hn``) is refused.

    Examples
    --------
    >>> import kafkalog
    >>> table = {"key": [b"a", b"b"], "value": [b"1", b"2"], "timestamp": [1_700_000_000_000, 1_700_000_000_001]}
    >>> kafkalog.write_table(table, tmp_path / "log", topic="orders", partitions=3)  # doctest: +SKIP
    LoadResult(2 records in 3 partitions, '/tmp/log')
    """
    reader = open_batches(data)
    how = LoadOptions(topic=topic, partitions=partitions, **options)
    rows = how.rows
    if rows is None:
        source = Source(lambda _wanted: reader, schema=reader.schema)
    else:
        source, how = Source(lambda _wanted: rows.records(reader)), dataclasses.replace(how, columns={})
    return _with_counts(run_load([source], path, how, dry_run=dry_run), rows)


def _with_counts(result: LoadResult, rows: Rows | None, notes: Sequence[str] = ()) -> LoadResult:
    """The result with what the rows had."""
    if rows is None:
        return result
    n_nulls = rows.counts["nulls"]
    if n_nulls:
        detail = "an export with decoded values does not say whether the source had these fields"
        notes = [*notes, f"{counted(n_nulls, 'value')} with fields that are null: {detail}"]
    return dataclasses.replace(result, notes=[*result.notes, *notes], n_undecoded=rows.counts["undecoded"])


def load(
    inputs: str | os.PathLike[str] | BinaryIO | Sequence[str | os.PathLike[str] | BinaryIO],
    output: str | os.PathLike[str],
    *,
    format: str | None = None,
    encoding: str | None = None,
    null: str = "",
    dry_run: bool = False,
    install: bool = False,
    replace: bool = False,
    metadata_log_dir: str | os.PathLike[str] | None = None,
    progress: Callable[[int], object] = lambda done: None,
    **options: Unpack[LoadKeywords],
) -> LoadResult:
    """Write files of records as the partitions of a log dir.

    Parameters
    ----------
    inputs : path-like, binary file, or sequence of these
        Parquet, Arrow, Avro, CSV and JSON lines; text may be compressed (``.gz``, ``.zst``). A directory stands for the
        files in it. A directory name such as ``topic=orders`` or ``partition=3`` supplies a column that the file lacks,
        as in an export with `partition_by`. So does a file name such as ``orders+3+0000000000.avro``, as sinks of Kafka
        Connect write it.
    output : path-like
        A log dir; see `write_table`.
    format : {"parquet", "arrow", "arrows", "avro", "csv", "jsonl"}, optional
        Default: by the file names' extensions.
    encoding : {"base64", "utf8", "hex"}, optional
        Encoding of keys, values and header values in CSV and JSON lines. Default: base64 for a file with a column
        ``timestamp_type``, as exports write; else utf8 with `value_format`. Other files need a choice, since text such
        as ``abcd`` is valid base64 as well.
    null : str
        The text of a null in CSV, when it is not quoted.
    install : bool
        Whether `output` is the log dir of a stopped broker, and the partitions get the topic ids that it expects: see
        `kafkalog.install`. All partitions are checked before one is moved, also in a dry run.
    replace : bool
        Whether `install` may replace partitions with records.
    metadata_log_dir : path-like, optional
        The broker's `metadata.log.dir`, where `install` finds topic ids; default: the log dir itself.
    progress : callable
        ``progress(n_bytes)`` is called with the number of input bytes read so far.
    **options
        See `write_table`.

    Returns
    -------
    LoadResult

    Raises
    ------
    ReadError
        A file cannot be read.

    Notes
    -----
    Files are read in order; offsets continue from one file to the next. See `write_table` for the rest.
    """
    how = LoadOptions(**options)
    roles = {name: role for role, name in how.columns.items()}
    several = inputs if isinstance(inputs, Sequence) and not isinstance(inputs, str) else [inputs]
    found = input_files(several, format=format)
    texts: dict[str, Any] = {"naive_timezone": how.naive_timezone, "truncate_timestamps": how.truncate_timestamps}
    rows, decoded = how.rows, {"key": how.key_format, "value": how.value_format}
    if rows is not None:
        texts |= {
            "has_rows": True,
            "headers_of_rows": how.header_columns,
            "is_key_decoded": how.key_format is not None,
            "is_value_decoded": how.value_format is not None,
            "text_columns": [role for role, one in decoded.items() if one == "utf8"],
            # with a schema, text is converted by it
            "guesses_types": how.value_format == "json",
            "of_value": how.of_value,
            "kept_as_text": tuple(how.text_columns),
        }
    files: list[RecordFile | AvroFile] = [
        AvroFile(each.path)
        if isinstance(each.path, (str, os.PathLike)) and (format or file_type(each.path)[0]) == "avro"
        else RecordFile(each.path, format, roles=roles, encoding=encoding, null=null, **texts)
        for each in found
    ]
    sources = []
    for i, (file, each) in enumerate(zip(files, found, strict=True)):
        batches = file.batches if rows is None else in_rows(file.batches, rows)
        columns = how.columns if rows is None else {}
        sources.append(Source(with_place(batches, each.place, columns, file.name), file.name, _done_of(files, i)))
    sources = merged_by_offset(sources, [str(each.path) for each in found], is_kept=how.keep_offsets is not False)
    how = how if rows is None else dataclasses.replace(how, columns={})
    result = run_load(
        sources,
        output,
        how,
        dry_run=dry_run,
        install=install,
        replace=replace,
        metadata_log_dir=metadata_log_dir,
        progress=progress,
    )
    return _with_counts(result, rows, [note for file in files for note in getattr(file, "notes", ())])


def _done_of(files: Sequence[RecordFile | AvroFile], i: int) -> Callable[[], int]:
    before = sum(file.size for file in files[:i])
    return lambda: before + files[i].done


def run_load(
    sources: Sequence[Source],
    path: str | os.PathLike[str],
    options: LoadOptions,
    *,
    dry_run: bool = False,
    install: bool = False,
    replace: bool = False,
    metadata_log_dir: str | os.PathLike[str] | None = None,
    progress: Callable[[int], object] = lambda done: None,
) -> LoadResult:
    """Read sources in order and write partitions: the common part of `write_table` and `load`."""
    log_dir = check_log_dir(path)
    kind = kind_of(log_dir)
    if install and kind != "directory":
        raise NotKafkaError(Reason.NOT_KAFKA, "no such log dir to install into", path=log_dir)
    if kind not in (None, "directory"):
        raise OutputExistsError(Reason.OUTPUT_EXISTS, "the path exists but is not a directory", path=log_dir)
    may_stray = kind is not None and not install and options.topic_id is None
    notes = [stray_note(log_dir)] if may_stray else []
    with contextlib.ExitStack() as stack:
        if kind is not None and dry_run:
            refuse_if_locked([log_dir])
        elif kind is not None:
            stack.enter_context(hold_locks([log_dir]))
        targets = None
        if install:
            targets = BrokerLogDir(
                log_dir,
                topic_id=options.topic_id,
                replace=replace,
                metadata_log_dir=metadata_log_dir,
                limits=options.limits,
            )
            stack.enter_context(targets)
        if dry_run:
            load = _LoadState(log_dir, None, options, targets)
            load.read(sources, progress)
            return load.finish(notes)
        with load_target(log_dir, options.stage_in, targets) as target:
            with _LoadState(log_dir, target.path, options, targets) as load:
                load.read(sources, progress)
                result = load.finish(notes)
            target.publish({kf.TopicPartition(each.topic, each.partition) for each in result.partitions})
        return result


class _LoadState:
    """The state of a load: one writer per partition, and the records that wait to be written."""

    def __init__(self, log_dir: Path, stage: Path | None, options: LoadOptions, targets: BrokerLogDir | None) -> None:
        self._log_dir, self._stage, self._options, self._targets = log_dir, stage, options, targets
        self._writers: dict[kf.TopicPartition, PartitionWriter] = {}
        self._configs: dict[str, LogConfig | None] = {}
        self._n_tombstones = 0
        self._latest_reader: tuple[pa.Schema, ColumnReader] | None = None
        self._router = Router(
            self._n_partitions,
            topic=options.topic,
            sticky_bytes=options.batch_size,
            partitioner=options.partitioner or "kafka",
            wants=options.wants,
        )
        self._waiting = WaitingRecords(
            self._open_writer,
            path=log_dir,
            batch_size=options.batch_size,
            hint="keep_offsets=False (--no-keep-offsets) gives the records new offsets",
        )

    def __enter__(self) -> _LoadState:
        return self

    def __exit__(self, *error: Any) -> None:
        for writer in self._writers.values():
            writer.abort()  # does nothing if it is closed

    def read(self, sources: Sequence[Source], progress: Callable[[int], object]) -> None:
        """Read all sources, and write records when they fill batches."""
        if self._options.topic is not None:
            self._router.register(self._options.topic)
        for source in sources:
            row = 0
            try:
                if source.schema is not None:
                    self._reader(source.schema)
                for batch in source.batches(self._wanted):
                    reader = self._reader(batch.schema)
                    for part in slices(batch):
                        self._take(part, reader, row)
                        row += part.num_rows
                        progress(source.done())
            except UnwritableError as error:
                error.path = source.path if error.path is None else error.path
                raise
            progress(source.done())

    def _wanted(self, schema: pa.Schema) -> list[str]:
        """The columns to read; unknown or unsupported other columns raise here, before any of them is read."""
        names = self._reader(schema).names.values()
        return [name for name in schema.names if name in names or name == "is_control" or name.startswith(HEADER_FIELD)]

    def _reader(self, schema: pa.Schema) -> ColumnReader:
        """The reader of a schema; made once for batches that follow each other."""
        if self._latest_reader is not None and self._latest_reader[0] == schema:
            return self._latest_reader[1]
        options = self._options
        reader = ColumnReader(
            schema,
            columns=options.columns,
            ignore_columns=options.ignore_columns,
            naive_timezone=options.naive_timezone,
            truncate_timestamps=options.truncate_timestamps,
        )
        if options.topic is None and "topic" not in reader.names:
            raise UnwritableError(
                Reason.COLUMN_MISSING, "the input has no column 'topic': name the topic (topic, --topic)"
            )
        self._latest_reader = schema, reader
        return reader

    def _take(self, batch: pa.RecordBatch, reader: ColumnReader, row: int) -> None:
        columns = reader.read(batch, row)
        if "offset" in columns and not self._options.keeps_offsets:
            columns = RecordColumns(columns.n_records, {n: c for n, c in columns.items() if n != "offset"})
        for routed in self._router.route(columns, batch, reader, row):
            key, value = (cast(BinaryColumn, routed.columns[name]).validity for name in ("key", "value"))
            if value is not None:
                self._n_tombstones += int((~value if key is None else ~value & key).sum())
            self._waiting.give(routed)

    def _n_partitions(self, topic: str) -> int | None:
        """Open all partitions of a topic, also those that get no records, and return their number."""
        n = self._options.partitions
        # all at once: the limit of open files should fail a load at its start
        self._waiting.expect(n or 0)
        for number in range(n or 0):
            self._waiting.partition(kf.TopicPartition(topic, number))
        return n

    def _open_writer(self, key: kf.TopicPartition) -> PartitionWriter | None:
        if len(self._waiting.partitions) >= self._options.limits.max_directories:
            detail = f"more than {len(self._waiting.partitions)} partitions (max_directories)"
            raise LimitExceededError(Reason.TOO_MANY_DIRECTORIES, detail, path=self._log_dir)
        target = self._log_dir / str(key)
        # at the first record of a partition, not when its files are moved
        check_partition_name(target)
        if self._targets is not None:
            self._targets.check(key)
        else:
            refuse_existing(target, "the partition exists, and load changes none: name another output or topic")
        if self._stage is None:
            return None
        self._writers[key] = writer = PartitionWriter(
            self._stage / str(key), config=self._config_of(key.topic), **self._options.writer_options()
        )
        return writer

    def _config_of(self, topic: str) -> LogConfig | None:
        """The settings given, else those that the cluster's metadata has of the topic; None for Kafka's defaults."""
        cluster = None if self._targets is None else self._targets.cluster
        if self._options.config is not None or cluster is None:
            return self._options.config
        if topic not in self._configs:
            self._configs[topic] = cluster.log_config(topic)
        return self._configs[topic]

    def finish(self, notes: Sequence[str] = ()) -> LoadResult:
        """Write the waiting records and finish all partitions; the notes come first in the result."""
        partitions = self._waiting.partitions
        if not partitions and self._options.topic is not None:
            self._waiting.partition(kf.TopicPartition(self._options.topic, 0))
        self._waiting.flush()
        for key in sorted(self._writers):
            self._writers[key].close()
        loaded = [LoadedPartition.of(partitions[key]) for key in sorted(partitions)]
        partitioner = None if self._options.partitions is None else self._options.partitioner or "kafka"
        return LoadResult(
            str(self._log_dir), loaded, [*filter(None, notes), *self._notes()], partitioner, self._n_tombstones
        )

    def _notes(self) -> list[str]:
        options, now_ms = self._options, time.time_ns() // 10**6
        newest = self._newest_timestamps(now_ms)
        cluster = None if self._targets is None else self._targets.cluster
        note = retention_note(newest, config=options.config, cluster=cluster, now_ms=now_ms)
        taken = [topic for topic, config in self._configs.items() if config is not None]
        origin = f"settings of {', '.join(sorted(taken))} come from the cluster's metadata"
        tombstones = [f"{counted(self._n_tombstones, 'tombstone')}: records with a key and a null value"]
        return [
            *self._left_out(),
            *(tombstones if self._n_tombstones else []),
            *([origin] if taken else []),
            *([] if note is None else [note]),
        ]

    def _newest_timestamps(self, now_ms: int) -> dict[kf.TopicPartition, int]:
        """The newest timestamp that each partition has once it is written."""
        options = self._options
        newest = {key: partition.max_timestamp for key, partition in self._waiting.partitions.items()}
        stamp = now_ms if options.log_append_time is None else options.log_append_time
        for key, partition in self._waiting.partitions.items():
            config = self._config_of(key.topic) or default_config()
            is_kept = options.timestamp_type is None and partition.has_append_times
            if (options.timestamp_type or config.message_timestamp_type) in _STAMPED and not is_kept:
                if partition.n_records:
                    # with LogAppendTime the timestamps of the input are not those that are written
                    newest[key] = stamp
                else:
                    del newest[key]
        return newest

    def _left_out(self) -> list[str]:
        """Notes about topics that were skipped, or that were asked for and have no records."""
        if self._options.only_topics is not None:
            there = {key.topic for key in self._waiting.partitions}
            missing = sorted(
                one for one in TopicPatterns(self._options.only_topics).included if not fnmatch.filter(there, one)
            )
            return [f"no records of topic {topic!r}" for topic in missing]
        counts = self._router.left_out
        if not counts:
            return []
        which = ", ".join(f"{topic} ({counted(counts[topic], 'record')})" for topic in sorted(counts))
        how = "to include them, name them in only_topics (--only-topics), or use internal=True (--internal)"
        return [f"internal topics are left out: {which}; {how}"]
