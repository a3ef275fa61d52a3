"""Says what a broker would do with a log dir on its next start, without starting one.

Mirrors `LogManager.loadLogs`; `PartitionLoading` does the same for `LogLoader.load`. Nothing is written.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Finding, Findings, KafkalogError, Limits, Reason
from kafkalog.log.log_dir import is_partition_directory
from kafkalog.parsing import optional_integer, parse_milliseconds
from kafkalog.repair.startup.file_names import partition_directories
from kafkalog.repair.startup.forecast import BrokerException, PartitionForecast, Preflight
from kafkalog.repair.startup.load_plan import LoadPlan, RootOffsets
from kafkalog.repair.startup.loading import PartitionLoading
from kafkalog.repair.startup.settings import Cluster
from kafkalog.repair.startup.small_files import checkpoint_exception
from kafkalog.state.checkpoints import java_number, read_properties
from kafkalog.state.cluster_metadata import read_cluster_metadata
from kafkalog.state.log_config import read_properties_file
from kafkalog.storage.file_locks import is_locked
from kafkalog.storage.removals import removed_directory

BrokerVersion = Literal["4.3", "2.8"]
_ATTEMPTS: Final = 5
_PAUSE: Final = 0.02
BROKERS: tuple[BrokerVersion, ...] = ("4.3", "2.8")


def preflight(
    path: str | os.PathLike[str],
    *,
    broker: BrokerVersion = "4.3",
    clean: bool | None = None,
    index_interval_bytes: int | None = None,
    config: str | os.PathLike[str] | None = None,
    now: int | datetime | None = None,
    threads: int | None = None,
    on_start: Callable[[int], object] = lambda n_bytes: None,
    progress: Callable[[int], object] = lambda n_bytes: None,
    on_partition: Callable[[PartitionForecast], object] = lambda partition: None,
    limits: Limits = DEFAULT_LIMITS,
) -> Preflight:
    """Say what a broker would do with a log dir on its next start. Nothing is written.

    Parameters
    ----------
    path : path-like
        A log dir, or a partition directory.
    broker : {"4.3", "2.8"}
        Version of the broker.
    clean : bool, optional
        Whether it takes the log dir for cleanly shut down. Default: whether the marker of a clean shutdown is there.
    index_interval_bytes : int, optional
        See `reindex`; it decides whether an index outgrows `segment.index.bytes`.
    config : path-like, optional
        The broker's `server.properties`: for the settings of indexes, for retention, and for its log dirs.
    now : int (ms) or aware datetime, optional
        The time from which retention counts. Default: now.
    threads : int, optional
        Partitions read at a time; default: the number of processors, up to four.
    on_start : callable
        Called once with the number of bytes of the segments that a broker recovers.
    progress : callable
        Called with the number of bytes read since the last call; by one thread at a time.
    on_partition : callable
        Called with each row of the report, in order.
    limits : Limits

    Returns
    -------
    Preflight

    Raises
    ------
    ReadError, NotKafkaError
        There is no such directory.

    Notes
    -----
    After a clean shutdown a broker reads hardly anything: it serves damaged batches, and does not start if the last
    segment ends in zeros or garbage. After an unclean one it recovers the segments from the recovery point on.

    What a broker's own settings decide and no log dir shows is foretold with `config` only: which segments retention
    deletes half a minute after the start (`SegmentForecast.expires`; that is no loss in the verdict, and all records
    count as replicated), and whether an index outgrows `log.index.size.max.bytes`. Settings of topics and of the
    cluster in its metadata come before those of the file.

    Batches are read by their headers and control records, v0 and v1 messages for their first offset, too, as by a
    broker. Where that is not plain (damage in what is replayed, segments that overlap), producers are replayed batch by
    batch, which takes longer.

    Source: LogManager.loadLogs, LogLoader.load, Kafka 4.3 and 2.8.

    Examples
    --------
    >>> kafkalog.preflight("tests/golden/log_dir/p-txn-0", clean=False)
    Preflight(1 partition, unclean start of 4.3: recovers)
    """
    if broker not in BROKERS:
        raise ValueError(f"no broker {broker!r}; there are {', '.join(BROKERS)}")
    n_threads = optional_integer("threads", threads, 1) or min(os.cpu_count() or 1, 4)
    root = Path(path)
    is_partition = is_partition_directory(root)
    log_dir = root.absolute().parent if is_partition else root
    is_clean = (log_dir / kf.CLEAN_SHUTDOWN_FILE).exists() if clean is None else clean
    result = Preflight(broker, is_clean, findings=Findings(limits.max_findings))
    offsets = RootOffsets.read(log_dir)
    for finding in offsets.findings:
        result.findings.add(finding)
    for name in (kf.RECOVERY_POINT_CHECKPOINT, kf.LOG_START_OFFSET_CHECKPOINT):
        error = checkpoint_exception(log_dir / name, broker)
        result.exceptions += [] if error is None else [error]
    directories: list[Path] = []
    for one in [root] if is_partition else partition_directories(root):
        if isinstance(one, Finding):
            result.findings.add(one)
            # a broker follows the link, and only kafkalog does not
            if Path(one.path or "").is_symlink():
                continue
            result.exceptions.append(BrokerException("KafkaException", one.path or "", one.detail))
        else:
            directories.append(one)
    cluster = _cluster(log_dir, result, limits)
    cluster.properties = None if config is None else read_properties_file(config)
    now_ms = parse_milliseconds("now", "now" if now is None else now)
    if not cluster.has_log_dir(log_dir):
        detail = f"{os.fspath(config or '')} does not name this log dir in log.dirs: the broker does not load it"
        result.findings.add(Finding(Reason.UNKNOWN_FILE, detail, path=os.fspath(log_dir), damage=False))
    is_live = is_locked(log_dir)
    if is_live:
        detail = "a broker runs on this log dir: this is about a start after it was killed now"
        result.findings.add(Finding(Reason.FILE_CHANGED, detail, path=os.fspath(log_dir), damage=False))

    def removed(directory: Path, *, is_leaving: bool = False) -> Finding | None:
        """The note about a partition that a running broker has removed, or removes; raises if it was named."""
        parsed = kf.parse_partition_directory(directory.name)
        is_leaving |= is_live and parsed is not None and parsed.kind == "delete"
        error = None if directory.exists() and not is_leaving else removed_directory(directory, is_leaving=is_leaving)
        if error is not None and is_partition:
            raise error
        return None if error is None else error.to_finding()

    def planned(directory: Path) -> LoadPlan:
        return LoadPlan(directory, offsets, is_clean=is_clean, broker=broker, limits=limits)

    plans = []
    for directory in directories:
        try:
            plans.append(planned(directory))
        except KafkalogError as error:
            if (note := removed(directory)) is not None:
                result.findings.add(note)
                continue
            result.findings.add(error.to_finding())
            result.exceptions.append(BrokerException("IOException", str(directory), str(error), is_offline=True))
    on_start(sum(segment.size_in_bytes for plan in plans for segment in plan.recovered))
    lock = threading.Lock()
    seconds = 0.0

    def advance(n_bytes: int) -> None:
        with lock:
            progress(n_bytes)

    def load(plan: LoadPlan) -> tuple[PartitionForecast | None, Findings, float]:
        start, known = time.thread_time(), cluster
        for attempt in range(_ATTEMPTS):
            found = Findings(limits.max_findings)
            row = PartitionLoading(
                plan, known, broker, not is_partition, index_interval_bytes, now_ms, found, advance
            ).run()
            if row.verdict not in ("loses", "dies") and not found.n_damage:
                break
            is_last = attempt == _ATTEMPTS - 1
            # a running one has no strays: the topic is just being deleted
            if (note := removed(plan.path, is_leaving=is_live and is_last and row.stray is not None)) is not None:
                found = Findings(limits.max_findings)
                found.add(note)
                return None, found, time.thread_time() - start
            if not is_live or is_last:
                break
            time.sleep(_PAUSE)
            # it may have written, rolled, merged or deleted a segment meanwhile; only what is lost still is then
            with contextlib.suppress(KafkalogError):
                plan = planned(plan.path)
                known = replace(known, metadata=read_cluster_metadata(log_dir, limits=limits))
        return row, found, time.thread_time() - start

    with ThreadPoolExecutor(n_threads, "kafkalog-preflight") as pool:
        for row, found, taken in pool.map(load, plans):
            seconds += taken
            for finding in found.rows:
                result.findings.add(finding)
            if row is not None:
                result.partitions.append(row)
                on_partition(row)
    if seconds > 0 and result.n_bytes_read:
        result.bytes_per_second = result.n_bytes_read / seconds
    return result


def _cluster(log_dir: Path, result: Preflight, limits: Limits) -> Cluster:
    """The cluster's metadata, and the id of the broker; problems of `meta.properties` end the start."""
    path = log_dir / kf.META_PROPERTIES
    node_id = None
    try:
        properties = read_properties(path)
    except KafkalogError as error:
        result.findings.add(error.to_finding())
        result.exceptions.append(BrokerException("RuntimeException", str(path), error.detail))
        properties = None
    if properties is not None:
        text = properties.get("node.id", properties.get("broker.id", ""))
        node_id = java_number(text, 31)
    try:
        metadata = read_cluster_metadata(log_dir, limits=limits)
    except KafkalogError:
        metadata = None
    return Cluster(metadata, node_id)
