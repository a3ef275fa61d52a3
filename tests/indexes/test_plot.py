"""Pictures of indexes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from effort import thinned

import kafkalog


def test_without_matplotlib_the_error_names_what_to_install(
    log_dir: Path, run_lines: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    code, _, err = run_lines("index-stats", log_dir, "--plot", tmp_path / "x.svg")
    assert code == 2
    assert "pip install matplotlib" in err
    from kafkalog.indexes.plot import draw

    statistics = kafkalog.Partition(log_dir / "p-txn-0").index_statistics(what_if=[4096])
    with pytest.raises(ModuleNotFoundError, match="pip install matplotlib"):
        draw(statistics, "p-txn-0")


def needs_matplotlib() -> None:
    pytest.importorskip("matplotlib", reason="pictures are NOT tested: Matplotlib is missing (pip install matplotlib)")


@pytest.mark.parametrize(("suffix", "start"), thinned([("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")], 3))
def test_a_picture_is_drawn(suffix: str, start: bytes, log_dir: Path, run_lines: Any, tmp_path: Path) -> None:
    needs_matplotlib()
    file = tmp_path / f"x.{suffix}"
    code, _, err = run_lines("index-stats", log_dir, "--plot", file)
    assert (code, err) == (0, "")
    picture = file.read_bytes()
    assert picture.startswith(start)
    assert len(picture) > 5000
    code, _, err = run_lines("index-stats", log_dir, "--plot", file)
    assert code == 6
    assert "--overwrite" in err
    assert run_lines("index-stats", log_dir, "--plot", file, "--overwrite")[0] == 0
    assert file.read_bytes() == picture  # the same log, the same picture


def test_a_picture_is_not_put_into_a_log_dir(log_dir_copy: Path, run_lines: Any) -> None:
    needs_matplotlib()
    code, _, err = run_lines("index-stats", log_dir_copy, "--plot", log_dir_copy / "x.svg")
    assert code == 6
    assert "unsafe_path" in err
    assert not (log_dir_copy / "x.svg").exists()
