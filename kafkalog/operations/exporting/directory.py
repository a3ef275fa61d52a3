"""Exports into a directory that earlier exports made, or into one of an object store.

`MANIFEST` in the directory says up to which offset each partition was exported. Next to a local directory, and hidden,
is a work directory: an export stages its files there, makes them durable, and then writes an intent, which lists the
files and holds the new manifest. From then on the export counts as done: its files are renamed into the directory, and
the manifest last. If it is killed before the intent is durable, the directory is unchanged. If it is killed later, some
of the new files are in place, and the next export moves the others before it does anything else.

In a store, the manifest also names the files that count. The files of an export have new names. They are written first,
and the manifest last: only if there is none yet, or if it still is the one that the export began with. An export that
fails deletes its files; one that is killed leaves files that no manifest names.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kafkalog.errors import KafkalogError, OutputExistsError, Reason, UnsafePathError, WriteError
from kafkalog.operations.exporting.resuming import Resumption, manifest_of
from kafkalog.storage.atomic import StrPath, fsync_directory, remove_tree, rename_new, resolve, writing
from kafkalog.storage.file_locks import require_locks, try_lock
from kafkalog.storage.files import read_file, read_if_there
from kafkalog.storage.listing import files_below
from kafkalog.storage.location import Location, Place
from kafkalog.storage.output_paths import is_occupied
from kafkalog.storage.own_names import EXPORT_SUFFIX, INTENT_NAME
from kafkalog.storage.staging import StagedDirectory, staged_file
from kafkalog.storage.uploads import RemoteDirectory

MANIFEST: Final = "_kafkalog_export.json"
"""The manifest of an export with `resume`; other tools skip names with a leading `_`."""
_STAGED: Final = "new"
_MAX_MANIFEST_BYTES: Final = 2**28


class ResumedDirectory(Resumption):
    """A run that adds to a directory of files, or makes it; it holds the lock of the directory until `close`.

    Raises OutputExistsError for files without a manifest, UnsafePathError if another process is exporting into it, and
    SidecarError for a manifest that cannot be read.
    """

    def __init__(self, target: StrPath) -> None:
        require_locks()
        self.target = resolve(target)
        self._work = self.target.parent / f".{self.target.name}{EXPORT_SUFFIX}"
        with writing(self._work):
            self._work.mkdir(exist_ok=True)
            fsync_directory(self._work.parent)
            self._lock = os.open(self._work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if not try_lock(self._lock):
                raise UnsafePathError(Reason.UNSAFE_PATH, "another process exports into it", path=self.target)
            self._finish()
            # without an intent they belong to no run
            remove_tree(self._work / _STAGED)
            manifest = _read(self.target / MANIFEST)
            if manifest is None and is_occupied(self.target):
                detail = f"not from an export with resume: it has no {MANIFEST}. Use resume with a new directory first"
                raise OutputExistsError(Reason.OUTPUT_EXISTS, detail, path=self.target)
        except BaseException:
            self.close()
            raise
        super().__init__(str(self.target), manifest)
        self.run_name = f"part-{self.n_run}"

    def close(self) -> None:
        """Give the lock back."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def __del__(self) -> None:
        if hasattr(self, "_lock"):
            self.close()

    def stage(self) -> StagedDirectory:
        """Return a directory for the new files."""
        path = self._work / _STAGED
        with writing(self.target):
            path.mkdir()
        return StagedDirectory(path, self.target)

    def commit(self, staged: StagedDirectory, sizes: Mapping[str, int]) -> None:
        """Make the new files durable, and move them into the directory."""
        staged.close()
        # the files are durable before the intent that names them, and so is the name of their directory
        with writing(self._work):
            fsync_directory(self._work)
        files = sorted(files_below(staged.path))
        with staged_file(self._work / INTENT_NAME) as file:
            file.write(json.dumps({"files": files, "manifest": self.new}).encode())
        self._finish()

    def _finish(self) -> None:
        """Do what the intent says, if there is one; it may have been begun before."""
        intent = _read(self._work / INTENT_NAME)
        if intent is None:
            return
        staged = self._work / _STAGED
        targets = [self.target / name for name in intent["files"]]
        inner = {one for target in targets for one in target.parents if self.target in one.parents}
        directories = [self.target.parent, self.target, *sorted(inner)]
        with writing(self.target):
            for directory in directories[1:]:
                directory.mkdir(exist_ok=True)
            # before the first file: one that is moved into a directory that a power loss removes would be gone
            for directory in directories:
                fsync_directory(directory)
        for target in targets:
            source = staged / target.relative_to(self.target)
            with writing(target):
                # moved already, if an earlier run was killed in the middle
                if os.path.lexists(source):
                    rename_new(source, target)
                elif not os.path.lexists(target):
                    detail = "the last export was interrupted, and this file of it is gone: export into a new directory"
                    raise WriteError(Reason.WRITE_FAILED, detail, path=target)
        with writing(self.target):
            for directory in directories:
                fsync_directory(directory)
        # after the files: a reader of the manifest finds all that it counts
        with staged_file(self.target / MANIFEST, overwrite=True) as file:
            file.write((json.dumps(intent["manifest"], indent=1) + "\n").encode())
        with writing(self._work):
            # last: until the manifest is durable, the intent is what counts
            os.unlink(self._work / INTENT_NAME)
            fsync_directory(self._work)
        remove_tree(staged)


def read_manifest(path: Place) -> dict[str, Any]:
    """The JSON object that an export left in a file; see `manifest_of`."""
    return manifest_of(bytes(read_file(path, max_bytes=_MAX_MANIFEST_BYTES)), path)


def _read(path: Path) -> dict[str, Any] | None:
    """The same; None if there is no file."""
    data = read_if_there(path, max_bytes=_MAX_MANIFEST_BYTES)
    return None if data is None else manifest_of(data, path)


class RemoteExport(Resumption):
    """A run that writes files into a directory of a store, and then its manifest.

    `is_resumed` adds to what earlier runs wrote, `overwrite` replaces it. Without both, the directory must not exist.
    Raises OutputExistsError for files without a manifest, and SidecarError for one that cannot be read.
    """

    def __init__(self, target: Location, *, is_resumed: bool, overwrite: bool = False) -> None:
        self.target = target.fresh()
        place = self.target / MANIFEST
        names = self.target.entries()
        self._before = names.get(MANIFEST)
        manifest = None if self._before is None else read_manifest(place)
        if names and not (is_resumed or overwrite):
            raise OutputExistsError.at(target, is_replaceable=True)
        if names and (manifest is None or (is_resumed and "settings" not in manifest)):
            detail = f"no such export made it: its {MANIFEST} is absent, or of another kind of export"
            raise OutputExistsError(Reason.OUTPUT_EXISTS, f"{detail}. Name a new directory", path=target)
        self._replaced = manifest.get("files", {}) if manifest is not None and overwrite else {}
        super().__init__(str(target), manifest if is_resumed else None)
        self._identity = secrets.token_hex(4)
        self.run_name = f"part-{self.n_run}-{self._identity}"

    def close(self) -> None:
        """Nothing is held."""

    def stage(self) -> RemoteDirectory:
        """Return the directory, for the new files."""
        return RemoteDirectory(self.target)

    def commit(self, staged: RemoteDirectory, sizes: Mapping[str, int]) -> None:
        """Write the manifest, with the new files."""
        new = self.new or {"version": 1, "n_runs": 1, "partitions": {}}
        manifest = {**new, "run": self._identity, "files": {**self.old.get("files", {}), **sizes}}
        place, store = self.target / MANIFEST, self._store
        try:
            store.put(place.key, (json.dumps(manifest, indent=1) + "\n").encode(), self._before)
        except (OutputExistsError, WriteError) as error:
            # the library asks again after a lost answer, and is refused then
            if not self._is_written():
                is_late = isinstance(error, OutputExistsError)
                why = "another export into this directory ended meanwhile; run it again" if is_late else error.detail
                raise WriteError(Reason.WRITE_FAILED, f"nothing was exported: {why}", path=place) from None
        staged.keep()
        for name in self._replaced:
            with contextlib.suppress(KafkalogError):
                store.delete((self.target / name).key)

    @property
    def _store(self) -> Any:
        return self.target.store

    def _is_written(self) -> bool:
        try:
            return bool(read_manifest(self.target.fresh() / MANIFEST).get("run") == self._identity)
        except KafkalogError:
            return False
