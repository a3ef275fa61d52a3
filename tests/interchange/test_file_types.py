"""Formats and compression by the names of files."""

from __future__ import annotations

import pytest

from kafkalog.interchange.file_types import FORMATS, check_format, file_type, packed_suffix


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((f"x.{name}", (name, None)) for name in FORMATS),
        ("x.PQ", ("parquet", None)),
        ("x.parq", ("parquet", None)),
        ("x.feather", ("arrow", None)),
        ("x.ipc", ("arrow", None)),
        ("x.ndjson.ZSTD", ("jsonl", "zstd")),
        ("orders.2026.csv.gz", ("csv", "gzip")),
        ("x.jsonl.bz2", ("jsonl", "bz2")),
        ("x.gz", (None, "gzip")),
        ("x.gz.gz", (None, "gzip")),
        ("x.txt", (None, None)),
        (".csv", (None, None)),
        ("x", (None, None)),
    ],
)
def test_suffixes_say_format_and_compression(name: str, expected: tuple[str | None, str | None]) -> None:
    assert file_type(name) == expected
    assert file_type(f"/a.csv.gz/{name}") == expected


def test_a_compression_has_the_suffix_that_says_it() -> None:
    for compression in ("gzip", "zstd", "bz2", "lz4"):
        assert file_type(f"x.csv{packed_suffix(compression)}") == ("csv", compression)
    assert packed_suffix("none") == ""


def test_another_format_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(ValueError, match=r"one of parquet, arrow, arrows, csv, jsonl, not 'xml'"):
        check_format("xml")
    for name in FORMATS:
        check_format(name)
