"""Objects for notebooks and JSON: HTML tables of what an object holds, every text escaped; and dicts of its fields.

Names of topics, paths and keys come from files that anybody may have written: markup in them is shown, not obeyed.
"""

from __future__ import annotations

import html
import json
from abc import ABCMeta
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import fields, is_dataclass
from enum import Enum
from itertools import islice
from pathlib import PurePath
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Final,
    NoReturn,
    Self,
    SupportsIndex,
    TypeVar,
    overload,
)

from kafkalog.calls import lead, missing_attribute, named
from kafkalog.result_kinds import arrow_types
from kafkalog.text import first_names, near

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Item = TypeVar("Item")

MOST_ROWS: Final = 50
_MOST_FINDINGS: Final = 20
_MOST_CHARACTERS: Final = 300
_MOST_PRINTED: Final = 20
_MOST_IN_CELL: Final = 40
_LINE: Final = 120
_ROWS: Final = ("partitions", "files", "segments", "faults")
_FINDING: Final = ("reason", "path", "position", "base_offset", "last_offset", "n_records", "damage", "detail")


def visible(value: object, most: int = _MOST_CHARACTERS) -> str:
    """Return a value as text of at most `most` characters; those that cannot be seen are written as escapes."""
    text = str(value)
    # notebooks show reports unasked: a long value must not fill the page
    if len(text) > most:
        text = text[:most] + "..."
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode() for one in text)


def escape(value: object, most: int = _MOST_CHARACTERS) -> str:
    """Return a value as `visible` does, as text that is safe in HTML."""
    return html.escape(visible(value, most))


def table(title: str, names: Sequence[str], rows: Iterable[Sequence[object]], *, n_rows: int | None = None) -> str:
    """Return a table with a title; at most `MOST_ROWS` rows, and how many more there are.

    Numbers stand right; None is an empty cell. `n_rows` is the number of rows, if `rows` are only the first ones.
    """
    listed = list(rows)
    shown = listed[:MOST_ROWS]
    n_more = (len(listed) if n_rows is None else n_rows) - len(shown)
    lines = [f"<p>{escape(title)}</p>"]
    if shown:
        lines.append(
            "<table><thead><tr>" + "".join(f"<th>{escape(name)}</th>" for name in names) + "</tr></thead><tbody>"
        )
        lines += ["<tr>" + "".join(map(_cell, row)) + "</tr>" for row in shown]
        lines.append("</tbody></table>")
    if n_more:
        lines.append(f"<p>and {n_more:,} more</p>")
    return "\n".join(lines)


def preformatted(text: str) -> str:
    """Return lines of text as they are."""
    return "<pre>" + "\n".join(map(escape, text.splitlines())) + "</pre>"


class PublicNames:
    """`dir()` of an object lists what users call: neither private names nor those that other packages use."""

    __slots__ = ()

    _internal: ClassVar[Sequence[str]] = ()
    """Names without an underscore that are not for users."""

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_") and name not in self._internal]

    if not TYPE_CHECKING:
        __getattr__ = missing_attribute


class PublicType(type):
    """Makes classes whose own `dir()` is that of their objects; see `PublicNames`."""

    _internal: Sequence[str]

    if not TYPE_CHECKING:

        def __getattr__(cls, name: str) -> NoReturn:
            message = f"type object {cls.__name__!r} has no attribute {name!r}"
            if not name.startswith("_"):
                from kafkalog.words import unknown_of_class

                message += f"; {unknown_of_class(cls, name)}"
            raise AttributeError(message, name=name, obj=None)

    def __dir__(cls) -> list[str]:
        return [name for name in super().__dir__() if not name.startswith("_") and name not in cls._internal]


class PublicAbstract(PublicType, ABCMeta):
    """`PublicType` for classes with an abstract base, such as a mapping."""


class Leading(PublicNames):
    """Its public methods name the arguments that are meant."""

    __slots__ = ()
    _led: ClassVar[tuple[str, ...]] = ("",)
    """How the names of these methods begin."""
    _led_untyped: ClassVar[tuple[str, ...]] = ()
    """How the names of those begin that check the types of their arguments themselves."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        lead(cls, cls._led_untyped, named)
        lead(cls, cls._led)


class Bulk(Leading):
    """Reads records in bulk, as often as it is asked to: the error for an index or a length names the call for it.

    A ``with`` block is accepted. Files are open only while they are read.
    """

    __slots__ = ()

    def __bool__(self) -> bool:
        return True

    def close(self) -> None:
        """Do nothing: files are open only while they are read."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        return None

    if not TYPE_CHECKING:

        def __array__(self, dtype: object = None, copy: object = None) -> NoReturn:
            """Raise TypeError: NumPy would make an array of one object."""
            arrays = "to_numpy() has an array for each column" if hasattr(self, "to_numpy") else "use to_table()"
            raise TypeError(f"a {type(self).__name__} is no array: {arrays}")

        def __getitem__(self, key: object) -> NoReturn:
            """Raise TypeError: an offset may be meant, or a column."""
            name = type(self).__name__
            if isinstance(key, str):
                raise TypeError(f"a {name} is read as a whole: use to_table()[{key!r}]")
            if not hasattr(self, "tail"):
                raise TypeError(f"a {name} is read as a whole: use to_table()[...]")
            bounds = (key.start, key.stop) if isinstance(key, slice) else (key, None)
            before_end = [-end for end in bounds if isinstance(end, int) and end < 0]
            if before_end:
                raise TypeError(f"a {name} is read as a whole: use tail({before_end[0]})")
            options = [f"{end}_offset={value}" for end, value in zip(("start", "end"), bounds, strict=True) if value]
            options += [] if isinstance(key, slice) else ["limit=1"]
            raise TypeError(
                f"a {name} is read as a whole: use kafkalog.read_table({', '.join(['path', *options])}) for offsets, or"
                " head(n) and tail(n)"
            )

        def __len__(self) -> NoReturn:
            """Raise TypeError: counting may read all records."""
            count = "count_rows()" if hasattr(self, "count_rows") else "len(to_table())"
            raise TypeError(f"a {type(self).__name__} has no len() before it is read: use {count}")


class Result(Leading):
    """What every result has: its content as a dict, and its rows as a table of Arrow or pandas."""

    __slots__ = ()
    _led = ("to_", "write")  # others are called for each partition or finding

    def __bool__(self) -> bool:
        """Whether the result is `ok`, if it has this attribute; of others, whether they have items."""
        if hasattr(type(self), "ok"):
            return bool(getattr(self, "ok"))  # noqa: B009 - a name of subclasses
        return len(self) > 0 if isinstance(self, Sized) else True

    def _rows(self) -> list[object]:
        """The rows of the table: those of partitions, files or segments, the items of a list, or the result itself."""
        if isinstance(self, list):
            return [*self]
        return [*next((rows for name in _ROWS if (rows := _held(self, name)) is not None), [self])]

    def to_dict(self) -> Any:
        """Return all fields as JSON has them; of a list, a list of dicts."""
        return [_plain(row) for row in self] if isinstance(self, list) else _plain(self)

    def to_arrow(self) -> pa.Table:
        """Return the rows as a `pyarrow.Table`. Nested values, such as findings, are JSON text."""
        import pyarrow as pa

        rows = self._rows()
        dicts = [_plain(row) for row in rows]
        names = dict.fromkeys(name for row in dicts for name in row)
        types = arrow_types(type(rows[0])) if rows and is_dataclass(rows[0]) else {}
        cells = {name: _arrow_cells([row.get(name) for row in dicts]) for name in names}
        return pa.table({name: pa.array(values, types.get(name)) for name, values in cells.items()})

    def to_pandas(self) -> pd.DataFrame:
        """Return the rows as a `pandas.DataFrame`; see `to_arrow`."""
        return self.to_arrow().to_pandas()


class JsonFields(Result):
    """A dataclass with a dict for JSON. Classes may name properties to add, and fields to leave out."""

    __slots__ = ()
    _json_properties: ClassVar[tuple[str, ...]] = ()
    _json_without: ClassVar[tuple[str, ...]] = ()

    def as_dict(self) -> dict[str, Any]:
        """The fields and some properties, for JSON; `topic_partition` as two, and so are findings with a limit."""
        found: dict[str, Any] = {}
        for name in (*self._json_properties, *(one.name for one in fields(self))):  # type: ignore[arg-type]
            value = getattr(self, name)
            if name == "topic_partition":
                found["topic"], found["partition"] = value or (None, None)
            elif name == "findings" and hasattr(value, "n_more"):
                found[name], found["n_more_findings"] = _plain(value.rows), value.n_more
            elif name not in self._json_without:
                found[name] = _plain(value)
        return found


class HtmlReport(Result):
    """The reports of operations in notebooks: a row for each partition or file, and the findings."""

    __slots__ = ()

    def _repr_html_(self) -> str:
        """Return HTML for a notebook."""
        own_rows = list(self) if isinstance(self, list) else []
        rows = next((list(rows) for name in _ROWS if (rows := _held(self, name)) is not None), own_rows)
        parts = [_objects(repr(self), rows)]
        findings = getattr(self, "findings", [])
        found = list(findings)
        if found:
            few = ([getattr(one, name) for name in _FINDING] for one in islice(found, _MOST_FINDINGS))
            parts.append(table("findings", _FINDING, few, n_rows=len(found) + getattr(findings, "n_more", 0)))
        return "\n".join(parts)


class PartsReport(HtmlReport):
    """A report on parts, such as partitions: a container of them, by position, and by their names.

    ``report["orders", 0]`` and ``report["orders-0"]`` are a part, ``report["orders"]`` those of a topic.
    """

    __slots__ = ()

    def _parts(self) -> Sequence[Any]:
        found: Sequence[Any] = self if isinstance(self, list) else self._rows()
        return found

    @property
    def topics(self) -> list[Any]:
        """The topics of the parts, sorted."""
        return sorted({str(topic) for topic in (_place_of(part)[0] for part in self._parts()) if topic is not None})

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parts())

    def __len__(self) -> int:
        return len(self._parts())

    def __contains__(self, key: object) -> bool:
        return any(key in names for names in _names_of(self._parts())) or key in [*self]

    def __getitem__(self, key: Any) -> Any:
        parts = self._parts()
        if isinstance(key, (SupportsIndex, slice)):
            return parts[key]  # type: ignore[index]
        own, shared = _names_of(parts)
        key = key if isinstance(key, str) else tuple(key) if isinstance(key, Sequence) else key
        if len(found := own.get(key, [])) == 1:
            return found[0]
        if found := found or shared.get(key, []):
            return ReportList(found)
        known = [*dict.fromkeys(name for name in (*shared, *own) if isinstance(name, str) and "/" not in name)]
        topic = next(iter(key), key) if isinstance(key, tuple) else key
        known.sort(key=lambda name: not name.startswith(f"{topic}-"))
        close = near(str(key), known)
        raise KeyError(f"no {key!r} here; " + (f"did you mean {close!r}?" if close else f"there are {_listed(known)}"))


_OWN_NAMES: Final = ("name", "transactional_id", "path", "output")
_SHARED_NAMES: Final = ("subject", "reason")


def _listed(names: Sequence[str]) -> str:
    return first_names(names) or "none"


def _place_of(part: object) -> tuple[Any, Any]:
    """Topic and partition of a part of a result; None where it has none."""
    if place := _held(part, "topic_partition"):
        return place[0], place[1]
    if (topic := _held(part, "topic")) is not None:
        return topic, _held(part, "partition")
    path = PurePath(str(_held(part, "path") or _held(part, "output") or ""))
    from kafkalog.format import parse_partition_directory  # loads NumPy, which the help of commands does not need

    directory = parse_partition_directory(path.name) or parse_partition_directory(path.parent.name)
    is_set_apart = directory is None or directory.kind or _held(part, "reason")  # a finding may be about a log dir
    return (None, None) if directory is None or is_set_apart else directory.topic_partition


def _held(part: object, name: str) -> Any:
    """An attribute that an object has, without what stands for other names; None if it has none."""
    try:
        return part.get(name) if isinstance(part, dict) else object.__getattribute__(part, name)
    except AttributeError:
        return None


def _names_of(parts: Iterable[object]) -> tuple[dict[Any, list[Any]], dict[Any, list[Any]]]:
    """The names of parts, and those that several parts share: topics, subjects, reasons."""
    own: dict[Any, list[Any]] = {}
    shared: dict[Any, list[Any]] = {}
    for part in parts:
        topic, number = _place_of(part)
        names = [] if topic is None or number is None else [(topic, number), f"{topic}-{number}"]
        texts = [str(value) for name in _OWN_NAMES if (value := _held(part, name)) is not None]
        for name in dict.fromkeys([*names, *texts, *(text.rpartition("/")[2] for text in texts)]):
            own.setdefault(name, []).append(part)
        for value in (topic, *(_held(part, name) for name in _SHARED_NAMES)):
            if value is not None:
                shared.setdefault(str(value), []).append(part)
    return own, shared


class Names(list[str]):
    """The names of parts, as a property: the error for a call or a name in brackets says where the part is."""

    def __init__(self, names: Iterable[str], owner: str) -> None:
        super().__init__(names)
        self._owner = owner

    def __repr__(self) -> str:
        return list.__repr__(self)

    def __reduce__(self) -> Any:
        return list, (list(self),)

    if not TYPE_CHECKING:

        def __call__(self, *args: object) -> NoReturn:
            raise TypeError("a list of names, which is a property: leave out the parentheses")

        def __getitem__(self, key: object) -> Any:
            if isinstance(key, str):
                raise TypeError(f"a list of names; use {self._owner}[{key!r}]")
            return list.__getitem__(self, key)


class ReportList(list[Item], PartsReport):
    """A list with a short text, and a table for notebooks. Names find items, too."""

    noun = "item"

    @overload
    def __getitem__(self, key: SupportsIndex) -> Item: ...
    @overload
    def __getitem__(self, key: slice) -> list[Item]: ...
    @overload
    def __getitem__(self, key: str | tuple[str, int]) -> Any: ...
    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, (SupportsIndex, slice)):
            return list.__getitem__(self, key)
        return PartsReport.__getitem__(self, key)

    def __contains__(self, key: object) -> bool:
        return list.__contains__(self, key) or PartsReport.__contains__(self, key)

    def summary(self) -> str:
        """Return the summary next to the number of items; "" for nothing."""
        return ""

    def __repr__(self) -> str:
        number = f"{len(self):,} {self.noun}{'' if len(self) == 1 else 's'}"
        return f"{type(self).__name__}({', '.join(filter(None, [number, self.summary()]))})"

    def __str__(self) -> str:
        rest = len(self) - _MOST_PRINTED
        return "\n".join([repr(self), *_lines(self[:_MOST_PRINTED]), *([f"... and {rest:,} more"] if rest > 0 else [])])


def _arrow_cells(values: list[object]) -> list[object]:
    """Values of one type for Arrow: paths as text, and what is nested as JSON."""
    if any(isinstance(value, (list, dict)) for value in values):
        return [None if value is None else json.dumps(value, default=str) for value in values]
    kinds = {type(value) for value in values if value is not None}
    is_plain = len(kinds) <= 1 and kinds <= {bool, int, float, str, bytes}
    return values if is_plain or kinds == {int, float} else [None if value is None else str(value) for value in values]


def _plain(value: object) -> Any:
    """A value as JSON has it."""
    if hasattr(value, "as_dict"):
        return value.as_dict()
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name)) for one in fields(value)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(one) for key, one in value.items()}
    return value.value if isinstance(value, Enum) else value


def _objects(title: str, rows: Sequence[object]) -> str:
    """A table of dataclasses."""
    columns = _filled_columns(rows[:MOST_ROWS])
    return table(title, [*columns], zip(*columns.values(), strict=True), n_rows=len(rows))


def _filled_columns(rows: Sequence[object]) -> dict[str, list[object]]:
    """The fields and properties of dataclasses, without those that are empty in all rows."""
    if not rows:
        return {}
    kind = type(rows[0])
    names = [one.name for one in fields(kind) if not one.name.startswith("_")] if is_dataclass(kind) else []
    names += [name for name, value in vars(kind).items() if isinstance(value, property)]
    columns = {name: [_brief(getattr(row, name)) for row in rows] for name in names}
    # a column that is empty for all rows only takes room; False is a value
    return {name: values for name, values in columns.items() if any(value or value is False for value in values)}


def _lines(rows: Sequence[object]) -> Iterator[str]:
    """Rows for a terminal: their own text, or as many columns as fit."""
    if any(type(row).__str__ is not object.__str__ for row in rows):
        yield from (visible(row) for row in rows)
        return
    columns = _filled_columns(rows)
    if "topic" in columns:
        columns.pop("path", None)  # says it again
    cells, width = [], 0
    for name, values in columns.items():
        column = [name, *("" if value is None else visible(value, _MOST_IN_CELL) for value in values)]
        longest = max(map(len, column))
        width += longest + 2
        if width > _LINE:
            break
        is_number = all(value is None or type(value) is int for value in values)
        cells.append([cell.rjust(longest) if is_number else cell.ljust(longest) for cell in column])
    yield from ("  ".join(row).rstrip() for row in zip(*cells, strict=True))


def _brief(value: object) -> object:
    """A value for a cell; of a list or a larger dict its length."""
    if isinstance(value, dict) and len(value) == 1:
        return " ".join(str(part) for pair in value.items() for part in pair)
    if isinstance(value, (list, dict)) or (type(value) is tuple):
        return len(value)
    return value if value is None or isinstance(value, (bool, int)) else str(value)


def _cell(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool):
        return f'<td style="text-align:right">{value}</td>'
    return f'<td style="text-align:left">{"" if value is None else escape(value)}</td>'
