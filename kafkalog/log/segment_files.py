"""Lists the segments of a partition's directory, as a broker does when it loads the partition.

Mirrors the part of `LogLoader` that lists files, and that drops or completes what a crash left half done. Here no file
is changed: the files only count as they would afterwards.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from pathlib import Path
from typing import Any, Final

from kafkalog import format as kf
from kafkalog.errors import Finding, KafkalogError, Limits, NotKafkaError, Reason
from kafkalog.interchange.file_types import IMAGE_SUFFIXES, file_type
from kafkalog.log.directory import BETWEEN_SWAPS, Directory, replaced_names
from kafkalog.log.segment import Segment
from kafkalog.log.set_apart import ARCHIVES
from kafkalog.storage.location import Place
from kafkalog.storage.removals import DirectoryIdentity, directory_identity
from kafkalog.text import offset_range

_USUAL_LENGTH: Final = len(kf.segment_file_name(0))


class SegmentListing:
    """The segments of a directory; `findings` are about the names of its files."""

    def __init__(
        self,
        path: Place,
        *,
        memory_map: bool | str,
        limits: Limits,
        topic_partition: kf.TopicPartition | None,
    ) -> None:
        self._path, self._memory_map, self._limits = path, memory_map, limits
        self._topic_partition = topic_partition
        self.findings: list[Finding] = []
        self._identity: DirectoryIdentity | None = None

    def load(
        self,
        only: Sequence[str | os.PathLike[str]] | None = None,
        entries: Sequence[os.DirEntry[str]] | None = None,
    ) -> list[Segment]:
        """The segments by base offset: of `only` these `.log` files, or of all `entries` of the directory.

        Raises ReadError if the directory cannot be read. No file is opened.
        """
        self._identity = directory_identity(self._path)
        directory = Directory(self._path, entries)
        if only is not None:
            names = [Path(path).name for path in only]
            segments = [self._segment(name) for name in names]
            segments.sort(key=attrgetter("base_offset"))
            is_whole = bool(segments) and directory.base_after(segments[-1].base_offset) is None
        else:
            segments = self._load_all(directory)
            segments.sort(key=attrgetter("base_offset"))
            is_whole = True  # what a `.swap` covers, or a broker skips, does not follow
        if segments:
            segments[-1].is_last = is_whole
        return segments

    def _load_all(self, directory: Directory) -> list[Segment]:
        for name in directory.strays:
            self._note_stray(name, directory)
        logs = directory.logs
        if set(map(len, logs)) - {_USUAL_LENGTH} or len(set(logs.values())) < len(logs):
            logs = self._without_doubles(logs)
        segments = [self._segment(name) for name in logs]
        links = {name for name, entry in directory.entries.items() if entry.is_symlink()}
        if links:
            segments = [one for one in segments if one.path.name not in links or not self._is_circular(one)]
        if directory.swaps:
            segments = self._apply_swaps(segments, directory)
        if not segments:
            self._note_emptiness(directory)
        return segments

    def _note_emptiness(self, directory: Directory) -> None:
        """Report that the directory has no segments."""
        detail = f"it holds no segments (files named after an offset, such as {'0' * 20}.log)"
        if any(name.endswith(kf.PACKED_LOG_SUFFIXES) for name in directory.names):
            detail = "its .log files are compressed: unpack them first"
        self.findings.append(Finding(Reason.SEGMENT_MISSING, detail, path=str(self._path), damage=False))

    def _note_stray(self, name: str, directory: Directory) -> None:
        """Report a file with a segment's suffix whose name is not an offset. It is not read."""
        is_log = name.endswith(kf.LOG_SUFFIX)
        if kf.is_fatal_name(name) and name in directory.files:
            detail = "not named after an offset: a broker does not start with it"
        elif is_log:
            detail = "not named after an offset, so a broker does not read it"
        else:
            return
        detail += "; name the file itself to read it" if is_log else ""
        # its content is neither in the log nor lost
        path = str(self._path / name)
        self.findings.append(Finding(Reason.UNKNOWN_FILE, detail, path=path, damage=False, n_records=0))

    def _without_doubles(self, logs: Mapping[str, int]) -> dict[str, int]:
        """Keep one file per base offset: if there are several, such as 0.log, the name of 20 digits that brokers write.

        A broker takes the offset of each name, and opens the file of 20 digits. Source: LogSegment.open, Kafka 4.3.
        A lone 0.log is read here all the same.
        """
        chosen: dict[int, str] = {}
        for name, offset in logs.items():
            usual = kf.segment_file_name(offset)
            left_out = name if chosen.setdefault(offset, name) != name else None
            if left_out == usual:
                chosen[offset], left_out = usual, chosen[offset]
            if left_out is not None:
                detail = (
                    f"not read: a broker reads {chosen[offset]} with the same offset; name this file itself to read it"
                )
                path = str(self._path / left_out)
                self.findings.append(Finding(Reason.UNKNOWN_FILE, detail, path=path, n_records=0))
        for offset, name in chosen.items():
            if name != (usual := kf.segment_file_name(offset)):
                detail = f"a broker opens {usual} instead, and creates it empty: rename this file and its indexes"
                path = str(self._path / name)
                self.findings.append(Finding(Reason.UNKNOWN_FILE, detail, path=path, damage=False, n_records=0))
        return {name: offset for offset, name in chosen.items()}

    def _is_circular(self, segment: Segment) -> bool:
        """Whether a segment is a circular link. It is reported, and skipped as by a broker."""
        cause = None if segment.error is None else segment.error.__cause__
        if segment.error is None or not isinstance(cause, OSError) or cause.errno != errno.ELOOP:
            return False
        self.findings.append(segment.error.to_finding())
        return True

    def _segment(self, name: str) -> Segment:
        segment = Segment(
            self._path / name,
            memory_map=self._memory_map,
            limits=self._limits,
            is_last=False,
            topic_partition=self._topic_partition,
            must_open=False,  # one unreadable segment must not hide the others
        )
        segment.directory = self._identity
        return segment

    def _apply_swaps(self, segments: list[Segment], directory: Directory) -> list[Segment]:
        """Apply `.swap` files (output of the cleaner, or of a segment split) as `LogLoader` does after a crash."""
        ends: dict[str, int] = {}
        swaps: list[Segment] = []
        for name in directory.swaps:
            # KAFKA-6264: a `.swap` at or above the lowest `.cleaned` may belong to an incomplete split. The old
            # segments still count then.
            swap = self._segment(name)
            if swap.base_offset >= directory.unfinished:
                continue
            # the cleaner renames its output to `.swap` once all of it is complete and durable, so it can be trusted
            try:
                ends[name] = stop = swap.next_offset
            except KafkalogError as error:
                detail = f"{error.detail}; kafkalog ignores it, a broker would try to use it"
                self.findings.append(replace(error.to_finding(), detail=detail))
                continue
            swaps.append(swap)
            self.findings.append(
                Finding(
                    Reason.SWAP_FILE,
                    f"read instead of the segments of offsets {offset_range(swap.base_offset, stop)}, as by a broker",
                    path=str(swap.path),
                    base_offset=swap.base_offset,
                    damage=False,
                )
            )
        replaced = replaced_names(directory.logs, ends)
        self.findings += [
            Finding(
                Reason.SWAP_FILE,
                f"not read, and deleted at the start of a broker: {why}. Copy it, or name it to read it",
                path=str(self._path / name),
                base_offset=directory.logs[name],
            )
            for name, why in replaced.items()
            if why == BETWEEN_SWAPS
        ]
        return [*(segment for segment in segments if segment.path.name not in replaced), *swaps]


def open_segment(path: Place, **options: Any) -> Segment:
    """Open a `.log` file that the user named."""
    if path.suffix != kf.LOG_SUFFIX:
        hint = "not a segment: the file name must end in .log; or name a log dir or a partition directory"
        if path.name.endswith(kf.PACKED_LOG_SUFFIXES):
            hint = f"compressed file: unpack it to {path.with_suffix('').name} first"
        elif path.name.endswith(ARCHIVES):
            hint = f"compressed archive: unpack it, or open tar://DIRECTORY::{path}"
        elif path.suffix in (".tar", ".zip"):
            kind = path.suffix[1:]
            hint = f"archive: open {kind}://::{path}, or {kind}://DIRECTORY::{path} for a directory in it"
        elif file_type(path)[0] is not None:
            hint = "a file of a table, not a log: kafkalog load writes it as one"
        elif path.suffix.lower() in IMAGE_SUFFIXES:
            hint = "not a segment: mount the image, or use kafkalog undelete for deleted segments in a raw one"
        elif kf.parse_raft_snapshot(path.name) is not None:
            hint = f"a snapshot of the metadata log: name its directory, {path.parent}, or use kafkalog dump"
        elif kf.parse_base_offset(path.name) is not None:
            hint = f"not a segment: name {path.with_suffix(kf.LOG_SUFFIX)}, or use kafkalog dump"
        raise NotKafkaError(Reason.NOT_KAFKA, hint, path=path)
    return Segment(path, **options)
