"""What a place of files can do: the abstract `Store`, and the entries that it lists.

Local disks, object stores, archives, memory and remote segments joined to local ones each have one. A store declares
what it can do, so that nobody has to ask which kind it is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from kafkalog.errors import Finding

if TYPE_CHECKING:
    from kafkalog.storage.source import Bytes, ByteSource


@dataclass(frozen=True, slots=True)
class Entry:
    """An object or a directory of a store, with the methods of `os.DirEntry` that are used."""

    name: str
    size: int = 0
    etag: str | None = None
    """Identifies the content; None if the store has no such tag."""
    modified_ns: int = 0
    is_directory: bool = False

    def is_dir(self) -> bool:
        """Whether it is a directory."""
        return self.is_directory

    def is_file(self) -> bool:
        """Whether it is an object."""
        return not self.is_directory

    def is_symlink(self) -> bool:
        """False: stores have no links."""
        return False

    # as in the result of `os.stat`
    st_dev = st_ino = 0
    st_size = property(lambda self: self.size)
    st_mtime_ns = property(lambda self: self.modified_ns)

    def stat(self) -> Any:
        """Size and time, by the names that `os.stat` has for them."""
        return self


class Store(ABC):
    """A place that holds objects by key. All errors are those of kafkalog."""

    is_live: ClassVar[bool] = False
    """Whether a broker may work on its files, and rename, replace and remove them while they are read."""
    is_in_memory: ClassVar[bool] = False
    """Whether it holds the bytes in memory, so that a pickle has them."""

    @abstractmethod
    def url_of(self, key: str) -> str:
        """The URL of a key, for messages: it has no credentials and no query."""

    @abstractmethod
    def list(self, directory: str) -> Sequence[Entry]:
        """What is in a directory; empty if there is no such directory."""

    @abstractmethod
    def status(self, key: str) -> Entry | None:
        """Size and entity tag of an object; None if there is none."""

    @abstractmethod
    def open(self, key: str, entry: Entry) -> ByteSource:
        """The bytes of an object that still is the one of the entry."""

    def range(self, key: str, start: int, stop: int, entry: Entry) -> Bytes:
        """Bytes `start` to `stop` of an object that still is the one of the entry."""
        with self.open(key, entry) as source:
            return source.window(start, stop)

    def is_tiered(self, key: str) -> bool:
        """Whether a file stands for one that a broker has moved to remote storage."""
        return False

    def findings_of(self, key: str) -> Sequence[Finding]:
        """What it has to tell about a directory."""
        return []
