"""Wrong arguments of every public function: an error of ours names the argument, before anything is read or written."""

import contextlib
import datetime
import functools
import inspect
import os
import re
import shutil
import traceback
from enum import Enum
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from effort import spared

import kafkalog
from kafkalog.calls import keywords_of
from kafkalog.html import PartsReport

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


@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=pytest.mark.slow) if one == "sql" else one for one in FUNCTIONS]
)
def test_a_value_of_no_type_that_is_taken_is_refused_by_the_name_of_the_argument(name, places):
    found = [
        failure
        for parameter in keywords_of(getattr(kafkalog, name))
        for value in NEVER_RIGHT
        for failure in failures(name, parameter, value, places, is_wrong=True)
    ]
    assert found == []


@pytest.mark.slow
@pytest.mark.parametrize("name", spared([name for name in FUNCTIONS if name not in LIKE_SCAN], 3))
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


def parts_of(value, seen, depth=0):
    """Objects of the package that are reached from one, the first of each class."""
    kind = type(value)
    if isinstance(value, (list, tuple)) and kind.__module__ == "builtins":
        for one in value[:1]:
            yield from parts_of(one, seen, depth)
    is_ours = kind.__module__.startswith("kafkalog") and kind.__name__ not in INTERNAL and not isinstance(value, Enum)
    if not is_ours or kind in seen or depth > MOST_DEPTH:
        return
    seen.add(kind)
    yield value
    for name in dir(value):
        if not name.startswith("_"):
            with contextlib.suppress(Exception):
                yield from parts_of(getattr(value, name), seen, depth + 1)
    if isinstance(value, (list, PartsReport)):
        yield from parts_of([*value], seen, depth + 1)


MOST_DEPTH = 3
INTERNAL = ("Names", "ListOffsets", "DirectoryIdentity", "ObjectStore", "_Keys", "_Values")
"""Classes of objects that nobody is told of, and of lists that are like those of Python."""


def objects(places):
    """Results, and objects of the public classes."""
    d, p, out = places / "log", places / "log" / "orders-0", places / "work"
    partition = kafkalog.open(p)
    records = partition.to_numpy()
    yield from (kafkalog.open(d), partition, partition.segments[0], kafkalog.scan(p), kafkalog.batches(p))
    yield from (records, records.key, records.headers, next(kafkalog.cat(p)), kafkalog.PartitionWriter(out / "x-0"))
    yield from (partition.segments[0].batches, kafkalog.Limits(), kafkalog.LogConfig(), kafkalog.Compression("zstd"))
    yield from (kafkalog.Producer(1), kafkalog.TopicPartition("a", 0), kafkalog.location("s3://a/b"))
    for name in FUNCTIONS:
        if name not in ("open_buffer", "open_segment", "sample", *ELSEWHERE):
            args, options = call_of(name, places)
            with contextlib.suppress(kafkalog.KafkalogError):
                yield getattr(kafkalog, name)(*args, **options)
            for path in (places / "out", Path("kafkalog-boot")):
                shutil.rmtree(path, ignore_errors=True)


ELSEWHERE = ("read_pandas", "read_polars", "read_table", "dataset", "tiered_location")
"""What returns objects of other packages, or places."""


def test_a_wrong_attribute_of_any_object_names_what_there_is(places):
    seen = set()
    failed = []
    for one in (part for value in objects(places) for part in parts_of(value, seen)):
        with pytest.raises(AttributeError) as error:
            getattr(one, "frobnicate")  # noqa: B009
        named = re.search(r"there (?:are|is) (\w+)|it has (\w+)", str(error.value))
        if named is None or not hasattr(one, named[1] or named[2]) or hasattr(one, "_frobnicate"):
            failed.append(str(error.value))
    assert not failed, "\n".join(failed)
    assert len(seen) > 60


def led():
    """The name and the function of all that leads: functions, and methods of public classes."""
    for name in [*kafkalog.__all__, *kafkalog.types.__all__]:
        value = getattr(kafkalog, name, None) or getattr(kafkalog.types, name)
        for method, found in vars(value).items() if inspect.isclass(value) else ():
            function = getattr(found, "__func__", found)
            if hasattr(function, "__wrapped__") and inspect.isfunction(function) and not method.startswith("_"):
                yield f"{name}.{method}", functools.partial(function, value)
        if inspect.isfunction(value):
            yield name, value


def test_a_wrong_keyword_of_any_function_and_method_leads_to_those_that_there_are(places):
    leads = re.compile(r"no option 'frobnicate'(?:; there (?:is|are) |; it has none|: it reads no)| needs \w+=")
    failed = []
    for name, called in led():
        args = () if "." in name else call_of(name, places)[0]
        try:
            result = called(*args, frobnicate=1)
            failed.append(f"{name}: no error, {[*result.to_batches()] if hasattr(result, 'to_batches') else result}")
        except TypeError as error:
            failed += [] if leads.search(str(error)) else [f"{name}: {error}"]
    assert not failed, "\n".join(failed)


def test_a_name_that_a_public_module_or_an_enum_does_not_have_leads_to_those_that_there_are():
    failed = []
    for module in (kafkalog, *(getattr(kafkalog, name) for name in kafkalog._PUBLIC_MODULES)):
        for name in ("frobnicate", "Frobnicate"):
            with pytest.raises(AttributeError) as error:
                getattr(module, name)
            named = re.search(r"; there (?:are|is) (\w+)", str(error.value))
            failed += [] if named and hasattr(module, named[1]) else [str(error.value)]
    for kind in (kafkalog.Codec, kafkalog.TimestampType, kafkalog.ControlRecordType, kafkalog.Reason):
        first = next(iter(kind))
        slip = first.name[:-1] + "X"
        for ask in (functools.partial(getattr, kind), lambda word, kind=kind: kind[word], kind):
            for word, lead in (("frob", first.name), (slip, f"did you mean {kind.__name__}.{first.name}")):
                with pytest.raises((AttributeError, KeyError, ValueError)) as error:
                    ask(word)
                failed += [] if lead in str(error.value) else [str(error.value)]
    assert not failed
    assert kafkalog.functions.contains is not None
    with pytest.raises(AttributeError, match="did you mean starts_with"):
        kafkalog.functions.startswith  # noqa: B018
