"""The command line `kafkalog`: parses arguments, runs one command, and returns an exit code (`kafkalog.cli.exits`).

Data goes to stdout; progress, notes, damage and errors go to stderr. Each command has a module, in `reading`,
`internal`, `writing` or `repairing`. The commands import NumPy and Arrow when they run, so that help is quick.
"""

from __future__ import annotations

from kafkalog.cli.app import main

__all__ = ["main"]
