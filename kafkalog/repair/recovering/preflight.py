"""Says what a broker would do with its log dirs on its next start: a dry run of `recover`, without its repairs.

It adds what is not in a recovery: a clean start, strays, retention, and files that `recover` writes again. Nothing is
written. Mirrors `LogManager.loadLogs`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, partial
from pathlib import Path
from typing import Any, Final, Literal

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Finding, Findings, KafkalogError, Limits, ReadError, Reason
from kafkalog.log.live import is_live, settled, was_closed
from kafkalog.log.log_dir import (
    LogDir,
    blank_disk,
    check_log_dir,
    each_once,
    is_blank,
    is_partition_directory,
    log_dirs_at,
)
from kafkalog.log.searching.missing import offsets_finding
from kafkalog.log.set_apart import packed_note
from kafkalog.parsing import TopicPatterns, check_partitions, one_of, parse_milliseconds, thread_count
from kafkalog.protocol.releases import releases
from kafkalog.repair.placement import PartitionOutput
from kafkalog.repair.recovering.recover import RecoveryRun
from kafkalog.repair.recovering.recovered_partitions import Preflight, RecoveryReport
from kafkalog.repair.recovering.targets import release_problems, torn_problems
from kafkalog.state.checkpoints import read_topic_id
from kafkalog.state.log_config import LogConfig
from kafkalog.state.properties import read_settings
from kafkalog.storage.files import size_if_there
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import kind_of, parent_of, refuse_url
from kafkalog.storage.removals import is_gone, removed_directory
from kafkalog.survey.absent_partitions import absent_note, absent_partitions
from kafkalog.survey.evidence import LogDirState
from kafkalog.survey.losses import remains
from kafkalog.survey.next_steps import log_dirs_of
from kafkalog.survey.retention import expiring, newest_timestamps, retention_rules
from kafkalog.survey.startup import PartitionPlan
from kafkalog.survey.startup_config import NO_CONFIG, BrokerConfig
from kafkalog.survey.startup_files import epochs_problem, partition_directories
from kafkalog.survey.startup_load import LoadPlan, RootOffsets
from kafkalog.survey.startup_root import (
    Effect,
    StartProblem,
    by_broker,
    is_kraft,
    log_dirs_problems,
    root_problems,
    voter_problem,
)
from kafkalog.survey.topic_ids import TopicIds, add_stray_loss
from kafkalog.survey.topics import TopicSettings
from kafkalog.system_topics.coordinator_load import load_failure
from kafkalog.system_topics.groups import load_groups, offsets_retention_ms
from kafkalog.system_topics.reading import AsOf
from kafkalog.text import offset_range

Directories = Callable[[Any], list[Any]]
"""Lists a log dir."""
_ZEROS: Final = "the time index ends in zeros"
_EMPTY_CHECKPOINT_BYTES: Final = len("0\r\n0\r\n")


def preflight(
    path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    topics: str | Sequence[str] | None = None,
    partitions: int | Sequence[int] | None = None,
    clean: bool | None = None,
    index_interval_bytes: int | None = None,
    metadata: str | os.PathLike[str] | None = None,
    config: str | os.PathLike[str] | None = None,
    release: str | None = None,
    now: int | str | datetime | None = None,
    threads: int | None = None,
    on_start: Callable[[int], object] = lambda n_bytes: None,
    progress: Callable[[int], object] = lambda n_bytes: None,
    on_partition: Callable[[PartitionPlan], object] = lambda partition: None,
    limits: Limits = DEFAULT_LIMITS,
) -> Preflight:
    """Say what a broker would do with a log dir on its next start. Nothing is written.

    Parameters
    ----------
    path : path-like or sequence of path-like
        The log dirs of one broker, or partition directories. Without `config`, the log dirs of several brokers, as
        their `meta.properties` tell them apart, are judged one broker after the other.
    topics : str or sequence of str, optional
        Names or globs of topics; a leading ``!`` excludes. The files of the log dirs themselves always count.
    partitions : int or sequence of int, optional
        Numbers of the partitions.
    clean : bool, optional
        Whether it takes the log dir for cleanly shut down. Default: whether the marker of a clean shutdown is there.
    index_interval_bytes : int, optional
        See `reindex`; it decides whether an index outgrows `segment.index.bytes`.
    metadata : path-like, optional
        A log dir with the cluster's metadata log, if that is in none of the broker's log dirs at hand.
    config : path-like, optional
        The broker's `server.properties`: for the settings of indexes, for retention, for its id, and for its other log
        dirs, which are judged, too, if one of them is named.
    release : str, optional
        The release of Kafka that starts, 3.9 to 4.4: records, features and settings that it does not know are
        `problems` of the result. A lower release than that of the disks answers a downgrade.
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
    After a clean shutdown, a broker checks few files: it serves damaged batches, and does not start if the last segment
    ends in zeros or garbage. After an unclean one it recovers the segments from the recovery point on.

    With `config`, the settings of the broker are also used. They show which segments retention deletes half a minute
    after the start (`SegmentPlan.expires`), and whether an index outgrows `log.index.size.max.bytes`. Such a deletion
    is a loss in the verdict only if zeros at the end of a time index make records look old. Committed offsets that
    expire are in `PartitionPlan.expiring_commits`. Settings of topics and of
    the cluster in its metadata come before those of the file.

    This is about Kafka 4.x. See the guide about dead brokers for older ones.

    Source: LogManager.loadLogs, LogLoader.load, Kafka 4.3.

    Examples
    --------
    >>> kafkalog.preflight("tests/golden/log_dir/p-txn-0", clean=False)
    Preflight(1 partition, unclean start: recovers)
    """
    refuse_url(path)
    if release is not None:
        one_of("release", release, [*releases()])
    n_threads = thread_count(threads)
    names = [path] if isinstance(path, (str, os.PathLike)) else list(path)
    result = Preflight(findings=Findings(limits.max_findings), release=release)
    named = each_once(
        [root for one in names for root in log_dirs_at(Path(one))], result.findings.add, holds_renamed=True
    )
    if not named:
        raise ValueError("name at least one log dir")
    now_ms = parse_milliseconds("now", "now" if now is None else now)
    asked = _Asked(clean, index_interval_bytes, metadata, config, release, now_ms, limits)
    brokers = _brokers(named, asked, result)
    result.log_dirs = log_dirs_of([*names, *(one for broker in brokers for one in broker.others)])
    result.metadata = None if metadata is None else os.fspath(metadata)
    result.is_kraft = any(one.is_kraft for one in brokers)
    result.is_clean = all(start.is_clean for one in brokers for start in one.starts.values())
    is_wanted = _selection(topics, partitions, [key for one in brokers for key in one.keys])
    loads = [load for one in brokers for load in one.loads(is_wanted)]
    on_start(sum(segment.size_in_bytes for one in loads for segment in one.plan.recovered))
    for row, findings in _read(loads, n_threads, progress):
        for finding in findings.rows:
            result.findings.add(finding)
        if row is not None:
            result.partitions.append(row)
            on_partition(row)
    for row in (row for one in brokers for row in one.missing if is_wanted(row.topic_partition)):
        result.add_lost(row)
        on_partition(row)
    for what, rows in (item for one in brokers for item in one.without_directory.items()):
        if wanted := rows if is_wanted is _every else [row for row in rows if is_wanted(row.topic_partition)]:
            result.findings.add(absent_note(what, wanted))
    return result


def _brokers(named: Sequence[Path], asked: _Asked, result: Preflight) -> list[_BrokerStart]:
    """The start of each broker; a configuration is that of one. Empty disks next to others are notes."""
    groups = [[*named]] if asked.config is not None else by_broker(named)
    blank = [some for some in groups if groups[1:] and all(map(is_blank, some))]
    for path in itertools.chain(*blank):
        result.findings.add(blank_disk(path))
    found = [_BrokerStart(some, asked, result) for some in groups if some not in blank]
    for one in found:
        one.find_absent(found)
    return found


def _every(_key: kf.TopicPartition | None) -> bool:
    return True


def _selection(
    topics: str | Sequence[str] | None, partitions: int | Sequence[int] | None, keys: Sequence[kf.TopicPartition]
) -> Callable[[kf.TopicPartition | None], bool]:
    """Return what decides whether a partition is asked for; raises for topics and numbers that are not there."""
    patterns = TopicPatterns(topics)
    patterns.check([key.topic for key in keys])
    numbers = {partitions} if isinstance(partitions, int) else None if partitions is None else {*partitions}
    check_partitions(numbers, [key.partition for key in keys])
    if topics is None and numbers is None:
        return _every
    return lambda key: key is None or (patterns.wants(key.topic) and (numbers is None or key.partition in numbers))


def _read(
    loads: list[_Load], n_threads: int, progress: Callable[[int], object]
) -> Iterator[tuple[PartitionPlan | None, Findings]]:
    """Load partitions, several at a time, and yield what is found, in order."""
    lock = threading.Lock()

    def advance(n_bytes: int) -> None:
        with lock:
            progress(n_bytes)

    n_readers = n_threads if len(loads) == 1 else 1
    with ThreadPoolExecutor(n_threads, "kafkalog-preflight") as pool:
        yield from pool.map(lambda one: one.run(advance, n_readers), _consumed(loads))


@dataclass(frozen=True, slots=True)
class _Asked:
    """The options of a preflight that decide what a broker does."""

    clean: bool | None
    index_interval_bytes: int | None
    metadata: str | os.PathLike[str] | None
    config: str | os.PathLike[str] | None
    release: str | None
    now_ms: int
    limits: Limits


class _BrokerStart:
    """The start of one broker, on all of its log dirs.

    `starts` has these, `others` those that only its configuration names, and `names` what is in them. `missing` are
    partitions that it loses with their directories, and `without_directory` the others of which there is none.
    """

    def __init__(self, named: Sequence[Path], asked: _Asked, result: Preflight) -> None:
        """Look at the files of the log dirs; `named` may be partition directories. The result gets the problems."""
        # log dirs may hold thousands of partitions: each is listed once
        directories: Directories = cache(lambda root: [*partition_directories(root)])
        named = [*named]
        are_partitions = [is_partition_directory(one) for one in named]
        root_of = [parent_of(one) if is_one else one for one, is_one in zip(named, are_partitions, strict=True)]
        roots = list(dict.fromkeys(root_of))
        n_named = len(roots)
        broker = NO_CONFIG if asked.config is None else BrokerConfig.of(asked.config, read_settings(asked.config))
        absent = _add_log_dirs(broker, roots, named, root_of, are_partitions, result.findings)
        self.others = [one for one in roots[n_named:] if one not in absent]
        problems, settings = self._problems(broker, asked, roots, directories)
        result.problems += problems
        if asked.config is not None and settings.doubt:
            detail = f"whether retention deletes segments is not foretold: {settings.doubt}"
            result.findings.add(Finding(Reason.LEFT_OUT, detail, path=str(roots[0]), damage=False))
        self.is_kraft = bool(broker.roles) or any(map(is_kraft, roots)) or settings.metadata is not None
        self.starts = {
            root: _LogDirStart(root, asked, settings, result, roots, is_kraft=self.is_kraft) for root in roots
        }
        self._directories: list[tuple[_LogDirStart, Path, bool]] = []
        for one, root, is_one in zip(named, root_of, are_partitions, strict=True):
            listed = [one] if is_one else [] if root in absent else directories(root)
            self._add_directories(root, listed, result, is_named=is_one)
        unformatted = {one.path for one in problems if one.reason is Reason.META_PROPERTIES}
        self._check([root for root in roots if str(root / kf.META_PROPERTIES) not in unformatted], result)
        self.missing: list[PartitionPlan] = []
        self.without_directory: dict[str, list[PartitionPlan]] = {}
        self._settings, self._roots, self.node_id = settings, roots, settings.node_id
        self._is_whole = not (any(are_partitions) or absent or any(start.is_live for start in self.starts.values()))
        listed = [one for root in roots for one in directories(root)] if self._is_whole else []
        self.names = {Path(one.path or "").name if isinstance(one, Finding) else one.name for one in listed}
        self._has_all_roots = bool(broker.log_dirs) and broker.others(roots) == []

    def _add_directories(
        self, root: Path, listed: Sequence[Path | Finding], result: Preflight, *, is_named: bool
    ) -> None:
        """Add the partition directories of a log dir, and a note about archives of others."""
        if not is_named and (packed := packed_note(root, {*Listing.or_empty(root).names})) is not None:
            result.findings.add(packed)
        for directory in listed:
            if not isinstance(directory, Finding):
                self._directories.append((self.starts[root], directory, is_named))
            elif directory.reason is Reason.LINK_OUTSIDE:
                # a broker follows the link, and only kafkalog does not
                result.findings.add(replace(directory, damage=False))

    def _check(self, roots: Sequence[Path], result: Preflight) -> None:
        """Raise if one of some log dirs is none; an empty disk next to others is a note."""
        for root in roots:
            if len(self.starts) > 1 and is_blank(root):
                result.findings.add(blank_disk(root))
            else:
                check_log_dir(root, (directory for start, directory, _ in self._directories if start.root == root))

    def find_absent(self, brokers: Sequence[_BrokerStart]) -> None:
        """Find the partitions without directories, if the metadata and the log dirs are complete, and none is live."""
        metadata = self._settings.metadata
        if metadata is None or not metadata.is_complete or self.node_id is None or not self._is_whole:
            return
        self.missing, self.without_directory = absent_partitions(
            self._roots,
            self.names,
            metadata,
            self.node_id,
            has_all_roots=self._has_all_roots,
            at_others={one.node_id: one.names for one in brokers if one.node_id is not None and one._is_whole},
            counted=[row.topic_partition for one in brokers for row in one.missing],
        )

    @property
    def keys(self) -> list[kf.TopicPartition]:
        """Its partitions, also those without directories."""
        parsed = (kf.parse_partition_directory(_name(one)) for _, one, _ in self._directories)
        found = [one.topic_partition for one in parsed if one is not None]
        no_directory = itertools.chain(self.missing, *self.without_directory.values())
        return found + [key for row in no_directory if (key := row.topic_partition) is not None]

    @staticmethod
    def _problems(
        broker: BrokerConfig, asked: _Asked, roots: list[Path], directories: Directories
    ) -> tuple[list[StartProblem], TopicSettings]:
        """Why the broker does not start, without the contents of partitions, and the settings that it knows."""
        found = [*log_dirs_problems(broker, asked.release)]
        found += root_problems(roots, config=broker, directories=directories, limits=asked.limits)
        settings = TopicSettings.of(roots, config=asked.config, metadata=asked.metadata, limits=asked.limits)
        wrong = [Path(one.path) for one in found if Path(one.path).name == kf.META_PROPERTIES]
        if not all(is_blank(path.parent) for path in wrong):
            settings.node_id = None  # the broker does not start under it
        cluster = settings.metadata
        if cluster is not None:
            problem = voter_problem(roots, cluster.voters, settings.node_id)
            found += [] if problem is None else [problem]
            found += torn_problems(cluster)
        if asked.release is not None:
            found += release_problems(roots, cluster, broker, asked.release, asked.limits)
        for gap in cluster.gaps if cluster is not None else ():
            if not any(Path(gap.path or "").is_relative_to(one.path) for one in found):
                effect: Effect = "unreadable" if gap.is_unreadable else "loses metadata"
                found.append(StartProblem(gap.reason, gap.path or "", gap.detail, effect=effect))
        return found, settings

    def loads(self, is_wanted: Callable[[kf.TopicPartition | None], bool]) -> Iterator[_Load]:
        """The loads of its partitions."""
        for start, directory, is_named in self._directories:
            parsed = kf.parse_partition_directory(_name(directory))
            if is_wanted(None if parsed is None else parsed.topic_partition):
                yield from start.loads(directory, is_named=is_named)


def _add_log_dirs(
    broker: BrokerConfig,
    roots: list[Path],
    named: list[Path],
    root_of: list[Path],
    are_partitions: list[bool],
    findings: Findings,
) -> set[Path]:
    """Add the other log dirs of the configuration: the broker starts on all of them. Returns those that do not exist.

    With partition directories, only the files of the log dirs themselves are looked at.
    """
    others = broker.others(roots) if broker.log_dirs else []
    if others is None:
        detail = f"log.dirs in it names other directories ({', '.join(map(str, broker.log_dirs))}), not looked at"
        findings.add(Finding(Reason.LEFT_OUT, detail, path=broker.path, damage=False))
        return set()
    roots += others
    if not any(are_partitions):
        named += others
        root_of += others
        are_partitions += [False] * len(others)
    return {one for one in others if kind_of(one) != "directory"}


def _names_any(plan: LoadPlan, column: Literal["producer_id", "partition_leader_epoch"]) -> bool | None:
    """Whether a batch of a log has a producer, or a leader epoch, as none of v0 and v1 has; None if it is damaged.

    A broker that stops leaves a snapshot and the epochs of each log, so this is asked for few. The newest segments are
    read first.
    """
    try:
        tables = itertools.chain.from_iterable(segment.iter_batches() for segment in reversed(plan.partition.segments))
        return any(bool((getattr(table, column) >= 0).any()) for table in tables)
    except KafkalogError:
        return None


def _consumed(loads: list[_Load]) -> Iterator[_Load]:
    """Yield the loads in order, and keep none: each holds a plan with all segments of its partition."""
    loads.reverse()
    while loads:
        yield loads.pop()


def _name(directory: Path) -> str:
    return directory.absolute().name


@dataclass(slots=True)
class _LogDirStart:
    """A log dir of the broker."""

    root: Path
    asked: _Asked
    settings: TopicSettings
    result: Preflight
    roots: Sequence[Path]
    """All log dirs of the broker."""
    is_kraft: bool
    is_clean: bool = field(init=False)
    is_live: bool = field(init=False)
    offsets: RootOffsets = field(init=False)

    def __post_init__(self) -> None:
        self.is_clean = was_closed(self.root) if self.asked.clean is None else self.asked.clean
        self.offsets = RootOffsets.read(self.root)
        failed = {problem.path for problem in self.result.problems}
        for finding in self.offsets.findings:
            if finding.path not in failed:
                self.result.findings.add(finding)
        self.is_live = is_live(self.root)
        if self.is_live:
            detail = "a broker runs on this log dir: this shows its next start if it is killed now"
            self.result.findings.add(Finding(Reason.FILE_CHANGED, detail, path=str(self.root), damage=False))

    def plan(self, directory: Path) -> LoadPlan:
        """How the broker loads a partition."""
        return LoadPlan(directory, self.offsets, is_clean=self.is_clean, limits=self.asked.limits)

    def loads(self, directory: Path, *, is_named: bool) -> list[_Load]:
        """The load of a partition; none if it cannot be read, or was just removed."""
        try:
            return [_Load(self, self.plan(directory), is_named, self.settings)]
        except KafkalogError as error:
            note = self.removed(directory, is_named=is_named)
            if note is None:
                effect: Effect = "unreadable" if error.to_finding().is_unreadable else "log dir offline"
                self.result.problems.append(
                    StartProblem(error.reason, error.path or str(directory), error.detail, effect=effect)
                )
            else:
                self.result.findings.add(note)
            return []

    def removed(self, directory: Path, *, is_named: bool, is_leaving: bool = False) -> Finding | None:
        """The note about a partition that a running broker has removed, or removes; raises if it was named."""
        is_leaving |= self.is_live and kf.is_deleted_directory(directory.name)
        error = None if not (is_leaving or is_gone(directory)) else removed_directory(directory, is_leaving=is_leaving)
        if error is not None and is_named:
            raise error
        return None if error is None else error.to_finding()


@dataclass(slots=True)
class _Load:
    """The load of a partition."""

    start: _LogDirStart
    plan: LoadPlan
    is_named: bool
    settings: TopicSettings

    def run(self, advance: Callable[[int], object], n_readers: int) -> tuple[PartitionPlan | None, Findings]:
        """The plan and its findings; no plan for a partition that was removed meanwhile."""
        attempts = (
            self._try(advance, n_readers, is_first) for is_first in itertools.chain([True], itertools.repeat(False))
        )
        row, found = settled(lambda: next(attempts), self._is_final, is_live=self.start.is_live)
        if self._is_good(row, found):
            return row, found
        # a running one has no strays: the topic is just being deleted
        is_leaving = self.start.is_live and row is not None and row.stray is not None
        if (note := self.start.removed(self.plan.path, is_named=self.is_named, is_leaving=is_leaving)) is not None:
            found = Findings(self.start.asked.limits.max_findings)
            found.add(note)
            return None, found
        return row, found

    @staticmethod
    def _is_good(row: PartitionPlan | None, found: Findings) -> bool:
        return row is not None and row.verdict in ("starts", "recovers") and not found.n_damage

    def _is_final(self, result: tuple[PartitionPlan | None, Findings]) -> bool:
        return self._is_good(*result) or is_gone(self.plan.path)

    def _try(
        self, advance: Callable[[int], object], n_readers: int, is_first: bool
    ) -> tuple[PartitionPlan | None, Findings]:
        """One attempt: a running broker may have written, rolled, merged or deleted a segment since the one before."""
        limits = self.start.asked.limits
        if not is_first:
            with contextlib.suppress(KafkalogError):
                self.plan = self.start.plan(self.plan.path)
                self.settings = self.settings.reread()
        try:
            return self._attempt(advance, n_readers)
        except ReadError as error:
            found = Findings(limits.max_findings)
            found.add(error.to_finding())
            return None, found

    def _attempt(self, advance: Callable[[int], object], n_readers: int) -> tuple[PartitionPlan, Findings]:
        start, plan = self.start, self.plan
        report = RecoveryReport(findings=Findings(start.asked.limits.max_findings))

        def make(plan: LoadPlan) -> PartitionOutput:
            return PartitionOutput()

        how = start.asked.index_interval_bytes, start.asked.now_ms, start.asked.limits
        run = RecoveryRun(report, make, *how, settings=self.settings, is_replayed=False, leaves_splits=True)
        run.recover([plan], n_readers, advance, lambda row: None)
        [row] = report.partitions
        # recovery rewrites them, and a broker fails before it does
        if row.problem is None:
            row.problem = epochs_problem(plan.path)
            if row.problem is not None and row.problem.is_unreadable:
                report.findings.add(row.problem)
        row.n_bytes_read = sum(segment.size_in_bytes for segment in plan.recovered)
        if row.problem is None:
            self._set_aside(row, report.findings)
            self._place_log_start(row, report.findings)
            self._expire(row, report.findings)
            self._add_remarks(row)
            self._add_unreadable(row, report.findings)
        return row, report.findings

    def _set_aside(self, row: PartitionPlan, findings: Findings) -> None:
        """Note whether the broker takes the partition for a stray, and what is lost then."""
        plan = self.plan
        row.stray = self._why_stray()
        if row.stray is not None and not self.start.is_kraft:
            row.remarks.append(f"Kafka 4.x renames it to -stray, and later deletes it: {row.stray}")
            row.stray = None
        elif row.stray is not None and self._topic_ids.lacks(plan.path) is not None:
            state = LogDirState.of(plan.partition, plan.files.names)
            findings.add(add_stray_loss(row, plan.partition.segments, state, row.stray))

    def _add_remarks(self, row: PartitionPlan) -> None:
        """Add what the broker does without a producer snapshot, without epochs, and when it loads a coordinator."""
        plan = self.plan
        if plan.partition.kind == "delete":
            row.remarks.append("its topic was deleted: the broker deletes the directory soon after the start")
            return
        # a segment that is recovered gets a snapshot, from which the rest is replayed
        is_replayed = not plan.is_clean or plan.recovered or plan.snapshots()
        if (
            not is_replayed
            and row.log_end_offset > row.log_start_offset
            and _names_any(plan, "producer_id") is not False
        ):
            row.remarks.append("no producer snapshot: the broker loses the state of producers")
        if row.n_bytes and (lack := self._lack_of_epochs()) is not None:
            row.remarks.append(f"{lack}: the broker finds only the epochs of recovered segments")
        if row.topic_partition is not None and row.topic_partition.topic == kf.CONSUMER_OFFSETS:
            self._add_commits(row)
        elif (failure := load_failure(plan.path, row.topic_partition, self.start.asked.limits)) is not None:
            row.remarks.append(failure.detail)

    def _add_commits(self, row: PartitionPlan) -> None:
        """Note why a coordinator does not load committed offsets, or which it deletes once it has."""
        found, failures = load_groups(LogDir(self.plan.path, limits=self.start.asked.limits), AsOf())
        if failures:
            row.remarks.append(failures[0].detail)
            return
        properties = self.settings.properties
        retention_ms = None if properties is None else offsets_retention_ms(properties)
        for group in found:
            if expired := group.expired(self.start.asked.now_ms, retention_ms):
                row.expiring_commits[group.name] = len(expired)

    def _lack_of_epochs(self) -> str | None:
        """What is wrong with the leader epoch checkpoint if it has no epoch, and batches have; None if it has."""
        has_epochs = partial(_names_any, self.plan, "partition_leader_epoch")
        if kf.LEADER_EPOCH_CHECKPOINT not in self.plan.files.names:
            return None if has_epochs() is False else "no leader epoch checkpoint"
        if (size_if_there(self.plan.path / kf.LEADER_EPOCH_CHECKPOINT) or 0) > _EMPTY_CHECKPOINT_BYTES:
            return None
        # the start fails on a damaged one
        return "no epoch in the leader epoch checkpoint" if has_epochs() else None

    def _add_unreadable(self, row: PartitionPlan, findings: Findings) -> None:
        """Add segments that cannot be read here: the user of the broker may read them."""
        for segment in self.plan.partition.segments:
            finding = None if segment.error is None else segment.error.to_finding()
            if finding is not None and finding.is_unreadable:
                row.unreadable.append(segment.path.name)
                findings.add(finding)

    @property
    def _topic_ids(self) -> TopicIds:
        return TopicIds(self.start.roots, self.settings.metadata, is_kraft=True)

    def _why_stray(self) -> str | None:
        """Source: LogManager.isStrayKraftReplica, Kafka 4.3."""
        key, metadata = self.plan.partition.topic_partition, self.settings.metadata
        is_metadata = self.plan.path.name == kf.METADATA_DIRECTORY
        if key is None or is_metadata or self.is_named or self.plan.partition.kind is not None:
            return None
        try:
            topic_id = read_topic_id(self.plan.path)
        except KafkalogError:
            return None  # other names in its lines, which a broker does not look at
        if topic_id is None:
            return self._topic_ids.why_stray(self.plan.path)
        return None if metadata is None else metadata.why_stray(key, topic_id, self.settings.node_id)

    def _place_log_start(self, row: PartitionPlan, findings: Findings) -> None:
        """Let a tiered log begin in remote storage, which a broker that has none forgets.

        Source: LogLoader.load, DynamicBrokerConfig, LogConfig.validateRemoteStorageOnlyIfSystemEnabled, Kafka 4.3.
        """
        partition, properties = self.plan.partition, self.settings.properties
        start, local = self.plan.log_start, row.log_start_offset
        if not self.settings.config(partition).config.remote_storage_enable or not self.plan.bases:
            return
        if properties is None or BrokerConfig.of("", properties).has_remote_storage:
            row.log_start_offset = min(start, local)
            return
        detail = "the topic is tiered, but the broker's configuration lacks remote.log.storage.system.enable=true"
        row.remarks.append(f"{detail}: its log begins at the local offset {local}")
        if start < local:
            detail += f": offsets {offset_range(start, local)} in remote storage are out of reach"
            lost = offsets_finding(Reason.LOG_START_BEHIND_END, detail, row.path, start, local)
            row.lost.append(lost)
            findings.add(lost)

    def _retention_config(self, *, is_wrong: bool) -> LogConfig | None:
        """The settings by which segments expire, likely ones if a time index is wrong; None if they are not known."""
        known = self.settings.config(self.plan.partition)
        if self.plan.partition.kind == "delete" or (not is_wrong and self.settings.properties is None):
            return None
        config, why = retention_rules(known)
        if why and not is_wrong:
            return None
        return known.config if why else config

    def _expire(self, row: PartitionPlan, findings: Findings) -> None:
        """Note which segments retention deletes, and those of them whose records are not old."""
        key = self.plan.partition.topic_partition
        if key is not None and key.topic == kf.METADATA_TOPIC:
            return  # raft deletes its segments itself, once a snapshot covers them
        plans = [one for one in row.segments if one.action != "deleted"]
        by_base = {segment.base_offset: segment for segment in self.plan.partition.segments}
        newest = [newest_timestamps(by_base[one.base_offset], one.action != "kept") for one in plans]
        is_wrong = any(told < right for told, right in newest)
        config = self._retention_config(is_wrong=is_wrong)
        if config is None:
            return
        sizes, now_ms = [one.n_bytes for one in plans], self.start.asked.now_ms
        state = LogDirState.of(self.plan.partition, self.plan.files.names)
        n_old = len(expiring(sizes, [right for _, right in newest], config, now_ms))
        for number, setting in enumerate(expiring(sizes, [told for told, _ in newest], config, now_ms)):
            one = plans[number]
            one.expires, one.is_expired_early = setting, number >= n_old
            if one.is_expired_early:
                row.lost += remains(by_base[one.base_offset], 0, state)[1]
                detail = (
                    f"{_ZEROS}, which a broker reads as the year 1970: {setting} deletes the segment soon after the"
                    " start. kafkalog recover repairs the index"
                )
                path = self.plan.path / kf.segment_file_name(one.base_offset, kf.TIME_INDEX_SUFFIX)
                findings.add(Finding(Reason.INDEX_PADDING, detail, path=str(path)))
