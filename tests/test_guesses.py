"""What a newcomer would call on the first day, written down before the names were looked up.

Each guess works, or ends in an error that names the right call (the word behind ``->``). Those that do neither are
listed, so that a guess that stops working is noticed.
"""

from __future__ import annotations

import inspect
import re
import shlex
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import kafkalog
import kafkalog.spark
from kafkalog.cli import main
from kafkalog.spark.source_options import parse_options

PYTHON = """
kafkalog.open(d)
kafkalog.open_log_dir(d).topics
kafkalog.open_partition(p).segments[0]
kafkalog.open_segment(s).batches
kafkalog.open(p).start_offset -> log_start_offset
kafkalog.ls(d)
kafkalog.scan(d).to_pandas()
kafkalog.scan(d).to_polars()
kafkalog.scan(d, topic="orders") -> topics
kafkalog.scan(d, topics="orders").to_table()
kafkalog.scan(d, topics=["order*"]).to_table()
kafkalog.scan(d, topics="*", exclude_topics="*-changelog").to_table() -> topics=['!NAME']
kafkalog.scan(d, limit=10).to_table()
kafkalog.scan(d, columns=["offset", "vaule"]) -> value
kafkalog.scan(d, start_timestamp="2024-01-01T00:00:00Z").to_table()
kafkalog.scan(d, start_timestamp=datetime(2024, 1, 1, tzinfo=UTC)).to_table()
kafkalog.scan(d, start_timestamp="-1h").to_table()
kafkalog.scan(d, start_time="2024-01-01T00:00:00Z") -> start_timestamp
kafkalog.scan(d, filters="offset >= 1").to_table()
kafkalog.scan(d, filter="offset >= 1") -> filters
kafkalog.scan(d, where="offset >= 1") -> filters
kafkalog.read_table(d)
kafkalog.read_pandas(d, topics="orders", limit=1)
kafkalog.read_polars(d)
kafkalog.to_pandas(d) -> read_pandas
kafkalog.open(d).to_pandas()
kafkalog.open(d)["orders-0"]
kafkalog.open(d).partition("orders", 0) -> log_dir[topic, number]
kafkalog.open(p).scan(start_offset=0, end_offset=1).to_table()
kafkalog.open(p).producers()
kafkalog.open(s).to_table(columns=["key", "value"])
kafkalog.open(p).head(3)
kafkalog.verify(d).ok
kafkalog.dump(s)
kafkalog.export(d, out / "x", format="parquet")
kafkalog.batches(p).to_pandas()
kafkalog.lookup(p, offset=1)
kafkalog.lookup(p, timestamp="2024-01-01T00:00:00Z")
kafkalog.index_stats(p)
kafkalog.producers(p)
kafkalog.epochs(p)
kafkalog.reindex(p, dry_run=True)
kafkalog.rebuild_indexes(p) -> reindex
kafkalog.convert(d, out / "converted")
kafkalog.load(parquet, out / "loaded")
next(iter(kafkalog.cat(p))).value
next(iter(kafkalog.records(p))).value
kafkalog.count(d) -> count_rows
isinstance(kafkalog.verify(p), kafkalog.Verification)
kafkalog.scan(d).count() -> count_rows
kafkalog.scan(d).filter("key == k") -> filters=
kafkalog.scan(d).select(["key"]) -> columns=
kafkalog.scan(d).to_arrow() -> to_table
kafkalog.scan(d).to_parquet(out / "y") -> kafkalog.export
kafkalog.open(d).partitions -> values()
kafkalog.read_table(d, latest=True) -> latest must be 'key', not True
kafkalog.read_table(d, filters="key == k and offset >= 1") -> each condition on its own
kafkalog.diff(d, d) -> orders-0
kafkalog.compare(p, p) -> diff
"""
COMMANDS = """
kafkalog --version
kafkalog help cat -> kafkalog COMMAND --help
kafkalog cat -h
kafkalog ls D
kafkalog ls D orders-0 -> no such file or directory
kafkalog list D -> ls
kafkalog cat P
kafkalog cat D -t orders -n 5
kafkalog cat D --limit 5
kafkalog cat D -t 'order*' -T '*-changelog'
kafkalog cat P --tail 3
kafkalog tail P -> cat --tail
kafkalog cat D --start-timestamp -1h
kafkalog cat D --since 1h -> --start-timestamp
kafkalog cat D --filter 'offset >= 1'
kafkalog cat D --columns offset,vaule -> value
kafkalog cat D -t ordrs -> orders
kafkalog cat P --json
kafkalog cat P --offset 1 -> --start-offset
kafkalog verify D
kafkalog dump --files S --print-data-log
kafkalog export D x.parquet -> -o/--output
kafkalog lookup P --offset 1
kafkalog index_stats P -> index-stats
kafkalog rebuild-indexes P -> reindex
kafkalog ls D -t 'order*,payments'
kafkalog ls D -t 'ordre*' -> no topic matches
kafkalog cat D --filter 'key == k and offset >= 1' -> each condition on its own
kafkalog cat D --filter 'key == "k and offset >= 1"'
kafkalog compare P P -> diff
kafkalog diff D D -> orders-0
kafkalog restore D -> load --install
kafkalog drop P --offset 1 -> convert --drop
kafkalog compact P -> cat --latest key
kafkalog offsets D -> groups
kafkalog version -> --version
"""
SPARK_OPTIONS: tuple[tuple[dict[str, str], str], ...] = (
    ({"subscribe": "orders"}, ""),
    ({"topics": "orders*,!*-changelog"}, ""),
    ({"startOffset": "1"}, "startingOffsets"),
    ({}, ""),
)
SPARK_JOBS = ("salvage", "scan", "verify", "reindex")

WRONG = {
    "next(iter(kafkalog.records(p))).value",  # a package of that name; the command is cat
}
"""Guesses that neither work nor are answered."""


@pytest.fixture
def names(tmp_path: Path) -> dict[str, Any]:
    """A log dir with a few topics, and what the guesses call it and its parts."""
    directory = tmp_path / "log"
    for topic in ("orders", "orders-changelog", "payments"):
        stamps = [1_750_000_000_000 + number for number in range(5)]
        table = {"key": [b"k"] * 5, "value": [b"v"] * 5, "timestamp": stamps}
        kafkalog.write_table(table, directory, topic=topic)
    parquet = tmp_path / "orders.parquet"
    kafkalog.export(directory, parquet)
    partition = directory / "orders-0"
    return {
        "d": directory,
        "p": partition,
        "s": next(partition.glob("*.log")),
        "out": tmp_path,
        "parquet": parquet,
        "kafkalog": kafkalog,
        "datetime": datetime,
        "UTC": UTC,
    }


def guesses(text: str) -> list[tuple[str, str]]:
    return [(guess, word) for guess, _, word in (line.partition(" -> ") for line in text.strip().splitlines())]


def is_right(guess: str, word: str, names: dict[str, Any]) -> bool:
    """Whether a guess works, or raises an error that holds the word."""
    try:
        eval(guess, dict(names))
    except Exception as error:
        return bool(word) and word in str(error)
    return not word


@pytest.mark.filterwarnings("ignore::kafkalog.ConfigWarning")
@pytest.mark.parametrize(("guess", "word"), guesses(PYTHON))
def test_a_call_in_python_is_right_or_named(guess: str, word: str, names: dict[str, Any]) -> None:
    assert is_right(guess, word, names) == (guess not in WRONG)


@pytest.mark.parametrize(("guess", "word"), guesses(COMMANDS))
def test_a_command_is_right_or_named(
    guess: str,
    word: str,
    names: dict[str, Any],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(names["out"])
    places = {"D": names["d"], "P": names["p"], "S": names["s"]}
    code = main([str(places.get(word, word)) for word in shlex.split(guess)[1:]])
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert ((code == 0 and not word) or (code != 0 and bool(word) and word in err)) == (guess not in WRONG)


@pytest.mark.parametrize(("options", "word"), SPARK_OPTIONS)
def test_an_option_of_spark_is_right_or_named(options: dict[str, str], word: str) -> None:
    if word:
        with pytest.raises(ValueError, match=re.escape(word)):
            parse_options({"path": "/backup", **options})
    else:
        parse_options({"path": "/backup", **options})


def test_jobs_of_spark_have_the_names_and_options_of_the_functions() -> None:
    for name in SPARK_JOBS:
        job, function = getattr(kafkalog.spark, name), getattr(kafkalog, name)
        there = inspect.signature(job).parameters
        assert list(there)[:2] == ["spark", "path"]
        if name != "scan":
            missing = set(inspect.signature(function).parameters) - set(there)
            assert missing <= {"options", "threads", "progress", "on_file", "memory_map"}


def test_most_guesses_are_right() -> None:
    n = len(guesses(PYTHON)) + len(guesses(COMMANDS)) + len(SPARK_OPTIONS) + len(SPARK_JOBS)
    assert n >= 70
    assert n - len(WRONG) >= 70


@pytest.mark.parametrize(
    "module", ["operations.exporting.export", "operations.verifying", "records", "cli.reading.cat"]
)
def test_a_function_is_callable_whatever_was_imported_before(module: str) -> None:
    import importlib

    importlib.import_module(f"kafkalog.{module}")
    for name in ("export", "verify", "cat", "ls", "scan", "load", "convert", "dump", "open"):
        assert callable(getattr(kafkalog, name))


def test_completion_shows_what_users_call_and_nothing_else() -> None:
    import kafkalog.operations.exporting.export

    shown = [name for name in dir(kafkalog) if not name.startswith("_")]
    assert set(shown) == {*kafkalog.__all__, "errors", "format", "functions", "spark"}
