"""The commands in the order of the help, with the module of each, which is imported when its command runs.

A module has `add_parser`, which registers the command's arguments, and `run`.
"""

from __future__ import annotations

from typing import Final

_COMMANDS: Final = {
    "reading.ls": "list topics, partitions and segments: sizes, offsets, times, formats, codecs",
    "reading.report": "write a report on log dirs: contents, damage, losses, lag, the next start of the broker",
    "reading.space": "show disk usage: by topic, day, codec, producer and key; savings with another codec",
    "reading.cat": "print records, as text or as JSON lines",
    "reading.sql": "run an SQL query, with one table per topic",
    "reading.batches": "list or summarise record batches: sizes, counts, compression, producers",
    "reading.lookup": "find an offset or a time, and show each step",
    "reading.dump": "print the lines of Kafka's DumpLogSegments, or JSON lines",
    "writing.export": "write records to Parquet, Arrow, CSV, JSON lines, Delta or Iceberg",
    "reading.producers": "list producers, their last batches, and open and overdue transactions",
    "reading.epochs": "list leader epochs, and where a follower would truncate",
    "system_topics.groups": "list consumer groups: committed offsets, lag, members and assignments",
    "system_topics.transactions": "list transactional ids and hanging transactions, with the command that ends each",
    "system_topics.metadata": "list a KRaft cluster's topics, partitions, settings, brokers and ACLs",
    "system_topics.schemas": "list the schemas of a registry, also deleted ones, from its topic",
    "reading.index_stats": "measure indexes: gaps, bytes read per lookup, size, effect of other settings",
    "reading.verify": "check checksums, indexes, producer snapshots and checkpoints",
    "reading.tiered": "check remote storage of tiered topics, or restore a log dir from it",
    "repairing.preflight": "show what a broker would do at its next start: recover, cut, delete or fail",
    "repairing.recover": "do a broker's recovery offline: cut torn and damaged ends, rebuild indexes and snapshots",
    "repairing.truncate": "remove the end of a log, from an offset, an epoch or a time",
    "repairing.trim": "remove the start of a log, before an offset or a time",
    "repairing.compact": "run the log cleaner: of each key only the last record stays",
    "repairing.salvage": "save every intact batch of a damaged log, and report the losses",
    "repairing.merge": "merge several copies of a partition into one log",
    "repairing.diff": "compare two replicas of a partition: first difference, which one would truncate",
    "repairing.boot": "build a log dir on which a new broker starts, from partitions of a lost cluster",
    "writing.reindex": "rebuild indexes from .log files",
    "writing.convert": "rewrite a log: to format v2, another codec or size, with records dropped or redacted",
    "writing.load": "write Parquet, Arrow, CSV or JSON lines as partitions that a broker serves",
}
"""The module of each command, and one sentence about it, for the help."""

LOCAL: Final = frozenset(
    {"preflight", "recover", "truncate", "trim", "compact", "merge", "diff", "reindex", "boot"},
)
"""Commands that take no URLs of logs."""

MODULES: Final = {name.partition(".")[2].replace("_", "-"): f"kafkalog.cli.{name}" for name in _COMMANDS}
SUMMARIES: Final = dict(zip(MODULES, _COMMANDS.values(), strict=True))
