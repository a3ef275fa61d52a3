"""Locks on open files, and what a system without them gets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kafkalog.storage.file_locks import is_locked, take_record_lock, try_lock, unlock

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


def test_one_file_is_locked_once(tmp_path: Path) -> None:
    path = tmp_path / "file"
    first, second = (os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert try_lock(first)
    assert not try_lock(second)
    unlock(first)
    assert try_lock(second)


def test_a_record_lock_is_seen_while_it_is_held(tmp_path: Path) -> None:
    path = tmp_path / ".lock"
    assert not is_locked(tmp_path)
    first, second = (os.open(path, os.O_RDWR | os.O_CREAT) for _ in range(2))
    assert not is_locked(tmp_path)
    take_record_lock(first)
    assert is_locked(tmp_path)
    with pytest.raises(OSError, match="unavailable"):
        take_record_lock(second)
    os.close(first)
    assert not is_locked(tmp_path)


def test_without_locks_and_positional_reads_kafkalog_reads_and_refuses_to_write(tmp_path: Path) -> None:
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
