"""Record columns that come part by part, as one."""

from __future__ import annotations

import numpy as np
import pytest

from kafkalog.records.columns import RecordColumns, gather


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
