"""Compares the checksums of the messages inside compressed messages of formats v0 and v1.

That of the wrapper covers them, too, so what is stored is what was sent: a producer got them wrong. Readers give such
messages, and a broker serves them, but a consumer ends there.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from kafkalog.errors import Finding, KafkalogError, Limits, Reason
from kafkalog.records.batch_table import HeaderParser, Window, valid_crcs
from kafkalog.records.codecs import Arena, decompress_into
from kafkalog.records.legacy import outer_spans


def wrong_checksums(window: Window, *, limits: Limits, path: str) -> Iterator[Finding]:
    """Yield a note about each wrapper with such messages; `window` has batches with right checksums.

    What cannot be walked or decompressed is passed over: decoding says what is wrong with it.
    """
    wrappers = window.batches[np.flatnonzero((window.batches.magic < 2) & (window.batches.codec != 0))]
    arena, parser = Arena(), HeaderParser()
    while len(wrappers):
        _, n, outer = outer_spans(window, wrappers, check_crcs=False)
        starts, sizes = outer.value_start[:n].tolist(), np.maximum(outer.value_size[:n], 0).tolist()
        kinds = zip(wrappers.codec.tolist(), wrappers.magic.tolist(), strict=True)
        for row, (start, size, (codec, magic)) in enumerate(zip(starts, sizes, kinds, strict=False)):
            arena.used = 0
            try:
                decompress_into(arena, codec, window.data[start : start + size], magic=magic, limits=limits)
            except KafkalogError:
                continue
            content = arena.data[: arena.used]
            parts = parser.parse(content, 0, -1)[0]
            n_wrong = sum(int(np.count_nonzero(~valid_crcs(Window(content, 0, part)))) for part in parts)
            if n_wrong:
                yield Finding(
                    Reason.CRC_MISMATCH,
                    f"{n_wrong} of the {sum(map(len, parts))} messages inside have a wrong checksum of their own, which"
                    " their producer wrote: readers give them, but a consumer that compares checksums (check.crcs)"
                    " ends here",
                    path=path,
                    position=int(wrappers.position[row]),
                    length=int(wrappers.size_in_bytes[row]),
                    last_offset=int(wrappers.last_offset[row]),
                    damage=False,
                )
        wrappers = wrappers[n + 1 :]
