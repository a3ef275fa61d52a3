"""Conditions on mixed fields: columns of JSON text, since their values have no common type.

Numbers compare with numbers, text with text, and true or false with these. Another value neither equals the condition's
value nor has an order with it. Patterns match text, and the JSON text of objects and lists.
"""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog.errors import ConditionError

_COMPARISONS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_NUMBER: Final = re.compile(r"-?(?:0|[1-9]\d*)(?:\.\d+)?(?:[eE][+-]?\d+)?")
NOT_FINITE: Final = frozenset({"NaN", "Infinity", "-Infinity"})
_MOST_EXPONENT: Final = 10_000


def literal_of(column: str, value: Any, *, is_bare: bool) -> Any:
    """The value of a condition as a Decimal, text or a boolean; `is_bare` if it is text without quotes.

    Raises ConditionError for other types.
    """
    if isinstance(value, (bool, np.bool_)):
        return bool(value)
    if isinstance(value, (int, float, Decimal, np.integer, np.floating)):
        return Decimal(str(value))
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str):
        raise ConditionError(
            f"{column!r} has values of several types, and none compares with {value!r}: use a number, text or a boolean"
        )
    if is_bare and (_NUMBER.fullmatch(value) or value in NOT_FINITE):
        return Decimal(value)
    return {"true": True, "false": False}.get(value.lower(), str(value)) if is_bare else str(value)


def holds_for_mixed(
    array: pa.Array, path: Sequence[str], operation: str, literals: Sequence[Any]
) -> npt.NDArray[np.bool_]:
    """bool[n]: for which JSON texts the condition holds; `path` leads to a field in them.

    `literals` are results of `literal_of`, and None for null.
    """
    encoded = array.dictionary_encode()
    values = [_at(_parsed(text), path) for text in encoded.dictionary.to_pylist()]
    is_null = np.array([*(value is None for value in values), True])
    if operation.startswith("is "):
        found = is_null if operation == "is null" else ~is_null
    elif operation in ("in", "not in"):
        found = np.array(
            [*(any(_compares("==", value, one) for one in literals) for value in values), None in literals]
        )
        found |= is_null & (None in literals)
        found = ~found if operation == "not in" else found
    elif operation in _COMPARISONS:
        found = np.array([*(_compares(operation, value, literals[0]) for value in values), False], np.bool_)
    else:
        texts = [value if isinstance(value, str) else _shown(value) for value in values]
        found = matches_pattern(pa.array([*texts, None], pa.string()), operation, literals[0])
    codes = encoded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
    chosen: npt.NDArray[np.bool_] = found[codes]
    return chosen


TEXT_OPERATIONS: Final = {
    "starts_with": "starts_with",
    "contains": "match_substring",
    "like": "match_like",
    "matches": "match_substring_regex",
}
"""Operations on text, each with "not", and Arrow's function. "like" takes SQL's patterns, "matches" those of RE2."""


def matches_pattern(array: pa.Array, operation: str, value: Any) -> npt.NDArray[np.bool_]:
    """bool[n]: which texts or byte strings match. Null matches neither a pattern nor its negation."""
    import pyarrow.compute as pc

    name = operation.removeprefix("not ")
    try:
        found = getattr(pc, TEXT_OPERATIONS[name])(array, value)
    except pa.ArrowInvalid as error:
        raise ConditionError(f"{value!r} is not a valid pattern: {error}") from None
    return mask_of(found if operation == name else pc.invert(found))


def mask_of(array: pa.Array) -> npt.NDArray[np.bool_]:
    """bool[n]: where an array of booleans is true."""
    found: npt.NDArray[np.bool_] = array.fill_null(False).to_numpy(zero_copy_only=False)
    return found.astype(np.bool_)


def _parsed(text: str) -> Any:
    return json.loads(text, parse_int=_number, parse_float=_number, parse_constant=Decimal)


def _number(text: str) -> Decimal:
    exponent = text.lower().partition("e")[2]
    # comparing such numbers would compute all their digits
    if len(exponent) > 6 or abs(int(exponent or 0)) > _MOST_EXPONENT:
        return Decimal(0) if exponent.startswith("-") else Decimal("-Infinity" if text[0] == "-" else "Infinity")
    return Decimal(text)


def _at(value: Any, path: Sequence[str]) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _compares(operation: str, value: Any, literal: Any) -> bool:
    if value is None or literal is None:
        return False
    if type(value) is not type(literal) or (isinstance(value, bool) and operation not in ("==", "!=")):
        return operation == "!="
    if isinstance(value, Decimal) and (value.is_nan() or literal.is_nan()):
        return operation == "!="
    return _COMPARISONS[operation](value, literal)


def _shown(value: Any) -> str | None:
    """The JSON text of an object or a list, for patterns."""
    if not isinstance(value, (dict, list)):
        return None
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=float)
