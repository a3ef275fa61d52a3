"""What the tables of words name is there: commands, their options, functions and their parameters."""

import functools
import inspect
import re

import pytest

import kafkalog
from kafkalog import codec, words
from kafkalog.calls import keywords_of
from kafkalog.cli import option_leads
from kafkalog.cli.app import build_parser
from kafkalog.cli.commands import SUMMARIES
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
        first, _, rest = name.partition(".")
        assert first in kafkalog.__all__ or first == "codec", lead.python
        if rest:
            assert getattr(getattr(kafkalog, first) if first != "codec" else codec, rest), lead.python


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


def test_keywords_are_those_of_functions():
    known = {
        name
        for function in (getattr(kafkalog, name) for name in kafkalog.__all__)
        if inspect.isfunction(function)
        for name in keywords_of(function)
    }
    known |= set(ScanOptions.__annotations__)
    methods = (kafkalog.OffsetIndex.build, kafkalog.OffsetIndex.check)
    known |= {name for method in methods for name in keywords_of(method)}
    for row in words.rows(words._KEYWORDS):
        meant = row.partition(" = ")[2]
        named = re.findall(r"kafkalog\.(\w+)\(", meant)
        assert all(hasattr(kafkalog, name) for name in named), row
        needs, sign, text = meant.partition("> ")
        assert meant in known or (sign and text and (not needs or needs.strip() in known)), row


def leads_in_python():
    """Each text that names a call of the package, in all tables for Python."""
    yield from (words._called(lead.python) for lead in words.commands().values() if lead.python.endswith(")"))
    for table in (words._FUNCTIONS, words._ATTRIBUTES, words._KEYWORDS):
        yield from (text.rpartition("> ")[2] for texts in words._pairs(table).values() for text in texts)
    yield from (*words._READERS.values(), *words._OF_VERBS.values())


@pytest.mark.parametrize("text", sorted(set(leads_in_python())))
def test_calls_that_are_named_are_there_and_take_these_arguments(text):
    for name, arguments in re.findall(r"kafkalog\.([\w.]+)\(([^()]*)", text):
        function = functools.reduce(getattr, name.split("."), kafkalog)
        keywords = re.findall(r"(\w+)=", arguments)
        assert callable(function), name
        if inspect.isfunction(function):
            assert set(keywords) <= {*keywords_of(function)}, (name, keywords)
