"""Jars are fetched once, tried again, and their want is said; nothing of this needs Java."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import needs
import pytest
from conformance import jars
from conformance.kafka import lines_said

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("KAFKALOG_JARS", str(tmp_path / "jars"))
    monkeypatch.setattr(jars, "_PAUSE_SECONDS", 0.0)
    monkeypatch.delenv("CI", raising=False)
    return tmp_path / "jars"


def ivy(outcomes: list[str]) -> tuple[list[str], Callable[..., str]]:
    """What stands for Ivy: fails with each outcome that is not empty. Also the names that it was asked for."""
    asked: list[str] = []

    def run(java: str, cache: Path, name: str, module: str, kept: Path) -> str:
        outcome = outcomes[len(asked)]
        asked.append(name)
        time.sleep(0.05)
        if not outcome:
            (cache / "one.jar").write_bytes(b"PK")
            kept.write_text(str(cache / "one.jar"))
        return outcome

    return asked, run


def test_processes_that_want_the_same_jars_fetch_them_once(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, run = ivy([""])
    monkeypatch.setattr(jars, "_run_ivy", run)
    found: list[str] = []
    # a lock of an open file holds between threads as it does between processes
    threads = [threading.Thread(target=lambda: found.append(jars.fetch("java", "kafka", ""))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [str(cache / "one.jar")] * 4
    assert asked == ["kafka"]
    (cache / "one.jar").unlink()
    asked, run = ivy(["no route", ""])
    monkeypatch.setattr(jars, "_run_ivy", run)
    assert jars.fetch("java", "kafka", "") == str(cache / "one.jar")
    assert asked == ["kafka", "kafka"]


def test_what_cannot_be_fetched_is_tried_three_times_and_then_missed(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, run = ivy(["no route"] * 3)
    monkeypatch.setattr(jars, "_run_ivy", run)
    for _ in range(2):  # another process would find the same
        with pytest.raises(pytest.skip.Exception, match="no route"):
            jars.fetch("java", "kafka", "")
        assert len(asked) == 3
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="no route"):
        jars.fetch("java", "kafka", "")


@pytest.mark.slow  # starts pytest in a process of its own
def test_the_end_of_a_run_says_what_was_missing(tmp_path: Path) -> None:
    (tmp_path / "test_it.py").write_text(
        "import needs, pytest\n"
        "@pytest.mark.parametrize('n', range(5))\n"
        "def test_it(n): needs.missing('no broker\\nbecause') if n else pytest.skip('another reason')\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("CI", "PYTEST"))}
    environment["PYTHONPATH"] = os.pathsep.join(map(str, [ROOT / "tests", Path(needs.__file__).parent, ROOT]))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "conftest", "-n", "2", "-c", os.devnull, "."]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-2] == "4 tests DID NOT RUN: no broker"
    assert "5 skipped" in done.stdout.splitlines()[-1]
    environment["CI"] = "true"
    command[command.index("2")] = "0"
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "4 failed, 1 skipped" in done.stdout.splitlines()[-1]


def test_a_brokers_word_on_a_loaded_machine_is_no_complaint() -> None:
    overloaded = (
        "[quorum-controller-1-event-handler] ERROR org.apache.kafka.controller.ReplicationControlManager -"
        " [QuorumController id=1] processExpiredBrokerHeartbeat: controller event queue overloaded. Timed out heartbeat"
        " from broker 1."
    )
    slow = (
        "184273 [quorum-controller-1-event-handler] ERROR org.apache.kafka.controller.EventPerformanceMonitor -"
        " [QuorumController id=1] Exceptionally slow controller event maybeFenceStaleBroker(816380585) took 2811 ms."
    )
    another = "[main] ERROR kafka.log.LogManager - There was an error in one of the threads: event queue overloaded"
    assert lines_said(f"one\n{overloaded}\n{slow}\n{another}\n") == ["one", another]
