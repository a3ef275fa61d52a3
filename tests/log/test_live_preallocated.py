"""A preallocated segment that a broker writes to while it is read: it ends behind its last whole batch.

With `preallocate=true` the active segment has its full size from the start, and a broker writes batches into its
zeros. Here that happens between any two reads of a reader, whole, torn and in the wrong order, as pages of a file
become visible.
"""

import contextlib
import itertools
import os
from functools import cache

import builder
import numpy as np
import pytest
from effort import thinned
from refusals import fails_with

import kafkalog
from kafkalog import format as kf
from kafkalog.errors import TruncatedTailError
from kafkalog.log.log_dir import LogDir
from kafkalog.log.tail import LogTail
from kafkalog.records.header_walk import walk
from kafkalog.scanning.planning import plan
from kafkalog.scanning.tasks import read_task
from kafkalog.storage import source as source_module

SIZE = 5 * 2**20
FIRST = 20
MORE = 5

T0 = kf.TopicPartition("t", 0)


@cache
def batch(offset, size=9000):
    return builder.batch_v2(
        [builder.record_v2(offset_delta=0, value=bytes([1 + offset % 200]) * size)],
        base_offset=offset,
        base_timestamp=1_700_000_000_000 + offset,
    )


class Broker:
    """Does a step before each read, from a given one on."""

    def __init__(self, path, steps):
        self.path, self.steps = path, steps
        self.n_reads = 0
        self.begin = 10**9

    def on_read(self):
        self.n_reads += 1
        if self.n_reads > self.begin and self.steps:
            descriptor = os.open(self.path, os.O_WRONLY)
            self.steps.pop(0)(descriptor)
            # the clock of a file system ticks; a broker writes at any time
            os.utime(self.path, ns=(1, os.stat(self.path).st_mtime_ns + 1))
            os.close(descriptor)


def write(data, at):
    return lambda descriptor: os.pwrite(descriptor, data, at)


def preallocate(directory):
    path = directory / kf.segment_file_name(0)
    path.unlink(missing_ok=True)
    path.write_bytes(b"".join(batch(offset) for offset in range(FIRST)))
    end = path.stat().st_size
    os.truncate(path, SIZE)
    return end


def steps_of(how, end):
    batches = [batch(offset) for offset in range(FIRST, FIRST + MORE)]
    at = [end + sum(map(len, batches[:number])) for number in range(MORE + 1)]
    if how == "whole":
        return [write(one, begin) for one, begin in zip(batches, at, strict=False)]
    if how == "torn":  # first what lies in the first page of each
        return [
            step
            for one, begin in zip(batches, at, strict=False)
            for step in (write(one[:70], begin), write(one[70:], begin + 70))
        ]
    if how == "torn in the header":
        return [
            step
            for one, begin in zip(batches, at, strict=False)
            for step in (write(one[:9], begin), write(one[9:], begin + 9))
        ]
    data = b"".join(batches)
    if how == "overtaken":  # a reader that is slower than the writer: older pages first
        return [write(data[4000:], end + 4000), write(data[:4000], end)]
    if how == "overtaken in a batch":
        return [
            write(data[:100], end),
            write(data[5000:], end + 5000),
            write(data[100:5000], end + 100),
        ]
    assert how == "rolled"
    return [write(data, end), lambda descriptor: os.ftruncate(descriptor, at[-1])]


HOW = ("whole", "torn", "torn in the header", "overtaken", "overtaken in a batch", "rolled")


def scanned(directory, **options):
    scan = kafkalog.scan(directory, columns=["offset"], **options)
    offsets = scan.to_table()["offset"].to_pylist()
    assert not [finding for finding in scan.findings if finding.damage]
    return offsets


def batch_rows(directory):
    return kafkalog.batches(directory, columns=["base_offset"]).to_table()["base_offset"].to_pylist()


def verified(directory, **options):
    result = kafkalog.verify(directory, **options)
    assert result.ok, list(result.findings)
    (partition,) = result.partitions
    return list(range(partition.segments[0].last_offset + 1))


def end_offset(directory):
    opened = kafkalog.open(directory)
    assert isinstance(opened, kafkalog.Partition)
    return list(range(opened.log_end_offset))


def found_offsets(directory):
    (path,) = directory.glob("*.log")
    found = kafkalog.Segment(path, is_last=True).find_offsets(np.arange(FIRST + MORE))["base_offset"]
    return [offset for offset in found.tolist() if offset >= 0]


def latest_by_time(directory):
    opened = kafkalog.open(directory)
    assert isinstance(opened, kafkalog.Partition)
    return list(range(opened.offset_for_timestamp("max-timestamp") + 1))


def tasks_read(directory):
    tasks = plan(directory).tasks
    batches = [one for task in tasks for one in read_task(task, columns=["offset"])]
    return [offset for one in batches for offset in one.column("offset").to_pylist()]


def tail_end(directory):
    tail = LogTail(lambda: LogDir([directory.parent]), lambda key: True)
    end = tail.ends()[T0]
    return list(range(max(end, tail.ends()[T0])))


def planned_start(directory, **options):
    result = kafkalog.preflight(directory, clean=False, **options)
    (partition,) = result.partitions
    assert not partition.n_bytes_lost, partition.segments
    assert partition.problem is None
    assert not [finding for finding in result.findings.rows if finding.damage]
    return list(range(partition.log_end_offset))


READERS = {
    "scan": scanned,
    "scan in one thread": lambda directory: scanned(directory, threads=1),
    "read_committed": lambda directory: scanned(directory, isolation_level="read_committed"),
    "skip": lambda directory: scanned(directory, on_corruption="skip"),
    "batches": batch_rows,
    "preflight": planned_start,  # here, so that a plain run takes it while a segment is rolled
    "verify": verified,
    "verify --deep": lambda directory: verified(directory, deep=True),
    "log end offset": end_offset,
    "offsets": found_offsets,
    "timestamps": latest_by_time,
    "tasks": tasks_read,
    "tail": tail_end,
}


@pytest.fixture
def hook(monkeypatch):
    """Lets a broker act before each read of a file."""
    brokers = []
    checked = source_module.FileSource.check_unchanged

    def check_unchanged(source):  # what reads windows and what reads runs calls it
        for broker in brokers:
            broker.on_read()
        checked(source)

    monkeypatch.setattr(source_module.FileSource, "check_unchanged", check_unchanged)
    yield lambda broker: brokers.__setitem__(slice(None), [broker])
    brokers.clear()


@pytest.mark.parametrize(("reader", "how"), thinned(itertools.product(READERS, HOW), 5))
def test_what_a_broker_writes_meanwhile_is_there_or_not_there_yet(tmp_path, hook, reader, how):
    directory = tmp_path / "t-0"
    directory.mkdir()
    path = directory / kf.segment_file_name(0)
    end = preallocate(directory)
    undisturbed = Broker(path, [])
    hook(undisturbed)
    assert READERS[reader](directory) == list(range(FIRST))
    assert undisturbed.n_reads
    for begin in range(undisturbed.n_reads):
        preallocate(directory)
        broker = Broker(path, steps_of(how, end))
        broker.begin = begin
        hook(broker)
        offsets = READERS[reader](directory)
        assert FIRST <= len(offsets) <= FIRST + MORE, begin
        assert offsets == list(range(len(offsets))), begin


@pytest.mark.parametrize("n_zeros", [1000, 30, 20])
def test_a_small_preallocated_segment_all_of_whose_blocks_are_written_is_cut_or_filled(tmp_path, n_zeros):
    """A file is sparse no more once its last block has been written to, as the only one of a small segment is."""
    path = tmp_path / kf.segment_file_name(0)
    batches = [batch(n, 100) for n in range(36)]
    size = sum(map(len, batches)) + n_zeros

    # into few zeros nobody writes
    for is_cut in (True, False) if n_zeros == 1000 else (True,):
        path.write_bytes(b"".join(batches) + bytes(n_zeros))
        with source_module.FileSource(path) as source:
            if source.is_preallocated:
                pytest.skip("the file system keeps zeros as holes")
            windows = walk(source, window_bytes=600)
            found = [next(windows)]
            with path.open("r+b") as file:
                file.seek(size - n_zeros)
                if is_cut:
                    file.truncate(size - n_zeros)
                else:
                    file.write(batch(36, 100))
            os.utime(path, ns=(1, os.stat(path).st_mtime_ns + 1))
            with contextlib.suppress(TruncatedTailError):
                for window in windows:
                    found.append(window)  # noqa: PERF402 - those before the error
        offsets = [offset for window in found for offset in window.batches.base_offset.tolist()]
        assert offsets == [*range(36 if is_cut else 37)]


def test_damage_in_a_preallocated_segment_is_still_damage(tmp_path):
    directory = tmp_path / "t-0"
    directory.mkdir()
    path = directory / kf.segment_file_name(0)
    end = preallocate(directory)
    with path.open("r+b") as file:
        file.seek(end - 100)
        file.write(b"x")
    with fails_with("crc_mismatch"):
        scanned(directory)
    assert not kafkalog.verify(directory).ok
    preallocate(directory)
    with path.open("r+b") as file:
        file.seek(end + 1_000_000)
        file.write(batch(FIRST + 3))
    with pytest.raises(kafkalog.CorruptionError):
        scanned(directory)


def test_a_preallocated_segment_that_loses_what_was_read_has_changed(tmp_path):
    directory = tmp_path / "t-0"
    directory.mkdir()
    path = directory / kf.segment_file_name(0)
    preallocate(directory)
    with source_module.FileSource(path) as source:
        source.window(0, 100_000)
        os.truncate(path, 50_000)
        with fails_with("file_changed"):
            source.window(100_000, 200_000)
