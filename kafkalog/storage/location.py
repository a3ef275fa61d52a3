"""Places of files that are not local: a `Location` is a path in a `Store`, with the reading half of `pathlib.Path`.

Local files keep `pathlib.Path`. The functions here take either. A directory is listed once: files opened from it get
names, sizes and entity tags from that listing.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, cast

from kafkalog.errors import Finding, ReadError, Reason, UnsafePathError


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


class Store(Protocol):
    """A place that holds objects by key. All errors are those of kafkalog."""

    def url_of(self, key: str) -> str:
        """The URL of a key, for messages: it has no credentials and no query."""

    def list(self, directory: str) -> list[Entry]:
        """What is in a directory; empty if there is no such directory."""

    def status(self, key: str) -> Entry | None:
        """Size and entity tag of an object; None if there is none."""

    def get(self, key: str, start: int, stop: int, entry: Entry) -> Any:
        """Bytes of an object that still is the one of the entry; a buffer."""

    def open(self, key: str, entry: Entry) -> Any:
        """The bytes of an object: a `ByteSource`."""


class Location(os.PathLike[str]):
    """A path in a store, with the reading half of `pathlib.Path`.

    `str` gives its URL, without credentials and query. `kafkalog.location` makes one.

    Attributes
    ----------
    store : Store
    key : str
        Without slashes at the ends.
    """

    def __init__(self, store: Store, key: str, parent: Location | None = None) -> None:
        self.store, self.key, self._parent = store, key.strip("/"), parent
        self._children: dict[str, Location] = {}
        self._listing: dict[str, Entry] | None = None
        self._entry: Entry | None = None
        self._is_known = False

    def __reduce__(self) -> tuple[Any, ...]:
        return Location, (self.store, self.key), {"_entry": self._entry, "_is_known": self._is_known}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)

    def __fspath__(self) -> str:
        return self.store.url_of(self.key)

    __str__ = __fspath__

    def __repr__(self) -> str:
        return f"Location({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Location) and str(self) == str(other)

    def __hash__(self) -> int:
        return hash(str(self))

    def __lt__(self, other: Any) -> bool:
        return str(self) < str(other)

    def __truediv__(self, name: str | os.PathLike[str]) -> Location:
        place = self
        for part in filter(None, os.fspath(name).split("/")):
            child = place._children.get(part)
            if child is None:
                child = place._children[part] = Location(place.store, f"{place.key}/{part}", place)
            place = child
        return place

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.key.rpartition("/")[2]

    @property
    def suffix(self) -> str:
        """See `pathlib.PurePath.suffix`."""
        return os.path.splitext(self.name)[1]

    @property
    def stem(self) -> str:
        """See `pathlib.PurePath.stem`."""
        return os.path.splitext(self.name)[0]

    @property
    def parent(self) -> Location:
        """The directory that it is in."""
        if self._parent is None and self.key:
            self._parent = Location(self.store, self.key.rpartition("/")[0])
            self._parent._children[self.name] = self
        return self._parent or self

    def with_name(self, name: str) -> Location:
        """Another file of the same directory."""
        return self.parent / name

    def with_suffix(self, suffix: str) -> Location:
        """See `pathlib.PurePath.with_suffix`."""
        return self.parent / f"{self.stem}{suffix}"

    def absolute(self) -> Location:
        """Returns self: locations are absolute."""
        return self

    def is_absolute(self) -> bool:
        """True."""
        return True

    def fresh(self) -> Location:
        """The same location, with nothing known of its files."""
        return Location(self.store, self.key)

    def entries(self) -> dict[str, Entry]:
        """What is in the directory, by name. It is listed once, and empty if it does not exist."""
        if self._listing is None:
            self._listing = {entry.name: entry for entry in self.store.list(self.key)}
        return self._listing

    def status(self) -> Entry | None:
        """The entry of an object, from the listing of its directory if there is one; None if it does not exist."""
        if not self._is_known:
            listing = None if self._parent is None else self._parent._listing
            self._entry = self.store.status(self.key) if listing is None else listing.get(self.name)
            self._is_known = True
        return self._entry

    def remember(self, entry: Entry) -> None:
        """Expect the object that an earlier listing had."""
        self._entry, self._is_known = entry, True

    def exists(self) -> bool:
        """Whether there is an object or a directory."""
        return self.is_file() or self.is_dir()

    def is_file(self) -> bool:
        """Whether there is an object."""
        entry = self._listed()
        if entry is None and self._listing:
            return False
        entry = entry or self.status()
        return entry is not None and not entry.is_directory

    def is_dir(self) -> bool:
        """Whether something lies below it."""
        entry = self._listed()
        if entry is None and self._parent is not None and self._parent._listing is not None:
            return False
        if entry is None and self.suffix in _OF_FILES:
            entry = self.status()
        return entry.is_directory if entry is not None else bool(self.entries())

    def _listed(self) -> Entry | None:
        return None if self._parent is None or self._parent._listing is None else self._parent._listing.get(self.name)

    def is_symlink(self) -> bool:
        """False: stores have no links."""
        return False

    @property
    def is_tiered(self) -> bool:
        """Whether it stands for a file that a broker has moved to remote storage."""
        is_tiered: Any = getattr(self.store, "is_tiered", None)
        return is_tiered is not None and bool(is_tiered(self.key))

    @property
    def is_in_memory(self) -> bool:
        """Whether the store holds its bytes in memory, so that a pickle has them."""
        return bool(getattr(self.store, "is_in_memory", False))

    def findings(self) -> list[Finding]:
        """What the store has to tell about the directory."""
        findings_of: Any = getattr(self.store, "findings_of", None)
        return [] if findings_of is None else list(findings_of(self.key))

    def glob(self, pattern: str) -> Iterator[Location]:
        """What is in the directory and matches a pattern without slashes, except for one at the end."""
        return (self / name for name in sorted(self.entries()) if fnmatch.fnmatchcase(name, pattern.rstrip("/")))

    def open(self) -> Any:
        """The bytes of the object: a `ByteSource`.

        Raises
        ------
        ReadError
            It does not exist, or the store does not give it.
        """
        entry = self.status()
        if entry is None or entry.is_directory:
            raise ReadError(Reason.FILE_UNREADABLE, "no such object", path=self)
        return self.store.open(self.key, entry)


# names distinguish files from directories, which take a listing
_OF_FILES: Final = {
    *(".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint", ".properties"),
    *(".gz", ".tgz", ".zst", ".bz2", ".xz", ".lz4", ".tar", ".zip"),
}

AnyPath = str | os.PathLike[str]


def is_url(path: object) -> bool:
    """Whether a path is a URL, or a location that one led to."""
    return isinstance(path, Location) or (isinstance(path, str) and _URL.match(path) is not None)


_SECRETS: Final = re.compile(
    r"(?<=://)[^/\s@\"']*@|(?<=[\w/])\?[^\s\"')>]+|(?i:(signature|token|secret|key)=)[^\s&\"')>]*"
)
_URL: Final = re.compile(r"[A-Za-z][\w+.-]*(://|::.*://|:.*!/)")


def as_path(path: AnyPath) -> Path:
    """The path as an object: a `Location` as it is, which has what is used of `pathlib.Path`."""
    return cast(Path, path) if isinstance(path, Location) else Path(path)


def plain(path: AnyPath) -> str:
    """The path as text, for what is pickled; a `Location` as it is, since its text does not lead back to its store."""
    return cast(str, path) if isinstance(path, Location) else os.fspath(path)


def refuse_url(path: object) -> None:
    """Raise `UnsafePathError` for a URL, or what was opened from one, where only local files will do."""
    for one in path if isinstance(path, (list, tuple)) else [path]:
        place = getattr(one, "paths", [getattr(one, "path", one)])[0]
        if is_url(place):
            detail = "this works on local files, not on a URL: copy it to a local directory first"
            raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=clean(str(place)))


def is_public_option(name: str) -> bool:
    """Whether a storage option is no secret: pickles and Spark's plans have no others."""
    return _PUBLIC.fullmatch(name.lower()) is not None


_PUBLIC: Final = re.compile(
    r"(aws_|azure_|google_|azure_storage_)?(endpoint(_url)?|(default_)?region(_name)?|allow_http|skip_signature|anon"
    r"|virtual_hosted_style_request|request_payer|profile|account_name|bucket|project|timeout|max_retries|protocol)"
)


def clean(text: str) -> str:
    """A text without user info and queries of URLs, which may be credentials."""
    return _SECRETS.sub("", text)


def parent_of(path: Path) -> Path:
    """The directory that a directory is in: relative if its own path is."""
    return path.parent if path.name not in ("", "..") else path.absolute().parent


def exists(path: AnyPath) -> bool:
    """See `os.path.exists`."""
    return path.exists() if isinstance(path, Location) else os.path.exists(path)


def is_file(path: AnyPath) -> bool:
    """See `os.path.isfile`."""
    return path.is_file() if isinstance(path, Location) else os.path.isfile(path)


def real_path(path: AnyPath) -> AnyPath:
    """See `os.path.realpath`."""
    return path if isinstance(path, Location) else os.path.realpath(path)


def stat_of(path: AnyPath) -> Any:
    """See `os.stat`; of an object there are `st_size` and `st_mtime_ns`."""
    if not isinstance(path, Location):
        return os.stat(path)
    entry = path.status()
    if entry is None:
        raise FileNotFoundError(2, "no such object")
    return entry


def list_directory(root: AnyPath) -> list[os.DirEntry[str]]:
    """What is in a directory, in any order; raises `ReadError`."""
    if isinstance(root, Location):
        found: list[Any] = [*root.entries().values()]
        return found
    try:
        with os.scandir(root) as entries:
            return list(entries)
    except OSError as error:
        raise ReadError.of(error, root) from error
