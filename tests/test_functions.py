"""Helpers for `where=` and `extract=`: compiled, in Python, and the standard library say the same of any bytes."""

import math
import re
import struct

import numba
import numpy as np
import pytest
from effort import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kafkalog import functions as kfn
from kafkalog.scanning.user_functions import teach_numba

BYTES = st.one_of(st.binary(max_size=24), st.text("0123456789+-. eE", max_size=24).map(str.encode))
TEXTS = st.binary(max_size=4)
PLACES = st.one_of(st.integers(-3, 26), st.sampled_from([-(2**63), 2**63 - 1, 2**62, 2**31, -(2**31), 2**63 - 8]))

CODES = {
    "read_uint": {1: "B", 2: "H", 4: "I"},
    "read_int": dict(zip((1, 2, 4, 8), "bhiq", strict=True)),
    "read_float": {4: "f", 8: "d"},
}


def array(data):
    made = np.frombuffer(data, np.uint8)
    made.flags.writeable = False
    return made


def compiled(function):
    """The same function as a caller's compiled function calls it."""
    if function.__name__ not in _compiled:
        teach_numba()
        names = {2: "a, b", 3: "a, b, c", 4: "a, b, c, d"}[
            len(function.__code__.co_varnames[: function.__code__.co_argcount])
        ]
        scope = {"function": function}
        exec(f"def call({names}):\n    return function({names})", scope)
        _compiled[function.__name__] = numba.njit(scope["call"], boundscheck=True, error_model="python")
    return _compiled[function.__name__]


_compiled = {}


def outcome(function, *arguments):
    """A result, or the kind of error."""
    try:
        result = function(*arguments)
    except (IndexError, ValueError, OverflowError) as error:
        return type(error)
    if isinstance(result, tuple):
        return tuple(int(part) for part in result)
    if isinstance(result, np.ndarray):
        return result.tobytes()
    return result.item() if isinstance(result, np.generic) else result


def both(function, *arguments):
    """What a helper gives in Python and compiled, which is the same."""
    plain = outcome(function, *arguments)
    fast = outcome(compiled(function), *arguments)
    if isinstance(plain, float) and math.isnan(plain):
        assert math.isnan(fast)
    else:
        assert type(plain) is type(fast)
        assert plain == fast, (plain, fast)
        assert not isinstance(plain, float) or math.copysign(1, plain) == math.copysign(1, fast)
    return plain


@pytest.mark.slow
@settings(max_examples=examples(300))
@given(st.sampled_from(sorted(CODES)), st.sampled_from([1, 2, 4, 8]), st.booleans(), st.binary(max_size=12), PLACES)
def test_numbers_are_read_as_struct_reads_them_or_are_errors(name, size, is_little, data, at):
    result = both(kfn.HELPERS[name], array(data), at, size, is_little)
    if size not in CODES[name]:
        assert result is ValueError
    elif not 0 <= at <= len(data) - size:
        assert result is IndexError
    else:
        (expected,) = struct.unpack_from("<>"[not is_little] + CODES[name][size], data, at)
        assert result == expected or (math.isnan(expected) and math.isnan(result))


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(BYTES, TEXTS, PLACES)
@example(b"", b"", 0)
@example(b"aaab", b"aab", -5)
def test_searches_find_what_python_finds(data, text, start):
    for known in (text, data[:2], data[1:3], data[-2:], data):
        assert both(kfn.starts_with, array(data), known) == data.startswith(known)
        assert both(kfn.ends_with, array(data), known) == data.endswith(known)
        assert both(kfn.contains, array(data), known) == (known in data)
        assert both(kfn.equals, array(data), known) == (data == known)
        assert both(kfn.find, array(data), known, start) == data.find(known, max(start, 0))


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(st.binary(max_size=12), PLACES)
@example(b"\xff" * 8 + b"\x7f", 0)
@example(b"\xff" * 9, 0)
@example(b"\xff" * 9 + b"\1", 0)
def test_variable_length_integers_end_in_time(data, at):
    result = both(kfn.read_uvarint, array(data), at)
    if not 0 <= at < len(data):
        assert result is IndexError
        return
    found = re.match(rb"[\x80-\xff]{0,8}[\0-\x7f]", data[at:], re.DOTALL)
    if found is None:
        assert result is (IndexError if len(data) - at < 9 else ValueError)
        return
    value = sum((byte & 0x7F) << 7 * i for i, byte in enumerate(found[0]))
    assert result == (value, at + found.end())


INTEGER = re.compile(rb" *([+-]?[0-9]+)")
FLOAT = re.compile(rb" *([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)")


@settings(max_examples=examples(300))
@given(st.one_of(BYTES, st.integers().map(lambda n: str(n).encode())), st.integers(-3, 26))
@example(b"9223372036854775807", 0)
@example(b"9223372036854775808", 0)
@example(b"-9223372036854775808", 0)
@example(b"-9223372036854775809", 0)
@example(b"99999999999999999999", 0)
@example(b"  +7", 0)
@example(b"- 7", 0)
def test_decimal_integers_are_read_as_int_reads_them(data, at):
    result = both(kfn.parse_int, array(data), at)
    if at < 0:
        assert result is IndexError
    elif (found := INTEGER.match(data[at:])) is None:
        assert result is ValueError
    elif -(2**63) <= int(found[1]) < 2**63:
        assert result == int(found[1])
    else:
        assert result is OverflowError


@settings(max_examples=examples(300))
@given(
    st.one_of(
        BYTES,
        st.floats(allow_nan=False, allow_infinity=False).map(lambda n: repr(n).encode()),
        st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-(10**12), max_value=10**12).map(
            lambda n: str(n).encode()
        ),
    ),
    st.integers(-3, 26),
)
@example(b"-0", 0)
@example(b"1e400", 0)
@example(b"-1e400", 0)
@example(b"1e-400", 0)
@example(b"0e999", 0)
@example(b"123456789012345678901234567890", 0)
@example(b"0." + b"0" * 400 + b"1", 0)
@example(b"5e-324", 0)
@example(b"1e", 0)
@example(b"1e+", 0)
@example(b".", 0)
@example(b"5.", 0)
@example(b"-.5", 0)
@example(b"1e99999999999999999999", 0)
@example(b"1.7976931348623157e308", 0)
@example(b"0.000000000000000000017976931348623157e328", 0)
@example(b"17976931348623157" + b"0" * 292, 0)
def test_decimal_numbers_are_read_as_float_reads_them(data, at):
    result = both(kfn.parse_float, array(data), at)
    if at < 0:
        assert result is IndexError
        return
    found = FLOAT.match(data[at:])
    if found is None:
        assert result is ValueError
        return
    expected = float(found[1])
    digits = found[1].lower().partition(b"e")[0].lstrip(b"+-").replace(b".", b"").lstrip(b"0")
    power = _power(found[1])
    if len(digits) <= 15 and -22 <= power <= 22:
        assert result == expected
        assert math.copysign(1, result) == math.copysign(1, expected)
    elif math.isinf(expected) or math.isinf(result):
        assert min(abs(expected), abs(result)) > 1.79e308
    else:
        assert math.isclose(result, expected, rel_tol=1e-15, abs_tol=1e-322)


def _power(text):
    """The power of ten behind all the digits."""
    number, _, exponent = text.lower().partition(b"e")
    return int(exponent or b"0") - len(number.partition(b".")[2])


HEADER = st.tuples(st.sampled_from([b"", b"a", b"ab", b"trace"]), st.one_of(st.none(), st.binary(max_size=70)))


@pytest.mark.slow
@settings(max_examples=examples(200))
@given(st.lists(HEADER, max_size=4), st.sampled_from([b"", b"a", b"ab", b"nope"]), st.binary(max_size=4))
def test_the_last_header_of_a_name_counts(headers, name, rest):
    import builder

    data = b"".join(
        builder.varint(len(key)) + key + (b"\1" if value is None else builder.varint(len(value)) + value)
        for key, value in headers
    )
    given = kfn.Headers(array(data + rest), len(headers))
    assert both(kfn.has_header, given, name) == any(key == name for key, _ in headers)
    assert both(kfn.get_header, given, name) == (dict(headers).get(name) or b"")


@settings(max_examples=examples(200))
@given(st.binary(max_size=30), st.integers(0, 5))
def test_headers_that_are_none_are_errors_and_never_read_outside(data, n):
    given = kfn.Headers(array(data), n)
    assert both(kfn.has_header, given, b"a") in (True, False, IndexError, ValueError)
    result = both(kfn.get_header, given, b"a")
    assert result in (IndexError, ValueError) or result in data


@pytest.mark.parametrize("bits", [0, 1, 0x3F800000, 0x7F800000, 0xFF800000, 0x80000000, 0x7FC00000])
def test_bits_are_floats(bits):
    (expected,) = struct.unpack("<f", struct.pack("<I", bits))
    result = kfn.f32_of_bits(bits)
    assert result == expected or math.isnan(expected)
    (wide,) = struct.unpack("<d", struct.pack("<q", bits << 32 if bits < 2**31 else (bits << 32) - 2**64))
    mine = kfn.f64_of_bits(bits << 32 if bits < 2**31 else (bits << 32) - 2**64)
    assert mine == wide or math.isnan(wide)


@pytest.mark.parametrize("name", ["equals", "starts_with", "ends_with", "contains", "find"])
def test_a_str_is_refused(name):
    with pytest.raises(TypeError, match='write b"'):
        getattr(kfn, name)(array(b"abc"), "abcd")
    for header in (kfn.has_header, kfn.get_header):
        with pytest.raises(TypeError, match='write b"'):
            header(kfn.Headers(array(b""), 0), "abc")
