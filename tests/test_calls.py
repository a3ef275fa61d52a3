"""Wrong arguments of every public function: an error of ours names the argument, before anything is read or written."""

import contextlib
import datetime
import inspect
import os
import re
import shutil
import traceback
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kafkalog
from kafkalog.calls import keywords_of

LIKE_SCAN = ("cat", "dataset", "read_pandas", "read_polars", "read_table")
FUNCTIONS = [name for name in kafkalog.__all__ if inspect.isfunction(getattr(kafkalog, name))]
NEVER_RIGHT = (object(), 1.5, float("nan"), b"x", [object()], {1: object()}, np.datetime64("NaT"), ...)
"""Values that no argument takes."""
AT_TIMES_RIGHT = (
    *(-1, True, None, "x", [], {}, [1], ["x"], {"x": 1}, np.int64(1), np.float64(1.5), ("x",), ("x", 1), Path("x")),
    *([None], [["x"]], 2**70, set(), np.array([1.5]), Exception, datetime.date(2026, 1, 1)),
)
OTHER_NAMES = {
    **dict.fromkeys(("key_format", "value_format"), r"decode\[|_format"),
    **dict.fromkeys(("drop", "filters", "redact_where"), "filter"),
    "data": "data|records",
}
"""What errors call arguments that go into others."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    """What functions read; not to be written to."""
    folder = tmp_path_factory.mktemp("inputs") / "made"
    table = {"key": [b"k"] * 3, "value": [b"v"] * 3, "timestamp": [1_750_000_000_000] * 3}
    for topic in ("orders", "payments"):
        kafkalog.write_table(table, folder / "log", topic=topic)
    pq.write_table(pa.table({"value": [b"a"]}), folder / "rows.parquet")
    return folder


@pytest.fixture
def places(inputs, tmp_path, monkeypatch):
    """A log dir with what functions read, and a folder for what they write."""
    shutil.copytree(inputs, tmp_path, dirs_exist_ok=True)
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path


def call_of(name, places):
    """The arguments of a call that is right, or whose error comes after all checks."""
    d, p, out = places / "log", places / "log" / "orders-0", places / "out"
    segment = next(p.glob("*.log"))
    positional = {
        "boot": (d, out),
        "compact": (p,),
        "convert": (p, out),
        "diff": (p, p),
        "dump": (segment,),
        "export": (p, out / "x.parquet"),
        "install": (p, out),
        "load": (places / "rows.parquet", out),
        "location": ("s3://bucket/x",),
        "merge": ([d, d], out),
        "open_buffer": (segment.read_bytes(),),
        "open_segment": (segment,),
        "recover": (d, out),
        "restore_tiered": (d, out),
        "salvage": (d, out),
        "sample": (out,),
        "sql": ("select * from orders", d),
        "tiered_location": (d, d),
        "undelete": (segment, out),
        "write_table": ({"value": [b"a"]}, out),
    }
    named = {
        "compact": {"output": out},
        "history": {"topics": "__consumer_offsets"},
        "load": {"topic": "t"},
        "lookup": {"offset": 1},
        "reindex": {"output": out},
        "trim": {"output": out, "before_offset": 2},
        "truncate": {"output": out, "to_offset": 2},
        "write_table": {"topic": "t"},
    }
    of_log_dir = ("groups", "ls", "metadata", "remote_log", "report", "rescue_quorum", "schemas", "transactions")
    return positional.get(name, (d if name in of_log_dir else p,)), named.get(name, {})


def outcome(name, parameter, value, places):
    """Call a function with a wrong argument; returns what went wrong, and None for an error as it should be."""
    function = getattr(kafkalog, name)
    args, options = call_of(name, places)
    by_position = [*inspect.signature(function).parameters][: len(args)]
    if parameter in by_position:
        args = [value if one == parameter else arg for one, arg in zip(by_position, args, strict=True)]
    else:
        options = {**options, parameter: value}
    try:
        result = function(*args, **options)
        for rows in (getattr(result, "to_reader", None), getattr(result, "__iter__", None)):
            if rows is not None:
                [*rows()]
                break
    except kafkalog.KafkalogError:
        return None
    except (TypeError, ValueError, OSError) as error:
        last = traceback.extract_tb(error.__traceback__)[-1]
        if f"{os.sep}kafkalog{os.sep}" not in last.filename or not str(last.line).startswith("raise "):
            return f"{error!r} from inside ({last.filename}:{last.lineno})"
        called = OTHER_NAMES.get(parameter, parameter)
        return None if re.search(called, str(error)) or type(error) is not TypeError else f"{error!r} names no argument"
    except Exception as error:
        return f"{error!r} from inside"
    return "no error"


def is_taken(parameter, value):
    """Whether a value that is right nowhere else is right: bytes of a log, and schemas that no record names."""
    return (
        isinstance(value, (bytes, np.generic)) if parameter == "data" else (parameter, type(value)) == ("schemas", dict)
    )


def written(places):
    """The time of the last change of each file and directory; a thousand calls ask for it, so without paths."""
    return {
        path: os.lstat(path).st_mtime_ns
        for folder, folders, files in os.walk(places)
        for path in (f"{folder}/{name}" for name in (*folders, *files))
    }


def failures(name, parameter, value, places, *, is_wrong):
    """What is wrong with the answer to a value, which is an error if `is_wrong`."""
    before = written(places)
    found = outcome(name, parameter, value, places)
    if found == "no error" and (not is_wrong or is_taken(parameter, value)):
        return
    if found is not None:
        yield f"{name}({parameter}={value!r}): {found}"
    if written(places) != before:
        yield f"{name}({parameter}={value!r}) wrote"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_value_of_no_type_that_is_taken_is_refused_by_the_name_of_the_argument(name, places):
    found = [
        failure
        for parameter in keywords_of(getattr(kafkalog, name))
        for value in NEVER_RIGHT
        for failure in failures(name, parameter, value, places, is_wrong=True)
    ]
    assert found == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FUNCTIONS if name not in LIKE_SCAN])
def test_a_value_that_is_right_elsewhere_is_taken_or_refused(name, places):
    found = []
    for parameter in keywords_of(getattr(kafkalog, name)):
        for value in AT_TIMES_RIGHT:
            found += failures(name, parameter, value, places, is_wrong=False)
            for path in (places / "out", places / "work" / "x", Path("kafkalog-boot")):
                shutil.rmtree(path, ignore_errors=True)
                path.unlink(missing_ok=True)
    assert found == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_calls_that_are_varied_are_right(name, places):
    args, options = call_of(name, places)
    with contextlib.suppress(kafkalog.KafkalogError):
        getattr(kafkalog, name)(*args, **options)
