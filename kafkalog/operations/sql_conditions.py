"""Conditions of a SQL query on fields with values of several types, which DuckDB sees as JSON text.

DuckDB's own tree of the query shows which conditions are on such fields. They become calls of functions, so that
numbers compare with numbers and text with text, as everywhere else.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from kafkalog.errors import ConditionError
from kafkalog.interchange.expression_trees import SWAPPED
from kafkalog.interchange.table_types import Path
from kafkalog.parsing import field_column
from kafkalog.values.mixed_expressions import check_literal
from kafkalog.values.mixed_fields import holds_for_mixed, literal_of

if TYPE_CHECKING:
    import duckdb

Columns: TypeAlias = Mapping[str, frozenset[Path]]
"""The columns of a table in lower case, each with the paths in it that are JSON text."""
Params: TypeAlias = Sequence[Any] | Mapping[str, Any] | None
"""The values of ``?`` in a query in their order, or those of ``$name`` by name."""
Tree: TypeAlias = dict[str, Any]
"""A node of DuckDB's tree of a query."""

_HOLDS: Final = "__kafkalog_holds"
_TEXT: Final = "__kafkalog_text"
# as patterns of conditions: text as it is, objects and lists as JSON, nothing for the others
_MACRO: Final = (
    f"create or replace temp macro {_TEXT}(x) as case json_type(x) when 'VARCHAR' then x ->> '$'"
    " when 'OBJECT' then x when 'ARRAY' then x end"
)
_COMPARISONS: Final = {
    "COMPARE_EQUAL": "==",
    "COMPARE_NOTEQUAL": "!=",
    "COMPARE_LESSTHAN": "<",
    "COMPARE_LESSTHANOREQUALTO": "<=",
    "COMPARE_GREATERTHAN": ">",
    "COMPARE_GREATERTHANOREQUALTO": ">=",
}
_PATTERNS: Final = frozenset(
    ("~~", "!~~", "~~*", "!~~*", "~~~", "regexp_matches", "regexp_full_match", "starts_with", "^@", "prefix")
) | {"contains", "suffix", "ends_with"}
_ACCESS: Final = ("struct_extract", "array_extract", "STRUCT_EXTRACT", "ARRAY_EXTRACT")


class _Scope(NamedTuple):
    """The tables that names of a query may mean, and the common table expressions."""

    tables: dict[str, Columns]
    outer: _Scope | None
    named: Mapping[str, Columns]

    def mixed_below(self, parts: Path) -> frozenset[Path] | None:
        """The paths that are JSON text below what `parts` name; None if no table here or outside has it."""
        table = self.tables.get(parts[0]) if parts[1:] else None
        if table is not None and parts[1] in table:
            return _below(table[parts[1]], parts[2:])
        having = [table for table in self.tables.values() if parts[0] in table]
        if having:
            return frozenset().union(*(_below(table[parts[0]], parts[1:]) for table in having))
        return None if self.outer is None else self.outer.mixed_below(parts)


def _below(paths: frozenset[Path], parts: Path) -> frozenset[Path]:
    return frozenset(path[len(parts) :] for path in paths if path[: len(parts)] == parts)


def typed_query(
    connection: duckdb.DuckDBPyConnection, query: str, tables: Mapping[str, Columns], params: Params = None
) -> tuple[str, Params]:
    """The query with typed conditions, and its parameters; `tables` are its tables in lower case.

    Raises ConditionError for a condition that has no meaning for values of several types.
    """
    if not any(paths for columns in tables.values() for paths in columns.values()):
        return query, params
    tree = json.loads(_value(connection, "select json_serialize_sql(?::varchar)", [query]))
    if tree.get("error"):  # no select, or an error that DuckDB explains better
        return query, params
    named = params if isinstance(params, Mapping) else {str(at): value for at, value in enumerate(params or (), 1)}
    typing = _Typing(connection, named)
    for statement in tree["statements"]:
        typing.query(statement["node"], _Scope({}, None, tables))
    if not typing.n_changes:
        return query, params
    connection.execute(_MACRO)
    # the others stand in conditions now
    left = typing.used - _parameters_in(tree)
    return _text_of(connection, tree), {name: value for name, value in named.items() if name not in left} or None


def add_function(connection: Any) -> None:
    """Make the function that typed conditions call."""
    kinds = ["VARCHAR"] * 3
    connection.create_function(_HOLDS, _holds, kinds, "BOOLEAN", type="arrow")


def _holds(texts: pa.Array | pa.ChunkedArray, operations: pa.Array, literals: pa.Array) -> pa.Array:
    """Whether a condition holds for JSON texts; its operation and its literals, as JSON, are the same in all rows."""
    if not len(texts):
        return pa.array([], pa.bool_())
    array = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
    given = json.loads(literals[0].as_py(), parse_float=Decimal, parse_int=Decimal, parse_constant=Decimal)
    holds = holds_for_mixed(array, (), operations[0].as_py(), given)
    return pa.array(holds, mask=array.is_null().to_numpy(zero_copy_only=False))


class _Typing:
    """Changes the tree of a query in place."""

    def __init__(self, connection: duckdb.DuckDBPyConnection, params: Mapping[str, Any]) -> None:
        self._connection = connection
        self._params = params
        self.n_changes = 0
        self.used: set[str] = set()
        """The parameters whose values stand in typed conditions."""

    def query(self, node: Tree, outer: _Scope) -> Columns:
        """Type the conditions of a query; returns its columns, as far as they are known."""
        named = dict(outer.named)
        for entry in (node.get("cte_map") or {}).get("map") or ():
            named[entry["key"].lower()] = self._queries(entry["value"], outer._replace(named=named))
        if node["type"] != "SELECT_NODE":
            return self._queries({**node, "type": "", "cte_map": None}, _Scope({}, outer, named))
        scope = _Scope({}, outer, named)
        self._from(node.get("from_table"), scope)
        columns = _selected(node["select_list"], scope)
        # a name of the select list may stand in a condition, too; those of the tables come first
        inner = _Scope(scope.tables, _Scope({"": columns}, outer, named), named)
        for name, part in node.items():
            if name not in ("from_table", "cte_map"):
                self._expressions(part, inner)
        return columns

    def _queries(self, part: object, scope: _Scope) -> Columns:
        """Type the queries in a part of the tree; returns the columns of the first."""
        found = [self.query(node, scope) for node in _queries(part)]
        return found[0] if found else {}

    def _from(self, table: object, scope: _Scope) -> None:
        """Add the tables of a ``from`` to a scope."""
        if not isinstance(table, dict):
            return
        kind, alias = table.get("type"), str(table.get("alias") or "").lower()
        if kind == "BASE_TABLE":
            name = str(table["table_name"]).lower()
            columns = scope.named.get(name, {})
            scope.tables[alias or name] = _renamed(columns, table)
        elif kind == "SUBQUERY":
            columns = self._queries(table["subquery"], scope)
            scope.tables[alias or f"#{len(scope.tables)}"] = _renamed(columns, table)
        else:
            for name, part in table.items():
                if name in ("left", "right", "source"):
                    self._from(part, scope)
            for name, part in table.items():
                if name not in ("left", "right", "source"):
                    self._expressions(part, scope)

    def _expressions(self, part: object, scope: _Scope) -> None:
        """Type the conditions in a part of the tree."""
        if isinstance(part, list):
            for item in part:
                self._expressions(item, scope)
        elif isinstance(part, dict):
            if str(part.get("type", "")).endswith("_NODE"):
                self.query(part, scope)
                return
            self._condition(part, scope)
            for item in list(part.values()):
                self._expressions(item, scope)

    def _condition(self, part: Tree, scope: _Scope) -> None:
        """Type a condition, if the part is one on a field with values of several types."""
        kind = part.get("type")
        if kind in _COMPARISONS and "left" in part:
            self._comparison(part, _COMPARISONS[kind], scope)
        elif kind == "COMPARE_BETWEEN":
            self._between(part, scope)
        elif kind in ("COMPARE_IN", "COMPARE_NOT_IN"):
            first, *others = part["children"]
            if column := self._column(first, scope):
                operation = "in" if kind == "COMPARE_IN" else "not in"
                self._replace(part, first, operation, [self._literal(column, other) for other in others])
        elif kind == "FUNCTION" and part["function_name"] in _PATTERNS:
            self._pattern(part, scope)
        elif kind == "SUBQUERY" and (column := self._column(part.get("child"), scope)):
            raise ConditionError(several_types(column, "Write the values after `in`"))
        elif kind in ("COMPARE_DISTINCT_FROM", "COMPARE_NOT_DISTINCT_FROM"):
            for column in filter(None, (self._column(part[side], scope) for side in ("left", "right"))):
                raise ConditionError(several_types(column, "Compare it with = or <>"))

    def _comparison(self, part: Tree, operation: str, scope: _Scope) -> None:
        left, right = part["left"], part["right"]
        is_left, is_right = self._column(left, scope), self._column(right, scope)
        if is_left and is_right and operation in ("==", "!="):
            return  # equal values are equal as JSON text
        if is_right and not is_left:
            left, right, operation = right, left, SWAPPED[operation]
        if column := is_left or is_right:
            self._replace(part, left, operation, [self._literal(column, right)])

    def _between(self, part: Tree, scope: _Scope) -> None:
        column = self._column(part["input"], scope)
        if column is None:
            return
        literals = [self._literal(column, part[name]) for name in ("lower", "upper")]
        both = self._expression("a and b")
        for call, operation, literal in zip(both["children"], (">=", "<="), literals, strict=True):
            self._replace(call, part["input"], operation, [literal])
        _become(part, both)

    def _pattern(self, part: Tree, scope: _Scope) -> None:
        arguments = part.get("arguments") or part.get("children") or [{}]
        subject = arguments[0].get("expression", arguments[0])
        if self._column(subject, scope):
            call = self._expression(f"{_TEXT}('')")
            _become(_first(call), dict(subject))
            _become(subject, call)
            self.n_changes += 1

    def _column(self, node: object, scope: _Scope) -> str | None:
        """The name of the field that an expression is, if it is JSON text."""
        parts = _parts(node)
        below = scope.mixed_below(tuple(part.lower() for part in parts)) if parts else None
        return field_column(parts[0], parts[1:]) if below is not None and () in below else None

    def _literal(self, column: str, node: Tree) -> Any:
        """The value that a condition compares with, as JSON holds it."""
        if _has_columns(node):
            raise ConditionError(several_types(column))
        tree = json.loads(_value(self._connection, "select json_serialize_sql('select 0')"))
        tree["statements"][0]["node"]["select_list"] = [node]
        names = _parameters_in(node) & self._params.keys()
        self.used |= names
        value = _value(self._connection, _text_of(self._connection, tree), {name: self._params[name] for name in names})
        if value is None:
            raise ConditionError(f"{column!r} compares with no null: write is null or is not null")
        check_literal(column, value)
        return literal_of(column, value, is_bare=False)

    def _replace(self, part: Tree, field: Tree, operation: str, literals: list[Any]) -> None:
        text = f"[{','.join(map(_json, literals))}]".replace("'", "''")
        call = self._expression(f"{_HOLDS}('', '{operation}', '{text}')")
        _become(_first(call), dict(field))
        _become(part, call)
        self.n_changes += 1

    def _expression(self, text: str) -> Tree:
        """The tree of an expression."""
        made = _value(self._connection, "select json_serialize_sql(?::varchar)", [f"select {text}"])
        expression: Tree = json.loads(made)["statements"][0]["node"]["select_list"][0]
        return expression


def _nodes(tree: object) -> Iterator[Tree]:
    """All nodes of a tree."""
    if isinstance(tree, dict):
        yield tree
    parts = tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ()
    for part in parts:
        yield from _nodes(part)


def _parameters_in(tree: object) -> set[str]:
    """The names of the parameters in a tree; those of ``?`` are numbers."""
    return {node["identifier"] for node in _nodes(tree) if node.get("class") == "PARAMETER"}


def _value(connection: duckdb.DuckDBPyConnection, query: str, params: Params = None) -> Any:
    """The value of a query that has one."""
    ((value,),) = connection.execute(query, params or None).fetchall()
    return value


def _text_of(connection: duckdb.DuckDBPyConnection, tree: Tree) -> str:
    """The SQL of a tree."""
    return str(_value(connection, "select json_deserialize_sql(?::json)", [json.dumps(tree)]))


def _json(literal: object) -> str:
    """A literal as JSON, with all digits of a number."""
    return str(literal) if isinstance(literal, Decimal) else json.dumps(literal)


def several_types(field: str, how: str = "Compare it with a number, text or a boolean") -> str:
    """The text of an error about a field with values of several types; `how` says how to compare it."""
    return (
        f"{field} has values of several types, as JSON text. {how}, or take its text with {field} ->> '$', or its"
        f" number with try_cast({field} as double)"
    )


def _queries(part: object) -> Iterator[Tree]:
    """The queries in a part of the tree, but not those in them."""
    if isinstance(part, dict):
        if str(part.get("type", "")).endswith("_NODE"):
            yield part
        else:
            for item in part.values():
                yield from _queries(item)
    elif isinstance(part, list):
        for item in part:
            yield from _queries(item)


def _selected(expressions: list[Tree], scope: _Scope) -> Columns:
    """The columns of a select list, as far as they are columns of tables."""
    columns: dict[str, frozenset[Path]] = {}
    for expression in expressions:
        if expression.get("type") == "STAR":
            of = str(expression.get("relation_name") or "").lower()
            for name, table in scope.tables.items():
                if not of or of == name:
                    columns |= table
            continue
        parts = tuple(part.lower() for part in _parts(expression))
        name = str(expression.get("alias") or (parts[-1] if parts else "")).lower()
        if name:
            columns[name] = (scope.mixed_below(parts) if parts else None) or frozenset()
    return columns


def _renamed(columns: Columns, table: Tree) -> Columns:
    """The columns under the names that ``as t(a, b)`` gives to the first of them."""
    names = [str(name).lower() for name in table.get("column_name_alias") or ()]
    if not names:
        return columns
    paths = [*columns.values()]
    return dict(zip([*names, *[*columns][len(names) :]], paths, strict=False))


def _parts(node: object) -> Path:
    """The names that an expression is, such as a table, its column and a field; none for another expression."""
    if not isinstance(node, dict):
        return ()
    if node.get("type") == "COLUMN_REF":
        return tuple(node["column_names"])
    name = node["function_name"] if node.get("type") == "FUNCTION" else node.get("type")
    if name not in _ACCESS:
        return ()
    arguments = node.get("arguments") or node.get("children") or ()
    if len(arguments) != 2:
        return ()
    of, field = (argument.get("expression", argument) for argument in arguments)
    parts, literal = _parts(of), field.get("literal") or field.get("value") or {}
    text = literal.get("text", literal.get("value")) if isinstance(literal, dict) else None
    return (*parts, text) if parts and isinstance(text, str) else ()


def _first(call: Tree) -> Tree:
    """The first argument of a call."""
    argument = (call.get("arguments") or call["children"])[0]
    expression: Tree = argument.get("expression", argument)
    return expression


def _has_columns(tree: object) -> bool:
    return any(node.get("type") in ("COLUMN_REF", "SUBQUERY") for node in _nodes(tree))


def _become(part: Tree, other: Tree) -> None:
    """Put another expression in a place of the tree; the name of a column stays."""
    alias = part.get("alias")
    part.clear()
    part.update(other)
    if alias:
        part["alias"] = alias
