"""Parses what users write in options of Python, commands and Spark: numbers, words, topic patterns, times.

Nothing here knows a log or its columns: callers pass the valid names.
"""

from __future__ import annotations

import operator
import os
import re
import time
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, Final

from kafkalog.errors import ConfigWarning, UnknownNameError, warn
from kafkalog.format import INTERNAL_TOPICS, milliseconds
from kafkalog.text import DURATION, MILLISECONDS, iso_seconds, near, partition_word

Time = int | str | datetime
"""A point in time as users may give it; see `parse_time`."""

_RELATIVE: Final = re.compile(rf"-{DURATION.pattern}")
_TO_END: Final = re.compile(rf"end(?:{_RELATIVE.pattern})?")
_SHOWN: Final = 8
_SECONDS: Final = 10**9, 4 * 10**9
"""Numbers that are dates from 2001 to 2096 in seconds; in milliseconds all are before March 1970."""


def field_path(column: str) -> list[str]:
    """A column, and the fields in it that its name leads to; a field in quotes may have dots.

    >>> field_path('value.user.id'), field_path('value."user.id"')
    (['value', 'user', 'id'], ['value', 'user.id'])
    """
    if "." not in column and '"' not in column:
        return [column]
    return [quoted or plain for quoted, plain in re.findall(r'(?:^|\.)(?:"([^"]+)"(?![^.])|([^.]*))', column)]


def field_column(column: str, path: Iterable[str]) -> str:
    """The name for `field_path`."""
    return ".".join((column, *(f'"{part}"' if "." in part else part for part in path)))


def check_once(columns: Iterable[str]) -> None:
    """Raise ValueError for a column, or a field of one, that is named twice.

    >>> check_once(["value.id", 'value."id"'])
    Traceback (most recent call last):
    ...
    ValueError: columns names 'value."id"' twice; name each column once
    """
    known: set[tuple[str, ...]] = set()
    for name in columns:
        path = tuple(field_path(name))
        if path in known:
            raise ValueError(f"columns names {name!r} twice; name each column once")
        known.add(path)


def hint(word: str, words: Iterable[object]) -> str:
    """The end of a message about an unknown word: the most similar valid one, or else the first valid ones.

    >>> hint("vaule", ["key", "value"]), hint("zzz", ["key", "value"]), hint("zzz", [])
    ("did you mean 'value'?", 'there are key, value', 'there are none')
    """
    known = [str(one) for one in words]
    found = near(word, known)
    return f"did you mean {found!r}?" if found else f"there are {some(known)}"


def column_hint(name: str, columns: Sequence[str]) -> str:
    """The end of a message about an unknown column: the most similar one, or else all, and how to name a field.

    >>> column_hint("ofset", ["key", "offset"]), column_hint("user", ["key"])
    ("did you mean 'offset'?", "there are key; a field of JSON values is value.user, with --value-format json \
(decode={'value': 'json'})")
    """
    several = re.split(r"[\s;|]+", name)
    if several[1:] and {*several} <= {*columns}:
        return f"a comma separates columns: {','.join(several)}"
    meant = _OTHER_COLUMNS.get(name.lower())
    if meant in columns:
        return f"use {meant}"
    if found := near(name, columns):
        return f"did you mean {found!r}?"
    there = f"there are {', '.join(columns)}"
    if not re.fullmatch(r"[A-Za-z_]\w*(?:\.\w+)*", name) or name.startswith(("key.", "value.", "headers.")):
        return there
    return f"{there}; a field of JSON values is value.{name}, with --value-format json (decode={{'value': 'json'}})"


_OTHER_COLUMNS: Final = {
    **dict.fromkeys(("ts", "time", "date", "datetime", "timestamp_ms", "created"), "timestamp"),
    **dict.fromkeys(("message", "msg", "payload", "data", "body", "val"), "value"),
    **dict.fromkeys(("partition_id", "part"), "partition"),
    **dict.fromkeys(("header", "hdrs"), "headers"),
    **dict.fromkeys(("topic_name",), "topic"),
    **dict.fromkeys(("codec", "compression_type"), "compression"),
    **dict.fromkeys(("off", "_offset", "offsets"), "offset"),
    **dict.fromkeys(("leader_epochs", "epoch", "partition_leader_epoch"), "leader_epoch"),
}
"""Names that clients and tables have for columns."""


def some(words: Sequence[object]) -> str:
    """The first few words, as text; ``none`` if there are none.

    >>> some([1, 2]), some(range(10))
    ('1, 2', '0, 1, 2, 3, 4, 5, 6, 7, ...')
    """
    return ", ".join(map(str, words[:_SHOWN])) + (", ..." if len(words) > _SHOWN else "") or "none"


def parse_time(
    name: str, value: object, now_ms: int | None = None, *, end_ms: Callable[[], int] | None = None
) -> int | datetime:
    """A point in time as whole milliseconds since 1970, or as an aware datetime, which may be finer.

    `value` is milliseconds, an aware datetime, a `numpy.datetime64` (UTC, as NumPy defines it), ISO 8601, ``now``, or a
    time before now, such as ``-1h``, ``-30m`` or ``-7d``. Text without a zone is UTC, as what kafkalog prints. `now_ms`
    is what ``now`` is. With `end_ms`, which returns the latest timestamp of a log, ``end`` and times before it, such as
    ``end-1h``, are accepted too.
    Raises ValueError for text that is no time, and for a datetime without a zone; TypeError for something else.

    >>> parse_time("now", "-1h", now_ms=3_600_000), parse_time("now", "5"), parse_time("now", "2026-11-21T08:00Z").year
    (0, 5, 2026)
    """
    if isinstance(value, datetime):
        if value != value:
            raise ValueError(f"{name} is NaT, which is no time")
        if value.tzinfo is None:
            raise ValueError(f"{name} is a naive datetime; add a time zone, such as datetime(..., tzinfo=timezone.utc)")
        return _as_utc(value)
    if getattr(getattr(value, "dtype", None), "kind", "") == "M":
        return int(datetime64_milliseconds(name, value))
    if isinstance(value, str):
        if end_ms is not None and is_to_end(value):
            return _parse_text(name, value.strip()[3:] or "now", end_ms())
        return _parse_text(name, value.strip(), now_ms)
    try:
        # True is an int in Python, but no time
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"{name} is milliseconds, a time as text or an aware datetime, not {type(value).__name__}"
        ) from None


def datetime64_milliseconds(name: str, value: Any, *, is_rounded_up: bool = True) -> Any:
    """int64 milliseconds of a `numpy.datetime64` or an array of them, which are times in UTC."""
    whole = value.astype("datetime64[ms]")
    if (whole != whole).any():
        raise ValueError(f"{name} is NaT, which is no time")
    return whole.astype("int64") + (whole < value) if is_rounded_up else whole.astype("int64")


def is_to_end(value: object) -> bool:
    """Whether a time is ``end``, the latest timestamp of a log, or one before it, such as ``end-1h``."""
    return isinstance(value, str) and _TO_END.fullmatch(value.strip()) is not None


def parse_milliseconds(
    name: str, value: object, now_ms: int | None = None, *, end_ms: Callable[[], int] | None = None
) -> int:
    """Like `parse_time`, as milliseconds since 1970, rounded up to a whole one.

    Issues a ConfigWarning for a number that is a date of these decades in seconds, but early 1970 in milliseconds.
    """
    found = parse_time(name, value, now_ms, end_ms=end_ms)
    if not isinstance(found, datetime) and str(found) == str(value).strip():
        doubt_seconds(name, found)
    return milliseconds(found) if isinstance(found, datetime) else found


def doubt_seconds(name: str, number: int) -> None:
    """Issue a ConfigWarning for a number that is a date of these decades in seconds, but early 1970 in milliseconds."""
    if _SECONDS[0] <= number < _SECONDS[1]:
        meant = f"{number}000 ({iso_seconds(number * 1000)})"
        text = f"{name} {number} is {iso_seconds(number)}, as numbers are milliseconds; did you mean {meant}?"
        warn(text, ConfigWarning)


def parse_duration(name: str, text: str) -> int:
    """Return the milliseconds of a text such as ``15m``; a number alone is milliseconds.

    >>> parse_duration("maxTriggerDelay", "15m"), parse_duration("maxTriggerDelay", "250")
    (900000, 250)
    """
    found = DURATION.fullmatch(text if not text.isdecimal() else f"{text}ms")
    if found is None:
        raise ValueError(f"{name}: expected a duration such as 250ms, 30s, 15m or 1h, not {text!r}")
    return int(found[1]) * MILLISECONDS[found[2]]


def meant_time(value: str) -> str | None:
    """A time as journalctl, date and other tools take it, as `parse_time` does; None for what is no time.

    >>> meant_time("1 hour ago"), meant_time("yesterday"), meant_time("@1700000000"), meant_time("2026-11-28")
    ('-1h', '-1d', '1700000000000', '2026-11-28')
    """
    value = re.sub(r"^[se]@", "", value.strip())
    if found := re.fullmatch(r"-?(\d+) ?([smhdw])(?:ec|econd|in|inute|our|ay|eek|r)?s?(?: ago)?", value.lower()):
        return f"-{int(found[1]) * (7 if found[2] == 'w' else 1)}{found[2].replace('w', 'd')}"
    if found := re.fullmatch(r"@(\d+)", value):
        return f"{found[1]}000"
    value = {"yesterday": "-1d", "today": "-1d", "end": "now"}.get(value.lower(), value)
    return value if _moment_of("", value, None) is not None else None


def _parse_text(name: str, text: str, now_ms: int | None) -> int | datetime:
    moment = _moment_of(name, text, now_ms)
    if moment is not None:
        return moment
    meant = meant_time(text)
    raise ValueError(
        f"{name}: expected milliseconds, a time such as 2026-11-21T08:00:00Z, or one before now such as -1h, not"
        f" {text!r}{f'; did you mean {meant}?' if meant else ''}"
    )


def _moment_of(name: str, text: str, now_ms: int | None) -> int | datetime | None:
    """The time that a text means; None if it means none."""
    if _RELATIVE.fullmatch(text) or text == "now":
        now = time.time_ns() // 10**6 if now_ms is None else now_ms
        return now if text == "now" else now - parse_duration(name, text[1:])
    try:
        return int(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(re.sub(r"^(\d{4}-\d\d-\d\d)Z$", r"\1", text))
    except ValueError:
        return None
    # Source: `Utils.getDateTime`, Kafka 4.3, which adds Z
    return _as_utc(moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC))


def _as_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        # the first or the last day of the calendar, in another zone
        return (datetime.max if moment.year > 1 else datetime.min + timedelta(days=1)).replace(tzinfo=UTC)


class TopicPatterns:
    """Which topics are wanted: names, globs (``orders.*``, ``*-v?``), and either of them after ``!`` for exclusion.

    None stands for all. With exclusions alone, all others are wanted. Without `internal`, internal topics are wanted
    only by patterns that begin with ``_``.

    >>> patterns = TopicPatterns(["orders*", "!*-changelog"])
    >>> [topic for topic in ("orders", "orders-changelog", "payments") if patterns.wants(topic)]
    ['orders']
    """

    def __init__(self, topics: Iterable[str] | str | None, *, internal: bool = True) -> None:
        given = [] if topics is None else [topics] if isinstance(topics, str) else list(topics)
        for topic in given:
            if not isinstance(topic, str):
                raise TypeError(f"topics must be names or globs, not {topic!r}")
        self.included = tuple(dict.fromkeys([one for one in given if not one.startswith("!")]))
        self.excluded = tuple(dict.fromkeys([one[1:] for one in given if one.startswith("!")]))
        self._all = topics is None or (not self.included and bool(self.excluded))
        self._internal = internal

    def wants(self, topic: str) -> bool:
        """Whether to take a topic."""
        if self._all and self._internal and not self.excluded:
            return True
        if self.excluded and any(fnmatchcase(topic, pattern) for pattern in self.excluded):
            return False
        found = [pattern for pattern in self.included if fnmatchcase(topic, pattern)] if self.included else []
        # as consumers, whose patterns leave internal topics out (exclude.internal.topics); `_*` can only mean them
        if topic in INTERNAL_TOPICS and not self._internal:
            return any(pattern.startswith("_") for pattern in found)
        return self._all or bool(found)

    def check(self, topics: Sequence[str]) -> None:
        """Raise UnknownNameError for a name or glob that none of some topics matches: a typo must not read nothing."""
        check_names("topic", self.included, topics)


def check_partitions(wanted: Iterable[int] | None, known: Iterable[int]) -> None:
    """Raise UnknownNameError for a partition number that no topic has, if there are partitions at all."""
    numbers = sorted(set(known))
    for number in sorted(set(wanted or ()) - set(numbers)) if numbers else ():
        raise UnknownNameError(f"no partition {number} here; there are {some(numbers)}")


def check_names(what: str, wanted: str | Sequence[str] | None, known: Sequence[str]) -> None:
    """Raise UnknownNameError for a name or glob that none of the names that are known matches."""
    for pattern in [wanted] if isinstance(wanted, str) else wanted or ():
        if not any(fnmatchcase(name, pattern) for name in known):
            no_such = f"no {what} matches" if set(pattern) & set("*?[") else f"no {what}"
            topic, number = partition_word(pattern) or ("", "")
            if what == "topic" and topic in known:
                meant = f"the partition is -t {topic} -p {number} (topics={topic!r}, partitions={number})"
            else:
                meant = hint(pattern, known)
            raise UnknownNameError(f"{no_such} {pattern!r} here; {meant}")


@cache
def decoder_count() -> int:
    """The default for threads that decode: the CPUs. Asked for once: the answer takes as long as opening a file."""
    return os.cpu_count() or 1


MAX_READERS: Final = 4
"""The most threads that wait for one disk, unless more are asked for."""


def thread_count(threads: int | None, *, decodes: bool = False) -> int:
    """The threads that are asked for; by default one per CPU for work that decodes, else at most `MAX_READERS`."""
    return optional_integer("threads", threads, 1) or (
        decoder_count() if decodes else min(decoder_count(), MAX_READERS)
    )


def name_matcher(wanted: str | Sequence[str] | None) -> Callable[[str], bool]:
    """A function that says whether a name is one of those wanted: names or globs; None for all."""
    globs = [wanted] if isinstance(wanted, str) else wanted
    return lambda name: globs is None or any(fnmatchcase(name, glob) for glob in globs)


def integer(name: str, value: object, at_least: int | None = None, at_most: int | None = None) -> int:
    """A Python or NumPy integer as an int; TypeError for anything else, a bool too, and ValueError out of range."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or isinstance(value, bool):
        raise TypeError(f"{name} must be an int, not {value!r}")
    if (at_least is None or number >= at_least) and (at_most is None or number <= at_most):
        return number
    if at_most is None:
        raise ValueError(f"{name} must be at least {at_least}, not {number}")
    raise ValueError(f"{name} must be {at_least} to {at_most}, not {number}")


def optional_integer(
    name: str, value: object | None, at_least: int | None = None, at_most: int | None = None
) -> int | None:
    """None, or an integer as `integer` checks it."""
    return None if value is None else integer(name, value, at_least, at_most)


def derived_column(name: str) -> ValueError:
    """The error about a column of `extract` that is also in `columns`."""
    return ValueError(f"remove {name!r} from columns: columns of extract are always returned, at the end")


def check_output(output: object, *, dry_run: bool) -> None:
    """Raise ValueError unless there is an output, or it is a dry run."""
    if output is None and not dry_run:
        raise ValueError("exactly one of output= and dry_run=True is required")


def one_of(name: str, value: str, allowed: Sequence[str]) -> str:
    """The value, if it is one of some words; raises ValueError otherwise."""
    if value not in allowed:
        *others, last = [repr(word) for word in allowed]
        either = f"{', '.join(others)} or " if others else ""
        raise ValueError(f"{name} must be {either}{last}, not {value!r}")
    return value
