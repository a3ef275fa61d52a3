"""Places of files: a `Location` is a path in a `Store`, with the reading half of `pathlib.Path`.

A `Place` is either: what users give is converted once, by `place_of`. Local files keep `pathlib.Path`, whose store is
`LOCAL`. The functions here take both. A directory of a store is listed once: files opened from it get names, sizes and
entity tags from that listing.
"""

from __future__ import annotations

import fnmatch
import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from pathlib import Path
from typing import Any, Final, Literal, TypeVar

from kafkalog.calls import leading_names
from kafkalog.errors import Finding, ReadError, Reason, UnsafePathError
from kafkalog.storage.local import LOCAL
from kafkalog.storage.source import Bytes, ByteSource
from kafkalog.storage.store import Entry, Store


@leading_names
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

    def glob(self, pattern: str) -> Iterator[Location]:
        """What is in the directory and matches a pattern without slashes, except for one at the end."""
        return (self / name for name in sorted(self.entries()) if fnmatch.fnmatchcase(name, pattern.rstrip("/")))

    def open(self) -> ByteSource:
        """The bytes of the object.

        Raises
        ------
        ReadError
            It does not exist, or the store does not give it.
        """
        return self.store.open(self.key, self._object())

    def range(self, start: int, stop: int) -> Bytes:
        """Bytes `start` to `stop` of the object, by one request."""
        return self.store.range(self.key, start, stop, self._object())

    def _object(self) -> Entry:
        entry = self.status()
        if entry is None or entry.is_directory:
            cause = FileNotFoundError(2, "no such object") if entry is None else None
            raise ReadError(Reason.FILE_UNREADABLE, "no such object", path=self) from cause
        return entry


# names distinguish files from directories, which take a listing
_OF_FILES: Final = {
    *(".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint", ".properties"),
    *(".gz", ".tgz", ".zst", ".bz2", ".xz", ".lz4", ".tar", ".zip"),
}

_N_LISTS: Final = 16

AnyPath = str | os.PathLike[str]
Place = Path | Location
AnyPlace = TypeVar("AnyPlace", Path, Location, Place)


def is_url(path: object) -> bool:
    """Whether a path is a URL, or a location that one led to."""
    return isinstance(path, Location) or (isinstance(path, str) and _URL.match(path) is not None)


_SECRETS: Final = re.compile(
    r"(?<=://)[^/\s@\"']*@|(?<=[\w/])\?[^\s\"')>]+|(?i:(signature|token|secret|key)=)[^\s&\"')>]*"
)
_URL: Final = re.compile(r"[A-Za-z][\w+.-]*(://|::.*://|:.*!/)")


def place_of(path: AnyPath) -> Place:
    """The path that a caller gives as an object: a `Location` as it is, any other one as a `pathlib.Path`."""
    return path if isinstance(path, Location) else Path(path)


def remote_place(path: object) -> Location | None:
    """The path if it is in a store that is not the local disk; None for anything else."""
    return path if isinstance(path, Location) else None


def store_of(path: AnyPath) -> Store:
    """The store that a path is in, which says what can be done there."""
    return path.store if isinstance(path, Location) else LOCAL


def local_path(path: Place) -> Path:
    """The path, for what works on local files only; raises `UnsafePathError` for one in another store."""
    if isinstance(path, Location):
        raise not_local(path)
    return path


def plain(path: AnyPath) -> str | Location:
    """The path as text, for what is pickled; a `Location` as it is, since its text does not lead back to its store."""
    return path if isinstance(path, Location) else os.fspath(path)


def refuse_url(path: object, *, is_output: bool = False) -> None:
    """Raise `UnsafePathError` for a URL, or what was opened from one, where only local files will do."""
    for one in path if isinstance(path, (list, tuple)) else [path]:
        place = getattr(one, "paths", [getattr(one, "path", one)])[0]
        if is_url(place):
            raise not_local(place, is_output=is_output)


def not_local(path: object, *, is_output: bool = False) -> UnsafePathError:
    """The error for a URL where only a local path will do."""
    detail = "this works on local files, not on a URL: copy it to a local directory first"
    if is_output:
        detail = "this writes local files, and this is a URL: write a local file, then copy it"
    # `pathlib` makes one slash of two
    return UnsafePathError(
        Reason.NOT_LOCAL, detail, path=clean(re.sub(r"^([A-Za-z][\w+.-]+:)/(?!/)", r"\1//", str(path)))
    )


def is_public_option(name: str) -> bool:
    """Whether a storage option is no secret: pickles and Spark's plans have no others."""
    return _PUBLIC.fullmatch(name.lower()) is not None


PUBLIC_OPTIONS: Final = ("endpoint", "region", "allow_http", "skip_signature", "profile", "timeout", "max_retries")
"""Those that are used most, to correct a mistyped one."""
_PUBLIC: Final = re.compile(
    r"(aws_|azure_|google_|azure_storage_)?(endpoint(_url)?|(default_)?region(_name)?|allow_http|skip_signature|anon"
    r"|virtual_hosted_style_request|request_payer|profile|account_name|bucket|project|timeout|max_retries|protocol)"
)


def clean(text: str) -> str:
    """A text without user info and queries of URLs, which may be credentials."""
    return _SECRETS.sub("", text)


def parent_of(path: AnyPlace) -> AnyPlace:
    """The directory that a directory is in: relative if its own path is."""
    return path.parent if path.name not in ("", "..") else path.absolute().parent


def exists(path: AnyPath) -> bool:
    """See `os.path.exists`."""
    return path.exists() if isinstance(path, Location) else os.path.exists(path)


def kind_of(path: AnyPath) -> Literal["directory", "file", "other"] | None:
    """What is at a path, links followed, by one question; None if nothing is there, or it cannot be asked."""
    if isinstance(path, Location):
        return "directory" if path.is_dir() else "file" if path.is_file() else None
    try:
        mode = os.stat(path).st_mode
    except (OSError, ValueError):
        return None
    return "directory" if stat.S_ISDIR(mode) else "file" if stat.S_ISREG(mode) else "other"


def real_path(path: AnyPath) -> AnyPath:
    """See `os.path.realpath`."""
    return path if isinstance(path, Location) else os.path.realpath(path)


def is_tiered(path: Place) -> bool:
    """Whether a file stands for one that a broker has moved to remote storage."""
    return isinstance(path, Location) and path.store.is_tiered(path.key)


def findings_of(path: Place) -> Sequence[Finding]:
    """What its store has to tell about a directory."""
    return path.store.findings_of(path.key) if isinstance(path, Location) else ()


def expect(path: Place, entry: Entry) -> None:
    """Open the file only as it was listed earlier, if its store tells versions apart."""
    if isinstance(path, Location):
        path.remember(entry)


def version_of(path: Place) -> str | None:
    """What identifies the content of a file in a store that has such tags; None for any other file."""
    entry = path.status() if isinstance(path, Location) else None
    return None if entry is None else entry.etag


def stat_of(path: AnyPath) -> Any:
    """See `os.stat`; of an object there are `st_size` and `st_mtime_ns`."""
    if not isinstance(path, Location):
        return os.stat(path)
    entry = path.status()
    if entry is None:
        raise FileNotFoundError(2, "no such object")
    return entry


def list_ahead(directories: Iterable[Place]) -> None:
    """List directories of a store at the same time, as each takes a request; those of a disk are listed when needed."""
    remote = [directory for directory in directories if isinstance(directory, Location)]
    if len(remote) > 1:
        with ThreadPoolExecutor(_N_LISTS, "kafkalog-list") as pool:
            # a directory that cannot be listed raises where it is opened
            wait([pool.submit(directory.entries) for directory in remote])


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
