"""Turns a `pyarrow.compute.Expression` into a `Filter`, as far as filters can say what it says.

A filter may match more records than its expression, never fewer. A part that is not understood matches every record.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from kafkalog import format as kf
from kafkalog.interchange.expression_trees import (
    EMIT_NULL,
    MATCH,
    SKIP,
    Call,
    Constant,
    FieldRef,
    Node,
    NotUnderstoodError,
    comparison_of,
    tree_of,
)
from kafkalog.scanning.conditions.filters import MEMBERSHIP, Filter, Term

if TYPE_CHECKING:
    import pyarrow.compute as pc

_MAX_GROUPS: Final = 64
_NEGATED: Final = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_PER_MILLISECOND: Final = {"ms": 1, "us": 10**3, "ns": 10**6}


class Translation(NamedTuple):
    """Groups of terms, as in a `Filter`, and whether they match exactly what the expression matches."""

    groups: tuple[tuple[Term, ...], ...]
    is_exact: bool


_EVERYTHING: Final = Translation(((),), False)
_ALL: Final = Translation(((),), True)
_NONE: Final = Translation((), True)


def translate(expression: pc.Expression, schema: pa.Schema) -> Translation:
    """A filter that matches all records for which an expression is true, and few others.

    Columns whose type in the schema is not that of a record's column are not understood.
    """
    try:
        return _Translator(schema).translate(tree_of(expression), False)
    except (NotUnderstoodError, RecursionError):
        return _EVERYTHING


def both(one: Filter, other: Translation) -> tuple[Filter, bool]:
    """The conjunction of two filters, and whether it is exact; only `one` if the conjunction would be too long."""
    made = _and(Translation(one.groups, True), Translation(other.groups, True))
    return (Filter(made.groups, one.derived), True) if made.is_exact else (one, False)


def _truth(constant: pa.Scalar, negated: bool) -> Translation:
    """The translation of a constant; null is neither true nor false."""
    if not constant.is_valid:
        return _NONE
    if not pa.types.is_boolean(constant.type):
        raise NotUnderstoodError
    return _ALL if constant.as_py() != negated else _NONE


class _Translator:
    """Translates trees over columns of a schema.

    Negations are moved into conditions, where they are exact: a comparison with null is neither true nor false,
    and its negation neither.
    """

    def __init__(self, schema: pa.Schema) -> None:
        self._schema = schema

    def translate(self, node: Node, negated: bool) -> Translation:
        try:
            return self._translate(node, negated)
        except NotUnderstoodError:
            return _EVERYTHING

    def _translate(self, node: Node, negated: bool) -> Translation:
        if isinstance(node, Constant):
            return _truth(node.scalar, negated)
        if isinstance(node, FieldRef):
            return _one(Term.of(self._column(node, "bool"), "==", not negated))
        match node.function, node.arguments:
            case "invert", [argument]:
                return self.translate(argument, not negated)
            case ("and_kleene" | "and" | "or_kleene" | "or") as name, [one, other]:
                sides = self.translate(one, negated), self.translate(other, negated)
                made = (_and if name.startswith("and") != negated else _or)(*sides)
                # without Kleene, null with false is null, which no filter says
                return made if name.endswith("_kleene") else made._replace(is_exact=False)
            case "if_else", [condition, one, other]:
                chosen = _and(self.translate(condition, False), self.translate(one, negated))
                return _or(chosen, _and(self.translate(condition, True), self.translate(other, negated)))
            case ("is_valid" | "is_null") as name, [argument]:
                operation = "is not null" if (name == "is_valid") != negated else "is null"
                return _one(Term.of(self._column(argument), operation))
            case "is_in", [argument]:
                return self._membership(argument, node.options, negated)
            case ("starts_with" | "match_substring") as name, [argument] if not negated:
                return self._search(argument, name, node.options)
        compared = comparison_of(node)
        if compared is not None:
            one, operation, other = compared
            return self._comparison(one, _NEGATED[operation] if negated else operation, other)
        raise NotUnderstoodError

    def _comparison(self, node: Node, operation: str, constant: Node) -> Translation:
        if not isinstance(constant, Constant):
            raise NotUnderstoodError
        column, literal = self._column(node), constant.scalar
        kind = self._comparable(column, literal.type)
        if not literal.is_valid:
            return _NONE
        if kind in ("bool", "codec") and operation not in ("==", "!="):
            raise NotUnderstoodError
        value = _value(kind, literal)
        if kind == "time":
            value, rest = value
            if rest and operation in ("==", "!="):
                return _NONE if operation == "==" else _one(Term.of(column, "is not null"))
            if rest:
                operation = {">=": ">", "<": "<="}.get(operation, operation)
        return _one(Term.of(column, operation, value))

    def _membership(self, node: Node, options: dict[str, Any], negated: bool) -> Translation:
        column = self._column(node)
        behavior, listed = options["null_matching_behavior"].as_py(), options["value_set"].values
        kind = self._comparable(column, listed.type)
        if kind in ("bool", "codec") or behavior not in (MATCH, SKIP, EMIT_NULL):
            raise NotUnderstoodError
        values: list[Any] = []
        for one in listed:
            value = _value(kind, one) if one.is_valid else None
            if kind == "time" and value is not None:
                if value[1]:
                    continue
                value = value[0]
            if value is not None or behavior == MATCH:
                values.append(value)
        made = _one(Term.of(column, "not in" if negated else "in", tuple(values)))
        if negated and behavior == EMIT_NULL:
            return _and(made, _one(Term.of(column, "is not null")))
        return made

    def _search(self, node: Node, name: str, options: dict[str, Any]) -> Translation:
        column, pattern = self._column(node), options["pattern"].as_py()
        if options["ignore_case"].as_py() or not pattern:
            raise NotUnderstoodError
        if self._kind(column) == "bytes":
            operation = "starts_with" if name == "starts_with" else "contains"
            return _one(Term.of(column, operation, pattern.encode() if isinstance(pattern, str) else pattern))
        if self._kind(column) != "text" or name != "starts_with" or not "\0" <= pattern[-1] < "\ud7ff":
            raise NotUnderstoodError
        # a prefix is a range of texts: up to the prefix with its last character replaced by the next one
        after = pattern[:-1] + chr(ord(pattern[-1]) + 1)
        return Translation(((Term.of(column, ">=", pattern), Term.of(column, "<", after)),), True)

    def _column(self, node: Node, kind: str | None = None) -> str:
        """The name of a column, without casts that change no value."""
        target: pa.DataType | None = None
        while isinstance(node, Call) and node.function == "cast" and len(node.arguments) == 1:
            target = node.options["to_type"].type if target is None else target
            (node,) = node.arguments
            if isinstance(node, Call) and node.function == "cast":
                raise NotUnderstoodError
        if not isinstance(node, FieldRef) or node.inside:
            raise NotUnderstoodError
        found = self._kind(node.name)
        if (kind is not None and found != kind) or (target is not None and not self._keeps(node.name, target)):
            raise NotUnderstoodError
        return node.name

    def _comparable(self, column: str, other: pa.DataType) -> str:
        """The kind of a column that is compared with values of a type."""
        kind = self._kind(column)
        if not (pa.types.is_null(other) or _OF_KIND[kind](other)):
            raise NotUnderstoodError
        return kind

    def _keeps(self, column: str, target: pa.DataType) -> bool:
        """Whether a cast of a column keeps all values and their order."""
        kind, own = self._kind(column), self._schema.field(column).type
        if kind == "int":
            return bool(pa.types.is_signed_integer(target) and target.bit_width >= own.bit_width)
        if kind == "time":
            return bool(pa.types.is_timestamp(target) and target.unit in _PER_MILLISECOND)
        if kind == "bytes":
            return _is_bytes(target)
        return _is_text(target) if kind == "text" else False

    def _kind(self, column: str) -> str:
        # only columns that a condition names: each access to a schema's field creates new Python objects
        at = self._schema.get_field_index(column)
        own = None if at < 0 else self._schema.field(at).type
        if own is not None:
            for kind, columns, is_of in _KINDS:
                if column in columns and is_of(own):
                    return kind
        raise NotUnderstoodError


_INTEGERS: Final = (
    "partition",
    "offset",
    "timestamp_type",
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "sequence",
    "batch_base_offset",
    "batch_position",
)
_KINDS: Final[tuple[tuple[str, tuple[str, ...], Callable[[pa.DataType], bool]], ...]] = (
    ("text", ("topic", "segment"), pa.types.is_string),
    ("codec", ("compression",), pa.types.is_string),
    ("bytes", ("key", "value"), lambda own: _is_bytes(own)),
    ("time", ("timestamp",), lambda own: bool(own == pa.timestamp("ms", "UTC"))),
    ("int", _INTEGERS, pa.types.is_signed_integer),
    ("bool", ("is_transactional", "is_control"), pa.types.is_boolean),
)
"""How conditions compare columns, by their names and their types in the schema."""


def _is_bytes(kind: pa.DataType) -> bool:
    return kind in (pa.binary(), pa.large_binary(), pa.binary_view())


def _is_text(kind: pa.DataType) -> bool:
    return kind in (pa.string(), pa.large_string(), pa.string_view())


_OF_KIND: Final[dict[str, Callable[[pa.DataType], bool]]] = {
    "int": pa.types.is_integer,
    "time": pa.types.is_timestamp,
    "bytes": lambda kind: _is_bytes(kind) or _is_text(kind),
    "text": _is_text,
    "codec": _is_text,
    "bool": pa.types.is_boolean,
}
"""Which types of literals a kind of columns is compared with."""


def _value(kind: str, literal: Any) -> Any:
    """A literal in the type of a column; for timestamps milliseconds, and what is left below one."""
    if kind == "time":
        if literal.type.unit == "s":
            return literal.value * 1000, 0
        return divmod(literal.value, _PER_MILLISECOND[literal.type.unit])
    value = literal.as_py()
    if (kind == "int" and not -(2**63) <= value < 2**63) or (kind == "codec" and value not in kf.KNOWN_CODEC_NAMES):
        raise NotUnderstoodError
    if kind == "codec":
        return kf.CODEC_NAMES.index(value)
    return value.encode() if kind == "bytes" and isinstance(value, str) else value


def _one(term: Term) -> Translation:
    return Translation(((term,),), True)


def _and(one: Translation, other: Translation) -> Translation:
    # groups multiply: beyond a limit one side is dropped, and the expression itself decides the rest
    if len(one.groups) * len(other.groups) > _MAX_GROUPS and _is_some(one) and _is_some(other):
        # the shorter one matches all that both match
        return min(one, other, key=lambda side: len(side.groups))._replace(is_exact=False)
    groups = [(*mine, *(term for term in more if term not in mine)) for mine in one.groups for more in other.groups]
    return Translation(_without_repeats(groups), one.is_exact and other.is_exact)


def _is_some(translation: Translation) -> bool:
    """Whether it is neither everything nor nothing."""
    return bool(translation.groups) and translation.groups != ((),)


def _or(one: Translation, other: Translation) -> Translation:
    groups = _without_repeats(_joined([*one.groups, *other.groups]))
    if len(groups) > _MAX_GROUPS:
        return _EVERYTHING
    return Translation(groups, one.is_exact and other.is_exact)


def _joined(groups: Sequence[tuple[Term, ...]]) -> list[tuple[Term, ...]]:
    """Groups in which equalities of one column, each alone in its group, are one term."""
    found: dict[str, list[Any]] = {}
    others: list[tuple[Term, ...]] = []
    for group in groups:
        if len(group) == 1 and group[0].operation in ("==", "in") and group[0].column not in _SINGLE:
            values = group[0].value if group[0].operation in MEMBERSHIP else (group[0].value,)
            found.setdefault(group[0].column, []).extend(values)
        else:
            others.append(group)
    for column, values in found.items():
        unique = tuple(dict.fromkeys(values))
        is_one = len(unique) == 1 and unique[0] is not None
        others.append((Term.of(column, "==", unique[0]) if is_one else Term.of(column, "in", unique),))
    return others


_SINGLE: Final = ("is_transactional", "is_control", "compression")


def _without_repeats(groups: Sequence[tuple[Term, ...]]) -> tuple[tuple[Term, ...], ...]:
    """Groups without those that only match what another one matches."""
    left: dict[frozenset[Term], tuple[Term, ...]] = {frozenset(group): group for group in groups}
    return tuple(group for terms, group in left.items() if not any(other < terms for other in left))
