"""Object stores, read through obstore, and other places that fsspec reaches. Neither is imported before it is used.

Credentials stay in the store objects: a URL, a message and a pickle have none. A store that comes out of a pickle in
another process takes its credentials from that process's environment.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import tempfile
import threading
import time
import weakref
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import numpy as np

from kafkalog.errors import (
    FileChangedError,
    KafkalogError,
    OutputExistsError,
    ReadError,
    Reason,
    UnsupportedError,
    WriteError,
    not_installed,
)
from kafkalog.storage.location import PUBLIC_OPTIONS, AnyPath, Location, clean, is_public_option, is_url
from kafkalog.storage.ranges import RangeSource
from kafkalog.storage.source import Bytes, ByteSource, FileIdentity
from kafkalog.storage.store import Entry, Store
from kafkalog.text import near

Options = Mapping[str, Any]

_OBSTORE: Final = ("s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "http", "https")
_AZURE: Final = ("abfs", "abfss", "adl")
_ALIASES: Final = {"anon": "skip_signature", "endpoint_url": "endpoint", "region_name": "region"}
_S3_ALIASES: Final = {"key": "access_key_id", "secret": "secret_access_key", "token": "session_token"}
_CODE: Final = re.compile(r"<Code>(\w+)</Code>(?:.*?<Message>([^<]*)</Message>)?", re.DOTALL)
_SAID: Final = re.compile(r'message: "([^"]+)"|"(failed to lookup address[^"]*)"|(invalid peer certificate[^"\n]*)')
_CHEAP: Final = frozenset({"memory", "file", "local", "tar", "zip"})
_CHECK_SECONDS: Final = 1.0
_LINK: Final = re.compile(r"""href=["']([^"'?#/:]+/?)["']""", re.IGNORECASE)
_N_STATUS: Final = 16


def location(url: AnyPath, *, storage_options: Options | None = None, filesystem: Any = None) -> Location:
    """A place in an object store, an archive or another remote file system, to be read instead of a local path.

    Functions that read take URLs as they are. This one is for filesystem objects, and for options that several calls
    share.

    Parameters
    ----------
    url : str
        ``s3://``, ``gs://``, ``az://``, ``https://`` and their aliases are read through obstore. Any other one, such
        as ``memory://``, ``tar://orders-0::/backup.tar`` or ``simplecache::s3://...``, is read through fsspec. With
        `filesystem`, a path in it.
    storage_options : mapping, optional
        Options of the store, such as ``endpoint`` and ``region``. Credentials should come from the environment.
    filesystem : obstore store or fsspec filesystem, optional

    Returns
    -------
    Location

    Raises
    ------
    NotInstalledError
        The library for such URLs is not installed.
    ValueError
        The URL contains credentials, or an option is invalid.

    Examples
    --------
    >>> place = kafkalog.location("memory://backup/orders-0")
    >>> place.name
    'orders-0'
    """
    if filesystem is not None:
        if hasattr(filesystem, "cat_file"):
            protocol = filesystem.protocol if isinstance(filesystem.protocol, str) else filesystem.protocol[0]
            path = filesystem._strip_protocol(os.fspath(url))
            return Location(FilesystemStore(filesystem, f"{protocol}://", path.startswith("/")), path)
        if type(filesystem).__module__.startswith("obstore"):
            return Location(ObjectStore(filesystem, f"{type(filesystem).__name__}://"), os.fspath(url))
        raise TypeError(f"filesystem must be an obstore store or an fsspec filesystem, not {type(filesystem).__name__}")
    if isinstance(url, Location):
        return url.fresh()
    text, options = os.fspath(url), dict(storage_options or {})
    if "!/" in text and "::" not in text:  # as messages show a file in an archive
        scheme, _, rest = text.partition(":")
        archive, _, key = rest.rpartition("!/")
        text = f"{scheme}://{key}::{archive}"
    for part in text.split("::"):
        scheme, _, rest = part.partition("://")
        user = rest.partition("/")[0].rpartition("@")[0]
        if user and (scheme not in _AZURE or ":" in user):
            raise ValueError(
                f"a {scheme}:// URL must not contain user info: put credentials into the environment or storage_options"
            )
    if scheme in _OBSTORE and "::" not in text:
        parts = urlsplit(text)
        root = f"{scheme}://{parts.netloc}"
        key = parts.path if scheme.startswith("http") else text[len(root) :]
        if scheme.startswith("http") and parts.query:
            root, key = text, ""
        return Location(open_store(root, options), key)
    store, key = _filesystem_of(text, options)
    return Location(store, key)


def locate(path: Any, storage_options: Options | None = None) -> Any:
    """The `Location` of a URL, or of each in a list; other paths as they are.

    A location is returned without what was listed of it: a new call sees new objects.
    """
    if isinstance(path, (list, tuple)):
        return [locate(one, storage_options) for one in path]
    if not is_url(path):
        return path
    if isinstance(path, str) and path.startswith("file:///"):
        return unquote(path.removeprefix("file://"))
    return location(path, storage_options=storage_options)


def open_store(root: str, options: Options, token: str | None = None) -> ObjectStore:
    """The object store of a bucket; in the process that made it, the one with that token."""
    found = _MADE.get(token) if token else None
    if isinstance(found, ObjectStore):
        return found
    return ObjectStore(_obstore_of(root, dict(options)), root, options)


def reopen_filesystem(url: str, options: Options, token: str) -> FilesystemStore:
    """The file system of a URL; in the process that made it, the one with that token."""
    found = _MADE.get(token)
    return found if isinstance(found, FilesystemStore) else _filesystem_of(url, dict(options))[0]


_MADE: weakref.WeakValueDictionary[str, _LibraryStore] = weakref.WeakValueDictionary()


class _LibraryStore(Store):
    """What both kinds of stores have."""

    def __init__(self, url: str, options: Options | None) -> None:
        self._url, self._shipped = url, None if options is None else _without_secrets(options)
        self.token = secrets.token_hex(8)
        _MADE[self.token] = self

    def __repr__(self) -> str:
        return f"{type(self).__name__}({clean(self._url)!r})"

    def list(self, directory: str) -> list[Entry]:
        """See `Store.list`. An object that stands for the directory itself, as some tools write one, is left out."""
        own = directory.strip("/")
        return [entry for path, entry in self._listed(directory) if entry.name and path.strip("/") != own]

    @abstractmethod
    def _listed(self, directory: str) -> Iterable[tuple[str, Entry]]:
        """What the library lists of a directory, with the whole path of each."""

    @abstractmethod
    def fetch(self, key: str, start: int, stop: int, entry: Entry) -> Any:
        """Bytes `start` to `stop` as the library returns them, perhaps fewer: a buffer."""

    def range(self, key: str, start: int, stop: int, entry: Entry) -> Bytes:
        """See `Store.range`."""
        data = np.frombuffer(self.fetch(key, start, stop, entry), np.uint8)
        if data.size != stop - start:
            detail = f"the store returned {data.size} of {stop - start} bytes"
            raise ReadError(Reason.FILE_UNREADABLE, detail, path=self.url_of(key), position=start)
        return data

    def open(self, key: str, entry: Entry) -> ByteSource:
        """See `Store.open`."""
        return StoreSource(self, key, entry)

    def _changed(self, key: str, detail: str, position: int | None = None) -> FileChangedError:
        return FileChangedError(Reason.FILE_CHANGED, detail, path=self.url_of(key), position=position)

    @contextlib.contextmanager
    def _errors(
        self, key: str, position: int | None = None, *, was_there: bool = False, writes: bool = False
    ) -> Iterator[None]:
        """Turn errors of a library into kafkalog's own, without what may be a credential."""
        try:
            yield
        except KafkalogError:
            raise
        except Exception as error:
            kind, line = type(error).__name__, (str(error).strip().splitlines() or [""])[0]
            if writes and (kind in ("AlreadyExistsError", "PreconditionError") or isinstance(error, FileExistsError)):
                raise OutputExistsError.at(self.url_of(key)) from None
            if was_there and isinstance(error, FileNotFoundError):
                raise self._changed(key, "was deleted after it was listed; open it again", position) from None
            if kind == "PreconditionError":
                raise self._changed(key, "was replaced while it was read; open it again", position) from None
            answer = _CODE.search(str(error))
            if answer:
                line = f"the store answers {answer[1]}: {answer[2] or ''}"
            detail = clean(line)[:300] if not isinstance(error, FileNotFoundError) else "no such object"
            if isinstance(error, PermissionError) or kind in ("PermissionDeniedError", "UnauthenticatedError"):
                detail = f"the store denies access; check the credentials and their rights ({detail})"
            elif "169.254.169.254" in line:
                detail = (
                    "no credentials found; put them into the environment, such as AWS_ACCESS_KEY_ID and"
                    " AWS_SECRET_ACCESS_KEY, or set --storage-option skip_signature=true for public buckets"
                )
            elif "ExpiredToken" in str(error):
                detail = "the credentials have expired; renew them"
            elif "error sending request" in line:
                detail = f"the server cannot be reached{_cause(error)}; check the address, the port and the network"
            elif "BadScheme" in str(error):
                detail = "an http:// endpoint needs --storage-option allow_http=true"
            elif "Range request not supported" in line:
                detail = "the server does not serve ranges of a file; use one that does, such as nginx, or download it"
            if writes:
                raise WriteError(Reason.WRITE_FAILED, f"{detail} ({kind})", path=self.url_of(key)) from None
            raise ReadError(
                Reason.FILE_UNREADABLE, f"{detail} ({kind})", path=self.url_of(key), position=position
            ) from None


def _cause(error: Exception) -> str:
    """What the system said about a connection that failed, in brackets; empty if it said nothing."""
    told = _SAID.search(str(error))
    return f" ({clean(next(filter(None, told.groups())))})" if told else ""


class _Writer:
    """What writes an object in parts; the object appears when it is closed. All errors are those of kafkalog."""

    def __init__(self, store: _LibraryStore, key: str, raw: Any) -> None:
        self._store, self._key, self._raw = store, key, raw

    def write(self, data: bytes) -> None:
        """Write a part."""
        with self._store._errors(self._key, writes=True):
            self._raw.write(data)

    def close(self) -> None:
        """Finish the object."""
        with self._store._errors(self._key, writes=True):
            self._raw.close()


class ObjectStore(_LibraryStore):
    """An object store, read through obstore; `root` is the URL of its root.

    `options` are those that it was made with; None for a store object of the user, which is never pickled.
    """

    def __init__(self, store: Any, root: str, options: Options | None = None) -> None:
        super().__init__(root, options)
        with _needed("obstore", root):
            import obstore
        self._store, self._obs = store, obstore
        self._quotes_tags = type(store).__name__ in ("AzureStore", "GCSStore", "S3Store")
        self._shown = clean(root)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._shipped is None:
            raise TypeError(f"{self!r} was made from a store object, which other processes cannot open: use a URL")
        return open_store, (self._url, self._shipped, self.token)

    def url_of(self, key: str) -> str:
        """See `Store.url_of`."""
        return f"{self._shown.removesuffix('/')}/{key}" if key else self._shown

    def _list_page(self, directory: str) -> list[Entry]:
        """What the page of a directory links to, as web servers make one; the size of each file is asked for."""
        with self._errors(directory):
            try:
                page = bytes(self._obs.get(self._store, directory).bytes()).decode(errors="replace")
            except FileNotFoundError:
                return []
        names = dict.fromkeys(map(unquote, _LINK.findall(page)))
        files = [name for name in names if not name.endswith("/") and name not in (".", "..")]
        with ThreadPoolExecutor(_N_STATUS) as pool:
            found = [*pool.map(self.status, (f"{directory}/{name}" for name in files))]
        folders = (name.rstrip("/") for name in names if name.endswith("/") and name not in ("./", "../"))
        return [*(Entry(name, is_directory=True) for name in folders), *(one for one in found if one is not None)]

    def _listed(self, directory: str) -> Iterable[tuple[str, Entry]]:
        """See `_LibraryStore._listed`."""
        if self._url.startswith("http"):
            return [(f"{directory}/{entry.name}", entry) for entry in self._list_page(directory)]
        with self._errors(directory):
            found = self._obs.list_with_delimiter(self._store, directory or None)
            folders = (
                (path, Entry(path.rstrip("/").rpartition("/")[2], is_directory=True))
                for path in found["common_prefixes"]
            )
            # of an object and a directory of one name, the directory counts: it comes last
            return [*((meta["path"], self._entry(meta)) for meta in found["objects"]), *folders]

    def status(self, key: str) -> Entry | None:
        """See `Store.status`."""
        with self._errors(key):
            try:
                return self._entry(self._obs.head(self._store, key))
            except FileNotFoundError:
                return None

    def _entry(self, meta: Any) -> Entry:
        found = _entry_of_meta(meta)
        # Azure lists tags without the quotes that its other answers have, and that conditions need
        if self._quotes_tags and found.etag and not found.etag.startswith(('"', "W/")):
            found = replace(found, etag=f'"{found.etag}"')
        return found

    def fetch(self, key: str, start: int, stop: int, entry: Entry) -> Any:
        """See `_LibraryStore.fetch`."""
        options: dict[str, Any] = {"range": (start, stop)}
        if entry.etag is not None:
            options["if_match"] = entry.etag
        with self._errors(key, start, was_there=True):
            answer = self._obs.get(self._store, key, options=options)
            meta = answer.meta
            # some servers ignore the condition
            if meta["size"] != entry.size or (entry.etag is not None and meta["e_tag"] != entry.etag):
                raise self._changed(key, "was replaced while it was read; open it again", start)
            return answer.bytes()

    def put(self, key: str, data: bytes, replaces: Entry | None = None, *, overwrite: bool = False) -> None:
        """Write an object where there is none, or over the one of an entry, or over any."""
        mode: Any = "create" if replaces is None else {"e_tag": replaces.etag}
        with self._errors(key, writes=True):
            self._obs.put(self._store, key, data, mode="overwrite" if overwrite else mode)

    def writer(self, key: str) -> _Writer:
        """Write an object in parts."""
        with self._errors(key, writes=True):
            return _Writer(self, key, self._obs.open_writer(self._store, key, buffer_size=2**23, max_concurrency=2))

    def delete(self, key: str) -> None:
        """Delete an object."""
        with self._errors(key, writes=True):
            self._obs.delete(self._store, key)


class FilesystemStore(_LibraryStore):
    """A file system of fsspec; a URL has `before` before the key, and `url` leads to the file system.

    `is_rooted` says that keys begin with a slash. For `options` see `ObjectStore`.
    """

    def __init__(
        self,
        filesystem: Any,
        before: str,
        is_rooted: bool,
        options: Options | None = None,
        url: str = "",
    ) -> None:
        super().__init__(url or before, options)
        self._slash = "/" if is_rooted else ""
        # other schemes have no slash there, though their keys begin with one
        self._filesystem, self._before = filesystem, clean(before) + self._slash * (before == "file://")
        protocol = filesystem.protocol
        self._is_cheap = not _CHEAP.isdisjoint({protocol} if isinstance(protocol, str) else protocol)
        # archives move the position of one file
        is_shared = not (filesystem.async_impl or protocol == "memory" or "file" in protocol)
        self._lock: Any = threading.RLock() if is_shared else contextlib.nullcontext()
        self._checked: dict[str, float] = {}
        filesystem.invalidate_cache()  # of listings that another reader made

    def __reduce__(self) -> tuple[Any, ...]:
        if self._shipped is None:
            raise TypeError(f"{self!r} was made from a filesystem object, which other processes cannot open: use a URL")
        return reopen_filesystem, (self._url, self._shipped, self.token)

    def url_of(self, key: str) -> str:
        """See `Store.url_of`."""
        return f"{self._before}{key}"

    def _listed(self, directory: str) -> Iterable[tuple[str, Entry]]:
        """See `_LibraryStore._listed`."""
        with self._errors(directory), self._lock:
            try:
                found = self._filesystem.ls(self._slash + directory, detail=True)
            except (FileNotFoundError, NotADirectoryError):
                return []
            return [(info["name"].rpartition("://")[2], _entry_of_info(info)) for info in found]

    def status(self, key: str) -> Entry | None:
        """See `Store.status`."""
        with self._errors(key), self._lock:
            try:
                return _entry_of_info(self._filesystem.info(self._slash + key))
            except FileNotFoundError:
                return None

    def fetch(self, key: str, start: int, stop: int, entry: Entry) -> Any:
        """See `_LibraryStore.fetch`; once a second it is looked up whether the object was replaced."""
        with self._errors(key, start, was_there=True), self._lock:
            data = self._filesystem.cat_file(self._slash + key, start=start, end=stop)
            now = time.monotonic()
            if self._is_cheap or now - self._checked.get(key, 0.0) > _CHECK_SECONDS:
                self._checked[key] = now
                found = _entry_of_info(self._filesystem.info(self._slash + key))
                if (found.size, found.etag) != (entry.size, entry.etag):
                    raise self._changed(key, "was replaced while it was read; open it again", start)
            return data

    def put(self, key: str, data: bytes, replaces: Entry | None = None, *, overwrite: bool = False) -> None:
        """See `ObjectStore.put`; what is there is looked up before, as most file systems have no conditions."""
        with self._errors(key, writes=True), self._lock:
            if not overwrite:
                found = None if not self._filesystem.exists(self._slash + key) else self.status(key)
                if found != replaces:
                    raise FileExistsError
            self._make_parent(key)
            self._filesystem.pipe_file(self._slash + key, data)

    def writer(self, key: str) -> _Writer:
        """See `ObjectStore.writer`; the parts are kept in a local file until then."""
        return _Writer(self, key, _Spool(self, key))

    def upload(self, key: str, path: str) -> None:
        """Write an object that is a local file."""
        with self._errors(key, writes=True), self._lock:
            self._make_parent(key)
            self._filesystem.put_file(path, self._slash + key)

    def _make_parent(self, key: str) -> None:
        self._filesystem.makedirs(self._slash + key.rpartition("/")[0], exist_ok=True)

    def delete(self, key: str) -> None:
        """See `ObjectStore.delete`."""
        with self._errors(key, writes=True), self._lock:
            self._filesystem.rm_file(self._slash + key)


class _Spool:
    """A local file that becomes an object of a file system when it is closed."""

    def __init__(self, store: FilesystemStore, key: str) -> None:
        self._store, self._key = store, key
        self._file = tempfile.NamedTemporaryFile(prefix="kafkalog-")  # noqa: SIM115 - it lives as long as this
        self.write = self._file.write

    def close(self) -> None:
        """Write the object."""
        with self._file:
            self._file.flush()
            self._store.upload(self._key, self._file.name)


class StoreSource(RangeSource):
    """The bytes of an object in a store."""

    def __init__(self, store: Store, key: str, entry: Entry) -> None:
        super().__init__(entry.size, path=store.url_of(key))
        self._store, self._key, self._entry = store, key, entry
        self.identity = FileIdentity(0, 0, entry.size, entry.modified_ns)

    def fetch(self, start: int, stop: int) -> Bytes:
        """See `RangeSource.fetch`."""
        return self._store.range(self._key, start, stop, self._entry)


@contextlib.contextmanager
def _needed(name: str, url: str) -> Iterator[None]:
    """Turn an `ImportError` into an error with the command that installs the library."""
    try:
        yield
    except ImportError:
        scheme = url.partition("://")[0]
        detail = not_installed(f"{scheme}:// needs {name}", "object-store")
        raise UnsupportedError(Reason.NOT_INSTALLED, detail) from None


def _without_secrets(options: Options) -> dict[str, Any]:
    kept = {name: value for name, value in options.items() if is_public_option(name)}
    return {name: value for name, value in kept.items() if isinstance(value, (str, int, float))}


def _endpoint(scheme: str, config: Mapping[str, Any]) -> tuple[str | None, str]:
    """The endpoint of a store, and the environment's word on http: options win, as with the AWS tools."""
    environment = {name.upper(): value for name, value in os.environ.items() if value}
    given = next((str(value) for name, value in config.items() if "endpoint" in name.lower()), None)
    known: tuple[str, ...] = ()
    if scheme.startswith("s3"):
        known, http = (_S3_ENDPOINT, "AWS_ENDPOINT_URL", "AWS_ENDPOINT"), "AWS_ALLOW_HTTP"
    elif scheme == "gs":
        http = "GOOGLE_ALLOW_HTTP"
    else:
        known, http = ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"), "AZURE_ALLOW_HTTP"
    found = (environment[name] for name in known if name in environment)
    return given or next(found, None), environment.get(http, "")


def _obstore_of(root: str, options: dict[str, Any]) -> Any:
    with _needed("obstore", root):
        from obstore.store import from_url
    scheme = root.partition("://")[0]
    settings = _obstore_settings(root, options)
    if scheme.startswith("http"):
        del settings["config"]
    with _valid_options(root), _hidden(_S3_ENDPOINT):  # its library would prefer this to an option
        return from_url(root, **settings)


_S3_ENDPOINT: Final = "AWS_ENDPOINT_URL_S3"
_ENVIRONMENT: Final = threading.RLock()


@contextlib.contextmanager
def _hidden(name: str) -> Iterator[None]:
    """The process without a variable of its environment."""
    with _ENVIRONMENT:
        value = os.environ.pop(name, None)
        try:
            yield
        finally:
            if value is not None:
                os.environ[name] = value


@contextlib.contextmanager
def _valid_options(root: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        line = clean((str(error).strip().splitlines() or [""])[0])
        unknown = re.search(r"Configuration key: '(\w+)' is not valid", line)
        close = near(unknown[1], _COMMON_OPTIONS) if unknown else None
        meant = f"; did you mean {close!r}?" if close else ""
        raise ValueError(f"{clean(root)}: invalid storage options: {line}{meant}") from None


_COMMON_OPTIONS: Final = (
    *PUBLIC_OPTIONS,
    *("access_key_id", "secret_access_key", "session_token"),
    *("account_name", "account_key", "sas_key", "service_account"),
)


def _obstore_settings(root: str, options: dict[str, Any]) -> dict[str, Any]:
    """What obstore takes, out of options with its names or those of s3fs, and out of the environment."""
    scheme = root.partition("://")[0]
    nested = options.pop("client_kwargs", None)
    if isinstance(nested, Mapping):
        options = {**nested, **options}
    aliases = _ALIASES | _S3_ALIASES if scheme.startswith("s3") else _ALIASES
    config = {aliases.get(name, name): value for name, value in options.items()}
    timeout, retries = config.pop("timeout", None), int(config.pop("max_retries", 5))
    profile = config.pop("profile", None) or os.environ.get("AWS_PROFILE")
    client = _timeouts(timeout)
    endpoint, allows_http = _endpoint(scheme, config)
    allows_http = str(config.pop("allow_http", allows_http)).lower()
    if allows_http in ("1", "true") or scheme == "http" or (endpoint or "").startswith("http://"):
        client["allow_http"] = True
    if endpoint is not None and not scheme.startswith("http"):
        config = {name: value for name, value in config.items() if "endpoint" not in name.lower()}
        config["endpoint"] = endpoint
    more: dict[str, Any] = {"retry_config": {"max_retries": retries, "retry_timeout": timedelta(seconds=120)}}
    if scheme.startswith("s3"):
        more |= _profile_credentials(root, profile, config)
    return {"config": config or None, "client_options": client, **more}


def delta_options(url: str, options: Options) -> dict[str, str]:
    """The options of Delta's library for a table at a URL; it has the names of obstore, and takes only texts."""
    settings = _obstore_settings(url, dict(options))
    given = {**(settings["config"] or {}), **settings["client_options"], **settings["retry_config"]}
    return {name: _rust_text(value) for name, value in given.items()}


def _rust_text(value: Any) -> str:
    if isinstance(value, timedelta):
        return f"{value.total_seconds():.0f}s"
    return str(value).lower() if isinstance(value, bool) else str(value)


def _timeouts(timeout: Any) -> dict[str, Any]:
    """The options of a client that end a request, for a time with or without a unit, or None."""
    # a piece of a slow line takes long: only a stalled stream is abandoned
    client: dict[str, Any] = {"connect_timeout": "10s", "read_timeout": "30s", "timeout": "10m"}
    if timeout is None:
        return client
    seconds = str(timeout) if str(timeout)[-1:].isalpha() else f"{timeout}s"
    return dict.fromkeys(client, seconds)


def _profile_credentials(url: str, profile: str | None, config: Mapping[str, Any]) -> dict[str, Any]:
    """The credentials of a profile of the AWS tools, if no key is in the options or the environment.

    Raises ReadError for a profile that is not in their files.
    """
    named = {*map(str.lower, config), *(name.lower() for name in os.environ)}
    has_key = any("access_key_id" in name for name in named) or "aws_container_credentials_relative_uri" in named
    if (has_key and not profile) or "skip_signature" in config:
        return {}
    # obstore itself does not read the profile files of the AWS tools
    with contextlib.suppress(ImportError):
        import boto3
        import botocore.session
        from botocore.exceptions import ProfileNotFound
        from obstore.auth.boto3 import Boto3CredentialProvider

        try:
            if profile or boto3.Session().get_credentials() is not None:
                return {"credential_provider": Boto3CredentialProvider(boto3.Session(profile_name=profile))}
        except ProfileNotFound as error:
            known = ", ".join(botocore.session.Session().available_profiles) or "none"
            detail = f"no profile {profile!r} in the files of the AWS tools, which have {known}; see AWS_PROFILE"
            raise ReadError(Reason.FILE_UNREADABLE, detail, path=url) from error
    return {}


def _cached_store(url: str, options: Mapping[str, Any]) -> tuple[Any, str] | None:
    """A cache of fsspec over a store that obstore reads, with the options of that store; None for other URLs."""
    kind, _, inner = url.partition("::")
    scheme, _, key = inner.partition("://")
    if kind not in _CACHES or "::" in inner or scheme not in _OBSTORE or scheme.startswith("http"):
        return None
    with _needed("obstore", url):
        from fsspec import filesystem
        from obstore.fsspec import FsspecStore
    of_store: dict[str, Any] = dict(options.get(scheme) or {})
    of_cache: dict[str, Any] = dict(options.get(kind) or {})
    for name, value in options.items():
        if name not in (scheme, kind):
            (of_cache if name in _OF_CACHES else of_store)[name] = value
    with _valid_options(url):
        return filesystem(kind, fs=FsspecStore(scheme, **_obstore_settings(inner, of_store)), **of_cache), key


_CACHES: Final = ("filecache", "simplecache", "blockcache")
_OF_CACHES: Final = frozenset(
    {"cache_storage", "cache_check", "check_files", "expiry_time", "same_names", "compression", "cache_mapper"}
    | {"cache_storage_mode", "skip_instance_cache", "use_listings_cache", "listings_expiry_time", "max_paths"}
)


def _filesystem_of(url: str, options: dict[str, Any]) -> tuple[FilesystemStore, str]:
    with _needed("fsspec", url):
        import fsspec.core
    shown = clean(url)
    try:
        cached = _cached_store(url, options)
        filesystem, path = fsspec.core.url_to_fs(url, **options) if cached is None else cached
    except ImportError as error:
        raise UnsupportedError(
            Reason.NOT_INSTALLED, f"{shown}: fsspec needs another library: {clean(str(error))}"
        ) from None
    except ValueError as error:
        raise ValueError(f"{shown}: {clean(str(error))}") from None
    except Exception as error:
        detail = f"fsspec cannot open it: {clean((str(error).splitlines() or [''])[0])} ({type(error).__name__})"
        if archive := re.match(r"(tar|zip)://(?!.*::)(.+)", shown):
            detail = f"an archive stands after two colons: {archive[1]}://DIRECTORY::{archive[2]}"
        raise ReadError(Reason.FILE_UNREADABLE, detail, path=shown) from None
    # of a chain, the first part that names a file has the key; what caches it stands before that, and archives follow.
    # Like Java's `jar:` URLs, that of a file in an archive ends with its name
    parts = url.split("::")
    at = next((number for number, part in enumerate(parts) if "://" in part), 0)
    scheme, around = parts[at].partition("://")[0], "::".join(parts[at + 1 :])
    before = "::".join([*parts[:at], f"{scheme}:{around}!/" if around else f"{scheme}://"])
    store = FilesystemStore(filesystem, before, path.startswith("/"), options, url)
    return store, path


def _entry_of_meta(meta: Mapping[str, Any]) -> Entry:
    modified = meta["last_modified"]
    return Entry(meta["path"].rpartition("/")[2], meta["size"], meta["e_tag"], int(modified.timestamp() * 1e9))


def _entry_of_info(info: Mapping[str, Any]) -> Entry:
    modified = next((info[name] for name in _TIMES if info.get(name) is not None), 0)
    if isinstance(modified, datetime):
        modified = modified.timestamp()
    stamp = modified if isinstance(modified, (int, float)) else 0
    tag = next((info[name] for name in _TAGS if info.get(name) is not None), modified or None)
    is_directory = info.get("type") == "directory"
    name = info["name"].rstrip("/").rpartition("/")[2]
    return Entry(name, info.get("size") or 0, None if tag is None else str(tag), int(stamp * 1e9), is_directory)


_TAGS: Final = ("ETag", "etag", "e_tag", "md5", "md5Hash", "content_md5", "CRC")
_TIMES: Final = ("LastModified", "last_modified", "mtime", "updated", "created")
