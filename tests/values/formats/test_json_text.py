"""JSON: what Arrow's reader gives, and what is parsed value by value, are the same."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from effort import fuzz_inputs
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._kernels.columns import join_lines
from kafkalog.values.formats import json_text
from kafkalog.values.formats.json_text import JsonValues, NotJson, parse
from kafkalog.values.payloads import Decoded, Payloads
from kafkalog.values.types import MOST_DEPTH, MOST_FIELDS, TooWideError


def decoded(values: list[bytes | None]) -> tuple[JsonValues, Decoded]:
    payloads = Payloads.of(pa.array(values, pa.binary()))
    reader = JsonValues()
    reader.learn(payloads)
    found = reader.decode(payloads)
    found.array.validate(full=True)
    assert found.array.type == reader.common.type
    return reader, found


def test_objects_have_all_fields_of_all_values() -> None:
    _, found = decoded([b'{"a": 1}', None, b'{"b": [1.5, 2]}', b'{"a": 2.5, "b": []}', b"{}"])
    assert found.array.to_pylist() == [
        {"a": 1.0, "b": None},
        None,
        {"a": None, "b": [1.5, 2.0]},
        {"a": 2.5, "b": []},
        {"a": None, "b": None},
    ]


def test_types_that_do_not_go_together_become_json_text() -> None:
    reader, found = decoded([b'{"a": 1}', b'{"a": "x"}', b'{"a": {"b": [1]}}', b"{}"])
    assert reader.common.as_text == {("a",)}
    assert found.array.to_pylist() == [{"a": "1"}, {"a": '"x"'}, {"a": '{"b":[1]}'}, {"a": None}]
    reader, found = decoded([b'[1, "x", {"a": 1}]', b"[null]"])
    assert found.array.to_pylist() == [["1", '"x"', '{"a":1}'], [None]]
    _, found = decoded([b"1", b'{"a": 1}'])
    assert found.array.to_pylist() == ["1", '{"a":1}']


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (b'{"a": 1', "not JSON"),
        (b"", "not JSON"),
        (b'{"a": 1} {"a": 2}', "not JSON"),
        (b'{"a": 1}{"a": 2}', "not JSON"),
        (b'{"a": NaN}', "not JSON"),
        (b'{"a": -Infinity}', "not JSON"),
        (b'{"a": 1, "a": 2}', "a JSON object with the same name twice"),
        (b'{"a": "\xff"}', "not UTF-8"),
        (b'{"a": "\\ud800"}', "not UTF-8"),
        (b'{"a": ' * 100_000 + b"1" + b"}" * 100_000, f"JSON nested more than {MOST_DEPTH} deep"),
        (b"[" * 100_000, f"JSON nested more than {MOST_DEPTH} deep"),
    ],
)
def test_what_is_not_json_is_null_beside_what_is(value: bytes, why: str) -> None:
    _, found = decoded([b'{"a": 1}', value, b'{"a": 2}'])
    assert found.failures == {1: why}
    assert found.array.to_pylist() == [{"a": 1}, None, {"a": 2}]


def test_values_of_two_objects_and_of_none_do_not_even_out() -> None:
    _, found = decoded([b'{"a": 1}{"a": 2}', b"{}", b" ", b'{"a": 3}'])
    assert found.array.to_pylist() == [None, {"a": None}, None, {"a": 3}]


def test_text_that_looks_like_a_time_stays_text() -> None:
    _, found = decoded([b'{"a": "2026-11-22", "b": ["2026-11-22T00:00:00Z"]}'])
    assert found.array.to_pylist() == [{"a": "2026-11-22", "b": ["2026-11-22T00:00:00Z"]}]


def test_numbers_beyond_64_bits_are_doubles() -> None:
    _, found = decoded([b'{"a": 9223372036854775808}', b'{"a": 1}'])
    assert found.array.to_pylist() == [{"a": 2.0**63}, {"a": 1.0}]
    assert parse(b"1" * 100_000) == float("inf")


def test_too_many_fields_are_refused() -> None:
    values = [json.dumps({f"f{i}-{k}": 1 for k in range(100)}).encode() for i in range(MOST_FIELDS // 100 + 1)]
    with pytest.raises(TooWideError):
        JsonValues().learn(Payloads.of(pa.array(values, pa.binary())))


SCALARS = (
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
)
TREES = st.recursive(
    SCALARS | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)


def fits(value: Any, found: Any) -> bool:
    """Whether a decoded value says what the JSON value does: fields more are null, clashing types JSON text."""
    if isinstance(value, dict) and isinstance(found, dict):
        return all(fits(value.get(name), one) for name, one in found.items()) and value.keys() <= found.keys()
    if isinstance(value, list) and isinstance(found, list):
        return len(value) == len(found) and all(map(fits, value, found))
    if isinstance(value, int) and isinstance(found, float):
        return float(value) == found
    return value == found or (isinstance(found, str) and json.loads(found) == value)


@given(st.lists(st.dictionaries(st.sampled_from("abcd"), TREES, max_size=3) | TREES, max_size=6))
def test_any_json_comes_back(values: list[Any]) -> None:
    _, found = decoded([json.dumps(value).encode() for value in values])
    assert not found.failures
    for value, one in zip(values, found.array.to_pylist(), strict=True):
        assert fits(value, one)


@given(st.lists(st.binary(max_size=30) | st.text('{}[]:,"\\u0ad81 ', max_size=20).map(str.encode), max_size=4))
def test_any_bytes_are_json_or_null_with_a_reason(values: list[bytes]) -> None:
    _, found = decoded([*values])
    for row, value in enumerate(values):
        assert isinstance(parse(value), NotJson) == (row in found.failures)


def test_texts_with_names_of_odd_numbers_are_read_by_arrow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_text, "parse", None)  # that of one value
    texts = ["Info", " Info: Inf", "NaN", 'x": NaN', "\\\\", 'a \\ " -Infinity', ", Inf", "é Inf"]
    values = [json.dumps({"a": text}, ensure_ascii=i % 2 == 0, indent=i % 3).encode() for i, text in enumerate(texts)]
    assert [one["a"] for one in decoded([*values])[1].array.to_pylist()] == texts


def test_a_field_that_was_not_learned_is_no_value_unless_fields_are_chosen() -> None:
    reader, _ = decoded([b'{"a": 1}'])
    grown = Payloads.of(pa.array([b'{"a": 2}', b'{"a": 3, "b": 4}'], pa.binary()))
    found = reader.decode(grown)
    assert (found.array.to_pylist(), [*found.failures]) == ([{"a": 2}, None], [1])
    assert reader.decode(grown, [("a",)]).array.to_pylist() == [{"a": 2}, {"a": 3}]


def test_mutants_are_decoded_as_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(18)
    good = [b'{"a": 1, "b": "x y", "c": [1, 2.5], "d": {"e": null}}', b'{"a": -7, "b": "\\u00e9\\n", "c": []}', b"{}"]
    parts = [
        b'"',
        b"{",
        b"}",
        b"[",
        b"]",
        b",",
        b":",
        b"NaN",
        b"-Inf",
        b"\n",
        b"\\",
        b"1e5",
        b"null",
        b"\xff",
        b" ",
        b"}{",
    ]
    by_arrow = json_text._read_by_arrow
    n_by_arrow = 0
    for _ in range(max(fuzz_inputs() // 20, 20)):
        values: list[bytes | None] = [rng.choice(good) for _ in range(20)]
        for _ in range(rng.choice([0, 1, 1, 2])):
            row = rng.randrange(20)
            data = bytearray(values[row] or b"")
            at = rng.randrange(len(data) + 1)
            data[at : at + rng.randrange(3)] = rng.choice(parts)
            values[row] = rng.choice([bytes(data), bytes(data), b"{" + bytes(data) + b"}", None])
        payloads = Payloads.of(pa.array(values, pa.binary()))
        n_by_arrow += by_arrow(payloads, None, "infer") is not None
        _, found = decoded(values)
        monkeypatch.setattr(json_text, "_read_by_arrow", lambda *_, **__: None)
        _, expected = decoded(values)
        monkeypatch.undo()
        assert found.failures == expected.failures, values
        assert found.array.to_pylist() == expected.array.to_pylist(), values
    assert n_by_arrow > 4


def test_lines_are_joined_within_their_memory() -> None:
    data = np.frombuffer(b"ab{[cN", np.uint8)
    start, stop = np.array([0, 2, 5]), np.array([2, 5, 6])
    to = np.zeros(9, np.uint8)
    assert join_lines(start, stop, data, to) == (3, 2, False, True)
    assert to.tobytes() == b"ab\n{[c\nN\n"
    assert join_lines(start[:2], stop[:2], data, to[:6])[0] == 1, "no room for the newline"
    assert join_lines(start, np.array([2, 5, 7]), data, to)[0] == 2
    assert join_lines(np.array([0, -1, 5]), stop, data, to)[0] == 1
    assert join_lines(np.array([0, 3, 5]), np.array([2, 2, 6]), data, to)[0] == 1
    long = np.frombuffer(b"{" * 1000 + b"\n", np.uint8)
    assert join_lines(np.array([0]), np.array([1001]), long, np.zeros(1002, np.uint8)) == (1, 1000, True, False)
    with pytest.raises(ValueError, match="columns differ"):
        join_lines(start, stop[:2], data, to)
