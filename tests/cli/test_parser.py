"""The short help and the long one."""

from __future__ import annotations

import pytest

from kafkalog.cli.app import main
from kafkalog.cli.commands import LOCAL, SUMMARIES


def _help(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    assert main(arguments) == 0
    return capsys.readouterr().out.splitlines()


def test_the_short_help_of_all_has_a_line_for_each_command_and_three_examples(
    capsys: pytest.CaptureFixture[str],
) -> None:
    lines = _help(capsys, "-h")
    start = lines.index("commands:") + 1
    assert [line.split()[0] for line in lines[start : start + len(SUMMARIES)]] == list(SUMMARIES)
    assert sum(line.startswith("  kafkalog ") for line in lines) == 3
    assert not any(line.startswith("exit codes") for line in lines)
    assert max(map(len, lines)) <= 120


@pytest.mark.parametrize("command", SUMMARIES)
def test_the_short_help_of_a_command_is_short(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    short, full = _help(capsys, command, "-h"), _help(capsys, command, "--help")
    assert len(short) < 40
    assert len(short) < len(full) or command == "tiered"
    assert "--help" in short[-1] or command == "tiered"


@pytest.mark.parametrize("command", [name for name in SUMMARIES if name != "tiered"])
def test_only_commands_that_take_urls_have_options_for_them(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = "\n".join(_help(capsys, command, "--help"))
    assert ("--storage-option" in text) == (command not in LOCAL)
    assert "--tiered" not in text or command not in LOCAL
