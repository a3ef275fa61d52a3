"""Locks on partitions and files: one writer at a time, released with the writer."""

import fcntl
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from refusals import fails_with
from writing import write_two_and_roll

import kafkalog
from kafkalog.errors import UnsafePathError
from kafkalog.storage.broker_lock import hold_partitions
from kafkalog.storage.file_locks import is_locked, take_record_lock
from kafkalog.storage.open_file_limit import SPARE_FILES, allow_open_files
from kafkalog.writing.partition_writer import PartitionWriter


@pytest.fixture
def path(tmp_path):
    return write_two_and_roll(tmp_path / "logs" / "orders-0")


def test_a_partition_has_one_writer_at_a_time_also_within_a_process(path):
    with PartitionWriter(path) as writer:
        writer.append({"value": [b"new"], "timestamp": [2]})
        with fails_with("unsafe_path"):
            PartitionWriter(path)
        with fails_with("unsafe_path"):
            kafkalog.reindex(path, in_place=True)
        with PartitionWriter(path.with_name("orders-1")) as other:
            other.append({"value": [b"elsewhere"], "timestamp": [2]})
    with PartitionWriter(path):
        pass
    assert kafkalog.read_table(path)["value"].to_pylist() == [b"old 0", b"old 1", b"new"]


def test_a_lock_goes_with_its_writer_and_not_with_a_fork_of_it(path):
    with PartitionWriter(path):
        child = os.fork()
        if not child:
            os._exit(0)  # what is open in it is closed
        os.waitpid(child, 0)
        with pytest.raises(UnsafePathError):
            PartitionWriter(path)
    holder = PartitionWriter(path)
    child = os.fork()
    if not child:
        holder.abort()
        os._exit(0)
    os.waitpid(child, 0)
    with pytest.raises(UnsafePathError):
        PartitionWriter(path)
    # a fork that lives on keeps nobody out once the writer itself is done
    child = os.fork()
    if not child:
        os.read(0, 1)
        os._exit(0)
    try:
        holder.abort()
        with PartitionWriter(path):
            pass
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


def test_a_file_system_without_locks_is_written_to(path, monkeypatch):
    def cannot(*_):
        raise OSError(95, "no locks here")

    monkeypatch.setattr(fcntl, "flock", cannot)
    with hold_partitions([path]), hold_partitions([path]), PartitionWriter(path) as writer:
        writer.append({"value": [b"new"], "timestamp": [2]})
    assert kafkalog.scan(path).count_rows() == 3


def test_directories_that_are_not_there_or_are_being_staged_need_no_lock(tmp_path):
    with hold_partitions([tmp_path / "none-0"]):
        pass
    staged = tmp_path / ".x.kafkalog-staged" / "orders-0"
    staged.mkdir(parents=True)
    with hold_partitions([staged]), hold_partitions([staged]):
        pass


GOLDEN = Path(__file__).parents[1] / "golden" / "log_dir"

WITHOUT_POSIX = """
import os, sys
for name in ("fcntl", "resource", "pwd", "grp"):
    sys.modules[name] = None  # importing it raises ImportError
for name in ("pread", "preadv", "O_NONBLOCK", "O_CLOEXEC", "O_DIRECTORY", "O_NOFOLLOW", "geteuid"):
    delattr(os, name)
import kafkalog
log_dir = sys.argv[1]
print(kafkalog.read_table(log_dir, topics="p-multi").num_rows)
print(kafkalog.verify(log_dir))
try:
    kafkalog.write_table({"value": [b"x"]}, sys.argv[2], topic="t")
except kafkalog.UnsupportedError as error:
    print(error.reason, os.path.exists(sys.argv[2]))
"""


def test_a_record_lock_is_seen_while_it_is_held(tmp_path):
    path = tmp_path / ".lock"
    assert not is_locked(tmp_path)
    first, second = (os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert not is_locked(tmp_path)
    take_record_lock(first)
    assert is_locked(tmp_path)
    with pytest.raises(OSError):
        take_record_lock(second)
    os.close(first)
    assert not is_locked(tmp_path)


def test_without_locks_and_positional_reads_kafkalog_reads_and_refuses_to_write(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_POSIX, str(GOLDEN), str(tmp_path / "out")],
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split("\n")[:3] == [
        "303",
        "Verification(10 partitions, 27 segments, OK)",
        "unsupported_system False",
    ]


class Limits:
    """Stands in for `resource`."""

    RLIMIT_NOFILE, RLIM_INFINITY = resource.RLIMIT_NOFILE, resource.RLIM_INFINITY

    def __init__(self, soft, hard, is_fixed=False):
        self.now, self._is_fixed = (soft, hard), is_fixed

    def getrlimit(self, _):
        return self.now

    def setrlimit(self, _, limits):
        if self._is_fixed:
            raise ValueError("not allowed to raise maximum limit")
        self.now = limits


NONE = resource.RLIM_INFINITY


@pytest.mark.parametrize(
    ("soft", "hard", "expected"),
    [
        (500, 1000, 500),
        (100 + SPARE_FILES, 1000, 100 + SPARE_FILES),
        (99 + SPARE_FILES, 1000, 100 + SPARE_FILES),
        (64, 100 + SPARE_FILES, 100 + SPARE_FILES),
        (64, NONE, 100 + SPARE_FILES),
        (NONE, NONE, NONE),
    ],
)
def test_the_soft_limit_is_raised_as_far_as_needed(soft, hard, expected, monkeypatch, tmp_path):
    limits = Limits(soft, hard)
    monkeypatch.setattr("kafkalog.storage.open_file_limit.resource", limits)
    allow_open_files(100, path=tmp_path)
    assert limits.now == (expected, hard)


@pytest.mark.parametrize(
    ("limits", "most"),
    [(Limits(64, 99 + SPARE_FILES), 99 + SPARE_FILES), (Limits(64, NONE, True), 64), (Limits(64, 500, True), 500)],
)
def test_what_cannot_be_raised_is_said(limits, most, monkeypatch, tmp_path):
    monkeypatch.setattr("kafkalog.storage.open_file_limit.resource", limits)
    with fails_with("write_failed"):
        allow_open_files(100, path=tmp_path)
    assert limits.now[0] == 64
