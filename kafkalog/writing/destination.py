"""Where a writer's partition goes: staged outside of the log dir, and moved into place in an order that counts.

Holds the locks of the log dir and of the partition meanwhile. What segments contain is not known here;
`PartitionWriter` tells what a crash leaves.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, FileChangedError, KafkalogError, Limits, Reason, UnsafePathError
from kafkalog.log.recovery import RecoveredSegment
from kafkalog.state.checkpoints import encode_checkpoint, encode_partition_metadata
from kafkalog.state.leader_epochs import merge
from kafkalog.state.producers import ProducerSnapshot, encode_snapshot, read_snapshot
from kafkalog.storage.atomic import truncate_file
from kafkalog.storage.broker_lock import hold_locks, hold_partitions
from kafkalog.storage.moves import Move, staged_additions
from kafkalog.storage.output_paths import check_log_dir, check_stage_in, copy_ownership, staging_directory
from kafkalog.storage.staging import staged_directory
from kafkalog.writing.log_end import LogEnd, read_log_end
from kafkalog.writing.partition_files import PartitionFiles


class Destination:
    """A partition directory that is being made, or added to.

    Parameters
    ----------
    path : Path
        Absolute, without links.
    stage_in : path-like, optional
    index_interval_bytes : int
        See `read_log_end`.
    truncate_tail : bool
    limits : Limits

    Attributes
    ----------
    path : Path
    existing : LogEnd or None
        The end of the log that is there; None for a new partition.
    staged : StagedDirectory
        Where files are made.

    Raises
    ------
    UnsafePathError, TruncatedTailError, CorruptionError, WriteError
        See `PartitionWriter`.
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
            check_log_dir(path.parent)
            if stage_in is None:
                stage_in = staging_directory(path)
            else:
                check_stage_in(stage_in)
            if not os.path.lexists(path):
                self.staged = stack.enter_context(staged_directory(path, stage_in=stage_in))
            else:
                if not path.is_dir():
                    raise UnsafePathError(Reason.UNSAFE_PATH, "what is there is not a directory", path=path)
                stack.enter_context(hold_partitions([path]))
                self.existing = read_log_end(
                    path, index_interval_bytes=index_interval_bytes, truncate_tail=truncate_tail, limits=limits
                )
                prepare = partial(_prepare, path, self.existing, self._groups)
                additions = staged_additions(path, self._groups, stage_in=stage_in, prepare=prepare)
                self.staged = stack.enter_context(additions)
            self._stack = stack.pop_all()

    def keep_state(self, files: PartitionFiles) -> None:
        """A broker that rolls notes what it knows of producers; one that was shut down cleanly has done so."""
        existing = self.existing
        if existing is None or not existing.next_offset or existing.last is None or existing.is_last_empty:
            return
        name = kf.segment_file_name(existing.next_offset, kf.PRODUCER_SNAPSHOT_SUFFIX)
        with contextlib.suppress(KafkalogError):
            if (self.path / name).exists():
                read_snapshot(self.path / name)
                files.snapshots[existing.next_offset] = ""
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
        """Write all that is still to be written, and say in which order it goes into place.

        Parameters
        ----------
        files : PartitionFiles
            Made in `staged`.
        leader_epochs, topic_id, snapshot
            See `PartitionWriter`.
        """
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
            first.append(Move(kf.LEADER_EPOCH_CHECKPOINT, "put"))
        if topic_id is not None and (existing is None or existing.topic_id is None):
            self._create(kf.PARTITION_METADATA, encode_partition_metadata(topic_id))
            first.append(Move(kf.PARTITION_METADATA, "put"))
        if existing is None and snapshot is not None and files.bases and snapshot.end_offset == files.bases[0]:
            # the state before the first batch, which the replay of an aborted transaction may begin with
            name = kf.segment_file_name(files.bases[0], kf.PRODUCER_SNAPSHOT_SUFFIX)
            self._create(name, encode_snapshot(snapshot.entries))
        if existing is not None:
            self._groups.append(first)
            self._plan(files, existing)
        copy_ownership(self.staged.path, self.path.parent if existing is None else self.path)

    def close(self) -> None:
        """Put everything into place."""
        self._stack.close()

    def abandon(self, error: BaseException) -> None:
        """Leave everything as it was."""
        self._stack.__exit__(type(error), error, error.__traceback__)

    def _create(self, name: str, content: bytes) -> None:
        with self.staged.create(name) as file:
            file.write(content)

    def _plan(self, files: PartitionFiles, existing: LogEnd) -> None:
        """The order in which new files come to those that are there; see `PartitionWriter` for what a crash leaves."""
        is_wanted = files.bases and not existing.is_last_empty
        if existing.tail is not None and (is_wanted or (self._truncate_tail and not files.bases)):
            self._trim_indexes(existing.tail)
        for base, names in zip(files.bases, files.names, strict=True):
            snapshot = [files.snapshots[base]] if files.snapshots.get(base) else []
            self._groups += segment_moves(base, [*names, *snapshot], replaces=existing.replaced_base_offset == base)
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
    """The order in which the files of a segment come into a partition; a broker starts on what each step leaves.

    Parameters
    ----------
    base_offset : int
    names : iterable of str
        Its files, and the snapshot of the producers before it, if there is one.
    replaces : bool
        Whether it takes the place of an empty segment.
    """
    log, index, aborted = (
        kf.segment_file_name(base_offset, suffix)
        for suffix in (kf.LOG_SUFFIX, kf.INDEX_SUFFIX, kf.TRANSACTION_INDEX_SUFFIX)
    )
    rest = [Move(name, "put") for name in names if name not in (log, index)]
    if Move(aborted, "put") not in rest:
        rest.append(Move(aborted, "take"))  # that of a segment which a crash kept from coming
    if replaces:
        # a broker makes the index of a segment that has none, and believes one that is there
        return [[Move(index, "take")], [Move(log, "put")], rest, [Move(index, "add")]]
    # and deletes indexes without a segment
    return [[Move(index, "put"), *rest], [Move(log, "add")]]


def _prepare(path: Path, existing: LogEnd, groups: list[list[Move]]) -> None:
    """The last look before anything is changed, and the one change in place: a torn tail is cut off."""
    if not existing.is_unchanged(path):
        detail = "somebody wrote to the partition in the meantime"
        raise FileChangedError(Reason.FILE_CHANGED, detail, path=path)
    if existing.tail is not None and existing.tail.is_cut and any(groups):
        truncate_file(existing.tail.segment.path, existing.tail.n_valid_bytes)
