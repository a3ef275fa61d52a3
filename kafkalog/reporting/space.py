"""Disk usage by topic, partition, day, producer, codec, key and header; savings of other settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from kafkalog.errors import DEFAULT_LIMITS, Findings, Limits
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import Paths, partitions_of
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.operations.converting.convert import convert
from kafkalog.operations.listing import summarise
from kafkalog.parsing import optional_integer
from kafkalog.records.batch_table import BatchTable
from kafkalog.reporting.space_meter import CAPACITY, SPACE_TABLES, HeavyHitters, Key, SpaceMeter
from kafkalog.reporting.tables import Table, TablesResult, tables_of
from kafkalog.reporting.what_if import SAMPLE_BYTES, Change, Runs, WhatIf, run_bytes
from kafkalog.scanning.batch_scan import BatchRows
from kafkalog.scanning.batch_summary import BatchSummary
from kafkalog.scanning.scan import Scan
from kafkalog.text import counted

VERSION: Final = 1
TABLES: Final = f"""
topics: Bytes by topic. Of the segments, and of all files.
    topic, n_partitions number, n_bytes bytes, share share, n_file_bytes bytes ~1
partitions: Bytes by partition. Of the segments, and of all files.
    partition, path ~1, n_bytes bytes, share share, n_file_bytes bytes ~2
{SPACE_TABLES.strip()}
producers: Bytes by producer. -1 are all without an id.
    producer_id number?, n_batches number, n_bytes bytes
keys: Bytes by key. Of keys, values and headers, before compression.
    key?, n_records number, n_bytes bytes, share share
headers: Bytes by header. Of names and values, before compression.
    header, n number, n_bytes bytes, share share
what_if: What other settings would give. Measured on a sample; the interval holds the result in 99.9 % of cases.
    compression?, level number?, batch_size bytes?, n_bytes_before bytes, n_bytes bytes, saved share, low bytes,
    high bytes, n_sampled bytes
"""


@dataclass(slots=True, repr=False)
class Space(TablesResult):
    """Who uses the disk."""

    paths: list[str]
    summary: dict[str, Any]
    """Sums: of the files, the segments, batches and their headers, and of records before compression."""
    tables: dict[str, Table]
    findings: Findings
    """Damage; its bytes are in the sums, as those of no batch."""

    def as_dict(self) -> dict[str, Any]:
        """The sums and all rows, for JSON."""
        return {"version": VERSION, "paths": self.paths, "summary": self.summary, **self.rows_of_tables()}

    def __repr__(self) -> str:
        n_partitions = counted(len(self.tables["partitions"].rows), "partition")
        return f"Space({n_partitions}, {self.summary['n_file_bytes']:,} bytes in all files)"


def space(
    path: Paths | LogDir,
    *,
    topics: str | Sequence[str] | None = None,
    partitions: int | Sequence[int] | None = None,
    records: bool = False,
    what_if: str | Sequence[str] = (),
    top: int = 20,
    capacity: int = CAPACITY,
    sample_bytes: int = SAMPLE_BYTES,
    seed: int = 0,
    threads: int | None = None,
    limits: Limits = DEFAULT_LIMITS,
    progress: Callable[[int], object] = lambda n_bytes: None,
) -> Space:
    """Measure disk usage, and estimate the savings of other settings. Writes nothing.

    Parameters
    ----------
    path : path-like, sequence of path-like, or LogDir
    topics, partitions : optional
        Only these topics and partition numbers.
    records : bool
        Whether to also read all records, for bytes by key and by header.
    what_if : str or sequence of str
        Other ways to store the log, as ``CODEC:LEVEL:BATCH_SIZE``; parts may be empty, as in ``zstd`` and ``::65536``.
    top : int
        Producers, keys and headers to list.
    capacity : int
        Keys to hold in memory. With more different keys, records are read a second time, for exact sums.
    sample_bytes : int
        Bytes to convert for `what_if`. A log of at most this size is converted as a whole.
    seed : int
        Chooses the sample.
    threads : int, optional
    limits : Limits
    progress : callable
        Called with the number of further bytes of `.log` files that are done, in each pass.

    Returns
    -------
    Space

    Notes
    -----
    Internal topics count. `what_if` leaves them out, as `convert` does, unless `topics` names them.

    Examples
    --------
    >>> found = kafkalog.space("tests/golden/log_dir", topics="p-zstd-java", what_if="zstd:19:65536")
    >>> found
    Space(1 partition, 67,027 bytes in all files)
    >>> [(row["n_bytes_before"], row["n_bytes"]) for row in found.tables["what_if"].objects()]
    [(66686, ...)]
    """
    top, capacity = optional_integer("top", top, 1) or 1, optional_integer("capacity", capacity, 1) or 1
    changes = [Change.parse(one) for one in ([what_if] if isinstance(what_if, str) else what_if)]
    log_dir = path if isinstance(path, LogDir) else LogDir(path, limits=limits)
    tables = tables_of(TABLES)
    findings = Findings(limits.max_findings)
    meter, producers = SpaceMeter(), BatchSummary(["producer_id"])
    samples = [Runs(run_bytes(change, sample_bytes)) for change in changes]
    to_convert = {*log_dir.select(topics, partitions, internal=topics is not None)}
    by_topic: dict[str, list[int]] = {}
    found: list[tuple[str, str, int, int]] = []
    for partition in partitions_of(log_dir, topics, partitions, set_apart=True):
        if not isinstance(partition, Partition):
            findings.add(partition.to_finding())
            continue
        is_converted = partition.kind is None and partition.topic_partition in to_convert
        add = partial(_add_batches, partition, meter, producers, samples if is_converted else [])
        summary = summarise(partition, visit=add)
        for finding in summary.findings:
            findings.add(finding)
        sizes = summary.size_in_bytes, meter.add_files(partition.path, summary.size_in_bytes)
        found.append((summary.name, summary.path, *sizes))
        topic = summary.topic or str(partition.path)
        by_topic[topic] = [old + new for old, new in zip(by_topic.get(topic, [0, 0, 0]), (1, *sizes), strict=True)]
        progress(summary.size_in_bytes)
    total = meter.n_log_bytes
    tables["partitions"].rows = [(name, at, size, size / (total or 1), files) for name, at, size, files in found]
    tables["topics"].rows = [(name, n, size, size / (total or 1), files) for name, (n, size, files) in by_topic.items()]
    for name in ("topics", "partitions"):
        tables[name].rows.sort(key=lambda row: -row[2])
    for name in ("days", "codecs", "files"):
        tables[name].rows = meter.rows(name)
    tables["producers"].rows = _producers(producers, top, meter)
    summary_of = {
        "n_file_bytes": sum(row[-1] for row in tables["partitions"].rows),
        "n_bytes": total,
        "n_batch_bytes": meter.n_batch_bytes,
        "n_batches": meter.n_batches,
        "n_batch_header_bytes": meter.n_header_bytes,
        "n_small_batches": meter.n_small,
    }
    if records:
        options = {"topics": topics, "partitions": partitions, "threads": threads}
        summary_of |= _by_record(log_dir, tables, top, capacity, progress, **options)
    for change, runs in zip(changes, samples, strict=True):
        if total <= sample_bytes:
            what = _whole(log_dir, change, topics, partitions, threads)
        else:
            what = runs.estimate(change, sample_bytes, seed, threads=threads, limits=limits)
        tables["what_if"].rows.append(what.row(tables["what_if"].columns))
    return Space([str(one) for one in log_dir.paths], summary_of, tables, findings)


def _add_batches(
    partition: Partition,
    meter: SpaceMeter,
    producers: BatchSummary,
    samples: Iterable[Runs],
    segment: Segment,
    batches: BatchTable,
) -> None:
    meter.add(batches)
    producers.add(BatchRows(partition.topic_partition, segment.path.name, batches))
    for runs in samples:
        runs.add(segment, batches, partition.log_start_offset)


def _producers(summary: BatchSummary, top: int, meter: SpaceMeter) -> list[tuple[Any, ...]]:
    rows: list[tuple[Any, ...]] = [(key[0], one.n_batches, one.n_bytes) for key, one in summary.largest(top)]
    rest = meter.n_log_bytes - sum(row[2] for row in rows)
    n_rest = meter.n_batches - sum(row[1] for row in rows)
    return [*rows, (None, n_rest, rest)] if rest else rows


def _whole(log_dir: LogDir, change: Change, topics: Any, partitions: Any, threads: int | None) -> WhatIf:
    """Convert everything, without writing."""
    report = convert(
        log_dir,
        os.path.join(os.path.abspath(os.sep), "kafkalog-output-that-is-not-written"),
        topics=topics,
        partitions=partitions,
        compression=change.compression,
        compression_level=change.level,
        batch_size=change.batch_size,
        on_corruption="skip",
        threads=threads,
        dry_run=True,
    )
    before, after = report.total("n_bytes_before"), report.total("n_bytes_after")
    return WhatIf(**asdict(change), n_bytes_before=before, n_bytes=after, low=after, high=after, n_sampled=before)


def _by_record(
    log_dir: LogDir,
    tables: dict[str, Table],
    top: int,
    capacity: int,
    progress: Callable[[int], object],
    **options: Any,
) -> dict[str, int]:
    """Fill the tables of keys and headers."""

    def count(keys: HeavyHitters, headers: HeavyHitters) -> None:
        scan = Scan(
            log_dir,
            columns=["key", "value", "headers"],
            internal=True,
            include_deleted=True,
            on_corruption="skip",
            **options,
        )
        scan.progress = progress
        for batch in scan.to_batches():
            _count(batch, keys, headers)

    keys, headers = HeavyHitters(capacity), HeavyHitters(capacity)
    count(keys, headers)
    totals = keys.total[1], headers.total[1]
    bounds = keys.error, headers.error
    if any(bounds):
        # a second pass over the same records makes the sums of the candidates exact
        keys, headers = HeavyHitters(only=keys.sums), HeavyHitters(only=headers.sums)
        count(keys, headers)
    for name, found, total in (("keys", keys, totals[0]), ("headers", headers, totals[1])):
        tables[name].rows = [
            (_text(key), n, size, size / total if total else 0.0) for key, n, size in found.largest(top) if n
        ]
        tables[name].n_more = max(len(found.sums) - top, 0)
    # a key that is not among the candidates has at most as many bytes as were taken off
    exact = [_is_exact(found, top, bound) for found, bound in ((keys, bounds[0]), (headers, bounds[1]))]
    return {
        "n_records": keys.total[0],
        "n_record_bytes": totals[0],
        "n_header_bytes": totals[1],
        "keys_are_exact": exact[0],
        "headers_are_exact": exact[1],
    }


def _is_exact(found: HeavyHitters, top: int, bound: int) -> bool:
    """Whether the listed keys certainly have the most bytes."""
    rows = found.largest(top)
    return not bound or (len(rows) == top and rows[-1][2] >= bound)


def _count(batch: pa.RecordBatch, keys: HeavyHitters, headers: HeavyHitters) -> None:
    if not batch.num_rows:
        return
    column = batch.column("headers")
    names, values = pc.list_flatten(column).flatten()
    sizes = _lengths(names) + _lengths(values)
    upto = np.concatenate([[0], np.cumsum(sizes)])
    counts = pc.fill_null(pc.list_value_length(column), 0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(counts)
    of_headers = upto[ends] - upto[ends - counts]
    _add(keys, batch.column("key"), _lengths(batch.column("key")) + _lengths(batch.column("value")) + of_headers)
    if len(names):
        _add(headers, names.cast(pa.binary()), sizes)


def _lengths(column: pa.Array) -> npt.NDArray[np.int64]:
    lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
    return np.asarray(lengths, np.int64)


def _add(into: HeavyHitters, names: pa.Array, sizes: npt.NDArray[np.int64]) -> None:
    table = pa.table({"name": names, "size": sizes})
    # in this thread: Arrow waits forever for a pool whose threads the system does not start
    sums = table.group_by("name", use_threads=False).aggregate([("size", "sum"), ([], "count_all")])
    into.add(*(sums[name].to_pylist() for name in ("name", "count_all", "size_sum")))


def _text(key: Key) -> str | None:
    """A key as text; bytes that are not UTF-8 are escaped."""
    return None if key is None else key.decode("utf-8", "backslashreplace")
