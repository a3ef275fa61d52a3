"""The types of arguments, as the annotations of a function say: whether a value has its type, and what to type instead.

A list also has to have items of the type. Numbers of NumPy are numbers, and arrays are lists.
"""

from __future__ import annotations

import builtins
import collections.abc
import operator
import os
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from functools import cache, partial
from types import FunctionType, NoneType, SimpleNamespace, UnionType
from typing import Any, BinaryIO, Final, Literal, Union, get_args, get_origin, get_type_hints

MOST: Final = 2**63
"""The largest number of all arguments: an exclusive end of offsets."""
_CHECKED_BELOW: Final = frozenset(
    {
        *("self", "cls", "drop", "extract", "filters", "redact_where", "where"),
        *("sql.query", "export.output", "load.inputs", "reindex.kinds", "build.batches", "check.batches"),
        *("Limits.__init__()", "LogConfig.__init__()"),
    }
)
"""Arguments that functions check with errors of their own, for which they know more than the type."""
_EXAMPLES: Final = {
    "decode": '{"value": "json"}',
    "limits": "kafkalog.Limits(max_batch_bytes=1048576)",
    "storage_options": '{"endpoint": "http://127.0.0.1:9000"}',
    "topic_partition": '("orders", 0)',
}
WRITES: Final = "kafkalog.write_table(table, path, topic=name) writes records"
"""What to type instead of the producer of a client."""
_LISTS: Final = (Sequence, Iterable, Collection, tuple)
_UNIONS: Final = (Union, UnionType)
_BYTES: Final = (bytes, bytearray, memoryview)
_SHOWN_CHARACTERS: Final = 60


def checked(function: FunctionType, fitting: set[type], name: str, value: Any) -> Any:
    """Return an argument, a number of NumPy as one of Python and an array as a list.

    Adds the type of the value to `fitting` if all values of this type fit. Raises TypeError if the value does not fit,
    and ValueError for a word that is none of those that are expected, and for a number of more than 64 bits.
    """
    is_below = {name, f"{function.__name__}.{name}", f"{function.__qualname__}()"} & _CHECKED_BELOW
    hint = Any if is_below else _hint_of(function, name)
    if not _fits(value, hint):
        is_word = isinstance(value, str) and any(get_origin(one) is Literal for one in _kinds(hint))
        error = f"{name} must be {_described(hint)}, not {_brief(value)}{_instead(name, value, hint)}"
        raise (ValueError if is_word else TypeError)(error)
    if type(value) is int and abs(value) > MOST and int in _kinds(hint):
        raise ValueError(f"{name} must be a number of at most 64 bits, not {value}")
    if hint is Any or _fits_by_type(value, hint):
        fitting.add(type(value))
    elif hasattr(type(value), "dtype"):
        return _of_numpy(value, hint)
    return value


def typed_options(function: FunctionType) -> Any:
    """The TypedDict of the keyword arguments after two stars; None without one."""
    code = function.__code__
    if not code.co_flags & _VARKEYWORDS:
        return None
    star = code.co_varnames[code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & _VARARGS)]
    typed = re.fullmatch(r"Unpack\[(?:kafkalog\.types\.)?(\w+)\]", str(function.__annotations__.get(star)))
    if typed is None:
        return None
    return function.__globals__.get(typed[1]) or getattr(sys.modules.get("kafkalog.types"), typed[1], None)


_VARARGS: Final = 4
_VARKEYWORDS: Final = 8
"""Flags of code, as in `inspect`."""


class _AnnotationNames(dict[str, Any]):
    """Names in annotations. Those that are imported for type checkers alone stand for anything."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, getattr(collections.abc, name, Any))


@cache
def _hint_of(function: FunctionType, name: str) -> Any:
    """The type of an argument, or Any."""
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    scope, hint = function.__globals__, function.__annotations__.get(name)
    if hint is None and (typed := typed_options(function)) is not None:
        hint = typed.__annotations__.get(name)
        scope = vars(sys.modules[getattr(hint, "__forward_module__", None) or typed.__module__])
    hint = getattr(hint, "__forward_arg__", hint)
    if hint is None:
        return Any
    try:
        return get_type_hints(SimpleNamespace(__annotations__={name: hint}), scope, _AnnotationNames(scope))[name]
    except (AttributeError, NameError, TypeError):  # a type of a library that is imported only to check types
        return Any


def _kinds(hint: Any) -> Iterator[Any]:
    """The alternatives of a type, without None."""
    for one in get_args(hint) if get_origin(hint) in _UNIONS else (hint,):
        if one not in (None, NoneType):
            yield one


def _fits_by_type(value: object, hint: Any) -> bool:
    """Whether any value of the type is valid, so that no other needs a check: not if 0 and 1 alone are."""
    if type(value) in (int, str):
        return _fits(2 if type(value) is int else "", hint)
    return isinstance(value, (int, str, os.PathLike, NoneType))


def _of_numpy(value: Any, hint: Any) -> Any:
    kinds = [*_kinds(hint)]
    if int in kinds and _is_int(value):
        return operator.index(value)
    if bool in kinds and _is_flag(value):
        return bool(value)
    takes_lists = any(get_origin(one) in _LISTS for one in kinds)
    return value.tolist() if takes_lists and _is_list(value) and value.dtype.kind != "M" else value


# --- whether a value fits ---------------------------------------------------------------------------------------------


def _fits(value: Any, hint: Any) -> bool:
    kind = get_origin(hint) or hint
    if kind in _FITS:
        return _FITS[kind](value, get_args(hint))
    if getattr(kind, "_is_protocol", False):
        return all(hasattr(value, name) for name in vars(kind) if not name.startswith("_"))
    return not isinstance(kind, type) or isinstance(value, kind)


def _is_int(value: Any, _args: object = ()) -> bool:
    try:
        return not isinstance(value, bool) and operator.index(value) is not None
    except TypeError:
        return False


def _is_flag(value: Any, _args: object = ()) -> bool:
    return type(value).__name__ in ("bool", "bool_") or (_is_int(value) and value in (0, 1))


def _is_number(value: Any, _args: object = ()) -> bool:
    return not isinstance(value, (str, bytes, bool)) and hasattr(value, "__float__")


def _is_time(value: Any, _args: object = ()) -> bool:
    is_time = isinstance(value, datetime) or getattr(getattr(value, "dtype", None), "kind", "") == "M"
    return is_time and (hasattr(value, "__len__") or bool(value == value))


def _is_list(value: object) -> bool:
    if hasattr(value, "read") or getattr(value, "ndim", 1) == 0:  # files, and single numbers of NumPy
        return False
    return isinstance(value, Iterable) and not isinstance(value, (str, *_BYTES, Mapping))


def _is_list_of(value: Any, args: Sequence[Any]) -> bool:
    known = value[:1] if type(value).__name__ == "ndarray" else value if isinstance(value, (list, tuple, Set)) else ()
    return _is_list(value) and all(_fits(one, args[0]) for one in (known if args else ()))


def _is_tuple_of(value: Any, args: Sequence[Any]) -> bool:
    if not args or args[-1] is Ellipsis:
        return _is_list_of(value, args)
    is_sequence = isinstance(value, Sequence) and not isinstance(value, (str, bytes))
    return is_sequence and len(value) == len(args) and all(map(_fits, value, args))


def _is_dict_of(value: Any, args: Sequence[Any]) -> bool:
    known = value.items() if isinstance(value, dict) and args else ()
    return isinstance(value, Mapping) and all(_fits(one, args[0]) and _fits(two, args[1]) for one, two in known)


_FITS: Final[dict[Any, Callable[[Any, Any], bool]]] = {
    Any: lambda value, args: True,
    NoneType: lambda value, args: value is None,
    **dict.fromkeys(_UNIONS, lambda value, args: any(map(partial(_fits, value), args))),
    Literal: lambda value, args: any(isinstance(value, type(one)) and value == one for one in args),
    Callable: lambda value, args: callable(value),
    bool: _is_flag,
    int: _is_int,
    float: _is_number,
    bytes: lambda value, args: isinstance(value, _BYTES),
    BinaryIO: lambda value, args: hasattr(value, "read") or hasattr(value, "write"),
    datetime: _is_time,
    **dict.fromkeys(_LISTS, _is_list_of),
    tuple: _is_tuple_of,
    Mapping: _is_dict_of,
}


# --- what to type -----------------------------------------------------------------------------------------------------

_NAMES: Final = {
    int: "an int",
    bool: "True or False",
    float: "a number",
    str: "a str",
    bytes: "bytes",
    BinaryIO: "a binary file",
    datetime: "a datetime with a zone",
    os.PathLike: "a path",
    Mapping: "a dict",
    Callable: "a function",
}


def _described(hint: Any) -> str:
    """What a value has to be, in words."""
    told = dict.fromkeys(words for one in _kinds(hint) for words in _words(one))
    *others, last = (one for one in told if not any(other.startswith(f"{one} by ") for other in told))
    return f"{', '.join(others)} or {last}" if others else last


def _words(hint: Any) -> list[str]:
    kind, args = get_origin(hint) or hint, get_args(hint)
    if kind is Literal:
        return [*map(repr, args)]
    if kind is tuple and args[-1] is not Ellipsis:
        return [f"a tuple of {' and '.join(getattr(arg, '__name__', str(arg)) for arg in args)}"]
    if kind in _LISTS:
        of = [_described(arg).partition(" ")[2] for arg in args[:1] if arg is not Any]
        return [" of ".join(["a list", *filter(None, of)])]
    if kind is Mapping and (fields := getattr(next(iter(args), None), "_fields", None)):
        return [f"a dict by ({', '.join(fields)})"]
    return [_NAMES.get(kind) or f"a {getattr(kind, '__name__', kind)}"]


def _brief(value: object) -> str:
    """A value, or its type if it is long."""
    shown = repr(value)
    return shown if len(shown) <= _SHOWN_CHARACTERS else f"a {type(value).__name__}"


def _instead(name: str, value: Any, hint: Any) -> str:
    """What to type instead of a value, if it is clear: the end of the message."""
    for one in _kinds(hint):
        kind, args = get_origin(one) or one, get_args(one)
        for lead in _LEADS:
            if found := lead(name, value, kind, args):
                return f"; {found}"
    if name == "producer_id":
        return f"; {WRITES}"
    if name == "decode" and isinstance(value, str) and value.isidentifier():
        return f'; such as decode={{"value": "{value}"}}'
    return f"; such as {name}={_EXAMPLES[name]}" if name in _EXAMPLES else ""


def _of_fields(name: str, value: Any, kind: Any, _args: object) -> str | None:
    if not isinstance(value, Mapping) or getattr(kind, "__name__", "") not in sys.modules["kafkalog"].__all__:
        return None
    if hasattr(kind, "from_properties"):
        return f"use {name}=kafkalog.{kind.__name__}.from_properties({value!r})"
    fields = ", ".join(f"{field}={item!r}" for field, item in value.items())
    return f"use {name}=kafkalog.{kind.__name__}({fields})"


def _of_one(name: str, value: Any, kind: Any, args: Sequence[Any]) -> str | None:
    is_one = kind in _LISTS and len(args) == 1 and value is not None and _fits(value, args[0])
    return f"use {name}=[{value!r}]" if is_one else None


def _of_text(name: str, value: Any, kind: Any, _args: object) -> str | None:
    is_number = kind is int and isinstance(value, str) and value.lstrip("-").isdecimal()
    return f"use {name}={value}" if is_number else None


def _of_date(name: str, value: Any, kind: Any, _args: object) -> str | None:
    return f'use {name}="{value.isoformat()}"' if kind is datetime and hasattr(value, "isoformat") else None


def _of_time(name: str, value: Any, kind: Any, _args: object) -> str | None:
    """The option for a time, in place of one for an offset."""
    is_text = isinstance(value, str) and re.match(r"\d{4}-\d\d-\d\d|-\d+[a-z]", value)
    if name not in ("start_offset", "end_offset", "offset", "to_offset", "before_offset"):
        return None
    shown = repr(value) if is_text else "..."
    return f"use {name.replace('offset', 'timestamp')}={shown}" if is_text or isinstance(value, datetime) else None


def _of_file(name: str, value: Any, kind: Any, _args: object) -> str | None:
    if kind is not os.PathLike:
        return None
    if isinstance(value, _BYTES) and name == "path":
        return "open_buffer opens the bytes of a .log that are in memory"
    file = getattr(value, "name", None)
    return f"open {os.fspath(file)!r} by its name" if isinstance(file, (str, os.PathLike)) else None


_LEADS: Final = (_of_fields, _of_one, _of_text, _of_time, _of_date, _of_file)
"""What to type instead of a value of another type: take name, value, the kind that is expected and its arguments."""
