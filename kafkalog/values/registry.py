"""Schemas from a registry over HTTP: Confluent's, or a compatible one (Karapace, Apicurio, Redpanda).

Source: SchemasResource, SubjectVersionsResource, Confluent Schema Registry 8.1.
"""

from __future__ import annotations

import base64
import json
import os
import threading
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from copy import copy
from typing import Any, Final

from kafkalog.errors import ReadError, Reason
from kafkalog.system_topics.schemas import SchemaReference
from kafkalog.values.frames import SchemaKey
from kafkalog.values.options import MOST_SCHEMA_BYTES, schema_text
from kafkalog.values.schemas import DirectorySchemas, KnownSchemas, SchemaSource, SchemaText, parse_schema

TIMEOUT_SECONDS: Final = 10.0


class Registry:
    """Looks up schemas in a registry, each only once.

    A name and password in the URL are sent as basic authentication.
    """

    def __init__(self, url: str, timeout: float = TIMEOUT_SECONDS) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"schemas: {url} is no URL of a registry")
        place = parts.hostname if parts.port is None else f"{parts.hostname}:{parts.port}"
        self._url = urllib.parse.urlunsplit((parts.scheme, place, parts.path.rstrip("/"), "", ""))
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json"}
        if parts.username is not None:
            pair = f"{urllib.parse.unquote(parts.username)}:{urllib.parse.unquote(parts.password or '')}"
            self._headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        self._timeout = timeout
        self._context = ""
        self._known: dict[str, SchemaText | None] = {}
        self._lock = threading.Lock()

    def __getstate__(self) -> dict[str, Any]:
        # Spark pickles this for executors, and locks cannot be pickled
        return {name: value for name, value in self.__dict__.items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.Lock())

    def by_id(self, schema_id: int) -> SchemaText | None:
        """See `SchemaSource`; raises ReadError if the registry does not answer, or the answer is invalid."""
        return self._get(f"/schemas/ids/{schema_id}{self._context}")

    def in_context(self, context: str) -> Registry:
        """The registry with the ids of a context, such as ``.partner``."""
        one = copy(self)
        one._context = f"?subject={urllib.parse.quote(f':{context}:')}"
        return one

    def by_guid(self, guid: str) -> SchemaText | None:
        return self._get(f"/schemas/guids/{guid}")

    def find(self, subject: str, version: int) -> SchemaText | None:
        return self._get(f"/subjects/{urllib.parse.quote(subject, safe='')}/versions/{version}?deleted=true")

    def _get(self, path: str) -> SchemaText | None:
        with self._lock:
            # also keep a missing schema: every record may name it
            if path not in self._known:
                self._known[path] = self._fetch(path)
            return self._known[path]

    def _fetch(self, path: str) -> SchemaText | None:
        request = urllib.request.Request(self._url + path, headers=self._headers)
        try:
            with urllib.request.urlopen(request, timeout=self._timeout) as answer:
                # read one byte more than allowed, to detect longer answers
                data = answer.read(MOST_SCHEMA_BYTES + 1)
        except urllib.error.HTTPError as error:
            if error.code == 404:
                return None
            raise self._error(path, f"HTTP status {error.code}") from error
        except (OSError, ValueError) as error:
            raise self._error(path, str(error)) from error
        if len(data) > MOST_SCHEMA_BYTES:
            raise self._error(path, f"an answer of more than {MOST_SCHEMA_BYTES} bytes")
        try:
            found: Any = json.loads(data)
            return parse_schema(found)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise self._error(path, "an answer that is no schema") from error

    def _error(self, path: str, detail: str) -> ReadError:
        return ReadError(
            Reason.FILE_UNREADABLE, f"the schema registry did not give a schema: {detail}", path=self._url + path
        )


def schema_source(schemas: Any) -> SchemaSource | None:
    """The source that `schemas=` of a scan names: a directory, a registry's URL, a mapping, or a source itself."""
    if schemas is None:
        return None
    if isinstance(schemas, str) and schemas.startswith(("http://", "https://")):
        return Registry(schemas)
    if isinstance(schemas, (str, os.PathLike)):
        return DirectorySchemas(schemas)
    if isinstance(schemas, Mapping):
        by_key: dict[SchemaKey, SchemaText] = {}
        for key, one in schemas.items():
            kind, text, *rest = ("AVRO", one) if isinstance(one, str) else one
            by_key[key if isinstance(key, int) else str(key).lower()] = SchemaText(
                kind, schema_text(text), tuple(SchemaReference(*name) for name in (rest[0] if rest else ()))
            )
        return KnownSchemas(by_key)
    if all(hasattr(schemas, name) for name in ("by_id", "by_guid", "find")):
        source: SchemaSource = schemas
        return source
    raise TypeError(f"schemas is a directory, a registry's URL or a mapping of id to schema, not {schemas!r}")
