"""`kafkalog space`: disk usage, and the savings of other settings."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkalog.cli.console import Console
from kafkalog.cli.options import Command, chosen
from kafkalog.cli.scan_options import note_no_match, path_of, usage_errors
from kafkalog.cli.terminal import is_exact, result_table
from kafkalog.text import human_bytes

if TYPE_CHECKING:
    from kafkalog.reporting.space import Space

COMMAND: Final = Command(
    description="""\
Show disk usage by topic, partition, day, codec, kind of file and producer, from batch headers. The sums cover all bytes
of the segments, or of all files. --records also reads all records, and shows uncompressed bytes by key and by header,
and the compression ratio: bytes of keys, values and headers to the bytes that they take in batches.
Memory is bounded: with very many keys, the command reads the records twice to get exact sums.

--what-if estimates the size of the log with another codec, level or batch size. It converts a sample as 'kafkalog
convert' does. The interval contains the real size in 99.9 % of cases. A log of up to --sample-bytes is converted
completely. The command writes nothing.""",
    examples="""\
  kafkalog space /var/lib/kafka
  kafkalog space /var/lib/kafka -t orders --records
  kafkalog space /var/lib/kafka --what-if zstd --what-if zstd:9:65536 --what-if ::65536
  kafkalog space /var/lib/kafka --json | jq '.topics[0]'""",
    options="""
  --bytes    exact sizes, also on a terminal
  --json    one object with exact numbers
  @limits
which partitions:
  @selection
what is counted:
  --records            also bytes by key and by header; reads all records
  --what-if CODEC:LEVEL:BATCH_SIZE*    the size with another codec, level and batch size (parts may be left out);
                       repeatable
  --top N [20]         producers, keys, headers to list (default: 20)
  --sample-bytes BYTES [64M]    bytes to convert (default: 64M)
  --seed N [0]         chooses the sample (default: 0)
  @threads threads that decode and convert
""",
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Count, and print the tables."""
    from kafkalog.log.log_dir import LogDir
    from kafkalog.reporting.space import space

    with usage_errors():
        log_dir = LogDir(path_of(args), limits=args.limits)
        found = space(log_dir, **chosen(args, space) | {"what_if": args.what_if or ()})
    console.all_findings(found.findings)
    if not log_dir.select(args.topics, args.partitions):
        note_no_match(log_dir, console)
    console.show([found], _lines(found, exact=is_exact(args.bytes)))


def _lines(found: Space, *, exact: bool) -> Iterator[str]:
    from kafkalog.reporting.tables import column_title

    for one in found.tables.values():
        if one.rows:
            yield one.title.upper()
            yield from result_table(one, exact=exact)
            yield ""
    totals = {
        column_title(name): human_bytes(value) if name.endswith("_bytes") and not exact else f"{value:,}"
        for name, value in found.summary.items()
    }
    yield ", ".join(f"{title}: {text}" for title, text in (totals | _ratio(found)).items())


def _ratio(found: Space) -> dict[str, str]:
    """The compression ratio, if records were read and some are compressed: bytes in records to bytes in batches."""
    counts = found.summary
    n_stored = counts["n_batch_bytes"] - counts["n_batch_header_bytes"]
    codecs = {str(row[0]) for row in found.tables["codecs"].rows if row[1]}
    if not codecs - {"none"} or n_stored <= 0 or any(one.damage for one in found.findings):
        return {}
    if "n_record_bytes" not in counts:
        return {"compression ratio": "add --records"}
    return {"compression ratio": f"{counts['n_record_bytes'] / n_stored:.1f}"}
