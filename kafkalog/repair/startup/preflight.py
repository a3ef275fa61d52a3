"""Says what a broker would do with a log dir on its next start, without starting one.

Mirrors `LogManager.loadLogs`; `PartitionLoading` does the same for `LogLoader.load`. Nothing is written.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Final, Literal

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Finding, Findings, KafkalogError, Limits, Reason
from kafkalog.log.log_dir import is_partition_directory
from kafkalog.parsing import TopicPatterns, check_partitions, optional_integer, parse_milliseconds
from kafkalog.repair.startup.file_names import partition_directories
from kafkalog.repair.startup.forecast import PartitionForecast, Preflight
from kafkalog.repair.startup.load_plan import LoadPlan, RootOffsets
from kafkalog.repair.startup.loading import PartitionLoading
from kafkalog.repair.startup.settings import Cluster
from kafkalog.state.checkpoints import java_number, read_properties
from kafkalog.state.cluster_metadata import read_cluster_metadata
from kafkalog.state.log_config import read_properties_file
from kafkalog.storage.file_locks import is_locked
from kafkalog.storage.removals import removed_directory
from kafkalog.survey.startup_root import StartProblem, root_problems

BrokerVersion = Literal["4.3", "2.8"]
_ATTEMPTS: Final = 5
_PAUSE: Final = 0.02
BROKERS: tuple[BrokerVersion, ...] = ("4.3", "2.8")


def preflight(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    topics: str | Sequence[str] | None = None,
    partitions: int | Sequence[int] | None = None,
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
    path : path-like or sequence of path-like
        The log dirs of one broker, or partition directories.
    topics : str or sequence of str, optional
        Names or globs of topics; a leading ``!`` excludes. The files of the log dirs themselves always count.
    partitions : int or sequence of int, optional
        Numbers of the partitions.
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
    names = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    named = [Path(one) for one in names]
    if not named:
        raise ValueError("no log dir is named")
    roots = list(dict.fromkeys(one.absolute().parent if is_partition_directory(one) else one for one in named))
    result = Preflight(broker, findings=Findings(limits.max_findings))
    result.problems = root_problems(roots, limits=limits)
    settings = None if config is None else read_properties_file(config)
    cluster = _cluster(roots, settings, result.problems, limits)
    options = _Options(broker, index_interval_bytes, parse_milliseconds("now", "now" if now is None else now), limits)
    starts = [_LogDirStart(root, clean, cluster, options, result) for root in roots]
    result.is_clean = all(start.is_clean for start in starts)
    found = [
        (start, directory, is_partition_directory(one))
        for one in named
        for start in starts
        if start.root == (one.absolute().parent if is_partition_directory(one) else one)
        for directory in ([one] if is_partition_directory(one) else start.directories())
    ]
    keys = [parsed.topic_partition for _, one, _ in found if (parsed := kf.parse_partition_directory(_name(one)))]
    patterns = TopicPatterns(topics)
    patterns.check([key.topic for key in keys])
    numbers = {partitions} if isinstance(partitions, int) else None if partitions is None else {*partitions}
    check_partitions(numbers, [key.partition for key in keys])
    loads = []
    for start, directory, is_named in found:
        parsed = kf.parse_partition_directory(_name(directory))
        key = None if parsed is None else parsed.topic_partition
        if key is None or (patterns.wants(key.topic) and (numbers is None or key.partition in numbers)):
            loads += start.loads(directory, is_named=is_named)
    on_start(sum(segment.size_in_bytes for one in loads for segment in one.plan.recovered))
    lock = threading.Lock()
    seconds = 0.0

    def advance(n_bytes: int) -> None:
        with lock:
            progress(n_bytes)

    with ThreadPoolExecutor(n_threads, "kafkalog-preflight") as pool:
        for row, findings, taken in pool.map(lambda one: one.run(advance), loads):
            seconds += taken
            for finding in findings.rows:
                result.findings.add(finding)
            if row is not None:
                result.partitions.append(row)
                on_partition(row)
    if seconds > 0 and result.n_bytes_read:
        result.bytes_per_second = result.n_bytes_read / seconds
    return result


def _name(directory: Path) -> str:
    return directory.absolute().name


@dataclass(frozen=True, slots=True)
class _Options:
    broker: BrokerVersion
    index_interval_bytes: int | None
    now_ms: int
    limits: Limits


@dataclass(slots=True)
class _LogDirStart:
    """A log dir of the broker."""

    root: Path
    clean: bool | None
    cluster: Cluster
    options: _Options
    result: Preflight
    is_clean: bool = field(init=False)
    is_live: bool = field(init=False)
    offsets: RootOffsets = field(init=False)

    def __post_init__(self) -> None:
        self.is_clean = (self.root / kf.CLEAN_SHUTDOWN_FILE).exists() if self.clean is None else self.clean
        self.offsets = RootOffsets.read(self.root)
        failed = {problem.path for problem in self.result.problems}
        for finding in self.offsets.findings:
            if finding.path not in failed:
                self.result.findings.add(finding)
        self.is_live = is_locked(self.root)
        if self.is_live:
            detail = "a broker runs on this log dir: this is about a start after it was killed now"
            self.result.findings.add(Finding(Reason.FILE_CHANGED, detail, path=str(self.root), damage=False))
        if not self.cluster.has_log_dir(self.root):
            detail = "log.dirs of the configuration does not name this log dir: the broker does not load it"
            self.result.findings.add(Finding(Reason.UNKNOWN_FILE, detail, path=str(self.root), damage=False))

    def directories(self) -> Iterator[Path]:
        """The partition directories; other directories are problems."""
        for one in partition_directories(self.root):
            if not isinstance(one, Finding):
                yield one
            elif Path(one.path or "").is_symlink():
                # a broker follows the link, and only kafkalog does not
                self.result.findings.add(one)
            else:
                self.result.problems.append(StartProblem(one.reason, one.path or "", one.detail))

    def plan(self, directory: Path) -> LoadPlan:
        """How the broker loads a partition."""
        options = self.options
        is_clean = self.is_clean
        return LoadPlan(directory, self.offsets, is_clean=is_clean, broker=options.broker, limits=options.limits)

    def loads(self, directory: Path, *, is_named: bool) -> list[_Load]:
        """The load of a partition; none if it cannot be read, or was just removed."""
        try:
            return [_Load(self, self.plan(directory), is_named)]
        except KafkalogError as error:
            note = self.removed(directory, is_named=is_named)
            if note is None:
                self.result.problems.append(
                    StartProblem(error.reason, error.path or str(directory), error.detail, effect="log dir offline")
                )
            else:
                self.result.findings.add(note)
            return []

    def removed(self, directory: Path, *, is_named: bool, is_leaving: bool = False) -> Finding | None:
        """The note about a partition that a running broker has removed, or removes; raises if it was named."""
        parsed = kf.parse_partition_directory(directory.name)
        is_leaving |= self.is_live and parsed is not None and parsed.kind == "delete"
        error = None if directory.exists() and not is_leaving else removed_directory(directory, is_leaving=is_leaving)
        if error is not None and is_named:
            raise error
        return None if error is None else error.to_finding()


@dataclass(slots=True)
class _Load:
    """The load of a partition."""

    start: _LogDirStart
    plan: LoadPlan
    is_named: bool

    def run(self, advance: Callable[[int], object]) -> tuple[PartitionForecast | None, Findings, float]:
        """The forecast with its findings, and the seconds of CPU that it took; None for one that was removed."""
        options, is_live = self.start.options, self.start.is_live
        began, cluster = time.thread_time(), self.start.cluster
        for attempt in range(_ATTEMPTS):
            found = Findings(options.limits.max_findings)
            loading = PartitionLoading(
                self.plan,
                cluster,
                options.broker,
                not self.is_named,
                options.index_interval_bytes,
                options.now_ms,
                found,
                advance,
            )
            row = loading.run()
            if row.verdict in ("starts", "recovers") and not found.n_damage:
                break
            is_last = attempt == _ATTEMPTS - 1
            # a running one has no strays: the topic is just being deleted
            is_leaving = is_live and is_last and row.stray is not None
            if (note := self.start.removed(self.plan.path, is_named=self.is_named, is_leaving=is_leaving)) is not None:
                found = Findings(options.limits.max_findings)
                found.add(note)
                return None, found, time.thread_time() - began
            if not is_live or is_last:
                break
            time.sleep(_PAUSE)
            # it may have written, rolled, merged or deleted a segment meanwhile; only what is lost still is then
            with contextlib.suppress(KafkalogError):
                self.plan = self.start.plan(self.plan.path)
                metadata = read_cluster_metadata(self.start.root, limits=options.limits)
                cluster = replace(cluster, metadata=metadata or cluster.metadata)
        return row, found, time.thread_time() - began


def _cluster(
    roots: Sequence[Path], settings: dict[str, object] | None, problems: list[StartProblem], limits: Limits
) -> Cluster:
    """The cluster's metadata and the broker's id, from the log dirs that have them."""
    node_id = metadata = None
    for root in roots:
        with contextlib.suppress(KafkalogError):
            properties = read_properties(root / kf.META_PROPERTIES) or {}
            found = java_number(properties.get("node.id", properties.get("broker.id", "")), 31)
            if node_id is None and not any(one.path == str(root / kf.META_PROPERTIES) for one in problems):
                node_id = found
        with contextlib.suppress(KafkalogError):
            metadata = metadata or read_cluster_metadata(root, limits=limits)
    # of topics that may be in what is missing, nothing is said
    is_complete = metadata is not None and not metadata.findings
    is_complete &= not any(Path(one.path).name == kf.METADATA_DIRECTORY or _is_snapshot(one.path) for one in problems)
    return Cluster(metadata, node_id, settings, is_complete)


def _is_snapshot(path: str) -> bool:
    return Path(path).parent.name == kf.METADATA_DIRECTORY and path.endswith(".checkpoint")
