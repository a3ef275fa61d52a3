"""A full disk ends every command that writes with one exit code, and a lack of threads with another."""

import errno
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from unittest import mock

import pytest
from conftest import GOLDEN
from effort import thinned, trials
from faults import Faulty

import kafkalog
from kafkalog.cli import main

LOG_DIR = GOLDEN / "log_dir"
PARTITION = LOG_DIR / "p-zstd-java-0"
WRITERS = {
    "truncate": ["truncate", PARTITION, "--to-offset", "590"],
    "truncate a log dir": ["truncate", LOG_DIR, "--to-timestamp", "2050-01-01T00:00Z"],
    "trim": ["trim", PARTITION, "--before-offset", "20"],
    "recover": ["recover", LOG_DIR, "--all"],
    "compact": ["compact", LOG_DIR / "p-compact-0"],
    "salvage": ["salvage", PARTITION],
    "merge": ["merge", PARTITION, PARTITION],
    "convert": ["convert", PARTITION],
    "restore": ["tiered", "restore", LOG_DIR, "-t", "p-headers"],
}


def test_every_command_that_writes_a_log_dir_fails_alike_on_a_full_disk(tmp_path, capsys):
    codes, out = {}, tmp_path / "out"
    for name, argv in WRITERS.items():
        command, calls = [*map(str, argv), "-o", str(out)], []
        with Faulty(mock.ANY, calls.append).installed():
            main(command)
        shutil.rmtree(out)
        writes = [n for n, call in enumerate(calls, 1) if call == "write"]
        for n in writes[:: max(1, len(writes) // trials(1, 16))]:
            state = {"failed": False}

            def fail(call, state=state):
                # threads may have other turns than before
                if call == "write":
                    state["failed"] = True
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

            with Faulty(n, fail).installed():
                code = main(command)
            if state["failed"]:
                codes.setdefault(code, []).append((name, n))
                assert os.listdir(tmp_path) == [], (name, n)
                assert "No space left on device" in capsys.readouterr().err, (name, n)
            elif out.exists():
                shutil.rmtree(out)
    assert set(codes) == {7}, codes
    assert {name for name, _ in codes[7]} == set(WRITERS)


READERS = [
    ["cat", LOG_DIR, "--threads", "4"],
    ["verify", LOG_DIR, "--deep"],
    ["export", LOG_DIR, "-o", "-", "--format", "jsonl", "--threads", "4"],
    ["preflight", LOG_DIR, "--unclean", "--threads", "4"],
    ["salvage", LOG_DIR, "-o", "OUT"],
    ["recover", LOG_DIR, "-o", "OUT"],
    ["compact", LOG_DIR, "-o", "OUT", "--threads", "4"],
    ["batches", LOG_DIR, "--summary"],
    ["space", LOG_DIR, "--records"],
    ["index-stats", LOG_DIR],
    ["convert", LOG_DIR, "-o", "OUT"],
    ["report", LOG_DIR],
    ["ls", LOG_DIR],
    ["tiered", "verify", LOG_DIR],
]


@pytest.mark.parametrize("argv", thinned(READERS, 6), ids=lambda argv: argv[0])
def test_a_lack_of_threads_is_a_limit(argv, tmp_path, monkeypatch, capsys):
    n_started = [0]

    def refuse(*args):
        n_started[0] += 1
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading, "_start_new_thread", refuse)
    code = main([str(tmp_path / "out") if one == "OUT" else str(one) for one in argv])
    assert code == 5 if n_started[0] else code in (0, 1)
    if n_started[0]:
        assert "starts no more threads" in capsys.readouterr().err
        assert os.listdir(tmp_path) == []


def test_arrow_groups_rows_in_the_calling_thread():
    """It waits forever for a pool whose threads the system does not start."""
    package = Path(kafkalog.__file__).parent
    calls = [call for path in package.rglob("*.py") for call in re.findall(r"\.group_by\(.*", path.read_text())]
    assert [call for call in calls if "use_threads=False" not in call] == []


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS")
def test_a_lack_of_memory_is_a_limit_and_no_hang(tmp_path):
    with kafkalog.PartitionWriter(tmp_path / "orders-0") as writer:
        for _ in range(20):
            writer.append({"value": [os.urandom(1000) for _ in range(1000)]})
    program = "import resource, sys; from kafkalog.cli import main; resource.setrlimit(resource.RLIMIT_AS, (n, n)); "
    program += "sys.exit(main(['space', '--records', sys.argv[1]]))"
    codes = set()
    for megabytes in range(300, 700, 40):
        command = [sys.executable, "-c", f"n = {megabytes << 20}; {program}", str(tmp_path)]
        codes.add(subprocess.run(command, capture_output=True, timeout=120).returncode)
    assert codes <= {0, 5}
    assert 5 in codes
