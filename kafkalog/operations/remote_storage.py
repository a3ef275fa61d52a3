"""Checks remote storage of tiered partitions, and restores a log dir from it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from kafkalog import format as kf
from kafkalog.calls import leading_names
from kafkalog.errors import (
    DEFAULT_LIMITS,
    UNREADABLE,
    Finding,
    KafkalogError,
    Limits,
    NotKafkaError,
    Reason,
    SidecarError,
)
from kafkalog.html import JsonFields, PartsReport
from kafkalog.log.log_dir import LogDir
from kafkalog.operations.verifying.verify import iter_verify, verify
from kafkalog.state.checkpoints import encode_offset_checkpoint
from kafkalog.state.cluster_metadata import cluster_metadata
from kafkalog.state.producers import parse_snapshot
from kafkalog.storage.copying import COPY_BYTES
from kafkalog.storage.location import AnyPath, Location, is_url
from kafkalog.storage.own_names import ORIGIN_NAME
from kafkalog.storage.room import check_room
from kafkalog.storage.staging import StagedDirectory, staged_directory
from kafkalog.survey.next_steps import NextStep, boot_step, free_name, needs_boot
from kafkalog.survey.origins import encode_origin
from kafkalog.system_topics.remote_log import RemoteSegment
from kafkalog.text import counted, offset_range
from kafkalog.tiered.joined import Joined, JoinedStore, tiered_location
from kafkalog.tiered.layouts import Copy, epochs_between

FaultKind = (
    Literal["hole", "torn", "size", "checksum", "index", "unreadable", "other_segment"]
    | Literal["orphan", "unfinished", "deleting"]
    | Literal["replaced", "below_start", "leftover", "unknown_file"]
)
_NONE: Final = 2**63
_OF_HOLES: Final = (Reason.INDEX_TRANSACTION, Reason.TRANSACTION_OUTCOME, Reason.OPEN_TRANSACTION, Reason.EPOCH_ORDER)
"""What follows from missing records in the segments after them: transactions that begin or end there."""
_WASTES: Final = ("orphan", "unfinished", "deleting", "replaced", "below_start", "leftover")


@leading_names
@dataclass(frozen=True, slots=True)
class StorageFault:
    """Something in remote storage that should not be there, or is not as it should be."""

    kind: FaultKind
    """`hole`, `torn`, `size`, `checksum`, `index`, `unreadable`, `other_segment`: records cannot be read, or a lookup
    fails. The others only cost space: `orphan`, `unfinished`, `deleting`, `replaced`, `below_start`, `leftover`,
    `unknown_file`."""
    detail: str
    topic: str | None = None
    partition: int | None = None
    segment_id: str | None = None
    first_offset: int | None = None
    last_offset: int | None = None
    n_bytes: int = 0
    """Bytes of the objects."""
    damage: bool = False
    """Whether readers are affected."""
    is_unreadable: bool = False
    """Whether a whole object cannot be read, as without permission or key: it need not be damaged."""

    def __str__(self) -> str:
        where = "" if self.topic is None else f"{self.topic}-{self.partition} "
        end = None if self.last_offset is None else self.last_offset + 1
        offsets = "" if self.first_offset is None else f" offsets {offset_range(self.first_offset, end)}"
        cost = f" ({counted(self.n_bytes, 'byte')})" if self.n_bytes else ""
        return f"{where}{self.kind}{offsets}: {self.detail}{cost}"

    def to_finding(self, path: str) -> Finding:
        """The fault as a finding about the remote storage at `path`."""
        reason = Reason.FILE_UNREADABLE if self.is_unreadable else Reason.SEGMENT_MISSING
        return Finding(reason, str(self), path, damage=self.damage)


@dataclass(slots=True)
class StorageReport(PartsReport, JsonFields):
    """What `verify_tiered` found.

    Attributes
    ----------
    faults : list of StorageFault
    n_partitions, n_copies, n_bytes : int
        What was checked, and the bytes of all objects.
    n_skipped : int
        Partitions in remote storage that belong to other brokers: which of their copies count is not known here.
    """

    _json_properties = ("ok", "wasted_bytes", "next")

    layout: str
    faults: list[StorageFault] = field(default_factory=list)
    n_partitions: int = 0
    n_copies: int = 0
    n_bytes: int = 0
    n_skipped: int = 0
    remote: str = ""
    log_dir: str | None = None
    """What was checked: the root of the remote storage, and the log dir; None without one."""

    @property
    def next(self) -> list[NextStep]:
        """What serves all that is intact, here and in remote storage, after damage; empty without it."""
        if not any(needs_boot(fault.to_finding(self.remote)) for fault in self.faults):
            return []
        if self.log_dir is None:
            why = (
                "writes the segments that are intact, for a boot of them; --log-dir PATH of the broker adds newer ones"
            )
            output = free_name(f"{os.path.basename(self.remote.rstrip('/')) or 'remote'}-restored")
            return [NextStep(("kafkalog", "tiered", "restore", self.remote, "-o", output), why)]
        return [] if is_url(self.log_dir) else [boot_step([os.path.abspath(self.log_dir)], tiered=self.remote)]

    @property
    def ok(self) -> bool:
        """Whether everything that a broker needs is there and intact."""
        return not any(fault.damage for fault in self.faults)

    @property
    def wasted_bytes(self) -> int:
        """Bytes of objects that no reader needs."""
        return sum(fault.n_bytes for fault in self.faults if fault.kind in _WASTES)


def verify_tiered(
    remote: AnyPath,
    log_dir: AnyPath | None = None,
    *,
    topics: str | Sequence[str] | None = None,
    deep: bool = False,
    keys: Mapping[str, str | bytes | os.PathLike[str]] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> StorageReport:
    """Check remote storage for missing, damaged, leftover and replaced objects.

    Parameters
    ----------
    remote : path-like or URL
        The root of the remote storage.
    log_dir : path-like, optional
        The broker's log dir, with the metadata topic. Without it, leftovers and orphans are not told from others.
    topics : str or sequence of str, optional
        Names or globs.
    deep : bool
        Whether to decode all records, too.
    keys, storage_options
        See `kafkalog.tiered_location`.
    limits : Limits

    Returns
    -------
    StorageReport
    """
    place = tiered_location(log_dir, remote, keys=keys, storage_options=storage_options)
    store: Any = place.store
    opened = LogDir(place, limits=limits)
    report = StorageReport(store.layout.name, remote=str(remote) if is_url(remote) else os.path.abspath(remote))
    report.log_dir = None if log_dir is None else str(log_dir)
    wanted = set(opened.select(topics)) if topics is not None else set(opened)
    known_ids = _topic_ids(store)
    tiered: list[Joined] = []
    for key, several in sorted(store.remote_partitions.items()):
        if topics is not None and key not in wanted:
            continue
        joined = store.joined(key) if key in opened else None
        for of in several:
            copies = joined.copies if joined is not None and joined.of == of else store.layout.copies(of)
            report.n_copies += len(copies)
            report.n_bytes += sum(copy.n_bytes for copy in copies)
            if joined is not None and joined.of == of:
                report.n_partitions += 1
                tiered.append(joined)
                report.faults += _faults_of(joined, store)
            elif known_ids is not None and of.topic_id not in known_ids:
                detail = f"its topic {of.topic_id} is no longer in the cluster"
                report.faults += [_fault("leftover", detail, copy) for copy in copies]
            else:
                report.n_skipped += 1
    report.faults += dict.fromkeys(_faults_of_content(tiered, opened, store, deep=deep, limits=limits))
    report.faults += [
        StorageFault("unknown_file", f"not an object of a segment: {one}") for one in store.layout.unknown
    ]
    return report


def _topic_ids(store: JoinedStore) -> set[str] | None:
    """The ids of the topics that the cluster has; None if that is not known."""
    if store.local is None:
        return None
    metadata = cluster_metadata(store.local)
    return None if metadata is None or metadata.findings else set(metadata.topic_ids.values())


def _fault(kind: FaultKind, detail: str, copy: Copy, last: int | None = None, **more: Any) -> StorageFault:
    of = copy.of
    first = None if last is None else copy.start_offset
    place = (of.topic, of.partition, copy.segment_id or None, first, last)
    return StorageFault(kind, detail, *place, n_bytes=copy.n_bytes, **more)


def _faults_of(joined: Joined, store: JoinedStore) -> Iterator[StorageFault]:
    """The faults of a partition that names, sizes and the metadata topic show."""
    linked = {id(link.copy) for link in joined.links}
    segments: dict[str, RemoteSegment] = {}
    deleted: Mapping[str, RemoteSegment] = {}
    if joined.is_certain and store.metadata is not None:
        segments, deleted = {segment.segment_id: segment for segment in store.metadata}, store.metadata.deleted
    for copy in joined.copies:
        segment, is_read = segments.get(copy.segment_id), id(copy) in linked
        if joined.is_certain and segment is None:
            why = "deleted by the broker" if copy.segment_id in deleted else "not in the metadata topic"
            yield _fault("orphan", why, copy)
        elif copy.missing:
            yield _torn(copy, segment, joined, is_read=is_read)
        elif segment is not None and segment.state in _UNFINISHED:
            yield _fault(*_UNFINISHED[segment.state], copy, segment.end_offset)
        elif not is_read:
            yield from _superfluous(copy, segment, joined)
        if segment is not None and not copy.missing:
            yield from _wrong_size(copy, segment, is_needed=is_read)
    yield from _holes(joined)


_UNFINISHED: Final[dict[str, tuple[FaultKind, str]]] = {
    "COPY_SEGMENT_STARTED": ("unfinished", "its copying was never finished"),
    "DELETE_SEGMENT_STARTED": ("deleting", "its deletion was begun and never finished"),
}
"""The faults of segments that the metadata topic has in these states."""


def _torn(copy: Copy, segment: RemoteSegment | None, joined: Joined, *, is_read: bool) -> StorageFault:
    """A copy without some of its objects."""
    needed = [hole.segment.segment_id for hole in joined.holes if hole.segment is not None]
    detail = f"it lacks {', '.join(copy.missing)}"
    if is_read:
        detail += "; its records are readable, but a broker cannot serve them"
    end = None if segment is None else segment.end_offset
    return _fault("torn", detail, copy, end, damage=is_read or (segment is not None and segment.segment_id in needed))


def _holes(joined: Joined) -> Iterator[StorageFault]:
    """Offsets that no copy has, except those of torn copies."""
    assert joined.of is not None
    copied = {copy.segment_id for copy in joined.copies}
    for hole in joined.holes:
        segment = hole.segment
        if segment is None or segment.segment_id not in copied:
            detail = "no copy has them" if segment is None else f"the objects of {segment.segment_id} are missing"
            place = joined.of.topic, joined.of.partition, None
            yield StorageFault("hole", detail, *place, hole.first, hole.last, damage=True)


def _superfluous(copy: Copy, segment: RemoteSegment | None, joined: Joined) -> Iterator[StorageFault]:
    """A complete copy that no reader uses."""
    try:
        copy.check_identity()
        end = copy.extent.end_offset if segment is None else segment.end_offset
    except KafkalogError as error:
        is_other = error.reason is Reason.OTHER_SEGMENT
        kind: FaultKind = "other_segment" if is_other else "unreadable"
        yield _fault(kind, error.detail, copy, damage=is_other and bool(joined.holes))
        return
    first_local = joined.first_local
    if end < joined.start:
        yield _fault("below_start", f"the log starts at offset {joined.start}", copy, end)
    elif first_local is None or copy.start_offset < first_local:
        yield _fault("replaced", "other copies have its offsets, or its leader lost an election", copy, end)
    # else the broker still has the segment as well, which is usual


def _wrong_size(copy: Copy, segment: RemoteSegment, *, is_needed: bool) -> Iterator[StorageFault]:
    try:
        size = copy.log_bytes
    except KafkalogError as error:
        if not is_needed:
            yield _fault("unreadable", error.detail, copy, segment.end_offset)
        return
    if size != segment.size_in_bytes:
        detail = f"the .log has {size} bytes, but {segment.size_in_bytes} in the metadata topic"
        yield _fault("size", detail, copy, segment.end_offset, damage=is_needed)


def _faults_of_content(
    partitions: Iterable[Joined], opened: LogDir, store: JoinedStore, *, deep: bool, limits: Limits
) -> Iterator[StorageFault]:
    """Walk the copies that count, with their indexes."""
    for joined in partitions:
        if not joined.links:
            continue
        segments = iter_verify(opened[joined.key], deep=deep, limits=limits)
        findings = [finding for segment in segments for finding in segment.findings if _is_fault(finding)]
        if not store.layout.starts_at_epochs:  # a log dir
            yield from _gaps(findings, joined)
        yield from _damage(findings, joined, store)
        for link in joined.links:
            yield from _wrong_state(link.copy, joined.epochs, link.last)


def _damage(findings: Iterable[Finding], joined: Joined, store: JoinedStore) -> Iterator[StorageFault]:
    """The findings about copies, except for those that follow from a hole or from another damaged copy."""
    copies = {store.url_of(key): link.copy for key, link in store.links.items()}
    # an error names the object
    copies |= {str(place): copy for copy in copies.values() for place in copy.files.values()}
    of_copies = [(finding, copies[finding.path]) for finding in findings if finding.path in copies]
    broken = [hole.first for hole in joined.holes]
    broken += [copy.start_offset for finding, copy in of_copies if finding.reason not in _OF_HOLES]
    for finding, copy in of_copies:
        if finding.reason not in _OF_HOLES or copy.start_offset < min(broken, default=_NONE):
            yield _of_finding(finding, copy)


def _gaps(findings: Iterable[Finding], joined: Joined) -> Iterator[StorageFault]:
    """Segments that are missing in a log dir: its other segments tell, as no list of copies does."""
    for finding in findings:
        first, last = finding.base_offset, finding.last_offset
        if finding.reason is not Reason.OFFSET_GAP or first is None or last is None:
            continue
        if not any(hole.first <= last and first <= hole.last for hole in joined.holes):
            place = joined.key.topic, joined.key.partition, None
            yield StorageFault("hole", finding.detail, *place, first, last, damage=True)


def _is_fault(finding: Finding) -> bool:
    reason = finding.reason.value  # snapshots are read again, without the local files
    return (finding.damage or reason.startswith("index_")) and not reason.startswith("snapshot_")


def _wrong_state(copy: Copy, epochs: list[tuple[int, int]], last: int) -> Iterator[StorageFault]:
    """The faults of a copy's producer snapshot and leader epochs, which readers take from local files."""
    try:
        if kf.PRODUCER_SNAPSHOT_SUFFIX in copy.sizes():
            with copy.open(kf.PRODUCER_SNAPSHOT_SUFFIX) as source:
                parse_snapshot(source.window(0, source.size).tobytes())
        found = copy.epochs
    except KafkalogError as error:
        kind: FaultKind = "index" if isinstance(error, SidecarError) else "unreadable"
        detail, is_unreadable = f"{error.reason.value}: {error.detail}", error.to_finding().is_unreadable
        yield _fault(kind, detail, copy, damage=True, is_unreadable=is_unreadable)
        return
    if not found or not epochs:
        return
    # the log start may have moved since the copy was made
    first = max(found[0][1], epochs[0][1])
    if epochs_between(found, first, last) != epochs_between(epochs, first, last):
        yield _fault("index", f"its leader epochs {found} are not those of the log", copy, damage=True)


def _of_finding(finding: Finding, copy: Copy) -> StorageFault:
    reason = finding.reason
    kind: FaultKind = "checksum"
    if reason.value.startswith("index_"):
        kind = "index"
    elif reason in (*UNREADABLE, Reason.NOT_INSTALLED):
        kind = "unreadable"
    elif reason is Reason.OTHER_SEGMENT:
        kind = "other_segment"
    where = f" at {finding.position}" if finding.position is not None else ""
    detail = f"{reason.value}{where}: {finding.detail}"
    return _fault(kind, detail, copy, damage=finding.damage, is_unreadable=finding.is_unreadable)


def restore_tiered(
    remote: AnyPath,
    output: str | os.PathLike[str],
    log_dir: AnyPath | None = None,
    *,
    topics: str | Sequence[str] | None = None,
    keys: Mapping[str, str | bytes | os.PathLike[str]] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    limits: Limits = DEFAULT_LIMITS,
    progress: Callable[[int], object] = lambda n_bytes: None,
) -> list[Finding]:
    """Write a log dir with the segments of remote storage, which a broker serves with the same offsets.

    Parameters
    ----------
    remote : path-like or URL
        The root of the remote storage.
    output : path-like
        New directory. It appears when everything is in it.
    log_dir : path-like, optional
        The broker's log dir: its newer segments are written, too, and its metadata topic and leader epochs decide
        which copies count. Without it, see `kafkalog.tiered_location`.
    topics : str or sequence of str, optional
        Names or globs.
    keys, storage_options
        See `kafkalog.tiered_location`.
    limits : Limits
    progress : callable, optional
        Called with the number of bytes written.

    Returns
    -------
    list of Finding
        What is missing, and what `kafkalog.verify` finds in the result.

    Raises
    ------
    KafkalogError
        A copy cannot be read, or the output cannot be written. Nothing is written then.
    """
    place = tiered_location(log_dir, remote, keys=keys, storage_options=storage_options)
    opened = LogDir(place, limits=limits)
    chosen = opened.select(topics, internal=topics is not None)
    if not chosen:
        raise NotKafkaError(Reason.NOT_KAFKA, "there are no partitions to restore", path=os.fspath(remote))
    check_room(output, [opened[key].path for key in chosen], lambda finding: None, dry_run=False)
    with staged_directory(output) as staged:
        findings = write_partitions(opened, chosen, staged, progress)
        if log_dir is not None:
            with staged.create(ORIGIN_NAME) as file:
                file.write(encode_origin("tiered restore", [log_dir]))
    return [*dict.fromkeys([*findings, *verify(output, limits=limits).findings])]


def write_partitions(
    opened: LogDir,
    keys: Iterable[kf.TopicPartition],
    staged: StagedDirectory,
    progress: Callable[[int], object] = lambda n_bytes: None,
    on_error: Callable[[KafkalogError], object] | None = None,
) -> list[Finding]:
    """Write partitions with their segments of remote storage, and return what is missing.

    A file that cannot be read raises, unless `on_error` takes the error: then it is left out.
    """
    findings: list[Finding] = []
    starts: dict[kf.TopicPartition, int] = {}
    for key in keys:
        partition = opened[key]
        findings += partition.findings
        starts[key] = partition.log_start_offset
        directory: Any = partition.path
        for name, entry in directory.entries().items():
            try:
                if not entry.is_directory:
                    _copy_file(directory / name, staged, f"{directory.name}/{name}", progress)
            except KafkalogError as error:
                if on_error is None:
                    raise
                on_error(error)
    with staged.create(kf.LOG_START_OFFSET_CHECKPOINT) as file:
        file.write(encode_offset_checkpoint(starts))
    return findings


def _copy_file(source: Location, staged: StagedDirectory, name: str, progress: Callable[[int], object]) -> None:
    with source.open() as opened, staged.create(name) as file:
        opened.plan(0, opened.size)
        for start in range(0, opened.size, COPY_BYTES):
            data = opened.window(start, min(start + COPY_BYTES, opened.size))
            file.write(data)
            opened.release(data, start)
            progress(data.size)
