"""Where a log begins: the log start offset, from the checkpoint of the log dir and the first segment."""

from __future__ import annotations

from collections.abc import Sequence

from kafkalog import format as kf
from kafkalog.errors import Finding, KafkalogError, Reason
from kafkalog.log import live
from kafkalog.log.searching.missing import start_finding
from kafkalog.log.segment import Segment
from kafkalog.storage.location import Place


def log_start(checkpointed: int | None, first_base_offset: int | None) -> int:
    """The first offset that is not deleted: the checkpointed one, or the first segment's base offset if that is larger.

    Retention may have deleted segments since the checkpoint was written, which brokers do once a minute.
    """
    return max(checkpointed or 0, first_base_offset or 0)


def usable_start(directory: Place, start: int, segments: Sequence[Segment]) -> tuple[int, list[Finding]]:
    """The log start offset that a checkpointed one stands for, and the finding about one outside of the log.

    One past the end of the log is damage of the checkpoint: the records are there, so the log begins with the first
    segment. A broker would delete them. While one runs, the checkpoint may be newer than the segments.
    """
    first = segments[0].base_offset if segments else 0
    if start < first:
        return first, [start_finding(str(directory), start, first, kf.LOG_START_OFFSET_CHECKPOINT)]
    if not segments or start <= segments[-1].base_offset:
        return start, []
    try:
        end = segments[-1].next_offset
    except KafkalogError:
        return start, []  # reading reports this
    root = directory.absolute().parent
    if start <= end or live.is_live(root):
        return start, []
    detail = (
        f"the log start offset {start} of {directory.name} is past the log end {end}, so it is not used. A broker"
        f' deletes all segments at its start ("logEndOffset {end} has become smaller than logStartOffset {start}"):'
        " remove the line before you start it"
    )
    path = str(root / kf.LOG_START_OFFSET_CHECKPOINT)
    return first, [Finding(Reason.LOG_START_BEHIND_END, detail, path, base_offset=start, n_records=0)]
