"""``--completion``: the scripts that complete commands, options and values."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from kafkalog.cli.app import main
from kafkalog.cli.parser import SHELLS


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    pytest.importorskip("shtab")
    assert main(["--completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_knows_all_commands_and_options(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    for name in ("index-stats", "salvage", "on-corruption", "read_committed", "parquet"):
        assert name in text


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ver"], ["verify"]),
        (["verify", "--de"], ["--deep"]),
        (["export", "log", "--format", "cs"], ["csv"]),
        (["verify", "or"], ["orders-0"]),
    ],
)
def test_bash_completes(
    words: list[str], expected: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    (tmp_path / "script").write_text(script("bash", capsys))
    (tmp_path / "orders-0").mkdir()
    line = f"COMP_WORDS=(kafkalog {' '.join(words)}); COMP_CWORD={len(words)}"
    run = subprocess.run(
        [bash, "-c", f'. ./script; {line}; _shtab_kafkalog; echo "${{COMPREPLY[@]}}"'],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stdout.split() == expected
