"""What a newcomer would call on the first day, written down before the names were looked up.

Each guess works, or ends in an error that names the right call (the word after ``->``).
"""

import inspect
import shlex

import pyarrow as pa
import pytest

import kafkalog
import kafkalog.spark
from kafkalog.cli import main

PYTHON = """
kafkalog.scan(d, topic="orders") -> topics
kafkalog.read_tabel(d) -> read_table
kafkalog.scan(d, start_ofset=3) -> start_offset
kafkalog.scan(d, columns=["offset", "vaule"]) -> value
kafkalog.scan(d, start_time="2024-01-01T00:00:00Z") -> start_timestamp
kafkalog.scan(d, filter="offset >= 1") -> filters
kafkalog.scan(d, where="offset >= 1") -> filters
kafkalog.to_pandas(d) -> read_pandas
kafkalog.open(d)["orders-0"]
kafkalog.rebuild_indexes(p) -> reindex
kafkalog.read_table(d, latest=True) -> latest must be 'key', not True
kafkalog.diff(d, d) -> orders-0
list(kafkalog.open(p, start=3, end=5)) -> scan
kafkalog.open(d)["orders"][0] -> log_dir[topic, number]
kafkalog.reindex(p) -> dry_run
kafkalog.KafkaLogError -> KafkalogError
kafkalog.errors.CorruptRecordError -> CorruptionError
kafkalog.consumer_groups(d) -> groups
bool(kafkalog.open(p) and kafkalog.open(s) and kafkalog.open(d) and kafkalog.scan(p)) or 1 / 0
"orders" in kafkalog.open(d) or 1 / 0
("orders", 0) in kafkalog.open(d) or 1 / 0
"ordres" in kafkalog.open(d) and 1 / 0
kafkalog.errors.ChecksumError -> KafkalogError is the base
kafkalog.open(file) -> .log' by its name
pa.table(kafkalog.open(p)).num_rows == 5 or 1 / 0
pa.table(kafkalog.open(d)).num_rows == 15 or 1 / 0
"""
COMMANDS = """
kafkalog ls D orders-0 -> no such file or directory
kafkalog list D -> ls
kafkalog cat D --columns offset,vaule -> value
kafkalog cat D -t ordrs -> orders
kafkalog cat P --colums key -> --columns
kafkalog cat P --start-ofset key -> --start-offset
kafkalog verfy P -> verify
kafkalog export D x.parquet -> -o/--output
kafkalog index_stats P -> index-stats
kafkalog rebuild-indexes P -> reindex
kafkalog ls D -t 'ordre*' -> no topic matches
kafkalog diff D D -> orders-0
kafkalog topics D -> ls
kafkalog cat D/orders -> -t orders
kafkalog cat D orders -> -t orders
kafkalog cat --topic orders D -> --topics
kafkalog read P -> cat
kafkalog check P -> verify
kafkalog show P -> cat
kafkalog info P -> ls
kafkalog stat P -> ls
kafkalog find --key k3 P -> lookup
kafkalog reindex P -> --dry-run
kafkalog index P -> reindex
kafkalog export --format csv P -> -o/--output
kafkalog scan D -> cat
kafkalog trim P --before 2 -o X -> --before-offset
"""
SPARK_JOBS = ("scan", "verify", "reindex")


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """A log dir with a few topics, and what the guesses call it and its parts."""
    tmp_path = tmp_path_factory.mktemp("names")
    directory = tmp_path / "log"
    for topic in ("orders", "orders-changelog", "payments"):
        stamps = [1_750_000_000_000 + number for number in range(5)]
        table = {"key": [b"k"] * 5, "value": [b"v"] * 5, "timestamp": stamps}
        kafkalog.write_table(table, directory, topic=topic)
    partition = directory / "orders-0"
    segment = next(partition.glob("*.log"))
    with segment.open("rb") as file:
        places = {"d": directory, "p": partition, "s": segment, "file": file, "out": tmp_path}
        yield {**places, "kafkalog": kafkalog, "pa": pa}


def guesses(text):
    return [(guess, word) for guess, _, word in (line.partition(" -> ") for line in text.strip().splitlines())]


def is_right(guess, word, names):
    """Whether a guess works, or raises an error that holds the word."""
    try:
        eval(guess, dict(names))
    except Exception as error:
        return bool(word) and word in str(error)
    return not word


@pytest.mark.filterwarnings("ignore::kafkalog.ConfigWarning")
@pytest.mark.parametrize(("guess", "word"), guesses(PYTHON))
def test_a_call_in_python_is_right_or_named(guess, word, names):
    assert is_right(guess, word, names)


@pytest.mark.parametrize(("guess", "word"), guesses(COMMANDS))
def test_a_command_is_right_or_named(guess, word, names, capsys, monkeypatch):
    monkeypatch.chdir(names["out"])
    places = {"D": names["d"], "D/orders": names["d"] / "orders", "P": names["p"]}
    code = main([str(places.get(word, word)) for word in shlex.split(guess)[1:]])
    err = capsys.readouterr().err
    assert "Traceback" not in err
    assert code != 0
    assert word in err


def test_jobs_of_spark_have_the_names_and_options_of_the_functions():
    for name in SPARK_JOBS:
        job, function = getattr(kafkalog.spark, name), getattr(kafkalog, name)
        there = inspect.signature(job).parameters
        assert list(there)[:2] == ["spark", "path"]
        if name != "scan":
            missing = set(inspect.signature(function).parameters) - set(there)
            own = {"options", "threads", "progress", "on_file", "memory_map"}
            # values are decoded by the data source
            assert missing <= own | {"decode", "schemas", "schema_context"}


@pytest.mark.parametrize(
    "module", ["operations.exporting.export", "operations.verifying", "records", "cli.reading.cat"]
)
def test_a_function_is_callable_whatever_was_imported_before(module):
    import importlib

    importlib.import_module(f"kafkalog.{module}")
    for name in ("export", "verify", "cat", "ls", "scan", "load", "convert", "dump", "open"):
        assert callable(getattr(kafkalog, name))


def test_completion_shows_what_users_call_and_nothing_else():
    import kafkalog.operations.exporting.export

    shown = [name for name in dir(kafkalog) if not name.startswith("_")]
    assert set(shown) == {*kafkalog.__all__, "errors", "format", "functions", "spark"}
