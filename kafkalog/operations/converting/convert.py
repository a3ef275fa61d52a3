"""Logs converted: other formats, codecs, batch and segment sizes; records dropped or redacted; all into a new place.

`convert` plans, `Conversion` does one partition, `rewrite` one window of it, and a `PartitionWriter` makes the files.
Mirrors what a broker's `LogCleaner` does with a log as far as both do the same, and `RecordsUtil`'s conversion upwards.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

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
    OutputExistsError,
    Reason,
    warn,
)
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import open as open_path
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.operations.converting.conversion import Conversion, Nowhere
from kafkalog.operations.converting.redaction import Redaction
from kafkalog.operations.converting.report import ConversionReport, converted
from kafkalog.operations.converting.rewrite import Settings
from kafkalog.operations.converting.rules import Rules
from kafkalog.operations.converting.target import ConvertedPartitions
from kafkalog.records.codecs import Compression
from kafkalog.scanning.filters import Filters, parse_filters
from kafkalog.scanning.ordered_pool import OrderedPool
from kafkalog.state.log_config import LogConfig
from kafkalog.storage.output_paths import check_outside
from kafkalog.storage.staging import staged_directory

MAX_BATCH_SIZE: Final = 2**30


_Pair = tuple[kf.TopicPartition, Partition]


def convert(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | LogDir | Partition | Segment,
    to: str | os.PathLike[str],
    *,
    topics: str | Sequence[str] | None = None,
    partitions: Sequence[int] | int | None = None,
    filters: Filters | None = None,
    drop: Filters | None = None,
    redact: Mapping[str, str | None] | None = None,
    redact_where: Filters | None = None,
    redact_secret: bytes | str | None = None,
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
    """Write a log anew in format v2, changed as the options say; offsets, timestamps and their types are kept.

    With no option set, what is v2 already comes out byte for byte as it is, in the same segments. Nothing that is read
    is written to.

    Parameters
    ----------
    path : path-like, sequence of path-like, or what `kafkalog.open` returned
        A log dir, a partition directory or a `.log` file.
    to : path-like
        A directory to make, with a directory a partition in it. If there is one partition and the name is that of one
        (``copy/orders-0``), it is the partition's directory. Not inside what is read, nor in a log dir.
    topics, partitions : optional
        Only these topics and partition numbers.
    internal : bool
        Whether internal topics of a log dir (`kafkalog.format.INTERNAL_TOPICS`) are converted though `topics` does not
        name them. A finding tells which ones are left out; the cluster's own metadata always are.
    filters : list of tuple, or list of list of tuple, optional
        Records of which these do not hold are dropped; see `kafkalog.scan`.
    drop : the same, optional
        Records of which these hold are dropped: those of a person, say. Null compares with nothing, so it is not
        dropped for being unlike.
    redact : mapping of str to str, optional
        What is taken out of records that stay: ``{"value": "null"}`` makes a tombstone of each. Keys are ``key``,
        ``value``, ``headers`` and ``headers.NAME``, values are ``"null"`` (or None; all headers are removed by it) and
        ``"hash"`` (SHA-256 in hex: what belongs to one key still does, but a producer would choose another partition).
        A compacted topic cannot have null keys: its cleaner drops such records.
    redact_where : like filters, optional
        Which records are redacted; default: all.
    redact_secret : bytes or str, optional
        For ``"hash"``: HMAC-SHA-256 with this secret. Without one, a value that can be guessed (a name, a number, an
        address) can be found by hashing guesses and comparing.
    compression : str or Compression, optional
        ``"none"``, ``"gzip"``, ``"snappy"``, ``"lz4"`` or ``"zstd"``. Batches of another codec are compressed anew;
        with a level all are. Default: each batch keeps its own.
    compression_level : int, optional
        Of the codec, in Kafka's range.
    batch_size : int, optional
        Batches are joined and cut anew to at most so many bytes before compression; a larger record has its own.
        Default: batches stay, and single v0 and v1 messages are put together to 16 KiB.
    config : LogConfig, optional
        Segments are cut anew, by its rules. Default: they stay.
    include_deleted : bool
        Also records below the log start offset; the log then begins with its first segment.
    on_corruption : {"raise", "stop", "skip"}
        Damage raises, and nothing is written; or ends its partition there; or is left out. The latter two warn, and the
        report has the findings.
    threads : int, optional
        Threads that decode and encode; default: as many as there are CPUs. The output is the same with any number.
    dry_run : bool
        Do it all but write nothing.
    progress : callable
        Told how many more bytes of `.log` files are done.
    limits : Limits

    Returns
    -------
    ConversionReport

    Raises
    ------
    OutputExistsError, UnsafePathError
        The destination is there, or would do harm.
    WriteError
        It could not be written, and is not there.
    KafkalogError
        The source is damaged or cannot be read, with `on_corruption="raise"`.

    Warns
    -----
    CorruptionWarning
        Damage was met, with `on_corruption` "stop" or "skip".
    ConfigWarning
        Keys become null in a topic that is compacted, as far as `config` or the metadata in the log dir tell.

    Notes
    -----
    A v0 message, which has no timestamp, gets -1 and the type CreateTime, as format v2 has it; LogAppendTime batches
    stay so. Legacy messages get the leader epoch that the checkpoint or the batches before them say, else 0.

    Batches that lose records keep their offsets, sequence numbers and codec, as in the log cleaner; batches that lose
    none are copied. Transaction markers and other control batches are never filtered. A batch that loses all of its
    records goes, unless a producer is known by it, a transaction begins with it, or it is the end of the log: then it
    stays as an empty one of 61 bytes. So the log end offset does not move, and producers and transactions are what they
    were.

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
    rules = _rules(filters, drop, redact, redact_where, redact_secret, include_deleted)
    settings = Settings(_compression(compression, compression_level), _batch_size(batch_size), limits)
    if on_corruption not in ("raise", "stop", "skip"):
        raise ValueError(f"on_corruption must be 'raise', 'stop' or 'skip', not {on_corruption!r}")
    if threads is not None and (isinstance(threads, bool) or threads < 1):
        raise ValueError(f"threads must be at least 1, not {threads!r}")
    opened = path if isinstance(path, (LogDir, Partition, Segment)) else open_path(path, limits=limits)
    report = ConversionReport(is_written=not dry_run)

    def note(finding: Finding) -> None:
        report.findings.add(finding)
        if finding.damage:
            warn(finding, CorruptionWarning)

    target = Path(to)
    chosen = list(_choose(opened, topics, partitions, internal, on_corruption, note))
    if not chosen and (topics is not None or partitions is not None):
        raise ValueError("no partition here is of these topics and has one of these numbers")
    sources = opened.paths if isinstance(opened, LogDir) else [opened.path]
    check_outside(target, [*sources, *(partition.path for partition in chosen)])
    if not dry_run and os.path.lexists(target):  # a link as well, wherever it leads
        raise OutputExistsError(Reason.OUTPUT_EXISTS, "it is there already", path=target)
    name = kf.parse_partition_directory(target.absolute().name)
    is_one = len(chosen) == 1 and not isinstance(opened, LogDir) and name is not None and name.kind is None
    named = [(name.topic_partition, chosen[0])] if is_one and name is not None else list(_named(chosen))
    n_threads = threads or os.cpu_count() or 1
    targets = ConvertedPartitions(config, limits, note)
    if rules.redaction is not None and rules.redaction.removes_keys:
        for topic in sorted({key.topic for key, partition in named if targets.is_compacted(partition)}):
            warn(
                f"{topic} is compacted and its keys become null: a broker takes no record without a key there, and its"
                " cleaner drops those that it finds; hash them instead",
                ConfigWarning,
            )
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(OrderedPool(n_threads if n_threads > 1 else 0))
        root = None
        if named and not is_one and not dry_run:
            root = stack.enter_context(staged_directory(target)).path
        for key, partition in named:
            conversion = Conversion(
                partition,
                rules,
                settings,
                keeps_segments=config is None,
                on_corruption=on_corruption,
                report=note,
                progress=progress,
            )
            where = target if is_one else target / str(key)
            if dry_run:
                conversion.run(Nowhere(), pool, n_threads)
            else:
                directory = where if root is None else root / str(key)
                with targets.open(directory, partition, conversion.start_offset) as sink:
                    conversion.run(sink, pool, n_threads)
            offsets = conversion.start_offset, conversion.end_offset
            report.partitions.append(
                converted(key, str(where), str(partition.path), offsets, conversion.counts, report.findings)
            )
    return report


def _rules(
    filters: Filters | None,
    drop: Filters | None,
    redact: Mapping[str, str | None] | None,
    redact_where: Filters | None,
    redact_secret: bytes | str | None,
    include_deleted: bool,
) -> Rules:
    if redact is None and (redact_where is not None or redact_secret is not None):
        raise ValueError("redact_where and redact_secret go with redact, which says what to redact")
    return Rules(
        None if filters is None else parse_filters(filters),
        None if drop is None else parse_filters(drop),
        None if redact is None else Redaction.parse(redact, redact_secret),
        None if redact_where is None else parse_filters(redact_where),
        bool(include_deleted),
    )


def _compression(compression: str | Compression | None, level: int | None) -> Compression | None:
    if compression is None:
        if level is not None:
            raise ValueError("compression_level goes with compression, which says of which codec")
        return None
    return Compression.parse(compression, level=level)


def _batch_size(batch_size: int | None) -> int | None:
    if batch_size is not None and (isinstance(batch_size, bool) or not 1 <= batch_size <= MAX_BATCH_SIZE):
        raise ValueError(f"batch_size must be 1 to {MAX_BATCH_SIZE} bytes, not {batch_size!r}")
    return batch_size


def _choose(
    opened: LogDir | Partition | Segment,
    topics: str | Sequence[str] | None,
    partitions: Sequence[int] | int | None,
    internal: bool,
    on_corruption: OnCorruption,
    note: Callable[[Finding], None],
) -> Iterator[Partition]:
    named = None if topics is None else {topics} if isinstance(topics, str) else set(topics)
    numbered = None if partitions is None else {partitions} if isinstance(partitions, int) else set(partitions)
    if not isinstance(opened, LogDir):
        key = opened.topic_partition
        if (named is None or (key and key.topic in named)) and (
            numbered is None or (key and key.partition in numbered)
        ):
            yield Partition.of_segment(opened) if isinstance(opened, Segment) else opened
        return
    for finding in opened.findings:
        note(finding)
    for missing in sorted((named or set()) - set(opened.topics)):
        raise ValueError(f"no topic {missing!r} here; there are {', '.join(opened.topics[:8])}")
    keys = opened.select(topics, partitions, internal=internal)
    if named is None:
        left_out = {key.topic: key for key in set(opened.select(partitions=partitions)) - set(keys)}
        left_out |= {key.topic: key for key in keys if key.topic == kf.METADATA_TOPIC}
        for topic, key in sorted(left_out.items()):
            detail = (
                f"the internal topic {topic!r} is left out; topics (-t) names it, internal=True (--internal) takes all"
            )
            if topic == kf.METADATA_TOPIC:
                detail = "the cluster's metadata, which nobody but its controllers write, is left out"
            note(Finding(Reason.UNSAFE_PATH, detail, path=str(opened.path_of(key).path), damage=False))
        keys = [key for key in keys if key.topic not in left_out]
    for key in keys:
        try:
            partition = opened[key]
        except KafkalogError as error:
            if on_corruption == "raise":
                raise
            note(error.to_finding())
            continue
        yield partition


def _named(chosen: list[Partition]) -> Iterator[_Pair]:
    for partition in chosen:
        key = partition.topic_partition
        if key is None:
            detail = "it does not lie in a directory such as orders-0: end the destination in one"
            raise NotKafkaError(Reason.NOT_KAFKA, detail, path=partition.path)
        yield key, partition
