"""Expressions of PyArrow are judged as PyArrow judges them."""

from datetime import UTC, datetime

import pyarrow as pa
import pytest
from effort import THOROUGH
from filter_twin import EXTRACT, odd_value, rows_of, with_first

import kafkalog
from kafkalog.column_names import ALL_COLUMNS

pytestmark = pytest.mark.kernels


@pytest.mark.slow
def test_expressions_are_judged_as_pyarrow_judges_tables(log_dir):
    import pyarrow.compute as pc

    table = kafkalog.read_table(log_dir, columns=ALL_COLUMNS)
    field = pc.field
    selections = [list(ALL_COLUMNS), ["offset"], ["value", "topic"]]
    expressions = (
        field("key") == b"k1",
        field("offset") + field("partition") > 77,
        pc.match_substring(field("key"), "1") & field("is_transactional"),
        pc.list_value_length(field("headers")) > 1,
        field("topic").isin(["p-multi", "p-txn"]) | (field("compression") == "zstd"),
        field("timestamp") > pa.scalar(datetime(2023, 11, 14, 22, 17, tzinfo=UTC)),
        field("key").is_null(),
        pc.binary_length(field("value")) > 50,
        pc.scalar(True),
        pc.scalar(False),
        field("segment") != f"{0:020d}.log",
    )
    for number, expression in enumerate(expressions):
        expected = table.filter(expression)
        for names in selections if THOROUGH else [selections[number % 3]]:
            found = kafkalog.read_table(log_dir, columns=names, filters=expression, threads=2, batch_size=50)
            assert found.equals(expected.select(names)), expression
        scan = kafkalog.scan(log_dir, filters=expression, where=odd_value)
        odd = pc.binary_length(expected["value"]).to_pylist()
        assert scan.count_rows() == sum(size is not None and size % 2 == 1 for size in odd)
        assert str(expression) in str(scan.explain())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda pc: pc.field("nope") == 3, "no column 'nope' to filter by; there are topic"),
        (lambda pc: pc.field("offset") + 1, "cannot be applied"),
        (lambda pc: pc.field("offset") == b"a", "cannot be applied"),
        (lambda pc: pc.field("key") == 3, "cannot be applied"),
        (lambda pc: pc.field("offset").isin(["a"]) & (pc.field("key") == b"k"), "cannot be applied"),
        (lambda pc: pc.field("offset") == pa.scalar(None, pa.string()), "cannot be applied"),
    ],
)
def test_an_expression_that_says_nothing_of_a_record_is_refused(log_dir, make, message):
    import pyarrow.compute as pc

    with pytest.raises(ValueError, match=message):
        kafkalog.scan(log_dir, filters=make(pc))


def test_expressions_see_extracted_columns(log_dir):
    import pyarrow.compute as pc

    path = log_dir / "p-multi-0"
    expected = [row for row in map(with_first, rows_of(path)) if row["first"] is not None and row["first"] > 100]
    assert rows_of(path, extract=EXTRACT, filters=pc.field("first") > 100) == expected
    assert expected
