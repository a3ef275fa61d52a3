"""Random queries over damaged partitions give the same records, whichever way they are read.

Sizes of windows, threads, mappings and forms of columns must not show. `KAFKALOG_FUZZ_SEED` and `KAFKALOG_WAYS_N`
choose other partitions and more of them, `KAFKALOG_FUZZ_FIRST` begins at another number.
"""

import os

import damaged_partitions
import misplaced_files
import numpy as np
import pytest
from effort import counted, examples, thinned
from ways import COLUMNS, WAYS, Outcome, outcome, seams

from kafkalog.errors import KafkalogError


def random_query(rng, rows):
    """Columns, ranges, filters and what to do about damage, with numbers and keys from near these records."""
    query = {
        "columns": ["offset", *(name for name in COLUMNS[1:] if rng.random() < 0.4)],
        "include_control": bool(rng.random() < 0.3),
        "include_deleted": bool(rng.random() < 0.3),
        "isolation_level": "read_committed" if rng.random() < 0.25 else "read_uncommitted",
        "on_corruption": str(rng.choice(["raise", "stop", "skip", "skip"])),
        "internal": True,
    }
    some = [rows[int(one)] for one in rng.integers(0, len(rows), 3)] if rows else []
    offsets = [row["offset"] + int(rng.integers(-1, 2)) for row in some] or [0, 10]
    stamps = [min(row["timestamp"], 2**53) + int(rng.integers(-1, 2)) for row in some if row["timestamp"]] or [0]
    keys = [row["key"] for row in some if row["key"] is not None] or [b"k"]
    if rng.random() < 0.4:
        query["start_offset"] = max(min(offsets), 0)
    if rng.random() < 0.4:
        query["end_offset"] = max(max(offsets), 0)
    if rng.random() < 0.3:
        query["start_timestamp"] = max(min(stamps), 0)
    if rng.random() < 0.3:
        query["end_timestamp"] = max(max(stamps), 0)
    conditions = []
    if rng.random() < 0.25:
        conditions.append(("key", str(rng.choice(["==", "starts_with", "!="])), keys[0]))
    if rng.random() < 0.15:
        conditions.append(("offset", str(rng.choice(["<", ">=", "=="])), offsets[0]))
    if rng.random() < 0.15:
        conditions.append(("value", str(rng.choice(["is null", "is not null"]))))
    if conditions:
        query["filters"] = conditions
    return query


SEED = int(os.environ.get("KAFKALOG_FUZZ_SEED", "20261126"))
FIRST = int(os.environ.get("KAFKALOG_FUZZ_FIRST", "0"))
N_PARTS = 4
N = int(os.environ.get("KAFKALOG_WAYS_N") or examples(800))
N_QUERIES = 4
SIZES = (300, 1500, 6000)
BOUNDS = {"filters", "start_offset", "end_offset", "start_timestamp", "end_timestamp"}
EVERYTHING = {
    "columns": list(COLUMNS),
    "on_corruption": "skip",
    "internal": True,
    "include_deleted": True,
    "include_control": True,
}


def asked(path, query, **way):
    """The outcome; what cannot be opened has no records."""
    try:
        return outcome(path, query, **way)
    except KafkalogError as error:
        return Outcome([], (type(error).__name__, error.reason, error.path, error.position), [])


def differences(plain, other, query, *, has_copies, in_parts):
    """Fields of an outcome that differ. Damage behind a bound or an error may be met or not."""
    if in_parts:
        if {one.error[0] for one in (plain, other) if one.error} - {"CorruptionError"}:
            return []  # a plan opens all files before any is read
        if not BOUNDS.isdisjoint(query) and plain.error != other.error:
            return []
    names = ["error"]
    # a part that skips damage may choose the other of two batches whose offsets contradict each other
    if not has_copies and not (in_parts and query["on_corruption"] != "raise"):
        names.append("rows")
    if not has_copies and not in_parts and query["on_corruption"] != "raise" and BOUNDS.isdisjoint(query):
        names.append("findings")
    return [name for name in names if getattr(plain, name) != getattr(other, name)]


def disagreements(seed, number, folder):
    """What is not the same with a damaged partition."""
    rng = np.random.default_rng([seed, number, 7])
    with damaged_partitions.without_right_checksums():
        case = damaged_partitions.damaged(seed, number, folder / "data")
    for _ in range(int(rng.integers(0, 2))):
        case.what.append(misplaced_files.misplace(rng, case.partition))
    # which of two copies counts, and whether the other one does, too, may depend on what was read at a time
    has_copies = any(" once more as " in one for one in case.what)
    everything = asked(case.partition, EVERYTHING, **WAYS[0])
    found = []
    for _ in range(N_QUERIES):
        query = random_query(rng, everything.rows)
        plain, size = asked(case.partition, query, **WAYS[0]), int(rng.choice(SIZES))
        for way in WAYS:
            for window in (None, size) if way != WAYS[0] else (size,):
                if rng.random() < 0.5:
                    continue
                with seams(window):
                    other = asked(case.partition, query, **way)
                wrong = differences(plain, other, query, has_copies=has_copies, in_parts="parts" in way)
                if wrong:
                    found.append(f"{seed}, {number} ({'; '.join(case.what)}): {query}, {way}, {window}: {wrong}")
    return found


@pytest.mark.parametrize("part", thinned(range(N_PARTS), N_PARTS))
@pytest.mark.timeout(max(300, N))
def test_every_way_to_read_a_damaged_partition_gives_the_same(part, tmp_path):
    found = []
    for number in counted(range(FIRST + part, FIRST + N, N_PARTS)):
        folder = tmp_path / str(number)
        folder.mkdir()
        found += disagreements(SEED, number, folder)
    assert found == []


@pytest.mark.parametrize(("seed", "number"), [(31, 2281), (20261126, 228)])
def test_partitions_that_were_not_read_the_same_once(seed, number, tmp_path):
    assert disagreements(seed, number, tmp_path) == []
