"""Logs that another process cuts while they are read: FileChangedError, or the records of before or after the cut."""

import itertools
import os
import shutil
import subprocess
import sys
from functools import partial

import pyarrow.parquet as pq
import pytest
from effort import spared
from faults import at_call
from writing import TOPIC_ID

import kafkalog
from kafkalog import FileChangedError, LogConfig, PartitionWriter
from kafkalog.log.segment import Segment
from kafkalog.storage import source as source_module

N = 60


@pytest.fixture
def partition(tmp_path):
    """A partition of nine segments, on which no broker runs."""
    path = tmp_path / "data" / "orders-0"
    path.parent.mkdir()
    with PartitionWriter(path, topic_id=TOPIC_ID, config=LogConfig(segment_bytes=800), batch_size=150) as writer:
        writer.append({"value": [b"%06d" % i + b"v" * 40 for i in range(N)], "timestamp": list(range(N))})
    return path


def truncate(offset, partition):
    """What our own command does: files are replaced, and later segments are gone."""
    kafkalog.truncate(partition, to_offset=offset, in_place=True, backup=partition.parent.parent / "backup")


def cut(number, partition):
    """What a follower does: it cuts one file at a batch, and deletes the later ones."""
    segments = sorted(partition.glob("*.log"))
    batches = Segment(segments[number]).batches
    os.truncate(segments[number], int(batches.position[len(batches) // 2]))
    for path in segments[number:][1:]:
        for file in partition.glob(f"{path.stem}.*"):
            file.unlink()


CHANGES = {
    "truncate to the middle": partial(truncate, N // 2),
    "truncate to the first segment": partial(truncate, 3),
    "truncate in the last segment": partial(truncate, N - 3),
    "cut the first segment": partial(cut, 0),
    "cut a segment": partial(cut, 1),
    "cut the last segment": partial(cut, -1),
}


def scan(partition, **options):
    return kafkalog.scan(partition, columns=["offset", "value"], **options).to_table()["offset"].to_pylist()


def export(partition):
    output = partition.parent.parent / "out.parquet"
    output.unlink(missing_ok=True)
    kafkalog.export(partition, output)
    return pq.read_table(output)["offset"].to_pylist()


READERS = {
    "scan": partial(scan, threads=1),
    "skip": partial(scan, on_corruption="skip"),
    "stop": partial(scan, on_corruption="stop"),
    "committed": partial(scan, isolation_level="read_committed"),
    "headers": lambda partition: [
        offset
        for rows in kafkalog.open(partition).iter_batches(on_corruption="skip")
        for first, end in zip(rows.batches.base_offset, rows.batches.last_offset + 1, strict=True)
        for offset in range(first, end)
    ],
    "export": export,
}


QUESTIONS = ((Segment, "open"), *((source_module.os, name) for name in ("scandir", "listdir", "fstat", "preadv")))
"""What a reader asks of the file system."""


def wrong_moments(partition, monkeypatch, read, change, steps):
    """The moments of a change at which a reader returns neither the records of before nor of after it."""
    kept = partition.parent.parent / "kept"
    shutil.copytree(partition, kept)
    expected = list(range(N))
    assert read(partition) == expected
    wrong = []
    for number in steps:
        with monkeypatch.context() as patch:
            calls = at_call(patch, number, lambda: change(partition), QUESTIONS)
            try:
                offsets = read(partition)
            except FileChangedError:
                offsets = expected
            except Exception as error:
                offsets = repr(error)
            is_done = next(calls) <= number
        if not is_done and offsets not in (expected, read(partition)):
            wrong.append((number, offsets if isinstance(offsets, str) else len(offsets), len(read(partition))))
        for path in (partition, partition.parent.parent / "backup"):
            shutil.rmtree(path, ignore_errors=True)
        shutil.copytree(kept, partition)
        if is_done:
            break
    return wrong


@pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")
@pytest.mark.parametrize("change", ["truncate to the middle", "cut a segment"])
def test_a_log_that_is_cut_while_it_is_read_is_never_mixed(partition, monkeypatch, change):
    for steps in (range(2, 30, 9), range(7, 30, 9)):
        assert wrong_moments(partition, monkeypatch, READERS["skip"], CHANGES[change], steps) == []
        shutil.rmtree(partition.parent.parent / "kept")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")
@pytest.mark.parametrize(("reader", "change"), spared(itertools.product(READERS, CHANGES), 4))
def test_a_log_that_is_cut_at_any_moment_is_never_mixed(partition, monkeypatch, reader, change):
    assert wrong_moments(partition, monkeypatch, READERS[reader], CHANGES[change], itertools.count()) == []


def test_a_segment_that_is_gone_after_it_was_listed_is_a_change_not_damage(partition):
    opened = kafkalog.open(partition)
    assert len(opened.segments) == 9
    cut(1, partition)
    with pytest.raises(FileChangedError, match="was removed after its directory was listed"):
        opened.scan(on_corruption="skip").to_table()


_CUTS = """
import os, random, shutil, sys, threading, time
from pathlib import Path
import kafkalog
base, random_of = Path(sys.argv[1]), random.Random(7)
with kafkalog.PartitionWriter(
    base / "kept-0", config=kafkalog.LogConfig(segment_bytes=24 << 20), batch_size=16000
) as writer:
    for _ in range(2):
        writer.append({"value": [bytes(10000)] * 2000})
path = sorted((base / "kept-0").glob("*.log"))[0]
for number in range(30):
    partition = base / f"cut-{number}"
    shutil.copytree(base / "kept-0", partition)

    def cut():
        time.sleep(random_of.random() * 0.03)
        os.truncate(partition / path.name, random_of.randrange(path.stat().st_size))

    thread = threading.Thread(target=cut)
    scan = kafkalog.scan(partition, columns=["offset"], threads=1 + number % 2, end_offset=2000, on_corruption="skip")
    thread.start()
    try:
        offsets = scan.to_table()["offset"].to_pylist()
    except kafkalog.FileChangedError:
        offsets = []
    assert offsets == list(range(len(offsets)))
    thread.join()
    shutil.rmtree(partition)
print("done")
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux populates mappings")
def test_a_mapped_segment_that_is_cut_at_random_moments_never_ends_the_process(tmp_path):
    command = [sys.executable, "-W", "ignore", "-c", _CUTS, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
