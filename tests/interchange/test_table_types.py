"""What targets store: the table of types, and values converted by it."""

import io
import random
from datetime import date
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.types as pt
import pytest
from effort import fuzz_inputs
from refusals import fails_with

from kafkalog.interchange.file_types import TABLE_FORMATS
from kafkalog.interchange.table_types import (
    EMPTIED,
    ROUNDED,
    TARGETS,
    Conversion,
    Digits,
    LossCounts,
    converted,
    evolved_schema,
    json_text,
    lost_findings,
    stored_schema,
    stored_type,
)
from kafkalog.interchange.text_output import plain_values

US, MS, NS = pa.timestamp("us", "UTC"), pa.timestamp("ms", "UTC"), pa.timestamp("ns")
EMPTY = pa.struct([])
NOTHING = pa.struct({"x": pa.null()})
SAME = (pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(), pa.date32())


@pytest.mark.parametrize(
    ("kind", "stored"),
    [
        *((kind, [kind] * 5) for kind in SAME),
        (EMPTY, [pa.string()] * 5),
        (pa.struct({"x": EMPTY}), [pa.struct({"x": pa.string()})] * 5),
        (pa.null(), [pa.null(), pa.null(), pa.null(), pa.string(), pa.null()]),
        (NOTHING, [NOTHING, pa.string(), pa.string(), pa.struct({"x": pa.string()}), NOTHING]),
        (pa.list_(pa.null()), [pa.list_(pa.null()), *[pa.list_(pa.string())] * 4]),
        (pa.int8(), [pa.int8(), pa.int8(), pa.int32(), pa.int8(), pa.int8()]),
        (pa.uint16(), [pa.uint16(), pa.int32(), pa.int32(), pa.int64(), pa.uint16()]),
        (pa.uint32(), [pa.uint32(), pa.int64(), pa.int64(), pa.int64(), pa.uint32()]),
        (pa.uint64(), [pa.uint64(), *[pa.decimal128(20, 0)] * 3, pa.uint64()]),
        (pa.float16(), [pa.float16(), *[pa.float32()] * 4]),
        (pa.decimal256(50, 2), [pa.decimal256(50, 2), *[pa.string()] * 4]),
        (pa.decimal256(38, 2), [pa.decimal256(38, 2), *[pa.decimal128(38, 2)] * 4]),
        (MS, [MS, US, US, US, US]),
        (NS, [NS, *[pa.timestamp("us")] * 3, NS]),
        (pa.time32("ms"), [pa.time32("ms"), pa.string(), pa.time64("us"), pa.string(), pa.time32("ms")]),
        (pa.binary(4), [pa.binary(4), pa.binary(), pa.binary(4), pa.binary(), pa.binary(4)]),
        (pa.binary(0), [pa.binary()] * 5),
        (pa.map_(pa.uint32(), EMPTY),
         [pa.map_(pa.uint32(), pa.string()),
          *[pa.map_(pa.int64(), pa.string())] * 3,
          pa.map_(pa.uint32(), pa.string())]),
        (pa.list_(pa.struct({"u": pa.uint64(), "n": pa.null()})),
         [pa.list_(pa.struct({"u": pa.uint64(), "n": pa.null()})),
          *[pa.list_(pa.struct({"u": pa.decimal128(20, 0)}))] * 2,
          pa.list_(pa.struct({"u": pa.decimal128(20, 0), "n": pa.string()})),
          pa.list_(pa.struct({"u": pa.uint64(), "n": pa.null()}))]),
    ],
)  # fmt: skip
def test_what_each_target_stores(kind, stored):
    assert [stored_type(kind, target) for target in TARGETS] == stored


def random_type(rng, depth=3):
    """A type that a decoded value may have."""
    inner = depth and rng.randrange(3)
    if inner == 1:
        return pa.struct([(f"f{i}", random_type(rng, depth - 1)) for i in range(rng.randrange(4))])
    if inner == 2:
        item = random_type(rng, depth - 1)
        return rng.choice([pa.list_(item), pa.map_(rng.choice([pa.string(), pa.int32(), pa.uint64()]), item)])
    leaves = [*SAME, MS, US, NS, pa.timestamp("ns", "UTC"), pa.time32("ms"), pa.time64("us"), pa.null(), pa.uint32()]
    leaves += [pa.uint64(), pa.int16(), pa.decimal128(12, 3), pa.decimal256(60, 5), pa.binary(3), pa.binary(0)]
    return rng.choice(leaves)


def random_array(rng, kind, n):
    """Values of a type, the most extreme ones among them."""
    valid = np.array([rng.random() < 0.8 for _ in range(n)], np.bool_)
    if pt.is_null(kind):
        return pa.nulls(n)
    if pt.is_struct(kind):
        children = [random_array(rng, field.type, n) for field in kind]
        mask = pa.array(~valid)
        return (
            pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
            if children
            else pa.array([{} if one else None for one in valid], kind)
        )
    if pt.is_list(kind) or pt.is_map(kind):
        sizes = [rng.randrange(4) if one else 0 for one in valid]
        ends = pa.array(
            [None if not one else at for one, at in zip([*valid, True], np.cumsum([0, *sizes]), strict=True)],
            pa.int32(),
        )
        if pt.is_list(kind):
            return pa.ListArray.from_arrays(ends, random_array(rng, kind.value_type, sum(sizes)))
        keys = pa.array(list(range(sum(sizes)))).cast(kind.key_type)
        return pa.MapArray.from_arrays(ends, keys, random_array(rng, kind.item_type, sum(sizes)))
    if pt.is_temporal(kind) or pt.is_integer(kind):
        bits = kind.bit_width
        lowest, highest = (
            (0, 2**bits - 1) if pt.is_unsigned_integer(kind) else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        )
        if pt.is_timestamp(kind):
            lowest += 1  # has no text but the number
        if pt.is_time(kind):
            lowest, highest = 0, 86_400 * (1000 if bits == 32 else 10**6) - 1
        near = (0, 1, 5, 19_000, 1_700_000_000_000, lowest, highest)
        whole = pa.uint64() if pt.is_unsigned_integer(kind) else pa.int64()
        numbers = [
            rng.choice([min(max(rng.choice(near), lowest), highest), rng.randint(lowest, highest)]) for _ in valid
        ]
        return (
            pa.array(numbers, whole, mask=~valid)
            .cast(pa.int32() if bits == 32 and pt.is_temporal(kind) else whole)
            .cast(kind)
        )
    made = {
        "bool": lambda: rng.random() < 0.5,
        "float": lambda: rng.choice([0.5, -1.0, float("inf")]),
        "double": lambda: rng.choice([0.1, -1e300, float("inf")]),
        "string": lambda: rng.choice(["", "é", "7", '{"a"}']),
        "binary": lambda: rng.randbytes(rng.randrange(4)),
    }
    if pt.is_decimal(kind):
        values = [Decimal(rng.randrange(10 ** min(kind.precision, 28))).scaleb(-kind.scale) for _ in valid]
    elif pt.is_fixed_size_binary(kind):
        values = [rng.randbytes(kind.byte_width) for _ in valid]
    else:
        values = [made[str(kind)]() for _ in valid]
    return pa.array([value if one else None for value, one in zip(values, valid, strict=True)], kind)


def differences(one, other, is_table):
    """How many values of JSON are null in the other; fails if they differ in another way."""
    if isinstance(one, dict) and isinstance(other, dict):
        # keys of a map may be stored as a wider number, which JSON has as text
        one, other = ({str(name): value for name, value in each.items()} for each in (one, other))
        assert other.keys() == one.keys() if not is_table else other.keys() <= one.keys()
        assert all(value is None for name, value in one.items() if name not in other)
        return sum(differences(value, other[name], is_table) for name, value in one.items() if name in other)
    if isinstance(one, list) and isinstance(other, list):
        assert len(one) == len(other)
        return sum(differences(*pair, is_table) for pair in zip(one, other, strict=True))
    if other is None:
        return one is not None
    if isinstance(one, str) and isinstance(other, str) and one != other:
        cut = other.rstrip("Z").rstrip("0").rstrip(".")
        assert one.startswith(cut), (one, other)  # digits after microseconds are cut
        return 0
    assert one == other or json_text(one) == other or str(one) == str(other), (one, other)
    return 0


@pytest.mark.parametrize("target", TARGETS)
def test_random_values_are_equal_or_null_and_counted(target):
    n_lost = 0
    for seed in range(max(fuzz_inputs() // 200, 13)):
        rng = random.Random(seed)
        kind = random_type(rng)
        array = random_array(rng, kind, 12)[rng.randrange(3) :]
        array.validate(full=True)
        conversion = Conversion(stored_schema(pa.schema({"v": kind}), target), target)
        batch = conversion.of(pa.RecordBatch.from_arrays([array], ["v"]))
        batch.validate(full=True)
        if not batch.num_columns:  # a table gets the column with its first value
            assert array.null_count == len(array)
            continue
        pairs = zip(plain_values(array), plain_values(batch.column(0)), strict=True)
        n = sum(differences(*pair, target in TABLE_FORMATS) for pair in pairs)
        assert n == sum(count for (_, what), count in conversion.lost.items() if what not in (ROUNDED, EMPTIED)), (
            seed,
            kind,
        )
        n_lost += n
        if target == "parquet":
            file = io.BytesIO()
            pq.write_table(pa.Table.from_batches([batch]), file)
            assert plain_values(pq.read_table(file).column(0).combine_chunks()) == plain_values(batch.column(0))
    assert (n_lost > 0) == (target != "parquet")


def test_what_is_lost_in_lists_maps_and_structs_is_told_by_row():
    kind = pa.struct({"l": pa.list_(pa.struct({"t": MS})), "m": pa.map_(pa.string(), MS)})
    rows = [
        {"l": [{"t": 1}, {"t": 2**62}, {"t": 2**62}], "m": []},
        None,
        {"l": None, "m": [("k", 2**62)]},
        {"l": [{"t": 2**62}]},
    ]
    lost = LossCounts()
    found = converted(pa.array(rows, kind), stored_type(kind, "delta"), lost.report)
    assert [one["l"] and [item["t"] is None for item in one["l"]] for one in found.to_pylist() if one] == [
        [False, True, True],
        None,
        [True],
    ]
    assert [(one.path, one.n, one.rows.tolist()) for one in lost.found] == [
        (("l", "[]", "t"), 3, [0, 3]),
        (("m", "{}"), 1, [2]),
    ]
    found_in_slice = LossCounts()
    converted(pa.array(rows, kind)[3:], stored_type(kind, "delta"), found_in_slice.report)
    assert [(one.n, one.rows.tolist()) for one in found_in_slice.found] == [(1, [0])]
    details = [one.detail for one in lost_findings(lost.counts(), "to")]
    assert "3 values of l[].t" in details[0]
    assert "1 value of m{}" in details[1]


def test_digits_that_are_cut_are_counted():
    lost = LossCounts()
    moments = pa.array([1_000, 1_001, None], pa.int64()).cast(pa.timestamp("ns"))
    assert converted(moments, pa.timestamp("us"), lost.report).cast(pa.int64()).to_pylist() == [1, 1, None]
    assert [(one.what, one.n) for one in lost.found] == [(ROUNDED, 1)]


def test_whole_numbers_become_doubles_only_if_these_are_equal():
    lost = LossCounts()
    numbers = pa.array([2**53, 2**53 + 1, 2**60, None, -(2**53) - 1])
    assert converted(numbers, pa.float64(), lost.report).to_pylist() == [2.0**53, None, 2.0**60, None, None]
    assert [(one.n, one.rows.tolist()) for one in lost.found] == [(2, [1, 4])]


def test_tables_have_no_date_beyond_the_year_9999():
    days = pa.array([0, 2**31 - 1, -(2**31), (date.max - date(1970, 1, 1)).days], pa.int32()).cast(pa.date32())
    for target in TABLE_FORMATS:
        lost = LossCounts()
        assert converted(days, pa.date32(), lost.report, target=target).is_valid().to_pylist() == [
            True,
            False,
            False,
            True,
        ]
        assert [one.n for one in lost.found] == [2]


def test_columns_that_exist_stay_and_new_fields_follow():
    known = pa.schema({"v": pa.struct({"a": pa.int64(), "l": pa.list_(pa.struct({"x": pa.int32()}))}), "w": pa.null()})
    seen = pa.schema(
        {
            "v": pa.struct({"b": pa.string(), "l": pa.list_(pa.struct({"y": pa.int32()})), "a": pa.string()}),
            "w": pa.int8(),
            "z": pa.int8(),
        }
    )
    whole = evolved_schema(known, seen)
    items = pa.list_(pa.struct({"x": pa.int32(), "y": pa.int32()}))
    assert whole == pa.schema(
        {
            "v": pa.struct({"a": pa.int64(), "l": items, "b": pa.string(), "a__text": pa.string()}),
            "w": pa.int8(),
            "z": pa.int8(),
        }
    )
    conversion = Conversion(whole, "parquet")
    batch = pa.RecordBatch.from_pylist([{"v": {"a": "7", "b": "x"}}, {"v": {"a": "x"}}], schema=seen)
    assert conversion.of(batch).column("v").to_pylist() == [
        {"a": 7, "l": None, "b": "x", "a__text": None},
        {"a": None, "l": None, "b": None, "a__text": "x"},
    ]
    assert [*conversion.lost.values()] == [1]


def test_fields_that_differ_by_case_only_are_no_table_of_delta():
    for kind in (pa.struct({"Id": pa.int8(), "id": pa.int8()}), pa.list_(pa.struct({"é": pa.int8(), "É": pa.int8()}))):
        stored_schema(pa.schema({"v": kind}), "iceberg")
        with fails_with("column_twice"):
            stored_schema(pa.schema({"v": kind}), "delta")


def test_json_text_keeps_digits():
    assert json_text({"a": [Digits("1e400"), 1, {"é": Digits("9" * 50)}]}) == f'{{"a":[1e400,1,{{"é":{"9" * 50}}}]}}'
