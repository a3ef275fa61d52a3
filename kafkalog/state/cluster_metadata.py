"""Read the state of a cluster from `__cluster_metadata-0` of a log dir: topics, settings, brokers, features and so on.

The metadata log is an ordinary log. Its records, and those of its newest snapshot (`OFFSET-EPOCH.checkpoint`, in the
same format), are decoded by `kafkalog.records.decode` and `kafkalog.protocol`, and applied by
`kafkalog.state.cluster_image`.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from kafkalog import format as kf
from kafkalog.errors import (
    DEFAULT_LIMITS,
    CorruptionError,
    Finding,
    KafkalogError,
    Limits,
    Reason,
    TruncatedTailError,
    is_forbidden,
)
from kafkalog.protocol.decoder import MessageError, UnknownVersionError, decode_message
from kafkalog.records.decode import decode
from kafkalog.records.header_walk import INSIDE, LINKED, search_batches, walk
from kafkalog.records.selection import Selection
from kafkalog.state.cluster_image import ClusterMetadata
from kafkalog.storage.files import open_source
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import Place, place_of
from kafkalog.storage.removals import is_gone
from kafkalog.text import number_ranges, offset_range

_COLUMNS: Final = ("offset", "timestamp", "key", "value", "is_control")


def read_cluster_metadata(
    log_dir: str | os.PathLike[str],
    *,
    end_offset: int | None = None,
    end_timestamp: int | None = None,
    with_credentials: bool = False,
    limits: Limits = DEFAULT_LIMITS,
    others: Sequence[Place] = (),
) -> ClusterMetadata | None:
    """Read the metadata log of a log dir, from its newest snapshot on; None if the log dir has none.

    If a snapshot is damaged, the previous one is used. If a `.log` is damaged, the error is added to the findings, and
    reading continues at the next intact batch. A record that cannot be decoded, as one of a newer Kafka's version, is a
    finding too. Records that are missing are `gaps` of the result: this is the one place that finds them. The state is
    that right before `end_offset` and `end_timestamp` (ms); ValueError if the files do not go back that far. `others`
    are log dirs of the same cluster, which may have the missing records.
    """
    directory = place_of(log_dir) / kf.METADATA_DIRECTORY
    try:
        names = Listing(directory).names
    except OSError:
        return None
    end = _End(end_offset, end_timestamp)
    logs = [*kf.offsets_of(names, kf.LOG_SUFFIX)]
    findings: list[Finding] = []
    metadata = None
    # newest first: an older snapshot needs more replayed records
    for name, snapshot in reversed(kf.raft_snapshots(names).items()):
        metadata = _snapshot(directory / name, snapshot.end_offset, end, findings, limits, with_credentials)
        if metadata is not None:
            break
    if metadata is None:
        metadata = ClusterMetadata(with_credentials=with_credentials)
        metadata.findings = findings
        starts = [one.end_offset for one in kf.raft_snapshots(names).values()]
        begin = kf.parse_base_offset(logs[0]) if logs else min(starts, default=0)
        if begin and end != _End(None, None):
            oldest = f"its log begins at offset {begin}" if logs else f"the oldest is of offset {begin}"
            raise ValueError(f"{directory} has no snapshot from before then, and {oldest}")
    metadata.findings = findings
    _replay(metadata, directory, logs, end, limits, [other / kf.METADATA_DIRECTORY for other in others])
    return metadata


def cluster_metadata(
    root: Place, *, with_credentials: bool = False, limits: Limits = DEFAULT_LIMITS
) -> ClusterMetadata | None:
    """The metadata of a log dir; None if it has none. They are read again only if a file changed: do not change them.

    Several commands and checks ask for each partition of a log dir.
    """
    try:
        listing = Listing(root / kf.METADATA_DIRECTORY)
        stamps = [(name, listing.status(name)) for name in listing.names]
    except OSError:
        # a broker removes a segment, or there is no such directory
        return read_cluster_metadata(root, with_credentials=with_credentials, limits=limits)
    versions = [(name, status.st_size, status.st_mtime_ns) for name, status in stamps]
    return _read_once(root, root.absolute(), with_credentials, limits, *versions)


def leading_metadata(
    known: Sequence[tuple[Place, ClusterMetadata]], **options: Any
) -> tuple[Place, ClusterMetadata, str]:
    """Return the metadata of several log dirs that have most, and their log dir: controllers may lag.

    `known` has at least one, which were read with `options`. Records that are missing in the one that leads come from
    the others. The third is why the last changes may be missing all the same; "" if nothing shows that they are.
    """
    place, leading = max(known, key=lambda one: (one[1].end_offset, one[1].is_complete))
    if not leading.gaps:
        return place, leading, ""
    others = [one for one, _ in known if one != place]
    filled = read_cluster_metadata(place, others=others, **options) or leading
    first = min((gap.base_offset or 0 for gap in filled.gaps), default=0)
    # the snapshots of another log dir may have the records that are missing here
    whole = [one for one in known if filled.gaps and one[1].is_complete and one[1].end_offset > first]
    if not whole:
        return place, filled, ""
    other, complete = max(whole, key=lambda one: one[1].end_offset)
    later = f"the metadata log in {place} has records after offset {complete.end_offset - 1}, but lacks earlier ones"
    return other, complete, later if filled.end_offset > complete.end_offset else ""


@functools.lru_cache(maxsize=8)
def _read_once(
    root: Place, _absolute: Place, with_credentials: bool, limits: Limits, *_versions: object
) -> ClusterMetadata | None:
    return read_cluster_metadata(root, with_credentials=with_credentials, limits=limits)


def _replay(
    metadata: ClusterMetadata, directory: Place, logs: list[str], end: _End, limits: Limits, others: Sequence[Place]
) -> None:
    """Apply the records of the log that follow the snapshot, and report those that are missing.

    Segments are only deleted from the front, once a snapshot covers them, and the log is not compacted: so any offset
    that is missing was a record.
    """
    replay = _Replay(metadata, end, limits, others)
    for path in (directory / name for name in logs):
        replay.read(path, is_last=path.name == logs[-1])


class _Replay:
    """Applies the records of one file after the other to a state that begins with a snapshot."""

    def __init__(self, metadata: ClusterMetadata, end: _End, limits: Limits, others: Sequence[Place]) -> None:
        self._metadata, self._end, self._limits, self._others = metadata, end, limits, others
        self._start = metadata.start_offset = metadata.end_offset
        self._following: int | None = None  # the offset that the next record has
        self._is_past_end = False

    def read(self, path: Place, *, is_last: bool) -> None:
        """Apply the records of a file. Reading continues at the next intact batch after damage."""
        if self._following is None:
            base = self._following = kf.parse_base_offset(path.name) or 0
            start = self._filled(self._start, base, path)
            if base > start:
                detail = f"the log starts at offset {base}, and no snapshot covers offsets {offset_range(start, base)}"
                _missing(self._metadata, path, detail, start, base - 1)
        for record in _intact_records(path, self._following, self._limits, partial(self._note, path, is_last)):
            self._add(record, path)

    def _note(self, path: Place, is_last: bool, error: KafkalogError, position: int | None) -> None:
        """Report damage. A later batch or segment shows which offsets are missing; of the last one nothing does."""
        self._metadata.findings.append(error.to_finding(damage=False))
        following = self._following or 0
        detail = f"the records from offset {following} on cannot be read ({error.reason.value})"
        if is_forbidden(error):
            # nothing is missing: another user may read them
            gap = replace(error.to_finding(), detail=f"{detail}: {error.detail}")
            self._metadata.findings[-1] = gap
            self._metadata.gaps.append(gap)
        elif position is None and is_last and not isinstance(error, TruncatedTailError) and not self._is_past_end:
            _missing(self._metadata, path, detail, following, None)

    def _add(self, record: _MetadataRecord, path: Place) -> None:
        following = self._following or 0
        is_counted = self._end.is_behind(record)
        is_missing = record.offset > following and not self._is_past_end
        if is_missing and (self._end.offset is None or following < self._end.offset):
            following = self._filled(following, record.offset, path)
            if following < record.offset:
                _hole(self._metadata, path, following, record.offset, self._start)
        self._following = max(following, record.offset + 1)
        self._is_past_end |= not is_counted
        # the snapshot covers the offsets before its own, and segments may begin earlier
        if record.offset >= self._start and is_counted:
            _apply(self._metadata, record, path, self._limits)

    def _filled(self, first: int, following: int, path: Place) -> int:
        """Apply the records of a hole that other log dirs have. Returns the first offset from which on none has any."""
        known: dict[int, tuple[_MetadataRecord, Place]] = {}
        for directory in self._others:
            for record in _records_between(directory, first, following, self._limits):
                known.setdefault(record.offset, (record, directory))
        sources: dict[Place, list[int]] = {}
        for offset, (record, directory) in sorted(known.items()):
            if not self._end.is_behind(record):
                break
            if offset > first:
                _hole(self._metadata, path, first, offset, self._start)
            if offset >= self._start:
                _apply(self._metadata, record, directory, self._limits)
            sources.setdefault(directory, []).append(offset)
            first = offset + 1
        for directory, offsets in sources.items():
            detail = f"records at offsets {number_ranges(offsets)}, which are missing here, come from {directory}"
            found = Finding(Reason.METADATA_INCOMPLETE, detail, str(path), base_offset=offsets[0], damage=False)
            self._metadata.findings.append(found)
        return first


def _records_between(directory: Place, first: int, end: int, limits: Limits) -> Iterator[_MetadataRecord]:
    """The intact records of a metadata log from one offset up to another."""
    with contextlib.suppress(OSError):
        logs = [*kf.offsets_of(Listing(directory).names, kf.LOG_SUFFIX)]
        for name, later in itertools.zip_longest(logs, logs[1:]):
            is_before = later is not None and (kf.parse_base_offset(later) or 0) <= first
            if not is_before and (kf.parse_base_offset(name) or 0) < end:
                records = _intact_records(directory / name, first, limits)
                yield from (record for record in records if first <= record.offset < end)


def _intact_records(
    path: Place,
    following: int,
    limits: Limits,
    note: Callable[[KafkalogError, int | None], object] = lambda error, position: None,
) -> Iterator[_MetadataRecord]:
    """The records of a file; after damage, which is noted, those from the next intact batch on, if there is one."""
    position: int | None = 0
    while position is not None:
        try:
            for record in _records(path, limits, position):
                following = max(following, record.offset + 1)
                yield record
            return
        except KafkalogError as error:
            if is_gone(path):
                return  # a running broker deleted it, after it wrote a snapshot
            is_torn = isinstance(error, TruncatedTailError)
            position = None if is_torn else _next_batch(path, error.position, following, limits)
            note(error, position)


def _next_batch(path: Place, position: int | None, following: int, limits: Limits) -> int | None:
    """The position of the next intact batch after a damaged one whose offsets are not below `following`."""
    if position is None:
        return None
    with open_source(path, memory_map=False) as source:
        for start, _, first, _, _, kind in search_batches(
            source, position, source.size, is_damaged=True, limits=limits
        ):
            is_intact = (kind != LINKED) & (kind != INSIDE) & (start > position)
            found = start[is_intact & (first >= following)]
            if found.size:
                return int(found[0])
    return None


def _hole(metadata: ClusterMetadata, path: Place, first: int, following: int, start: int) -> None:
    """Report offsets that no record has."""
    detail = f"no records at offsets {offset_range(first, following)}"
    covered = f"{detail}; the snapshot at offset {start} includes their changes" if following <= start else None
    _missing(metadata, path, detail, first, following - 1, covered=covered)


def _missing(
    metadata: ClusterMetadata,
    path: Place,
    detail: str,
    first: int,
    last: int | None,
    *,
    n_records: int | None = None,
    covered: str | None = None,
) -> None:
    """Report missing records; `covered` is why the state is complete without them."""
    if n_records is None and last is not None:
        n_records = last - first + 1
    finding = Finding(
        Reason.METADATA_INCOMPLETE,
        covered
        or f"{detail}: brokers, topics and settings from missing records are unknown; copy this directory from another"
        " controller",
        str(path),
        base_offset=first,
        last_offset=last,
        n_records=n_records,
        certainty="at_most" if n_records else None,
    )
    metadata.findings.append(finding)
    if covered is None:
        metadata.gaps.append(finding)


def read_metadata_file(
    metadata: ClusterMetadata, path: Place, *, limits: Limits = DEFAULT_LIMITS
) -> tuple[int | None, int | None]:
    """Apply the records of one file with metadata records: a snapshot, or `bootstrap.checkpoint`.

    Returns the types of the first and the last record, None for those that are no control records. Raises KafkalogError
    if the file is damaged, after the records before the damage have been applied.
    """
    kinds: list[int | None] = []
    for record in _records(path, limits):
        _apply(metadata, record, path, limits)
        kinds[1:] = [record.control_type]
    return (kinds[0], kinds[-1]) if kinds else (None, None)


def loaded_values(
    log_dir: Place, start_offset: int, *, limits: Limits = DEFAULT_LIMITS
) -> Iterator[tuple[Place, int, bytes | None]]:
    """Yield file, offset and value of the records that a broker loads: a snapshot, and the log from its offset on.

    What follows damage in a file is left out; `read_cluster_metadata` reports it.
    """
    directory = log_dir / kf.METADATA_DIRECTORY
    names = Listing.or_empty(directory).names
    snapshots = [name for name, one in kf.raft_snapshots(names).items() if one.end_offset == start_offset]
    for name in [*snapshots[-1:], *kf.offsets_of(names, kf.LOG_SUFFIX)]:
        first = start_offset if name.endswith(kf.LOG_SUFFIX) else 0
        with contextlib.suppress(KafkalogError):
            for record in _records(directory / name, limits):
                if record.control_type is None and record.offset >= first:
                    yield directory / name, record.offset, record.value


class _MetadataRecord(NamedTuple):
    offset: int
    timestamp: int
    value: bytes | None
    control_type: int | None
    """None for a record that is no control record."""


class _End(NamedTuple):
    """Up to where records count."""

    offset: int | None
    timestamp: int | None

    def is_behind(self, record: _MetadataRecord) -> bool:
        """Whether a record lies before the end."""
        return (self.offset is None or record.offset < self.offset) and (
            self.timestamp is None or record.timestamp < self.timestamp
        )


def _snapshot(
    path: Place, offset: int, end: _End, findings: list[Finding], limits: Limits, with_credentials: bool
) -> ClusterMetadata | None:
    """Read a snapshot; None if it is damaged, or of a time after the end."""
    if end.offset is not None and offset > end.offset:
        return None
    metadata = ClusterMetadata(with_credentials=with_credentials)
    metadata.findings = findings
    n_findings, first, control_type = len(findings), None, None
    try:
        for number, record in enumerate(_records(path, limits)):
            control_type = record.control_type
            first = first if number else control_type
            _apply(metadata, record, path, limits)
            if record.control_type == kf.ControlRecordType.SNAPSHOT_HEADER:
                metadata.timestamp = _last_timestamp(record.value or b"")
                if end.timestamp is not None and metadata.timestamp >= end.timestamp:
                    return None
        if control_type != kf.ControlRecordType.SNAPSHOT_FOOTER:
            raise CorruptionError(Reason.METADATA_INCOMPLETE, "the snapshot ends without its footer", path=path)
    except KafkalogError as error:
        findings.append(error.to_finding(damage=False))
        return None
    metadata.end_offset = offset
    if first == kf.ControlRecordType.SNAPSHOT_HEADER and len(findings) == n_findings:
        metadata.sound_snapshot = path.name
    return metadata


def _last_timestamp(header: bytes) -> int:
    """The time up to which a snapshot goes; -1 if its header does not say."""
    try:
        time: int = decode_message("SnapshotHeaderRecord", 0, header, whole=False)["lastContainedLogTimestamp"]
    except MessageError:
        return -1
    return time


def _apply(metadata: ClusterMetadata, record: _MetadataRecord, path: Place, limits: Limits) -> None:
    if record.control_type is None:
        metadata.end_offset = record.offset + 1
        metadata.timestamp = max(metadata.timestamp, record.timestamp)
    try:
        if record.control_type is None:
            metadata.apply(record.value)
        else:
            metadata.apply_control(record.control_type, record.value or b"")
    except ValueError as error:
        if len(metadata.findings) < limits.max_findings:
            found = Finding(Reason.INTERNAL_RECORD, str(error), str(path), base_offset=record.offset, damage=False)
            metadata.findings.append(found)
            if isinstance(error, MessageError) and not isinstance(error, UnknownVersionError):
                metadata.torn.append(found)
    if metadata.contradictions:
        _contradicts(metadata, record, path, metadata.contradictions[0])
        metadata.contradictions.clear()


def _contradicts(metadata: ClusterMetadata, record: _MetadataRecord, path: Place, why: str) -> None:
    """Report a record that no earlier one allows."""
    # a controller reads past a hole, and no damaged batch
    if not metadata.torn and len(metadata.findings) == len(metadata.gaps):
        found = Finding(Reason.METADATA_INCOMPLETE, why, str(path), base_offset=record.offset, damage=False)
        metadata.torn.append(found)
    # after a gap, contradictions are its consequence
    if metadata.is_complete:
        detail = f"the record at offset {record.offset} {why}"
        _missing(metadata, path, detail, record.offset, record.offset, n_records=0)


def _records(path: Place, limits: Limits, position: int = 0) -> Iterator[_MetadataRecord]:
    with open_source(path, memory_map=False) as source:
        for window in walk(source, start=position, limits=limits):
            done = 0
            while done < len(window.batches):  # `decode` stops early once it has decompressed enough bytes
                decoded = decode(
                    window,
                    _COLUMNS,
                    first=done,
                    selection=Selection(include_control=True),
                    limits=limits,
                    path=str(path),
                )
                if decoded.columns is not None:
                    offset, timestamp, is_control = (
                        decoded.columns[name].tolist()  # type: ignore[union-attr]
                        for name in ("offset", "timestamp", "is_control")
                    )
                    keys = decoded.columns.key
                    types = [
                        int.from_bytes((key or b"")[2:4], "big") if control else None
                        for key, control in zip(keys, is_control, strict=True)
                    ]
                    yield from map(_MetadataRecord, offset, timestamp, decoded.columns.value, types)
                if decoded.error is not None:
                    raise decoded.error
                done += decoded.n_batches
            source.release(window.data, window.start)
