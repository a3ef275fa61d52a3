"""Moves into a directory: the undo takes back what it placed, and nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkalog.errors import OutputExistsError
from kafkalog.storage.moves import Move, staged_additions
from kafkalog.storage.staging import staged_file


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
