"""The fixed fields at the start of one batch or message, read in Python: for damage and for single batches.

The only module in Python that knows where these fields are. Kernels read headers in bulk: see
`kafkalog.records.header_walk`. Nothing is checked here, and each number is signed as in Kafka.

Source: DefaultRecordBatch, LegacyRecord and AbstractLegacyRecordBatch, Kafka 4.3.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kafkalog import format as kf
from kafkalog.storage.source import Bytes

MAGIC_END: Final = 17
"""Bytes up to the magic, which has the same place in all formats."""
LAST_OFFSET_END: Final = 27
"""Bytes up to the last offset of a v2 batch."""
_JAVA_BYTE_MAX: Final = 127


class BatchHeader:
    """Fields of the batch or message that starts with these bytes: compare `len` with what is needed first."""

    __slots__ = ("_bytes",)

    def __init__(self, data: Bytes | bytes) -> None:
        self._bytes = bytes(memoryview(data)[: kf.RECORD_BATCH_OVERHEAD])

    def __len__(self) -> int:
        """How many bytes of the header are known, at most 61."""
        return len(self._bytes)

    def _int(self, start: int, stop: int) -> int:
        return int.from_bytes(self._bytes[start:stop], "big", signed=True)

    @property
    def offset(self) -> int:
        """Base offset of a v2 batch; offset of a message, and of the last record inside a compressed one."""
        return self._int(0, 8)

    @property
    def size_in_bytes(self) -> int:
        """Bytes of the whole batch by its size field, which may be wrong or negative."""
        return kf.LOG_OVERHEAD + self._int(8, 12)

    @property
    def magic(self) -> int:
        """The format, 0 to 2. Other bytes are damage; Java reads those above 127 as negative."""
        return self._bytes[16]

    @property
    def crc(self) -> int:
        """The checksum."""
        return self._int(*((12, 16) if self.magic < 2 else (MAGIC_END, 21))) & 0xFFFFFFFF

    @property
    def is_message(self) -> bool:
        """Whether Java reads a v0 or v1 message here: it reads a magic above 127 as negative, and all others as v2."""
        return not 1 < self.magic <= _JAVA_BYTE_MAX

    @property
    def is_whole_v2(self) -> bool:
        """Whether these are all 61 bytes of the header of a v2 batch."""
        return len(self._bytes) == kf.RECORD_BATCH_OVERHEAD and self.magic == 2

    @property
    def attributes(self) -> int:
        """Codec, timestamp type and the other bits."""
        return self._int(17, 18) if self.is_message else self._int(21, 23)

    @property
    def last_offset_delta(self) -> int:
        """Last offset of a v2 batch minus its base offset."""
        return self._int(23, LAST_OFFSET_END)

    @property
    def timestamp(self) -> int | None:
        """Milliseconds: of a v1 message, or the first of a v2 batch. The largest, if a delete horizon stands there.

        None if there is none.
        """
        if self.magic == 0:
            return None
        if self.magic == 1:
            timestamp = self._int(18, 26)
        else:
            timestamp = self._int(35, 43) if self.attributes & kf.DELETE_HORIZON_BIT else self._int(27, 35)
        return timestamp if timestamp >= 0 else None

    @property
    def n_records(self) -> int:
        """Records of a v2 batch."""
        return self._int(57, kf.RECORD_BATCH_OVERHEAD)


class Claims(NamedTuple):
    """The offsets and records that a header gives its batch, damaged or not."""

    base_offset: int | None
    """None for a compressed message of v0 or v1, whose header has the last offset alone."""
    last_offset: int
    records_count: int
    """-1 for a compressed message of v0 or v1."""
    is_marker: bool
    """Whether it is the header of a transaction marker, which is no record."""

    @property
    def n_records(self) -> int:
        """Number of records that readers return."""
        return 0 if self.is_marker else self.records_count


def claims_of(header: BatchHeader) -> Claims | None:
    """Return what a header says of its batch, where a message is a batch of one record; None if it is not complete.

    A header whose magic does not exist is read as one of v2.
    """
    if len(header) > MAGIC_END and header.magic < 2:
        is_single = not header.attributes & kf.CODEC_MASK
        return Claims(header.offset if is_single else None, header.offset, 1 if is_single else -1, is_marker=False)
    if len(header) < kf.RECORD_BATCH_OVERHEAD:
        return None
    base, delta, count = header.offset, header.last_offset_delta, header.n_records
    of_transaction = kf.CONTROL_BIT | kf.TRANSACTIONAL_BIT
    is_marker = header.attributes & of_transaction == of_transaction and not delta and count == 1
    return Claims(base, base + delta, count, is_marker)
