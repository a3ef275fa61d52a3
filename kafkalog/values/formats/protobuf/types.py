"""Protobuf schemas: protoc compiles files with their imports, and Google's library resolves names."""

from __future__ import annotations

import base64
import binascii
import contextlib
import functools
import importlib.util
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from kafkalog.errors import Reason, UnsupportedError, not_installed
from kafkalog.values.types import SchemaError

Descriptor = Any
"""A `google.protobuf.descriptor.Descriptor`; the library has no annotations."""
TYPES: Final = (
    *("", "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group"),
    *("message", "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64"),
)
"""The name of a field's type by its number in descriptor.proto."""
_GROUP: Final = TYPES.index("group")
_MOST_FILES: Final = 300
_MOST_SECONDS: Final = 60
_MAIN: Final = "the-schema.proto"
_BASE64: Final = re.compile(r"[A-Za-z0-9+/\s]+={0,2}")
_IMPORT: Final = re.compile(r"""\bimport\s+(?:\w+\s+)?["']([^"'\n]*)["']""")
_FILE_NAME: Final = re.compile(r"(?!\.\.?/)[\w.+-]+(?:/(?!\.\.?/)[\w.+-]+)*", re.ASCII)
_ERROR: Final = re.compile(r"^(?!WARNING|[A-Z]\d{4} )([^\s:]+):(?:(\d+):\d+:)? (?!warning:)(.*)$", re.MULTILINE)
# Source: meta.proto and decimal.proto, Confluent Schema Registry 8.1. Every registry has them built in
_CONFLUENT: Final = {
    "confluent/meta.proto": """syntax = "proto3"; package confluent; import "google/protobuf/descriptor.proto";
        message Meta { string doc = 1; map<string, string> params = 2; repeated string tags = 3; }
        extend google.protobuf.FileOptions { Meta file_meta = 1088; }
        extend google.protobuf.MessageOptions { Meta message_meta = 1088; }
        extend google.protobuf.FieldOptions { Meta field_meta = 1088; }
        extend google.protobuf.EnumOptions { Meta enum_meta = 1088; }
        extend google.protobuf.EnumValueOptions { Meta enum_value_meta = 1088; }""",
    "confluent/type/decimal.proto": """syntax = "proto3"; package confluent.type;
        message Decimal { bytes value = 1; uint32 precision = 2; int32 scale = 3; }""",
}


class ProtoSchema:
    """A file with all its imports, which `find` returns by name.

    The text is the source of a `.proto` file, or a `FileDescriptorProto` in base64, which some clients register. Raises
    SchemaError for an invalid schema, and UnsupportedError if the extra ``protobuf`` is not installed.
    """

    def __init__(self, text: str, find: Callable[[str], str | None] | None = None) -> None:
        try:
            from google.protobuf import descriptor_pb2, descriptor_pool
        except ImportError:
            raise _not_installed() from None
        files, missing = _with_imports(text, find)
        try:
            found = descriptor_pb2.FileDescriptorSet.FromString(_compiled(tuple(files.items())))
            self._pool = descriptor_pool.DescriptorPool()
            for one in found.file:
                self._pool.AddSerializedFile(one.SerializeToString())
        except SchemaError as error:
            raise SchemaError(f"{error}; not found: {', '.join(missing)}" if missing else str(error)) from None
        except TypeError as error:  # of the pool
            raise SchemaError(str(error)) from None
        self._file = next(one for one in found.file if one.name == _MAIN)

    @property
    def messages(self) -> list[Descriptor]:
        """The messages of the file itself, without nested ones."""
        return [self._descriptor([one]) for one in self._file.message_type]

    def _descriptor(self, path: Sequence[Any]) -> Descriptor:
        names = [one.name for one in path]
        return self._pool.FindMessageTypeByName(".".join([self._file.package, *names] if self._file.package else names))

    def message_of(self, selector: Sequence[int] | int | str) -> Descriptor:
        """The message that a frame selects, the first one by default; raises SchemaError if there is none.

        A number is that of AWS Glue: it counts all messages of the file in the order of their names, also nested ones,
        groups and map entries.

        Source: MessageIndexFinder.getAll, AWS Glue Schema Registry Library 1.1.
        """
        if isinstance(selector, str):
            return self.message_named(selector)
        if not isinstance(selector, int):
            return self.message_at(selector or (0,))
        names = dict[str, list[Any]]()
        left: list[list[Any]] = [[one] for one in self._file.message_type]
        while left:
            path = left.pop()
            names[".".join(one.name for one in path)] = path
            left += [[*path, one] for one in path[-1].nested_type]
        if selector >= len(names):
            raise SchemaError(f"it has no message with the number {selector} in the order of names")
        return self._descriptor(names[sorted(names)[selector]])

    def message_at(self, indexes: Sequence[int]) -> Descriptor:
        """The message that Confluent's message indexes select; raises `SchemaError` if there is none.

        Java clients do not count groups and map entries; Python clients do. Indexes that are impossible in Java's count
        are read in Python's. A record is never a group or a map entry.

        Source: ProtobufSchema.toMessageName, Confluent Schema Registry 8.1.
        """
        for with_hidden in (False, True):
            path: list[Any] = [self._file]
            for index in indexes:
                counted = _nested(path[-1], with_hidden=with_hidden)
                if index >= len(counted):
                    break
                path.append(counted[index])
            else:
                if path[-1] in _nested(path[-2], with_hidden=False):
                    return self._descriptor(path[1:])
        raise SchemaError(f"it has no message at the indexes {', '.join(map(str, indexes))}")

    def message_named(self, name: str) -> Descriptor:
        """The message with a full name, or a name within the file's package; raises `SchemaError`."""
        for full in (name, f"{self._file.package}.{name}"):
            try:
                return self._pool.FindMessageTypeByName(full)
            except KeyError:
                continue
        known = ", ".join(one.full_name for one in self.messages[:20])
        raise SchemaError(f"it has no message {name!r}; there are {known}")

    def indexes_of(self, message: Descriptor) -> list[int]:
        """The message indexes of a message of this file, as Java clients count them."""

        def search(parent: Any, path: list[Any]) -> list[int] | None:
            for number, one in enumerate(_nested(parent, with_hidden=False)):
                if self._descriptor([*path, one]).full_name == message.full_name:
                    return [number]
                inside = search(one, [*path, one])
                if inside is not None:
                    return [number, *inside]
            return None

        return search(self._file, []) or [0]


def _nested(parent: Any, *, with_hidden: bool) -> list[Any]:
    """Messages of a file or a message, perhaps with those that groups and maps declare."""
    is_file = hasattr(parent, "message_type")
    fields = parent.extension if is_file else [*parent.field, *parent.extension]
    groups = {one.type_name.rpartition(".")[2] for one in fields if one.type == _GROUP}
    return [
        one
        for one in (parent.message_type if is_file else parent.nested_type)
        if with_hidden or not (one.options.map_entry or one.name in groups)
    ]


def is_map(one: Any) -> bool:
    """Whether a field is a map: a repeated message of key and value."""
    return one.message_type is not None and one.message_type.GetOptions().map_entry


def real_oneofs(message: Descriptor) -> list[Any]:
    """The oneofs of a message, without those that protoc makes for `optional` in proto3."""
    from google.protobuf import descriptor_pb2

    proto = descriptor_pb2.DescriptorProto()
    message.CopyToProto(proto)
    made = {field.oneof_index for field in proto.field if field.proto3_optional}
    return [one for one in message.oneofs if one.index not in made]


def new_message(message: Descriptor, data: bytes = b"") -> Any:
    """A message of Google's library with some bytes."""
    from google.protobuf import message_factory

    return message_factory.GetMessageClass(message).FromString(data)


def _not_installed() -> UnsupportedError:
    return UnsupportedError(Reason.NOT_INSTALLED, not_installed("Protobuf schemas need grpcio-tools", "protobuf"))


def _with_imports(text: str, find: Callable[[str], str | None] | None) -> tuple[dict[str, str | bytes], list[str]]:
    """The contents of a file and its imports by name, as text or `FileDescriptorProto`; and imports not found.

    An import that nobody supplies is an empty file: registries accept it if none of its types is used.
    """
    files: dict[str, str | bytes] = {}
    missing = []
    left = [(_MAIN, text)]
    while left:
        name, text = left.pop()
        files[name], imports = _parsed(name, text)
        for other in imports:
            if other in files or any(other == waiting for waiting, _ in left):
                continue
            if not isinstance(other, str) or not _FILE_NAME.fullmatch(other):
                raise SchemaError(f"it imports {other[:200]!r}, which is not the name of a file")
            if len(files) + len(left) > _MOST_FILES:
                raise SchemaError(f"the schema imports more than {_MOST_FILES} files")
            # the registry's own text first: it may be of another version than a standard file
            found = (find(other) if find is not None else None) or _CONFLUENT.get(other)
            if found is None and other.startswith("google/"):
                continue  # protoc has them
            if found is None:
                missing.append(other)
            left.append((other, found or 'syntax = "proto3";'))
    return files, missing


def _parsed(name: str, text: str) -> tuple[str | bytes, Sequence[str]]:
    """The contents of a file, and the names of its imports."""
    from google.protobuf import descriptor_pb2
    from google.protobuf.message import DecodeError

    if not _BASE64.fullmatch(text.strip()):
        return text, _IMPORT.findall(text)
    try:
        file = descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode("".join(text.split()), validate=True))
    except binascii.Error:
        return text, _IMPORT.findall(text)
    except DecodeError as error:
        raise SchemaError(f"the bytes are not a FileDescriptorProto: {error}") from None
    file.name = name
    return file.SerializeToString(), file.dependency


@functools.lru_cache(maxsize=256)
def _compiled(files: tuple[tuple[str, str | bytes], ...]) -> bytes:
    """Run protoc over files, the main one first. Return the `FileDescriptorSet`.

    A process of its own: protoc writes errors to the file descriptor 2, and a hostile schema can end no more than it.
    """
    from google.protobuf import descriptor_pb2

    if importlib.util.find_spec("grpc_tools") is None:
        raise _not_installed()
    with tempfile.TemporaryDirectory(prefix="kafkalog-protoc-") as folder:
        root = Path(folder, "files")
        root.mkdir()
        binary = descriptor_pb2.FileDescriptorSet()
        for name, content in files:
            if isinstance(content, bytes):
                binary.file.add().ParseFromString(content)
                continue
            try:
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_bytes(content.removeprefix("\ufeff").encode("utf-8", "replace"))
            except OSError as error:
                raise SchemaError(f"its file {name!r} cannot be written for protoc: {error.strerror}") from None
        inputs, output = Path(folder, "in"), Path(folder, "out")
        inputs.write_bytes(binary.SerializeToString())
        options = [f"-I{root}", *_google_types(), "--include_imports", f"--descriptor_set_out={output}"]
        if binary.file:
            options.append(f"--descriptor_set_in={inputs}")
        # -P: no modules of the working directory
        command = [sys.executable, "-P", "-m", "grpc_tools.protoc", *options, _MAIN]
        try:
            done = subprocess.run(command, cwd=folder, capture_output=True, timeout=_MOST_SECONDS, check=False)
        except subprocess.TimeoutExpired:
            raise SchemaError(f"protoc did not compile it in {_MOST_SECONDS} seconds") from None
        if not done.returncode:
            with contextlib.suppress(FileNotFoundError):
                return output.read_bytes()
        raise SchemaError(_complaint(done.stderr.decode("utf-8", "replace"), f"{root}/"))


def _google_types() -> Iterator[str]:
    """Where protoc finds `google/type` and other common files; `google/protobuf` it has itself."""
    try:
        found = importlib.util.find_spec("google.type")
    except ModuleNotFoundError:
        found = None
    for folder in () if found is None else found.submodule_search_locations or ():
        yield f"-Igoogle={Path(folder).parent}"


def _complaint(output: str, root: str) -> str:
    """The first error of protoc, with the file and line."""
    found = _ERROR.search(output)
    if found is None:
        return f"protoc failed: {output.strip()[:300] or 'without a message'}"
    file, line, what = found[1].removeprefix(root), found[2], found[3][:300]
    place = "the schema" if file == _MAIN else file
    return f"line {line} of {place}: {what}" if line else f"{place}: {what}"
