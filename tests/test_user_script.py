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
print(kafkalog.load("orders.parquet", "log", dry_run=True).n_records, kafkalog.batches(partition).schema)
"""


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


def test_mypy_is_content_with_the_script(path):
    pytest.importorskip("mypy")
    settings = path.with_name("mypy.ini")
    # as for an installed package, only what is in the script counts
    settings.write_text(
        "[mypy]\nstrict = True\npython_version = 3.12\n"
        "[mypy-kafkalog.*]\nfollow_imports = silent\n"
        "[mypy-pyarrow.*,pandas.*,polars.*]\nfollow_imports = skip\nignore_missing_imports = True\n"
    )
    command = [sys.executable, "-m", "mypy", "--config-file", settings, "--cache-dir", path.parent / "cache", path]
    done = subprocess.run(command, capture_output=True, text=True, env={"PATH": ""})
    assert done.returncode == 0, done.stdout


def test_pyright_is_content_with_the_script(path):
    if shutil.which("pyright") is None:
        pytest.skip("pyright is not installed: pip install pyright")
    settings = {"include": [path.name], "reportMissingModuleSource": False}
    path.with_name("pyrightconfig.json").write_text(json.dumps(settings))
    done = subprocess.run(["pyright", "--pythonpath", sys.executable], cwd=path.parent, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
