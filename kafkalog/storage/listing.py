"""A directory by one listing of it: names, kinds, sizes and times of its entries, local or in a store."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, Self

from kafkalog.errors import ReadError
from kafkalog.storage.location import Place, kind_of, list_directory, stat_of
from kafkalog.text import first_names, near

_NAME: Final = attrgetter("name")
_MOST_NAMED: Final = 5


class Listing:
    """What a directory holds, as one listing has it; raises ReadError if it cannot be listed.

    Attributes
    ----------
    path : Place
    entries : dict of str to os.DirEntry
        By name, in the order of the names.
    names : list of str
        Of all entries, sorted.
    """

    def __init__(self, path: Place, entries: Sequence[os.DirEntry[str]] | None = None) -> None:
        self.path = path
        listed = sorted(list_directory(path) if entries is None else entries, key=_NAME)
        self.names = list(map(_NAME, listed))
        self.entries = dict(zip(self.names, listed, strict=True))

    @classmethod
    def or_empty(cls, path: Place) -> Self:
        """The listing of a directory; an empty one if it cannot be listed, or is gone."""
        try:
            return cls(path)
        except ReadError:
            return cls(path, [])

    @cached_property
    def files(self) -> list[str]:
        """Names of the files, and of links to files, sorted."""
        return [name for name, entry in self.entries.items() if is_file(entry)]

    @cached_property
    def directories(self) -> list[str]:
        """Names of the directories, and of links to directories, sorted."""
        return [name for name, entry in self.entries.items() if is_directory(entry)]

    def status(self, name: str) -> Any:
        """Size and times of an entry, as `os.stat` has them; raises OSError if it is gone."""
        return self.entries[name].stat()


def nearest(path: Place) -> str:
    """The end of a message about a path that does not exist: the entry that may be meant, or what is there instead."""
    if isinstance(path, Path) and path.is_symlink():
        return f"; it is a link to {os.readlink(path)}, which does not exist"
    where, missing = path.parent, path.name
    while isinstance(where, Path) and kind_of(where) is None and where != where.parent:
        where, missing = where.parent, where.name
    names = [name for name in Listing.or_empty(where).names if not name.startswith(".")]
    here = "the current directory" if str(where) in ("", ".") else str(where)
    gone = f"; {here} has no {missing!r}" if missing != path.name else ""
    if meant := near(missing, names):
        return f"{gone}; did you mean {where / meant}?"
    if not names:
        return gone
    return f"{f'{gone}, but' if gone else f'; {here} has'} {first_names(names, _MOST_NAMED)}"


def is_directory(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a directory, or a link to one."""
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link that leads in a circle


def broken_link(entry: os.DirEntry[str]) -> str:
    """Why an entry that is a link leads nowhere; "" if it does not."""
    try:
        entry.stat()
    except OSError as error:
        if error.errno == errno.ELOOP:
            return "a link that leads in a circle"
        if error.errno == errno.ENOENT:
            return f"a link to {os.readlink(entry.path)}, which is not there: mount its disk, or name where that is now"
    return ""


def is_file(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a regular file, or a link to one."""
    try:
        return entry.is_file()
    except OSError:
        return False


def files_below(directory: Place, prefix: str = "") -> Iterator[str]:
    """Yield the paths of the files in a directory and in those below it, relative to it, sorted by their parts."""
    listing = Listing(directory)
    for name, entry in listing.entries.items():
        if is_directory(entry):
            if not entry.is_symlink():
                yield from files_below(directory / name, f"{prefix}{name}/")
        elif is_file(entry):
            yield f"{prefix}{name}"


def newest_change(directory: Place) -> float:
    """The latest modification time (s) of a directory, and of all that is in it; raises OSError if a file vanishes."""
    newest: float = stat_of(directory).st_mtime
    for name, entry in Listing(directory).entries.items():
        is_plain = is_directory(entry) and not entry.is_symlink()
        newest = max(newest, newest_change(directory / name) if is_plain else entry.stat().st_mtime)
    return newest
