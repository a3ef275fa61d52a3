"""The short help, the long one, and completion."""

import argparse
import contextlib
import re
import shutil
import subprocess
from dataclasses import fields

import pytest

import kafkalog
from kafkalog.cli.app import build_parser, main
from kafkalog.cli.commands import JOBS, LOCAL, SUMMARIES
from kafkalog.cli.other_options import _commands, alternatives
from kafkalog.cli.parser import SHELLS, USUAL, Misuse
from kafkalog.cli.typed import OPERATIONS
from kafkalog.errors import Limits
from kafkalog.records.partitioner import PARTITIONERS
from kafkalog.values import encoding
from kafkalog.values.mixed_fields import TEXT_OPERATIONS
from kafkalog.values.options import FORMATS


def _help(capsys, *arguments):
    assert main(arguments) == 0
    return capsys.readouterr().out.splitlines()


def test_the_short_help_of_all_has_a_line_for_each_command_and_three_examples(capsys):
    lines = _help(capsys, "-h")
    start = lines.index("commands:") + 1
    jobs = {names[0]: job for job, names in JOBS.items()}
    for name, line in zip(SUMMARIES, lines[start:], strict=False):
        assert line[:28].split() == [*jobs.get(name, "").split(), name]
    assert sum(line.startswith("  kafkalog ") for line in lines) == 3
    assert not any(line.startswith("exit codes") for line in lines)
    assert max(map(len, lines)) <= 80
    assert len(lines) <= 50


@pytest.mark.parametrize("command", SUMMARIES)
def test_the_short_help_of_a_command_is_short(command, capsys):
    short, full = _help(capsys, command, "-h"), _help(capsys, command, "--help")
    assert len(short) < 40
    assert len(short) < len(full) or command == "tiered"
    assert "--help" in short[-1] or command == "tiered"


@pytest.mark.parametrize("command", [name for name in SUMMARIES if name != "tiered"])
def test_only_commands_that_take_urls_have_options_for_them(command, capsys):
    text = "\n".join(_help(capsys, command, "--help"))
    # boot reads log dirs of disks, and restores what they have in remote storage
    assert ("--storage-option" in text) == (command not in LOCAL or command == "boot")
    assert "--tiered" not in text or command not in LOCAL or command == "boot"


def test_a_command_line_makes_only_the_parser_that_it_names():
    for argv, made in ((["ls", "data"], ["ls"]), (["--help"], []), (None, [*SUMMARIES])):
        parsers = build_parser(argv)._subparsers._group_actions[0].choices
        assert [*parsers] == [*SUMMARIES]
        assert [name for name, parser in parsers.items() if parser.description] == made


UNKNOWN = (
    "--frob",
    "--time-zone-x",
    "--offsets-only",
    "--key-count",
    "--raw-bytes",
    "--in-memory",
    "--deep-scan",
    "-Z",
)


@pytest.mark.parametrize("command", ["tiered verify", *SUMMARIES])
def test_an_unknown_option_of_any_command_leads_to_options_that_are_there(command, capsys):
    parser = build_parser()
    for word in command.split():
        parser = parser._subparsers._group_actions[0].choices[word]
    for option in UNKNOWN if parser._subparsers is None else ():
        found = alternatives(option, parser, USUAL, build_parser)
        own = {text for action in parser._actions for text in action.option_strings}
        named = re.findall(r"(?<![\w-])--[a-z][a-z-]*", " ".join([found.text.rpartition("there")[2], *found.lines]))
        assert set(named) <= {*own, "--help"}
        assert named
        assert max(map(len, found.lines)) <= 80
        assert len(found.lines) <= 6


def test_no_option_is_completed_to_one_that_may_mean_something_else(monkeypatch):
    """Only the last word of an option is completed, and only if no other command has an option of that name."""
    monkeypatch.setattr("kafkalog.cli.other_options.alternatives", lambda *_: ("", ()))
    parsers = [*_commands(build_parser())]
    every = {text for parser in parsers for text in parser._option_string_actions if text.startswith("--")}
    wrong = []
    for parser in parsers:
        known = [text for text in parser._option_string_actions if text.startswith("--")]
        for word in {text[:end] for text in known for end in range(3, len(text))}.difference(known):
            meant = parser._longer(word, known, ())
            if isinstance(meant, str) and (meant.count("-") != word.count("-") or word in every):
                wrong.append((parser.prog, word, meant))
    assert not wrong


DATES = ("5", "now", "-1h", "2026-11-28")
"""Words that directories of backups have as names: they may be paths."""
NO_OUTPUTS = ("key == a", "value.total", "offset", "json", "csv", *DATES, "all", "orders-0")
"""Words that are typed among the paths, and that are no names of what is written."""


def test_no_condition_time_format_or_partition_is_taken_for_an_output(tmp_path, monkeypatch, capsys):
    (tmp_path / "log" / "orders-0").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    wrong = []
    for parser in _commands(build_parser()):
        command = parser.prog.split()[1:]
        of_partition = ["--to-offset", "5"] if command == ["truncate"] else []
        for word in NO_OUTPUTS if "--output" in parser._option_string_actions else ():
            try:
                parser.parse_args(["log", word, *of_partition])
                wrong += [] if word in DATES else [[*command, word]]
            except Misuse as error:
                line = [] if error.advice is None else [*error.advice.line]
                wrong += [[*command, word, error.message]] if "-o" in line and word in line[line.index("-o") :] else []
                wrong += [] if word in error.message or "'" in error.message else [[*command, word, error.message]]
    # a query comes first, and a file of records has other names
    assert [words for words in wrong if words[0] not in ("sql", "load", "undelete")] == []


@pytest.mark.parametrize("command", SUMMARIES)
def test_paths_may_be_named_as_commands(command, tmp_path, monkeypatch, capsys):
    """The lines that `kafkalog sample sample` prints have such a path."""
    monkeypatch.chdir(tmp_path)
    for name in ("sample", "groups"):
        (tmp_path / name).mkdir()
    for words in (["sample", "groups"], ["select 1", "sample"], ["sample", "groups", "--dry-run"]):
        with contextlib.suppress(SystemExit):
            build_parser([command, *words]).parse_args([command, *words])
    assert "no file or directory sample" not in capsys.readouterr().err


def script(shell, capsys):
    pytest.importorskip("shtab")
    assert main(["--completion", shell]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("shell", SHELLS)
def test_a_script_knows_all_commands_and_options(shell, capsys):
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
def test_bash_completes(words, expected, tmp_path, capsys):
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


@pytest.mark.parametrize(
    "command",
    [
        "recover",
        "truncate",
        "trim",
        "compact",
        "reindex",
        "boot",
        "salvage",
        "merge",
        "convert",
        "export",
        "load",
        "sample",
    ],
)
def test_the_help_of_each_command_that_writes_says_what_a_crash_leaves(command, capsys):
    assert "crash" in "\n".join(_help(capsys, command, "--help"))


def _option(command, name):
    """An option in the parser of a command, which spells out its choices so that help needs no import."""
    [commands] = [one for one in build_parser([command])._actions if isinstance(one, argparse._SubParsersAction)]
    return commands.choices[command]._option_string_actions[name]


def test_choices_that_help_spells_out_are_those_of_the_code():
    assert {*TEXT_OPERATIONS} <= {*OPERATIONS}
    assert set(_option("load", "--partitioner").choices) == {*PARTITIONERS}
    for described in (kafkalog.write_table, kafkalog.codec.partitions):
        assert all(re.search(rf"\b{name}\b", str(described.__doc__)) for name in PARTITIONERS), described
    for name in ("--value-format", "--key-format"):
        assert set(_option("cat", name).choices) == {*FORMATS}
    assert set(_option("load", "--value-format").choices) == {*encoding.FORMATS}
    named = re.findall(r"max_\w+", _option("cat", "--limits").help)
    assert sorted(named) == sorted(field.name for field in fields(Limits))
