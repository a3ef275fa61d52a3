"""Record columns that come part by part, as one."""

from __future__ import annotations

import numpy as np
import pytest

from kafkalog.records.columns import BinaryColumn, HeadersColumn, RecordColumns, gather


def _masked(values: list[int | None]) -> np.ma.MaskedArray[tuple[int], np.dtype[np.int16]]:
    return np.ma.MaskedArray(
        np.array([0 if value is None else value for value in values], np.int16), [value is None for value in values]
    )


@pytest.mark.parametrize(
    "parts",
    [
        [np.array([1, 2], np.int16), _masked([None, 4]), np.array([5], np.int16)],
        [_masked([None, 2]), np.array([3], np.int16)],
        [np.array([], np.int16), _masked([7, None])],
        [np.array([1], np.int16), np.array([2], np.int16)],
    ],
)
def test_numbers_of_which_some_parts_are_masked(parts: list[np.ndarray]) -> None:
    expected = [value for part in parts for value in part.tolist()]
    found = gather((RecordColumns(len(part), {"x": part}) for part in parts), ["x"])["x"]
    assert found.tolist() == expected
    assert isinstance(found, np.ma.MaskedArray) == (None in expected)
    whole = RecordColumns.concatenate([RecordColumns(len(part), {"x": part}) for part in parts])
    assert whole["x"].tolist() == expected
    rows = np.arange(len(expected))[::-1]
    assert whole.take(rows)["x"].tolist() == expected[::-1]
    assert whole.slice(1, 3)["x"].tolist() == expected[1:3]


@pytest.mark.parametrize("counts", [[0, 0, 0], [0, 2, 0], [1, 0, 3], [2], [0]])
def test_headers_of_which_some_parts_have_none(counts: list[int]) -> None:
    def part(n: int) -> HeadersColumn:
        if not n:
            return HeadersColumn.none(5)
        strings = BinaryColumn(np.arange(n + 1), np.full(n, 65 + n, np.uint8))
        return HeadersColumn(np.array([0, 0, n], np.int64), strings, strings)

    parts = [part(n) for n in counts]
    found = gather((RecordColumns(len(one), {"headers": one}) for one in parts), ["headers"], lambda: 1e6)["headers"]
    assert isinstance(found, HeadersColumn)
    assert found.to_pylist() == [headers for one in parts for headers in one.to_pylist()]
