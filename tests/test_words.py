"""What the tables of words name is there: commands, their options, functions and their parameters."""

import contextlib
import functools
import inspect
import itertools
import re
import unittest.mock

import numpy as np
import pytest
from golden_sets import GOLDEN

import kafkalog
import kafkalog.comparing.content  # where another test has imported a module next to it, nothing else does
from kafkalog import words
from kafkalog.calls import keywords_of
from kafkalog.cli import option_leads, positional, typed
from kafkalog.cli.app import build_parser
from kafkalog.cli.commands import SUMMARIES
from kafkalog.errors import KafkalogError
from kafkalog.interchange import file_types
from kafkalog.scanning.options import ScanOptions


@functools.cache
def command_parsers():
    return build_parser()._subparsers._group_actions[0].choices


@functools.cache
def options_of(command):
    """The options of a command, or of all commands below it."""
    parser = command_parsers()[command]
    below = [] if parser._subparsers is None else parser._subparsers._group_actions[0].choices.values()
    return {text for one in (parser, *below) for text in one._option_string_actions}


def test_a_word_leads_to_a_command_and_a_function_that_are_there():
    assert not set(words.commands()) & set(SUMMARIES)
    for lead in set(words.commands().values()):
        check_lead(lead)


def check_lead(lead):
    lines = [f"kafkalog {lead.line}"] if lead.is_same else [lead.line]
    named = [part for line in lines for part in re.findall(r"kafkalog ([a-z-]+)((?: (?!kafkalog )\S+)*)", line)]
    assert named or lead.line.startswith("--")
    for command, rest in named:
        if command.startswith("--"):
            continue
        assert command in SUMMARIES, lead.line
        for option in re.findall(r"(?<=\s)--?[a-z][a-z-]*", rest.partition(" (")[0].split(", or")[0]):
            assert option in options_of(command), (command, option)
    functions = re.findall(r"(?<![).\w])([A-Za-z_][\w.]*)\(", lead.python)
    assert functions or lead.python.startswith("__")
    for name in functions:
        first, _, rest = name.removeprefix("kafkalog.").partition(".")
        assert first in kafkalog.__all__ or first in ("codec", "comparing"), lead.python
        if rest:
            assert functools.reduce(getattr, rest.split("."), getattr(kafkalog, first)), lead.python


def test_a_row_of_options_counts_for_an_option_or_a_command_that_is_there():
    every = set().union(*map(options_of, SUMMARIES))
    for row in words.rows(option_leads._OPTIONS):
        typed, needs, text = (part.strip() for part in row.split("|", 2))
        assert typed, row
        assert text, row
        assert not needs or needs in every or needs in SUMMARIES or needs == "kafkalog", row
        if needs.startswith("-") and (named := re.match(r"--?[a-z][a-z-]*", text)):
            having = [command for command in SUMMARIES if needs in options_of(command)]
            assert any(named[0] in options_of(command) for command in having), row


def test_no_row_is_about_an_option_that_all_commands_have_for_which_it_counts():
    stale = []
    for row in words.rows(option_leads._OPTIONS):
        typed, needs, _ = (part.strip() for part in row.split("|", 2))
        having = [options_of(command) for command in SUMMARIES if needs in {"", command, *options_of(command)}]
        stale += [(word, row) for word in typed.split() if having and all(word in own for own in having)]
    assert not stale


def test_a_name_of_a_file_of_records_is_recognized_with_each_suffix():
    suffixes = [suffix for suffix in file_types._FORMATS_BY_SUFFIX if suffix not in file_types.UNCERTAIN]
    assert all(positional._is_written(f"x{suffix}") and typed.is_table(f"x{suffix}.gz") for suffix in suffixes)
    assert all(
        typed.is_table(f"x{suffix}") and not positional._is_written(f"x{suffix}") for suffix in file_types.UNCERTAIN
    )
    assert not any(typed.is_table(word) for word in ("orders", "orders-0", "-o.csv", "x.log", ".csv"))


@pytest.mark.parametrize("command", ["export", "load"])
def test_each_format_has_a_lead_for_those_who_type_it_as_an_option(command):
    rows = [[part.strip() for part in row.split("|", 2)] for row in words.rows(option_leads._OPTIONS)]
    led = {word for typed, needs, _ in rows if needs == command for word in typed.split()}
    assert {f"--{name}" for name in file_types.FORMATS} <= led


def test_a_hint_stands_in_one_table():
    for word, texts in words._pairs(words._FUNCTIONS).items():
        lead = words.command_lead(words.plain(word))
        assert word == word.lower(), "names are looked up in lower case"
        assert lead is None or words._called(lead.python) not in texts, word
    for word, texts in words._pairs(words._ATTRIBUTES).items():
        # if it has several texts, another one would count without this
        assert texts[1:] or f"use {texts[0]}" != words.unknown_function(word, ()), word


def test_keywords_are_those_of_functions():
    known = {
        name
        for function in (getattr(kafkalog, name) for name in kafkalog.__all__)
        if inspect.isfunction(function)
        for name in keywords_of(function)
    }
    known |= set(ScanOptions.__annotations__)
    methods = (kafkalog.OffsetIndex.build, kafkalog.OffsetIndex.check)
    methods += (kafkalog.PartitionWriter.__init__, kafkalog.Producer.__new__)
    known |= {name for method in methods for name in keywords_of(method)}
    for row in words.rows(words._KEYWORDS):
        meant = row.partition(" = ")[2]
        named = re.findall(r"kafkalog\.(\w+)\(", meant)
        assert all(hasattr(kafkalog, name) for name in named), row
        needs, sign, text = meant.partition("> ")
        assert meant in known or (sign and text and (not needs or needs.strip() in known)), row


def leads_in_python():
    """Each text that names a call of the package, in all tables for Python."""
    yield from (words._called(lead.python) for lead in words.commands().values())
    for table in (words._FUNCTIONS, words._ATTRIBUTES, words._KEYWORDS):
        yield from (text.rpartition("> ")[2] for texts in words._pairs(table).values() for text in texts)
    yield from (*words._READERS.values(), *words._OF_VERBS.values())


BEGINS = re.compile(r"(?<![\w.])(?:kafkalog|polars|np|duckdb)\.(?=[A-Za-z_])")
MODULES = ("polars", "duckdb")


def calls_in(text, begins=BEGINS):
    """The calls that a text names, each up to the end of its last bracket."""
    at = 0
    while found := begins.search(text, at):
        depth, quote = 0, ""
        for at, char in enumerate(text[found.start() :], found.start()):  # noqa: B007
            if quote or char in "'\"":
                quote = "" if char == quote else quote or char
            elif char in "([{":
                depth += 1
            elif char in ")]}":
                depth -= 1
            elif depth == 0 and not (char.isalnum() or char in "._"):
                break
            if depth < 0:
                break
        else:
            at = len(text)
        call = text[found.start() : at]
        if "(" in call:
            yield call.rstrip(".")


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """What texts call the places and values that users have, in a directory that has those that are in quotes."""
    base = tmp_path_factory.mktemp("leads")
    log_dir = base / "DIR"
    headers = [[{"key": "name", "value": b"1"}]] * 50
    table = {
        "key": [b"12345678"] * 50,
        "value": [b"12345678"] * 50,
        "timestamp": [1_750_000_000_000] * 50,
        "headers": headers,
    }
    for topic in ("orders", "__consumer_offsets"):
        kafkalog.write_table(table, log_dir, topic=topic)
    for name in ("A", "B"):
        (base / name).symlink_to(log_dir)
    for file in (GOLDEN / "log_dir/p-txn-0").glob("00000000000000000304.*"):
        (base / file.name).write_bytes(file.read_bytes())
    (base / "in.csv").write_text("id,name\n1,a\n")
    (base / "order.avsc").write_text('"string"')
    kafkalog.export(log_dir / "orders-0", base / "in.parquet")
    partition = kafkalog.open_log_dir(log_dir)["orders", 0]
    records, segment = partition.to_numpy(), partition.segments[0]
    with contextlib.chdir(base):
        yield {
            **dict.fromkeys(("path", "log_dir", "a", "b"), log_dir),
            **dict.fromkeys(("records", "columns"), records),
            **dict.fromkeys(("keys", "column"), records.key),
            "kafkalog": kafkalog,
            "np": np,
            "segment": segment,
            "data": segment.path.read_bytes(),
            "table": table,
            "file": base / "in.parquet",
            "name": "mine",
            "topic": "orders",
            "number": 0,
            "replicas": [log_dir, log_dir],
            "query": "select 1",
            "remote": base,
            "image": base / "none",
            "spark": unittest.mock.Mock(),
            "values": [1],
            "function": lambda offset: True,
            "rows": [0],
            "scan": partition.scan(),
            "VALUE": 5,
            "backup": base / "old",
            "time": "now",
        }


NUMBERS = itertools.count()
ELSEWHERE = ("metadata", "verify_tiered", "restore_tiered", "undelete", "load(file, log_dir", 'ls("s3:')
"""Beginnings of calls that need a cluster, an image or a store, which is not there."""


def run(call, places, owner=None):
    """Run a call that a text names. What it writes goes to a new place."""
    number = next(NUMBERS)
    text = call.replace("FILE.", "00000000000000000304.").replace("out.parquet", f"out{number}.parquet")
    text = text.replace("report.html", f"report{number}.html")
    if ".decode_varints(data)" in text:
        text = text.replace("data", "kafkalog.codec.encode_varints(values)")
    scope = {**places, "output": f"out{number}", "owner": owner}
    for module in MODULES:
        if module in text or ("sql" in text and module == "duckdb"):
            scope[module] = pytest.importorskip(module)
    if text.startswith("kafkalog.load(") and "out" in text.partition(",")[0]:
        kafkalog.export(places["path"], f"out{number}.parquet")
    try:
        eval(text, scope)
    except KafkalogError:
        if not text.removeprefix("kafkalog.").startswith(ELSEWHERE):
            raise


@pytest.mark.filterwarnings("ignore::kafkalog.DecodeWarning")
@pytest.mark.parametrize("call", sorted({call for text in leads_in_python() for call in calls_in(text)}))
def test_a_call_that_is_named_works_when_it_is_typed(call, places):
    run(call, places)


OWNERS = (
    *("log_dir", "log_dir['orders', 0]", "log_dir['orders', 0].segments[0]", "scan", "kafkalog.batches(path)"),
    *("kafkalog.ls(path)", "kafkalog.ls(path)[0]", "kafkalog.verify(path)", "kafkalog.report(path)"),
    *("kafkalog.space(path)", "kafkalog.groups(path)", "kafkalog.transactions(path)", "records", "records.key"),
    *("records.headers", "segment.batches", "segment.offset_index", "segment.time_index"),
)
IN_WORDS = {
    *("print", "len", "list", "result", "records", "slice", "log_dir"),
    *("spark", "dask", "ibis", "pyarrow", "pc", "np", "polars", "duckdb", "kafkalog"),
}
"""Beginnings of what texts name that is no attribute of the object itself."""


@pytest.mark.parametrize("name", OWNERS)
def test_a_method_that_is_named_is_there_and_works_when_it_is_typed(name, places):
    scope = {
        **places,
        "log_dir": kafkalog.open(places["path"]),
        "partition": kafkalog.open(places["path"])["orders", 0],
    }
    owner = eval(name, scope)
    seen = set()
    for word in words._pairs(words._ATTRIBUTES):
        known = [one for one in object.__dir__(owner) if not one.startswith("_")]
        text = None if word in known else words._meant_attribute(word, known, is_log="scan" in known)
        for part in re.split(r", or |; ", text or ""):
            begin = re.match(r"[a-z_]\w*(?=[(.\[])", part)
            call = next(calls_in(part, re.compile(r"^[a-z_]\w*")), None)
            if begin is None or begin[0] in IN_WORDS or call in seen:
                continue
            assert hasattr(owner, begin[0]), (word, part)
            if call is not None:
                seen.add(call)
                run(f"owner.{call}", {**places, "a": owner, "b": owner, "path": f"new{next(NUMBERS)}"}, owner)
    assert seen or "[0]" in name or "index" in name
