"""Reads one task of a plan with a scan, for jobs that report and tolerate what Spark's options ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TypedDict, Unpack

import pyarrow as pa

from kafkalog.errors import DEFAULT_LIMITS, FileChangedError, Finding, Limits, ReadError
from kafkalog.log.ranges import PartitionRange
from kafkalog.scanning.conditions.expressions import conditions_of
from kafkalog.scanning.conditions.filters import PLACE, Filter
from kafkalog.scanning.options import RecordOptions
from kafkalog.scanning.planning import ReadTask
from kafkalog.scanning.scan import Scan


class PlanLimits(TypedDict):
    """The options of `plan` that follow from those of `read_task`."""

    condition: Filter | None
    whole_partitions: bool
    check_crcs: bool


def plan_limits(options: RecordOptions) -> PlanLimits:
    """What a plan leaves out, and what it does not divide, for tasks that are read with these options."""
    condition, _ = conditions_of(options.get("filters"), {})
    is_state = options.get("latest") is not None
    condition = condition and condition.about(PLACE) if is_state else condition
    return {"condition": condition, "whole_partitions": is_state, "check_crcs": options.get("check_crcs", True)}


def read_task(
    task: ReadTask,
    *,
    report: Callable[[Finding], object] = lambda finding: None,
    on_data_loss: str = "raise",
    limits: Limits = DEFAULT_LIMITS,
    **options: Unpack[RecordOptions],
) -> Iterator[pa.RecordBatch]:
    """Read the records of a task with `kafkalog.scan`, in bounded memory.

    ``on_data_loss="skip"`` reports a segment that has disappeared, or was replaced, since it was planned.
    """
    tolerates_data_loss = on_data_loss != "raise" and task.on_corruption != "stop"
    parts: list[PartitionRange] = []
    for part in task.parts:
        # a part without known outcomes replays transactions itself, and needs all of its segments for that
        is_free = task.isolation_level == "read_uncommitted" or part.outcomes is not None
        is_free = is_free and options.get("latest") is None
        # a segment that retention has deleted since costs only itself, not the other segments of its part
        parts += part.segment_by_segment() if tolerates_data_loss and is_free else [part]
    for part in parts:
        try:
            yield from _read_part(task, part, report, limits, options)
        except (ReadError, FileChangedError) as error:
            if on_data_loss == "raise":
                raise
            report(error.to_finding())


def _read_part(
    task: ReadTask,
    part: PartitionRange,
    report: Callable[[Finding], object],
    limits: Limits,
    options: RecordOptions,
) -> Iterator[pa.RecordBatch]:
    one = Scan(
        part.open(limits=limits),
        isolation_level=task.isolation_level,
        on_corruption=task.on_corruption,
        include_deleted=task.include_deleted,
        threads=1,
        **options,
    )
    try:
        yield from one.to_batches()
    finally:
        for finding in one.findings:
            report(finding)
