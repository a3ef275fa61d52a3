"""Checks arguments of functions; each error names the argument and what it may be."""

from __future__ import annotations

import operator
from collections.abc import Sequence


def integer(name: str, value: object, at_least: int | None = None, at_most: int | None = None) -> int:
    """A Python or NumPy integer as an int.

    Raises
    ------
    TypeError
        The value is not an integer; a bool is not one.
    ValueError
        It is out of range.
    """
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {value!r}")
    if (at_least is None or number >= at_least) and (at_most is None or number <= at_most):
        return number
    if at_most is None:
        raise ValueError(f"{name} must be at least {at_least}, not {number}")
    raise ValueError(f"{name} must be {at_least} to {at_most}, not {number}")


def optional_integer(
    name: str, value: object | None, at_least: int | None = None, at_most: int | None = None
) -> int | None:
    """None, or an integer as `integer` checks it."""
    return None if value is None else integer(name, value, at_least, at_most)


def one_of(name: str, value: str, allowed: Sequence[str]) -> str:
    """The value, if it is one of some words; raises ValueError otherwise."""
    if value not in allowed:
        words = [repr(word) for word in allowed]
        raise ValueError(f"{name} must be {', '.join(words[:-1])} or {words[-1]}, not {value!r}")
    return value
