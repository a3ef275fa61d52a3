"""What a newcomer would call on the first day, written down before the names were looked up.

Each guess works, or ends in an error that names the right call (the word behind ``->``). Those that do neither are
listed, so that a guess that stops working is noticed. Of the second list of 114 in Python and on the command line, 75
were right or named at first, 104 are now; of a third list, of 108 about engines, pickles and Python's operators, 69
were right or named at first, 107 are now. Those that repeat others, or have tests of their own, are left out here.
"""

from __future__ import annotations

import inspect
import pickle
import re
import shlex
from collections.abc import Iterator
from typing import Any

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import kafkalog
import kafkalog.spark
from kafkalog.cli import main
from kafkalog.spark.source_options import parse_options

PYTHON = """
kafkalog.open(p).start_offset -> log_start_offset
kafkalog.scan(d, topic="orders") -> topics
kafkalog.scan(d, topics="*", exclude_topics="*-changelog").to_table() -> topics=['!NAME']
kafkalog.scan(d, columns=["offset", "vaule"]) -> value
kafkalog.scan(d, start_time="2024-01-01T00:00:00Z") -> start_timestamp
kafkalog.scan(d, filter="offset >= 1") -> filters
kafkalog.scan(d, where="offset >= 1") -> filters
kafkalog.read_polars(d)
kafkalog.to_pandas(d) -> read_pandas
kafkalog.open(d)["orders-0"]
kafkalog.open(d).partition("orders", 0) -> log_dir[topic, number]
kafkalog.rebuild_indexes(p) -> reindex
next(iter(kafkalog.records(p))).value
kafkalog.count(d) -> count_rows
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
[r.offset for r in kafkalog.open(p)]
list(kafkalog.read(p, start_offset=3)) -> cat
list(kafkalog.open(p, start=3, end=5)) -> scan
len(kafkalog.open(p)) -> count_rows
kafkalog.open(p)[3] -> scan
kafkalog.Log(p) -> open
kafkalog.LogDir(d)["orders"]
kafkalog.Topic(d, "orders") -> open_log_dir
kafkalog.open(d)["orders"][0] -> log_dir[topic, number]
kafkalog.topics(d) -> open_log_dir
kafkalog.list_topics(d) -> open_log_dir
kafkalog.open(p).first_offset -> log_start_offset
kafkalog.open(p).last_offset -> log_end_offset
kafkalog.open(p).high_watermark
[b.base_offset for b in kafkalog.open(p).batches()] -> segments[0].batches
kafkalog.open(p).seek(3) -> start_offset
kafkalog.open(p).offset_for_timestamp(1700000000000)
kafkalog.open(p).offsets_for_times(1700000000000) -> lookup
list(kafkalog.open(p).read(since="2023-11-14")) -> scan
kafkalog.open(p).to_parquet(out / "z.parquet") -> kafkalog.export
kafkalog.check(d) -> verify
kafkalog.repair(p, dry_run=True) -> recover
kafkalog.reindex(p) -> dry_run
kafkalog.open(p).get(b"k3") -> filters
kafkalog.open(p).find(key=b"k3") -> filters
kafkalog.write(out / "new-0", [(b"k", b"v")]) -> write_table
kafkalog.Writer(out / "w-0").append(b"k", b"v") -> PartitionWriter
kafkalog.open(out / "w-0", "w").append({"key": b"k"}) -> write_table
kafkalog.Record(key=b"k", value=b"v") -> write_table
kafkalog.KafkaLogError -> KafkalogError
kafkalog.errors.CorruptRecordError -> CorruptionError
kafkalog.consumer_groups(d) -> groups
kafkalog.consumer_offsets(d) -> groups
kafkalog.follow(p) -> cat
kafkalog.decode(s) -> decode=
kafkalog.stats(p) -> ls
kafkalog.info(d) -> ls
kafkalog.KafkaConsumer("orders") -> kafkalog.cat
kafkalog.sql("select count(*) from orders") -> dataset(path)
len(kafkalog.open(s)) -> count_rows
kafkalog.open(p)[3:5] -> scan(start_offset
bool(kafkalog.open(p) and kafkalog.open(s) and kafkalog.open(d) and kafkalog.scan(p)) or 1 / 0
"orders" in kafkalog.open(d) or 1 / 0
("orders", 0) in kafkalog.open(d) or 1 / 0
"ordres" in kafkalog.open(d) and 1 / 0
kafkalog.open(p).follow() -> cat(start_offset
kafkalog.open(d).dataset() -> to_dataset()
len(kafkalog.scan(d)) -> count_rows
kafkalog.scan(d).shape -> count_rows(), schema
kafkalog.scan(d).read_all() -> to_table()
kafkalog.scan(d).sql("select 1") -> duckdb.sql("select ... from scan")
kafkalog.errors.ChecksumError -> KafkalogError is the base
kafkalog.open(file) -> .log' by its name
kafkalog.open(d).orders -> log_dir['orders']
kafkalog.open(d).payments.to_table() -> log_dir['payments']
kafkalog.scan(d)[:5] -> head(n)
[batch for batch in kafkalog.scan(d)] -> to_batches()
pd.DataFrame(kafkalog.scan(d)) -> to_batches()
pa.table(kafkalog.open(p)).num_rows == 5 or 1 / 0
pa.table(kafkalog.open(d)).num_rows == 15 or 1 / 0
pa.table(kafkalog.open(s)).num_rows == 5 or 1 / 0
pl.DataFrame(kafkalog.open(p)).width == 8 or 1 / 0
kafkalog.write_table(kafkalog.open(p), out / "copy")
kafkalog.dataset(d).to_pandas() -> to_table().to_pandas()
kafkalog.dataset(d).num_rows -> count_rows()
kafkalog.dataset(d).shape -> count_rows(), schema
kafkalog.dataset(d).sql("select 1") -> duckdb.sql("select ... from dataset")
len(kafkalog.dataset(d)) -> count_rows()
bool(kafkalog.dataset(d)) or 1 / 0
pl.DataFrame(kafkalog.dataset(d)).height == 15 or 1 / 0
pa.table(kafkalog.dataset(d)).num_rows == 15 or 1 / 0
pl.scan_pyarrow_dataset(kafkalog.dataset(d)).select(pl.len()).collect()
duckdb.from_arrow(kafkalog.scan(d)).count("*").fetchall()
[pickle.loads(pickle.dumps(part)).count_rows() for part in kafkalog.scan(d).plan()]
pickle.loads(pickle.dumps(kafkalog.open(p))).count_rows()
"""
COMMANDS = """
kafkalog help cat -> kafkalog COMMAND --help
kafkalog ls D orders-0 -> no such file or directory
kafkalog list D -> ls
kafkalog cat D -t 'order*' -T '*-changelog'
kafkalog tail P -> cat --tail
kafkalog cat D --since 1h -> --start-timestamp
kafkalog cat D --columns offset,vaule -> value
kafkalog cat D -t ordrs -> orders
kafkalog cat P --offset 1 -> --start-offset
kafkalog export D x.parquet -> -o/--output
kafkalog index_stats P -> index-stats
kafkalog rebuild-indexes P -> reindex
kafkalog ls D -t 'ordre*' -> no topic matches
kafkalog cat D --filter 'key == k and offset >= 1' -> each condition on its own
kafkalog compare P P -> diff
kafkalog diff D D -> orders-0
kafkalog restore D -> load --install
kafkalog drop P --offset 1 -> convert --drop
kafkalog compact P -> cat --latest key
kafkalog offsets D -> groups
kafkalog version -> --version
kafkalog topics D -> ls
kafkalog cat D/orders -> -t orders
kafkalog cat D orders -> -t orders
kafkalog cat --topic orders D -> --topics
kafkalog cat P --from 3 -> --start-timestamp
kafkalog cat P --format json -> --json
kafkalog read P -> cat
kafkalog show P -> cat
kafkalog head -n 2 P -> cat -n
kafkalog info P -> ls
kafkalog stat P -> ls
kafkalog count P -> ls
kafkalog grep k3 P -> cat --filter
kafkalog find --key k3 P -> lookup
kafkalog check D -> verify
kafkalog repair --dry-run P -> recover
kafkalog reindex P -> --dry-run
kafkalog index P -> reindex
kafkalog export --format csv P -> -o/--output
kafkalog sql 'select count(*) from orders' D -> cat --filter
kafkalog completion bash -> --completion
kafkalog scan D -> cat
kafkalog du D -> ls
kafkalog stats D -> ls, or index-stats
kafkalog get D k -> cat --filter
kafkalog cat D --key k -> --filter 'key == ...'
kafkalog cat D --compacted -> --latest key
kafkalog truncate P --to 2 -o X -> --to-offset
kafkalog trim P --before 2 -o X -> --before-offset
"""
SPARK_OPTIONS: tuple[tuple[dict[str, str], str], ...] = (
    ({"subscribe": "orders"}, ""),
    ({"topics": "orders*,!*-changelog"}, ""),
    ({"startOffset": "1"}, "startingOffsets"),
    ({"topic": "orders"}, "topics"),
    ({"startingOffsets": "earliest"}, ""),
    ({"startingOffsets": "3"}, "Expected e.g."),
    ({"startingTimestamp": "2023-11-14"}, "milliseconds"),
    ({"kafka.bootstrap.servers": "localhost:9092"}, "load(path)"),
    ({}, ""),
)
SPARK_JOBS = ("scan", "verify", "reindex")

WRONG = {
    "next(iter(kafkalog.records(p))).value",  # a package of that name; the command is cat
    "kafkalog.repair(p, dry_run=True)",  # the same, once it is loaded; the commands are recover and salvage
    'kafkalog.Record(key=b"k", value=b"v")',  # what cat returns; tables are written
    # Python's own errors
    'kafkalog.open(out / "w-0", "w").append({"key": b"k"})',
}
"""Guesses that neither work nor are answered."""


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """A log dir with a few topics, and what the guesses call it and its parts."""
    tmp_path = tmp_path_factory.mktemp("names")
    directory = tmp_path / "log"
    for topic in ("orders", "orders-changelog", "payments"):
        stamps = [1_750_000_000_000 + number for number in range(5)]
        table = {"key": [b"k"] * 5, "value": [b"v"] * 5, "timestamp": stamps}
        kafkalog.write_table(table, directory, topic=topic)
    parquet = tmp_path / "orders.parquet"
    kafkalog.export(directory, parquet)
    partition = directory / "orders-0"
    segment = next(partition.glob("*.log"))
    with segment.open("rb") as file:
        yield {
            "d": directory,
            "p": partition,
            "s": segment,
            "file": file,
            "out": tmp_path,
            "parquet": parquet,
            "kafkalog": kafkalog,
            "duckdb": duckdb,
            "pa": pa,
            "pd": pd,
            "pickle": pickle,
            "pl": pl,
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
    places = {"D": names["d"], "D/orders": names["d"] / "orders", "P": names["p"], "S": names["s"]}
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
