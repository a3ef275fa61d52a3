"""Two processes that write to one partition: one of them is refused, and what the other was told is true."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from effort import thinned
from writing import write_two_and_roll

import kafkalog
from kafkalog.writing.partition_writer import PartitionWriter

# appends to a partition, with a pause before each step that brings files into place
WRITER = f"""
import json, os, random, sys, time
sys.path.insert(0, {str(Path(__file__).parent)!r})
import fcntl
from pathlib import Path
from kafkalog.storage import moves
from kafkalog.errors import KafkalogError
from kafkalog.writing.partition_writer import PartitionWriter

path, together, name, seed, locks = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4]), sys.argv[5]
pause = random.Random(seed)

def slowly(step):
    def call(*args, **options):
        time.sleep(pause.choice([0, 0.02, 0.05]))
        return step(*args, **options)
    return call

for step in ("rename_new", "swap", "fsync_directory"):
    setattr(moves, step, slowly(getattr(moves, step)))
if locks == "no":
    def cannot(*_):
        raise OSError(95, "no locks on this file system")
    fcntl.flock = cannot
try:
    with PartitionWriter(path) as writer:
        writer.append({{"value": [f"{{name}} {{i}}".encode() for i in range(3)], "timestamp": [1, 2, 3]}})
        (together / name).touch()
        # closes when the other is about to, or has given up
        for _ in range(20_000):
            if len(os.listdir(together)) == 2:
                break
            time.sleep(0.01)
    said = 0
except KafkalogError as error:
    said = type(error).__name__
(together / name).touch()
print(json.dumps(said))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_two_and_roll(tmp_path / "logs" / "orders-0")


def run_two(path: Path, together: Path, seed: int, locks: str) -> dict[str, Any]:
    """What the two said: 0, or which error."""
    together.mkdir()
    names = ("left", "right")
    commands = [
        [sys.executable, "-c", WRITER, str(path), str(together), name, str(2 * seed + i), locks]
        for i, name in enumerate(names)
    ]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    said = [process.communicate(timeout=240)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    return dict(zip(names, map(json.loads, said), strict=True))


@pytest.mark.parametrize(("seed", "locks"), thinned(itertools.product(range(5), ["yes", "no"]), 10))
def test_what_a_writer_appended_beside_another_one_is_there(path: Path, tmp_path: Path, seed: int, locks: str) -> None:
    said = run_two(path, tmp_path / "together", seed, locks)
    winners = [name for name, error in said.items() if error == 0]
    expected = [b"old 0", b"old 1", *(f"{name} {i}".encode() for name in winners for i in range(3))]
    assert kafkalog.read_table(path)["value"].to_pylist() == expected, said
    assert kafkalog.verify(path).ok
    assert len(winners) < 2
    if locks == "yes":
        assert sorted(map(str, said.values())) == ["0", "UnsafePathError"]
    with PartitionWriter(path) as writer:
        writer.append({"value": [b"more"], "timestamp": [9]})
    assert kafkalog.read_table(path)["value"].to_pylist() == [*expected, b"more"]
