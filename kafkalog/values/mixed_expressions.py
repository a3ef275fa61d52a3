"""Arrow expressions over mixed fields: their comparisons become columns that `mixed_fields` computes.

Numbers then compare with numbers and text with text, as in all other conditions. Functions, such as casts, still
receive the JSON text.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from kafkalog.errors import ConditionError
from kafkalog.interchange.expression_trees import (
    EMIT_NULL,
    MATCH,
    Call,
    Constant,
    FieldRef,
    Node,
    NotUnderstoodError,
    comparison_of,
    fields_of,
    tree_of,
    with_columns,
)
from kafkalog.interchange.table_types import Path
from kafkalog.parsing import field_column, field_path
from kafkalog.values.mixed_fields import TEXT_OPERATIONS, holds_for_mixed, literal_of
from kafkalog.values.types import field_at

if TYPE_CHECKING:
    import pyarrow.compute as pc

_PATTERNS: Final = {function: operation for operation, function in TEXT_OPERATIONS.items()}
_QUOTED: Final = re.compile(r'"(?:[^"\\]|\\.)*"')


class _MixedComparison(NamedTuple):
    """A comparison with a mixed field."""

    place: tuple[int, int]
    field: FieldRef
    depth: int
    """How many names of the field's path lead to the JSON text; the others lead to a field in it."""
    operation: str
    literals: Sequence[Any]
    keeps_null: bool
    """Whether it is null for null."""


class TypedExpression(NamedTuple):
    """An expression in which columns stand for the comparisons with mixed fields."""

    expression: pc.Expression
    comparisons: tuple[_MixedComparison, ...]

    def columns(self, columns: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        """The columns that it reads in addition to `columns`."""
        return {_name(at): _holds(comparison, columns) for at, comparison in enumerate(self.comparisons)}

    def schema(self, schema: pa.Schema) -> pa.Schema:
        """A schema with these columns."""
        return pa.schema([*schema, *(pa.field(_name(at), pa.bool_()) for at in range(len(self.comparisons)))])

    def extended(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """A record batch with these columns."""
        more = self.columns(dict(zip(batch.schema.names, batch.columns, strict=True)))
        return pa.RecordBatch.from_arrays([*batch.columns, *more.values()], schema=self.schema(batch.schema))


def typed_expression(expression: pc.Expression, mixed: Collection[Path]) -> TypedExpression:
    """The expression with typed comparisons; `mixed` are the paths of fields that are JSON text.

    Raises ConditionError for a comparison that has no meaning for values of several types.
    """
    if not mixed:
        return TypedExpression(expression, ())
    try:
        tree = tree_of(expression)
        if not any(_depth(field, mixed) for field in fields_of(tree)):
            return TypedExpression(expression, ())
        comparisons = tuple(_comparisons(tree, mixed))
    except NotUnderstoodError:
        raise ConditionError(
            f"the filter {expression} has a form that this version does not read, and a field with values of several"
            " types: use filters as text or tuples"
        ) from None
    places = {comparison.place: _name(at) for at, comparison in enumerate(comparisons)}
    return TypedExpression(with_columns(expression, places) if places else expression, comparisons)


def check_literal(column: str, value: object) -> None:
    """Raise ConditionError for text with JSON's quotes: it may mean the JSON text, or the text that it stands for."""
    if isinstance(value, str) and _QUOTED.fullmatch(value):
        raise ConditionError(
            f"{column!r} has values of several types, of which text compares with text: write {value[1:-1]!r} instead"
            f" of {value!r}"
        )


def _name(at: int) -> str:
    return f"__typed_{at}"


def _comparisons(node: Node, mixed: Collection[Path]) -> Iterator[_MixedComparison]:
    if not isinstance(node, Call):
        return
    made = _comparison(node, mixed)
    if made is not None:
        yield made
        return
    for argument in node.arguments:
        yield from _comparisons(argument, mixed)


def _comparison(call: Call, mixed: Collection[Path]) -> _MixedComparison | None:
    """A call as a comparison with a mixed field; None for any other."""
    if (compared := comparison_of(call)) is not None:
        one, operation, other = compared
        return _comparison_of_values(call, one, operation, other, mixed)
    subject = call.arguments[0] if call.arguments else None
    depth = _depth(subject, mixed)
    if not isinstance(subject, FieldRef) or not depth:
        return None
    column = field_column(subject.name, subject.inside)
    if call.function in ("is_null", "is_valid"):
        operation = "is null" if call.function == "is_null" else "is not null"
        return _MixedComparison(call.place, subject, depth, operation, (), keeps_null=False)
    if call.function == "is_in":
        behavior, values = call.options["null_matching_behavior"].as_py(), call.options["value_set"].values.to_pylist()
        literals = [value for value in _literals(column, values) if value is not None or behavior == MATCH]
        return _MixedComparison(call.place, subject, depth, "in", literals, keeps_null=behavior == EMIT_NULL)
    if call.function in _PATTERNS and not call.options["ignore_case"].as_py():
        pattern = call.options["pattern"].as_py()
        text = pattern.decode("utf-8", "replace") if isinstance(pattern, bytes) else pattern
        return _MixedComparison(call.place, subject, depth, _PATTERNS[call.function], [text], keeps_null=True)
    return None


def _comparison_of_values(
    call: Call, one: Node, operation: str, other: Node, mixed: Collection[Path]
) -> _MixedComparison | None:
    depth = _depth(one, mixed)
    fields = [node for node in (one, other) if isinstance(node, FieldRef) and _depth(node, mixed)]
    if not fields:
        return None
    column = field_column(fields[0].name, fields[0].inside)
    if not isinstance(one, FieldRef) or not isinstance(other, Constant):
        raise ConditionError(f"{column!r} has values of several types: compare it with a number, text or a boolean")
    literals = _literals(column, [other.scalar.as_py()])
    return _MixedComparison(call.place, one, depth, operation, literals, keeps_null=True)


def _depth(node: Node | None, mixed: Collection[Path]) -> int:
    """How many names of a field's path lead to a mixed field; 0 if none does."""
    if not isinstance(node, FieldRef):
        return 0
    path = _path(node)
    return next((n for n in range(1, len(path) + 1) if path[:n] in mixed), 0)


def _path(field: FieldRef) -> Path:
    return (*field_path(field.name), *field.inside)


def _literals(column: str, values: Sequence[Any]) -> list[Any]:
    for value in values:
        check_literal(column, value)
    return [None if value is None else literal_of(column, value, is_bare=False) for value in values]


def _holds(comparison: _MixedComparison, columns: Mapping[str, pa.Array]) -> pa.Array:
    path = _path(comparison.field)
    start = len(field_path(comparison.field.name)) if comparison.field.name in columns else 1
    whole = columns[comparison.field.name if comparison.field.name in columns else path[0]]
    text, rest = field_at(whole, list(path[start : comparison.depth])), path[comparison.depth :]
    holds = holds_for_mixed(text, rest, comparison.operation, comparison.literals)
    nulls = np.zeros(len(text), np.bool_)
    if comparison.keeps_null:
        nulls = holds_for_mixed(text, rest, "is null", ())
    return pa.array(holds, mask=nulls)
