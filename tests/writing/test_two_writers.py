"""Two processes that write to one partition: one of them is refused, and what the other was told is true."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkalog
from kafkalog.errors import OutputExistsError, UnsafePathError
from kafkalog.storage.broker_lock import hold_partitions
from kafkalog.storage.moves import Move, staged_additions
from kafkalog.storage.staging import staged_file
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
        for _ in range(600):
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
    """A partition whose last segment is empty, in a directory without a lock file."""
    path = tmp_path / "logs" / "orders-0"
    path.parent.mkdir()
    with PartitionWriter(path) as writer:
        writer.append({"value": [b"old 0", b"old 1"], "timestamp": [0, 1]})
        writer.roll()
    assert not (path.parent / ".lock").exists()
    return path


def run_two(path: Path, together: Path, seed: int, locks: str) -> dict[str, Any]:
    """What the two said: 0, or which error."""
    together.mkdir()
    names = ("left", "right")
    commands = [
        [sys.executable, "-c", WRITER, str(path), str(together), name, str(2 * seed + i), locks]
        for i, name in enumerate(names)
    ]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    said = [process.communicate(timeout=60)[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    return dict(zip(names, map(json.loads, said), strict=True))


@pytest.mark.parametrize("locks", ["yes", "no"])
@pytest.mark.parametrize("seed", range(5))
def test_what_a_writer_appended_beside_another_one_is_there(path: Path, tmp_path: Path, seed: int, locks: str) -> None:
    said = run_two(path, tmp_path / "together", seed, locks)
    winners = [name for name, error in said.items() if error == 0]
    expected = [b"old 0", b"old 1", *(f"{name} {i}".encode() for name in winners for i in range(3))]
    assert kafkalog.read_table(path)["value"].to_pylist() == expected, said
    assert kafkalog.verify(path).is_ok
    assert len(winners) < 2
    if locks == "yes":
        assert sorted(map(str, said.values())) == ["0", "UnsafePathError"]
    with PartitionWriter(path) as writer:
        writer.append({"value": [b"more"], "timestamp": [9]})
    assert kafkalog.read_table(path)["value"].to_pylist() == [*expected, b"more"]


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


# ------------------------------------------------------------------------------------- what an undo leaves alone


def replace(path: Path) -> None:
    with staged_file(path, overwrite=True) as file:
        file.write(b"theirs")


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"theirs")


@pytest.mark.parametrize("what", ["add", "put"])
@pytest.mark.parametrize(("change", "left"), [(replace, b"theirs"), (append, b"minetheirs"), (Path.unlink, None)])
def test_an_undo_takes_back_what_it_placed_and_nothing_else(
    tmp_path: Path, change: Any, left: bytes | None, what: Any
) -> None:
    target = tmp_path / "there"
    target.mkdir()
    old = dict.fromkeys(("last", "taken", *(["one", "two"] if what == "put" else [])), b"old")
    for name, content in old.items():
        (target / name).write_bytes(content)
    groups = [[Move("taken", "take"), Move("one", what), Move("two", what)], [Move("last", "add")]]
    steps = Steps(groups, target / "one", change)
    with pytest.raises(OutputExistsError):
        add_files(target, steps)
    found = {path.name: path.read_bytes() for path in target.iterdir()}
    assert found == (old if left is None else {**old, "one": left})


def add_files(target: Path, groups: list[list[Move]]) -> None:
    with staged_additions(target, groups) as staged:
        for name in ("one", "two", "last"):
            with staged.create(name) as file:
                file.write(b"mine")


class Steps(list[list[Move]]):
    """Groups of moves, with something that happens to a file behind the first."""

    def __init__(self, groups: list[list[Move]], path: Path, change: Any) -> None:
        super().__init__(groups)
        self._path, self._change = path, change

    def __iter__(self) -> Iterator[list[Move]]:
        for i, group in enumerate(super().__iter__()):
            if i == 1:
                self._change(self._path)
            yield group
