"""What Hypothesis makes up for a test depends on nothing but the test."""

import importlib

import pytest
from effort import RANDOM, forget_constants
from hypothesis import given, settings
from hypothesis import strategies as st


@pytest.mark.skipif(RANDOM, reason="KAFKALOG_RANDOM asks for new inputs")
def test_inputs_do_not_change_with_a_constant_of_a_module_that_is_imported(tmp_path, monkeypatch):
    if not forget_constants():
        pytest.skip("this version of Hypothesis keeps constants elsewhere")
    (tmp_path / "constants_of_a_commit.py").write_text(f"NUMBERS = {[*range(1000, 9000, 11)]}\n")
    monkeypatch.syspath_prepend(tmp_path)
    drawn = []

    @settings(max_examples=100, derandomize=True, database=None)
    @given(st.tuples(st.integers(), st.text(), st.binary(), st.floats()))
    def draw(values):
        drawn[-1].append(repr(values))

    for _ in range(2):
        drawn.append([])
        draw()
        importlib.import_module("constants_of_a_commit")
    assert drawn[0] == drawn[1]
