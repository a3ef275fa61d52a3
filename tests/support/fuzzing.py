"""Reading hostile bytes, and what has to hold of whatever comes of it.

`KAFKALOG_FUZZ_SEED` and `KAFKALOG_FUZZ_N` choose other inputs and more of them.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
from effort import fuzz_inputs

import kafkalog
from kafkalog.errors import KafkalogError, Limits, Reason
from kafkalog.records.columns import ALL_COLUMNS

SEED = int(os.environ.get("KAFKALOG_FUZZ_SEED", "20261121"))
N_INPUTS = fuzz_inputs()
REGRESS = Path(__file__).parents[1] / "regress"
LIMITS = Limits(max_decompressed_bytes=4 * 2**20)
SECONDS = 1.0


class Mode(NamedTuple):
    """A way to read."""

    columns: Sequence[str]
    check_crcs: bool


MODES = (Mode(ALL_COLUMNS, True), Mode(("offset",), True), Mode(ALL_COLUMNS, False))


def keep(data, problem):
    """Store an input that did what none may do, for `regress/` to replay from then on."""
    REGRESS.mkdir(exist_ok=True)
    path = REGRESS / f"{hashlib.sha256(data).hexdigest()[:16]}.bin"
    path.write_bytes(data)
    path.with_suffix(".reason").write_text(problem + "\n")
    return path


def rows_of(table):
    found = {}
    columns = [table.column(name).to_pylist() for name in ("topic", "partition", "offset", "key", "value")]
    for topic, partition, *row in zip(*columns, strict=True):
        found.setdefault(f"{topic}-{partition}", []).append(tuple(row))
    return found


def tables(path, mode, threads, topics=None):
    """What a scan gives, what it found, and what it raised, within a second."""
    batches = []
    error = None
    scan = None
    begin = time.process_time()
    try:
        scan = kafkalog.scan(path, topics=topics, on_corruption=mode, threads=threads, limits=LIMITS)
        batches.extend(scan.to_batches())
    except KafkalogError as problem:
        error = problem
    assert time.process_time() - begin < SECONDS
    for batch in batches:
        batch.validate(full=True)
    assert error is None or error.path is not None
    findings = [] if scan is None else scan.findings
    assert all(isinstance(finding.reason, Reason) and str(finding) for finding in findings)
    schema = batches[0].schema if batches else kafkalog.scan(path, limits=LIMITS).schema
    return pa.Table.from_batches(batches, schema), findings, error
