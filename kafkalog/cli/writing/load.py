"""`kafkalog load`: writes files of records to the partitions of a log dir."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafkalog.cli.console import Console
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import Command, chosen, n_bytes
from kafkalog.cli.scan_options import check_names, settings_of, usage_errors
from kafkalog.cli.text import counted, human_bytes
from kafkalog.text import offset_range

if TYPE_CHECKING:
    from kafkalog.operations.loading.loaded_partitions import LoadResult
    from kafkalog.state.log_config import LogConfig

_INPUTS: Final = (
    "INPUT",
    "Parquet, Arrow, Avro, CSV or JSON lines file, or a directory of such files; - is stdin",
    """\
The names of INPUTs select the format: .parquet .arrow .arrows .avro .csv .jsonl .json .csv.gz .jsonl.zst ... '-' reads
csv, jsonl or arrows (with --format) from stdin. A directory stands for all such files below it, in the order of
their names, except hidden files and names that begin with _. Paths with topic=T and partition=N supply missing columns,
as 'kafkalog export --partition-by topic,partition' writes them. So do the file names of Kafka Connect's sinks, such as
orders+3+0000000000.json.""",
)

_ROLES: Final = ("key", "value", "timestamp", "headers", "offset", "partition", "topic")
_ROLE_OPTIONS: Final = "\n".join(f"  --{role}-column C    the {role}'s column (default: {role})" for role in _ROLES)

COMMAND: Final = Command(
    description="""\
Write records as partitions of a log dir that a broker serves, with segments, indexes, producer snapshots and leader
epochs.

Columns: value, and any of key, timestamp, headers, offset, partition and topic. --value-column and so on name other
columns. Unknown columns are an error; --ignore-columns leaves them out. Columns that only 'kafkalog export' adds are
ignored, except timestamp_type: records of LogAppendTime stay such, with their timestamps, without --timestamp-type.

Partitions: the column partition. With --partitions N, Kafka's default partitioner chooses instead (murmur2 of the key;
records without a key fill one partition after the other). --partitioner names that of another client, if producers of
the topic use it: librdkafka hashes keys with CRC32 by default (consistent_random), Sarama with FNV-1a (sarama). Without
both, all records go to partition 0. Offsets in the input are kept. Without them, or with --partitions, they start at 0.

Timestamps: milliseconds, or times with a zone. --timezone sets the zone of times without one. Times finer than a
millisecond are an error unless --truncate-timestamps. Null is no timestamp. Soon after its start, a broker deletes
records older than the topic's retention.ms; a note warns of that, also with --dry-run.

Rows: with --value-format, columns may have any names. Each row becomes a value in JSON, or in Avro or Protobuf with a
--schema. --key-column names the key, which also stays in the value. A column headers.NAME becomes a header, null none.
An export with --value-format and --key-format is loaded with the same formats. If it has the columns value_error and
value_bytes, or those of the key, what did not decode is written with its original bytes; without the bytes it is null.
A column topic, partition or offset is in the value if --topic, --partitions or --no-keep-offsets replaces it. In CSV,
columns are numbers in JSON only if JSON prints them as they are written: 007, 12E12 and 1.10 stay text.

CSV and JSON lines: keys, values and header values may be text or base64, so --encoding utf8 or --encoding base64 is
required. Only a file with the column timestamp_type, as an export writes it, is base64 by default.

All or nothing: load writes next to LOG_DIR and renames when everything is complete and synced. A failure or Ctrl-C
leaves nothing. A crash between renames into an existing LOG_DIR leaves some partitions, each complete. load never
changes an existing partition, and refuses a log dir with a running broker. With --install, LOG_DIR belongs to a stopped
broker: the partitions get its topic ids and replace empty ones.""",
    examples="""\
  kafkalog load orders.parquet -o /tmp/log --topic orders --partitions 12 --compression zstd
  kafkalog load customers.csv -o log --topic customers --value-format json --key-column id
  kafkalog load a.csv -o log --topic t --encoding utf8 --value-column body --timestamp-column created_at
  kafkalog export /backup/kafka -o - --format arrows | kafkalog load - --format arrows -o copy
  kafkalog load /lake/kafka -o copy    # a directory from 'kafkalog export --partition-by topic,date'
  kafkalog load orders.parquet -o /var/lib/kafka --topic orders --install --dry-run
  kafkalog load a.jsonl -o /tmp/log --topic t --config segment.bytes=104857600 --config segment.ms=3600000 --json""",
    options=f"""
  @limits
where to:
  -o --output LOG_DIR!      log dir; created if it does not exist
  --topic T                 topic of all records (default: the column topic)
  --partitions N            distribute records over N partitions by key
  --partitioner {{kafka,consistent_random,consistent,murmur2_random,murmur2,fnv1a_random,fnv1a,sarama}}
                            with --partitions: the client whose partitioner to use (default: kafka)
  --topic-id ID             topic id for partition.metadata: 22 characters, as Kafka prints it
  --install                 LOG_DIR is that of a stopped broker with these topics
  --replace                 with --install: also replace partitions that have records
  --metadata-log-dir DIR    with --install: the broker's metadata.log.dir (default: LOG_DIR)
  --dry-run                 read everything and write nothing
  --stage-in DIR            directory for temporary files, on the same file system (default: next to LOG_DIR)
input:
  --only-topics T,...    only records whose topic matches one of these names or globs; repeatable
  --internal             include internal topics (__consumer_offsets, ...); default: only if --only-topics names them
  --format {{parquet,arrow,arrows,avro,csv,jsonl}}    format of the INPUTs (default: from their names)
{_ROLE_OPTIONS}
  --ignore-columns C,...          leave out these columns; '*' for all unknown ones
  --timezone:naive_timezone TZ    zone of times without one: UTC, Europe/Berlin, ...
  --truncate-timestamps           truncate times to milliseconds
  --[no-]keep-offsets             keep offsets of the input (default: yes, unless --partitions)
  @encoding encoding of keys, values and headers in CSV and JSON lines (default: base64 for an export; for rows utf8)
  --null TEXT []                  the text for null in CSV (default: empty)
rows with any columns:
  --value-format {{json,avro,protobuf,utf8,short,int,long,float,double}}    encode the column value, or all columns
                              except key, timestamp, headers, offset, partition and topic
  --key-format {{json,utf8,short,int,long,float,double}}    encode keys, as an export with this option decoded them
  --schema FILE               the Avro or Protobuf schema of values
  --message NAME              the message of a Protobuf schema (default: the first one)
  --schema-id N               write values in Confluent's wire format with this schema id
  --header-columns C,...      columns that become headers
  --text-columns C,...        columns of CSV that stay text; default: those whose numbers JSON prints in another way
  @on_decode_error
how to write:
  --compression {{none,gzip,snappy,lz4,zstd}}    default: the topic's compression.type, else none
  --compression-level N        default: the topic's, else Kafka's
  --batch-size N [16K]         uncompressed bytes per batch (default: 16K)
  --max-records-per-batch N    default: as many as fit
  @config a topic setting, such as segment.bytes=104857600; repeatable
  --config-file FILE           a properties file with settings, such as server.properties
  --timestamp-type {{CreateTime,LogAppendTime}}    default: the topic's, else CreateTime
  --leader-epoch N [0]         leader epoch of the batches (default: 0)
  --json                       one object a line, per partition
""",
    types={"batch_size": partial(n_bytes, least=1, most=2**31 - 1)},
    paths=_INPUTS,
    needs={"replace": "install", "metadata_log_dir": "install"},
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Load the inputs, and print what was written."""
    from kafkalog.interchange.file_types import STREAM_FORMATS

    if "-" in args.paths and (len(args.paths) > 1 or args.format is None):
        raise UsageError(
            f"stdin must be the only INPUT, and needs --format {' or '.join(STREAM_FORMATS)}; add --encoding utf8 if"
            " keys and values are text"
        )
    from kafkalog.operations.loading.load import LoadOptions, load

    args.ignore_columns = args.ignore_columns == ["*"] or args.ignore_columns or ()
    args.header_columns = args.header_columns or ()
    args.text_columns = args.text_columns or ()
    inputs: list[Any] = [sys.stdin.buffer if path == "-" else path for path in args.paths]
    config = _config(args)
    console.start_progress(sum(_size_of(path, args.format) for path in args.paths), "records")
    with usage_errors():
        result = load(
            inputs,
            **{**chosen(args, load, LoadOptions), "config": config},
            columns={role: name for role in _ROLES if (name := getattr(args, f"{role}_column")) is not None},
            progress=console.progress.reach,
        )
    console.progress.close()
    _show(result, args, console)


def _config(args: argparse.Namespace) -> LogConfig | None:
    """Return the settings of ``--config-file``, overridden by those of ``--config``; None without either."""

    from kafkalog.state.properties import read_settings

    if args.config_file is None and not args.config:
        return None
    with usage_errors():
        given = {} if args.config_file is None else read_settings(args.config_file)
    named = dict(args.config or ())
    # those of a file are not checked: it may have a broker's own settings
    check_names(named)
    return settings_of({**given, **named})


def _size_of(path: str, format: str | None) -> int:
    """Return the size of the files of an input; errors are ignored here, and reported when it is read."""
    from kafkalog.errors import KafkalogError
    from kafkalog.interchange.input_paths import input_files

    if path == "-":
        return 0
    with contextlib.suppress(OSError, KafkalogError):
        return sum(os.stat(str(file.path)).st_size for file in input_files([path], format=format))
    return 0


def _show(result: LoadResult, args: argparse.Namespace, console: Console) -> None:
    for each in result.partitions:
        path = os.path.join(result.path, f"{each.topic}-{each.partition}")
        text = f"{each.topic}-{each.partition}  {counted(each.n_records, 'record')}  {human_bytes(each.n_bytes)}"
        offsets = f"  offsets {offset_range(each.first_offset, each.next_offset)}" if each.n_records else ""
        console.show([{"path": path, **each.as_dict()}], [text + offsets])
    for note in result.notes:
        console.note(note)
    console.undecoded(result.n_undecoded, args)
    n = len(result.partitions)
    verb = "would be written to" if args.dry_run else "written to"
    if result.partitioner is not None:
        from kafkalog.records.partitioner import PARTITIONERS

        console.note(f"partitions by the partitioner {result.partitioner}: {PARTITIONERS[result.partitioner]}")
    console.note(f"{counted(result.n_records, 'record')} in {counted(n, 'partition')} {verb} {result.path}")
