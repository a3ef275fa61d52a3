"""Counts the records of a segment from a position on: those that are lost if a broker cuts the log there."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from kafkalog._kernels.wire import STATUS
from kafkalog.errors import Finding, KafkalogError, Reason
from kafkalog.log.compaction import GapMeter
from kafkalog.log.searching.neighbours import lost_in
from kafkalog.log.segment import Segment
from kafkalog.records.batch_table import valid_crcs
from kafkalog.records.spans import batch_error
from kafkalog.survey.evidence import LogDirState, SegmentContents, tail_finding


def remains(segment: Segment, start: int, state: LogDirState) -> tuple[SegmentContents, list[Finding]]:
    """Read what a segment contains, damage or not.

    Parameters
    ----------
    start : int
        Where a broker cuts the segment.

    Returns
    -------
    SegmentContents
        Of the whole segment.
    list of Finding
        The damage from `start` on, and one finding about the intact batches there: together, what the cut loses.
    """
    path, base = str(segment.path), segment.base_offset
    contents = SegmentContents(path, base, base - 1, segment.size_in_bytes)
    n_records, first, is_exact = 0, None, True
    gaps = GapMeter(base)

    def add(finding: Finding) -> None:
        end = contents.last_offset + 1
        contents.findings.append(tail_finding(finding, state, end) if segment.is_last else finding)

    try:
        with segment.open() as source:
            for window in segment.iter_windows(source, on_corruption="skip", report=add):
                batches, valid = window.batches, valid_crcs(window)
                for row in np.flatnonzero(~valid).tolist():
                    add(lost_in(segment, window, batch_error(STATUS["CRC_MISMATCH"], batches, row, path)))
                intact = batches[np.flatnonzero(valid)]
                gaps.feed(intact)
                # compressed messages of v0 and v1 do not say how many they are: their offsets are counted
                spans = np.diff(batches.last_offset, prepend=contents.last_offset)
                is_known, is_cut = batches.records_count >= 0, valid & (batches.position >= start)
                is_exact &= bool(is_known[is_cut].all())
                n_records += int(np.where(is_known, batches.records_count, spans)[is_cut].sum())
                if first is None and is_cut.any():
                    row = int(np.argmax(is_cut))
                    first = int(batches.base_offset[row] if is_known[row] else (batches.last_offset - spans)[row] + 1)
                if len(intact):
                    contents.last_offset = int(intact.last_offset[-1])
                source.release(window.data, window.start)
    except KafkalogError as error:
        add(error.to_finding())
    contents.has_gaps = gaps.has_gaps
    lost = [one for one in contents.findings if one.damage and (one.position or 0) >= start]
    if first is not None:
        detail = "intact batches after the place where a broker cuts the log"
        reason = lost[0].reason if lost else Reason.OFFSET_ORDER
        last = contents.last_offset
        found = Finding(reason, detail, path, start, base_offset=first, last_offset=last, n_records=n_records)
        lost.append(replace(found, certainty="exact" if is_exact else "at_most"))
    return contents, lost
