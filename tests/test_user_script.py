"""A user's script: the Python of README and the tutorial, and the calls of a first day, passes strict type checkers."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "docs" / "tutorial.md"]

FIRST_DAY = """
from datetime import UTC, datetime

from kafkalog import codec

log_dir = kafkalog.open_log_dir("/backup/kafka")
partition = kafkalog.open_partition("/backup/kafka/orders-0")
segment = kafkalog.open_segment("/backup/kafka/orders-0/00000000000000000000.log")
print(log_dir.topics, partition.log_end_offset, segment.batches, log_dir["orders", 0].high_watermark)
scan = log_dir.scan(topics=["orders.*", "!*-changelog"], start_timestamp="-1h", filters="key == user-42", limit=10)
print(scan.count_rows(), scan.schema, scan.findings, partition.tail(5), segment.to_numpy().offset)
since = datetime(2026, 11, 21, tzinfo=UTC)
for record in kafkalog.cat("/backup/kafka", start_timestamp=since, tail=3):
    print(record.offset, record.key, [name for name, _ in record.headers])
for summary in kafkalog.ls(log_dir):
    print(summary.topic, summary.n_records, [one.codecs for one in summary.segments])
for trace in partition.lookup(timestamp="2026-11-21T08:00Z"):
    print(trace.offset, trace.reason)
for one in kafkalog.producers(partition, now="-1d"):
    print([producer.producer_id for producer in one.overdue])
report: kafkalog.Verification = kafkalog.verify(log_dir, topics="orders*")
print(report.ok, kafkalog.epochs(partition)[0].epochs, kafkalog.index_stats(partition)[0].n_segments)
print(kafkalog.export(scan.target, "orders.parquet", limit=5).n_records)
print(kafkalog.reindex(partition, dry_run=True), kafkalog.convert(log_dir, "copy", drop="key == user-42", dry_run=True))
records = kafkalog.read_numpy(log_dir, topics="orders")
late = records[records.timestamp > 1_700_000_000_000]
codes, keys = late.key.factorize()
print(len(late), late.value.lengths.sum(), codes.max(), keys[0], late.headers[0], late.datetimes().min())
print([part.value.as_dtype(">i8").mean() for part in scan.iter_numpy()], codec.decode(codec.encode(late)).offset[-1])
print(kafkalog.load("orders.parquet", "log", dry_run=True).n_records, kafkalog.batches(partition).schema)
"""

MISSPELLED = """
import numpy as np
import kafkalog
from kafkalog import codec

log_dir = kafkalog.open_log_dir("/backup/kafka")
records = log_dir.to_numpy(columns=["offset"])
kafkalog.verify(log_dir, deeep=True)
log_dir.verify(deeep=True)
log_dir.ls(topcis="orders")
log_dir.lookup(ofset=5)
log_dir.producers(nou="-1d")
log_dir.epochs(folower=[(1, 2)])
log_dir.scan(start_ofset=5)
log_dir.to_table(columns=5)
for record in log_dir.cat(tial=3): print(record)
kafkalog.read_numpy("/backup/kafka", topic="orders")
kafkalog.open_segment("/backup/kafka/orders-0/00000000000000000000.log", memory_maps=True)
kafkalog.write_table({"value": [b"a"]}, "log", topic="orders", compresion="lz4")
kafkalog.load("orders.parquet", "log", naive_timezones="UTC")
kafkalog.dump("/backup/kafka/orders-0/00000000000000000000.log", print_data="yes")
codec.encode(records, producer_ids=4)
codec.encode(records, leader_epoch="4")
print(records.value.lenghts)
print(records[records.offset > 5].key.as_dtypes(">i8"))
"""
"""Each call after the second blank line has an option that does not exist, or a value of a wrong type."""


def script():
    """The sessions of the pages, and the calls of a first day, as one script."""
    lines = ["import kafkalog"]
    for page in PAGES:
        for block in re.findall(r"^```pycon\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            for line in block.splitlines():
                if line.startswith((">>> ", "... ")):
                    lines.append(line[4:])
                elif line == "...":
                    lines.append("")
    return "\n".join(lines) + "\n" + FIRST_DAY


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(script())
    return path


def checked_by_mypy(path):
    pytest.importorskip("mypy")
    settings = path.with_name("mypy.ini")
    # as for an installed package, only what is in the script counts
    settings.write_text(
        "[mypy]\nstrict = True\npython_version = 3.12\n"
        "[mypy-kafkalog.*]\nfollow_imports = silent\n"
        "[mypy-pyarrow.*,pandas.*,polars.*]\nfollow_imports = skip\nignore_missing_imports = True\n"
    )
    command = [sys.executable, "-m", "mypy", "--config-file", settings, "--cache-dir", path.parent / "cache", path]
    return subprocess.run(command, capture_output=True, text=True, env={"PATH": ""})


def checked_by_pyright(path):
    pyright = shutil.which("pyright") or shutil.which("basedpyright")
    if pyright is None:
        pytest.skip("pyright is not installed: pip install pyright, or basedpyright")
    settings = {"include": [path.name], "typeCheckingMode": "standard", "reportMissingModuleSource": False}
    path.with_name("pyrightconfig.json").write_text(json.dumps(settings))
    command = [pyright, "--pythonpath", sys.executable]
    return subprocess.run(command, cwd=path.parent, capture_output=True, text=True)


@pytest.mark.parametrize("check", [checked_by_mypy, checked_by_pyright])
def test_type_checkers_are_content_with_the_script(path, check):
    done = check(path)
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("check", [checked_by_mypy, checked_by_pyright])
def test_type_checkers_report_each_misspelled_option(path, check):
    path.write_text(MISSPELLED)
    done = check(path)
    reported = {int(n) for n in re.findall(r"script\.py:(\d+):(?:\d+)?.*error", done.stdout)}
    first = MISSPELLED.splitlines().index("kafkalog.verify(log_dir, deeep=True)") + 1
    assert reported == {*range(first, len(MISSPELLED.splitlines()) + 1)}, done.stdout
