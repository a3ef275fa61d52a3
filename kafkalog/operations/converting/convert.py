"""Converts logs into a new directory: format, codec, batch and segment sizes; drops or redacts records.

`convert` plans, `Conversion` converts one partition, `rewrite` converts one window of it, and a `PartitionWriter`
writes the files. Mirrors `LogCleaner` where both do the same, and the up-conversion of `RecordsUtil`. It never modifies
the source.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, get_args

from kafkalog import format as kf
from kafkalog.errors import (
    DEFAULT_LIMITS,
    ConfigWarning,
    CorruptionWarning,
    Finding,
    KafkalogError,
    Limits,
    NotKafkaError,
    OnCorruption,
    ReadError,
    Reason,
    warn,
)
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import notes_apart, partitions_of, removed_from
from kafkalog.log.open import open as open_path
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.operations.converting.converted_partitions import ConversionReport, converted
from kafkalog.operations.converting.kept_records import DecodedConditions, Rules
from kafkalog.operations.converting.partition import PartitionConversion, Sink
from kafkalog.operations.converting.redaction import Redaction
from kafkalog.operations.converting.rewrite import Settings
from kafkalog.operations.converting.target import ConvertedPartitions
from kafkalog.operations.rebuilding.partitions import may_copy, saved_alone
from kafkalog.parsing import one_of, optional_integer, thread_count
from kafkalog.records.codecs import Compression
from kafkalog.records.header import BatchHeader
from kafkalog.scanning.conditions.filter_tuples import Filters, parse_filters
from kafkalog.scanning.conditions.filters import Filter
from kafkalog.scanning.ordered_pool import OrderedPool
from kafkalog.state.log_config import LogConfig
from kafkalog.storage.atomic import check_free
from kafkalog.storage.location import Place
from kafkalog.storage.output_paths import check_outside, named_partition
from kafkalog.storage.room import check_room, free_bytes
from kafkalog.storage.staging import staged_directory
from kafkalog.survey.next_steps import paths_read
from kafkalog.text import NO_PARTITION_MATCHES
from kafkalog.values.schemas import SchemasOption

if TYPE_CHECKING:
    from kafkalog.values.options import Decode

MAX_BATCH_SIZE: Final = 2**30


_Pair = tuple[kf.TopicPartition, Partition]


def convert(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | LogDir | Partition | Segment,
    output: str | os.PathLike[str],
    *,
    topics: str | Sequence[str] | None = None,
    partitions: Sequence[int] | int | None = None,
    filters: Filters | None = None,
    drop: Filters | None = None,
    redact: Mapping[str, str | None] | None = None,
    redact_where: Filters | None = None,
    redact_secret: bytes | str | None = None,
    decode: Mapping[str, Decode] | None = None,
    schemas: SchemasOption | None = None,
    schema_context: str | None = None,
    compression: str | Compression | None = None,
    compression_level: int | None = None,
    batch_size: int | None = None,
    config: LogConfig | None = None,
    include_deleted: bool = False,
    internal: bool = False,
    on_corruption: OnCorruption = "raise",
    threads: int | None = None,
    dry_run: bool = False,
    progress: Callable[[int], object] = lambda n_bytes: None,
    limits: Limits = DEFAULT_LIMITS,
) -> ConversionReport:
    """Write a copy of a log in format v2, changed by the options; offsets, timestamps and their types are kept.

    Without options, v2 batches are copied byte for byte, into the same segments. The source is never modified.

    Parameters
    ----------
    path : path-like, sequence of path-like, or what `kafkalog.open` returned
        A log dir, a partition directory or a `.log` file.
    output : path-like
        The directory to create, with one subdirectory per partition. For a single partition that is not chosen from a
        log dir, a name such as ``copy/orders-0`` is the partition's directory itself. It must lie outside the source
        and outside any log dir.
    topics, partitions : optional
        Only these topics and partition numbers.
    internal : bool
        Whether to convert internal topics of a log dir (`kafkalog.format.INTERNAL_TOPICS`) that `topics` does not
        name. A finding reports those that are left out. The cluster's metadata log is never written.
    filters : list of tuple, or list of list of tuple, optional
        Records that do not match are dropped; see `kafkalog.scan`.
    drop : list of tuple, or list of list of tuple, optional
        Records that match are dropped, for example those of one person. A comparison with null never matches, so
        ``!=`` does not drop nulls.
    redact : mapping of str to str, optional
        The parts of the remaining records to redact: ``{"value": "null"}`` turns each record into a tombstone. Keys are
        ``key``, ``value``, ``headers`` and ``headers.NAME``. Values are ``"null"`` (or None; removes all headers if the
        key is ``headers``) and ``"hash"`` (SHA-256 in hex; equal keys stay equal, but a producer would choose another
        partition for them). A compacted topic cannot have null keys: its cleaner drops such records.
    redact_where : list of tuple, or list of list of tuple, optional
        The records to redact; default: all.
    decode, schemas, schema_context : optional
        Formats of keys and values, as in `kafkalog.scan`. `filters`, `drop` and `redact_where` may name fields then,
        such as ``("value.user", "==", 42)``. A pass before the conversion decodes; whether a record matches whose value
        does not decode is not known: it is not dropped, and `ConversionReport.n_undecoded` counts it.
    redact_secret : bytes or str, optional
        Secret for ``"hash"``, which then is HMAC-SHA-256. Without a secret, values that can be guessed (names, numbers,
        addresses) can be recovered by hashing guesses.
    compression : str or Compression, optional
        ``"none"``, ``"gzip"``, ``"snappy"``, ``"lz4"`` or ``"zstd"``. Batches of another codec are recompressed; with
        a level all batches are. Default: each batch keeps its codec.
    compression_level : int, optional
        Level of the codec, in Kafka's range.
    batch_size : int, optional
        Batches are joined and cut again to at most this many bytes before compression; a larger record gets a batch of
        its own. Default: batches stay, and single v0 and v1 messages are collected into batches of 16 KiB.
    config : LogConfig, optional
        Segments are cut again by these settings. Default: segments begin where those of the source do.
    include_deleted : bool
        Whether to include records below the log start offset. The log then begins with its first segment.
    on_corruption : {"raise", "stop", "skip"}
        "raise": damage raises, and nothing is written. "stop": the output of the partition ends at the damage. "skip":
        damaged batches are left out. "stop" and "skip" warn, and add findings to the report. With "raise", batches that
        need no change are copied without being decoded.
    threads : int, optional
        Number of threads that decode and encode; default: the number of CPUs. The output does not depend on it.
    dry_run : bool
        Read and convert everything, but write nothing.
    progress : callable
        ``progress(n_bytes)`` is called with the number of bytes of `.log` files read since the last call.
    limits : Limits

    Returns
    -------
    ConversionReport

    Raises
    ------
    UnsafePathError
        The destination exists, or overlaps the source or a log dir.
    WriteError
        The destination could not be written; it does not appear.
    KafkalogError
        The source is damaged or cannot be read, with `on_corruption="raise"`.

    Warns
    -----
    CorruptionWarning
        The source is damaged, with `on_corruption` "stop" or "skip".
    ConfigWarning
        Keys become null in a compacted topic, by `config` or the cluster's metadata in the log dir.

    Notes
    -----
    A v0 message has no timestamp: it gets -1 and the type CreateTime. LogAppendTime batches keep their type. Legacy
    messages get the leader epoch of the checkpoint or of the batches before them, else 0.

    Batches that lose some records keep their offsets, sequence numbers and codec, as in the log cleaner; batches that
    lose none are copied. Transaction markers and other control batches are never filtered. A batch without remaining
    records is dropped. Exceptions are the last batch of a producer, the first of a transaction, and the end of the log.
    Then it stays as an empty batch of 61 bytes. The log end offset, the producers and the transactions therefore do not
    change.

    A crash leaves the destination absent or complete.

    Source: Cleaner.cleanInto and shouldDiscardBatch, AbstractRecords.convert, Kafka 4.3 and before.

    Examples
    --------
    >>> report = kafkalog.convert(
    ...     "tests/golden/log_dir", "copy", topics="p-multi", drop=[("key", "==", "key-103")], dry_run=True
    ... )
    >>> report.total("n_records_before"), report.total("n_records_dropped")
    (303, 2)
    """
    batch_size = optional_integer("batch_size", batch_size, 1, MAX_BATCH_SIZE)
    decodes_all = on_corruption != "raise"
    settings = Settings(_compression(compression, compression_level), batch_size, limits, decodes_all)
    one_of("on_corruption", on_corruption, get_args(OnCorruption))
    n_threads = thread_count(threads, decodes=True)
    opened = path if isinstance(path, (LogDir, Partition, Segment)) else open_path(path, limits=limits)
    report = ConversionReport(is_written=not dry_run, log_dirs=paths_read(opened))

    def note(finding: Finding) -> None:
        report.findings.add(finding)
        if finding.damage:
            warn(finding, CorruptionWarning)

    target = Path(output)
    chosen = list(_choose(opened, topics, partitions, internal, on_corruption, note))
    if not chosen and (topics is not None or partitions is not None):
        raise ValueError(NO_PARTITION_MATCHES)
    sources = opened.paths if isinstance(opened, LogDir) else [opened.path]
    # checked before anything is read: a conversion may take hours
    check_outside(output, [*sources, *(partition.path for partition in chosen)], is_new=True)
    if not dry_run:
        check_free(target)
    reading = {"topics": topics, "partitions": partitions, "internal": internal, "on_corruption": on_corruption}
    decoding = {"decode": decode, "schemas": schemas, "schema_context": schema_context}
    found = DecodedConditions(opened, {**reading, **decoding}, note)
    rules = _rules(filters, drop, redact, redact_where, redact_secret, include_deleted, found)
    report.n_undecoded = found.n_undecoded
    check_room(target, _copied_logs(chosen, rules, settings, free_bytes(target)), note, dry_run=dry_run)
    name = named_partition(target, is_one=len(chosen) == 1 and not isinstance(opened, LogDir))
    is_one = name is not None
    # the new name counts, not that of the source: a copy may be of another topic
    named = list(_named(chosen)) if name is None else [(name, chosen[0])]
    targets = ConvertedPartitions(config, limits, note)
    if rules.redaction is not None and rules.redaction.removes_keys:
        _warn_of_null_keys(named, targets)
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(OrderedPool(n_threads if n_threads > 1 else 0))
        root = None
        if named and not is_one and not dry_run:
            root = stack.enter_context(staged_directory(target)).path
        saves_rest = on_corruption != "raise" and len(named) > 1
        for key, partition in named:
            conversion = PartitionConversion(
                partition,
                rules,
                settings,
                keeps_segments=config is None,
                on_corruption=on_corruption,
                report=note,
                progress=progress,
            )
            where = target if is_one else target / str(key)
            directory = None if dry_run else where if root is None else root / str(key)
            write = partial(_write, conversion, partition, targets, directory, pool, n_threads)
            problem = _problem_of(write, opened, saves_rest=saves_rest)
            if problem is not None:
                note(problem)  # none of it is in the output
                continue
            offsets = conversion.start_offset, conversion.end_offset
            report.partitions.append(
                converted(key, str(where), str(partition.path), offsets, conversion.counts, report.findings)
            )
    return report


def _copied_logs(partitions: Sequence[Partition], rules: Rules, settings: Settings, free: int) -> Iterator[Place]:
    """Yield the segments that are copied batch by batch, if all are: then the output has their size.

    No segment is looked at if all fit into `free` bytes: a store is asked for each.
    """
    is_same = not (rules.drops_by_content or rules.redaction or settings.compression or settings.rewrites_all)
    # what is damaged may be left out
    if not is_same or settings.decodes_all:
        return
    if sum(segment.size_in_bytes for partition in partitions for segment in partition.segments) <= free:
        return
    for partition in partitions:
        start = 0 if rules.include_deleted else partition.log_start_offset
        for segment in partition.segments:
            with contextlib.suppress(KafkalogError), segment.open() as source:
                header = source.window(0, min(source.size, kf.RECORD_BATCH_OVERHEAD))
                is_v2 = len(header) == kf.RECORD_BATCH_OVERHEAD and BatchHeader(header).magic == 2
                if is_v2 and segment.base_offset >= start:
                    yield segment.path


def _write(
    conversion: PartitionConversion,
    partition: Partition,
    targets: ConvertedPartitions,
    directory: Path | None,
    pool: OrderedPool,
    n_threads: int,
) -> None:
    """Convert a partition into a directory; without one, write nothing."""
    if directory is None:
        conversion.run(Sink(), pool, n_threads)
        return
    with targets.open(directory, partition, conversion.start_offset) as sink:
        conversion.run(sink, pool, n_threads)


def _problem_of(write: Callable[[], None], opened: LogDir | Partition | Segment, *, saves_rest: bool) -> Finding | None:
    """Why a partition is not converted: a broker removed it, or with `saves_rest`, it cannot be read."""
    failed: list[KafkalogError] = []
    try:
        with saved_alone(saves_rest, failed.append):
            write()
    except ReadError as error:
        removed = removed_from(opened, error)
        if removed is None:
            raise
        return removed
    return (removed_from(opened, failed[0]) or failed[0].to_finding()) if failed else None


def _warn_of_null_keys(named: Sequence[_Pair], targets: ConvertedPartitions) -> None:
    for topic in sorted({key.topic for key, partition in named if targets.is_compacted(partition)}):
        warn(
            f"{topic} is compacted, and its keys become null: a broker refuses such records, and its cleaner drops"
            " them. Hash the keys instead",
            ConfigWarning,
        )


def _rules(
    filters: Filters | None,
    drop: Filters | None,
    redact: Mapping[str, str | None] | None,
    redact_where: Filters | None,
    redact_secret: bytes | str | None,
    include_deleted: bool,
    decoded: DecodedConditions,
) -> Rules:
    if redact is None and (redact_where is not None or redact_secret is not None):
        raise ValueError("redact_where and redact_secret need redact, which names what to redact")

    def parsed(conditions: Filters | None) -> Filter | None:
        return None if conditions is None else parse_filters(decoded.by_place(conditions))

    redaction = None if redact is None else Redaction.parse(redact, redact_secret)
    return Rules(parsed(filters), parsed(drop), redaction, parsed(redact_where), bool(include_deleted))


def _compression(compression: str | Compression | None, level: int | None) -> Compression | None:
    if compression is None:
        if level is not None:
            raise ValueError("compression_level needs compression: the levels are those of a codec")
        return None
    return Compression.parse(compression, level=level)


def _choose(
    opened: LogDir | Partition | Segment,
    topics: str | Sequence[str] | None,
    partitions: Sequence[int] | int | None,
    internal: bool,
    on_corruption: OnCorruption,
    note: Callable[[Finding], None],
) -> Iterator[Partition]:
    among = None
    for finding in notes_apart(opened, topics, partitions):
        note(finding)
    if isinstance(opened, LogDir):
        for finding in opened.findings:
            note(finding)
        if topics is None:
            among = _without_internal(opened, partitions, internal, note)
    for partition in partitions_of(opened, topics, partitions, among=among):
        if isinstance(partition, Partition):
            if may_copy(opened, partition, topics, note):
                yield partition
        elif on_corruption == "raise" and removed_from(opened, partition) is None:
            raise partition
        else:
            note(partition.to_finding())


def _without_internal(
    log_dir: LogDir, partitions: Sequence[int] | int | None, internal: bool, note: Callable[[Finding], None]
) -> list[kf.TopicPartition]:
    """The partitions to convert if no topic is named; topics that are left out are noted."""
    every = log_dir.select(partitions=partitions)
    kept = {*log_dir.select(internal=internal), *(key for key in every if key.topic == kf.METADATA_TOPIC)}
    for topic, key in sorted({key.topic: key for key in every if key not in kept}.items()):
        detail = f"the internal topic {topic!r} is left out; topics (-t) names it, internal=True (--internal) takes all"
        note(Finding(Reason.UNSAFE_PATH, detail, path=str(log_dir.path_of(key).path), damage=False))
    return [*kept]


def _named(chosen: list[Partition]) -> Iterator[_Pair]:
    for partition in chosen:
        key = partition.topic_partition
        if key is None:
            detail = "not in a directory such as orders-0: end the output path with such a name"
            raise NotKafkaError(Reason.NOT_KAFKA, detail, path=partition.path)
        yield key, partition
