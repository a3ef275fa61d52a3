"""Public functions and methods whose errors about their arguments name what to type.

Names of other libraries that mean the same (`topic`, `nrows`, `since`) are accepted here, for every function alike.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Collection, Mapping, Sequence
from types import FunctionType
from typing import Any, Final, SupportsIndex, TypeVar, cast

Call = TypeVar("Call")

_OTHER_NAMES: Final = {
    "topic": "topics",
    "partition": "partitions",
    "filter": "filters",
    "usecols": "columns",
    **dict.fromkeys(("nrows", "n_rows"), "limit"),
    **dict.fromkeys(("start_time", "since"), "start_timestamp"),
    **dict.fromkeys(("end_time", "until"), "end_timestamp"),
}
"""Options under the names of pandas, Polars, clients and the shell, where these mean the same."""


def leading(called: Call, owner: str = "") -> Call:
    """Return a function whose error about its arguments names those that are meant; other values as they are.

    `owner` is the class of a method.
    """
    if type(called) is not FunctionType:
        return called
    function: Any = called
    known: dict[str, None] = {}

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        nonlocal known
        if options:
            known = known or keywords_of(function)
            if not options.keys() <= known.keys():
                options = with_own_names(options, known)
        try:
            return function(*args, **options)
        except TypeError as error:
            message, trace = str(error), error.__traceback__
            name = message.partition("() got an unexpected keyword argument ")[2].strip("'")
            if name not in options and (trace is None or trace.tb_next is not None):
                raise  # it is about a call further below
        if name in options:
            kind = type(args[0]).__name__ if owner and args else owner
            title = f"{kind}.{function.__name__}" if owner else function.__name__
            raise TypeError(f"{title} has no option {name!r}; {_meant(name, known, kind)}")
        raise TypeError(_wrong_arguments(function, message, args) or message)

    return cast(Call, call)


def lead(cls: type, beginnings: tuple[str, ...]) -> None:
    """Let the public methods of a class lead whose names begin so."""
    for name, value in list(vars(cls).items()):
        is_method = type(value) is FunctionType and not name.startswith("_") and name.startswith(beginnings)
        if is_method and not hasattr(value, "__wrapped__"):
            setattr(cls, name, leading(value, cls.__name__))


@functools.cache
def keywords_of(function: FunctionType) -> dict[str, None]:
    """The keyword arguments that a function takes, in order: its own, those of its typed options, and documented ones.

    The docstring may list some of which another function checks the names.
    """
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    known: dict[str, None] = dict.fromkeys(name for name in names if name not in ("self", "cls"))
    if code.co_flags & _VARKEYWORDS:
        star = code.co_varnames[code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & _VARARGS)]
        typed = re.fullmatch(r"Unpack\[(?:kafkalog\.types\.)?(\w+)\]", str(function.__annotations__.get(star)))
        if typed is not None:
            scope = function.__globals__
            options = scope.get(typed[1]) or getattr(sys.modules.get("kafkalog.types"), typed[1], None)
            known |= dict.fromkeys(getattr(options, "__annotations__", ()))
    return known | dict.fromkeys(documented_keywords(function))


def documented_keywords(function: FunctionType) -> list[str]:
    """The parameters that the docstring of a function lists; those after a star may be in another function."""
    from inspect import cleandoc  # takes as long to import as the rest of this module

    documented = re.split(r"^(?=\w+\n-{3,}$)", cleandoc(function.__doc__ or ""), flags=re.MULTILINE)
    parameters = next((part for part in documented if part.startswith("Parameters\n")), "")
    listed = re.findall(r"^(\w+(?:, \w+)*) : ", parameters, re.MULTILINE)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = function.__code__
    own = [one for one in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if one not in ("self", "cls")]
    return list(dict.fromkeys([*own, *(name for line in listed for name in line.split(", "))]))


_VARARGS: Final = 4
_VARKEYWORDS: Final = 8
"""Flags of code, as in `inspect`."""


def _meant(name: str, known: Collection[str], owner: str) -> str:
    """What to type instead of an unknown option; streams of rows have theirs in the call that made them."""
    from kafkalog.words import meant_keyword, unknown_keyword

    maker = {"Scan": "scan", "BatchScan": "batches"}.get(owner)
    if maker is not None:
        options = keywords_of(getattr(sys.modules["kafkalog"], maker))
        (own,) = with_own_names({name: None}, options)
        own = own if own in options else meant_keyword(name, options) or ""
        if own:
            then = ".to_batches()" if own == "batch_size" else ""
            return f"use kafkalog.{maker}(path, {own}=...){then}"
    return unknown_keyword(name, known)


def _wrong_arguments(function: FunctionType, message: str, args: Sequence[object]) -> str | None:
    """What to type after Python's own message about too many arguments by position, or too few; None for others."""
    name, code = function.__name__, function.__code__
    positional = [one for one in code.co_varnames[: code.co_argcount] if one != "self"]
    if re.search(r" takes .*positional arguments? but ", message):
        if name.startswith(("to_", "read_")) and isinstance(args[-1], int):
            return f"{name} takes no number of rows by position; use head({args[-1]}), tail({args[-1]}) or limit="
        others = [f"{one}=" for one in keywords_of(function) if one not in positional]
        named = ", ".join(others[:_SHOWN_KEYWORDS]) + (" ..." if len(others) > _SHOWN_KEYWORDS else "")
        named = f", and the others by name: {named}" if others else ""
        return f"{name} takes {' and '.join(positional) or 'nothing'} by position{named}"
    if missing := re.search(r" missing \d+ required .*argument", message):
        purpose = (function.__doc__ or "").strip().split("\n")[0].split(". ")[0].rstrip(".")
        names = [f"{one}=" for one in re.findall(r"'(\w+)'", message[missing.end() :])]
        reads = "; kafkalog.read_table(path) reads a log" if name in ("load", "write_table") else ""
        return f"{name} needs {' and '.join(names)} ({name}: {purpose}{reads})"
    return None


_SHOWN_KEYWORDS: Final = 6


def with_own_names(options: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Return options under the names that a function has for them; those that it does not have keep theirs.

    >>> with_own_names({"topic": "orders", "limit": 3}, ["topics", "limit"])
    {'topics': 'orders', 'limit': 3}
    """
    if "partitioner" in known:  # to write: a partition may be a number, or how many there are
        return {**options}
    named: dict[str, Any] = {}
    for name, value in options.items():
        own = _own_name(name, value)
        own = own if name not in known and own in known else name
        if own in named or (own != name and own in options):
            raise TypeError(f"{name} is {own}, which is there twice")
        named[own] = value
    return named


def _own_name(name: str, value: object) -> str:
    if name in ("start", "end") and not isinstance(value, (SupportsIndex, Mapping)):  # a number may be an offset
        return f"{name}_timestamp"
    return _OTHER_NAMES.get(name, name)
