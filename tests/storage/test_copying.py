"""Copies of files: into a staged output, and aside before they change."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from kafkalog.errors import OutputExistsError, WriteError
from kafkalog.storage import copying
from kafkalog.storage.copying import Backup, copy_file
from kafkalog.storage.staging import staged_directory


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "data" / "x.log"
    path.parent.mkdir()
    path.write_bytes(bytes(range(250)) * 40)
    os.utime(path, ns=(10**18, 123_456 * 10**6))
    return path


@pytest.mark.parametrize(("size", "window"), [(None, 2**23), (None, 999), (2500, 999), (0, 999), (20_000, 999)])
def test_a_copy_has_the_bytes_and_the_time(
    path: Path, tmp_path: Path, size: int | None, window: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "_WINDOW_BYTES", window)
    done: list[int] = []
    with staged_directory(tmp_path / "out") as staged:
        copy_file(path, staged, "y.log", size=size, progress=done.append)
    copy = tmp_path / "out" / "y.log"
    expected = path.read_bytes()[:size]
    assert copy.read_bytes() == expected
    assert sum(done) == len(expected)
    assert copy.stat().st_mtime_ns == 123_456 * 10**6


def test_what_is_kept_is_a_link(path: Path, tmp_path: Path) -> None:
    backup = Backup(tmp_path / "old")
    backup.keep(path, "t-0/x.log")
    backup.sync()
    assert os.path.samefile(path, tmp_path / "old" / "t-0" / "x.log")
    assert backup.n_files == 1


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_where_nothing_can_be_linked_it_is_a_copy(
    path: Path, tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(*_: object) -> None:
        raise OSError(code, os.strerror(code))

    backup = Backup(tmp_path / "old")
    monkeypatch.setattr(os, "link", cannot)
    backup.keep(path, "x.log")
    backup.sync()
    kept = tmp_path / "old" / "x.log"
    assert not os.path.samefile(path, kept)
    assert (kept.read_bytes(), kept.stat().st_mtime_ns) == (path.read_bytes(), path.stat().st_mtime_ns)


def test_another_error_is_said(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(*_: object) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    backup = Backup(tmp_path / "old")
    monkeypatch.setattr(os, "link", cannot)
    with pytest.raises(WriteError, match="Input/output error"):
        backup.keep(path, "x.log")
    assert backup.n_files == 0


def test_a_backup_never_replaces_another(path: Path, tmp_path: Path) -> None:
    (tmp_path / "old").mkdir()
    Backup(tmp_path / "old").keep(path, "x.log")
    for taken in (tmp_path / "old", path):
        with pytest.raises(OutputExistsError):
            Backup(taken)
