"""Arrow expressions as filters: what is understood, and that filters never match less than their expression."""

import random
from datetime import UTC, datetime

import golden_sets
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from effort import THOROUGH

import kafkalog
from kafkalog.column_names import ALL_COLUMNS
from kafkalog.interchange.arrow_output import record_schema
from kafkalog.interchange.expression_trees import columns_read
from kafkalog.scanning.conditions.arrow_filters import both, translate
from kafkalog.scanning.conditions.filters import Filter, Term

SCHEMA = record_schema(ALL_COLUMNS)
MS = 1_700_000_000_000
NULL = pa.scalar(None, pa.bool_())
f = pc.field


def micros(value, zone="UTC"):
    return pa.scalar(value, pa.timestamp("us", zone))


def call(name, *arguments, options=None):
    return pc.Expression._call(name, list(arguments), options)


offset, key, stamp = f("offset"), f("key"), f("timestamp")
UNKNOWN = offset + 1 == 3
CASES = [
    (offset >= 5, "offset >= 5", True),
    (pc.scalar(5) < offset, "offset > 5", True),
    (~(offset < 5), "offset >= 5", True),
    (f("topic") == "a", "topic == 'a'", True),
    (key == b"k", "key == b'k'", True),
    (key == "k", "key == b'k'", True),
    (f("value").cast(pa.large_binary()) > b"k", "value > b'k'", True),
    (f("partition").cast(pa.int64()) == 3, "partition == 3", True),
    (offset.cast(pa.int32(), safe=False) == 3, "true", False),
    (f("topic").cast(pa.large_string()) == "a", "topic == 'a'", True),
    (offset == 3.5, "true", False),
    (offset == pa.scalar(None, pa.int64()), "false", True),
    (offset == pa.scalar(None), "false", True),
    (offset == pa.scalar(None, pa.string()), "true", False),
    (offset.isin(pa.array([], pa.string())), "true", False),
    (stamp >= micros(MS * 1000), f"timestamp >= {MS}", True),
    (stamp >= micros(MS * 1000 + 1), f"timestamp > {MS}", True),
    (stamp < micros(MS * 1000 + 1, "Europe/Berlin"), f"timestamp <= {MS}", True),
    (stamp == micros(MS * 1000 + 1), "false", True),
    (stamp != micros(MS * 1000 + 1), "timestamp is not null", True),
    (stamp == datetime.fromtimestamp(MS / 1000, UTC), f"timestamp == {MS}", True),
    (stamp > pa.scalar(MS // 1000, pa.timestamp("s", "UTC")), f"timestamp > {MS}", True),
    (stamp.cast(pa.timestamp("us", "UTC")) > micros(-1), "timestamp > -1", True),
    (stamp.cast(pa.timestamp("us")) > micros(-1, None), "timestamp > -1", True),
    (stamp.cast(pa.timestamp("s", "UTC"), safe=False) > micros(-1), "true", False),
    (offset.isin([1, 2]), "offset in [1, 2]", True),
    (~offset.isin([1, 2]), "offset not in [1, 2]", True),
    (key.isin(pa.array([b"a", None])), "key in [b'a', None]", True),
    (pc.is_in(key, options=pc.SetLookupOptions(pa.array([b"a", None]), skip_nulls=True)), "key in [b'a']", True),
    (stamp.isin(pa.array([MS * 1000, 1], pa.timestamp("us", "UTC"))), f"timestamp in [{MS}]", True),
    (pc.if_else(offset.is_valid(), offset.isin([1]), NULL), "offset is not null and offset in [1]", True),
    (~pc.if_else(offset.is_valid(), offset.isin([1]), NULL), "offset is not null and offset not in [1]", True),
    (
        pc.if_else(offset > 1, key == "a", key == "b"),
        "(offset > 1 and key == b'a') or (offset <= 1 and key == b'b')",
        True,
    ),
    (key.is_null(), "key is null", True),
    (~key.is_valid(), "key is null", True),
    (key.is_valid(), "key is not null", True),
    (f("is_control"), "is_control == True", True),
    (~f("is_transactional"), "is_transactional == False", True),
    (f("is_control") == pa.scalar(True), "is_control == True", True),
    (f("compression") == "lz4", "compression == 'lz4'", True),
    (f("compression") == "brotli", "true", False),
    (f("compression") > "lz4", "true", False),
    (pc.starts_with(key, "ab"), "key starts_with b'ab'", True),
    (~pc.starts_with(key, "ab"), "true", False),
    (pc.starts_with(key, "ab", ignore_case=True), "true", False),
    (pc.match_substring(f("value"), "ab"), "value contains b'ab'", True),
    (pc.starts_with(f("topic"), "ab"), "topic >= 'ab' and topic < 'ac'", True),
    (pc.starts_with(f("topic"), "a\U0010ffff"), "true", False),
    (pc.match_substring(f("topic"), "ab"), "true", False),
    (offset < pa.scalar(2**63, pa.uint64()), "true", False),
    (offset > pa.scalar(2**63 - 1, pa.uint64()), f"offset > {2**63 - 1}", True),
    ((offset == 1) | (offset == 2) | offset.isin([3]), "offset in [1, 2, 3]", True),
    ((offset == 1) | (key == "a"), "(offset == 1) or (key == b'a')", True),
    (UNKNOWN, "true", False),
    (UNKNOWN & (key == "a"), "key == b'a'", False),
    (UNKNOWN | (key == "a"), "true", False),
    (~(UNKNOWN | (key == "a")), "key != b'a'", False),
    (~(UNKNOWN & (key == "a")), "true", False),
    (call("and", offset == 1, key == "a"), "offset == 1 and key == b'a'", False),
    (call("or", offset == 1, key == "a"), "(offset == 1) or (key == b'a')", False),
    (pc.scalar(True), "true", True),
    (pc.scalar(False), "false", True),
    (pc.scalar(NULL), "false", True),
    (offset > f("batch_base_offset"), "true", False),
    (pc.list_value_length(f("headers")) > 1, "true", False),
]


@pytest.mark.parametrize(("expression", "text", "is_exact"), CASES, ids=lambda value: str(value)[:60])
def test_an_expression_is_understood_as_far_as_filters_go(expression, text, is_exact):
    found = translate(expression, SCHEMA)
    assert (str(Filter(found.groups)), found.is_exact) == (text, is_exact)


@pytest.fixture(scope="module")
def mixed():
    return [golden_sets.unpacked("k28") / "p-v0v1v2-mixed-0", golden_sets.LOG_DIR / "p-multi-0"]


def applies(expression, table):
    """Whether Arrow can apply an expression: not to timestamps of two zones, or in a unit that does not fit."""
    try:
        table.filter(expression)
    except pa.ArrowException:
        return False
    return True


def test_random_expressions_give_what_arrow_gives(mixed):
    rng = random.Random(3)
    names = [name for name in ALL_COLUMNS if name != "headers"]
    table = kafkalog.read_table(mixed, columns=names)
    atoms = [case[0] for case in CASES if "headers" not in str(case[0]) and applies(case[0], table)]
    atoms += [offset < 40, offset >= 20, stamp < micros((MS + 400_000) * 1000), f("topic") == "p-multi", key < b"k3"]

    def tree(depth):
        if depth == 0:
            return rng.choice(atoms)
        one, other = tree(depth - 1), tree(rng.randrange(depth))
        return rng.choice(
            [
                lambda: one & other,
                lambda: one | other,
                lambda: ~one,
                lambda: pc.if_else(one, other, NULL),
                lambda: call("and", one, other),
                lambda: call("or", one, other),
            ]
        )()

    n_found = 0
    n_expressions = 250 if THOROUGH else 50
    for _ in range(n_expressions):
        expression = tree(rng.randrange(4))
        expected = table.filter(expression)
        found = kafkalog.read_table(mixed, columns=names, filters=expression, threads=1)
        assert found.equals(expected), expression
        n_found += 0 < expected.num_rows < table.num_rows
    assert n_found > n_expressions * 80 // 250


def test_what_grows_too_long_is_left_to_the_expression():
    many = (offset == 0) & (f("partition") == 0)
    for n in range(1, 70):
        many = many | ((offset == n) & (f("partition") == n))
    assert translate(many, SCHEMA) == translate(UNKNOWN, SCHEMA)
    few = translate((key == "a") | (offset > 7), SCHEMA)
    wide = Filter(tuple((Term.of("offset", "<", n), Term.of("partition", "==", n)) for n in range(40)))
    assert both(wide, few) == (wide, False)
    deep = offset == 1
    for _ in range(3000):
        deep = ~~deep
    assert translate(deep, SCHEMA) == translate(UNKNOWN, SCHEMA)


def test_a_column_of_another_type_is_not_understood():
    typed = pa.schema([pa.field("value", pa.int64()), pa.field("timestamp", pa.timestamp("us", "UTC"))])
    assert translate(f("value") == 3, typed) == translate(UNKNOWN, SCHEMA)
    assert translate(f("timestamp") > micros(1), typed) == translate(UNKNOWN, SCHEMA)
    derived = pa.schema([pa.field("when", pa.timestamp("ms", "UTC"))])
    assert translate(f("when") > micros(1), derived) == translate(UNKNOWN, SCHEMA)


def test_the_columns_that_an_expression_reads():
    assert columns_read((offset + 1 > f("partition")) & key.is_null()) == {"offset", "partition", "key"}
    assert columns_read(pc.field(("headers", "key")) == "a") == {"headers"}
