"""Logs to dump, and what comes of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import builder
import numpy as np

import kafkalog
from kafkalog._kernels.dump_text import OPTIONS as OPTIONS_OF_TEXT
from kafkalog._kernels.dump_text import format_rows
from kafkalog._kernels.dump_walk import STATE, walk_batches
from kafkalog._kernels.wire import STATUS
from kafkalog.errors import KafkalogError, Reason
from kafkalog.operations.dumping.dump_walk import Table

OUTPUT_FULL = STATUS["OUTPUT_FULL"]
ONE = builder.record_v2(0, 0, b"k", b"v")


OPTIONS = (
    {},
    {"deep_iteration": True},
    {"print_data_log": True},
    {"print_data_log": True, "skip_record_metadata": True},
    {"print_data_log": True, "dialect": "2.8"},
    {"print_data_log": True, "max_bytes": 200},
)


def dumped(path: str, **options: Any) -> list[str]:
    """The lines of one file, and one that begins with ``EXCEPTION`` where the tool throws."""
    lines = []
    try:
        lines.extend(kafkalog.dump(path, **options))
    except KafkalogError as error:
        lines.append(f"EXCEPTION {error}")
    return lines


def write_log(folder: Path, data: bytes, base_offset: int = 0) -> str:
    path = folder / f"{base_offset:020d}.log"
    path.write_bytes(data)
    return str(path)


def findings(path: Path, **options: Any) -> list[tuple[Reason, bool]]:
    dump = kafkalog.dump(path, **options)
    for _ in dump:
        pass
    return [(finding.reason, finding.damage) for finding in dump.findings]


def printed(window: Any) -> bytes:
    """What the kernels print of a window, uncompressed batches only."""
    state, table = np.zeros(STATE["size"], np.int64), Table(64, 64)
    state[STATE["previous"]] = -1
    n = window.size
    text = b""
    status = OUTPUT_FULL
    while status == OUTPUT_FULL:
        status, n_batches, n_records = walk_batches(
            window, 0, n, n, True, n, 100, state, table.batch_bytes, table.record_bytes
        )
        out, at = np.empty(2**20, np.uint8), np.array([0, 0, -1, 0])
        contents = OPTIONS_OF_TEXT["contents"]
        _, n_bytes = format_rows(
            table.batch_bytes, n_batches, table.record_bytes, n_records, window, contents, 0, 0, out, at
        )
        text += out[:n_bytes].tobytes()
    return text
