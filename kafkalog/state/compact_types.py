"""Read the fields of a message of Kafka's protocol, in a flexible version.

Mirrors `ByteBufferAccessor` and the compact types of `org.apache.kafka.common.protocol.types`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TypeVar

Item = TypeVar("Item")


class CompactReader:
    """Reads consecutive fields from the start of a message.

    Each method raises `ValueError` if the bytes end, or are not such a field. Its text completes a sentence that
    begins with "the value", such as "the value ends early".

    Parameters
    ----------
    data : bytes
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, n: int) -> bytes:
        """Read the next `n` bytes."""
        if not 0 <= n <= len(self._data) - self._at:
            raise ValueError("ends early")
        self._at += n
        return self._data[self._at - n : self._at]

    def integer(self, n: int, *, signed: bool = True) -> int:
        """Read a big-endian integer of `n` bytes."""
        return int.from_bytes(self.take(n), "big", signed=signed)

    def int32(self) -> int:
        """Read a signed 32-bit integer, big-endian."""
        return self.integer(4)

    def uvarint(self) -> int:
        """Read an unsigned varint of at most five bytes; its low 32 bits count."""
        number = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number & 0xFFFFFFFF
        raise ValueError("holds an overlong number")

    def array(self, item: Callable[[], Item]) -> list[Item]:
        """Read a compact array that must not be null, one item per call of `item`."""
        n = self.uvarint() - 1
        if not 0 <= n <= len(self._data) - self._at:
            raise ValueError(f"holds an array of {n}")
        return [item() for _ in range(n)]

    def int32s(self) -> list[int]:
        """Read a compact array of 32-bit integers; null gives an empty list."""
        return [self.int32() for _ in range(max(self.uvarint() - 1, 0))]

    def string(self, errors: str = "strict") -> str | None:
        """Read a compact string, or None for null; `errors` as for `bytes.decode`."""
        n = self.uvarint()
        return self.take(n - 1).decode("utf-8", errors) if n else None

    def uuid(self) -> str:
        """Read a UUID as the text that Kafka writes: 22 characters of URL-safe base64."""
        return base64.urlsafe_b64encode(self.take(16)).decode().rstrip("=")

    def tags(self) -> None:
        """Skip tagged fields."""
        for _ in range(self.uvarint()):
            self.uvarint()
            self.take(self.uvarint())
