"""`filters=`: the records are those that plain Python picks out of the whole, whatever was ruled out unread."""

import itertools
import tempfile
import warnings
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import builder
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import strategies
from effort import examples
from filter_twin import (
    BINARY,
    CODECS,
    COMPARISONS,
    EPOCH,
    EXTRACT,
    holds,
    in_ranges,
    odd_value,
    rows_of,
    with_first,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.column_names import ALL_COLUMNS
from kafkalog.parsing import parse_milliseconds
from kafkalog.records.batch_table import BatchTable
from kafkalog.scanning.conditions.filter_tuples import parse_filters
from kafkalog.scanning.conditions.filters import OPERATIONS, PATTERNS, Term

# times that are drawn may look like seconds
pytestmark = [pytest.mark.kernels, pytest.mark.filterwarnings("ignore::kafkalog.ConfigWarning")]

BOOLEANS = ("is_transactional", "is_control")
TEXTS = ("topic", "segment")
INTEGER_TIMES = pa.schema({"timestamp": pa.int64(), "value": pa.binary()})


# --- filters and logs -------------------------------------------------------------------------------------------------


def _datetimes(stamp):
    zones = st.sampled_from([UTC, timezone(timedelta(hours=5, minutes=30))])
    return st.builds(
        lambda zone, micros: (EPOCH + timedelta(milliseconds=stamp, microseconds=micros)).astimezone(zone),
        zones,
        st.sampled_from([0, 0, 1, 500, 999]),
    )


def _values(draw, column, rows):
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
def terms(draw, rows, derived=()):
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
        operation = draw(st.sampled_from([*COMPARISONS, "is null", "is not null", "in", "not in"]))
        if operation.startswith("is"):
            return column, operation
        there = [value for row in rows for key, value in row["headers"] if key == name and value is not None]
        values = [_values(draw, "value", [{"value": value} for value in there]) for _ in range(2)]
        return column, operation, [*values, None] if operation in ("in", "not in") else values[0]
    allowed = [name for name in OPERATIONS if column in BINARY or name not in ("starts_with", "contains")]
    allowed = [name for name in allowed if name not in PATTERNS]
    if column == "compression":
        allowed = ["==", "!=", "in", "not in", "is null", "is not null"]
    operation = draw(st.sampled_from(allowed))
    if operation in ("is null", "is not null"):
        return column, operation
    if operation in ("in", "not in"):
        n = draw(st.sampled_from([0, 1, 2, 5]))
        listed = [_values(draw, column, rows) for _ in range(n)]
        return column, operation, listed + [None] * draw(st.integers(0, 1))
    return column, operation, _values(draw, column, rows)


def groups_of(rows, derived=()):
    return st.lists(st.lists(terms(rows, derived), min_size=1, max_size=3), min_size=1, max_size=3)


def write(directory, segment, split=0, data=None):
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
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
        yield


@st.composite
def ranges(draw, rows):
    """Bounds, mostly none."""
    found = {}
    for name, column in itertools.product(("start_", "end_"), ("offset", "timestamp")):
        if not draw(st.integers(0, 4)):
            found[name + column] = bound = _values(draw, column, rows)
            if column == "offset":  # others are refused
                found[name + column] = min(max(bound, 0), 2**63 - (name == "start_"))
    return found


# --- functions for where= and extract=, each with its plain twin ------------------------------------------------------


def has_headers_or_time(timestamp, timestamp_type, headers):
    return headers.n_headers > 1 or (timestamp > 0 and timestamp_type != 1)


WHERE = {
    odd_value: lambda row: row["value"] is not None and len(row["value"]) % 2 == 1,
    has_headers_or_time: lambda row: (
        len(row["headers"]) > 1
        or ((-1 if row["timestamp"] is None else row["timestamp"]) > 0 and row["timestamp_type"] != 1)
    ),
}


# --- the property -----------------------------------------------------------------------------------------------------


def small_segments(max_batches=6):
    return strategies.segments(max_batches=max_batches, as_brokers_write=True)


@st.composite
def questions(draw):
    """One or two segments, where to split the first, and options of a scan over them."""
    segments = [draw(small_segments()) for _ in range(draw(st.sampled_from([1, 1, 2])))]
    split = draw(st.integers(0, max(len(segments[0].batches) - 1, 0)))
    columns = draw(st.lists(st.sampled_from(ALL_COLUMNS), min_size=1, unique=True))
    options = {
        "where": draw(st.sampled_from([None, None, *WHERE])),
        "include_control": draw(st.booleans()),
        "threads": draw(st.sampled_from([1, 4])),
    }
    return segments, split, options, columns


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")  # of gaps between the generated segments
@settings(max_examples=examples(150))
@given(st.data())
def test_a_scan_gives_what_filtering_the_whole_gives(data):
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


@settings(max_examples=examples(100))
@given(st.data())
def test_damage_takes_from_a_filtered_scan_what_it_takes_from_the_whole(data):
    segment = data.draw(strategies.segments(min_batches=2, max_batches=7, as_brokers_write=True))
    damaged = bytearray(segment.data)
    hit = data.draw(st.lists(st.sampled_from(segment.batches), min_size=1, max_size=2, unique=True))
    for start, stop in hit:
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
        options = {
            "filters": groups, "where": where, "include_control": True, "threads": threads,
        }  # fmt: skip
        expected = [row for row in healthy if holds(row, groups) and keep(row)]
        assert rows_of(path, on_corruption="skip", **options) == expected
        # a batch that its header rules out is not read, and its damage not met: a scan may stop later, never sooner. It
        # does not doubt a v0 or v1 message after such a batch either
        write(Path(directory) / "whole" / "t-0", segment)
        intact = [
            row
            for row in rows_of(Path(directory) / "whole" / "t-0", include_control=True, threads=1)
            if row["batch_position"] not in {start for start, _ in hit} and holds(row, groups) and keep(row)
        ]
        stopped = rows_of(path, on_corruption="stop", **options)
        assert stopped == intact[: len(stopped)]
        assert len(stopped) >= sum(holds(row, groups) and keep(row) for row in until)


# --- against pyarrow --------------------------------------------------------------------------------------------------


@settings(max_examples=examples(100))
@given(st.data())
def test_what_pyarrow_has_too_means_the_same(data):
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


def _for_pyarrow(term, schema):
    """The same condition as pyarrow takes it; None where it has no such thing."""
    column, operation = term[:2]
    if column.startswith("headers") or operation not in (*list(COMPARISONS)[:6], "in", "not in"):
        return None
    kind = schema.field(column).type
    if column in BOOLEANS and operation not in ("==", "!=", "in", "not in"):
        return None

    def scalar(value):
        if isinstance(value, str) and column in BINARY:
            return value.encode()
        if column == "timestamp":
            # it casts both sides to microseconds, which fails for times far away
            stamp = None if isinstance(value, datetime) and value.microsecond % 1000 else parse_milliseconds("", value)
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


# --- words, values, places --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [builder.GZIP, builder.SNAPPY])
def test_a_v0_wrapper_may_hold_messages_with_timestamps_that_its_header_does_not_tell(tmp_path, codec):
    inner = [builder.message(i, b"k", b"%d" % i, magic=1, timestamp=10 + i) for i in range(4)]
    log = builder.wrapper(inner, offset=3, magic=0, codec=codec) + builder.message(4, b"k", b"4", magic=0)
    path = tmp_path / f"{0:020}.log"
    path.write_bytes(log)
    everything = kafkalog.read_table(path, columns=["timestamp", "value"]).cast(INTEGER_TIMES).to_pylist()
    assert [row["timestamp"] for row in everything] == [10, 11, 12, 13, None]
    for operation in (">", ">=", "==", "<", "<="):
        for value in range(9, 15):
            filters = [("timestamp", operation, value)]
            found = kafkalog.read_table(path, columns=["timestamp", "value"], filters=filters).cast(INTEGER_TIMES)
            expected = [
                row
                for row in everything
                if row["timestamp"] is not None and COMPARISONS[operation](row["timestamp"], value)
            ]
            assert found.to_pylist() == expected, (operation, value)
    for start in range(9, 15):
        found = kafkalog.read_table(path, columns=["timestamp", "value"], start_timestamp=start).cast(INTEGER_TIMES)
        assert found.to_pylist() == [row for row in everything if (row["timestamp"] or -1) >= start]


@pytest.mark.parametrize(
    ("filters", "error", "message"),
    [
        (b"key == abc", TypeError, "or a list of \\(column, operation, value\\) tuples, not bytes"),
        (b"key", TypeError, "not bytes"),
        ({"key": b"a"}, TypeError, "not dict"),
        (7, TypeError, "not int"),
        (("key", "==", b"a"), TypeError, r"did you mean filters=\[\('key', '==', b'a'\)\]"),
        (["key"], ValueError, "COLUMN OP VALUE.*, not 'key'"),
        ([["key"]], ValueError, "COLUMN OP VALUE.*, not 'key'"),
        ([("key",)], TypeError, "tuple, not \\('key',\\)"),
        ([("key", "==", b"a", 1)], TypeError, "tuple"),
        ([("key", 3, b"a")], TypeError, "tuple"),
        (
            [("keyy", "==", b"a")],
            ValueError,
            "no column 'keyy' to filter by; did you mean 'key'\\?$",
        ),
        ([("key", "?", b"a")], ValueError, "no operation '[?]' for column 'key'; there are ==, .*contains"),
        ([("offset", "contains", b"a")], ValueError, "no operation 'contains' for column 'offset'"),
        ([("key", "==")], ValueError, "'key' '==' needs a value"),
        ([("key", "==", None)], ValueError, "nothing compares with None; write \\('key', 'is null'\\)"),
        ([("key", "is null", b"a")], ValueError, "takes no value"),
        ([("key", "in", b"a")], TypeError, "'in' needs a list of values, not b'a'"),
        ([("key", "==", 3)], TypeError, "key must be bytes, or text \\(as UTF-8\\), not 3"),
        ([("key", "in", [b"a", 3])], TypeError, "key must be bytes"),
        ([("offset", "==", "3")], TypeError, "offset must be a number"),
        ([("offset", "==", 3.5)], TypeError, "offset must be a whole number"),
        ([("offset", "==", True)], TypeError, "offset must be a number"),
        ([("is_control", "==", 1)], TypeError, "is_control must be True or False"),
        ([("topic", "==", b"t")], TypeError, "topic must be text"),
        ([("compression", "==", "gz")], ValueError, "no compression 'gz'; there are none, gzip, snappy, lz4, zstd"),
        ([("compression", "<", "gzip")], ValueError, "whose values have no order"),
        ([("timestamp", ">", "2023-11-1")], ValueError, "a time such as"),
        ([("timestamp", ">", datetime(2023, 11, 14))], ValueError, "time zone"),
        ([("timestamp", "in", [datetime(2023, 11, 14)])], ValueError, "naive datetime"),
        ([("headers", "==", "n")], ValueError, "\\('headers', 'has', name\\)"),
        ([("headers", "has", 3)], TypeError, "headers must be bytes"),
        ([("headers.n", "in", b"a")], TypeError, "needs a list of values"),
        ([("headers.n", "==", None)], ValueError, "nothing compares with None"),
    ],
)
def test_a_filter_that_is_none_is_refused_and_the_right_one_shown(filters, error, message, log_dir):
    with pytest.raises(error, match=message):
        kafkalog.scan(log_dir, filters=filters)


def test_a_timestamp_type_may_be_given_by_its_name(tmp_path):
    record = builder.record_v2(0, 0, None, b"v")
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(
        builder.batch_v2([record])
        + b"".join(builder.batch_v2([record], base_offset=n, log_append_time=True) for n in (1, 2))
    )
    for names, offsets in [
        (("==", "LogAppendTime"), [1, 2]),
        (("in", ["CreateTime", -1]), [0]),
        (("!=", "CreateTime"), [1, 2]),
    ]:
        found = kafkalog.read_table(path, columns=["offset"], filters=[("timestamp_type", *names)])
        assert found["offset"].to_pylist() == offsets
    with pytest.raises(ValueError, match="timestamp_type"):
        kafkalog.scan(path, filters=[("timestamp_type", "==", "Create")])


@pytest.mark.parametrize(
    ("filters", "n"),
    [
        ([("topic", "is null")], 3), ([("partition", "==", 0)], 0), ([("partition", "!=", 0)], 0),
        ([("topic", "in", ["t", None])], 3), ([("topic", "not in", [None])], 0), ([("topic", "not in", ["t"])], 3),
        ([("topic", "is not null")], 0), ([("segment", "==", f"{0:020d}.log")], 3),
    ],
)  # fmt: skip
def test_without_a_topic_there_is_null(tmp_path, filters, n):
    log = tmp_path / f"{0:020d}.log"
    log.write_bytes(builder.batch_v2([builder.record_v2(i) for i in range(3)]))
    assert kafkalog.scan(log, filters=filters).count_rows() == n
    names = ["topic", "partition", "segment"]
    table = kafkalog.read_table(log, columns=names)
    if filters[0][1] not in ("is null", "is not null") and filters[0][2] != [None]:
        assert len(table.filter(pq.filters_to_expression(filters))) == n


@settings(max_examples=examples(150))
@given(st.lists(terms([]), max_size=3), st.integers(-(2**63), 2**63 - 1))
def test_bounds_leave_no_matching_offset_or_time_outside(group, number):
    group = [term for term in group if term[0] in ("offset", "timestamp")]
    bounds = parse_filters([group]).bounds()
    for name, column in (("start_offset", "offset"), ("end_offset", "offset"), ("start_timestamp", "timestamp")):
        if name in bounds:
            for near in (number, bounds[name] - 1, bounds[name], bounds[name] + 1):
                if not -(2**63) <= near < 2**63:
                    continue  # no record has such an offset or time
                row = {"offset": near, "timestamp": near, "headers": []}
                inside = near < bounds[name] if name == "end_offset" else near >= bounds[name]
                mine = [term for term in group if term[0] == column]
                assert inside or not holds(row, [mine])


@pytest.mark.parametrize(
    ("group", "bounds"),
    [
        ([("offset", ">", 5), ("offset", "<=", 9)], {"start_offset": 6, "end_offset": 10}),
        ([("offset", "==", 7)], {"start_offset": 7, "end_offset": 8}),
        ([("offset", "in", [3, 9, 4])], {"start_offset": 3, "end_offset": 10}),
        ([("offset", "!=", 7)], {}),
        ([("offset", ">=", 7), ("offset", ">", 8)], {"start_offset": 9}),
        ([("timestamp", ">", 7)], {"start_timestamp": 8}),
        ([("timestamp", "<", 7)], {"end_timestamp": 7}),
        ([("timestamp", "in", [7, None])], {}),
    ],
)
def test_bounds_are_as_narrow_as_they_can_be(group, bounds):
    assert parse_filters([group]).bounds() == bounds
    wide = [("offset", ">=", -5), ("offset", "<", 2**62), ("timestamp", ">=", 0), ("timestamp", "<", 2**61)]
    outer = {"start_offset": -5, "end_offset": 2**62, "start_timestamp": 0, "end_timestamp": 2**61}
    assert parse_filters([group, wide]).bounds() == {name: outer[name] for name in bounds}
    assert not parse_filters([group, [("key", "==", b"k")]]).bounds()


# --- what headers of batches rule out ---------------------------------------------------------------------------------


def test_patterns_of_keys_values_and_topics(tmp_path):
    keys = [b"user-1", b"USER-2", None, b"\xff\n", b""]
    for topic in ("orders", "bills"):
        with kafkalog.PartitionWriter(tmp_path / f"{topic}-0") as writer:
            writer.append({"key": keys, "value": [b"%d" % i for i in range(5)]})

    def offsets(text):
        return kafkalog.read_table(tmp_path, topics="orders", filters=text, columns=["offset"])["offset"].to_pylist()

    assert offsets("key like 'user-%'") == [0]
    assert offsets("key not like 'user-%'") == [1, 3, 4]
    assert offsets("key matches '(?i)^user-[12]$' and value != 1") == [0]
    assert offsets("key !~ user or key is null") == [1, 2, 3, 4]
    assert offsets("not (key contains -)") == [3, 4]
    assert offsets(["offset between 1 and 3", "key == USER-2 or value == 3"]) == [1, 3]
    assert offsets([["key like u%"], [("offset", "==", 4)]]) == [0, 4]
    found = kafkalog.read_table(tmp_path, filters="topic like 'b%' and segment matches '[.]log$'", columns=["topic"])
    assert found["topic"].unique().to_pylist() == ["bills"]
    with pytest.raises(ValueError):
        offsets("offset like 1")
    with pytest.raises(ValueError):
        offsets("key matches (")


def test_sub_millisecond_times_are_not_rounded_into_matching(tmp_path):
    records = [builder.record_v2(i, i) for i in range(4)]
    log = tmp_path / f"{0:020d}.log"
    log.write_bytes(builder.batch_v2(records, base_timestamp=1000, max_timestamp=1003))
    between = EPOCH + timedelta(microseconds=1_001_500)
    for operation, expected in {
        "==": [], "!=": [0, 1, 2, 3], "<": [0, 1], "<=": [0, 1], ">": [2, 3], ">=": [2, 3],
    }.items():  # fmt: skip
        table = kafkalog.read_table(log, columns=["offset"], filters=[("timestamp", operation, between)])
        assert table["offset"].to_pylist() == expected, operation
    listed = [between, EPOCH + timedelta(milliseconds=1002), None]
    assert [row["offset"] for row in rows_of(log, filters=[("timestamp", "in", listed)])] == [2]
    assert [row["offset"] for row in rows_of(log, filters=[("timestamp", "not in", listed)])] == [0, 1, 3]


def headers_of_every_kind():
    """A table of headers: format, codec, first and last offset (-1 is not known), largest timestamp."""
    kinds = list(itertools.product((0, 1, 2), (0, 1), (0, 5), (0, 5, 9), (-1, 100)))
    rows = [
        (magic, codec, -1 if codec and magic < 2 else first, last, stamp) for magic, codec, first, last, stamp in kinds
    ]
    rows = [row for row in rows if row[2] <= row[3]]
    table = BatchTable.empty(len(rows))
    for row, (magic, codec, first, last, stamp) in enumerate(rows):
        table.magic[row], table.attributes[row] = magic, codec
        table.base_offset[row], table.last_offset[row], table.max_timestamp[row] = first, last, stamp
    return table, rows


@pytest.mark.parametrize("operation", ["<", "<=", "==", ">", ">="])
def test_headers_rule_out_exactly_the_batches_that_cannot_hold_an_offset(operation):
    table, rows = headers_of_every_kind()
    for value in (1, 4, 5, 6, 8, 9, 10):
        expected = []
        for magic, codec, first, last, _ in rows:
            # a wrapper that librdkafka wrote says 0, whatever it holds
            stop = 20 if magic == 1 and codec and last == 0 else last
            may_hold = range(max(first, 0), stop + 1)
            expected.append(any(COMPARISONS[operation](offset, value) for offset in may_hold))
        mask = Term.of("offset", operation, value).batch_mask(table)
        assert mask is not None
        assert mask.tolist() == expected, value


@pytest.mark.parametrize("operation", ["==", ">", ">="])
def test_headers_rule_out_exactly_the_batches_that_cannot_hold_a_timestamp(operation):
    table, rows = headers_of_every_kind()
    for value in (99, 100, 101):
        expected = []
        for magic, codec, _, _, stamp in rows:
            largest = 200 if magic == 0 and codec else stamp
            expected.append(any(COMPARISONS[operation](one, value) for one in range(-1, largest + 1)))
        mask = Term.of("timestamp", operation, value).batch_mask(table)
        assert mask is not None
        assert mask.tolist() == expected, value
    for column, other in (("timestamp", "<"), ("timestamp", "!="), ("offset", "!="), ("offset", "in"), ("key", "==")):
        assert (
            Term.of(column, other, (1,) if other == "in" else b"" if column == "key" else 1).batch_mask(table) is None
        )
