"""Conditions on fields with values of several types: the same records in text, tuples, Arrow expressions and SQL."""

import json
import random

import pyarrow.compute as pc
import pytest
from effort import trials

import kafkalog
from kafkalog.cli.app import main
from kafkalog.errors import ConditionError
from kafkalog.operations.querying import QueryError

duckdb = pytest.importorskip("duckdb", reason="not tested here: duckdb is not installed")

DECODE = {"value": "json"}
POOL = [None, True, False, 0, 9, 10, 100, -7, 0.5, 2**63, 10**30, "", "n/a", "10", "true", "é'x", {"b": 1}, [1, "x"]]
SIGNS = {"==": "=", "!=": "<>", "<": "<", "<=": "<=", ">": ">", ">=": ">="}
FIELD = pc.field("value", "a")


def written(path, values, topic="t"):
    with kafkalog.PartitionWriter(f"{path}/{topic}-0") as writer:
        writer.append({"value": [json.dumps({"a": value, "n": at}).encode() for at, value in enumerate(values)]})


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def compares(value, sign, literal):
    """Whether a comparison of Python's values holds; null if there is no value."""
    if value is None:
        return None
    same = (is_number(value) and is_number(literal)) or type(value) is type(literal)
    if sign in ("==", "!="):
        return (same and value == literal) == (sign == "==")
    if not same or isinstance(value, bool):
        return False
    return {"<": value < literal, "<=": value <= literal, ">": value > literal, ">=": value >= literal}[sign]


def sql_literal(value):
    if isinstance(value, bool):
        return str(value).lower()
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def a_condition(rng):
    """A random condition: as SQL, as an Arrow expression, as a term, and what holds for a value."""
    literals = [value for value in POOL if isinstance(value, (int, float, str)) and value not in (2**63, 10**30)]
    kind = rng.choice(["compare", "in", "not in", "null", "not"])
    if kind == "null":
        return "value.a is null", FIELD.is_null(), ("value.a", "is null"), lambda value: value is None
    if kind in ("in", "not in"):
        of = rng.choice([str, int])
        listed = [value for value in rng.sample(literals, 6) if type(value) is of] or [of()]
        sql = f"value.a {kind} ({', '.join(map(sql_literal, listed))})"

        def holds(value):
            return any(compares(value, "==", one) for one in listed) == (kind == "in")

        expression = FIELD.isin(listed) if kind == "in" else ~FIELD.isin(listed)
        # Arrow's is_in is false for null, SQL's null
        return sql, None if kind == "not in" else expression, ("value.a", kind, listed), holds
    sign, literal = rng.choice([*SIGNS]), rng.choice(literals)
    expression = {
        "==": literal == FIELD,
        "!=": literal != FIELD,
        "<": literal > FIELD,
        "<=": literal >= FIELD,
        ">": literal < FIELD,
        ">=": literal <= FIELD,
    }[sign]
    sql = f"value.a {SIGNS[sign]} {sql_literal(literal)}"
    if kind == "not":
        return f"not ({sql})", ~expression, None, lambda value: compares(value, sign, literal) is False
    return sql, expression, ("value.a", sign, literal), lambda value: compares(value, sign, literal) is True


def test_each_way_to_write_a_condition_gives_the_same_records(tmp_path):
    rng = random.Random(53)
    values = [*POOL, *rng.choices(POOL, k=30)]
    written(tmp_path, values)
    dataset = kafkalog.dataset(tmp_path, decode=DECODE)
    for _ in range(trials(4, 36)):
        sql, expression, term, holds = a_condition(rng)
        # SQL's `not in` has no null; that of a term has
        expected = [at for at, value in enumerate(values) if holds(value)]
        in_sql = [at for at in expected if values[at] is not None or "is null" in sql]
        offsets = kafkalog.sql(f'select "offset" from t where {sql} order by 1', tmp_path, decode=DECODE).fetchall()
        assert [offset for (offset,) in offsets] == in_sql, sql
        either = kafkalog.sql(f'select "offset" from t where {sql} or "offset" < 3', tmp_path, decode=DECODE)
        assert sorted(offset for (offset,) in either.fetchall()) == sorted({*in_sql, 0, 1, 2}), sql
        filters = [[term]] if term is not None else expression
        if term is None or "not in" not in term:
            table = kafkalog.read_table(tmp_path, decode=DECODE, columns=["offset"], filters=filters)
            assert table["offset"].to_pylist() == expected, (sql, filters)
        if expression is not None:
            condition = expression & (pc.field("offset") >= 2)
            for table in (
                kafkalog.read_table(tmp_path, decode=DECODE, columns=["offset"], filters=condition),
                dataset.to_table(columns=["offset"], filter=condition),
                dataset.filter(condition).to_table(columns=["offset"]),
            ):
                assert table["offset"].to_pylist() == [at for at in expected if at >= 2], str(expression)
            assert dataset.count_rows(filter=expression) == len(expected)


def test_duckdb_and_polars_over_a_dataset_compare_text_with_text(tmp_path):
    written(tmp_path, [10, 9, "n/a", 100, "10"])
    log = kafkalog.dataset(tmp_path, decode=DECODE)
    connection = duckdb.connect()
    connection.register("log", log)
    assert connection.sql("select \"offset\" from log where value.a = 'n/a'").fetchall() == [(2,)]
    assert connection.sql("select \"offset\" from log where value.a = '10'").fetchall() == [(4,)]
    with pytest.raises(duckdb.Error, match="write 'n/a' instead"):
        connection.sql("""select "offset" from log where value.a = '"n/a"'""").fetchall()
    few = kafkalog.dataset(tmp_path, decode=DECODE, columns=["offset", "value.a"], limit=4)
    assert few.to_table(["offset"], pc.field("value.a") > 9)["offset"].to_pylist() == [0, 3]
    with pytest.raises(ConditionError, match="several types"):
        log.to_table(filter=pc.field("offset") == FIELD)


def test_queries_find_fields_whatever_their_names_are_there(tmp_path):
    written(tmp_path, [10, 9, "n/a", 100, "n/b"])
    written(tmp_path, [1, 2, 3], "plain")
    for query, expected in (
        ("with q as (select value.a as x from t) select x from q where x < 50 order by 1", ["10", "9"]),
        ("with q as (select * from t) select value.a from q where value.a >= 100", ["100"]),
        ("select x from (select value.a from t) s(x) where s.x < 50 group by x having x > 9", ["10"]),
        ("select u.value.a from t u where 50 > u.VALUE.A order by value.a > 9", ["9", "10"]),
        ("select value['a'] from t where value['a'] between 9 and 9.5", ["9"]),
        ("select value.a as x from t where x like 'n/_' order by 1", ['"n/a"', '"n/b"']),
        ("select value.a from t where value.a ilike 'N/A' or value.a ~ '^n/b'", ['"n/a"', '"n/b"']),
        (
            "select case value.a when 9 then 'nine' when 'n/a' then 'none' end y from t order by y limit 2",
            ["nine", "none"],
        ),
        ("select count(*) filter (value.a < 50) from t", [2]),
        ("select count(*) from t where exists (select 1 from plain p where p.value.a = 3 and t.value.a < 50)", [2]),
        ("select p.value.a from plain p where value.a > 2", [3]),
        ("select count(*) from t a join t b on a.value.a = b.value.a and a.value.a > 9", [2]),
        ("select value.a from plain where value.a < 2 union all select 7 from t where value.a = 'n/a'", [1, 7]),
        ("select value.a ->> '$' from t where value.a ->> '$' = 'n/a'", ["n/a"]),
        ("select value.a from t where value.a::varchar = '10'", ["10"]),
        ("select value.a from t where try_cast(value.a as double) < 10", ["9"]),
    ):
        assert [row[0] for row in kafkalog.sql(query, tmp_path).fetchall()] == expected, query


def test_parameters_compare_as_values_that_are_written_out(tmp_path):
    written(tmp_path, [1, "1", True, 7])
    for condition, params, expected in (
        ("value.a = ?", [1], [0]),
        ("value.a = ? and value.n >= ?", ["1", 1], [1]),
        ("value.n >= ? and value.a = ?", [1, "1"], [1]),
        ("value.n < $n and value.a in ($x, $y)", {"n": 3, "y": True, "x": 7}, [2]),
        ("value.a between ? and ? + 1", [1, 6], [0, 3]),
        ("value.n = ?", [3], [3]),
    ):
        rows = kafkalog.sql(f"select value.n from t where {condition}", tmp_path, params=params).fetchall()
        assert [row[0] for row in rows] == expected, condition
    for params in ([1], [1, 2, 3]):
        with pytest.raises(QueryError, match=r"[Pp]arameter"):
            kafkalog.sql("select * from t where value.a = ? and value.n = ?", tmp_path, params=params)


def test_conditions_without_a_meaning_are_errors_that_name_the_field(tmp_path, capsys):
    written(tmp_path, [10, "n/a"])
    for condition in (
        "value.a = current_date",
        'value.a = "offset"',
        "value.a in (select 1)",
        "value.a is distinct from 9",
        "value.a = null",
        "value.a = '\"n/a\"'",
    ):
        with pytest.raises(ConditionError, match=r"value\.a"):
            kafkalog.sql(f"select * from t where {condition}", tmp_path, decode=DECODE)
    with pytest.raises(QueryError, match=r"value\.a has values of several types"):
        kafkalog.sql("select list_filter([value], y -> y.a < 5) from t", tmp_path).fetchall()
    assert main(["sql", 'select * from t where value.a > "offset"', str(tmp_path)]) == 2
    assert "value.a has values of several types" in capsys.readouterr().err
