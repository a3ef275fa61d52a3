"""`kafkalog dump`: prints files as Kafka's `DumpLogSegments` does, or as JSON lines."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkalog.cli.console import Console
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import ENCODING_HELP, Command, chosen
from kafkalog.cli.scan_options import usage_errors
from kafkalog.cli.text import escape_controls
from kafkalog.protocol.framing import TOPIC_DECODERS

if TYPE_CHECKING:
    from kafkalog.operations.dumping.dump import Dump

_FILES_HELP: Final = """\
FILE is a .log, .index, .timeindex, .txnindex, .snapshot or (of the metadata log) .checkpoint file. dump compares an
index with the .log file next to it. The command never changes these files."""


_DECODERS: Final = "\n".join(
    f"  --{name}-decoder    decode records of {topic}; implies --print-data-log"
    for name, topic in TOPIC_DECODERS.items()
)

COMMAND: Final = Command(
    description="""\
Print the files of a segment with the lines and options of Kafka's DumpLogSegments (kafka-dump-log.sh), without Java. A
batch is a line:

  baseOffset: 5 lastOffset: 11 count: 7 ... position: 843 CreateTime: 1700000001100 size: 899 ... isvalid: true

With --deep-iteration or --print-data-log, each record is a line that starts with "|". Records of a batch with a wrong
checksum (isvalid: false) are printed as well, if they can be read. Other damage ends the dump with an error, after the
lines of all batches before it. --keep-going continues with the next file.

Like the tool, dump prints two lists to stderr at the end: index entries that do not match the log, and gaps between
offsets. Gaps are normal in a compacted log and in a log that does not start at 0. Some mismatching index entries are
normal in files of older brokers.

Damage also makes the exit code 1. Control characters in keys and values are escaped (\\x1b), except tabs and line ends;
kafkalog.dump in Python returns the tool's exact lines.

With --json, each line is an object with a "kind" (file, batch, record, offset_index_entry, time_index_entry,
aborted_transaction, producer, trailing_bytes, sanity, mismatch). Keys, values and header values are base64 unless
--encoding changes that. With a topic's decoder, keys and values are objects. A record that cannot be decoded keeps its
bytes, and "not_decoded" has the reason.""",
    examples="""\
  kafkalog dump orders-0/00000000000000000000.log
  kafkalog dump --print-data-log orders-0/*.log | grep 'key: k42 '
  kafkalog dump --index-sanity-check orders-0/*.index orders-0/*.timeindex
  kafkalog dump --key-decoder long --print-data-log orders-0/00000000000000000000.log
  kafkalog dump --offsets-decoder __consumer_offsets-7/*.log
  kafkalog dump --json --print-data-log orders-0/*.log | jq 'select(.kind == "record") | .headers'""",
    options=f"""
  --files FILE,...    more files (the option of Kafka's tool)
output:
  --deep-iteration          also print records, without keys and values
  --print-data-log          also print records with keys and values
  --skip-record-metadata    print only keys and values of records
  --key-decoder --key-decoder-class:key_decoder DECODER    decode keys as string (default), integer or long, also by the
                            name of Kafka's class; implies --print-data-log
  --value-decoder --value-decoder-class:value_decoder DECODER    decode values in the same ways
{_DECODERS}
  --dialect VERSION [4.3]    the version of Kafka's tool: 4.3 (default) or 2.8
  --json                    one object a line
  @encoding {ENCODING_HELP}
indexes:
  --index-sanity-check    only check an index as a broker does
  --verify-index-only     print only entries that do not match the log
  --max-message-size BYTES    the largest batch that an index entry may lead to (default: 5M)
reading:
  --max-bytes BYTES    read at most this many bytes of a log
  --keep-going         after an error, continue with the next file
  @limits
""",
    paths=("FILE", "files of segments", _FILES_HELP),
    n_paths="*",
    needs={"encoding": "json; for lines, use --key-decoder and --value-decoder"},
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Print files."""
    from kafkalog.storage.files import size_of

    args.paths += args.files or []
    if not args.paths:
        raise UsageError("expected at least one FILE")
    dump = _dump(args)
    progress: Callable[[int], None] | None = None
    if sys.stderr.isatty() and not sys.stdout.isatty() and not args.quiet:
        console.start_progress(sum(map(size_of, args.paths)), "dump")
        progress = console.progress.reach
    try:
        # a value that is too short for its decoder is an error of usage
        with usage_errors():
            if console.is_json:
                _print_json(dump, args.encoding or "base64", console, progress)
                return
            for chunk in dump.chunks(progress):
                console.write_bytes(escape_controls(chunk))
                _print_notes(dump, console)
    finally:
        _print_notes(dump, console)
        console.flush()
        if not console.is_json:
            # in the end, as the tool does: they are sums over all files
            console.list(dump.mismatches())
        console.findings(dump.findings)
        console.unkept_findings(dump.n_damage - sum(finding.damage for finding in dump.findings))


def _dump(args: argparse.Namespace) -> Dump:
    from kafkalog.operations.dumping.dump import dump
    from kafkalog.operations.dumping.options import DumpKeywords

    decoders = [name for name in TOPIC_DECODERS if getattr(args, f"{name.replace('-', '_')}_decoder")]
    if len(decoders) > 1:
        raise UsageError(f"--{decoders[0]}-decoder and --{decoders[1]}-decoder exclude each other")
    given = {name: value for name, value in chosen(args, DumpKeywords).items() if value is not None}
    with usage_errors():
        return dump(args.paths, topic_decoder=next(iter(decoders), None), **given)


def _print_json(dump: Dump, encoding: str, console: Console, progress: Callable[[int], None] | None) -> None:
    from kafkalog.interchange.text_output import ENCODERS, encode_json, header_pairs

    encode = ENCODERS[encoding]
    lines: list[str] = []
    try:
        for row in dump.rows(progress):
            for name in ("key", "value"):
                if isinstance(row.get(name), bytes):
                    row[name] = encode(row[name])
            if "headers" in row:
                row["headers"] = header_pairs(row["headers"], encode)
            lines.append(encode_json(row) + "\n")
            if len(lines) == _LINES_AT_A_TIME:
                console.write("".join(lines))
                lines.clear()
                _print_notes(dump, console)
    finally:
        if lines:
            console.write("".join(lines))


_LINES_AT_A_TIME = 1000


def _print_notes(dump: Dump, console: Console) -> None:
    console.list(dump.notes)
    dump.notes.clear()
