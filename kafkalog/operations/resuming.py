"""Exports into a directory that earlier exports made: each adds only what is new in the log, exactly once.

`MANIFEST` in the directory says up to which offset each partition was exported. Beside the directory, and hidden, is a
work directory: an export stages its files there, makes them durable, and then writes an intent, which lists the files
and holds the new manifest. From then on the export counts as done: its files are renamed into the directory, and the
manifest last. If it is killed before the intent is durable, the directory is unchanged. If it is killed later, some of
the new files are in place, and the next export moves the others before it does anything else.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kafkalog import format as kf
from kafkalog.errors import FileChangedError, Finding, OutputExistsError, Reason, SidecarError, UnsafePathError
from kafkalog.log.partition import Partition
from kafkalog.scanning.scan import Scan
from kafkalog.storage.atomic import StrPath, fsync_directory, remove_tree, rename_new, resolve, writing
from kafkalog.storage.file_locks import require_locks, try_lock
from kafkalog.storage.source import read_file
from kafkalog.storage.staging import StagedDirectory, staged_file

MANIFEST: Final = "_kafkalog_export.json"
_INTENT: Final = "commit.json"
_STAGED: Final = "new"
_MAX_MANIFEST_BYTES: Final = 2**28
_NOT_RESULT: Final = frozenset({"batch_size", "limits", "memory_map", "on_corruption", "threads", "window_bytes"})
_NOT_RESUMED: Final = ("start_offset", "end_offset", "limit", "where", "extract")


def check_options(options: Mapping[str, Any]) -> None:
    """Raise ValueError for an option of the scan that an export which is continued cannot have."""
    given = [name for name in _NOT_RESUMED if options.get(name) is not None]
    if given:
        raise ValueError(f"resume takes what is new in each partition: {given[0]} cannot be given with it")


class ResumedExport:
    """One run that continues an export; it holds the lock of the destination until `close`.

    Parameters
    ----------
    target : path-like
        The directory. It is made if it does not exist.

    Attributes
    ----------
    n_run : int
        How many runs there were before; part of the names of files, so that none is used twice.
    findings : list of Finding
        Offsets that the log deleted before they were exported.

    Raises
    ------
    OutputExistsError
        The directory has files, and no manifest.
    UnsafePathError
        Another process is exporting into it.
    SidecarError
        The manifest cannot be read.
    """

    def __init__(self, target: StrPath) -> None:
        require_locks()
        self.target = resolve(target)
        self._work = self.target.parent / f".{self.target.name}.kafkalog-export"
        self.findings: list[Finding] = []
        with writing(self._work):
            self._work.mkdir(exist_ok=True)
            self._lock = os.open(self._work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not try_lock(self._lock):
                raise UnsafePathError(Reason.UNSAFE_PATH, "another process exports into it", path=self.target)
            self._finish()
            remove_tree(self._work / _STAGED)
            manifest = _read(self.target / MANIFEST)
            if manifest is None and self.target.exists() and (not self.target.is_dir() or os.listdir(self.target)):
                detail = f"it exists, and no export with resume made it: it has no {MANIFEST}"
                raise OutputExistsError(Reason.OUTPUT_EXISTS, detail, path=self.target)
        except BaseException:
            self.close()
            raise
        self._old: dict[str, Any] = manifest or {"version": 1, "n_runs": 0, "partitions": {}}
        self._new: dict[str, Any] = {}
        self.n_run = int(self._old["n_runs"])

    def close(self) -> None:
        """Give the lock back."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __del__(self) -> None:
        if hasattr(self, "_lock"):
            self.close()

    def begin(self, scan: Scan, options: Mapping[str, Any], output: Mapping[str, Any]) -> dict[str, Any]:
        """Compare the options with those of the earlier runs, and return the ranges of offsets to scan.

        Parameters
        ----------
        scan : Scan
            A scan of everything.
        options : mapping
            The options of the scan, as they were given.
        output : mapping
            What decides how the files look.

        Returns
        -------
        dict
            The options `start_offset` and `end_offset` of a scan.

        Raises
        ------
        ValueError
            Earlier runs had other options.
        FileChangedError
            A log ends before what was exported of it, or its topic is another one.
        """
        kept = {name: repr(value) for name, value in options.items() if name not in _NOT_RESULT and value is not None}
        settings = {"schema": str(scan.schema), **output, **kept}
        before = self._old.get("settings", settings)
        for name in sorted({*settings, *before}):
            if settings.get(name) != before.get(name):
                was, now = before.get(name), settings.get(name)
                raise ValueError(f"{name} is {now}, and was {was} in the exports that resume continues")
        starts: dict[kf.TopicPartition, int] = {}
        ends: dict[kf.TopicPartition, int] = {}
        done: dict[str, Any] = {**self._old["partitions"]}
        is_committed = options.get("isolation_level") == "read_committed"
        for key, partition in scan.partitions():
            if key is None:
                raise ValueError(f"resume needs directories that are named after a partition, not {partition.path}")
            end = partition.last_stable_offset if is_committed else partition.log_end_offset
            starts[key] = self._start(partition, done.get(str(key)), end)
            ends[key] = end
            done[str(key)] = {"next_offset": end, "topic_id": partition.topic_id}
        self._new = {"version": 1, "n_runs": self.n_run + 1, "settings": settings, "partitions": done}
        return {"start_offset": starts, "end_offset": ends}

    def _start(self, partition: Partition, done: dict[str, Any] | None, end: int) -> int:
        if done is None:
            return partition.log_start_offset
        start, known = int(done["next_offset"]), done.get("topic_id")
        where: dict[str, Any] = {"path": str(partition.path), "base_offset": start}
        if known and partition.topic_id and known != partition.topic_id:
            detail = f"its topic was made anew since it was exported: its id is {partition.topic_id}, and was {known}"
            raise FileChangedError(Reason.FILE_CHANGED, detail, **where)
        if end < start:
            detail = f"the log ends at {end}, and was exported up to {start}: it was truncated, or is another log"
            raise FileChangedError(Reason.FILE_CHANGED, detail, **where)
        first = partition.log_start_offset
        if first > start:
            detail = f"offsets {start} to {first - 1} were deleted from the log before they were exported"
            self.findings.append(
                Finding(
                    Reason.OFFSET_GAP,
                    detail,
                    path=str(partition.path),
                    base_offset=start,
                    last_offset=first - 1,
                    damage=False,
                    n_records=first - start,
                    certainty="at_most",
                )
            )
        return max(start, first)

    def stage(self) -> StagedDirectory:
        """Return a directory for the new files."""
        path = self._work / _STAGED
        with writing(self.target):
            path.mkdir()
        return StagedDirectory(path, self.target)

    def commit(self, staged: StagedDirectory) -> None:
        """Make the new files durable, and move them into the directory."""
        staged.close()
        files = sorted(str(path.relative_to(staged.path)) for path in staged.path.rglob("*") if path.is_file())
        with staged_file(self._work / _INTENT) as file:
            file.write(json.dumps({"files": files, "manifest": self._new}).encode())
        self._finish()

    def _finish(self) -> None:
        """Do what the intent says, if there is one; it may have been begun before."""
        intent = _read(self._work / _INTENT)
        if intent is None:
            return
        staged = self._work / _STAGED
        with writing(self.target):
            self.target.mkdir(exist_ok=True)
        directories = {self.target, self.target.parent}
        for name in intent["files"]:
            source, target = staged / name, self.target / name
            with writing(target):
                target.parent.mkdir(parents=True, exist_ok=True)
                if source.exists():
                    rename_new(source, target)
            directories.update(one for one in target.parents if self.target in one.parents)
        with writing(self.target):
            for directory in directories:
                fsync_directory(directory)
        with staged_file(self.target / MANIFEST, overwrite=True) as file:
            file.write((json.dumps(intent["manifest"], indent=1) + "\n").encode())
        with writing(self._work):
            os.unlink(self._work / _INTENT)
            fsync_directory(self._work)
        remove_tree(staged)


def _read(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file; None if there is no file."""
    if not path.exists():
        return None
    try:
        found = json.loads(bytes(read_file(path, max_bytes=_MAX_MANIFEST_BYTES)))
        if not isinstance(found, dict) or not ({"partitions", "n_runs"} <= found.keys() or "manifest" in found):
            raise ValueError("it is no object of an export")
    except ValueError as error:
        raise SidecarError(Reason.CHECKPOINT_SYNTAX, f"it is no manifest of an export: {error}", path=path) from error
    return found
