"""Stages a partition outside the log dir and moves its files into place in an order that survives a crash.

Holds the locks of the log dir and of the partition while a writer works. See `PartitionWriter` for the state that a
crash leaves. This module does not read or write the content of segments.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, FileChangedError, KafkalogError, Limits, Reason
from kafkalog.log.recovery import RecoveredSegment
from kafkalog.state.checkpoints import encode_checkpoint, encode_partition_metadata
from kafkalog.state.leader_epochs import merge
from kafkalog.state.producers import ProducerSnapshot, encode_snapshot, read_snapshot
from kafkalog.storage.atomic import truncate_file
from kafkalog.storage.broker_lock import hold_locks, hold_partitions
from kafkalog.storage.moves import Move, staged_additions
from kafkalog.storage.output_paths import check_log_dir, copy_ownership, has_directory, staging_directory
from kafkalog.storage.own_names import is_staged
from kafkalog.storage.staging import staged_directory
from kafkalog.writing.log_end import LogEnd, read_log_end
from kafkalog.writing.partition_files import PartitionFiles


class PartitionStaging:
    """A partition directory that is being created or appended to.

    `path` is absolute, without symbolic links. New files are written in the directory `staged`, by default beside the
    log dir. `existing` is the end of the existing log; None for a new partition. Raises the errors of
    `PartitionWriter`.
    """

    def __init__(
        self,
        path: Path,
        *,
        stage_in: str | os.PathLike[str] | None,
        index_interval_bytes: int,
        truncate_tail: bool = False,
        limits: Limits = DEFAULT_LIMITS,
    ) -> None:
        self.path = path
        self.existing: LogEnd | None = None
        self._truncate_tail = truncate_tail
        self._groups: list[list[Move]] = []
        with contextlib.ExitStack() as stack:
            stack.enter_context(hold_locks([path.parent]))
            if not is_staged(path):  # what is staged was checked before
                check_log_dir(path.parent)
            # never in the log dir: a broker stops at a directory there whose name is not a partition's
            stage_in = staging_directory(path, stage_in)
            if not has_directory(path):
                self.staged = stack.enter_context(staged_directory(path, stage_in=stage_in))
            else:
                stack.enter_context(hold_partitions([path]))
                self.existing = read_log_end(
                    path, index_interval_bytes=index_interval_bytes, truncate_tail=truncate_tail, limits=limits
                )
                prepare = partial(_prepare, path, self.existing, self._groups)
                additions = staged_additions(path, self._groups, stage_in=stage_in, prepare=prepare)
                self.staged = stack.enter_context(additions)
            self._stack = stack.pop_all()

    def keep_state(self, files: PartitionFiles) -> None:
        """Write the producer snapshot at the end of the existing log, unless it is there and readable.

        A broker takes that snapshot when it rolls a segment and at a clean shutdown. An append starts a new segment
        there, so it needs the snapshot, too.
        """
        existing = self.existing
        if existing is None or not existing.next_offset or existing.last is None or existing.is_last_empty:
            return
        name = kf.segment_file_name(existing.next_offset, kf.PRODUCER_SNAPSHOT_SUFFIX)
        with contextlib.suppress(KafkalogError):
            read_snapshot(self.path / name)
            files.snapshots[existing.next_offset] = ""  # known, and no file to move
        if existing.next_offset not in files.snapshots:
            files.snapshot(existing.next_offset)

    def finish(
        self,
        files: PartitionFiles,
        *,
        leader_epochs: Sequence[tuple[int, int]],
        topic_id: str | None,
        snapshot: ProducerSnapshot | None,
    ) -> None:
        """Write the remaining files of `staged`, and plan the order in which all of them are moved into place."""
        existing = self.existing
        if existing is None or files.bases:
            files.close()
        first: list[Move] = []
        epochs = None if existing is None else existing.leader_epochs
        if leader_epochs:
            said = np.array(list(leader_epochs), kf.LEADER_EPOCH_DTYPE)
            epochs = said if epochs is None else np.concatenate([epochs, said])
        merged = merge(epochs, files.epochs, files.next_offset)
        known = None if existing is None or existing.leader_epochs is None else existing.leader_epochs.tolist()
        if merged and merged != known and (files.bases or leader_epochs):
            self._create(kf.LEADER_EPOCH_CHECKPOINT, encode_checkpoint(merged))
            # before the segments: a broker drops epochs that begin beyond the log end, and after a clean shutdown adds
            # none
            first.append(Move(kf.LEADER_EPOCH_CHECKPOINT, "put"))
        if topic_id is not None and (existing is None or existing.topic_id is None):
            self._create(kf.PARTITION_METADATA, encode_partition_metadata(topic_id))
            first.append(Move(kf.PARTITION_METADATA, "put"))
        if existing is None and snapshot is not None and files.bases and snapshot.end_offset == files.bases[0]:
            # the producers before the first batch: an aborted transaction may have begun before it
            name = kf.segment_file_name(files.bases[0], kf.PRODUCER_SNAPSHOT_SUFFIX)
            self._create(name, encode_snapshot(snapshot.entries))
        if existing is not None:
            self._groups.append(first)
            self._plan(files, existing)
        if existing is None:
            # files of root's would take the log dir of a broker that runs as another user offline
            copy_ownership(self.staged.path, self.path.parent)

    def close(self) -> None:
        """Move everything into place and release the locks."""
        self._stack.close()

    def abandon(self, error: BaseException) -> None:
        """Discard the staged files and release the locks; the partition is unchanged."""
        self._stack.__exit__(type(error), error, error.__traceback__)

    def _create(self, name: str, content: bytes) -> None:
        with self.staged.create(name) as file:
            file.write(content)

    def _plan(self, files: PartitionFiles, existing: LogEnd) -> None:
        """Plan the order in which new files are moved in; see `PartitionWriter` for the state that a crash leaves."""
        is_wanted = files.bases and not existing.is_last_empty
        if existing.tail is not None and (is_wanted or (self._truncate_tail and not files.bases)):
            self._trim_indexes(existing.tail)
        for base, names in zip(files.bases, files.names, strict=True):
            snapshot = [files.snapshots[base]] if files.snapshots.get(base) else []
            self._groups += segment_moves(base, [*names, *snapshot], replaces=existing.replaced_base_offset == base)
        # last: until all segments are in place, a snapshot at the new end would lie above the log end offset
        end = files.snapshots.get(files.next_offset or 0)
        if end and files.bases and files.next_offset not in files.bases:
            self._groups.append([Move(end, "put")])

    def _trim_indexes(self, found: RecoveredSegment) -> None:
        names = []
        for suffix, entries in ((kf.INDEX_SUFFIX, found.offset_entries), (kf.TIME_INDEX_SUFFIX, found.time_entries)):
            names.append(kf.segment_file_name(found.segment.base_offset, suffix))
            self._create(names[-1], entries.tobytes())
        self._groups.append([Move(name, "put") for name in names])


def segment_moves(base_offset: int, names: Iterable[str], *, replaces: bool) -> list[list[Move]]:
    """The order in which the files of a segment are moved into a partition: a broker starts on the state after each
    group.

    `names` has the segment's files, and the producer snapshot at its base offset, if there is one. `replaces` tells
    whether the segment replaces an empty one of the same base offset.
    """
    log, index, aborted = (
        kf.segment_file_name(base_offset, suffix)
        for suffix in (kf.LOG_SUFFIX, kf.INDEX_SUFFIX, kf.TRANSACTION_INDEX_SUFFIX)
    )
    rest = [Move(name, "put") for name in names if name not in (log, index)]
    if Move(aborted, "put") not in rest:
        rest.append(Move(aborted, "take"))  # left by an earlier append that a crash interrupted
    if replaces:
        # a broker trusts an index that exists and rebuilds a missing one: it must not see the old index with the
        # new `.log`, so the index goes first and comes back last
        return [[Move(index, "take")], [Move(log, "put")], rest, [Move(index, "add")]]
    # a broker deletes indexes without a `.log`: the segment exists once its `.log` does
    return [[Move(index, "put"), *rest], [Move(log, "add")]]


def _prepare(path: Path, existing: LogEnd, groups: list[list[Move]]) -> None:
    """Check that nobody else wrote to the partition, then cut off a torn tail: the only change made in place."""
    if not existing.is_unchanged(path):
        detail = "somebody wrote to the partition in the meantime"
        raise FileChangedError(Reason.FILE_CHANGED, detail, path=path)
    if existing.tail is not None and existing.tail.is_cut and any(groups):
        truncate_file(existing.tail.segment.path, existing.tail.n_valid_bytes)
