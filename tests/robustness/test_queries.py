"""Random queries give what plain Python makes of the records of a whole scan, and the same whichever way they are read.

Sound partitions of real brokers, some with flipped bits, for the former; with any damage for the latter: sizes of
windows, threads, mappings and forms of columns must not show. `KAFKALOG_FUZZ_SEED` and `KAFKALOG_QUERIES_N` choose
other partitions and more of them.
"""

import os
import shutil

import damaged_partitions
import misplaced_files
import numpy as np
import pytest
from effort import counted, thinned, trials
from files import flip
from filter_twin import holds, in_ranges
from ways import COLUMNS, WAYS, Outcome, outcome, seams

import kafkalog
from kafkalog.errors import KafkalogError

SEED = int(os.environ.get("KAFKALOG_FUZZ_SEED", "20261127"))
N = int(os.environ.get("KAFKALOG_QUERIES_N") or trials(12, 150))
N_PARTS = 4
N_QUERIES = 5
SIZES = (300, 1500, 6000)
RANGES = ("start_offset", "end_offset", "start_timestamp", "end_timestamp")
EVERYTHING = {"columns": list(COLUMNS), "on_corruption": "skip", "internal": True}


def third(offset):
    return offset % 3 == 1


def even_end(key, key_is_null):
    return not key_is_null and key.size > 0 and key[key.size - 1] % 2 == 0


FUNCTIONS = (
    (third, lambda row: row["offset"] % 3 == 1),
    (even_end, lambda row: bool(row["key"]) and row["key"][-1] % 2 == 0),
)


def random_options(rng):
    return {
        "include_control": bool(rng.random() < 0.2),
        "include_deleted": bool(rng.random() < 0.4),
        "isolation_level": "read_committed" if rng.random() < 0.25 else "read_uncommitted",
    }


def random_ranges(rng, rows):
    """Bounds from near these records."""
    some = [rows[int(one)] for one in rng.integers(0, len(rows), 3)] if rows else []
    near = {
        name: [min(max(row[name] + int(rng.integers(-1, 2)), 0), 2**53) for row in some if row[name] is not None]
        for name in ("offset", "timestamp")
    }
    query = {}
    for option in RANGES:
        if rng.random() < 0.3:
            side, _, name = option.partition("_")
            query[option] = (min if side == "start" else max)(near[name] or [0])
    return query


def random_conditions(rng, rows):
    """Filters and a function, with values of these records."""
    some = [rows[int(one)] for one in rng.integers(0, len(rows), 3)] if rows else []
    keys = [row["key"] for row in some if row["key"] is not None] or [b"k"]
    values = [row["value"][: int(rng.integers(1, 30))] for row in some if row["value"] is not None] or [b"v"]
    stamps = [min(row["timestamp"], 2**53) for row in some if row["timestamp"] is not None] or [0]
    offsets = [row["offset"] for row in some] or [0]
    choices = (
        ("key", ("==", "!=", "<", ">=", "starts_with", "contains"), keys[0]),
        ("value", ("==", "!=", "starts_with", "contains"), values[0]),
        ("offset", ("==", "!=", "<", ">="), offsets[0]),
        ("offset", ("in", "not in"), offsets),
        ("timestamp", ("==", "<", ">="), stamps[0]),
        ("batch_position", ("<", ">="), int(rng.integers(0, 20_000))),
        ("producer_id", ("==", "!=", ">="), int(rng.integers(-1, 5000))),
    )
    conditions = []
    for _ in range(int(rng.choice([0, 0, 1, 2]))):
        if rng.random() < 0.2:
            conditions.append((str(rng.choice(["key", "value"])), str(rng.choice(["is null", "is not null"]))))
        else:
            name, operations, value = choices[int(rng.integers(0, len(choices)))]
            conditions.append((name, str(rng.choice(operations)), value))
    query = {"filters": conditions} if conditions else {}
    if rng.random() < 0.2:
        query["where"], _ = FUNCTIONS[int(rng.integers(0, len(FUNCTIONS)))]
    return query


def is_wanted(row, query):
    """Whether filters and function choose a record."""
    meanings = [meaning for function, meaning in FUNCTIONS if function is query.get("where")]
    return holds(row, [query.get("filters", [])]) and all(meaning(row) for meaning in meanings)


def last_of_keys(rows):
    """The last record of each key, unless it has no value."""
    last = {row["key"]: number for number, row in enumerate(rows) if row["key"] is not None}
    return [row for number, row in enumerate(rows) if last.get(row["key"]) == number and row["value"] is not None]


def answer(rng, path, query, rows):
    """What a query gives, in one of the ways to ask for it, and what it ought to; and that way."""
    kind = str(rng.choice(["rows", "rows", "count", "head", "tail", "plan", "numpy"]))
    n = int(rng.integers(1, 12))
    scan = kafkalog.scan(path, **query)
    offsets = [row["offset"] for row in rows]
    if kind == "count":
        return scan.count_rows(), len(rows), kind
    if kind == "head":
        return scan.head(n)["offset"].to_pylist(), offsets[:n], kind
    if kind == "numpy":
        return scan.to_numpy().offset.tolist(), offsets, kind
    if kind in ("tail", "plan") and "limit" not in query:
        if kind == "tail":
            return scan.tail(n)["offset"].to_pylist(), offsets[-n:], kind
        parts = scan.plan(target_bytes=int(rng.choice([3000, 2**20])))
        return [one for part in parts for one in part.to_table()["offset"].to_pylist()], offsets, kind
    columns = [name for name in query["columns"] if rng.random() < 0.5] or ["offset"]
    found = outcome(path, query, columns=columns, batch_size=int(rng.choice([7, 2**16])))
    return found.rows, [{name: row[name] for name in columns} for row in rows], f"{kind} of {columns}"


def wrong_answers(seed, number, folder):
    rng = np.random.default_rng([seed, number, 11])
    sources = damaged_partitions.sources()
    source = sources[int(rng.integers(0, len(sources)))]
    path = folder / "data" / source.name
    shutil.copytree(source, path)
    logs = [log for log in sorted(path.glob("*.log")) if log.stat().st_size]
    for log in logs if rng.random() < 0.3 else []:
        flip(log, int(rng.integers(0, log.stat().st_size)))
    if rng.random() < 0.2:
        (path.parent / "log-start-offset-checkpoint").write_text(f"0\n1\n{path.name[:-2]} {path.name[-1]} 700\n")
    base = EVERYTHING | random_options(rng)
    whole = outcome(path, base, **WAYS[0]).rows
    for _ in range(N_QUERIES):
        ranges = random_ranges(rng, whole)
        # the last way reads in parts, which is a kind of these queries, too
        query = base | ranges | random_conditions(rng, whole) | WAYS[int(rng.integers(0, len(WAYS) - 1))]
        rows = [row for row in whole if in_ranges(row, ranges)]
        if rng.random() < 0.15 and not base["include_control"]:
            query["latest"], rows = "key", last_of_keys(rows)
        rows = [row for row in rows if is_wanted(row, query)]
        if rng.random() < 0.2:
            query["limit"] = int(rng.integers(0, 20))
            rows = rows[: query["limit"]]
        size = int(rng.choice((0, *SIZES))) or None
        with seams(size):
            got, ought, kind = answer(rng, path, query, rows)
        if got != ought:
            yield f"{source.name}: {kind} of {query}, {size}"


def asked(path, query, **way):
    """The outcome; what cannot be opened has no records."""
    try:
        return outcome(path, query, **way)
    except KafkalogError as error:
        return Outcome([], (type(error).__name__, error.reason, error.path, error.position), [])


def differences(plain, other, query, *, has_copies, in_parts):
    """Fields of an outcome that differ. Damage behind a bound or an error may be met or not."""
    is_bound = "filters" in query or not {*RANGES}.isdisjoint(query)
    if in_parts:
        if {one.error[0] for one in (plain, other) if one.error} - {"CorruptionError"}:
            return []  # a plan opens all files before any is read
        if is_bound and plain.error != other.error:
            return []
    names = ["error"]
    # a part that skips damage may choose the other of two batches whose offsets contradict each other
    if not has_copies and not (in_parts and query["on_corruption"] != "raise"):
        names.append("rows")
    if not has_copies and not in_parts and query["on_corruption"] != "raise" and not is_bound:
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
    everything = asked(case.partition, EVERYTHING | {"include_deleted": True, "include_control": True}, **WAYS[0])
    for _ in range(N_QUERIES):
        query = EVERYTHING | random_options(rng) | random_ranges(rng, everything.rows)
        query |= {name: value for name, value in random_conditions(rng, everything.rows).items() if name == "filters"}
        query["columns"] = ["offset", *(name for name in COLUMNS[1:] if rng.random() < 0.4)]
        query["on_corruption"] = str(rng.choice(["raise", "stop", "skip", "skip"]))
        plain, size = asked(case.partition, query, **WAYS[0]), int(rng.choice(SIZES))
        for way in WAYS:
            for window in (None, size) if way != WAYS[0] else (size,):
                if rng.random() < 0.5:
                    continue
                with seams(window):
                    other = asked(case.partition, query, **way)
                wrong = differences(plain, other, query, has_copies=has_copies, in_parts="parts" in way)
                if wrong:
                    yield f"{'; '.join(case.what)}: {query}, {way}, {window}: {wrong}"


@pytest.mark.parametrize("check", [wrong_answers, disagreements])
@pytest.mark.parametrize("part", thinned(range(N_PARTS), N_PARTS))
@pytest.mark.timeout(max(300, 2 * N))
@pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning", "ignore::kafkalog.TransactionWarning")
def test_queries_mean_what_python_makes_of_the_records_whichever_way_they_are_read(check, part, tmp_path):
    wrong = []
    for number in counted(range(part, N, N_PARTS)):
        folder = tmp_path / str(number)
        folder.mkdir()
        wrong += [f"{SEED}, {number}: {one}" for one in check(SEED, number, folder)]
        shutil.rmtree(folder)
    assert wrong == []
