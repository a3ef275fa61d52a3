"""A damaged file of a partition costs its own records and nothing else."""

from __future__ import annotations

import shutil
import warnings

import builder
import numpy as np
import pytest
from damaged_partitions import changed_bytes
from effort import counted
from fuzzing import N_INPUTS, SEED, rows_of, tables

import kafkalog

TOPICS = ("p-multi", "p-txn", "p-v0v1v2-mixed", "p-v1-lz4")


def changes(good, bad):
    """Places that were changed, or between which the file was cut; and whether all else is where it was."""
    n = min(len(good), len(bad))
    one, other = (np.frombuffer(data, np.uint8) for data in (good, bad))
    if len(good) == len(bad):
        return np.flatnonzero(one != other), True
    differ = [np.flatnonzero(a != b) for a, b in ((one[:n], other[:n]), (one[::-1][:n], other[::-1][:n]))]
    start, end = (int(found[0]) if found.size else n for found in differ)
    return np.array(sorted((start, len(good) - end))), False


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
        for i in counted(range(max(20, N_INPUTS // (140 if kind == "log" else 500)))):
            path = files[int(rng.integers(0, len(files)))]
            name = path.parent.name
            topics = {name.rsplit("-", 1)[0], "p-multi"}
            unhurt = {key: rows for key, rows in pristine.items() if key.rsplit("-", 1)[0] in topics}
            good = path.read_bytes()
            bad = changed_bytes(rng, good)
            touched, in_place = changes(good, bad)
            mode = ("skip", "stop", "raise")[i % 3]
            note = f"seed {SEED}, input {i}: {touched[:4].tolist()} of {path.name}, {mode}"
            path.write_bytes(bad)
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
            inside = touched - position[np.searchsorted(position, touched, side="right") - 1]
            exact = bool((inside >= (8 if in_place else 17)).all())
            if exact:
                assert set(mine) <= set(wanted), note
            else:
                assert {row[1:] for row in mine} <= {row[1:] for row in wanted}, note
            if exact and in_place and mode != "skip":
                assert mine == wanted[: len(mine)], note
            if exact and in_place and len(mine) < len(wanted):
                assert error is not None or findings, note
            lost += len(mine) < len(wanted)
    if kind == "log":
        assert lost > 10
        assert errors > 5
