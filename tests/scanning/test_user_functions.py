"""`where=` and `extract=`: compiled functions see what records hold; what they do wrong is counted and said."""

import functools
import pickle
import struct
import subprocess
import sys
import warnings
from pathlib import Path

import builder
import numba
import numpy as np
import pyarrow as pa
import pytest
from effort import thinned

import kafkalog
from kafkalog import functions
from kafkalog.errors import FunctionWarning, Reason
from kafkalog.functions import get_header, has_header, read_int
from kafkalog.scanning.user_functions import ARGUMENTS, EXTRACT_DTYPES, Extract, Where

N = 40
KEYS = [None, b"", b"k", b"key"]


def make(path, magic=2, codec=0, start=0):
    """A segment of 40 records: timestamp 100 + i, value int32 i and float64 i / 4, headers in v2."""
    values = [struct.pack("<id", i, i / 4) for i in range(N)]
    if magic == 2:
        records = [
            builder.record_v2(i, i, KEYS[i % 4], values[i], [(b"n", b"%d" % i), (b"e", None)][: i % 3])
            for i in range(N)
        ]
        data = builder.batch_v2(records, base_offset=start, codec=codec, base_timestamp=100, max_timestamp=100 + N)
    else:
        messages = [
            builder.message(i if codec and magic else start + i, KEYS[i % 4], values[i], magic=magic, timestamp=100 + i)
            for i in range(N)
        ]
        data = b"".join(messages)
        if codec:
            data = builder.wrapper(messages, offset=start + N - 1, magic=magic, codec=codec, timestamp=100 + N)
    path.mkdir(parents=True, exist_ok=True)
    (path / f"{start:020d}.log").write_bytes(data)
    return path


@pytest.fixture
def topic(tmp_path):
    return make(tmp_path / "t-0")


def everything(offset, timestamp, timestamp_type, key, value, key_is_null, value_is_null, headers):
    total = offset + 1000.0 * timestamp + 0.5 * timestamp_type + 1e6 * key.size + 1e7 * value.size
    total += 1e8 * read_int(value, 0, 4, True) + 1e11 * key_is_null + 2e11 * value_is_null + 1e12 * headers.n_headers
    return total + 1e13 * get_header(headers, b"n").size + 4e13 * has_header(headers, b"e")


def i32(value):
    return read_int(value, 0, 4, True)


def fails_at_seven(offset):
    if offset % 10 == 7:
        raise ValueError("seven")
    return True


def number(offset):
    return offset


def some(offset):
    return None if offset % 2 else offset


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize(("magic", "codec"), [(2, 0), (2, 4), (1, 0), (1, 1), (0, 0), (0, 2)])
def test_a_function_sees_what_the_record_holds(tmp_path, magic, codec, threads):
    path = make(tmp_path / "t-0", magic, codec, start=500)
    records = kafkalog.read_numpy(path, extract={"all": ("f8", everything)}, threads=threads)
    assert records.n_records == N
    for i in range(N):
        headers = [b"n", b"e"][: i % 3] if magic == 2 else []
        expected = 500 + i + 1000.0 * (100 + i if magic else -1) + 0.5 * (0 if magic else -1)
        expected += 1e6 * len(KEYS[i % 4] or b"") + 1e7 * 12 + 1e8 * i + 1e11 * (KEYS[i % 4] is None)
        expected += 1e12 * len(headers) + 1e13 * (len(str(i)) if b"n" in headers else 0) + 4e13 * (b"e" in headers)
        assert records["all"][i] == expected


@pytest.mark.parametrize("name", thinned(EXTRACT_DTYPES, 5))
def test_each_dtype_is_a_column_of_that_type(topic, name):
    function = number
    if name == "bool":
        function = eval("lambda offset: offset % 2 == 0")
    scan = kafkalog.scan(topic, columns=["offset"], extract={"x": (name, function)})
    dtype = np.dtype(name)
    assert scan.schema.field("x").type == pa.from_numpy_dtype(dtype)
    table, records = scan.to_table(), scan.to_numpy()
    table.validate(full=True)
    assert records["x"].dtype == dtype
    expected = [i % 2 == 0 if name == "bool" else i for i in range(N)]
    assert table["x"].to_pylist() == expected == records["x"].tolist()
    nothing = kafkalog.scan(topic, columns=["offset"], extract={"x": (name, function)}, end_offset=0)
    assert nothing.to_numpy()["x"].dtype == dtype
    assert nothing.to_table().num_rows == 0


def test_none_is_null_in_arrow_and_masked_in_numpy(topic):
    make(topic, start=N)
    scan = kafkalog.scan(topic, columns=["offset"], extract={"x": ("i2", some)})
    table, records = scan.to_table(), scan.to_numpy()
    expected = [None if offset % 2 else offset for offset in table["offset"].to_pylist()]
    assert table["x"].to_pylist() == expected
    assert isinstance(records["x"], np.ma.MaskedArray)
    assert records["x"].tolist() == expected
    assert not scan.findings
    # cut, taken, and partly unmasked: the mask stays
    parts = [pa.Table.from_batches([batch])["x"].to_pylist() for batch in kafkalog.scan(
        topic, columns=[], extract={"x": ("i2", some)}, batch_size=7).to_batches()]  # fmt: skip
    assert [value for part in parts for value in part] == expected
    assert kafkalog.read_table(topic, extract={"x": ("i2", some)}, filters=[("x", "is null")]).num_rows == N
    assert kafkalog.read_table(topic, extract={"x": ("i2", some)}, filters=[("x", "<", 10)])["x"].to_pylist() == [
        0, 2, 4, 6, 8,
    ]  # fmt: skip


@pytest.mark.slow
def test_filters_as_text_compare_an_extracted_column_with_numbers(topic):
    def half(offset):
        return offset * 0.5

    def is_even(offset):
        return offset % 2 == 0

    extract = {"half": ("f8", half), "is_even": ("bool", is_even), "x": ("i4", number)}

    def offsets(filters, **options):
        return kafkalog.read_table(
            topic, columns=["offset"], extract=extract, filters=filters, **options
        )["offset"].to_pylist()  # fmt: skip

    as_numbers = offsets([("half", "<", 1.5), ("is_even", "==", True)])
    assert as_numbers == [0, 2] == offsets(["half < 1.5", "is_even == true"])
    assert offsets([["half < 1.5", "is_even == true"]], decode={"value": "utf8"}) == as_numbers
    assert offsets(["half in 0,0.25", "value is not null"], decode={"value": "utf8"}) == offsets(
        [("half", "in", [0, 0.25])]
    )
    with pytest.raises(ValueError):
        offsets("x > 1.5")
    with pytest.raises(ValueError):
        offsets("half > a", decode={"value": "utf8"})
    with pytest.raises(ValueError):
        offsets("is_even == 1")


@pytest.mark.slow
def test_a_filter_on_an_extracted_column_derives_only_what_the_rest_of_it_leaves(topic):
    def fussy(offset):
        if offset > 5:
            raise ValueError("too far")
        return offset * 2

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        filters = [("x", ">", 2), ("key", "==", b"key"), ("offset", "<=", 5)]
        table = kafkalog.read_table(topic, columns=["offset"], extract={"x": ("i4", fussy)}, filters=filters)
    assert table.to_pylist() == [{"offset": 3, "x": 6}]


@pytest.mark.slow
def test_a_value_out_of_a_small_floats_range_is_compared_exactly(topic):
    def tenth(offset):
        return offset / 10

    extract = {"x": ("f4", tenth)}
    for operation, n in (("==", 0), ("!=", N), ("<", 1), ("<=", 1), (">", N - 1), (">=", N - 1)):
        # 0.1 is not the float32 next to it, which lies above
        found = kafkalog.scan(topic, extract=extract, filters=[("x", operation, 0.1)]).count_rows()
        assert found == n, operation
    assert kafkalog.scan(topic, extract=extract, filters=[("x", "in", [0.5, 1e300])]).count_rows() == 1
    assert kafkalog.scan(topic, extract=extract, filters=[("x", "<", 1e300)]).count_rows() == N


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", thinned([4, 1], 2))
def test_failures_are_counted_once_with_one_warning_a_function_and_segment(topic, threads):
    make(topic, start=N)

    def bad(offset, value):
        return value[12] if offset % 2 else offset

    scan = kafkalog.scan(
        topic, columns=["offset"], where=fails_at_seven, extract={"bad": ("i4", bad)}, threads=threads
    )  # fmt: skip
    for _ in range(2):
        with pytest.warns(FunctionWarning) as caught:
            records = scan.to_numpy()
        assert len(caught) == len(scan.findings) == 4
        assert records.n_records == 2 * (N - 4)
        assert all(offset % 10 != 7 for offset in records.offset)
        assert records.bad.tolist() == [None if offset % 2 else offset for offset in records.offset.tolist()]
        assert [(Path(str(one.path)).name[-8:-4], one.base_offset, one.last_offset) for one in scan.findings] == [
            ("0000", 7, 37), ("0000", 1, 39), ("0040", 47, 77), ("0040", 41, 79),
        ]  # fmt: skip
        assert all(one.reason is Reason.FUNCTION_ERROR and not one.damage for one in scan.findings)
        details = [one.detail for one in scan.findings]
        assert details[0] == "where failed on 4 records (offsets 7, 17, 27, 37); the first: ValueError: seven"
        assert details[1].startswith(
            "extract['bad'] failed on 16 records (offsets 1, 3, 5, 9, 11, ...); the first: IndexE"
        )
        assert scan.n_damage == 0


@pytest.mark.parametrize(
    ("function", "said", "n"),
    thinned(
        [
            ("lambda offset: 10 // (offset - 3) > 0", "ZeroDivisionError", 1),
            ("lambda offset: 1.0 / (offset - 3) > 0", "ZeroDivisionError", 1),
            ("lambda offset: 10 % (offset - 3) > 0", "ZeroDivisionError", 1),
            ("lambda offset, value: 10 // read_int(value, 0, 4, True) > 0", "divi", 1),
            ("lambda value: value[12] == 0", "IndexError", N),
            ("lambda key: key[-1] == 0", "IndexError", N // 2),
            ("lambda value: value[2**62] == 0", "IndexError", N),
            ("lambda value: read_int(value, 9, 4, True) == 0", "IndexError: read past the end", N),
            ("lambda key: parse_float(key, 0) == 0", "ValueError: no number here", N),
            ("lambda offset, value: value[offset + 2**63 - 13] == 0", "IndexError", N),
        ],
        5,
    ),
)
def test_what_a_function_does_wrong_leaves_the_record_out_and_is_said(topic, function, said, n):
    scan = kafkalog.scan(topic, where=eval(function, {**vars(functions)}))
    with pytest.warns(FunctionWarning, match=f"{n}.*{said}"):
        scan.count_rows()


HOSTILE = """
import struct, sys, warnings
import builder, kafkalog
from kafkalog.functions import read_int, read_uint, find
warnings.simplefilter("ignore")
at = [2**63 - 1, 2**63 - 2, 2**63 - 4, 2**63 - 8, -2**63, 2**62, 2**32]
records = [builder.record_v2(i, 0, None, struct.pack("<q", one)) for i, one in enumerate(at)]
open(sys.argv[1], "wb").write(builder.batch_v2(records))

def checked(value):
    at = read_int(value, 0, 8, True)
    if at + 4 < 0 or at + 4 >= value.size:
        raise ValueError("outside")
    return value[at + 4] == value[at + 3]

def helped(value):
    at = read_int(value, 0, 8, True)
    return read_uint(value, at + 4, 1) == read_int(value, at + 2, 8, True)

def indexed(value):
    at = read_int(value, 0, 8, True)
    return value[at + 2] == value[at + 3]

def searched(value):
    at = read_int(value, 0, 8, True)
    return find(value[at + 1 :], b"a", at + 1) == find(value, b"a", at)

for function in (checked, helped, indexed):
    assert kafkalog.scan(sys.argv[1], where=function).count_rows() == 0, function
kafkalog.scan(sys.argv[1], where=searched).count_rows()
"""


@pytest.mark.slow
def test_positions_out_of_a_record_lead_nowhere_outside_it(tmp_path):
    # without care they are sums that overflow, and compiled code may forget to check those
    program = tmp_path / "hostile.py"
    program.write_text(HOSTILE)
    log = tmp_path / f"{0:020d}.log"
    run = subprocess.run(
        [sys.executable, program, log], cwd=Path(__file__).parents[1] / "support", capture_output=True, text=True,
        env=_environment(),
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]


@pytest.mark.parametrize(
    ("name", "lowest", "highest"),
    thinned([("i1", -5, 300), ("u1", -1, 300), ("i4", -1, 2**31), ("u4", -1, 2**32)], 3),
)
def test_a_result_that_does_not_fit_its_column_is_null_and_said(topic, name, lowest, highest):
    @numba.njit
    def edge(offset):
        return lowest if offset == 0 else highest if offset == 1 else offset

    with pytest.warns(FunctionWarning):
        x = kafkalog.read_numpy(topic, extract={"x": (name, edge)})["x"].tolist()
    assert x[0] == (lowest if name[0] == "i" else None)
    assert x[1:4] == [None, 2, 3]


class _Object:
    def __call__(self, offset):
        return True

    def method(self, offset):
        return True


@pytest.mark.parametrize(
    "function",
    [
        3, "value", len, int, _Object(), _Object().method, functools.partial(fails_at_seven, 1),
        "lambda record: True", "lambda: True", "lambda offset, n=3: True", "lambda *offset: True",
        "lambda *, offset: True", "lambda **offset: True",
    ],
)  # fmt: skip
def test_another_signature_is_refused_and_the_right_one_shown(topic, function):
    function = eval(function) if isinstance(function, str) and function.startswith("lambda") else function
    with pytest.raises(TypeError, match="where") as caught:
        kafkalog.scan(topic, where=function)
    assert all(name in str(caught.value) for name in ARGUMENTS)
    if function != 3:
        pair = ("f8", function)
        with pytest.raises(TypeError, match="extract"):
            kafkalog.scan(topic, extract={"x": pair})


def test_other_values_may_be_none(topic):
    def chosen(offset, key):
        some = offset if offset > 3 else None
        if some is None:
            return key.size > 1
        key = None if key.size < 3 else key
        return key is not None

    sizes = [len(KEYS[i % 4] or b"") for i in range(N)]
    expected = [i for i in range(N) if sizes[i] > (1 if i <= 3 else 2)]
    assert kafkalog.read_numpy(topic, where=chosen).offset.tolist() == expected


@pytest.mark.parametrize(
    ("function", "dtype", "message"),
    thinned([
        ("lambda offset: offset", None, "where: the function returns int64; it must return True or False"),
        ("lambda offset: 'x'", None, "returns str; it must return True or False"),
        ("lambda offset: None if offset else True", None, "returns bool or None; it must return True or False"),
        ("lambda offset: None", "f8", r"extract\['x'\]: the function returns None; it must return a number"),
        ("lambda offset: 1.5", "i4", "returns float64; it must return an integer, for int32"),
        ("lambda offset: offset > 3", "i4", "returns bool; it must return an integer"),
        ("lambda offset: offset", "bool", "returns int64; it must return True or False"),
        ("lambda value: value", "f8", "it must return a number"),
        ('lambda key: functions.equals(key, "x")', None, 'where: a str equals no bytes; write b"'),
        ('lambda key: functions.contains(key, "x")', None, 'where: a str equals no bytes; write b"'),
        ('lambda headers: functions.has_header(headers, "n")', None, 'where: a str equals no bytes; write b"'),
        ('lambda headers: functions.get_header(headers, "n").size', "i4", 'a str equals no bytes; write b"'),
        ('lambda key: key == "x"', None, "where: key is never a str; compare bytes with kafkalog.functions.equals"),
        ('lambda value: "x" != value', None, "where: value is never a str; compare bytes with"),
        ('lambda key: key == b"x"', None, r"compile .*; keys and values are uint8 arrays: compare bytes with"),
        ("lambda key: key is None", None, "key is never None in a compiled function; take the parameter"),
        ("lambda value: 1 if value is None else 2", "i4", "value is never None .*; take the parameter value_is_null"),
        ("lambda value: value is not None and value.size > 2", None, "take the parameter value_is_null"),
        ("lambda value: value.nope", None, "where: numba cannot compile this function: .*nope"),
        ("lambda value: undefined(value)", None, "numba cannot compile this function: .*undefined"),
        ("lambda value: value.sort() is None", None, "numba cannot compile this function"),
        ("lambda offset: 1", "u8", "no dtype 'u8'; there are bool, i1"),
        ("lambda offset: 1", "S3", "no dtype 'S3'"),
        ("lambda offset: 1", "nonsense", "no dtype 'nonsense'"),
    ], 3),
)  # fmt: skip
def test_a_function_of_another_result_or_one_that_does_not_compile_is_refused(topic, function, dtype, message):
    options = {"where": eval(function)} if dtype is None else {"extract": {"x": (dtype, eval(function))}}
    with pytest.raises(TypeError, match=message):
        kafkalog.scan(topic, **options)


@pytest.mark.parametrize(
    ("extract", "error", "message"),
    [
        ([("x", "f8", number)], TypeError, "extract must be a dict such as"),
        ({"x": number}, TypeError, r"extract\['x'\] must be a \(dtype, function\) pair"),
        ({"x": ("f8", number, 1)}, TypeError, "pair"),
        ({"": ("f8", number)}, TypeError, "name must be text"),
        ({1: ("f8", number)}, TypeError, "name must be text"),
        ({"key": ("f8", number)}, ValueError, "records have a column of that name"),
    ],
)
def test_extract_is_checked(topic, extract, error, message):
    with pytest.raises(error, match=message):
        kafkalog.scan(topic, extract=extract)


def test_a_function_cannot_change_a_record(topic):
    def write(value):
        value[0] = 1
        return True

    with pytest.raises(TypeError, match="readonly"):
        kafkalog.scan(topic, where=write)


# --- elsewhere --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_compiled_functions_travel_between_processes(topic):
    where, extract = pickle.loads(pickle.dumps((Where(fails_at_seven), Extract({"x": ("i4", i32)}))))
    assert str(where) == "where=fails_at_seven(offset)"
    assert extract.dtypes == {"x": np.dtype("i4")}
    with pytest.warns(FunctionWarning):
        records = kafkalog.read_numpy(topic, where=fails_at_seven, extract={"x": ("i2", some)})
    again = pickle.loads(pickle.dumps(records))
    assert again.x.tolist() == records.x.tolist()
    assert None in again.x.tolist()


def test_numba_is_imported_only_for_functions_and_without_it_the_error_says_what_to_install(topic):
    program = f"""
import sys, kafkalog
kafkalog.scan({str(topic)!r}, filters=[("key", "==", b"k")]).to_table()
assert "numba" not in sys.modules
sys.modules["numba"] = None
assert kafkalog.scan({str(topic)!r}, filters=[("key", "==", b"k")]).count_rows() == {N // 4}
for options in ({{"where": lambda offset: True}}, {{"extract": {{"x": ("f8", lambda offset: 1.0)}}}}):
    try:
        kafkalog.scan({str(topic)!r}, **options)
    except ImportError as error:
        print(error)
"""
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=_environment())
    assert run.stdout == "where= and extract= need numba: pip install 'kafkalog[numba]'\n" * 2, run.stderr


def _environment():
    import os

    root = str(Path(kafkalog.__file__).parent.parent)
    return {**os.environ, "PYTHONPATH": os.pathsep.join([root, str(Path(__file__).parents[1] / "support")])}


_LIMIT = 3
_TABLE = np.array([0, 1])


@pytest.mark.slow
def test_a_changed_global_array_or_closure_counts(topic, monkeypatch):
    def offsets(function):
        return kafkalog.read_numpy(topic, columns=["offset"], where=function).offset.tolist()

    def below(offset):
        return offset < _LIMIT

    def listed(offset):
        return offset == _TABLE[0] or offset == _TABLE[1]

    first = 1

    def after(offset):
        return offset < first

    assert (offsets(below), offsets(listed), offsets(after)) == ([0, 1, 2], [0, 1], [0])
    monkeypatch.setitem(globals(), "_LIMIT", 5)
    _TABLE[1] = 7
    first = 2
    assert (offsets(below), offsets(listed), offsets(after)) == ([0, 1, 2, 3, 4], [0, 7], [0, 1])
    monkeypatch.setitem(globals(), "_LIMIT", 3)
    assert offsets(below) == [0, 1, 2]


@numba.njit
def _below_limit(offset):
    return offset < _LIMIT


@numba.njit
def _countdown(offset, n):
    return offset < _LIMIT if n == 0 else _countdown(offset, n - 1)


@pytest.mark.slow
def test_a_changed_global_counts_where_helpers_comprehensions_and_modules_use_it(topic, monkeypatch):
    import guard as settings

    monkeypatch.setattr(settings, "LIMIT", 3, raising=False)
    monkeypatch.setattr(settings, "is_below", _below_limit, raising=False)
    in_closure = _below_limit

    def helped(offset):
        return _below_limit(offset)

    def closed(offset):
        return in_closure(offset)

    def listed(offset):
        return len([n for n in range(_LIMIT) if n == offset]) > 0

    def of_module(offset):
        return offset < settings.LIMIT

    def helped_by_module(offset):
        return settings.is_below(offset)

    functions = (helped, closed, listed, of_module, helped_by_module)

    def offsets():
        return [kafkalog.read_numpy(topic, columns=["offset"], where=one).offset.tolist() for one in functions]

    assert offsets() == [[0, 1, 2]] * len(functions)
    monkeypatch.setitem(globals(), "_LIMIT", 5)
    monkeypatch.setattr(settings, "LIMIT", 5)
    assert offsets() == [[0, 1, 2, 3, 4]] * len(functions)


def test_a_helper_may_call_itself(topic):
    def counted(offset):
        return _countdown(offset, 2)

    assert kafkalog.read_numpy(topic, columns=["offset"], where=counted).offset.tolist() == [0, 1, 2]
