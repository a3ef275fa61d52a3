"""`kafkalog schemas`: prints the schemas of a registry from its topic."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkalog.cli.console import Console
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import Command, chosen
from kafkalog.cli.system_topics.state_options import AS_OF, or_before, print_history
from kafkalog.cli.terminal import shown_table
from kafkalog.cli.text import iso_seconds
from kafkalog.text import counted

if TYPE_CHECKING:
    from kafkalog.system_topics.schemas import Schema, Schemas

COMMAND: Final = Command(
    description="""\
List the schemas of a Confluent Schema Registry from its topic _schemas: a line per subject and version, with id, type
and references.

--deleted also lists deleted versions that are still in the files. The registry can restore 'soft' ones, but not 'hard'
ones. --text also prints each schema. --output writes schemas, and those that they refer to, to files for the option
--schemas of other commands.""",
    examples="""\
  kafkalog schemas /var/lib/kafka
  kafkalog schemas /backup/kafka --deleted -s 'orders-*'
  kafkalog schemas /backup/kafka/_schemas-0 --text -s orders-value
  kafkalog schemas /backup/kafka -o schemas  # schemas/7.avsc and so on
  kafkalog schemas /backup/kafka --json --end-timestamp 2026-11-21T08:00Z >schemas.jsonl""",
    options="""
  @limits
which schemas:
  -s --subjects S,...    only these subjects: names or globs such as 'orders-*'; repeatable
  --deleted              also list deleted versions that are still in the files
  --topic TOPIC [_schemas]    the registry's topic (default: _schemas)
  @as_of
output:
  --text             also print the text of each schema
  -o --output DIR    write to this new directory: a file per schema (7.avsc, 7.proto, 7.json), and manifest.json with
                     subjects, versions, references and settings
  --json             one object a line, per version, with its text
""",
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Print the schemas."""
    from kafkalog.system_topics.schemas import schemas

    if args.history and args.output is not None:
        raise UsageError("--history and --output exclude each other")
    if args.history:
        return print_history(args, console, args.topic, registry_topic=args.topic)
    found = schemas(args.paths, **chosen(args, "subjects", "deleted", "topic", *AS_OF))
    console.findings(found.findings)
    if not found:
        nothing = "" if args.output is None else "; nothing is written"
        console.note(f"no schemas: the log dirs have no {args.topic}, or no schema matches{or_before(args)}{nothing}")
    elif args.output is not None:
        found.write(args.output)
        referred = len(found.referred())
        more = f", and {referred} that they refer to" if referred else ""
        console.note(f"{counted(len(found), 'version')} of subjects{more}, written to {args.output}")
    lines = _texts(found) if args.text else _table(found) if found and args.output is None else ()
    console.show(found, lines)
    return None


def _texts(found: Schemas) -> Iterator[str]:
    for one in found:
        yield " ".join(_row(one)).rstrip()
        yield from (f"  {line}" for line in one.schema.splitlines())


def _table(found: Schemas) -> Iterator[str]:
    rows = [["SUBJECT", "VERSION", "ID", "TYPE", "REGISTERED", "REFERENCES", ""], *map(_row, found)]
    yield from shown_table(rows, [False, True, True, False, False, False, False])


def _row(one: Schema) -> list[str]:
    references = ",".join(f"{part.name}={part.subject}:{part.version}" for part in one.references)
    deleted = f"deleted ({one.deleted})" if one.deleted else ""
    return [
        one.subject,
        str(one.version),
        str(one.id),
        one.type,
        iso_seconds(one.timestamp),
        references or "-",
        deleted,
    ]
