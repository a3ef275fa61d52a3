"""The walks of a batch in ARCHITECTURE.md are those that Python takes: each function is called, in that order."""

import gc
import re
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest

import kafkalog
from kafkalog import codec

PACKAGE = Path(kafkalog.__file__).parent
PAGE = PACKAGE.parent / "docs" / "ARCHITECTURE.md"


def documented(title):
    """File and name of each step of a walk, and how many calls and functions the page says there are at most."""
    section = PAGE.read_text().split(f"### {title}", 1)[1].split("\n##", 1)[0]
    steps = re.findall(r"^\| \d+ \| `([\w/.]+)` `([\w.]+)` \|", section, re.MULTILINE)
    counts = re.search(r"at most ([\d,]+) calls of (\d+) functions", " ".join(section.split()))
    assert counts, f"the walk {title} says nothing of its calls"
    return steps, int(counts[1].replace(",", "")), int(counts[2])


def traced(walk):
    """File and name of each function of the package that is called or resumed, in all threads."""
    calls = []

    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(f"{PACKAGE}/"):
            calls.append((code.co_filename.removeprefix(f"{PACKAGE}/"), code.co_qualname))

    before = sys.getprofile()
    gc.disable()  # what earlier tests left must not end while calls are counted
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        walk()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
        gc.enable()
    return calls


def read(log_dir, _):
    assert kafkalog.scan(log_dir / "p-multi-0", threads=1).to_reader().read_all().num_rows


def write(_, out):
    table = pa.table({"topic": ["t", "t"], "partition": [0, 0], "key": [b"a", b"b"], "value": [b"1", b"2"]})
    kafkalog.write_table(table, out / "written")


def verify(_, out):
    assert not kafkalog.verify(out / "p-multi-0").ok


def damaged(log_dir, out):
    source = log_dir / "p-multi-0"
    (out / source.name).mkdir()
    for path in source.iterdir():
        (out / source.name / path.name).write_bytes(path.read_bytes())
    log = min((out / source.name).glob("*.log"))
    data = bytearray(log.read_bytes())
    data[200] ^= 1
    log.write_bytes(data)


@pytest.mark.skipif(sys.gettrace() is not None, reason="another tracer counts lines")
@pytest.mark.parametrize(
    ("title", "walk"), [("Read: ", read), ("Write: ", write), ("Verify: ", verify)], ids=["read", "write", "verify"]
)
def test_a_walk_takes_the_steps_of_the_page(title, walk, log_dir, disk_path):
    steps, most_calls, most_functions = documented(title)
    assert len(steps) > 5
    damaged(log_dir, disk_path)
    for name in ("warm", "counted"):  # the first pass imports modules
        out = disk_path / name
        out.mkdir()
        damaged(log_dir, out)
        calls = traced(lambda out=out: walk(log_dir, out))
    rest = iter(calls)
    # a generator is called each time that it is resumed
    missed = next((step for step in steps if step not in rest), None)
    assert missed is None, f"{missed} is not called after the step before it"
    assert len(calls) <= most_calls, len(calls)
    assert len(set(calls)) <= most_functions


@pytest.mark.skipif(sys.gettrace() is not None, reason="another tracer counts lines")
def test_opening_and_scanning_one_segment_takes_few_calls(log_dir):
    log = min((log_dir / "p-multi-0").glob("*.log"))

    def walk():
        assert kafkalog.scan(log, threads=1).to_reader().read_all().num_rows

    walk()
    assert len(traced(walk)) <= 130


def lines_of(walk, records):
    """How many lines of the package run in this thread, each pass of a loop and of a comprehension counted."""
    n = 0

    def note(frame, event, _):
        nonlocal n
        if not frame.f_code.co_filename.startswith(f"{PACKAGE}/"):
            return None
        n += event == "line"
        return note

    sys.settrace(note)
    try:
        walk(records)
    finally:
        sys.settrace(None)
    return n


@pytest.mark.skipif(sys.gettrace() is not None, reason="another tracer counts lines")
def test_columns_are_written_and_encoded_without_a_loop_over_records(disk_path):
    columns = {"key": [b"k", None], "value": [b"v", b""], "headers": [[("h", b"1")], []]}
    few, many = (codec.decode(codec.encode({name: n * values for name, values in columns.items()})) for n in (20, 400))
    kafkalog.write_table(few, disk_path / "warm", topic="t")  # imports modules
    codec.encode(few)
    for name, walk in {
        "write": lambda records: kafkalog.write_table(records, disk_path / str(len(records)), topic="t"),
        "encode": codec.encode,
        "to Arrow": lambda records: records.to_arrow(),
        "take": lambda records: records[records.offset % 2 == 0],
        "header": lambda records: records.headers["h"],
    }.items():
        assert lines_of(walk, many) < lines_of(walk, few) + 20, name


@pytest.mark.skipif(sys.gettrace() is not None, reason="another tracer counts lines")
def test_a_boot_of_one_partition_decodes_its_metadata_in_few_calls(disk_path):
    kafkalog.write_table(pa.table({"value": [b"1", b"2"]}), disk_path / "source", topic="t")
    kafkalog.boot(disk_path / "source", disk_path / "warm")  # imports modules
    calls = traced(lambda: kafkalog.boot(disk_path / "source", disk_path / "counted"))
    assert len(calls) <= 10_000  # the topics of the coordinators have 150 partitions, each a record of the metadata log
