"""Writes the pages that are made of code: one for each command, from its parser, and for each public object.

They go to `docs/generated`, which is not kept. It also turns literals such as ``kafkalog.scan`` and ``kafkalog ls`` on
other pages into links to them.
"""

from __future__ import annotations

import argparse
import inspect
import json
import re
import shutil
import sys
from collections.abc import Iterator
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

import kafkalog
import kafkalog.errors
import kafkalog.spark
from kafkalog.cli.app import build_parser
from kafkalog.cli.json_schemas import OUTPUTS, json_schema

GENERATED = Path(__file__).parent / "generated"
SPARK = ("register", "prepare", "scan", "batches", "verify", "reindex", "export", "losses")
DOCUMENTED = (property, staticmethod, classmethod, cached_property)
GROUPS = ("Functions", "Classes", "Enumerations", "Errors", "Warnings")


def heading(text: str, line: str = "=") -> str:
    return f"{text}\n{line * len(text)}\n"


def indented(text: str, spaces: int = 3) -> str:
    return "\n".join(" " * spaces + line if line else "" for line in text.splitlines())


def literal(text: str) -> str:
    return f".. code-block:: text\n\n{indented(text)}\n"


def escaped(text: str) -> str:
    """Plain text as reStructuredText: what would be markup is not."""
    text = re.sub(r"([\\*`|_<>])", r"\\\1", text)
    return re.sub(r"(?<![\w`-])(--[a-z][a-z-]*)(?!\w)", r"``\1``", text)  # else two hyphens become a dash


# the command line


def subparsers(parser: argparse.ArgumentParser) -> dict[str, tuple[argparse.ArgumentParser, str]]:
    """Commands below a parser: their parsers and summaries."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            summaries = {choice.dest: choice.help or "" for choice in action._choices_actions}
            return {name: (found, summaries[name]) for name, found in action.choices.items()}
    return {}


def paragraphs(text: str) -> Iterator[str]:
    """A description as it is laid out in the help: lines that are indented stay as they are."""
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        lines = block.splitlines()
        plain = [line for line in lines if not line.startswith(" ")]
        if len(plain) == len(lines):
            yield escaped(block) + "\n"
        elif lines[0] in plain and len(plain) == 1 and lines[0].endswith(":"):
            yield escaped(lines[0]) + "\n"
            yield literal("\n".join(line[2:] for line in lines[1:]))
        else:
            yield literal(block)


def option_names(action: argparse.Action, formatter: argparse.HelpFormatter) -> str:
    if not action.option_strings:
        return str(action.metavar or action.dest)
    if action.nargs == 0:
        return ", ".join(action.option_strings)
    value = formatter._format_args(action, formatter._get_default_metavar_for_optional(action))
    return ", ".join(f"{name} {value}" for name in action.option_strings)


def command_page(name: str, parser: argparse.ArgumentParser, summary: str) -> str:
    formatter = parser._get_formatter()
    usage = parser.format_usage().removeprefix("usage: ")
    out = [
        f".. _cli-{name.replace(' ', '-')}:\n",
        heading(f"kafkalog {name}"),
        escaped(summary[:1].upper() + summary[1:]) + ".\n",
    ]
    out += [literal(re.sub(r"(?m)^       ", "", usage)), *paragraphs(parser.description or "")]
    out.append(f".. program:: kafkalog {name}\n")
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action.help != argparse.SUPPRESS]
        actions = [action for action in actions if not isinstance(action, argparse._SubParsersAction)]
        if not actions:
            continue
        out.append(heading((group.title or "options").capitalize(), "-"))
        for action in actions:
            text = escaped(formatter._expand_help(action)) if action.help else ""
            directive = "option" if action.option_strings else "describe"
            out.append(f".. {directive}:: {option_names(action, formatter)}\n\n{indented(text)}\n")
    epilog = (parser.epilog or "").partition("exit codes:")[0]
    for block in re.split(r"\n\s*\n", epilog.strip("\n")):
        title, _, rest = block.partition("\n")
        if title.endswith(":") and rest:
            out += [heading(title[:-1].capitalize(), "-"), literal(inspect.cleandoc("\n" + rest))]
        elif block.strip():
            out += list(paragraphs(block))
    if name in OUTPUTS:
        schema = indented(json.dumps(json_schema(name), indent=1))
        out += [
            heading("JSON output", "-"),
            f"Each object that it prints, as a JSON Schema:\n\n.. code-block:: json\n\n{schema}\n",
        ]
    return "\n".join(out)


def commands(parser: argparse.ArgumentParser, before: str = "") -> Iterator[tuple[str, str, str]]:
    """Name, summary and page of each command and the commands below it."""
    for name, (found, summary) in subparsers(parser).items():
        yield before + name, summary, command_page(before + name, found, summary)
        yield from commands(found, f"{before}{name} ")


def write_commands(folder: Path) -> None:
    parser = build_parser()
    rows, pages = [], []
    for name, summary, page in commands(parser):
        file = name.replace(" ", "-")
        (folder / f"{file}.rst").write_text(page)
        rows.append(f":ref:`kafkalog {name} <cli-{file}>`\n{indented(escaped(summary))}")
        pages.append(f"{name} <{file}>")
    (folder / "index.rst").write_text(
        "\n".join(
            [
                ".. _cli:\n",
                heading("Command line"),
                "Every command takes several paths, and ``--help`` prints what stands here.\n",
                *rows,
                "",
                "All commands have the same :doc:`exit codes </errors>`.\n",
                ".. toctree::\n   :hidden:\n",
                *(f"   {page}" for page in pages),
                "",
            ]
        )
    )


# the public objects


def group_of(value: Any) -> str:
    if not isinstance(value, type):
        return "Functions"
    if issubclass(value, Warning):
        return "Warnings"
    if issubclass(value, BaseException):
        return "Errors"
    return "Enumerations" if issubclass(value, Enum) else "Classes"


def fields(cls: type) -> dict[str, str]:
    """Names and types of the fields that a class declares, those of its bases first."""
    declared = (inspect.get_annotations(base) for base in reversed(cls.__mro__))
    of = {name: str(kind) for each in declared for name, kind in each.items() if not name.startswith("_")}
    return {name: kind for name, kind in of.items() if not kind.startswith("ClassVar")}


def object_page(module: str, name: str, value: Any) -> str:
    path = f"{module}.{name}"
    out = [heading(path), f".. currentmodule:: {module}\n"]
    if not isinstance(value, type):
        return "\n".join([*out, f".. autofunction:: {name}\n"])
    out.append(f".. autoclass:: {name}")
    if issubclass(value, Enum):
        return "\n".join([*out, "   :members:\n   :undoc-members:\n   :member-order: bysource\n"])
    if not issubclass(value, BaseException):
        members = [
            member
            for member, attribute in inspect.getmembers_static(value)
            if not member.startswith("_") and (inspect.isfunction(attribute) or isinstance(attribute, DOCUMENTED))
        ]
        members += fields(value)
        if members:
            out.append("   :members: " + ", ".join(sorted(set(members))))
            out += ["   :undoc-members:"] * bool(fields(value))
            out.append("   :inherited-members:")
    return "\n".join([*out, "   :show-inheritance:\n" if issubclass(value, BaseException) else ""])


def write_objects(folder: Path) -> None:
    public = {name: getattr(kafkalog, name) for name in kafkalog.__all__}
    public |= {"errors." + n: v for n, v in vars(kafkalog.errors).items() if n.endswith(("Error", "Warning"))}
    seen: set[int] = set()
    groups: dict[str, list[tuple[str, str]]] = {group: [] for group in GROUPS}
    for name, value in public.items():
        if id(value) in seen or getattr(value, "__module__", "").split(".")[0] != "kafkalog":
            continue
        seen.add(id(value))
        module, _, short = f"kafkalog.{name}".rpartition(".")
        groups[group_of(value)].append((module, short))
    groups["Spark"] = [("kafkalog.spark", name) for name in SPARK]
    out = [".. _api:\n", heading("Python"), PYTHON]
    pages = []
    for group, names in groups.items():
        out += [heading(group, "-"), ".. autosummary::\n"]
        for module, name in sorted(names, key=lambda pair: pair[1].lower()):
            value = getattr(__import__(module, fromlist=[name]), name)
            (folder / f"{module}.{name}.rst").write_text(object_page(module, name, value))
            out.append(f"   ~{module}.{name}")
            pages.append(f"   {name if module == 'kafkalog' else f'{module}.{name}'} <{module}.{name}>")
        out.append("")
    for module, title in (
        ("codec", "Record batches in memory"),
        ("functions", "Functions for where= and extract="),
        ("types", "Types of the parts of results"),
        ("format", "Kafka's numbers and names"),
    ):
        pages.append(f"   kafkalog.{module} <{module}>")
        (folder / f"{module}.rst").write_text(
            f"{heading('kafkalog.' + module)}\n{title}.\n\n"
            f".. automodule:: kafkalog.{module}\n   :members:\n   :exclude-members: {', '.join(public)}\n"
        )
    out += [heading("Modules", "-"), MODULES, ".. toctree::\n   :hidden:\n", *pages, ""]
    (folder / "index.rst").write_text("\n".join(out))


PYTHON = """\
These names are public, and only these: what ``kafkalog`` itself exports, and what stands in ``kafkalog.codec``,
``kafkalog.errors``, ``kafkalog.functions``, ``kafkalog.format``, ``kafkalog.types`` and ``kafkalog.spark``.
Other modules may change with any release.
"""

MODULES = """\
:doc:`codec`
   Record batches in memory, for clients.
:doc:`functions`
   What functions that are compiled into a scan may call.
:doc:`types`
   Types of the parts of results, for annotations.
:doc:`format`
   Kafka's numbers, names and dtypes.
"""


# links


class LinkLiterals(SphinxPostTransform):
    """``kafkalog.scan`` and ``kafkalog ls`` in the text of a page link to their pages."""

    default_priority = 9  # before references are resolved

    def run(self, **kwargs: Any) -> None:
        names = set(kafkalog.__all__) | {f"spark.{name}" for name in SPARK}
        within = self.env.docname.startswith("generated/")
        parsers = {name for name, _, _ in commands(build_parser())}
        for node in list(self.document.findall(nodes.literal)):
            text = node.astext()
            if isinstance(node.parent, (nodes.reference, addnodes.pending_xref, nodes.title)):
                continue
            python = re.fullmatch(r"(?:kafkalog\.)?([A-Za-z_.]+)(\(.*\))?", text)
            if python and not within and not text.startswith("kafkalog."):
                python = None
            command = re.match(r"kafkalog ((?:spark )?[a-z-]+)", text)
            if python and python[1] in names:
                target = {"refdomain": "py", "reftype": "obj", "reftarget": f"kafkalog.{python[1]}"}
                link: nodes.Element = addnodes.pending_xref("", refdoc=self.env.docname, refexplicit=True, **target)
            elif command and command[1] in parsers:
                page = f"generated/cli/{command[1].replace(' ', '-')}"
                link = nodes.reference("", "", internal=True)
                link["refuri"] = self.app.builder.get_relative_uri(self.env.docname, page)
            else:
                continue
            node.replace_self(link)
            link += node


COLON = "\ue000"


def keep_colon(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Napoleon takes the words of a property before a colon for its type; ours are sentences."""
    if what in ("property", "attribute", "data") and lines:
        lines[0] = lines[0].replace(":", COLON)


def restore_colon(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    lines[:] = [line.replace(COLON, ":") for line in lines]


def begin_with_type(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """The text beside a field begins with its type; of a field without a text, it is the text."""
    module, _, owner = name.rpartition(".")[0].rpartition(".")
    if what == "attribute" and (kind := fields(getattr(sys.modules[module], owner)).get(name.rpartition(".")[2])):
        words = " ".join(lines).strip()
        plain = not words or words.startswith("Alias for field number")
        lines[:] = [f"``{kind}``" + ("" if plain else f": {words}")]


def write_pages(app: Sphinx) -> None:
    shutil.rmtree(GENERATED, ignore_errors=True)
    for part, write in (("cli", write_commands), ("api", write_objects)):
        (GENERATED / part).mkdir(parents=True)
        write(GENERATED / part)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", lambda app, config: write_pages(app))
    app.connect("autodoc-process-docstring", keep_colon, priority=400)
    app.connect("autodoc-process-docstring", restore_colon, priority=600)
    app.connect("autodoc-process-docstring", begin_with_type, priority=700)
    app.add_post_transform(LinkLiterals)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
