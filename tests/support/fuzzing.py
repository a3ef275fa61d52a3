"""Reading hostile bytes, and what has to hold of whatever comes of it.

`KAFKALOG_FUZZ_SEED` and `KAFKALOG_FUZZ_N` choose other inputs and more of them.
"""

from __future__ import annotations

import hashlib
import os
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest
from effort import fuzz_inputs
from guard import guarded
from reading import EVERYTHING

import kafkalog
from kafkalog.errors import KafkalogError, Limits, Reason
from kafkalog.records.columns import ALL_COLUMNS, RecordColumns
from kafkalog.records.decode import decode
from kafkalog.records.header_walk import walk
from kafkalog.storage.source import BufferSource

SEED = int(os.environ.get("KAFKALOG_FUZZ_SEED", "20261121"))
N_INPUTS = fuzz_inputs()
REGRESS = Path(__file__).parents[1] / "regress"
LIMITS = Limits(max_decompressed_bytes=4 * 2**20)
MEMORY_GROWTH = 200 * 2**20
SECONDS = 1.0
BYTES_A_SECOND = 256 * 2**20


class Mode(NamedTuple):
    """A way to read."""

    columns: Sequence[str]
    check_crcs: bool


MODES = (Mode(ALL_COLUMNS, True), Mode(("offset",), True), Mode(ALL_COLUMNS, False))


class Drained(NamedTuple):
    """What reading on past every bad batch gave."""

    parts: list[RecordColumns]
    errors: list[KafkalogError]

    def n_bytes(self) -> int:
        """Bytes of the keys and values."""
        columns: list[Any] = [part[name] for part in self.parts for name in ("key", "value") if name in part]
        return sum(int(column.data.size) for column in columns)


def drain(data: Any, mode: Mode) -> Drained:
    """Every batch of a buffer, past those that are damaged, as far as their headers can be walked."""
    parts: list[RecordColumns] = []
    errors: list[KafkalogError] = []
    try:
        for window in walk(BufferSource(data), limits=LIMITS):
            first, n = 0, len(window.batches)
            while first < n:
                done = decode(
                    window,
                    mode.columns,
                    first=first,
                    selection=EVERYTHING,
                    check_crcs=mode.check_crcs,
                    limits=LIMITS,
                )
                if done.columns is not None:
                    parts.append(done.columns)
                first += done.n_batches
                if done.error is not None:
                    errors.append(done.error)
                    first += 1
    except KafkalogError as error:
        errors.append(error)
    return Drained(parts, errors)


def check_error(error: KafkalogError, size: int) -> None:
    """An error says where, and why."""
    assert isinstance(error.reason, Reason)
    assert error.detail
    assert error.position is not None
    assert 0 <= error.position < max(size, 1)
    assert error.base_offset is None or -(2**63) <= error.base_offset < 2**63
    assert error.length is None or error.length >= 0
    assert error.reason.value in str(error)


def keep(data: bytes, problem: str) -> Path:
    """Store an input that did what none may do, for `regress/` to replay from then on."""
    REGRESS.mkdir(exist_ok=True)
    path = REGRESS / f"{hashlib.sha256(data).hexdigest()[:16]}.bin"
    path.write_bytes(data)
    path.with_suffix(".reason").write_text(problem + "\n")
    return path


def feed(data: bytes, mode: Mode, at_start: bool = False) -> Drained:
    """Read an input out of guarded memory and hold what comes of it against the promises."""
    buffer = guarded(data, at_start=at_start)
    begin = time.process_time()
    try:
        drained = drain(buffer, mode)
        seconds = time.process_time() - begin
        for error in drained.errors:
            check_error(error, len(data))
            assert mode.check_crcs or error.reason is not Reason.CRC_MISMATCH
    except Exception as error:
        path = keep(data, f"{type(error).__name__}: {error} (columns {len(mode.columns)}, CRCs {mode.check_crcs})")
        raise AssertionError(f"seed {SEED}: {type(error).__name__}: {error}; the input is in {path}") from error
    if seconds > SECONDS and seconds > SECONDS + drained.n_bytes() / BYTES_A_SECOND:
        pytest.fail(f"seed {SEED}: {seconds:.1f} s; the input is in {keep(data, f'took {seconds:.1f} s')}")
    return drained


def peak_rss() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


Row = tuple[int, bytes | None, bytes | None]


def rows_of(table: pa.Table) -> dict[str, list[Row]]:
    found: dict[str, list[Row]] = {}
    columns = [table.column(name).to_pylist() for name in ("topic", "partition", "offset", "key", "value")]
    for topic, partition, *row in zip(*columns, strict=True):
        found.setdefault(f"{topic}-{partition}", []).append(tuple(row))
    return found


def tables(
    path: Path, mode: Any, threads: int, topics: Sequence[str] | None = None
) -> tuple[pa.Table, list[kafkalog.Finding], KafkalogError | None]:
    """What a scan gives, what it found, and what it raised, within a second."""
    batches: list[pa.RecordBatch] = []
    error: KafkalogError | None = None
    scan: kafkalog.Scan | None = None
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
