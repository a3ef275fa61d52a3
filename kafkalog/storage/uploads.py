"""Objects that are written to a store: each appears whole when it is closed, or not at all."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Iterator
from typing import Any, Final

from kafkalog.errors import KafkalogError, OutputExistsError
from kafkalog.storage.location import Location, Place
from kafkalog.storage.staging import StagedDirectory

_PART_BYTES: Final = 2**23


class RemoteFile(io.RawIOBase):
    """An object that is being written: accepts bytes, counts them, and is in the store once it is closed.

    Without `overwrite`, `close` raises OutputExistsError if there is such an object by now. If it takes several
    requests to write this one, another process may still come between the check and the last of them.
    """

    _writer: Any = None

    def __init__(self, place: Location, *, overwrite: bool = False) -> None:
        self._place, self._overwrite = place, overwrite
        self._store: Any = place.store
        self._held = bytearray()
        self.n_bytes = 0

    def writable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """Bytes written so far."""
        return self.n_bytes

    def write(self, data: Any) -> int:
        """Take all of a buffer; returns its size in bytes."""
        view = memoryview(data).cast("B")
        self._held += view
        self.n_bytes += view.nbytes
        if len(self._held) >= _PART_BYTES:
            self._send()
        return view.nbytes

    def _send(self) -> None:
        if self._writer is None:
            self._writer = self._store.writer(self._place.key)
        self._writer.write(bytes(self._held))
        self._held.clear()

    def close(self) -> None:
        """Write the object."""
        if self.closed:
            return
        try:
            if self._writer is None:
                self._store.put(self._place.key, bytes(self._held), overwrite=self._overwrite)
            else:
                self._send()
                if not self._overwrite:
                    check_new(self._place)
                self._writer.close()
        finally:
            self.discard()

    def discard(self) -> None:
        """Close the file, and write no object."""
        # an upload that is not finished leaves none
        self._writer, self._held = None, bytearray()
        super().close()

    def __del__(self) -> None:
        self.discard()


class RemoteDirectory:
    """A directory of a store in which files are written, with the methods of `StagedDirectory` that exports need.

    A pickle of it has no files yet.
    """

    max_open_files: Final = 16

    def __init__(self, target: Location) -> None:
        self.target = target
        self._created: dict[str, RemoteFile] = {}
        self._names: set[str] = set()

    def __reduce__(self) -> tuple[Any, ...]:
        return RemoteDirectory, (self.target,)

    def create(self, name: str) -> RemoteFile:
        """Create a file, to be closed by the caller."""
        self._names.add(name)
        self._created[name] = file = RemoteFile(self.target / name)
        return file

    def adopt(self, names: Iterable[str]) -> None:
        """Take over files that other processes wrote here."""
        self._names.update(names)

    def keep(self) -> None:
        """Let the files stay when the directory is discarded."""
        self._names = set()

    def discard(self) -> None:
        """Delete the files. What cannot be deleted now stays."""
        store: Any = self.target.store
        for file in self._created.values():
            file.discard()
        for name in self._names:
            with contextlib.suppress(KafkalogError):
                store.delete((self.target / name).key)
        self._created, self._names = {}, set()


def files_in(place: Place) -> StagedDirectory | RemoteDirectory:
    """A directory in which new files appear under their names as soon as they are closed."""
    return RemoteDirectory(place) if isinstance(place, Location) else StagedDirectory(place, place)


def check_new(place: Location) -> None:
    """Raise `OutputExistsError` if there is something at a location; all who write there can `overwrite`."""
    if place.fresh().exists():
        raise OutputExistsError.at(place, is_replaceable=True)


@contextlib.contextmanager
def remote_file(place: Location, *, overwrite: bool = False) -> Iterator[RemoteFile]:
    """An object that appears when the block ends without an exception, and not before."""
    if not overwrite:
        check_new(place)
    file = RemoteFile(place, overwrite=overwrite)
    try:
        yield file
        file.close()
    finally:
        file.discard()
