"""Public functions and methods whose errors about their arguments name what to type.

Names of other libraries that mean the same (`topic`, `nrows`, `since`) are accepted here, for every function alike.
The annotations of a function say which types its arguments have: others raise before anything is read or written.
"""

from __future__ import annotations

import functools
import os
import re
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from types import FunctionType
from typing import Any, Final, SupportsIndex, TypeVar, cast

from kafkalog.argument_types import MOST, checked, typed_options
from kafkalog.column_names import ALL_COLUMNS

Call = TypeVar("Call")
OfClass = TypeVar("OfClass", bound=type)

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
    code = function.__code__
    by_position = code.co_varnames[: code.co_argcount]
    fitting: dict[str, set[type]] = {}

    @functools.wraps(function)
    def call(*args: Any, **options: Any) -> Any:
        nonlocal known
        if options:
            known = known or keywords_of(function)
            if not options.keys() <= known.keys():
                options = with_own_names(options, known)
        # written out here: most calls have a few values of types that were checked before
        for name, value in (*zip(by_position, args, strict=False), *options.items()):
            if type(value) not in fitting.get(name, ()) or (type(value) is int and abs(value) > MOST):
                own = checked(function, fitting.setdefault(name, set()), name, value)
                if own is not value:
                    args, options = _with(own, name, by_position, args, options)
        try:
            return function(*args, **options)
        except TypeError as error:
            message = _explained(error, function, args, options, owner)
            if message is None:
                raise
        raise TypeError(message)

    return cast(Call, call)


def _explained(
    error: TypeError, function: FunctionType, args: Sequence[object], options: Mapping[str, object], owner: str
) -> str | None:
    """The message about the arguments of a call, of a method of the class `owner`; None if a call below it failed."""
    message, trace = str(error), error.__traceback__
    name = message.partition("() got an unexpected keyword argument ")[2].strip("'")
    if name in options:
        return _unknown(function, name, options[name], keywords_of(function), owner, args)
    if trace is None or trace.tb_next is not None:
        return None
    return _wrong_arguments(function, message, args, owner)


def missing_attribute(value: object, name: str) -> object:
    """Return what has a name in other libraries; for others raise AttributeError, with what to call."""
    if not name.startswith("_"):
        from kafkalog.words import same_attribute

        if same := same_attribute(value, name):
            return getattr(value, same)
    raise _MissingAttribute(value, name)


class _MissingAttribute(AttributeError):
    """An AttributeError that looks for its words when it is shown: `hasattr` asks without showing any."""

    def __init__(self, value: object, missing: str) -> None:
        # Python sets what is unset, and from 3.12 on adds the name of the object's that is most similar, however little
        super().__init__(value, missing, name=missing, obj=None)

    def __str__(self) -> str:
        value, name = self.args
        message = f"{type(value).__name__!r} object has no attribute {name!r}"
        if name.startswith("_"):
            return message
        from kafkalog.words import unknown_attribute

        return f"{message}; {unknown_attribute(value, name)}"

    def __reduce__(self) -> tuple[type, tuple[str]]:
        return AttributeError, (str(self),)


_MissingAttribute.__name__ = _MissingAttribute.__qualname__ = "AttributeError"
_MissingAttribute.__module__ = "builtins"


def leading_names(cls: OfClass) -> OfClass:
    """Return a class whose objects lead as `PublicNames` do: for named tuples, and for dataclasses without a base."""
    setattr(cls, "__getattr__", missing_attribute)  # noqa: B010 - type checkers would take any name for an attribute
    lead(cls, ("from_", "to_"), named)
    return cls


def _unknown(
    function: FunctionType, name: str, value: object, known: Collection[str], owner: str, args: Sequence[object]
) -> str:
    """The message about an option that a function does not have, or a method of the class `owner`."""
    if owner and args:
        owner = (args[0] if isinstance(args[0], type) else type(args[0])).__name__
    title = f"{owner}.{function.__name__}".removesuffix(".__init__") if owner else function.__name__
    return f"{title} has no option {name!r}; {_meant(name, value, known, owner)}"


def _with(
    value: Any, name: str, by_position: Sequence[str], args: tuple[Any, ...], options: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments of a call with another value for one of them."""
    if name in options:
        return args, {**options, name: value}
    place = by_position.index(name)
    return (*args[:place], value, *args[place + 1 :]), options


def named(called: Call, owner: str) -> Call:
    """Return a method whose error about the names and the number of its arguments leads; types are its own matter."""
    function = cast(FunctionType, called)

    @functools.wraps(function)
    def call(*args: object, **options: object) -> object:
        try:
            return function(*args, **options)
        except TypeError as error:
            message = _explained(error, function, args, options, owner)
            if message is None:
                raise
        raise TypeError(message)

    return cast(Call, call)


def lead(cls: type, beginnings: tuple[str, ...], leading: Callable[[FunctionType, str], object] = leading) -> None:
    """Let the public methods of a class lead whose names begin so."""
    for name, value in list(vars(cls).items()):
        function = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
        is_method = type(function) is FunctionType and not name.startswith("_") and name.startswith(beginnings)
        if is_method and not hasattr(function, "__wrapped__"):
            led = leading(cast(FunctionType, function), cls.__name__)
            setattr(cls, name, led if function is value else type(value)(led))


def leading_class(cls: OfClass) -> OfClass:
    """Return a class whose error about the arguments of its `__init__` names those that are meant; of its `__new__`, of
    a tuple.
    """
    made = "__new__" if issubclass(cls, tuple) else "__init__"
    maker = getattr(cls, made)
    if made == "__new__":
        maker.__name__ = maker.__qualname__ = cls.__name__
        maker.__doc__ = cls.__doc__
    setattr(cls, made, leading(maker, "" if made == "__new__" else cls.__name__))
    return cls


@functools.cache
def keywords_of(function: FunctionType) -> dict[str, None]:
    """The keyword arguments that a function takes, in order: its own, those of its typed options, and documented ones.

    The docstring may list some of which another function checks the names.
    """
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = function.__code__
    names = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    known: dict[str, None] = dict.fromkeys(name for name in names if name not in _OWN)
    known |= dict.fromkeys(getattr(typed_options(function), "__annotations__", ()))
    return known | dict.fromkeys(documented_keywords(function))


_OWN: Final = ("self", "cls", "_cls")
"""First arguments of methods, which nobody types."""


def documented_keywords(function: FunctionType) -> list[str]:
    """The parameters that the docstring of a function lists; those after a star may be in another function."""
    from inspect import cleandoc  # takes as long to import as the rest of this module

    documented = re.split(r"^(?=\w+\n-{3,}$)", cleandoc(function.__doc__ or ""), flags=re.MULTILINE)
    parameters = next((part for part in documented if part.startswith("Parameters\n")), "")
    listed = re.findall(r"^(\w+(?:, \w+)*) : ", parameters, re.MULTILINE)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = function.__code__
    own = [one for one in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount] if one not in _OWN]
    return list(dict.fromkeys([*own, *(name for line in listed for name in line.split(", "))]))


def _meant(name: str, value: object, known: Collection[str], owner: str) -> str:
    """What to type instead of an unknown option. A scan takes options in the call that makes it."""
    from kafkalog.words import has_text, meant_keyword, shown, unknown_keyword

    maker = {"Scan": "scan", "BatchScan": "batches"}.get(owner)
    if maker is not None:
        options = keywords_of(getattr(sys.modules["kafkalog"], maker))
        (own,) = with_own_names({name: None}, options)
        own = own if own in options else meant_keyword(name, options) or ""
        if own:
            then = ".to_batches()" if own == "batch_size" else ""
            return f"use kafkalog.{maker}(path, {own}={shown(value)}){then}"
        if has_text(name, options):
            return unknown_keyword(name, options, value)
    return unknown_keyword(name, known, value)


def _wrong_arguments(function: FunctionType, message: str, args: Sequence[object], owner: str) -> str:
    """What to type after Python's own message about too many arguments by position, or too few; others as they are."""
    name, code = function.__qualname__.removesuffix(".__init__").rpartition(".")[2], function.__code__
    positional = [one for one in code.co_varnames[: code.co_argcount] if one not in _OWN]
    if re.search(r" takes .*positional arguments? but ", message):
        return _by_name(function, name, positional, args, owner)
    if missing := re.search(r" missing \d+ required .*argument", message):
        purpose = (function.__doc__ or "").strip().split("\n")[0].split(". ")[0].rstrip(".")
        names = [f"{one}=" for one in re.findall(r"'(\w+)'", message[missing.end() :])]
        reads = "; kafkalog.read_table(path) reads a log" if name in ("load", "write_table") else ""
        return f"{name} needs {' and '.join(names)} ({name}: {purpose}{reads})"
    return message


def _by_name(function: FunctionType, name: str, positional: Sequence[str], args: Sequence[object], owner: str) -> str:
    """What to type instead of one value too many by position: the option of that type, or those that are needed."""
    holder, value = args[0], args[-1]
    if _has_head(owner, holder) and name.startswith(("to_", "read_")) and isinstance(value, int):
        return f"{name} takes no number of rows by position; use head({value}), tail({value}) or limit="
    sys.modules["kafkalog"].types  # noqa: B018 - imports the names of typed options
    others = [one for one in keywords_of.__wrapped__(function) if one not in positional]
    takes = f"{name} takes {' and '.join(positional) or 'nothing'} by position"
    if isinstance(value, list):
        return f"{takes}; " + (
            f"use columns={value!r}" if "columns" in others else _meant("columns", value, others, owner)
        )
    if isinstance(value, str) and (option := _option_of_name(value, others)):
        return f"{takes}; use {option}"
    if isinstance(value, (str, os.PathLike)) and "output" in others:
        return f"{takes}; use output={os.fspath(value)!r}"
    named = ", ".join(f"{one}=" for one in _needed_first(function, others)).replace(", ...=", " ...")
    return takes + (f", and the others by name: {named}" if others else "")


def _has_head(owner: str, holder: object) -> bool:
    """Whether the result of a function, or the object of a method, has the first rows as `head`."""
    return not owner or any("head" in vars(one) for one in type(holder).__mro__)


def _option_of_name(value: str, options: Collection[str]) -> str:
    """The option of a reader of records that a name by position is for: a column, or else a topic; or nothing."""
    if not {"topics", "columns"}.issubset(options) or "output" in options or not re.fullmatch(r"[\w.*-]+", value):
        return ""
    return f"columns={[value]!r}" if value in ALL_COLUMNS else f"topics={value!r}"


def _needed_first(function: FunctionType, names: Sequence[str]) -> list[str]:
    """The first keyword arguments to name: those without a default, and the place to write, without which no one is."""
    code, defaults = function.__code__, function.__kwdefaults__ or {}
    own = code.co_varnames[code.co_argcount : code.co_argcount + code.co_kwonlyargcount]
    needed = [one for one in names if one in own and one not in defaults]
    ordered = [*dict.fromkeys([*needed, *(one for one in names if one == "output"), *names])]
    return ordered[:_SHOWN_KEYWORDS] + (["..."] if len(ordered) > _SHOWN_KEYWORDS else [])


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
