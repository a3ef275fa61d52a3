"""Objects that speak Arrow, as streams of record batches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest

from kafkalog.errors import UnwritableError
from kafkalog.interchange.arrow_streams import open_batches

TABLE = pa.table({"value": ["a", "b", None], "n": [1, 2, 3]})

KINDS: dict[str, Callable[[], Any]] = {
    "table": lambda: TABLE,
    "record batch": lambda: TABLE.to_batches()[0],
    "reader": lambda: TABLE.to_reader(),
    "dict of lists": lambda: {"value": ["a", "b", None], "n": [1, 2, 3]},
    "dict of arrays": lambda: {"value": TABLE["value"], "n": np.array([1, 2, 3])},
    "pandas": lambda: pd.DataFrame({"value": ["a", "b", None], "n": [1, 2, 3]}),
    "pandas with an index": lambda: pd.DataFrame({"value": ["a", "b", None], "n": [1, 2, 3]}).set_index("n"),
    "polars": lambda: pl.DataFrame({"value": ["a", "b", None], "n": [1, 2, 3]}),
    "polars series of structs": lambda: pl.DataFrame({"value": ["a", "b", None], "n": [1, 2, 3]}).to_struct(),
    "dataset": lambda: ds.dataset(TABLE),
    "scanner": lambda: ds.dataset(TABLE).scanner(),
}


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_speaks_arrow_is_a_stream(kind: str) -> None:
    rows = open_batches(KINDS[kind]()).read_all().select(["value", "n"]).to_pylist()
    assert rows == TABLE.to_pylist()


def test_headers_may_be_pairs() -> None:
    pairs = [[(b"a", b"1"), (b"b", None)], None, []]
    column = open_batches({"headers": pairs}).read_all()["headers"]
    assert column.type == pa.map_(pa.binary(), pa.binary())
    assert column.to_pylist() == pairs


@pytest.mark.parametrize(
    ("data", "hint"),
    [
        (5, "not int"),
        ([1], "not list"),
        (pl.LazyFrame({"a": [1]}), "collect\\(\\) it first"),
        (pd.Series([1]), "DataFrame is expected"),
    ],
)
def test_what_does_not_is_refused(data: Any, hint: str) -> None:
    with pytest.raises(TypeError, match=hint):
        open_batches(data)


def test_values_without_a_common_type_are_an_error_of_the_column() -> None:
    for values in (["a", 1], [2**64], [object()]):
        with pytest.raises(UnwritableError) as caught:
            open_batches({"value": values})
        assert caught.value.reason == "column_type"
