"""The limit on open files."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from kafkalog.errors import WriteError
from kafkalog.storage.open_file_limit import SPARE_FILES, allow_open_files, count_open_files


class Limits:
    """Stands in for `resource`."""

    RLIMIT_NOFILE, RLIM_INFINITY = resource.RLIMIT_NOFILE, resource.RLIM_INFINITY

    def __init__(self, soft: int, hard: int, is_fixed: bool = False) -> None:
        self.now, self._is_fixed = (soft, hard), is_fixed

    def getrlimit(self, _: int) -> tuple[int, int]:
        return self.now

    def setrlimit(self, _: int, limits: tuple[int, int]) -> None:
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
def test_the_soft_limit_is_raised_as_far_as_needed(
    soft: int, hard: int, expected: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    limits = Limits(soft, hard)
    monkeypatch.setattr("kafkalog.storage.open_file_limit.resource", limits)
    allow_open_files(100, path=tmp_path)
    assert limits.now == (expected, hard)


@pytest.mark.parametrize(
    ("limits", "most"),
    [(Limits(64, 99 + SPARE_FILES), 99 + SPARE_FILES), (Limits(64, NONE, True), 64), (Limits(64, 500, True), 500)],
)
def test_what_cannot_be_raised_is_said(
    limits: Limits, most: int, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("kafkalog.storage.open_file_limit.resource", limits)
    with pytest.raises(WriteError, match=rf"{100 + SPARE_FILES} open files, but its limit is {most}:"):
        allow_open_files(100, path=tmp_path)
    assert limits.now[0] == 64


def test_open_files_are_counted(tmp_path: Path) -> None:
    before = count_open_files()
    with (tmp_path / "x").open("w"), (tmp_path / "y").open("w"):
        assert count_open_files() == before + 2
    assert count_open_files() == before
