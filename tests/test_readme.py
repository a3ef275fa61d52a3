"""The README's examples give what the README says."""

from __future__ import annotations

import doctest
import re
import shlex
from pathlib import Path

import pytest

from kafkalog.cli import main

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_python_examples_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    source = "\n".join(blocks("pycon"))
    test = doctest.DocTestParser().get_doctest(source, {}, "README.md", "README.md", 0)
    assert len(test.examples) > 25
    report: list[str] = []
    runner = doctest.DocTestRunner(optionflags=FLAGS)
    runner.run(test, out=report.append)
    assert runner.failures == 0, "".join(report)


@pytest.mark.parametrize("block", blocks("console"))
def test_the_command_lines_print_what_is_shown(
    block: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    command, _, expected = block.partition("\n")
    program, *arguments = shlex.split(command.removeprefix("$ "))
    assert program == "kafkalog"
    assert main(arguments) == 0
    printed = capsys.readouterr().out
    assert doctest.OutputChecker().check_output(expected, printed, doctest.ELLIPSIS), printed


def test_the_two_commands_are_marked_for_ci() -> None:
    for mark in ("first command", "test command"):
        assert re.search(rf"<!-- {mark} -->\n```sh\n[^\n]+\n```", README)
