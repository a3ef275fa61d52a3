"""The command line `kafkalog`: parses arguments, runs one command, and returns an exit code (`kafkalog.cli.exits`).

Data goes to stdout; progress, notes, damage and errors go to stderr. Each command has a module, in `reading`,
`system_topics`, `writing` or `repairing`. The commands import NumPy and Arrow when they run, so that help is quick.

    `app`             parses the arguments and runs the command
    `commands`        the commands, in the order of the help, and their modules
    `parser`          short and long help, errors with suggestions, shell completion
    `options`         options of several commands, and the parsing of values
    `scan_options`    options of commands that scan records, and settings of a topic
    `console`         stdout, stderr, the progress bar; `--report`: the findings as a file
    `json_schemas`    the JSON Schemas of the output with `--json`
    `exits`           exit codes
    `text`            bytes, sizes, times and tables as text
    `terminal`        what fits the width of a terminal; colours
"""

from __future__ import annotations

from kafkalog.cli.app import main

__all__ = ["main"]
