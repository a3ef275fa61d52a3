"""The command line: `kafkalog ls`, `cat`, `batches`, `export`.

stdout is data, stderr is the rest (progress, notes, damage, errors), and the exit code says how it went
(`kafkalog.cli.exits`). A module a command; NumPy and Arrow are imported by the commands, so that help is quick.
"""

from __future__ import annotations

from kafkalog.cli.app import main

__all__ = ["main"]
