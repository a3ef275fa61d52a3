"""The tree of a `pyarrow.compute.Expression`: functions, literals, and the columns and fields that it reads.

The tree is read from the form in which Arrow serialises an expression, which is what pickling one gives: functions and
fields in order as metadata of a schema, literals and options as columns. The text of an expression is ambiguous, and
Substrait cannot express much of what engines ask for.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

import pyarrow as pa

from kafkalog.parsing import field_column

if TYPE_CHECKING:
    import pyarrow.compute as pc

COMPARISONS: Final = {
    "==": "equal",
    "!=": "not_equal",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}
"""Arrow's functions that compare."""
MATCH, SKIP, EMIT_NULL = range(3)
"""NullMatchingBehavior of Arrow's SetLookupOptions."""
SWAPPED: Final = {"==": "==", "!=": "!=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}
"""The comparison with its sides exchanged."""
_OPERATIONS: Final = {name: operation for operation, name in COMPARISONS.items()}
_INT32: Final = struct.Struct("=i")


class NotUnderstoodError(Exception):
    """An expression, or a part of one, has a form that is not known here."""


class FieldRef(NamedTuple):
    """A reference to a column, or to a field in it."""

    name: str
    inside: tuple[str, ...] = ()


class Constant(NamedTuple):
    """A literal."""

    scalar: Any


@dataclass(frozen=True, slots=True)
class Call:
    """A call of one of Arrow's functions."""

    function: str
    arguments: list[Node] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    place: tuple[int, int] = (0, 0)
    """Start and end among the pairs of the serialised form; see `with_columns`."""


Node: TypeAlias = FieldRef | Constant | Call


def tree_of(expression: pc.Expression) -> Node:
    """The tree of an expression; raises `NotUnderstoodError` if it is serialised in a way that is not known here."""
    try:
        batch = _serialised(expression)
        stack: list[Call] = [Call("")]
        names: list[str] = []
        n_names = 1
        for at, (kind, text) in enumerate(_metadata(batch.schema)):
            if kind == "call":
                stack.append(Call(text, place=(at, at)))
            elif kind == "end":
                done = stack.pop()
                stack[-1].arguments.append(replace(done, place=(done.place[0], at + 1)))
            elif kind == "options":
                scalar = batch.column(int(text))[0]
                stack[-1].options.update({name: scalar[name] for name in scalar})
            elif kind == "nested_field_ref":
                n_names = int(text)
            elif kind == "field_ref":
                names.append(text)
                if len(names) == n_names:
                    stack[-1].arguments.append(FieldRef(names[0], tuple(names[1:])))
                    names, n_names = [], 1
            elif kind == "literal":
                stack[-1].arguments.append(Constant(batch.column(int(text))[0]))
            else:
                raise NotUnderstoodError
        ((tree,),) = [call.arguments for call in stack]
    # any of these means that a release of Arrow writes expressions differently: then they are applied, not translated
    except (pa.ArrowException, ValueError, TypeError, LookupError, AttributeError, NotImplementedError):
        raise NotUnderstoodError from None
    return tree


def with_columns(expression: pc.Expression, columns: Mapping[tuple[int, int], str]) -> pc.Expression:
    """The expression with columns in place of calls, by `Call.place`; no place may be within another."""
    import pyarrow.compute as pc

    batch = _serialised(expression)
    pairs = [*_metadata(batch.schema)]
    for (start, end), name in sorted(columns.items(), reverse=True):
        pairs[start:end] = [("field_ref", name)]
    sink = pa.BufferOutputStream()
    schema = batch.schema.with_metadata(pa.KeyValueMetadata(pairs))
    with pa.ipc.new_file(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
    return pc.Expression._deserialize(sink.getvalue())


def _serialised(expression: pc.Expression) -> pa.RecordBatch:
    # pyarrow has no API for the tree of an expression, but pickles it, as metadata of a record batch
    _, (buffer,) = expression.__reduce__()
    return pa.ipc.open_file(buffer).get_batch(0)


def _metadata(schema: pa.Schema) -> Iterator[tuple[str, str]]:
    """The pairs of a schema's metadata in order. pyarrow gives a dict, which has each key once.

    They are read through the Arrow C data interface: the third pointer of an ArrowSchema leads to the number of pairs,
    and for each of their texts to its length and its bytes.
    """
    capsule = schema.__arrow_c_schema__()
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    start: int | None = (ctypes.c_void_p * 3).from_address(pointer(capsule, b"arrow_schema"))[2]
    if start is None:
        return
    # its length is known only at its end: nothing after it is read
    memory = memoryview((ctypes.c_char * 2**31).from_address(start)).cast("B")
    (n_texts,), at, texts = _INT32.unpack_from(memory), 4, []
    for _ in range(2 * n_texts):
        (size,) = _INT32.unpack_from(memory, at)
        texts.append(str(memory[at + 4 : at + 4 + size], "utf-8"))
        at += 4 + size
    yield from zip(texts[::2], texts[1::2], strict=True)


def comparison_of(call: Call) -> tuple[Node, str, Node] | None:
    """The sides of a comparison and its operator, with a literal on the right; None for other functions."""
    if call.function not in _OPERATIONS:
        return None
    (one, other), operation = call.arguments, _OPERATIONS[call.function]
    if not isinstance(folded(other), Constant):
        one, other, operation = other, one, SWAPPED[operation]
    return one, operation, folded(other)


def folded(node: Node) -> Node:
    """A cast of a literal as the literal that it is."""
    if isinstance(node, Call) and node.function == "cast" and isinstance(node.arguments[0], Constant):
        try:
            return Constant(node.arguments[0].scalar.cast(node.options["to_type"].type))
        except pa.ArrowException:
            raise NotUnderstoodError from None
    return node


def fields_of(node: Node) -> Iterator[FieldRef]:
    """The columns that a tree reads."""
    if isinstance(node, FieldRef):
        yield node
    elif isinstance(node, Call):
        for argument in node.arguments:
            yield from fields_of(argument)


def columns_read(expression: pc.Expression) -> set[str] | None:
    """The names of the columns that an expression reads; None if that is not known."""
    try:
        return {one.name for one in fields_of(tree_of(expression))}
    except (NotUnderstoodError, RecursionError):
        return None


def fields_read(expression: pc.Expression) -> set[str] | None:
    """The columns and fields that an expression reads, such as ``value.id``; None if that is not known."""
    try:
        return {field_column(one.name, one.inside) for one in fields_of(tree_of(expression))}
    except (NotUnderstoodError, RecursionError):
        return None
