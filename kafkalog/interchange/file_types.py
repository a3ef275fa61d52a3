"""Derives the format of a file of records, and the compression of the file as a whole, from its name."""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Final, Literal, get_args

Format = Literal["parquet", "arrow", "arrows", "csv", "jsonl"]
FORMATS: Final = get_args(Format)
TABLE_FORMATS: Final = ("delta", "iceberg")
"""Tables in files of their own. They get a field that no value has when the first value has it."""
TEXT_FORMATS: Final = ("csv", "jsonl")
STREAM_FORMATS: Final = ("arrows", *TEXT_FORMATS)
"""Formats that need no end of a file, so that they can be written to a pipe."""
COMPRESSIONS: Final[dict[str, tuple[str, ...]]] = {
    "parquet": ("none", "snappy", "gzip", "lz4", "zstd", "brotli"),
    "arrow": ("none", "lz4", "zstd"),
    "arrows": ("none", "lz4", "zstd"),
    "csv": ("none", "gzip", "zstd"),
    "jsonl": ("none", "gzip", "zstd"),
}
"""Codecs to write with, by format. For text formats they compress the whole file, for the others its contents."""
SUFFIXES: Final = ", ".join(f".{name}" for name in FORMATS)
"""Suffixes to show in messages; others are accepted too."""

_FORMATS_BY_SUFFIX: Final = {
    **{f".{name}": name for name in FORMATS},
    ".pq": "parquet",
    ".parq": "parquet",
    ".feather": "arrow",
    ".ipc": "arrow",
    ".ndjson": "jsonl",
    ".tsv": "csv",
    ".json": "jsonl",
    ".avro": "avro",
}
FORMAT_NAMES: Final = (*(suffix[1:] for suffix, name in _FORMATS_BY_SUFFIX.items() if name in FORMATS), *TABLE_FORMATS)
"""What the formats of exports are called: by their suffixes, and tables."""
UNCERTAIN: Final = (".json", ".avro")
"""Suffixes that other files have as well, such as the metadata of a table."""
VIRTUAL_DISKS: Final = {
    ".qcow2": (b"QFI\xfb",),
    ".vmdk": (b"KDMV", b"COWD"),
    ".vhdx": (b"vhdxfile",),
    ".vhd": (b"conectix",),
    ".vdi": (b"<<< ",),
}
"""Images of disks whose blocks are not in the order of the disk: by suffix, how such a file begins."""
IMAGE_SUFFIXES: Final = (".img", ".raw", ".dd", ".iso", *VIRTUAL_DISKS)
_PACKED_BY_SUFFIX: Final = {".gz": "gzip", ".zst": "zstd", ".zstd": "zstd", ".bz2": "bz2", ".lz4": "lz4"}


def file_type(path: str | os.PathLike[str]) -> tuple[str | None, str | None]:
    """Format and compression of a file, from its suffixes; None for each that the suffixes do not give.

    >>> file_type("orders.csv.gz"), file_type("orders.pq"), file_type("orders")
    (('csv', 'gzip'), ('parquet', None), (None, None))
    """
    suffixes = [suffix.lower() for suffix in Path(path).suffixes]
    packed = _PACKED_BY_SUFFIX.get(suffixes[-1]) if suffixes else None
    if packed is not None:
        suffixes.pop()
    return _FORMATS_BY_SUFFIX.get(suffixes[-1]) if suffixes else None, packed


def check_name(path: str | os.PathLike[str]) -> None:
    """Raise ValueError for the name of a file with tabs, which is read and not written.

    >>> check_name("x.tsv")
    Traceback (most recent call last):
        ...
    ValueError: x.tsv: csv is written with commas; end the name in .csv
    """
    if re.search(r"\.tsv(?:\.\w+)?$", os.fspath(path), re.IGNORECASE):
        raise ValueError(f"{os.fspath(path)}: csv is written with commas; end the name in .csv")


def unknown_format(path: str | os.PathLike[str], otherwise: str = "") -> ValueError:
    """The error about a file whose name has no format, with what to do other than to rename it."""
    name = os.fspath(path)
    if re.search(r"^sqlite:|\.(?:db3?|sqlite3?)$", name, re.IGNORECASE):
        file = re.sub(r"^sqlite:/*|\.\w+$", "", name)
        return ValueError(
            f"{name}: databases are not written; write {file}.csv, which sqlite3 {file}.db '.import --csv {file}.csv"
            " records' imports"
        )
    if re.search(r"\.(?:duckdb|ddb)$", name, re.IGNORECASE):
        file = f"{name.rpartition('.')[0]}.parquet"
        return ValueError(f"{name}: databases are not written; write {file}, which DuckDB reads")
    return ValueError(f"{name}: unknown format; end the name in {SUFFIXES}{otherwise}")


def check_format(format: str, known: Collection[str] = FORMATS) -> None:
    """Raise ValueError for a format that is not among those that can be written, or other known ones."""
    if format not in known:
        raise ValueError(f"format must be one of {', '.join(known)}, not {format!r}")


def packed_suffix(compression: str) -> str:
    """Suffix for a file that is compressed as a whole; empty for "none"."""
    return next((suffix for suffix, name in _PACKED_BY_SUFFIX.items() if name == compression), "")
