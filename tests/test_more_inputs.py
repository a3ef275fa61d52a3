"""What decides which tests run again in a thorough run."""

from __future__ import annotations

from pathlib import Path

import more_inputs

SOURCE = """
import os
from effort import examples, thinned
from hypothesis import given
N = examples(20)

@given(x=1)
def test_generated(x): ...

def by_a_constant():
    return range(N)

def by_a_helper():
    return by_a_constant()

def test_of_a_helper():
    by_a_helper()

@fixture
def files(): by_a_helper()

def test_of_a_fixture(files): ...

class TestClass:
    def test_in_it(self): by_a_helper()

@parametrize("n", by_a_helper())
def test_of_parameters(n): ...

def test_of_the_environment():
    os.environ["KAFKALOG_THOROUGH"]

@parametrize("n", thinned([1, 2], 2))
def test_of_the_same_inputs(n): fuzz_inputs, given_names
"""


def test_what_names_the_number_of_inputs_takes_more_of_them(tmp_path: Path) -> None:
    file = tmp_path / "test_it.py"
    file.write_text(SOURCE)
    found = {name for name in more_inputs.concerned(file) if name.lower().startswith("test")}
    assert found == {
        *("test_generated", "test_of_a_helper", "test_of_a_fixture", "TestClass", "test_of_parameters"),
        "test_of_the_environment",
    }
