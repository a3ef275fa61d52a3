"""The options of scans: each with its type, the function that checks it, and the calls that take it.

`scan`, the methods of logs, commands and Spark's jobs take their names and types from here. `kafkalog.scan` documents
each, and `tests/scanning/test_options.py` compares all of them with this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, TypedDict, cast, get_args

import numpy as np

from kafkalog import format as kf
from kafkalog.errors import Limits, OnCorruption
from kafkalog.log.open import PlaceOfFiles
from kafkalog.parsing import Time, TopicPatterns, decoder_count, integer, one_of, parse_milliseconds
from kafkalog.state.read_committed import IsolationLevel
from kafkalog.values.schemas import SchemasOption
from kafkalog.words import unknown_keyword

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

    from kafkalog.scanning.conditions.filter_tuples import Filters
    from kafkalog.values.options import Decode

Offsets = int | Mapping[kf.TopicPartition, int] | Mapping[tuple[str, int], int]


class PlaceOptions(TypedDict, total=False):
    """The options of `scan` that choose files and offsets, for records and batches alike."""

    topics: str | Sequence[str] | None
    partitions: Sequence[int] | int | None
    start_offset: Offsets | None
    end_offset: Offsets | None
    on_corruption: OnCorruption


class BatchOptions(PlaceOptions, total=False):
    """The keyword arguments of `batches`: those of `scan` that do not need records."""

    columns: Sequence[str] | None
    memory_map: bool | Literal["auto"]
    limits: Limits | None


class PlanOptions(PlaceOptions, total=False):
    """The options of `scan` that choose files and offsets; `plan` takes them."""

    isolation_level: IsolationLevel
    include_deleted: bool
    internal: bool


class RecordOptions(TypedDict, total=False):
    """The options of `scan` that choose records and columns; `read_task` takes them."""

    columns: Sequence[str] | None
    start_timestamp: Time | None
    end_timestamp: Time | None
    filters: Filters | pc.Expression | None
    where: Callable[..., Any] | None
    include_control: bool
    check_crcs: bool
    use_time_index: bool
    latest: Literal["key"] | None


class TaskOptions(PlanOptions, RecordOptions, total=False):
    """The options of `scan` for a scan that is divided into tasks."""


class FormatOptions(TypedDict, total=False):
    """Formats that are named as in the shell."""

    value_format: Decode | None
    key_format: Decode | None


class ScanOptions(TaskOptions, FormatOptions, PlaceOfFiles, total=False):
    """The keyword arguments of `scan`. Every function that reads records takes them."""

    limit: int | None
    max_disorder: int | None
    extract: Mapping[str, tuple[Any, Callable[..., Any]]] | None
    threads: int | None
    batch_size: int | None
    memory_map: bool | Literal["auto"]
    binary_type: pa.DataType | None
    decode: Mapping[str, Decode] | None
    schemas: SchemasOption | None
    schema_context: str | None
    limits: Limits | None


OPENING: Final = tuple(PlaceOfFiles.__annotations__)
"""Options of `open` that whatever takes a path takes."""

ENDS: Final = ("end_offset", "end_timestamp", "latest")
"""Options that end a scan, so that they do not go with following a log."""


def first_or_last(limit: str, tail: str) -> str:
    """The message about two options of which one counts the first records, and the other the last ones."""
    return f"{limit} and {tail} exclude each other: {limit} takes the first records, {tail} the last ones"


def with_formats(decode: Mapping[str, Decode] | None, options: Mapping[str, Any]) -> dict[str, Decode]:
    """Return `decode` with the formats that are named as in the shell: `value_format` and `key_format`."""
    given = {column: options.get(f"{column}_format") for column in ("key", "value")}
    formats = {column: format for column, format in given.items() if format is not None}
    # the check of `decode` comes later
    return {**(decode or {}), **formats} if formats or not decode else decode  # type: ignore[return-value]


def split_options(options: TaskOptions) -> tuple[PlanOptions, RecordOptions]:
    """Divide the options of a scan into those of `plan` and those of `read_task`."""
    for name in sorted(set(options) - set(TaskOptions.__annotations__)):
        known = name in ScanOptions.__annotations__
        of_tasks = f"a scan that is divided into tasks does not take {name!r}"
        raise TypeError(of_tasks if known else unknown_option(name, options))
    planning = {name: value for name, value in options.items() if name in PlanOptions.__annotations__}
    reading = {name: value for name, value in options.items() if name not in planning}
    return cast(PlanOptions, planning), cast(RecordOptions, reading)


def _check_topics(name: str, topics: Any) -> list[str]:
    if isinstance(topics, (bytes, Mapping)) or not isinstance(topics, Iterable):
        raise TypeError(f"topics must be a name or a list of names, not {topics!r}")
    found = [topics] if isinstance(topics, str) else list(topics)
    TopicPatterns(found)
    return found


def _check_partitions(name: str, partitions: Any) -> list[int]:
    if isinstance(partitions, (int, np.integer)) and not isinstance(partitions, bool):
        return [int(partitions)]
    if isinstance(partitions, (str, bytes)) or not isinstance(partitions, Iterable):
        raise TypeError(f"partitions must be a number or a list of numbers, not {partitions!r}")
    return [integer("partitions", number) for number in partitions]


def _check_offsets(name: str, value: Any) -> int | dict[kf.TopicPartition, int]:
    if isinstance(value, Mapping):
        offsets = {}
        for key, offset in value.items():
            if not isinstance(key, tuple) or len(key) != 2:
                raise TypeError(
                    f"{name} must be an int, or a mapping of (topic, partition) to int; {key!r} is not a pair"
                )
            offsets[kf.TopicPartition(*key)] = _check_offset(name, offset)
        return offsets
    return _check_offset(name, value)


def _check_offset(name: str, value: Any) -> int:
    number = integer(name, value)
    if name == "start_offset" and number < 0:
        # -1 is the end of the log to Kafka, and its last record to kcat and to Python
        raise ValueError(
            f"{name} must be at least 0, not {number}: kafkalog.scan(path).tail({-number}) has the last records of"
            " each partition"
        )
    return integer(name, number, 0, 2**63 - (name != "end_offset"))  # the end is exclusive


def unknown_option(name: str, options: Mapping[str, object]) -> str:
    """Return the text of an error about an option that scans do not have, with the one that is meant."""
    return f"a scan has no option {name!r}; {unknown_keyword(name, ScanOptions.__annotations__, options[name])}"


def check_options(**options: Any) -> dict[str, Any]:
    """Check options of a scan, and convert them to the values of a `Query`; leaves out those that need more."""
    return {name: CHECKS[name](name, value) for name, value in options.items() if name in CHECKS}


def _optional(check: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda name, value: None if value is None else check(name, value)


def _flag(name: str, value: object) -> bool:
    return bool(value)


def _threads(name: str, value: object) -> int:
    return decoder_count() if value is None else integer(name, value, 1)


CHECKS: Final[dict[str, Callable[[str, Any], Any]]] = {
    "topics": _optional(_check_topics),
    "partitions": _optional(_check_partitions),
    **dict.fromkeys(("start_offset", "end_offset"), _optional(_check_offsets)),
    **dict.fromkeys(("start_timestamp", "end_timestamp"), _optional(parse_milliseconds)),
    **dict.fromkeys(("include_control", "include_deleted", "internal", "check_crcs", "use_time_index"), _flag),
    "on_corruption": partial(one_of, allowed=get_args(OnCorruption)),
    "isolation_level": partial(one_of, allowed=get_args(IsolationLevel)),
    "latest": _optional(partial(one_of, allowed=("key",))),
    **dict.fromkeys(("limit", "max_disorder"), _optional(partial(integer, at_least=0))),
    "threads": _threads,
}
"""The check of each option that needs no more than its value: takes name and value, returns the value of a `Query`."""
