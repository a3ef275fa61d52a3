"""`filters=`: the records are those that plain Python picks out of the whole, whatever was ruled out unread."""

from __future__ import annotations

import itertools
import operator
import tempfile
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import strategies
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import kafkalog
from kafkalog import format as kf
from kafkalog.arrow import ALL_COLUMNS
from kafkalog.predicates import OPERATIONS, milliseconds

Row = dict[str, Any]
CODECS = kf.CODEC_NAMES[:5]
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INTEGERS = (
    "partition", "offset", "timestamp_type", "leader_epoch", "producer_id", "producer_epoch", "sequence",
    "batch_base_offset", "batch_position",
)  # fmt: skip
BOOLEANS = ("is_transactional", "is_control")
TEXTS = ("topic", "segment")
BINARY = ("key", "value")
COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "starts_with": bytes.startswith,
    "contains": bytes.__contains__,
}


# --- the slow, plain way ----------------------------------------------------------------------------------------------


def rows_of(path: Any, columns: Sequence[str] = ALL_COLUMNS, **options: Any) -> list[Row]:
    """The records of a scan, a dict each; a timestamp that there is none of is None."""
    asked = list(dict.fromkeys([*columns, "timestamp", "timestamp_type"]))
    records = kafkalog.read_numpy(path, columns=asked, **options)
    derived = [name for name in records if name not in asked]
    lists: dict[str, list[Any]] = {name: records[name][:] .tolist() if isinstance(records[name], np.ndarray)
                                   else records[name].to_pylist() for name in records}  # fmt: skip
    for name, nothing in (("partition", -1), ("topic", "")):
        lists[name] = [None if value == nothing else value for value in lists.get(name, [])]
    lists["timestamp"] = [
        None if kind == -1 and stamp == -1 else stamp
        for stamp, kind in zip(lists["timestamp"], lists["timestamp_type"], strict=True)
    ]
    if "compression" in lists:
        lists["compression"] = [CODECS[value] for value in lists["compression"]]
    wanted = [*columns, *derived]
    return [dict(zip(wanted, row, strict=True)) for row in zip(*(lists[name] for name in wanted), strict=True)]


def plain(column: str, value: Any) -> Any:
    """A filter's value as rows have it; times in microseconds, as exact as datetimes are."""
    if column == "timestamp":
        return (value - EPOCH) // timedelta(microseconds=1) if isinstance(value, datetime) else value * 1000
    return value.encode() if column in BINARY and isinstance(value, str) else value


def term_holds(row: Row, term: Sequence[Any]) -> bool:
    """One condition, by the letter."""
    column, operation = term[0], term[1]
    value = term[2] if len(term) == 3 else None
    if column == "headers":
        wanted = value.encode() if isinstance(value, str) else value
        return any(name == wanted for name, _ in row["headers"]) == (operation == "has")
    if column.startswith("headers."):
        name = column.partition(".")[2].encode()
        return any(known_holds("key", one, operation, value) for key, one in row["headers"] if key == name)
    mine = row[column]
    return known_holds(column, mine * 1000 if column == "timestamp" and mine is not None else mine, operation, value)


def known_holds(column: str, mine: Any, operation: str, value: Any) -> bool:
    if operation in ("is null", "is not null"):
        return (mine is None) == (operation == "is null")
    if operation in ("in", "not in"):
        return (mine in [None if one is None else plain(column, one) for one in value]) == (operation == "in")
    return mine is not None and COMPARISONS[operation](mine, plain(column, value))


def holds(row: Row, groups: Sequence[Sequence[Sequence[Any]]]) -> bool:
    return any(all(term_holds(row, term) for term in group) for group in groups)


# --- filters and logs -------------------------------------------------------------------------------------------------


def _datetimes(stamp: int) -> st.SearchStrategy[datetime]:
    zones = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))])
    return st.builds(
        lambda zone, micros: (EPOCH + timedelta(milliseconds=stamp, microseconds=micros)).astimezone(zone),
        zones,
        st.sampled_from([0, 0, 1, 500, 999]),
    )


def _values(draw: st.DrawFn, column: str, rows: list[Row]) -> Any:
    """A value to compare a column with: mostly one that is there, or a neighbour."""
    there = [row[column] for row in rows if row.get(column) is not None]
    near = draw(st.sampled_from(there)) if there and draw(st.integers(0, 3)) else None
    if column in BINARY:
        near = draw(strategies.BLOBS) or b"" if near is None else near
        cut = draw(st.sampled_from([None, None, 1, 2, -1]))
        near = near[:cut] if draw(st.booleans()) else near[cut or 0 :]
        return near.decode() if near.isascii() and draw(st.booleans()) else near
    if column == "timestamp":
        stamp = draw(strategies.TIMESTAMPS) if near is None else near + draw(st.sampled_from([0, 0, -1, 1]))
        if -(2**45) < stamp < 2**47 and draw(st.booleans()):
            return draw(_datetimes(stamp))
        return stamp
    if column in BOOLEANS:
        return draw(st.booleans())
    if column == "compression":
        return draw(st.sampled_from(CODECS))
    if column in TEXTS:
        return near if near is not None else draw(st.sampled_from(["t", "u", "00000000000000000000.log", ""]))
    if near is not None and not isinstance(near, float):
        return near + draw(st.sampled_from([0, 0, -1, 1]))
    return draw(st.one_of(strategies.I64, st.sampled_from([0, -1, 2**63, -(2**63) - 1, 2**70, 2**31, -(2**31) - 1])))


@st.composite
def terms(draw: st.DrawFn, rows: list[Row], derived: Sequence[str] = ()) -> tuple[Any, ...]:
    """One condition on records such as these."""
    column = draw(st.sampled_from([*ALL_COLUMNS, "key", "value", "offset", "timestamp", "headers.", *derived]))
    names = [name for row in rows for name, _ in row["headers"]]
    if column in ("headers", "headers."):
        name = draw(st.sampled_from(names) if names and draw(st.integers(0, 3)) else strategies.HEADER_NAMES)
        if column == "headers":
            return column, draw(st.sampled_from(["has", "has not"])), name
        try:
            column += name.decode()
        except UnicodeDecodeError:
            column += "n"
        operation = draw(st.sampled_from([*COMPARISONS, "is null", "is not null"]))
        if operation.startswith("is"):
            return column, operation
        there = [value for row in rows for key, value in row["headers"] if key == name and value is not None]
        return column, operation, _values(draw, "value", [{"value": value} for value in there])
    allowed = [name for name in OPERATIONS if column in BINARY or name not in ("starts_with", "contains")]
    if column == "compression":
        allowed = ["==", "!=", "in", "not in", "is null", "is not null"]
    operation = draw(st.sampled_from(allowed))
    if operation in ("is null", "is not null"):
        return column, operation
    if operation in ("in", "not in"):
        n = draw(st.sampled_from([0, 1, 2, 5]))
        listed: list[Any] = [_values(draw, column, rows) for _ in range(n)]
        return column, operation, listed + [None] * draw(st.integers(0, 1))
    return column, operation, _values(draw, column, rows)


def groups_of(rows: list[Row], derived: Sequence[str] = ()) -> st.SearchStrategy[list[list[tuple[Any, ...]]]]:
    return st.lists(st.lists(terms(rows, derived), min_size=1, max_size=3), min_size=1, max_size=3)


def write(directory: Path, segment: strategies.Segment, split: int = 0, data: bytes | None = None) -> None:
    """A partition directory with a segment, or with two: from batch number `split` on in a file of its own."""
    directory.mkdir(parents=True)
    data = segment.data if data is None else data
    names = [segment.base_offset]
    cuts = [0, len(data)]
    if 0 < split < len(segment.batches):
        at = segment.batches[split][0]
        inside = [record.offset for record in segment.records if record.batch_position == at]
        names.append(min([int.from_bytes(segment.data[at : at + 8], "big"), *inside]))
        cuts.insert(1, at)
    for name, (start, stop) in zip(names, itertools.pairwise(cuts), strict=True):
        (directory / f"{name:020d}.log").write_bytes(data[start:stop])


@contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
        yield


@st.composite
def ranges(draw: st.DrawFn, rows: list[Row]) -> dict[str, Any]:
    """Bounds, mostly none."""
    found: dict[str, Any] = {}
    for name, column in itertools.product(("start_", "end_"), ("offset", "timestamp")):
        if not draw(st.integers(0, 4)):
            found[name + column] = _values(draw, column, rows)
    return found


def in_ranges(row: Row, bounds: dict[str, Any]) -> bool:
    lower = [
        (column, ">=", bounds[f"start_{column}"]) for column in ("offset", "timestamp") if f"start_{column}" in bounds
    ]
    upper = [(column, "<", bounds[f"end_{column}"]) for column in ("offset", "timestamp") if f"end_{column}" in bounds]
    return holds(row, [[*lower, *upper]])


# --- functions for where= and extract=, each with its plain twin ------------------------------------------------------


def odd_value(offset: int, value: NDArray[np.uint8], value_is_null: bool) -> bool:
    return not value_is_null and value.size % 2 == 1


def has_headers_or_time(timestamp: int, timestamp_type: int, headers: Any) -> bool:
    return headers.n_headers > 1 or (timestamp > 0 and timestamp_type != 1)


def first_of_key(key: NDArray[np.uint8], key_is_null: bool) -> int | None:
    if key_is_null or key.size == 0:
        return None
    return int(key[0])


WHERE: dict[Any, Callable[[Row], bool]] = {
    odd_value: lambda row: row["value"] is not None and len(row["value"]) % 2 == 1,
    has_headers_or_time: lambda row: (
        len(row["headers"]) > 1
        or ((-1 if row["timestamp"] is None else row["timestamp"]) > 0 and row["timestamp_type"] != 1)
    ),
}
EXTRACT = {"first": ("i2", first_of_key)}


def with_first(row: Row) -> Row:
    return {**row, "first": row["key"][0] if row["key"] else None}


# --- the property -----------------------------------------------------------------------------------------------------


def small_segments(max_batches: int = 6) -> st.SearchStrategy[strategies.Segment]:
    return strategies.segments(max_batches=max_batches, as_brokers_write=True)


@st.composite
def questions(draw: st.DrawFn) -> tuple[list[strategies.Segment], int, dict[str, Any], list[str]]:
    """One or two segments, where to split the first, and options of a scan over them."""
    segments = [draw(small_segments()) for _ in range(draw(st.sampled_from([1, 1, 2])))]
    split = draw(st.integers(0, max(len(segments[0].batches) - 1, 0)))
    columns = draw(st.lists(st.sampled_from(ALL_COLUMNS), unique=True))
    options: dict[str, Any] = {
        "where": draw(st.sampled_from([None, None, *WHERE])),
        "include_control": draw(st.booleans()),
        "threads": draw(st.sampled_from([1, 4])),
    }
    return segments, split, options, columns


@settings(max_examples=150)
@given(st.data())
def test_a_scan_gives_what_filtering_the_whole_gives(data: st.DataObject) -> None:
    segments, split, options, columns = data.draw(questions())
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory) / "log"
        for segment, name in zip(segments, ("t-0", "u-7"), strict=False):
            write(root / name, segment, split if name == "t-0" else 0)
        everything = rows_of(root, include_control=options["include_control"], threads=1)
        extracts = data.draw(st.booleans())
        judged = [with_first(row) if extracts else row for row in everything]
        groups = data.draw(groups_of(everything, ["first"] if extracts else []))
        bounds = data.draw(ranges(everything))
        found = rows_of(root, columns, filters=groups, extract=EXTRACT if extracts else None, **options, **bounds)
        keep = WHERE.get(options["where"], lambda row: True)
        expected = [row for row in judged if holds(row, groups) and in_ranges(row, bounds) and keep(row)]
        shown = [*columns, *(["first"] if extracts else [])]
        if shown:
            assert found == [{name: row[name] for name in shown} for row in expected]
        scan = kafkalog.scan(
            root, columns=columns, filters=groups, extract=EXTRACT if extracts else None, **options, **bounds
        )
        assert scan.count_rows() == len(expected)
        table = scan.to_table()
        table.validate(full=True)
        assert table.num_rows == (len(expected) if shown else 0)
        counts = scan.explain(analyze=True).statistics
        assert counts.n_records_selected == len(expected)


@settings(max_examples=100)
@given(st.data())
def test_damage_takes_from_a_filtered_scan_what_it_takes_from_the_whole(data: st.DataObject) -> None:
    segment = data.draw(strategies.segments(min_batches=2, max_batches=7, as_brokers_write=True))
    damaged = bytearray(segment.data)
    for start, stop in data.draw(st.lists(st.sampled_from(segment.batches), min_size=1, max_size=2, unique=True)):
        # under the checksum, where every reader that decodes the batch sees it
        damaged[data.draw(st.integers(start + (21 if segment.data[start + 16] == 2 else 18), stop - 1))] ^= data.draw(
            st.integers(1, 255)
        )
    threads = data.draw(st.sampled_from([1, 4]))
    where = data.draw(st.sampled_from([None, *WHERE]))
    with tempfile.TemporaryDirectory() as directory, quiet():
        write(Path(directory) / "t-0", segment, data=bytes(damaged))
        path = Path(directory) / "t-0"
        healthy = rows_of(path, include_control=True, on_corruption="skip", threads=1)
        until = rows_of(path, include_control=True, on_corruption="stop", threads=1)
        assert until == healthy[: len(until)]
        groups = data.draw(groups_of(healthy))
        keep = WHERE.get(where, lambda row: True)
        options: dict[str, Any] = {
            "filters": groups, "where": where, "include_control": True, "threads": threads,
        }  # fmt: skip
        expected = [row for row in healthy if holds(row, groups) and keep(row)]
        assert rows_of(path, on_corruption="skip", **options) == expected
        # a batch that its header rules out is not read, and its damage not met: a scan may stop later, never sooner
        stopped = rows_of(path, on_corruption="stop", **options)
        assert stopped == expected[: len(stopped)]
        assert len(stopped) >= sum(holds(row, groups) and keep(row) for row in until)


# --- against pyarrow --------------------------------------------------------------------------------------------------


@settings(max_examples=100)
@given(st.data())
def test_what_pyarrow_has_too_means_the_same(data: st.DataObject) -> None:
    segment = data.draw(small_segments())
    with tempfile.TemporaryDirectory() as directory:
        write(Path(directory) / "t-0", segment)
        path = Path(directory) / "t-0"
        names = [name for name in ALL_COLUMNS if name != "headers"]
        table = kafkalog.read_table(path, columns=names)
        rows = rows_of(path)
        groups = data.draw(groups_of(rows))
        theirs = [[_for_pyarrow(term, table.schema) for term in group] for group in groups]
        groups = [
            [term for term, their in zip(group, pair, strict=True) if their is not None]
            for group, pair in zip(groups, theirs, strict=True)
        ]
        groups = [group for group in groups if group]
        if not groups:
            return
        expression = pq.filters_to_expression(
            [[term for term in pair if term is not None] for pair in theirs if any(pair)]
        )
        expected = table.filter(expression)
        assert kafkalog.read_table(path, columns=names, filters=groups).equals(expected)
        # and the expression itself, which is judged once records are columns
        for threads in (1, 4):
            found = kafkalog.read_table(path, columns=names, filters=expression, threads=threads)
            assert found.equals(expected)
        assert kafkalog.scan(path, filters=expression).count_rows() == len(expected)


def _for_pyarrow(term: tuple[Any, ...], schema: pa.Schema) -> tuple[Any, ...] | None:
    """The same condition as pyarrow takes it; None where it has no such thing."""
    column, operation = term[:2]
    if column.startswith("headers") or operation not in (*list(COMPARISONS)[:6], "in", "not in"):
        return None
    kind = schema.field(column).type
    if column in BOOLEANS and operation not in ("==", "!=", "in", "not in"):
        return None

    def scalar(value: Any) -> Any:
        if isinstance(value, str) and column in BINARY:
            return value.encode()
        if column == "timestamp":
            # it casts both sides to microseconds, which fails for times far away
            stamp = None if isinstance(value, datetime) and value.microsecond % 1000 else milliseconds("", value)
            return pa.scalar(stamp, kind) if stamp is not None and -(2**63) <= stamp < 2**63 else None
        if isinstance(value, int) and not isinstance(value, bool):
            return value if pa.types.is_integer(kind) and -(2**63) <= value < 2**63 else None
        return value

    if operation in ("in", "not in"):
        values = [None if one is None else scalar(one) for one in term[2]]
        bits = kind.bit_width if pa.types.is_integer(kind) else 64
        for one, given_one in zip(values, term[2], strict=True):
            if (one is None) != (given_one is None):
                return None
            if isinstance(one, int) and not -(2 ** (bits - 1)) <= one < 2 ** (bits - 1):
                return None
        if column == "timestamp":
            return (
                column,
                operation,
                pa.array([None if one is None else one.value for one in values], pa.int64()).cast(kind),
            )
        return column, operation, pa.array(values, kind)
    value = scalar(term[2])
    return None if value is None else (column, operation, value)
