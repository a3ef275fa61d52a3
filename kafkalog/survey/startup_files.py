"""What a broker does with directories and files before it loads segments: it deletes, renames, or fails.

Mirrors the passes over the directory in `LogLoader.load`. Reads names, the last offset of `.swap` segments, the leader
epochs and the topic id.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Finding, KafkalogError, Reason, is_forbidden
from kafkalog.log.directory import REPLACED, Directory, replaced_names
from kafkalog.log.segment import Segment
from kafkalog.records.header_walk import intact_headers_at
from kafkalog.state.checkpoints import read_leader_epochs, read_topic_id
from kafkalog.state.leader_epochs import LeaderEpochs
from kafkalog.storage.files import open_source
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import AnyPlace, Place
from kafkalog.storage.own_names import QUARANTINE_SUFFIX
from kafkalog.survey.startup_end import end_as_loaded
from kafkalog.text import first_names

ORPHAN: Final = "an index without its .log"
"""Why a broker removes such a file."""

_RAFT_SNAPSHOT_DELETED: Final = kf.RAFT_SNAPSHOT_SUFFIX + kf.DELETED_SUFFIX
_REMOTE_INDEX_CACHE: Final = "remote-log-index-cache"
_MOST_OPENED: Final = 2000
_NOT_LOST: Final = ("checkpoint", QUARANTINE_SUFFIX)


@dataclass(slots=True)
class FileNames:
    """The files of a partition directory, and what becomes of them before the segments are loaded."""

    names: list[str]
    """All regular files, sorted."""
    fatal: list[str] = field(default_factory=list)
    """Files whose names a broker cannot parse: it does not start."""
    removed: dict[str, str] = field(default_factory=dict)
    """Files that it deletes, and why."""
    renamed: dict[str, str] = field(default_factory=dict)
    """`.swap` files that it renames, and their new names."""
    bad_swaps: dict[str, str] = field(default_factory=dict)
    """`.swap` segments whose end cannot be read, and why."""

    def problem(self, directory: Place) -> Finding | None:
        """Why a broker cannot load the partition, whatever the segments hold; None if nothing is in the way."""
        if self.fatal:
            others = f", and {', '.join(self.fatal[1:4])} as well" if len(self.fatal) > 1 else ""
            others += f" ({len(self.fatal):,} files)" if len(self.fatal) > 4 else ""
            detail = f"not named after an offset: a broker does not start; move it away{others}"
            return Finding(Reason.UNKNOWN_FILE, detail, path=str(directory / self.fatal[0]), n_records=0)
        if self.bad_swaps:
            name, why = next(iter(self.bad_swaps.items()))
            return Finding(Reason.SWAP_FILE, why, path=str(directory / name))
        return None

    def after(self) -> set[str]:
        """Names of the files that are there afterwards."""
        return {self.renamed.get(name, name) for name in self.names if name not in self.removed}


def files_at_start(path: Place) -> FileNames:
    """List the changes that a broker makes to the files of a partition before it loads the segments.

    Raises ReadError if the directory cannot be read. Source: LogLoader.load,
    LogLoader.removeTempFilesAndCollectSwapFiles, LogFileUtils.offsetFromFile, Kafka 4.3.
    """
    directory = Directory(path)
    names = directory.files
    found = FileNames(names)
    swaps = _take_leftovers(found, directory.unfinished)
    found.fatal = [
        name
        for name in names
        if kf.is_fatal_name(name) and (name in swaps or not name.endswith(kf.SWAP_SUFFIX) or name in found.removed)
    ]
    _complete_swaps(path, found, swaps)
    there = found.after()
    for name in names:
        new = found.renamed.get(name, name)
        log = new.rpartition(".")[0] + kf.LOG_SUFFIX
        if new.endswith(kf.INDEX_SUFFIXES) and name not in found.removed and log not in there:
            found.renamed.pop(name, None)
            found.removed[name] = ORPHAN
    return found


def partition_directories(root: AnyPlace) -> Iterator[AnyPlace | Finding]:
    """Yield the partition directories of a log dir by name, and a finding for each other directory.

    Directories that a broker has renamed (`-delete`, `-future`, `-stray`) are among them: it loads them too.
    Source: LogManager.loadLogs, Kafka 4.3.
    """
    listing = Listing(root)
    if lost := about_unnamed_segments(root):
        yield Finding(Reason.UNKNOWN_FILE, f"files next to the partitions{lost}", path=str(root))
    for name in listing.directories:
        path = root / name
        if kf.parse_partition_directory(name) is None:
            if name != _REMOTE_INDEX_CACHE:
                detail = f"a directory without the name of a partition; move it away{about_unnamed(path)}"
                yield Finding(Reason.UNKNOWN_FILE, detail, path=str(path))
        elif listing.entries[name].is_symlink() and not _is_below(path, root):
            detail = "a link out of the log dir is not followed; name its target to recover it"
            yield Finding(Reason.LINK_OUTSIDE, detail, path=str(path))
        else:
            yield path


def unnamed_partitions(directory: AnyPlace) -> list[str]:
    """Which directories have segments: this one, or those in it, as fsck puts them into lost+found; by their names."""
    inside = {directory.name: directory}
    inside |= {f"{directory.name}/{name}": directory / name for name in Listing.or_empty(directory).directories}
    return [name for name, one in inside.items() if any(map(is_segment, Listing.or_empty(one).names))]


def unnamed_segments(directory: AnyPlace, listing: Listing | None = None) -> list[str]:
    """The files of a directory without a partition's name that begin with a record batch, as fsck has found them.

    Of a log dir, those next to its partitions. `listing` is that of the directory, if it is known.
    """
    is_local = isinstance(directory, Path)
    names = _unknown_files(directory, listing or Listing.or_empty(directory)) if is_local else []
    # of thousands of files, the first ones tell
    return [name for name in names[:_MOST_OPENED] if _begins_with_batch(directory / name)]


def _unknown_files(directory: Place, listing: Listing) -> list[str]:
    """The files of a directory that is no partition.

    Without those of a log dir, segments that are elsewhere, and what a salvage has not kept, and has reported.
    """
    # snapshots of metadata are batches, too
    names = [name for name in listing.names if not name.startswith(".") and not name.endswith(_NOT_LOST)]
    names = [name for name in names if name not in kf.LOG_DIR_FILES and kf.parse_partition_directory(name) is None]
    if not names or any(map(kf.parse_partition_directory, listing.directories)):
        return [name for name in names if name in listing.files]
    # a log dir may be called as a partition is
    is_partition = kf.parse_partition_directory(directory.name) is not None
    return [] if is_partition else [name for name in names if name in listing.files and not is_segment(name)]


def _begins_with_batch(path: Place) -> bool:
    with contextlib.suppress(KafkalogError), open_source(path, memory_map=False) as source:
        return intact_headers_at(source, 0, DEFAULT_LIMITS.max_batch_bytes) is not None
    return False


def about_unnamed(directory: AnyPlace) -> str:
    """The end of a finding about a directory: partitions and segments in it that have lost their name; or nothing."""
    unnamed = unnamed_partitions(directory)
    text = f". {first_names(unnamed)} has segments: if it is a partition, name it TOPIC-N" if unnamed else ""
    return text + about_unnamed_segments(directory)


def about_unnamed_segments(directory: AnyPlace) -> str:
    """The same about segments alone."""
    found = unnamed_segments(directory)
    where = f"Record batches are in {first_names(found)}"
    return f". {where}: kafkalog undelete {directory} brings them back" if found else ""


def is_segment(name: str) -> bool:
    return name.endswith(kf.LOG_SUFFIX) and kf.parse_base_offset(name) is not None


def _take_leftovers(found: FileNames, unfinished: int) -> list[str]:
    """Note the files that are deleted at once; returns the `.swap` files that stay.

    `.cleaned` files are renamed last segment first: a `.swap` after one belongs to the same `unfinished` work, and its
    sources are still there.
    """
    swaps = []
    for name in found.names:
        if name.endswith(kf.DELETED_SUFFIX) and not name.endswith(_RAFT_SNAPSHOT_DELETED):
            found.removed[name] = "marked for deletion"
        elif name.endswith(kf.CLEANED_SUFFIX):
            found.removed[name] = "the cleaner did not finish it"
        elif name.endswith(kf.SWAP_SUFFIX):
            offset = kf.parse_base_offset(name)
            if offset is not None and offset >= unfinished:
                found.removed[name] = "of a split or a cleaning that did not finish"
            else:
                swaps.append(name)
    return swaps


def _complete_swaps(directory: Place, found: FileNames, swaps: list[str]) -> None:
    """Note the renames of `.swap` files, and the deletion of what they replace."""
    ends: dict[str, int] = {}
    for name in swaps:
        base = kf.parse_base_offset(name)
        if base is None or not name.endswith(kf.LOG_SUFFIX + kf.SWAP_SUFFIX):
            continue
        try:
            end = end_as_loaded(Segment(directory / name, is_last=False))
        except KafkalogError as error:
            found.bad_swaps[name], end = str(error), base
        ends[name] = end
    for name, why in replaced_names(found.names, ends).items():
        found.removed.setdefault(name, why)
    found.renamed = {name: name.removesuffix(kf.SWAP_SUFFIX) for name in swaps}
    for name in found.renamed.values():
        if name in found.names:
            found.removed.setdefault(name, REPLACED)


def epochs_problem(directory: Place) -> Finding | None:
    """Why a broker does not start with the leader epochs of a partition; None if it does. `recover` rewrites them.

    Source: LeaderEpochFileCache, CheckpointFile.read, Kafka 4.3.
    """
    path = directory / kf.LEADER_EPOCH_CHECKPOINT
    try:
        epochs = read_leader_epochs(path)
    except KafkalogError as error:
        return error.to_finding() if is_forbidden(error) else _problem(path, error.detail)
    if epochs is None:
        return _problem(path, "a link to nowhere") if path.is_symlink() else None
    if epochs.size and min(int(epochs["epoch"].min()), int(epochs["start_offset"].min())) < 0:
        return _problem(path, "an epoch or its start offset is negative")
    return None


def known_epochs(directory: Place) -> LeaderEpochs:
    """The leader epochs of a partition; none if a broker cannot read the file."""
    try:
        return LeaderEpochs(read_leader_epochs(directory / kf.LEADER_EPOCH_CHECKPOINT))
    except KafkalogError:
        return LeaderEpochs()


def topic_id_problem(directory: Place) -> Finding | None:
    """Why a broker does not start with a `partition.metadata`; None if it does, or there is no such file.

    Source: PartitionMetadataReadBuffer.read, Uuid.fromString, Kafka 4.3.
    """
    try:
        read_topic_id(directory)
    except KafkalogError as error:
        path = directory / kf.PARTITION_METADATA
        return error.to_finding() if is_forbidden(error) else _problem(path, error.detail)
    return None


def _problem(path: Place, detail: str) -> Finding:
    return Finding(Reason.CHECKPOINT_SYNTAX, f"{detail}: a broker does not start with it", path=str(path))


def _is_below(path: Place, root: Place) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))
