"""Reports batches that are kept for their right checksums, but whose records cannot be decoded or are out of order."""

from __future__ import annotations

from dataclasses import replace
from operator import itemgetter

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import Finding, LimitExceededError, Limits
from kafkalog.operations.verifying.record_headers import COLUMNS, going_back
from kafkalog.records.batch_table import BatchTable, Window, hidden_records, lost_batch
from kafkalog.records.decode import decode_all
from kafkalog.records.selection import Selection
from kafkalog.repair.salvaging.plan import file_positions


def undecodable(
    window: Window,
    start: npt.NDArray[np.int64],
    end: npt.NDArray[np.int64],
    path: str,
    limits: Limits,
    *,
    before: int | None = None,
    decompress: bool = False,
) -> list[Finding]:
    """Findings about the batches of gathered ranges (see `gather`) that cannot be decoded.

    Their checksums are right, or are compared elsewhere. A batch that is larger than the limits allow is no damage.

    Parameters
    ----------
    before : int, optional
        The last offset before the batches.
    decompress : bool
        Whether to look into compressed batches of v2, too. It takes ten times as long as the search for intact
        batches. The codec and the number of records are looked at in any case.
    """
    everything = Selection(include_control=True)
    found = hidden_records(window.batches, path)
    if not decompress:
        window = window._replace(batches=window.batches[~_is_opaque(window.batches)], valid=None)
    batches = window.batches
    for decoded in decode_all(window, COLUMNS, selection=everything, check_crcs=False, limits=limits, path=path):
        if decoded.columns is not None:
            found += going_back(decoded.columns, batches, path, before)
        if decoded.error is not None:
            is_damage = not isinstance(decoded.error, LimitExceededError)
            found.append(replace(lost_batch(decoded.error, batches), damage=is_damage))
    at = np.array([finding.position for finding in found], np.int64)
    kept = "its checksum is right, so the batch is kept as it is"
    return [
        replace(one, detail=f"{one.detail}; {kept}", position=position, n_records=0, certainty="exact")
        for position, one in sorted(zip(file_positions(at, start, end).tolist(), found, strict=True), key=itemgetter(0))
    ]


def _is_opaque(batches: BatchTable) -> npt.NDArray[np.bool_]:
    """Whether batches have to be decompressed to tell whether they can be decoded."""
    has_count = batches.records_count >= 0
    opaque: npt.NDArray[np.bool_] = (batches.codec != 0) & (batches.codec <= kf.Codec.ZSTD) & has_count
    opaque &= batches.magic >= 2  # older ones hide their first offset, too
    return opaque
