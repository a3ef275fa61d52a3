"""Findings as rows of a DataFrame. A task that makes no such rows warns of them: Spark has no other channel."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import fields
from typing import Any, Final

import pyarrow as pa

from kafkalog.errors import CorruptionWarning, Finding
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


def warn_of(planned: Plan) -> None:
    """Warn of damage that was found while planning."""
    for finding in planned.findings:
        if finding.damage:
            warnings.warn(str(finding), CorruptionWarning, stacklevel=3)
