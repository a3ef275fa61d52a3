"""What becomes of files while they are read: a running broker rolls, cleans, deletes and replaces them.

The one place that asks whether a broker runs, pauses, and reads again. Only what is still wrong then is damage.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Final, Literal, TypeVar

from kafkalog import format as kf
from kafkalog.errors import CorruptionError, FileChangedError, Finding, KafkalogError, Reason
from kafkalog.log.directory import Directory
from kafkalog.log.segment_stream import SegmentRange
from kafkalog.storage.file_locks import is_locked
from kafkalog.storage.files import size_if_there
from kafkalog.storage.location import Place
from kafkalog.storage.removals import is_gone, removed_directory, was_replaced

if TYPE_CHECKING:
    from kafkalog.log.segment import Segment

Fate = Literal["retired", "merged", "cut", "replaced", "removed", "damaged"]
Found = TypeVar("Found")

_ATTEMPTS: Final = 5
PAUSE_SECONDS: Final = 0.05


def is_live(log_dir: str | os.PathLike[str]) -> bool:
    """Whether a broker runs on a log dir; False if that cannot be determined."""
    return is_locked(log_dir)


def was_closed(log_dir: Place) -> bool:
    """Whether a log dir has the marker of a clean shutdown: the broker has closed and trimmed its files."""
    return size_if_there(log_dir / kf.CLEAN_SHUTDOWN_FILE) is not None


def settled(read: Callable[[], Found], is_final: Callable[[Found], bool], *, is_live: bool) -> Found:
    """The result of a read that is final, or of the last attempt. Without a running broker there is one attempt.

    What a broker left half written, or is just replacing, is whole after a pause.
    """
    return repeated(read, is_final, _ATTEMPTS if is_live else 1)


def repeated(read: Callable[[], Found], is_final: Callable[[Found], bool], n_attempts: float) -> Found:
    """The result of the first attempt that is final, or of the last one; there is a pause after each other one."""
    found = read()
    while (n_attempts := n_attempts - 1) > 0 and not is_final(found):
        time.sleep(PAUSE_SECONDS)
        found = read()
    return found


def polled(read: Callable[[], Found], seconds: float = PAUSE_SECONDS) -> Iterator[Found]:
    """Yield the result of a read again and again, without end, with a pause after each."""
    while True:
        yield read()
        time.sleep(seconds)


def settle(segment: Segment, error: KafkalogError) -> Fate:
    """Find out what another process did to a segment that cannot be read, by listing its directory again.

    "retired": retention deleted it, and all segments before it. "merged": the log cleaner put its records into an
    earlier one. "cut": the log was truncated or repaired. "replaced", "removed": so was its partition. "damaged": none
    of these.
    """
    directory = segment.path.absolute().parent
    if error.reason is Reason.PARTITION_REMOVED:
        return "removed"
    if was_replaced(directory, segment.directory):
        return "replaced"
    if error.reason is not Reason.FILE_UNREADABLE or not is_gone(segment.path):
        return "damaged"
    try:
        listing = Directory(directory)
    except OSError:
        return "damaged" if removed_directory(directory, identity=segment.directory) is None else "removed"
    if segment.path.name in listing.entries:
        return "damaged"  # a link to nowhere
    bases = listing.bases
    if bases and is_live(directory.parent):
        if bases[0] > segment.base_offset:
            return "retired"
        if bases[-1] > segment.base_offset:  # the cleaner leaves the last segment alone
            return "merged"
    return "cut"


def retired(segment: Segment, error: KafkalogError) -> Finding | None:
    """The note about a segment that retention deleted before it was read; None for any other error."""
    if settle(segment, error) != "retired":
        return None
    detail = "a running broker deleted the segment before it was read; the log begins at a later offset now"
    return replace(error.to_finding(damage=False), detail=detail)


def explained(segment: Segment, error: KafkalogError) -> KafkalogError:
    """The error about a segment; `FileChangedError` if another process removed the file after it was listed."""
    if settle(segment, error) != "cut":
        return error
    detail = "was removed after its directory was listed: the log was truncated or repaired meanwhile. Read it again"
    return FileChangedError(Reason.FILE_CHANGED, detail, path=segment.path)


def merged_part(segment: Segment, error: KafkalogError, previous: int) -> Segment | None:
    """The part of an earlier segment with the records of one that the log cleaner merged into it, after `previous`.

    None if no records are left. Raises the error if the cleaner did not merge the segment.
    """
    if settle(segment, error) != "merged":
        raise error
    first = max(previous + 1, segment.base_offset)
    directory = segment.path.absolute().parent
    base = max((one for one in Directory(directory).bases if one <= segment.base_offset), default=None)
    if base is None:
        raise error
    path = segment.path.with_name(kf.segment_file_name(base, kf.LOG_SUFFIX))
    whole = segment.moved_to(path)
    try:
        row = whole.find_offsets([first])[0]
    except CorruptionError:
        raise error from None
    if row["position"] < 0:
        if previous >= segment.base_offset:
            return None
        raise error
    size = whole.size_in_bytes
    return segment.moved_to(path, SegmentRange(path.name, size, int(row["position"]), size, int(row["base_offset"])))
