"""The JSON form as text is what Jackson writes."""

from __future__ import annotations

from typing import Any

import pytest

from kafkalog.protocol.json_form import java_json


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, None, True, -(2**63)], "b": {}}, '{"a":[1,null,true,-9223372036854775808],"b":{}}'),
        ('q"\\/\b\t\n\x01\x1f', r'"q\"\\/\b\t\n\u0001\u001F"'),
        (r"\u001f", r'"\\u001f"'),
        ("\x7f\x80\u2028\u00e9\u20ac\U0001f600", '"\x7f\x80\u2028\u00e9\u20ac\U0001f600"'),
    ],
)
def test_text_is_compact_and_escaped_as_jackson_does(value: Any, text: str) -> None:
    assert java_json(value) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-123456789.125, "-1.23456789125E8"),
        (1e-3, "0.001"),
        (9.99e-4, "9.99E-4"),
        (1.5e300, "1.5E300"),
        (1 / 3, "0.3333333333333333"),
        (float("inf"), '"Infinity"'),
        (float("-inf"), '"-Infinity"'),
        (float("nan"), '"NaN"'),
    ],
)
def test_numbers_are_as_java_prints_them(number: float, text: str) -> None:
    assert java_json(number) == text
