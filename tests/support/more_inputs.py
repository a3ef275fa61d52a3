"""Which tests take more inputs in a thorough run: those that name what says how many, themselves or by a helper."""

from __future__ import annotations

import ast
import functools
from pathlib import Path

import pytest

_SAYS_HOW_MANY = {
    "effort": {"THOROUGH", "examples", "fuzz_inputs"},
    "fuzzing": {"N_INPUTS"},
    "hypothesis": {"given"},  # with the profile of conftest.py
}
"""Names by the module that they are imported from."""
_VARIABLE = "KAFKALOG_THOROUGH"


def takes_more(item: pytest.Item) -> bool:
    """Whether KAFKALOG_THOROUGH makes a difference to a test."""
    owner = getattr(item, "cls", None) or getattr(item, "function", None)
    return owner is not None and owner.__name__ in concerned(item.path)


@functools.cache
def concerned(path: Path) -> set[str]:
    """What of a file's functions, classes and constants it makes a difference to."""
    body = ast.parse(path.read_bytes()).body
    found = {_VARIABLE}
    for node in body:
        if isinstance(node, ast.ImportFrom):
            found |= _SAYS_HOW_MANY.get(node.module or "", set()) & {name.name for name in node.names}
    left = [(_defined(node), _named(node)) for node in body]
    while reached := [defined for defined, named in left if named & found and not defined <= found]:
        found.update(*reached)
    return found


def _defined(node: ast.stmt) -> set[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    return {name.id for name in ast.walk(node) if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Store)}


def _named(node: ast.stmt) -> set[str]:
    """Names in a statement, texts, and arguments, which fixtures may be."""
    named = set()
    for part in ast.walk(node):
        match part:
            case ast.Name(id=name) | ast.arg(arg=name) | ast.Constant(value=str(name)):
                named.add(name)
    return named
