"""Single durable steps: a rename that must not replace anything."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from kafkalog.storage import atomic as file_steps


def test_a_name_that_is_taken_is_not_renamed_to_where_the_file_system_cannot_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot(*_: object) -> None:
        raise OSError(errno.EINVAL, "no flags here")

    monkeypatch.setattr(file_steps, "_renameat2", cannot)
    for name in ("new", "taken"):
        (tmp_path / name).write_text(name)
    with pytest.raises(FileExistsError):
        file_steps.rename_new(tmp_path / "new", tmp_path / "taken")
    file_steps.rename_new(tmp_path / "new", tmp_path / "free")
    assert [(tmp_path / name).read_text() for name in ("taken", "free")] == ["taken", "new"]
