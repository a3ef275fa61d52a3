"""Where the changed files of a partition go: into a copy of it, in place of the old ones, or nowhere.

`Copied` makes a whole partition elsewhere. `InPlaceOutput` keeps the old files in a backup, then moves the new ones in,
in an order in which a broker can start after each step; `InPlaceFromStart` and `Swapped` have other orders.
`Placement` says which. What the changes are is not known here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kafkalog import format as kf
from kafkalog.log.directory import final_name
from kafkalog.log.log_dir import is_partition_directory
from kafkalog.state.checkpoints import known_properties
from kafkalog.storage.atomic import StrPath, remove_file, sync_directory
from kafkalog.storage.broker_lock import hold_locks, hold_partitions
from kafkalog.storage.copying import Backup, NoBackup, copy_file
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import Place, local_path
from kafkalog.storage.moves import Move, staged_additions
from kafkalog.storage.output_paths import check_outside, named_partition, staging_directory
from kafkalog.storage.staging import OutputFile, StagedDirectory, staged_directory, staged_file


class PartitionOutput:
    """Receives the changes to one partition, by file names. This one, of a dry run, does nothing."""

    def create(self, name: str) -> OutputFile:
        """A file to be written; the caller closes it."""
        return _NoFile()

    def write(self, name: str, data: bytes) -> None:
        """Give a file new content."""

    def copy(self, source: Place, name: str, size: int | None = None) -> None:
        """Give a file the content of another, or the first bytes of it."""

    def remove(self, name: str) -> None:
        """Remove a file."""

    def take_back(self, name: str) -> None:
        """Remove a file that was written or copied."""

    def commit_part(self) -> None:
        """In place, make the changes so far, durably; `Swapped` alone does so."""

    def commit(self) -> None:
        """Make the changes, durably."""

    def abandon(self) -> None:
        """Make none of the changes."""

    def begin_again(self) -> None:
        """Be ready for other changes, after `abandon`."""


@dataclass(slots=True)
class Placement:
    """The place of changed files that a caller asks for: an output, or in place. Raises ValueError for a contradiction.

    Once entered, makes the outputs of partitions, and writes the files of the log dir itself.
    """

    output: StrPath | None
    """The directory to create with a changed copy; see `named_partition`."""
    is_in_place: bool
    backup_path: StrPath | None
    """In place, the directory to create for the old files."""
    dry_run: bool
    stage_in: StrPath | None
    """In place, the directory to write new files in. Default: the parent of the log dir."""
    keeps_old: bool = True
    """Whether changes in place need a backup."""
    in_place: type[InPlaceOutput] | None = None
    """`InPlaceOutput` or a subclass."""
    log_dir: Path = field(init=False, default_factory=Path)
    is_partition: bool = field(init=False, default=False)
    """Whether a partition was named, not its log dir."""
    is_lone: bool = field(init=False, default=False)
    """Whether the output is the directory of that partition, without a log dir and its checkpoints."""
    staged: StagedDirectory | None = field(init=False, default=None)
    """The copy."""
    backup: Backup | NoBackup | None = field(init=False, default=None)
    """In place."""

    def __post_init__(self) -> None:
        if (self.output is not None) + self.is_in_place != 1 and not (
            self.dry_run and self.output is None and not self.is_in_place
        ):
            raise ValueError("exactly one of output=, in_place=True with backup=, and dry_run=True is required")
        if self.is_in_place and self.backup_path is None and not self.dry_run and self.keeps_old:
            raise ValueError("in_place=True needs backup=, a directory for the files that are replaced")
        if not self.is_in_place and (self.backup_path is not None or self.stage_in is not None):
            raise ValueError("backup= and stage_in= go with in_place=True")

    def enter(self, stack: contextlib.ExitStack, root: Path, partitions: Iterable[Path]) -> None:
        """Hold locks, and stage the output of these partitions; `stack` releases the locks, and publishes a copy.

        Raises UnsafePathError if somebody holds a lock, or the output or the backup lies in the log dir.
        """
        self.is_partition = is_partition_directory(root)
        self.log_dir = root.absolute().parent if self.is_partition else root
        if self.output is not None:
            self.is_lone = named_partition(self.output, is_one=self.is_partition) is not None
        if self.dry_run:
            return
        if self.output is not None:
            check_outside(self.output, [root], is_new=True)
            self.staged = stack.enter_context(staged_directory(self.output))
            return
        if self.backup_path is None:
            self.backup = NoBackup()
        else:
            check_outside(self.backup_path, [root], is_new=True)
            self.backup = Backup(self.backup_path)
        stack.enter_context(hold_locks([self.log_dir]))
        stack.enter_context(hold_partitions(partitions))
        # the name stands for any file of the log dir
        self.stage_in = staging_directory(self.log_dir / kf.RECOVERY_POINT_CHECKPOINT, self.stage_in)

    @property
    def n_backup_files(self) -> int:
        """Number of files in the backup."""
        return 0 if self.backup is None else self.backup.n_files

    def partition(self, directory: Path, names: Sequence[str]) -> PartitionOutput:
        """The output of a partition with these files."""
        if self.staged is not None:
            prefix = "" if self.is_lone else f"{directory.name}/"
            (self.staged.path / prefix).mkdir(exist_ok=True)
            return Copied(directory, self.staged, prefix, names)
        if self.backup is None or self.stage_in is None:
            return PartitionOutput()
        return (self.in_place or InPlaceOutput)(directory, self.backup, self.stage_in, names)

    def keep(self, name: str) -> bool:
        """Back up a file of the log dir; returns whether it exists."""
        assert self.backup is not None
        if not self.backup.keep_existing(self.log_dir / name, name):
            return False
        self.backup.sync()
        return True

    def copy_root_files(self, left_out: Collection[str]) -> None:
        """Copy the other files of the log dir, but for a broker's lock."""
        assert self.staged is not None
        for name in Listing(self.log_dir).files:
            if name != kf.LOCK_FILE and name not in left_out:
                copy_file(self.log_dir / name, self.staged, name)

    def unmark(self) -> bool:
        """In place, remove the clean-shutdown marker; returns whether the log dir has one, and the output needs one.

        A broker that starts before all is done then recovers the log dir.
        """
        path = self.log_dir / kf.CLEAN_SHUTDOWN_FILE
        if self.staged is not None:
            return not self.is_partition and path.exists()
        if self.backup is None or not self.keep(path.name):
            return False
        remove_file(path)
        sync_directory(self.log_dir)
        return True

    def mark(self) -> None:
        """Write a marker of a clean shutdown: in place after all else."""
        self.put(kf.CLEAN_SHUTDOWN_FILE, clean_shutdown_marker(self.log_dir))

    def put(self, name: str, data: bytes) -> None:
        """Write a file of the log dir, after a backup of the old one."""
        if self.staged is not None:
            with self.staged.create(name) as file:
                file.write(data)
        elif self.backup is not None:
            self.keep(name)
            options: dict[str, Any] = {"overwrite": True, "stage_in": self.stage_in, "like": self.log_dir}
            with staged_file(self.log_dir / name, **options) as file:
                file.write(data)


def clean_shutdown_marker(root: Path) -> bytes:
    """The content of the marker of a clean shutdown.

    Only its existence counts for recovery. From Kafka 3.7 on it also names the broker's epoch, by which the controller
    can tell that the replica lost nothing. A log that was recovered may have lost its end, and one that was truncated
    has, so the marker has no epoch.
    Source: CleanShutdownFileHandler, BrokerServer.startup, Kafka 4.3.
    """
    # a broker does not start with one that cannot be read, as preflight says
    return b"" if known_properties(root).get("version") == "0" else kf.CLEAN_SHUTDOWN_TEXT.encode()


class Copied(PartitionOutput):
    """Makes a copy of a partition with the changes.

    `prefix` is its place within `staged`, such as ``"orders-0/"``; files of `names` that do not change are copied.
    """

    def __init__(self, directory: Path, staged: StagedDirectory, prefix: str, names: Sequence[str]) -> None:
        self._directory, self._staged, self._prefix = directory, staged, prefix
        self._names, self._left = names, dict.fromkeys(names)
        self._replaced: set[str] = set()

    def create(self, name: str) -> OutputFile:
        """Create a file of the copy."""
        self._replace(name)
        return self._staged.create(self._prefix + name)

    def write(self, name: str, data: bytes) -> None:
        """Write a file of the copy."""
        with self.create(name) as file:
            file.write(data)

    def copy(self, source: Place, name: str, size: int | None = None) -> None:
        """Copy a file, or its first bytes, under a name."""
        self._replace(name)
        copy_file(source, self._staged, self._prefix + name, size=size)

    def remove(self, name: str) -> None:
        """Leave a file out."""
        self._left.pop(name, None)

    def take_back(self, name: str) -> None:
        """Leave out a file that was written; the one that it replaced is copied after all."""
        self._staged.remove(self._prefix + name)
        if name in self._replaced:
            self._left[name] = None

    def commit(self) -> None:
        """Copy the other files."""
        for name in self._left:
            copy_file(self._directory / name, self._staged, self._prefix + name)
        self._left.clear()

    def abandon(self) -> None:
        """Leave the partition out."""
        self._staged.remove(self._prefix or ".")

    def begin_again(self) -> None:
        """Be ready for other changes to the same files."""
        (self._staged.path / self._prefix).mkdir(exist_ok=True)
        self._left, self._replaced = dict.fromkeys(self._names), set()

    def _replace(self, name: str) -> None:
        if name in self._left:
            del self._left[name]
            self._replaced.add(name)


class InPlaceOutput(PartitionOutput):
    """Changes a partition in place, after its old files are in a subdirectory of the backup with its name.

    Nothing is staged until the first change. Order of the moves, each group durable before the next: `.log` files are
    removed, from the last to the first, so that no gap appears if a crash comes in between; other files are removed;
    indexes are put; `.log` files are put; snapshots and epochs are put; `.swap` files are removed. An index that is
    shorter than its `.log` is harmless, and a broker that recovers the partition in between comes to the same result.
    """

    _removes_last_first = True

    def __init__(self, directory: Path, backup: Backup | NoBackup, stage_in: StrPath, names: Sequence[str]) -> None:
        self._directory, self._backup, self._stage_in = directory, backup, stage_in
        self._names = frozenset(names)
        self._kept: set[str] = set()  # a later part changes the same files, of which the backup has the first
        self.begin_again()

    def begin_again(self) -> None:
        """Stage nothing yet."""
        # in order, each name once
        self._put: dict[str, None] = {}
        self._removed: dict[str, None] = {}
        self._groups: list[list[Move]] = []
        self._stack = contextlib.ExitStack()
        self._staged: StagedDirectory | None = None

    def create(self, name: str) -> OutputFile:
        """Stage a file."""
        self._put[name] = None
        return self._stage().create(name, self._like(name))

    def write(self, name: str, data: bytes) -> None:
        """Stage a file with this content."""
        with self.create(name) as file:
            file.write(data)

    def copy(self, source: Place, name: str, size: int | None = None) -> None:
        """Stage a copy of a file, or of its first bytes."""
        like = self._like(name)
        copy_file(source, self._stage(), name, size=size, like=like if like.name in self._names else local_path(source))
        self._put[name] = None

    def remove(self, name: str) -> None:
        """Plan a removal; a file that gets new content stays."""
        self._stage()
        # staged even if nothing is written: the moves are made when that context ends
        self._removed[name] = None

    def take_back(self, name: str) -> None:
        """Discard a staged file."""
        if name in self._put:
            self._stage().remove(name)
            del self._put[name]

    def _like(self, name: str) -> Path:
        """The file whose owner and mode a new one gets."""
        return self._directory / name

    def commit(self) -> None:
        """Back up what is to change, then move the staged files in. After an error the partition is as it was."""
        if self._staged is not None:
            self._removed = dict.fromkeys(name for name in self._removed if name not in self._put)
            self._groups += self._ordered()
        self._stack.close()

    def abandon(self) -> None:
        """Discard what is staged."""
        # the staged files are published unless their context ends with an error
        error = RuntimeError("abandoned")
        with contextlib.suppress(RuntimeError):
            self._stack.__exit__(RuntimeError, error, None)

    def _stage(self) -> StagedDirectory:
        if self._staged is None:
            additions = staged_additions(
                self._directory, self._groups, stage_in=self._stage_in, prepare=self._keep_old_files
            )
            self._staged = self._stack.enter_context(additions)
        return self._staged

    def _keep_old_files(self) -> None:
        names = dict.fromkeys([*self._removed, *self._put])
        if any(name.endswith(kf.LOG_SUFFIX) for name in names):
            # without it, batches that are cut could not be joined to the rest of the log
            names[kf.LEADER_EPOCH_CHECKPOINT] = None
        for name in [one for one in names if one not in self._kept]:
            self._backup.keep_existing(self._directory / name, f"{self._directory.name}/{name}")
        self._kept |= names.keys()
        # durable before the first change: a crash must not take both the old file and the new
        self._backup.sync()

    def _ordered(self) -> list[list[Move]]:
        # a `.swap` is removed last if its copy gets the final name: until that is in place, only it holds the records
        swaps = [one for one in self._removed if one.endswith(kf.SWAP_SUFFIX) and final_name(one) in self._put]
        logs = [one for one in self._removed if final_name(one).endswith(kf.LOG_SUFFIX) and one not in swaps]
        logs.sort(reverse=self._removes_last_first)
        others = [name for name in self._removed if name not in {*logs, *swaps}]
        indexes = [name for name in self._put if name.endswith(kf.INDEX_SUFFIXES)]
        new_logs = [name for name in self._put if name.endswith(kf.LOG_SUFFIX)]
        rest = [name for name in self._put if name not in {*indexes, *new_logs}]
        return [
            *([Move(name, "take")] for name in logs),
            [Move(name, "take") for name in others],
            [Move(name, "put") for name in indexes],
            [Move(name, "put") for name in new_logs],
            [Move(name, "put") for name in rest],
            [Move(name, "take") for name in swaps],
        ]


class InPlaceFromStart(InPlaceOutput):
    """Changes a partition that loses its start: its first `.log` file is removed first."""

    _removes_last_first = False


class Swapped(InPlaceOutput):
    """Replaces segments by others with the same records, as a broker's cleaner does.

    New files come as `.swap`, the `.log` first; then the old ones are removed, and the new ones get their names. From
    the first move on, a broker that starts, or `recover`, finishes this. It deletes all files between the first and the
    last `.swap`, so each new segment is a `commit_part` of its own. Source: LogLoader.load, Kafka 4.3.
    """

    def create(self, name: str) -> OutputFile:
        """Stage a file as `.swap`."""
        return super().create(name + kf.SWAP_SUFFIX)

    def take_back(self, name: str) -> None:
        """Discard a staged file."""
        super().take_back(name + kf.SWAP_SUFFIX)

    def commit_part(self) -> None:
        """Make the changes so far."""
        super().commit()
        self.begin_again()

    def _like(self, name: str) -> Path:
        """The segment that a new one replaces."""
        return self._directory / final_name(name)

    def _ordered(self) -> list[list[Move]]:
        new = sorted(self._put, key=lambda name: not name.endswith(kf.LOG_SUFFIX + kf.SWAP_SUFFIX))
        return [
            *([Move(name, "add")] for name in new),
            [Move(name, "take") for name in self._removed],
            [Move(name, "swap") for name in new],
        ]


class _NoFile(contextlib.AbstractContextManager["_NoFile"]):
    """A file of a dry run, of which only the size is known."""

    def __init__(self) -> None:
        self.n_bytes = 0

    def __exit__(self, *error: object) -> None:
        pass

    def write(self, data: Any) -> int:
        """Count the bytes."""
        size = memoryview(data).nbytes
        self.n_bytes += size
        return size

    def set_modified(self, milliseconds: int) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
