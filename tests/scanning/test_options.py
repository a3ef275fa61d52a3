"""One table of the options of scans: the docstring, the command line and the checks have the same ones."""

from __future__ import annotations

from dataclasses import fields

import pytest

import kafkalog
from kafkalog.calls import documented_keywords
from kafkalog.cli.app import build_parser
from kafkalog.scanning.options import CHECKS, ENDS, BatchOptions, ScanOptions, TaskOptions, split_options
from kafkalog.scanning.query import Query

OPTIONS = set(ScanOptions.__annotations__)
OF_PYTHON = {"where", "extract", "batch_size", "memory_map", "binary_type", "decode"}
"""Options that take functions, types and mappings, so that commands do not have them."""
OTHERWISE = {"check_crcs": "no_check_crcs"}
"""Options that have another name in commands."""


def test_the_docstring_of_scan_describes_each_option_once():
    described = documented_keywords(kafkalog.scan)
    assert len(described) == len(set(described))
    assert set(described) - {"path"} == OPTIONS


@pytest.mark.parametrize("command", ["cat", "export", "sql"])
def test_commands_that_scan_have_each_option(command):
    [commands] = [action for action in build_parser([command])._actions if action.dest == "command"]
    known = {action.dest for action in commands.choices[command]._actions}
    needed = {OTHERWISE.get(name, name) for name in OPTIONS - OF_PYTHON}
    assert needed - known <= ({"limit", "columns"} if command == "sql" else set())


def test_each_check_is_of_an_option_and_gives_a_value_of_a_query():
    assert set(CHECKS) <= OPTIONS
    assert set(CHECKS) <= {field.name for field in fields(Query)}
    assert set(ENDS) <= OPTIONS


def test_batches_and_tasks_take_options_of_scans():
    assert set(BatchOptions.__annotations__) <= OPTIONS
    assert set(TaskOptions.__annotations__) <= OPTIONS
    planning, reading = split_options({"topics": "orders", "columns": ["offset"]})
    assert (planning, reading) == ({"topics": "orders"}, {"columns": ["offset"]})
    with pytest.raises(TypeError, match="divided into tasks does not take 'limit'"):
        split_options({"limit": 3})
