"""Locks on partitions: one writer at a time, released with the writer."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest
from writing import write_two_and_roll

import kafkalog
from kafkalog.errors import UnsafePathError
from kafkalog.storage.broker_lock import hold_partitions
from kafkalog.writing.partition_writer import PartitionWriter


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_two_and_roll(tmp_path / "logs" / "orders-0")


def test_a_partition_has_one_writer_at_a_time_also_within_a_process(path: Path) -> None:
    with PartitionWriter(path) as writer:
        writer.append({"value": [b"new"], "timestamp": [2]})
        with pytest.raises(UnsafePathError, match="another process or writer is writing to this partition"):
            PartitionWriter(path)
        with pytest.raises(UnsafePathError, match="another process or writer is writing to this partition"):
            kafkalog.reindex(path, in_place=True)
        with PartitionWriter(path.with_name("orders-1")) as other:
            other.append({"value": [b"elsewhere"], "timestamp": [2]})
    with PartitionWriter(path):
        pass
    assert kafkalog.read_table(path)["value"].to_pylist() == [b"old 0", b"old 1", b"new"]


def test_a_lock_goes_with_its_writer_and_not_with_a_fork_of_it(path: Path) -> None:
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


def test_a_file_system_without_locks_is_written_to(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(*_: object) -> None:
        raise OSError(95, "no locks here")

    monkeypatch.setattr(fcntl, "flock", cannot)
    with hold_partitions([path]), hold_partitions([path]), PartitionWriter(path) as writer:
        writer.append({"value": [b"new"], "timestamp": [2]})
    assert kafkalog.scan(path).count_rows() == 3


def test_directories_that_are_not_there_or_are_being_staged_need_no_lock(tmp_path: Path) -> None:
    with hold_partitions([tmp_path / "none-0"]):
        pass
    staged = tmp_path / ".x.kafkalog-staged" / "orders-0"
    staged.mkdir(parents=True)
    with hold_partitions([staged]), hold_partitions([staged]):
        pass
