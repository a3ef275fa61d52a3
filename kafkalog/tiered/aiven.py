"""Segments as Aiven's tiered storage plugin stores them: a manifest, chunks of the log, and indexes.

Manifest version 1. Each chunk of the `.log` is compressed with zstd, then encrypted with AES-256-GCM; the segment's
data key is encrypted with RSA (OAEP, SHA3-512), for one of several key pairs.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Callable, Mapping
from functools import cached_property
from itertools import accumulate
from typing import Any, Final

import numpy as np
import zstandard

from kafkalog import format as kf
from kafkalog.errors import KafkalogError, LimitExceededError, ReadError, Reason, UnsupportedError
from kafkalog.storage.location import Location
from kafkalog.storage.ranges import RangeSource
from kafkalog.storage.source import BufferSource, Bytes, ByteSource, read_file

Keys = Mapping[str, Any]

INDEXES: Final = {
    kf.INDEX_SUFFIX: "offset",
    kf.TIME_INDEX_SUFFIX: "timestamp",
    kf.PRODUCER_SNAPSHOT_SUFFIX: "producerSnapshot",
    kf.TRANSACTION_INDEX_SUFFIX: "transaction",
    ".leader_epoch_checkpoint": "leaderEpoch",
}
"""The names of indexes in a manifest, by suffix."""
_SEALED: Final = 28  # an IV of 12 bytes before, a tag of 16 bytes after
_MOST_CHUNK_BYTES: Final = 2**28
_MOST_MANIFEST_BYTES: Final = 2**26


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
            self.topic = str(meta["remoteLogSegmentId"]["topicIdPartition"]["topicPartition"]["topic"])
            self.is_compressed, self._encryption = bool(content["compression"]), content.get("encryption")
            self.chunk_bytes, self.size = int(chunks["originalChunkSize"]), int(chunks["originalFileSize"])
            self.places = {
                suffix: (int(one["position"]), int(one["size"]))
                for suffix, name in INDEXES.items()
                if (one := content["segmentIndexes"].get(name)) is not None
            }
            self.start_offset, self.end_offset = int(meta["startOffset"]), int(meta["endOffset"])
            self.leader_epochs = {int(epoch): int(start) for epoch, start in meta["segmentLeaderEpochs"].items()}
            self.sizes = self._sizes(chunks)
        except KafkalogError:
            raise
        except (ValueError, KeyError, TypeError, AttributeError, struct.error, zstandard.ZstdError) as error:
            detail = f"not a manifest of Aiven's plugin ({type(error).__name__}: {error})"
            raise ReadError(Reason.FILE_UNREADABLE, detail, path=place) from error
        self.starts = [0, *accumulate(self.sizes)]

    def _sizes(self, chunks: Mapping[str, Any]) -> list[int]:
        """The stored size of each chunk."""
        if not 0 < self.chunk_bytes <= 2**30 or self.size < 0:
            raise ValueError(f"chunks of {self.chunk_bytes} bytes of {self.size}")
        n = -(-self.size // self.chunk_bytes)
        if chunks["type"] == "fixed":
            last = int(chunks["finalTransformedChunkSize"])
            sizes = [int(chunks["transformedChunkSize"])] * (n - 1) + [last] * (n > 0)
        elif chunks["type"] == "variable":
            packed = base64.b64decode(chunks["transformedChunks"], validate=True)
            sizes = decode_sizes(zstandard.ZstdDecompressor().decompress(packed, max_output_size=2**26))
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
            detail = "the segment is encrypted, which needs pycryptodome: pip install 'kafkalog[tiered]'"
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
        except (ValueError, TypeError, KeyError, AttributeError, OSError) as error:
            if isinstance(error, KafkalogError):
                raise
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
            try:
                data = zstandard.ZstdDecompressor().decompress(data, max_output_size=size)
            except zstandard.ZstdError as error:
                raise ValueError(str(error)) from None
        if len(data) != size:
            raise ValueError(f"{len(data)} bytes instead of {size}")
        return data


class ChunkedSource(RangeSource):
    """The original bytes of a `.log` in chunks; `place` is the stored one."""

    def __init__(self, manifest: Manifest, place: Location) -> None:
        super().__init__(manifest.size, path=str(place))
        self._manifest, self._stored = manifest, place.open()
        if self._stored.size != manifest.starts[-1]:
            detail = f"has {self._stored.size} bytes, but {manifest.starts[-1]} in the manifest"
            raise ReadError(Reason.FILE_UNREADABLE, detail, path=place)
        self.unit_bytes = manifest.chunk_bytes
        manifest.unseal  # noqa: B018 - an error about keys comes before anything is read
        self.identity = self._stored.identity

    def fetch(self, start: int, stop: int) -> Bytes:
        """See `RangeSource.fetch`; both ends are those of chunks, or of the file."""
        starts = self._manifest.starts
        first, end = start // self.unit_bytes, -(-stop // self.unit_bytes)
        stored = self._stored.fetch(starts[first], starts[end])
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


def _pem(key: Any) -> bytes:
    """A private key, given as PEM or as the path of a file."""
    text = key if isinstance(key, bytes) else str(key).encode()
    if b"-----BEGIN" in text:
        return text
    with open(key, "rb") as file:
        return file.read()
