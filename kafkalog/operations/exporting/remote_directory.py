"""Exports into a directory of an object store.

`MANIFEST` in the directory names the files that count, and says up to which offset each partition was exported. The
files of an export have new names. They are written first, and the manifest last: only if there is none yet, or if it
still is the one that the export began with. An export that fails deletes its files; one that is killed leaves files
that no manifest names.
"""

from __future__ import annotations

import contextlib
import json
import secrets
from typing import Any

from kafkalog.errors import KafkalogError, OutputExistsError, Reason, WriteError
from kafkalog.operations.exporting.directory import MANIFEST, read_manifest
from kafkalog.operations.exporting.resuming import Resumption
from kafkalog.storage.location import Location
from kafkalog.storage.uploads import RemoteDirectory


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
            raise OutputExistsError.at(target)
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

    def commit(self, staged: RemoteDirectory) -> None:
        """Write the manifest, with the new files."""
        new = self.new or {"version": 1, "n_runs": 1, "partitions": {}}
        sizes = {name: file.n_bytes for name, file in staged.files.items()}
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
        staged.files = {}
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
