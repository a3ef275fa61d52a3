"""Fields of a message of Kafka's protocol in a flexible version, one behind the other.

Mirrors `ByteBufferAccessor` and the compact types of `org.apache.kafka.common.protocol.types`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TypeVar

Item = TypeVar("Item")


class CompactReader:
    """Reads fields from the start of a message on.

    Each method raises `ValueError` where the bytes end, or are no such field; the message says how it goes on from
    "the value".

    Parameters
    ----------
    data : bytes
    """

    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, n: int) -> bytes:
        """The next bytes."""
        if not 0 <= n <= len(self._data) - self._at:
            raise ValueError("ends early")
        self._at += n
        return self._data[self._at - n : self._at]

    def integer(self, n: int, *, signed: bool = True) -> int:
        """Big-endian, of `n` bytes."""
        return int.from_bytes(self.take(n), "big", signed=signed)

    def int32(self) -> int:
        """Big-endian, signed."""
        return self.integer(4)

    def uvarint(self) -> int:
        """Unsigned, of at most five bytes; 32 bits of it count."""
        number = 0
        for shift in range(0, 35, 7):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number & 0xFFFFFFFF
        raise ValueError("holds an overlong number")

    def array(self, item: Callable[[], Item]) -> list[Item]:
        """A compact array, which is not null."""
        n = self.uvarint() - 1
        if not 0 <= n <= len(self._data) - self._at:
            raise ValueError(f"holds an array of {n}")
        return [item() for _ in range(n)]

    def int32s(self) -> list[int]:
        """A compact array of numbers; empty also for null."""
        return [self.int32() for _ in range(max(self.uvarint() - 1, 0))]

    def string(self, errors: str = "strict") -> str | None:
        """A compact string, or null; `errors` as of `bytes.decode`."""
        n = self.uvarint()
        return self.take(n - 1).decode("utf-8", errors) if n else None

    def uuid(self) -> str:
        """As Kafka writes one: 22 characters of URL-safe base64."""
        return base64.urlsafe_b64encode(self.take(16)).decode().rstrip("=")

    def tags(self) -> None:
        """Pass over tagged fields."""
        for _ in range(self.uvarint()):
            self.uvarint()
            self.take(self.uvarint())
