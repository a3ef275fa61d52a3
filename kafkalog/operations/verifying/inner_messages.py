"""Compares the checksums of the messages inside compressed messages of formats v0 and v1.

That of the wrapper covers them, too, so what is stored is what was sent: a producer got them wrong. Readers give such
messages, and a broker serves them, but a consumer ends there.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from kafkalog.errors import Finding, KafkalogError, Limits, Reason
from kafkalog.records.batch_table import Window, valid_crcs, whole_batches
from kafkalog.records.codecs import Arena, decompress_into
from kafkalog.storage.source import Bytes

_KEY: Final = {0: 18, 1: 26}
"""Where the size of the key stands in a message, by its magic."""


def wrong_checksums(window: Window, *, limits: Limits, path: str) -> Iterator[Finding]:
    """Yield a note about each wrapper with such messages; `window` has batches with right checksums.

    What cannot be decompressed is passed over: decoding says what is wrong with it.
    """
    batches = window.batches
    for row in np.flatnonzero((batches.magic < 2) & (batches.codec != 0)).tolist():
        at, size = int(batches.position[row]), int(batches.size_in_bytes[row])
        magic, last = int(batches.magic[row]), int(batches.last_offset[row])
        message, arena = window.data[at - window.start :][:size], Arena()
        try:
            decompress_into(arena, int(batches.codec[row]), _value(message, _KEY[magic]), magic=magic, limits=limits)
        except KafkalogError:
            continue
        inner = Window(arena.data[: arena.used], 0, whole_batches(arena.data[: arena.used], 0))
        n_wrong = int(np.count_nonzero(~valid_crcs(inner)))
        if n_wrong:
            yield Finding(
                Reason.CRC_MISMATCH,
                f"{n_wrong} of the {len(inner.batches)} messages inside have a wrong checksum of their own, which their"
                " producer wrote: readers give them, but a consumer that compares checksums (check.crcs) ends here",
                path=path,
                position=at,
                length=size,
                last_offset=last,
                damage=False,
            )


def _value(message: Bytes, key: int) -> Bytes:
    """The value of a message whose key's size stands at `key`; the sizes may be wrong."""
    value = key + 4 + max(_int32(message, key), 0)
    return message[value + 4 :][: max(_int32(message, value), 0)]


def _int32(data: Bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4].tobytes(), "big", signed=True)
