"""`kafkalog sample`: writes a small log dir to try the commands on."""

from __future__ import annotations

import argparse
import shlex
from typing import Final

from kafkalog.cli.console import Console
from kafkalog.cli.options import Command
from kafkalog.cli.scan_options import usage_errors

COMMAND: Final = Command(
    description="""\
Write a small log dir to try the commands on. It needs no broker and takes a second.

  orders      three partitions of JSON over two days; the last one ends in a torn batch, as after a crash
  customers   several records per key
  payments    committed and aborted transactions, and one that is open
  groups      billing and reports, with committed offsets and lag

A crash leaves DIR absent or complete.""",
    examples="""\
  kafkalog sample /tmp/sample
  kafkalog sample /tmp/sample --now 2026-11-21T08:00Z   # the same records each time""",
    options="""
  --now TIME    the time of the last records (default: now)
""",
    paths=("DIR", "new directory", "DIR is a new directory, or an empty one."),
    n_paths=1,
    writes=True,
)
_NEXT: Final = (
    ("ls {}", "a line per partition"),
    ("cat {} -t orders -n 5", "the first records of a topic"),
    ("verify {}", "is anything damaged?"),
    ("sql 'select value.fruit, count(*) from orders group by all' {}", "a query"),
    ("groups {}", "lag of consumer groups"),
    ("report {} -o report.html", "all of it on a page"),
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Write the log dir, and print what to try."""
    from kafkalog.booting.sample import sample

    path = args.paths[0]
    with usage_errors():
        sample(path, now=args.now)
    console.note(f"written to {path}; try these:")
    if not console.quiet:
        commands = [(f"kafkalog {command.format(shlex.quote(path))}", what) for command, what in _NEXT]
        width = max(len(command) for command, _ in commands)
        console.lines(f"  {command:<{width}}  # {what}" for command, what in commands)
