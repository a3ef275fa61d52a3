"""Hostile files under every public function: whatever a partition and its log dir hold, nothing but a `KafkalogError`.

`KAFKALOG_FUZZ_SEED` and `KAFKALOG_FUZZ_N` choose other partitions and more of them, `KAFKALOG_FUZZ_FIRST` begins at
another number.
"""

from __future__ import annotations

import os
import shutil
import time
import traceback
import warnings
from collections import Counter
from pathlib import Path

import pytest
from damaged_partitions import Damaged, damaged
from effort import fuzz_inputs, thinned
from surfaces import calls

import kafkalog
from kafkalog.errors import FunctionWarning, KafkalogError, Reason

SEED = int(os.environ.get("KAFKALOG_FUZZ_SEED", "20261121"))
N_PARTS = 4
N_PARTITIONS = max(2 * N_PARTS, fuzz_inputs() // 4000)
FIRST = int(os.environ.get("KAFKALOG_FUZZ_FIRST", "0"))
SECONDS = 3.0


def failures(case: Damaged, out: Path, number: int, reasons: Counter[str]) -> list[str]:
    """What is wrong with what came of each call."""
    found = []
    for name, call in calls(case.root, case.partition, out, number):
        begin = time.process_time()
        try:
            call()
        except KafkalogError as error:
            reasons[error.reason] += 1
            if not isinstance(error.reason, Reason) or not str(error):
                found.append(f"{name}: {error!r}")
        except Exception as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            found.append(f"{name}: {type(error).__name__}: {error} at {Path(where.filename).name}:{where.lineno}")
        if time.process_time() - begin > SECONDS:
            found.append(f"{name}: {time.process_time() - begin:.1f} s")
    return found


def run(number: int, tmp_path: Path, reasons: Counter[str]) -> list[str]:
    """One partition under all; what it did wrong, with what makes it again."""
    base = tmp_path / "case"
    base.mkdir()
    out = base / "out"
    out.mkdir()
    try:
        case = damaged(SEED, number, base / "logs")
        before = snapshot(case.root)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for category in (
                kafkalog.CorruptionWarning,
                kafkalog.TransactionWarning,
                kafkalog.ConfigWarning,
                FunctionWarning,
            ):
                warnings.simplefilter("ignore", category)
            found = failures(case, out, number, reasons)
        if snapshot(case.root) != before:
            found.append("the source was changed")
        return [f"seed {SEED}, number {number} ({'; '.join(case.what)}): {one}" for one in found]
    finally:
        shutil.rmtree(base)


def snapshot(root: Path) -> dict[str, bytes | None]:
    return {str(path): path.read_bytes() if path.is_file() else None for path in root.rglob("*")}


@pytest.mark.timeout(max(300, 10 * N_PARTITIONS))
@pytest.mark.parametrize("part", thinned(range(N_PARTS), N_PARTS))
def test_damaged_files_give_kafkalog_errors_on_every_surface(part: int, tmp_path: Path) -> None:
    reasons: Counter[str] = Counter()
    found = []
    for number in range(FIRST + part, FIRST + N_PARTITIONS, N_PARTS):
        found += run(number, tmp_path, reasons)
    assert not found, "\n".join(found)
    assert len(reasons) > 1
