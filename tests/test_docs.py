"""The README and the pages of `docs` are true: their examples run and print what is shown, and links lead somewhere.

Each page runs in order in an empty directory of its own, with `tests/golden` where a reader of a clone has it. Blocks
named `pycon` are Python sessions, `console` are commands with their output, `; echo $?` included. Blocks named `sh` are
commands that need what a reader has, so they are only parsed, and `python` blocks are only compiled.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import functools
import glob
import importlib
import io
import itertools
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest
from needs import Examples

import kafkalog
import kafkalog.spark
from kafkalog.cli import main
from kafkalog.cli.app import build_parser
from kafkalog.cli.exits import exit_of_finding
from kafkalog.errors import Finding
from kafkalog.parsing import MAX_READERS
from kafkalog.protocol.releases import DEFAULT_RELEASE, span

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE | doctest.IGNORE_EXCEPTION_DETAIL
PAGES = sorted([*ROOT.glob("*.md"), *(page for page in DOCS.rglob("*.md") if "generated" not in page.parts)])
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    """A fenced block of a page."""

    language: str
    text: str
    line: int


def blocks(page):
    text = page.read_text()
    return [Block(found[1], found[2], text.count("\n", 0, found.start()) + 1) for found in FENCE.finditer(text)]


def named(pages):
    return [pytest.param(page, id=str(page.relative_to(ROOT))) for page in pages]


WITH_EXAMPLES = [page for page in PAGES if {block.language for block in blocks(page)} & {"pycon", "console"}]


def run_session(text, names, where, line):
    test = doctest.DocTestParser().get_doctest(text, names, where, where, line)
    runner = Examples(optionflags=FLAGS)
    report = []
    runner.run(test, out=report.append, clear_globs=False)
    names.update(test.globs)
    assert runner.failures == 0, "".join(report)


def commands(text):
    """The commands of a block and what each is shown to print."""
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        yield command, expected


def run_command(command, expected):
    command, with_code, _ = command.partition("; echo $?")
    program, *arguments = shlex.split(command)
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    if program == "kafkalog":
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(arguments)
    else:
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
        code = done.returncode
        out.write(done.stdout)
        err.write(done.stderr)
    printed, said = (stream.buffer.getvalue().decode() for stream in (out, err))
    assert "output_exists" not in said, f"{command}: {said}"
    if with_code:
        printed += f"{code}\n"
    else:
        assert code == 0, f"{command}: {code}: {said}"
    shown = [printed, said + printed, printed + said]  # a terminal shows both, in an order that may change
    check = doctest.OutputChecker().check_output
    is_shown = expected == "...\n" or any(check(expected, text, doctest.ELLIPSIS) for text in shown)
    assert is_shown, f"{command}\n{shown[1]}"


def run_page(page):
    names = {}
    for block in blocks(page):
        if block.language == "pycon":
            run_session(block.text, names, page.name, block.line)
        elif block.language == "console":
            for command, expected in commands(block.text):
                run_command(command, expected)


@pytest.mark.parametrize("page", named(WITH_EXAMPLES))
def test_the_examples_of_a_page_print_what_is_shown(page, tmp_path, monkeypatch):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "golden").symlink_to(ROOT / "tests" / "golden")
    monkeypatch.chdir(tmp_path)
    run_page(page)


def run_ten_lines():
    """The block of README's that runs in a clone."""
    text = (ROOT / "README.md").read_text().partition("## Ten lines of shell")[2]
    lines = [line for block in [FENCE.search(text)] if block for line in block[2].splitlines()]
    assert len(lines) == 10
    for line in lines:
        _, *arguments = shlex.split(line, comments=True)
        arguments = [path for one in arguments for path in (sorted(glob.glob(one)) if "/*" in one else [one])]
        with contextlib.redirect_stdout(io.TextIOWrapper(io.BytesIO(), encoding="utf-8")):
            assert main(arguments) == 0, line


@pytest.mark.slow
@pytest.mark.parametrize("step", [1, -1], ids=["as they are read", "backwards"])
def test_all_pages_run_in_one_clone_one_after_the_other(tmp_path, monkeypatch, step):
    """Nobody has to remove what another page wrote, and git shows none of it.

    Pages without examples are left out: their `sh` and `python` blocks name what a reader has, as /var/lib/kafka or a
    bucket, so that nothing of them runs here.
    """
    shutil.copytree(ROOT / "tests" / "golden", tmp_path / "tests" / "golden")
    monkeypatch.chdir(tmp_path)
    golden = sorted(Path("tests").rglob("*"))
    first = [ROOT / "README.md", DOCS / "five-minutes.md", DOCS / "tutorial.md"]
    for page in [*first, *(page for page in WITH_EXAMPLES if page not in first)][::step]:
        run_page(page)
        if page in first[:1]:
            run_ten_lines()
    assert sorted(Path("tests").rglob("*")) == golden
    ignored = {line.strip("/") for line in (ROOT / ".gitignore").read_text().splitlines()}
    assert {path.name for path in tmp_path.iterdir()} - ignored == {"tests"}


whole_parser = functools.cache(build_parser)


@pytest.mark.parametrize("page", named(PAGES))
def test_commands_and_code_that_are_only_shown_are_well_formed(page):
    parser = whole_parser()
    for block in blocks(page):
        if block.language == "python":
            for node in ast.walk(ast.parse(block.text)):
                if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "kafkalog":
                    assert hasattr(kafkalog, node.attr), f"line {block.line}: kafkalog.{node.attr}"
        elif block.language == "sh":
            for line in re.sub(r"\\\n", " ", block.text).splitlines():
                for part in re.split(r"\s[|;]\s", line.partition("  #")[0]):
                    program, *arguments = shlex.split(part, comments=True) or [""]
                    if program == "kafkalog":
                        own = itertools.takewhile(lambda word: word != ">", arguments)
                        parser.parse_args([*own])  # exits if it is not one
        else:
            known = {"pycon", "console", "text", "toml", "json", "{toctree}", "{include}", "{eval-rst}", ""}
            assert block.language in known, f"line {block.line}: {block.language}"


@functools.cache
def anchors(page):
    text = FENCE.sub("", page.read_text())
    titles = re.findall(r"^#+ +(.*)$", text, re.MULTILINE)
    slugs = {re.sub(r"[^\w\- ]", "", title.lower()).strip().replace(" ", "-") for title in titles}
    return slugs | set(re.findall(r"^\(([\w-]+)\)=$", text, re.MULTILINE))


@pytest.mark.parametrize("page", named(PAGES))
def test_links_lead_somewhere(page):
    text = FENCE.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", text)):
        path, _, anchor = target.partition("#")
        if target.startswith(("https://", "http://", "mailto:")) or path.startswith("generated/"):
            continue  # nothing is fetched; generated pages are checked by the build of the pages
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), target
        assert file.is_relative_to(ROOT), target
        assert not anchor or anchor in anchors(file), target


def test_the_readme_leads_to_every_guide():
    readme = (ROOT / "README.md").read_text()
    assert not [page.name for page in (DOCS / "guides").glob("*.md") if f"(docs/guides/{page.name})" not in readme]


def test_the_readme_is_short_and_its_two_commands_are_marked_for_ci():
    readme = (ROOT / "README.md").read_text()
    assert readme.count("\n") < 160
    for mark in ("first command", "test command"):
        assert re.search(rf"<!-- {mark} -->\n```sh\n[^\n]+\n```", readme)


def test_the_picture_is_what_the_commands_print(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    terminal = importlib.import_module("terminal")
    drawn = terminal.drawn(terminal.recorded())
    assert (DOCS / "terminal.svg").read_text() == drawn, "run python docs/terminal.py"


def test_the_picture_and_the_table_have_the_figures_of_the_last_results(monkeypatch):
    monkeypatch.syspath_prepend(DOCS)
    speed = importlib.import_module("speed")
    assert (DOCS / "_static" / "speed.svg").read_text() == speed.drawn(), "run python docs/speed.py"
    assert (DOCS / "_static" / "to_a_table.svg").read_text() == speed.ways_drawn(), "run python docs/speed.py"
    assert speed.markdown() in (DOCS / "benchmarks.md").read_text(), "run python docs/speed.py"


def test_the_shell_commands_of_the_readme_run_in_a_clone(tmp_path, monkeypatch):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "golden").symlink_to(ROOT / "tests" / "golden")
    monkeypatch.chdir(tmp_path)
    run_ten_lines()


def test_every_page_is_reached_from_the_front_page():
    seen, left = set(), [DOCS / "index.md"]
    while left:
        page = left.pop()
        seen.add(page)
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL):
            for line in tree.splitlines():
                name = (re.search(r"<(.*)>", line) or [line, line])[1].strip()
                left += [found for found in page.parent.glob(f"{name}.md") if found not in seen] if name else []
    assert seen >= {page for page in PAGES if page.is_relative_to(DOCS)}


def test_releases_and_threads_in_texts_are_those_of_the_code():
    """Help of boot and preflight is made from the code; docstrings, pages and `_SHARED` repeat it."""
    package = Path(kafkalog.__file__).parent
    modules = [*package.rglob("*.py")]
    spans = {text for page in [*PAGES, *modules] for text in re.findall(r"\b3\.9 to 4\.\d+", page.read_text())}
    assert spans == {span(), span(DEFAULT_RELEASE)}
    help = (package / "cli" / "options.py").read_text()
    assert re.findall(r"one per CPU, up to (\d+)", help) == [str(MAX_READERS)]


def test_the_exit_code_of_every_reason_is_in_the_page():
    page = (DOCS / "errors.md").read_text()
    said = {int(code): cell for code, cell in re.findall(r"^\| (\d+) \|[^|]*\| ([^|]*)\|$", page, re.MULTILINE)}
    for code in (3, 4, 5, 7):
        named = [*re.findall("`([a-z_]+[a-z])`", said[code]), *re.findall("begin with `(too_many_)`", said[code])]
        of_code = [one for one in kafkalog.Reason if exit_of_finding(Finding(one, "")) == code]
        assert [one for one in kafkalog.Reason if one.startswith(tuple(named))] == of_code


def test_every_reason_is_explained():
    text = (DOCS / "errors.md").read_text().partition("## Reasons\n")[2]
    explained = re.findall(r"^\| `([a-z0-9_]+)` \|", text, re.MULTILINE)
    assert sorted(explained) == sorted(reason.value for reason in kafkalog.Reason)
