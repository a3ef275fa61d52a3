"""Findings as rows of a DataFrame, and those of lazy DataFrames, which come to the driver when an action runs."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Final

import pyarrow as pa
from pyspark.accumulators import AccumulatorParam
from pyspark.sql import SparkSession

from kafkalog.errors import CorruptionWarning, Finding, Reason
from kafkalog.scanning.planning import Plan

_ARROW: Final = {"int": pa.int64(), "bool": pa.bool_()}


def row_type(kind: Any) -> pa.StructType:
    """Return the Arrow type of a dataclass's fields: numbers, booleans and text."""
    names = ((one.name, str(one.type).removesuffix(" | None")) for one in fields(kind))
    return pa.struct([(name, _ARROW.get(annotation, pa.string())) for name, annotation in names])


FINDING: Final = row_type(Finding)

PLACE_FIELDS: Final = (
    pa.field("path", pa.string()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
)
"""What a row is about."""

FOUND_FIELDS: Final = (pa.field("findings", pa.list_(FINDING)), pa.field("seconds", pa.float64()))
"""What was found about it, and how long that took."""

MAX_FINDINGS: Final = 100
"""The most findings kept for each segment by default; they are sent to the driver."""


def finding_rows(findings: Iterable[Finding]) -> list[dict[str, Any]]:
    """Return findings as rows of `FINDING`."""
    return [finding.as_dict() for finding in findings]


def findings_of(rows: Iterable[Mapping[str, Any]] | None) -> list[Finding]:
    """Return rows of `FINDING` as findings."""
    return [Finding(**{**row, "reason": Reason(row["reason"])}) for row in rows or ()]


def warn_of(planned: Plan) -> None:
    """Warn of damage that was found while planning."""
    for finding in planned.findings:
        if finding.damage:
            warnings.warn(str(finding), CorruptionWarning, stacklevel=3)


class TaskFindings:
    """Findings of tasks, brought to the driver with Spark's accumulators, which Spark Connect does not have.

    Spark may run a task, or a whole query, more than once: each finding counts once.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._sum = spark.sparkContext.accumulator({}, _Union())

    def add(self, finding: Finding) -> None:
        """Add a finding; called in a task or on the driver."""
        self._sum.add({finding: None})

    @property
    def rows(self) -> list[Finding]:
        """The findings of the tasks that have ended, by path and position."""
        return sorted(self._sum.value, key=lambda one: (one.path or "", one.position or 0))


class _Union(AccumulatorParam[dict[Finding, None]]):
    """Adds dicts; a key that is there already changes nothing."""

    def zero(self, value: dict[Finding, None]) -> dict[Finding, None]:
        return {}

    def addInPlace(self, value1: dict[Finding, None], value2: dict[Finding, None]) -> dict[Finding, None]:
        # a new one each time: Spark may keep the old value for a task that it runs again
        return {**value1, **value2}
