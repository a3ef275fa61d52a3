"""A damaged file of a partition costs its own records and nothing else."""

from __future__ import annotations

import shutil
import warnings
from typing import NamedTuple

import builder
import numpy as np
import numpy.typing as npt
import pytest
from effort import counted
from fuzzing import N_INPUTS, SEED, rows_of, tables

import kafkalog

TOPICS = ("p-multi", "p-txn", "p-v0v1v2-mixed", "p-v1-lz4")


class Damage(NamedTuple):
    """A file after an accident."""

    what: str
    data: bytes
    touched: npt.NDArray[np.int_]
    """Bytes that were changed, or between which the file was cut."""
    in_place: bool


def damage(rng, data):
    """One accident of a disk, a cable, or a program."""
    size = len(data)
    at = int(rng.integers(0, max(size, 1)))
    n = min(int(rng.choice([1, 2, 7, 61, 512, 4096])), size - at)
    what = str(
        rng.choice(["flip", "flips", "noise", "zeros", "ones", "stale", "cut", "insert", "remove", "repeat", "append"])
    )
    changed = bytearray(data)
    touched, in_place = np.arange(at, at + n), True
    if what == "flip" and size:
        changed[at] ^= 1 << int(rng.integers(0, 8))
        touched = np.array([at])
    elif what == "flips" and size:
        touched = rng.integers(0, size, 6)
        for place in touched.tolist():
            changed[place] ^= int(rng.integers(1, 256))
    elif what == "noise":
        changed[at : at + n] = rng.bytes(n)
    elif what == "zeros":
        changed[at : at + n] = bytes(n)
    elif what == "ones":
        changed[at : at + n] = b"\xff" * n
    elif what == "stale":
        source = int(rng.integers(0, size - n + 1))
        changed[at : at + n] = data[source : source + n]
    else:
        in_place = False
        touched = np.array([at, at + n])
        if what == "cut":
            del changed[at:]
        elif what == "insert":
            changed[at:at] = rng.bytes(n)
        elif what == "remove":
            del changed[at : at + n]
        elif what == "repeat":
            changed[at:at] = data[at : at + n]
        elif what == "append":
            changed += rng.bytes(n)
    return Damage(what, bytes(changed), touched, in_place)


@pytest.mark.parametrize("kind", ["log", "sidecar"])
def test_a_damaged_file_costs_its_own_records_and_nothing_else(kind, tmp_path, log_dir):
    root = tmp_path / "log_dir"
    root.mkdir()
    for path in log_dir.iterdir():
        if path.is_dir() and path.name.rsplit("-", 1)[0] in TOPICS:
            shutil.copytree(path, root / path.name)
    pristine = rows_of(kafkalog.read_table(root))
    logs = [path for path in sorted(root.glob("*/*")) if path.suffix == ".log" and path.stat().st_size]
    others = [path for path in sorted(root.glob("*/*")) if path.suffix != ".log" and path.is_file()]
    files = logs if kind == "log" else others
    starts = {path: np.array([start for start, _ in builder.batch_positions(path.read_bytes())]) for path in logs}
    rng = np.random.default_rng([SEED, 9, kind == "log"])
    lost = errors = 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
        for i in counted(range(max(60, N_INPUTS // (140 if kind == "log" else 500)))):
            path = files[int(rng.integers(0, len(files)))]
            name = path.parent.name
            topics = {name.rsplit("-", 1)[0], "p-multi"}
            unhurt = {key: rows for key, rows in pristine.items() if key.rsplit("-", 1)[0] in topics}
            good = path.read_bytes()
            bad = damage(rng, good)
            mode = ("skip", "stop", "raise")[i % 3]
            note = f"seed {SEED}, input {i}: {bad.what} at {bad.touched[:4].tolist()} of {path.name}, {mode}"
            path.write_bytes(bad.data)
            try:
                table, findings, error = tables(root, mode, 1 + i // 3 % 2, [*topics])
            finally:
                path.write_bytes(good)
            assert error is None or mode == "raise", note
            errors += error is not None
            rows = rows_of(table)
            if kind == "sidecar":
                assert error is None, note
                assert rows == unhurt, note
                continue
            mine, wanted = rows.pop(name, []), unhurt.pop(name)
            if error is None:
                assert rows == unhurt, note
            # offsets and leader epochs are not under the checksum, and a splice can pair a head with another body
            position = starts[path]
            inside = bad.touched - position[np.searchsorted(position, bad.touched, side="right") - 1]
            exact = bool((inside >= (8 if bad.in_place else 17)).all())
            if exact:
                assert set(mine) <= set(wanted), note
            else:
                assert {row[1:] for row in mine} <= {row[1:] for row in wanted}, note
            if exact and bad.in_place and mode != "skip":
                assert mine == wanted[: len(mine)], note
            if exact and bad.in_place and len(mine) < len(wanted):
                assert error is not None or findings, note
            lost += len(mine) < len(wanted)
    if kind == "log":
        assert lost > 10
        assert errors > 5
