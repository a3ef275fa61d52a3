"""Numbers of things."""

from __future__ import annotations

import pytest

from kafkalog.text import counted


@pytest.mark.parametrize(
    ("n", "name", "expected"),
    [
        (0, "file", "0 files"),
        (1, "file", "1 file"),
        (1, "batch", "1 batch"),
        (2, "batch", "2 batches"),
        (1_234_567, "record", "1,234,567 records"),
    ],
)
def test_one_is_singular_and_thousands_are_grouped(n: int, name: str, expected: str) -> None:
    assert counted(n, name) == expected


def test_a_plural_of_its_own_is_taken() -> None:
    assert [counted(n, "directory", "directories") for n in (1, 2)] == ["1 directory", "2 directories"]
