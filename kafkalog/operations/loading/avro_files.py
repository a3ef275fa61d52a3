"""Reads Avro's container files, such as those of Kafka Connect's sinks, as record batches."""

from __future__ import annotations

import bz2
import json
import lzma
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, Final

import numpy as np
import pyarrow as pa
import pyarrow.types as pt

from kafkalog import format as kf
from kafkalog.errors import KafkalogError, Limits, ReadError, Reason
from kafkalog.protocol.encoder import uvarint
from kafkalog.records.codecs import Arena, decompress_into
from kafkalog.values.formats.avro import AvroValues
from kafkalog.values.payloads import Payloads
from kafkalog.values.types import SchemaError, TooWideError

_MAGIC: Final = b"Obj\x01"
_SYNC: Final = 16
_MOST_BYTES: Final = 2**28
"""Of a block, also after it is unpacked."""


class AvroFile:
    """A container file; has what `kafkalog.interchange.record_files.RecordFile` has.

    Attributes
    ----------
    name : str
    size, done : int
        Bytes of the file, and how many of them are read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.name, self.done = os.fspath(path), 0
        try:
            self.size = os.stat(path).st_size
        except OSError as error:
            raise ReadError.of(error, path) from error

    def batches(self, wanted: Callable[[pa.Schema], Sequence[str]]) -> Iterator[pa.RecordBatch]:
        """The rows, a record batch for each block; a value that is no record is in the column `value`.

        Raises
        ------
        ReadError
            The file cannot be read, or is damaged.
        """
        try:
            with open(self.name, "rb") as file:
                yield from self._blocks(file)
        except (OSError, EOFError, ValueError, lzma.LZMAError, zlib.error, pa.ArrowException, KafkalogError) as error:
            detail = f"not readable as avro, near byte {self.done}: {' '.join(str(error).split())}"
            raise ReadError(Reason.FILE_UNREADABLE, detail, path=self.name) from error

    def _blocks(self, file: BinaryIO) -> Iterator[pa.RecordBatch]:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ValueError("the first bytes are not those of an Avro file")
        about = _metadata(file)
        codec = about.get("avro.codec", b"null").decode()
        if codec not in _CODECS:
            raise ValueError(f"unknown codec {codec}; there are {', '.join(_CODECS)}")
        if "avro.schema" not in about:
            raise ValueError("its header has no schema")
        schema = json.loads(about["avro.schema"])
        try:
            # a block is the items of an array
            values = AvroValues(json.dumps({"type": "array", "items": schema}))
        except (SchemaError, TooWideError) as error:
            raise ValueError(f"its schema: {error}") from None
        sync = _exactly(file, _SYNC)
        while (n := _long(file, may_end=True)) is not None:
            data = _CODECS[codec](_exactly(file, _long(file) or 0))
            block = b"".join((uvarint(n << 1), data, b"\0"))
            decoded = values.decode(Payloads.of(pa.array([block], pa.large_binary())))
            if decoded.failures:
                raise ValueError(decoded.failures[0])
            if _exactly(file, _SYNC) != sync:
                raise ValueError("a block does not end where it says")
            self.done = file.tell()
            yield _rows(decoded.array.flatten())


def _rows(items: pa.Array) -> pa.RecordBatch:
    if not pt.is_struct(items.type):
        return pa.RecordBatch.from_arrays([items], ["value"])
    return pa.RecordBatch.from_arrays(items.flatten(), [field.name for field in items.type])


def _metadata(file: BinaryIO) -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    while n := _long(file) or 0:
        if n < 0:  # its size follows
            n = -n
            _long(file)
        for _ in range(n):
            name = _exactly(file, _long(file) or 0).decode()
            found[name] = _exactly(file, _long(file) or 0)
    return found


def _long(file: BinaryIO, *, may_end: bool = False) -> int | None:
    number = shift = 0
    while True:
        byte = file.read(1)
        if not byte and may_end and not shift:
            return None
        if not byte or shift > 63:
            raise EOFError("the file ends inside a number, or is damaged")
        number |= (byte[0] & 0x7F) << shift
        shift += 7
        if byte[0] < 0x80:
            return number >> 1 ^ -(number & 1)


def _exactly(file: BinaryIO, n: int) -> bytes:
    if not 0 <= n <= _MOST_BYTES:
        raise ValueError(f"a part of {n} bytes")
    data = file.read(n)
    if len(data) < n:
        raise EOFError("the file is cut off")
    return data


def _stream(make: Callable[[], Any]) -> Callable[[bytes], bytes]:
    def unpack(data: bytes) -> bytes:
        return _bounded(make().decompress(data, _MOST_BYTES + 1))

    return unpack


def _bounded(data: bytes) -> bytes:
    if len(data) > _MOST_BYTES:
        raise ValueError(f"a block is larger than {_MOST_BYTES} bytes")
    return data


def _of_batches(codec: kf.Codec) -> Callable[[bytes], bytes]:
    """A codec that record batches have, too."""

    def unpack(data: bytes) -> bytes:
        arena, limits = Arena(), Limits(max_decompressed_bytes=_MOST_BYTES)
        decompress_into(arena, codec, np.frombuffer(data, np.uint8), magic=2, limits=limits)
        return arena.data[: arena.used].tobytes()

    return unpack


def _snappy(data: bytes) -> bytes:
    # a checksum of four bytes follows
    found = _of_batches(kf.Codec.SNAPPY)(data[:-4])
    if zlib.crc32(found) != int.from_bytes(data[-4:], "big"):
        raise ValueError("the checksum of a block is wrong")
    return found


_CODECS: Final[dict[str, Callable[[bytes], bytes]]] = {
    "null": lambda data: data,
    "deflate": _stream(lambda: zlib.decompressobj(-15)),
    "snappy": _snappy,
    "zstandard": _of_batches(kf.Codec.ZSTD),
    "bzip2": _stream(bz2.BZ2Decompressor),
    "xz": _stream(lzma.LZMADecompressor),
}
