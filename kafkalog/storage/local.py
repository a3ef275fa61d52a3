"""The local disk as a store."""

from __future__ import annotations

import os
import stat
from typing import Final

from kafkalog.errors import ReadError
from kafkalog.storage.source import FileSource
from kafkalog.storage.store import Entry, Store


class LocalStore(Store):
    """The local disk; keys are absolute paths without their first slash."""

    is_live = True

    def __repr__(self) -> str:
        return "LocalStore()"

    def url_of(self, key: str) -> str:
        """See `Store.url_of`: the path."""
        return f"/{key}"

    def list(self, directory: str) -> list[Entry]:
        """See `Store.list`."""
        path = self.url_of(directory)
        try:
            with os.scandir(path) as entries:
                return [_entry_of(entry.name, entry.stat()) for entry in entries]
        except (FileNotFoundError, NotADirectoryError):
            return []
        except OSError as error:
            raise ReadError.of(error, path) from error

    def status(self, key: str) -> Entry | None:
        """See `Store.status`."""
        path = self.url_of(key)
        try:
            return _entry_of(os.path.basename(path), os.stat(path))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise ReadError.of(error, path) from error

    def open(self, key: str, entry: Entry) -> FileSource:
        """See `Store.open`."""
        return FileSource(self.url_of(key))


def _entry_of(name: str, status: os.stat_result) -> Entry:
    is_directory = stat.S_ISDIR(status.st_mode)
    return Entry(name, 0 if is_directory else status.st_size, None, status.st_mtime_ns, is_directory)


LOCAL: Final = LocalStore()
