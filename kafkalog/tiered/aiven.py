"""Segments as Aiven's tiered storage plugin stores them: a manifest, chunks of the log, and indexes.

Manifest version 1. Each chunk of the `.log` is compressed with zstd, then encrypted with AES-256-GCM; the segment's
data key is encrypted with RSA (OAEP, SHA3-512), for one of several key pairs.
"""

from __future__ import annotations

import base64
import json
import os
import struct
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

import numpy as np
import zstandard

from kafkalog import format as kf
from kafkalog.errors import KafkalogError, LimitExceededError, ReadError, Reason, UnsupportedError, not_installed
from kafkalog.storage.files import read_file
from kafkalog.storage.location import Location
from kafkalog.storage.ranges import RangeSource
from kafkalog.storage.source import BufferSource, Bytes, ByteSource

Keys = Mapping[str, str | bytes | os.PathLike[str]]

EPOCHS_SUFFIX: Final = ".leader_epoch_checkpoint"
"""That of a segment's leader epochs in remote storage."""
INDEXES: Final = {
    kf.INDEX_SUFFIX: "offset",
    kf.TIME_INDEX_SUFFIX: "timestamp",
    kf.PRODUCER_SNAPSHOT_SUFFIX: "producerSnapshot",
    kf.TRANSACTION_INDEX_SUFFIX: "transaction",
    EPOCHS_SUFFIX: "leaderEpoch",
}
"""The names of indexes in a manifest, by suffix."""
_SEALED: Final = 28  # an IV of 12 bytes before, a tag of 16 bytes after
_MOST_CHUNK_BYTES: Final = 2**28
_MOST_MANIFEST_BYTES: Final = 2**26
_MOST_CHUNKS: Final = 2**22  # chunks of 256 bytes of a segment of 1 GiB
_NUMBERS: Final = 2**63


class Manifest:
    """What a manifest says of a segment. `keys` are private keys by id: PEM, or paths of such files."""

    def __init__(self, place: Location, keys: Keys) -> None:
        self._place, self._keys = place, keys
        try:
            content = json.loads(read_file(place, max_bytes=_MOST_MANIFEST_BYTES))
            if str(content.get("version")) != "1":
                detail = f"manifest version {content.get('version')!r}; kafkalog reads 1"
                raise UnsupportedError(Reason.UNSUPPORTED_SYSTEM, detail, path=place)
            if "icebergMetadata" in content or content.get("segmentFormat", "kafka") != "kafka":
                detail = "the segment is stored as an Iceberg table: its data is in Parquet files"
                raise UnsupportedError(Reason.UNSUPPORTED_SYSTEM, detail, path=place)
            chunks, meta = content["chunkIndex"], content["remoteLogSegmentMetadata"]
            segment = meta["remoteLogSegmentId"]
            of = segment["topicIdPartition"]
            self.topic = str(of["topicPartition"]["topic"])
            self.identity = str(of["topicId"]), _number(of["topicPartition"]["partition"]), str(segment["id"])
            self.is_compressed, self._encryption = bool(content["compression"]), content.get("encryption")
            self.chunk_bytes = _number(chunks["originalChunkSize"])
            self.size = _number(chunks["originalFileSize"], kf.MAX_SEGMENT_BYTES)
            self.places = {
                suffix: (_number(index["position"]), _number(index["size"], kf.MAX_SEGMENT_BYTES))
                for suffix, name in INDEXES.items()
                if (index := content["segmentIndexes"].get(name)) is not None
            }
            if self._encryption is not None and any(0 < size < _SEALED for _, size in self.places.values()):
                raise ValueError("an encrypted index has an IV and a tag")
            self.start_offset, self.end_offset = _number(meta["startOffset"]), _number(meta["endOffset"])
            self.max_timestamp = int(meta["maxTimestampMs"]) if "maxTimestampMs" in meta else None
            epochs = meta["segmentLeaderEpochs"].items()
            self.leader_epochs = {_number(int(epoch)): _number(start) for epoch, start in epochs}
            self.sizes = self._sizes(chunks)
        except KafkalogError:
            raise
        except _MALFORMED as error:
            detail = f"not a manifest of Aiven's plugin ({type(error).__name__}: {error})"
            raise ReadError(Reason.FILE_UNREADABLE, detail, path=place, position=0) from error
        self.starts = [0, *accumulate(self.sizes)]

    def _sizes(self, chunks: Mapping[str, Any]) -> list[int]:
        """The stored size of each chunk."""
        if not 0 < self.chunk_bytes <= 2**30 or self.size < 0:
            raise ValueError(f"chunks of {self.chunk_bytes} bytes of {self.size}")
        n = -(-self.size // self.chunk_bytes)
        if n > _MOST_CHUNKS:
            detail = f"{n} chunks of {self.chunk_bytes} bytes; kafkalog reads up to {_MOST_CHUNKS}"
            raise LimitExceededError(Reason.SEGMENT_TOO_LARGE, detail, path=self._place)
        if chunks["type"] == "fixed":
            last = _number(chunks["finalTransformedChunkSize"], kf.MAX_SEGMENT_BYTES)
            sizes = [_number(chunks["transformedChunkSize"], kf.MAX_SEGMENT_BYTES)] * (n - 1) + [last] * (n > 0)
        elif chunks["type"] == "variable":
            packed = base64.b64decode(chunks["transformedChunks"], validate=True)
            sizes = decode_sizes(_unpacked(packed, 16 + 4 * n))
        else:
            raise ValueError(f"chunk index of type {chunks['type']!r}")
        if len(sizes) != n or any(size < 0 for size in sizes):
            raise ValueError(f"sizes of {len(sizes)} chunks; the segment has {n}")
        if n and min(self.chunk_bytes, self.size) > _MOST_CHUNK_BYTES:
            detail = f"chunks of {self.chunk_bytes} bytes; kafkalog reads up to {_MOST_CHUNK_BYTES}"
            raise LimitExceededError(Reason.SEGMENT_TOO_LARGE, detail, path=self._place)
        return sizes

    @cached_property
    def unseal(self) -> Callable[[bytes], bytes]:
        """Decrypts a chunk or an index; raises `ValueError` if the bytes are not what was encrypted."""
        if self._encryption is None:
            return lambda data: data
        try:
            from Crypto.Cipher import AES, PKCS1_OAEP
            from Crypto.Hash import SHA3_512
            from Crypto.PublicKey import RSA
        except ImportError:
            detail = not_installed("the segment is encrypted, which needs pycryptodome", "tiered")
            raise UnsupportedError(Reason.NOT_INSTALLED, detail, path=self._place) from None
        try:
            name, wrapped = self._encryption["dataKey"].split(":")
            if name not in self._keys:
                known = ", ".join(map(repr, self._keys)) or "none"
                detail = f"encrypted for key {name!r}, which is not among the keys ({known}); add its private key"
                raise ReadError(Reason.FILE_UNREADABLE, detail, path=self._place)
            aad = base64.b64decode(self._encryption["aad"], validate=True)
            key = PKCS1_OAEP.new(RSA.import_key(_pem(self._keys[name])), hashAlgo=SHA3_512).decrypt(
                base64.b64decode(wrapped, validate=True)
            )
        except KafkalogError:
            raise
        except (ValueError, TypeError, KeyError, AttributeError):
            detail = "the private key does not decrypt the segment's data key"
            raise ReadError(Reason.FILE_UNREADABLE, detail, path=self._place) from None

        def unseal(data: bytes) -> bytes:
            cipher = AES.new(key, AES.MODE_GCM, nonce=data[:12])
            cipher.update(aad)
            return cipher.decrypt_and_verify(data[12:-16], data[-16:])

        return unseal

    def chunk(self, number: int, data: bytes) -> bytes:
        """The original bytes of a chunk; ValueError if they are damaged."""
        size = min(self.chunk_bytes, self.size - number * self.chunk_bytes)
        data = self.unseal(data)
        if self.is_compressed:
            data = _unpacked(data, size)
        if len(data) != size:
            raise ValueError(f"{len(data)} bytes instead of {size}")
        return data


class ChunkedSource(RangeSource):
    """The original bytes of a `.log` in chunks; `place` is the stored one."""

    def __init__(self, manifest: Manifest, place: Location) -> None:
        super().__init__(manifest.size, path=str(place))
        self._manifest, self._place = manifest, place
        with place.open() as stored:
            size = stored.size
        if size != manifest.starts[-1]:
            detail = f"has {size} bytes, but {manifest.starts[-1]} in the manifest"
            raise ReadError(Reason.FILE_UNREADABLE, detail, path=place, position=0)
        self.unit_bytes = manifest.chunk_bytes
        manifest.unseal  # noqa: B018 - an error about keys comes before anything is read

    def fetch(self, start: int, stop: int) -> Bytes:
        """See `RangeSource.fetch`; both ends are those of chunks, or of the file."""
        starts = self._manifest.starts
        first, end = start // self.unit_bytes, -(-stop // self.unit_bytes)
        stored = self._place.range(starts[first], starts[end])
        parts = []
        for number in range(first, end):
            data = stored[starts[number] - starts[first] : starts[number + 1] - starts[first]].tobytes()
            try:
                parts.append(self._manifest.chunk(number, data))
            except ValueError as error:
                detail = f"chunk {number} is damaged: {error}"
                position = number * self.unit_bytes
                raise ReadError(Reason.FILE_UNREADABLE, detail, path=self.path, position=position) from None
        return np.frombuffer(parts[0] if len(parts) == 1 else b"".join(parts), np.uint8)


def open_index(manifest: Manifest, place: Location, suffix: str) -> ByteSource:
    """An index out of the object that has all of a segment."""
    position, size = manifest.places[suffix]
    data = b""
    if size:
        with place.open() as source:
            if position + size > source.size:
                detail = f"has {source.size} bytes, but {INDEXES[suffix]} ends at {position + size} in the manifest"
                raise ReadError(Reason.FILE_UNREADABLE, detail, path=place)
            stored = source.window(position, position + size).tobytes()
        try:
            data = manifest.unseal(stored)
        except ValueError as error:
            detail = f"the index {INDEXES[suffix]} is damaged: {error}"
            raise ReadError(Reason.FILE_UNREADABLE, detail, path=place, position=position) from None
    return BufferSource(data, path=f"{place}")


def index_size(manifest: Manifest, suffix: str) -> int:
    """Bytes of an index, decrypted."""
    size = manifest.places[suffix][1]
    return size - _SEALED if size and manifest._encryption is not None else size


def decode_sizes(data: bytes) -> list[int]:
    """The sizes of chunks: their number, a base and a width, differences from the base, and the last size as it is."""
    (n,) = struct.unpack_from(">i", data)
    if n < 2:
        if n < 0 or len(data) != 4 + 4 * n:
            raise ValueError("sizes of chunks")
        return list(struct.unpack_from(f">{n}i", data, 4))
    base, width = struct.unpack_from(">ib", data, 4)
    end = 9 + (n - 1) * width
    if base < 0 or not 1 <= width <= 4 or len(data) != end + 4:
        raise ValueError("sizes of chunks")
    differences = [int.from_bytes(data[at : at + width], "big") for at in range(9, end, width)]
    return [*(base + one for one in differences), *struct.unpack_from(">i", data, end)]


_MALFORMED: Final = (
    *(ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError),
    *(struct.error, zstandard.ZstdError),
)
"""What JSON that is no manifest leads to."""


def _number(value: Any, most: int = _NUMBERS) -> int:
    """A whole number of a manifest; ValueError if it is none, negative, or above `most`."""
    if type(value) is not int or not 0 <= value <= most:
        raise ValueError(f"{str(value)[:40]!r} is not a number from 0 to {most}")
    return value


def _unpacked(data: bytes, most: int) -> bytes:
    """A frame of zstd; ValueError if it is damaged or larger than `most`, before memory is used for it."""
    try:
        size = zstandard.frame_content_size(data)  # -1 if the frame does not say
        if size > most:
            raise ValueError(f"{size} bytes, where {most} are the most")
        return zstandard.ZstdDecompressor().decompress(data, max_output_size=max(most, 1))
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None


def _pem(key: Any) -> bytes:
    """A private key, given as PEM or as the path of a file."""
    text = key if isinstance(key, bytes) else str(key).encode()
    if b"-----BEGIN" in text:
        return text
    if len(text) > _MOST_PATH_BYTES or b"\n" in text or b"\0" in text:
        raise ReadError(Reason.FILE_UNREADABLE, "a private key is neither PEM nor the path of a file", path=None)
    try:
        with open(key, "rb") as file:
            return file.read(_MOST_KEY_BYTES)
    except OSError as error:
        raise ReadError.of(error, os.fspath(key)) from error


_MOST_KEY_BYTES: Final = 2**20
_MOST_PATH_BYTES: Final = 2**12


def check_keys(keys: Keys) -> None:
    """Raise `ReadError` for a key whose file cannot be read, before anything else is read."""
    for key in keys.values():
        _pem(key)
