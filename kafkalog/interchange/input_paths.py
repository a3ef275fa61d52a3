"""Turns input paths into files: a directory becomes the files in it, and ``NAME=VALUE`` in a path becomes a column.

A partitioned export, Hive, Spark and other tools make such directories, for example
``topic=orders/partition=3/part-0.parquet``. `kafkalog.interchange.record_files` reads the files.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple, NoReturn
from urllib.parse import unquote

import numpy as np
import pyarrow as pa

from kafkalog import format as kf
from kafkalog.errors import NotKafkaError, ReadError, Reason, UnwritableError
from kafkalog.interchange.arrow_buffers import no_rows
from kafkalog.interchange.file_types import FORMATS, SUFFIXES, UNCERTAIN, file_type
from kafkalog.storage.location import refuse_url

NULL_DIRECTORY: Final = "__HIVE_DEFAULT_PARTITION__"
"""The value for null in Hive's directory names."""
_CONNECT: Final = re.compile(r"(?P<topic>[\w.-]+)\+(?P<partition>\d+)\+\d+\.", re.ASCII)
"""A file of Kafka Connect's sinks for object stores: topic, partition, first offset."""
_INT_MAX: Final = 2**31 - 1

Batches = Callable[[Callable[[pa.Schema], Sequence[str]]], Iterator[pa.RecordBatch]]
"""Reads a file, given a function that returns the wanted columns of a schema; see `RecordFile.batches`."""


class InputFile(NamedTuple):
    """A file, and the ``NAME=VALUE`` pairs of the directories above it."""

    path: str | os.PathLike[str] | BinaryIO
    place: dict[str, str]


def input_files(inputs: Iterable[str | os.PathLike[str] | BinaryIO], *, format: str | None = None) -> list[InputFile]:
    """List files and streams; a directory is replaced by the files in it, of one format or of all that a suffix names.

    Directories are walked recursively, in natural order of names (part-2 before part-10). Names that begin with ``.``
    or ``_``, and those without a known suffix, are skipped. So are ``.json`` and ``.avro`` next to other formats.
    Raises NotKafkaError if a directory has no such files, or a link leads out of it.
    """
    found = []
    for each in inputs:
        if not isinstance(each, (str, os.PathLike)):
            found.append(InputFile(each, {}))
            continue
        refuse_url(each)
        if os.path.isdir(each):
            found += [InputFile(path, _place(path)) for path in _files_below(Path(each), format)]
        else:
            found.append(InputFile(each, _place(each)))
    return found


def _place(path: str | os.PathLike[str]) -> dict[str, str]:
    """The ``NAME=VALUE`` directories above a file, the innermost of a name; and what a sink of Kafka Connect says."""
    directories = Path(os.path.abspath(path)).parts[:-1]
    parts = (part.partition("=") for part in directories)
    place = {name: unquote(value) for name, equals, value in parts if name and equals and value != NULL_DIRECTORY}
    of_connect = _CONNECT.match(os.path.basename(path))
    return place if of_connect is None else of_connect.groupdict() | place


def _files_below(root: Path, format: str | None) -> list[str]:
    real_root = Path(os.path.realpath(root))
    found = []
    is_log = False
    for directory, directories, names in os.walk(root, onerror=_refuse):
        here = Path(directory)
        # in place: `os.walk` goes into those that are left
        directories[:] = sorted((name for name in directories if not name.startswith((".", "_"))), key=_natural)
        for name in directories:
            _check_link(here / name, real_root)
        for name in sorted(names, key=_natural):
            is_log |= name.endswith(kf.LOG_SUFFIX) and kf.parse_base_offset(name) is not None
            said, _ = file_type(name)
            if name.startswith((".", "_")) or said is None or format not in (None, said):
                continue
            _check_link(here / name, real_root)
            if os.path.lexists(here / name) and not (here / name).is_file():
                raise NotKafkaError(Reason.NOT_A_FILE, "not a regular file", path=here / name)
            found.append(str(here / name))
    certain = [path for path in found if format is not None or not path.lower().endswith(UNCERTAIN)]
    found = certain or found
    if not found:
        known = f".{format}" if format in FORMATS else SUFFIXES
        detail = f"no files of records here, with names that end in {known}"
        if is_log:
            detail += "; for Kafka's own files, use kafkalog export or kafkalog convert"
        raise NotKafkaError(Reason.NOT_A_FILE, detail, path=root)
    return found


def _check_link(path: Path, root: Path) -> None:
    if path.is_symlink() and not Path(os.path.realpath(path)).is_relative_to(root):
        detail = "a link leads out of the named directory: also name its target, or remove the link"
        raise NotKafkaError(Reason.LINK_OUTSIDE, detail, path=path)


def _refuse(error: OSError) -> NoReturn:
    raise ReadError.of(error, error.filename) from error


def _natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """Sort key for natural order: part-2 before part-10."""
    parts = re.split(r"([0-9]+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts], name


def with_place(batches: Batches, place: Mapping[str, str], columns: Mapping[str, str], path: Any) -> Batches:
    """Add `topic` and `partition` from the path of a file to its record batches, unless it has such columns.

    `place` is that of an `InputFile`, `columns` has names of columns by role, if they differ from the role.
    """
    names = {role: columns.get(role, role) for role in ("topic", "partition")}
    said = {name: role for role, name in names.items() if name in place}
    if not said:
        return batches

    def supplied(wanted: Callable[[pa.Schema], Sequence[str]]) -> Iterator[pa.RecordBatch]:
        def wanted_of_it(schema: pa.Schema) -> Sequence[str]:
            whole = _supply(no_rows(schema), said, place, path).schema
            return [name for name in wanted(whole) if name in schema.names]

        for batch in batches(wanted_of_it):
            yield _supply(batch, said, place, path)

    return supplied


def _supply(batch: pa.RecordBatch, said: Mapping[str, str], place: Mapping[str, str], path: Any) -> pa.RecordBatch:
    arrays, names = list(batch.columns), list(batch.schema.names)
    for name, role in said.items():
        if name not in names:
            value: Any = pa.scalar(place[name]) if role == "topic" else _number(name, place[name], path)
            # a dictionary of one value: no copy of it for each row
            nowhere = pa.array(np.zeros(batch.num_rows, np.int8))
            arrays.append(pa.DictionaryArray.from_arrays(nowhere, pa.array([value.as_py()], value.type)))
            names.append(name)
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _number(name: str, text: str, path: Any) -> pa.Scalar:
    if not (text.isascii() and text.isdecimal() and int(text) <= _INT_MAX):
        detail = (
            f"{name}={text} in its path is not a partition number (0 to {_INT_MAX}), and the file has no such column"
        )
        raise UnwritableError(Reason.COLUMN_VALUE, detail, path=os.fspath(path))
    return pa.scalar(int(text), pa.int32())
