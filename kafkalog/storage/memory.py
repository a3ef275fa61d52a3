"""Bytes in memory as a store of one file, which has no other files next to it."""

from __future__ import annotations

from typing import Any, Final

from kafkalog.storage.location import Location
from kafkalog.storage.source import BufferSource
from kafkalog.storage.store import Entry, Store


class MemoryStore(Store):
    """A store of one file; `name` is what errors call it. The data is not copied."""

    is_in_memory = True

    def __init__(self, data: Any, name: str) -> None:
        with BufferSource(data) as source:
            self._bytes, self._name = source.window(0, source.size), name
        self.location = Location(self, _KEY)

    def url_of(self, key: str) -> str:
        """The name of the file."""
        return self._name if key == _KEY else key

    def list(self, directory: str) -> list[Entry]:
        """Nothing: the file is in no directory."""
        return []

    def status(self, key: str) -> Entry | None:
        """The size of the file; None for others."""
        return Entry(key, self._bytes.size) if key == _KEY else None

    def open(self, key: str, entry: Entry) -> BufferSource:
        """The bytes."""
        return BufferSource(self._bytes, path=self._name)


_KEY: Final = "buffer"
