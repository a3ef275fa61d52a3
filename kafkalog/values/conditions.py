"""Filters on decoded columns, such as ``value.customer.id == 7``, applied after decoding.

They are terms, as in `kafkalog.scan`, or an Arrow expression.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal, InvalidOperation
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.types as pt

from kafkalog.errors import ConditionError
from kafkalog.interchange.expression_trees import COMPARISONS
from kafkalog.interchange.table_types import Path
from kafkalog.parsing import field_path, parse_time
from kafkalog.values.mixed_expressions import typed_expression
from kafkalog.values.mixed_fields import TEXT_OPERATIONS, holds_for_mixed, literal_of, mask_of, matches_pattern
from kafkalog.values.types import field_at, with_field

Term = tuple[Any, ...]
"""``(column, operation, value)``, without the value for ``is null`` and ``is not null``."""
Groups = list[list[Term]]
"""All terms of a group must hold."""


class Bare(str):
    """A value without quotes in the text of a filter: the column's type decides its meaning."""

    __slots__ = ()


def bytes_literal(text: str) -> str | bytes:
    """The bytes that ``0x`` and hex digits, or ``base64:`` and base64 write; otherwise the text.

    Raises ValueError for other digits.
    """
    if text[:2] in ("0x", "0X"):
        try:
            return bytes.fromhex(text[2:])
        except ValueError:
            raise ValueError(f"{text!r} is not hex; in quotes it is text as it stands") from None
    if text.startswith("base64:"):
        try:
            return base64.b64decode(text[7:], validate=True)
        except binascii.Error:
            raise ValueError(f"{text!r} is not base64; in quotes it is text as it stands") from None
    return text


class ArrowCondition(NamedTuple):
    """An expression over decoded and other columns."""

    expression: Any
    columns: list[str]
    """The columns and fields it reads."""


class AllOf(NamedTuple):
    """Conditions that must all hold."""

    parts: tuple[Groups | ArrowCondition, ...]


Conditions = Groups | ArrowCondition | AllOf

_ROW: Final = "__row"
_MOST_GROUPS: Final = 256
_TEXT: Final = tuple(f"{sign}{name}" for name in TEXT_OPERATIONS for sign in ("", "not "))
SAME_OPERATIONS: Final = {
    "=": "==",
    "startswith": "starts_with",
    "is_null": "is null",
    "is_not_null": "is not null",
    "~": "matches",
}
_OPERATIONS: Final = (*COMPARISONS, *_TEXT, "in", "not in", "is null", "is not null")


class Split(NamedTuple):
    before: Groups | None
    """Conditions on undecoded records. They accept every record that `after` accepts."""
    after: Groups | None
    """Conditions for decoded columns; None if there are none."""


def not_conditions(filters: Any) -> TypeError:
    """The error for filters that are no list; of a dict, it names the list that is meant."""
    wanted = "text such as 'key == abc', or a list of (column, operation, value) tuples"
    text = f"filters must be {wanted}, not {type(filters).__name__}"
    if isinstance(filters, Mapping):
        text += f"; did you mean filters={[(name, '==', value) for name, value in filters.items()]!r}?"
    elif type(filters).__module__.startswith("polars"):
        text += (
            "; an expression of Polars filters a frame, to_polars().filter(...); filters='offset > 400' filters here"
        )
    elif callable(filters):
        text += "; kafkalog.scan(path, where=function) takes one"
    return TypeError(text)


def split_filters(filters: Any, decoded: Collection[str], parse: Callable[[str], Groups]) -> Split:
    """Split the filters of a scan into those on records and those on decoded columns; `parse` makes groups of a text.

    Raises ValueError or TypeError for an invalid condition on a decoded column.
    """
    if isinstance(filters, str):
        filters = [filters]
    if isinstance(filters, (bytes, Mapping)) or not isinstance(filters, Sequence):
        raise not_conditions(filters)
    groups = groups_of(filters, parse)
    if not any(_is_decoded(term, decoded) for group in groups for term in group):
        return Split(groups, None)
    before = [[term for term in group if not _is_decoded(term, decoded)] for group in groups]
    if len(groups) == 1:
        return Split(before if before[0] else None, [[_checked(one) for one in groups[0] if _is_decoded(one, decoded)]])
    # before decoding, a group lacks its decoded terms and accepts too much: all its terms are checked again
    return Split(before if all(before) else None, [[_checked(term) for term in group] for group in groups])


def groups_of(items: Sequence[Any], parse: Callable[[str], Groups]) -> Groups:
    """Parse a list of texts, tuples, or lists of these into groups of conditions; `parse` makes groups of a text."""
    if all(isinstance(item, (tuple, str)) for item in items):
        return all_of(parse(item) if isinstance(item, str) else [[item]] for item in items)
    found: Groups = []
    for group in items:
        if isinstance(group, (str, bytes)) or not isinstance(group, Sequence):
            raise TypeError(f"a filter must be a (column, operation, value) tuple or a list of them, not {group!r}")
        found += all_of(parse(item) if isinstance(item, str) else [[item]] for item in group)
    return found


def all_of(parts: Iterable[Groups]) -> Groups:
    found: Groups = [[]]
    for part in parts:
        found = _checked_number([[*one, *other] for one in found for other in part])
    return found


def any_of(parts: Iterable[Groups]) -> Groups:
    return _checked_number([group for part in parts for group in part])


def _checked_number(groups: Groups) -> Groups:
    if len(groups) > _MOST_GROUPS:
        raise ValueError(f"the filter has more than {_MOST_GROUPS} alternatives: write it with fewer 'or'")
    return groups


def no_term(item: object) -> TypeError:
    """The error about a condition that is no tuple of a column, an operation and a value."""
    return TypeError(f"a filter must be a (column, operation, value) tuple, not {item!r}")


def lacks_value(column: str, operation: str) -> ValueError:
    """The error about a condition without a value."""
    return ValueError(f"{column!r} {operation!r} needs a value")


def compares_none(column: str) -> ValueError:
    """The error about a comparison with None."""
    return ValueError(f"nothing compares with None; write ({column!r}, 'is null') or ({column!r}, 'is not null')")


def _is_decoded(term: Any, decoded: Collection[str]) -> bool:
    if not isinstance(term, tuple) or not term or not isinstance(term[0], str):
        raise no_term(term)
    return field_path(term[0])[0] in decoded


def _checked(term: Term) -> Term:
    column, operation = term[0], " ".join(str(term[1]).split()) if len(term) > 1 else ""
    operation = SAME_OPERATIONS.get(operation, operation)
    if column == "headers":
        operation = {"not has": "has not"}.get(operation, operation)
        if operation not in ("has", "has not") or len(term) != 3 or not isinstance(term[2], (str, bytes)):
            raise ValueError(
                f"{term!r}: filters on headers are ('headers', 'has', name) and ('headers', 'has not', name)"
            )
        return column, operation, term[2]
    if operation not in _OPERATIONS:
        raise ValueError(f"no operation {operation!r} for column {column!r}; there are {', '.join(_OPERATIONS)}")
    if operation.startswith("is "):
        return column, operation
    if len(term) != 3:
        raise lacks_value(column, operation)
    if term[2] is None:
        raise compares_none(column)
    return column, operation, term[2]


def columns_of(groups: Conditions | None) -> list[str]:
    if isinstance(groups, AllOf):
        return list(dict.fromkeys(name for part in groups.parts for name in columns_of(part)))
    if isinstance(groups, ArrowCondition):
        return groups.columns
    return list(dict.fromkeys(term[0] for group in groups or () for term in group))


def matching(
    groups: Conditions, columns: Mapping[str, pa.Array], n: int, mixed: Collection[Path] = ()
) -> npt.NDArray[np.bool_]:
    """bool[n]: rows for which all conditions of one group hold; a field ``a.b`` is looked up in column ``a``.

    `mixed` are the paths of fields that are JSON text because their values have no common type. Raises ValueError or
    TypeError if a field does not exist, or cannot be compared with the value.
    """
    if isinstance(groups, AllOf):
        found = np.ones(n, np.bool_)
        for part in groups.parts:
            found &= matching(part, columns, n, mixed)
        return found
    if isinstance(groups, ArrowCondition):
        return _matching_rows(groups, columns, n, mixed)
    whole = np.zeros(n, np.bool_)
    for group in groups:
        mask = np.ones(n, np.bool_)
        for term in group:
            mask &= _holds(term, columns, mixed)
        whole |= mask
    return whole


def _matching_rows(
    condition: ArrowCondition, columns: Mapping[str, pa.Array], n: int, mixed: Collection[Path]
) -> npt.NDArray[np.bool_]:
    typed = typed_expression(condition.expression, mixed)
    used = typed.columns(columns)
    for column in condition.columns:
        name, *path = field_path(column)
        if column in columns:
            used[column] = columns[column]
            continue
        used[name] = with_field(used.get(name, columns[name]), path)
        if path:  # an expression may name it as a path or as a column
            used[column] = field_at(used[name], path)
    # Arrow's filter returns rows, not a mask: so add row numbers
    table = pa.table({**used, _ROW: np.arange(n)})
    try:
        rows = table.filter(typed.expression).column(_ROW).to_numpy()
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise ConditionError(f"the filter {condition.expression} cannot be applied: {error}") from error
    found = np.zeros(n, np.bool_)
    found[rows] = True
    return found


def _holds(term: Term, columns: Mapping[str, pa.Array], mixed: Collection[Path] = ()) -> npt.NDArray[np.bool_]:
    column, operation = term[0], term[1]
    name, *path = field_path(column)
    if name == "headers":
        return _holds_for_a_header(term, columns[name])
    depth = next((i for i in range(1, len(path) + 2) if (name, *path)[:i] in mixed), 0)
    if depth:
        given = term[2:] if operation not in ("in", "not in") else _listed(operation, term[2])
        literals = [None if one is None else literal_of(column, one, is_bare=isinstance(one, Bare)) for one in given]
        if operation in _TEXT:
            literals = [str(one) for one in given]
        text = field_at(columns[name], path[: depth - 1])
        return holds_for_mixed(text, path[depth - 1 :], operation, literals)
    try:
        array = field_at(columns[name], path)
    except KeyError:  # no value of the selected records has it
        array = pa.nulls(len(columns[name]))
    if operation.startswith("is "):
        return mask_of(array.is_null() if operation == "is null" else array.is_valid())
    return _holds_for(term, array)


def _listed(operation: str, values: Any) -> Sequence[Any]:
    if isinstance(values, (str, bytes)):
        raise ConditionError(f"{operation!r} needs a list of values, not {values!r}")
    listed: Sequence[Any] = values
    return listed


def _holds_for(term: Term, array: pa.Array) -> npt.NDArray[np.bool_]:
    """bool[n]: values of one type for which a condition with a value holds."""
    import pyarrow.compute as pc

    column, operation = term[0], term[1]
    if pt.is_null(array.type):
        found = np.full(len(array), operation in ("in", "not in") and None in term[2])
        return ~found if operation == "not in" else found
    if pt.is_nested(array.type):
        raise ConditionError(f"{column!r} is {array.type}, which cannot be compared; name a field in it")
    if pt.is_float32(array.type):
        # do not round the value, so that it matches no other number; 0.1 matches the float that prints as 0.1
        array = array.cast(pa.float64())
        value = [*map(_of_single, term[2])] if isinstance(term[2], (list, tuple)) else _of_single(term[2])
        term = column, operation, value
    if pt.is_fixed_size_binary(array.type):
        # the value may have another size
        array = array.cast(pa.binary())
    if operation in ("in", "not in"):
        return _holds_for_a_list(term, array)
    if operation in _TEXT:
        if not (pt.is_string(array.type) or pt.is_binary(array.type)):
            raise ConditionError(f"{operation!r} works with text and bytes, but {column!r} is {array.type}")
        return matches_pattern(array, operation, _scalar(column, term[2], array.type).as_py())
    return mask_of(getattr(pc, COMPARISONS[operation])(array, _scalar(column, term[2], array.type)))


def _holds_for_a_list(term: Term, array: pa.Array) -> npt.NDArray[np.bool_]:
    """bool[n]: values that are in a list, or not in it; None in it stands for null."""
    import pyarrow.compute as pc

    column, operation, values = term
    listed = [_scalar(column, value, array.type) for value in _listed(operation, values) if value is not None]
    mask = np.zeros(len(array), np.bool_)
    for scalar in listed:
        mask |= mask_of(pc.equal(array, scalar))
    if None in values:
        mask |= mask_of(array.is_null())
    return ~mask if operation == "not in" else mask


def _holds_for_a_header(term: Term, headers: pa.Array) -> npt.NDArray[np.bool_]:
    """bool[n]: records with a header of this name for which the condition holds."""
    import pyarrow.compute as pc

    column, operation, *value = term
    name = value[0] if column == "headers" else column.removeprefix("headers.")
    entries = headers.flatten()
    has_name = pc.equal(entries.field("key"), name.decode() if isinstance(name, bytes) else name)
    rows = pc.list_parent_indices(headers).filter(has_name).to_numpy()
    if column != "headers":
        rows = rows[_holds(("value", operation, *value), {"value": entries.field("value").filter(has_name)})]
    found = np.zeros(len(headers), np.bool_)
    found[rows] = True
    return ~found if operation == "has not" else found


def _of_single(value: Any) -> Any:
    """The single-precision number that prints as this value; otherwise the value."""
    try:
        number = float(value)
    except (TypeError, ValueError, OverflowError):
        return value
    with np.errstate(over="ignore"):
        near = np.float32(number)
    return float(near) if float(str(near)) == number else value


def _scalar(column: str, value: Any, kind: pa.DataType) -> pa.Scalar:
    """Convert a value to the column's type, or to one that Arrow can compare with it."""
    try:
        return _as_type(value, kind)
    except (ValueError, TypeError, OverflowError, pa.ArrowException) as error:
        raise ConditionError(f"{column!r} is {kind} and cannot be compared with {value!r}: {error}") from None


def _as_type(value: Any, kind: pa.DataType) -> pa.Scalar:
    # in Python, a boolean is also an integer
    if isinstance(value, (bool, np.bool_)) and not pt.is_boolean(kind):
        raise TypeError("not a boolean column")
    for is_of, scalar in _SCALARS:
        if is_of(kind):
            return scalar(value, kind)
    raise TypeError("this type cannot be compared")


def _boolean(value: Any, kind: pa.DataType) -> pa.Scalar:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        value = value.lower() == "true"
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError("expected true or false")
    return pa.scalar(bool(value))


def _integer(value: Any, kind: pa.DataType) -> pa.Scalar:
    if not isinstance(value, (str, int, np.integer)):
        raise TypeError("expected a whole number")
    number = int(value)
    return pa.scalar(number, pa.int64() if number < 2**63 else pa.uint64())


def _decimal(value: Any, kind: pa.DataType) -> pa.Scalar:
    try:
        return pa.scalar(Decimal(str(value)))
    except InvalidOperation:
        raise TypeError("expected a number") from None


def _string(value: Any, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(value.decode() if isinstance(value, bytes) else _text(value))


def _binary(value: Any, kind: pa.DataType) -> pa.Scalar:
    if isinstance(value, Bare):
        value = bytes_literal(value)
    return pa.scalar(value if isinstance(value, bytes) else _text(value).encode(), pa.binary())


def _timestamp(value: Any, kind: pa.DataType) -> pa.Scalar:
    moment = parse_time("a time", value) if kind.tz else _moment(value)
    return pa.scalar(moment, pa.timestamp("ms" if isinstance(moment, int) else "us", kind.tz))


def _date(value: Any, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(value if isinstance(value, date) else date.fromisoformat(value), pa.date32())


def _time(value: Any, kind: pa.DataType) -> pa.Scalar:
    return pa.scalar(value if isinstance(value, time) else time.fromisoformat(value), pa.time64("us")).cast(kind)


_SCALARS: Final[tuple[tuple[Callable[[pa.DataType], bool], Callable[[Any, pa.DataType], pa.Scalar]], ...]] = (
    (pt.is_boolean, _boolean),
    (pt.is_integer, _integer),
    (pt.is_floating, lambda value, kind: pa.scalar(float(value))),
    (pt.is_decimal, _decimal),
    (pt.is_string, _string),
    (pt.is_binary, _binary),
    (pt.is_timestamp, _timestamp),
    (pt.is_date, _date),
    (pt.is_time, _time),
)
"""By the type of a column, how a value that a user gave becomes one that Arrow compares with it."""


def _moment(value: Any) -> int | datetime:
    return datetime.fromisoformat(value) if isinstance(value, str) else value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError("it is text")
    return value
