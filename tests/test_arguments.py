"""Arguments: integers of Python and NumPy pass; other types, and what is out of range, are refused by name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kafkalog.arguments import integer, one_of, optional_integer


@pytest.mark.parametrize("value", [5, np.int64(5), np.uint8(5)])
def test_an_integer_becomes_an_int(value: Any) -> None:
    assert type(integer("n", value)) is int
    assert integer("n", value, 5, 5) == optional_integer("n", value, 1) == 5
    assert optional_integer("n", None, 1) is None


@pytest.mark.parametrize("value", [True, np.True_, 5.0, "5", None, [5]])
def test_another_type_is_refused_by_name(value: Any) -> None:
    with pytest.raises(TypeError, match=r"^n must be an int, not "):
        integer("n", value)


def test_a_number_out_of_range_is_refused_with_the_range() -> None:
    with pytest.raises(ValueError, match=r"^n must be at least 1, not 0$"):
        integer("n", 0, 1)
    for wrong in (0, 9):
        with pytest.raises(ValueError, match=rf"^n must be 1 to 8, not {wrong}$"):
            optional_integer("n", wrong, 1, 8)


def test_one_of_some_words() -> None:
    assert one_of("how", "b", ["a", "b", "c"]) == "b"
    with pytest.raises(ValueError, match=r"^how must be 'a', 'b' or 'c', not 'd'$"):
        one_of("how", "d", ["a", "b", "c"])
