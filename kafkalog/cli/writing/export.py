"""`kafkalog export`: writes records to a Parquet, Arrow, CSV or JSON lines file, or to a partitioned directory."""

from __future__ import annotations

import argparse
import sys
import warnings
from itertools import chain
from typing import Any, BinaryIO, Final

from kafkalog.cli.console import Console
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import Command, chosen
from kafkalog.cli.scan_options import (
    note_base64,
    note_if_nothing_matches,
    path_of,
    record_columns_of,
    reported,
    scan_options,
    usage_errors,
)
from kafkalog.cli.text import counted, human_bytes
from kafkalog.interchange.file_types import COMPRESSIONS, FORMATS, STREAM_FORMATS, TABLE_FORMATS

_FORMATS: Final = ",".join((*FORMATS, *TABLE_FORMATS))
_CODECS: Final = ",".join(dict.fromkeys(chain(*COMPRESSIONS.values())))

COMMAND: Final = Command(
    description="""\
Write records to a Parquet, Arrow, CSV or JSON lines file, to a partitioned directory, or to a Delta or Iceberg table.

The file name selects the format:

  .parquet  .arrow (Arrow's IPC file, Feather)  .arrows (its stream)  .csv  .jsonl  .csv.gz  .csv.zst  .jsonl.gz ...

With --partition-by, the output is a directory that Hive, Spark, DuckDB, Polars and pyarrow read as one table:

  out/topic=orders/partition=0/date=2026-11-21/part-0.parquet

The columns of --partition-by are in the path, not in the files. The date is the UTC date of the timestamp, or
__HIVE_DEFAULT_PARTITION__ for a record without a timestamp. '-o -' writes csv, jsonl or arrows (with --format) to
stdout.

-o also takes the URL of an object store, as s3://bucket/orders.parquet. A directory there gets its manifest,
_kafkalog_export.json, last. Read the files that it lists: an export that was killed leaves others.

All or nothing: the output appears when everything is written and synced. After a failure, damage or Ctrl-C, an old
output is unchanged, and no temporary files are left. After a crash, the output is absent, old or complete. --overwrite
replaces an existing file, or a directory from an earlier export. An export never writes into a log dir. Memory is
bounded, about 200 MiB for Parquet.

--resume adds the new records of each partition since the last export with --resume, exactly once. All other options
must be the same. _kafkalog_export.json in the directory has the next offset of each partition. If an export is killed,
the next one finishes it. A log with other records at its exported offsets is an error: its topic was created again, or
an unclean election replaced them. With --format delta or iceberg, --resume adds to a table. -o is then the directory or
URL of a Delta table, or CATALOG.NAMESPACE.TABLE with a catalog from pyiceberg's configuration. If two exports run at
the same time, one fails.

Values that do not decode (--value-format, --key-format) are null, are counted, and make the exit code 1, unless
--on-decode-error accepts them. --columns offset,key,value,value_error,value_bytes keeps the reason and the original
bytes, which 'kafkalog load' writes again.

Values stay exact: null differs from empty, headers keep their order and duplicates, and timestamps are null for a v0
record and -1 if missing. Keys and values are bytes in Parquet and Arrow. In CSV and JSON lines they are base64 unless
--encoding changes that. With utf8, bytes that are not UTF-8 are {"base64": ...}, which 'kafkalog load --encoding utf8'
reads. In CSV, null is an empty field and an empty value is "" (in quotes); --null '\\N' writes null as \\N. In CSV,
timestamps are milliseconds and headers are JSON: [["name", "value"]]. JSON lines are those of 'kafkalog cat --json',
except that JSON in fields of mixed type, and numbers of many digits, are not in quotes. Spreadsheets run CSV text that
begins with = + - @ as a formula; --escape-formulas prevents that.""",
    examples="""\
  kafkalog export /backup/kafka -t orders -o orders.parquet
  kafkalog export /backup/kafka -o lake --partition-by topic,partition,date
  kafkalog export orders-0 --columns offset,timestamp,value -o orders.csv.gz --encoding utf8
  kafkalog export /backup/kafka -o lake --partition-by topic,date --resume
  kafkalog export /backup/kafka -t orders -o tables/orders --format delta --resume
  kafkalog export damaged-0 --on-corruption skip -o intact.parquet
  kafkalog export orders-0 -o - --format jsonl | jq .offset""",
    options=f"""
where to (one is required):
  | -o --output TO      new file or directory, or a URL; - for stdout
  | --dry-run           count the records and write nothing
  --overwrite           replace an existing file, or a directory from an earlier export
  --resume              add the new records of each partition since the last export with --resume, exactly once
  --format {{{_FORMATS}}}    default: from the file name; parquet for a directory;
                                                             delta and iceberg need --resume
  --partition-by KEY,...    write a directory, partitioned by any of topic, partition, date in this order
  --compression {{{_CODECS}}}    default: zstd for Parquet, else none; Arrow takes lz4 and zstd,
                                                      CSV and JSON lines gzip and zstd
  --row-group-rows N    maximum rows of a Parquet row group (default: 1048576, and 64 MiB) or of an Arrow record batch
  --columns C,...       only these columns, in this order; see 'kafkalog cat --help'
  --encoding {{base64,utf8,hex}}    encoding of bytes in CSV and JSON lines (default: base64); with utf8, invalid bytes
                                  become {{"base64": ...}}
  --null TEXT           the text for null in CSV (default: empty)
  --escape-formulas     in CSV, put ' before text that begins with = + - @, a tab or a carriage return; this changes
                        such values
  @on_decode_error
  @scan_selection
  @decoding
  @scan_reading
""",
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Run the export, and print what it wrote."""
    from kafkalog.operations.exporting.export import Exporter, OutputOptions

    to = _stdout(args, console) if args.output == "-" and not args.dry_run else args.output
    with usage_errors():
        options, columns = scan_options(args), record_columns_of(args)
        if columns is not None:
            options["columns"] = columns
        if args.storage_options:
            options["storage_options"] = dict(args.storage_options)
        args.partition_by = args.partition_by or ()
        exporter = Exporter(path_of(args), to, dry_run=args.dry_run, **chosen(args, OutputOptions), **options)
    from kafkalog.values.decoding import DecodeWarning

    # before the run: an empty file alone would not say why
    note_if_nothing_matches(args, exporter.scan, console)
    if args.output == "-":  # who reads it may not read its end
        note_base64(args, exporter.scan.schema.names, 1, console)
    warnings.simplefilter("ignore", DecodeWarning)  # the console reports the findings instead
    with reported(exporter.scan, console, "records", skip="export what is intact"):
        result = exporter.run()
        known = {id(finding) for finding in exporter.scan.findings}
        console.findings(finding for finding in result.findings if id(finding) not in known)
    console.undecoded(result.n_undecoded, args)
    if args.output != "-":
        note_base64(args, exporter.scan.schema.names, result.n_records, console)
        if args.dry_run:
            console.note(f"{counted(result.n_records, 'record')} would be written")
            return
        wrote = f"{counted(result.n_records, 'record')} in {counted(result.n_files, 'file')}"
        console.note(f"{wrote}, {human_bytes(result.n_bytes)}, written to {args.output}")


def _stdout(args: argparse.Namespace, console: Console) -> BinaryIO:
    if args.format not in STREAM_FORMATS:
        raise UsageError(f"stdout needs --format {' or '.join(STREAM_FORMATS)}")
    if args.partition_by:
        raise UsageError("--partition-by needs a directory: use -o DIR")
    if args.format == "arrows" and sys.stdout.isatty():
        raise UsageError("an Arrow stream is binary; redirect stdout to a program or a file")
    return _Stdout(console)  # type: ignore[return-value]


class _Stdout:
    """stdout as a binary file; a failed write raises `OutputError`."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def write(self, data: Any) -> int:
        view = memoryview(data)
        self._console.write_bytes(view)
        return view.nbytes
