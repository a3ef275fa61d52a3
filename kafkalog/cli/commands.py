"""The commands in the order of the help, with the module of each, which is imported when its command runs.

A module has `add_parser`, which registers the command's arguments, and `run`.
"""

from __future__ import annotations

from typing import Final

_COMMANDS: Final = {
    "reading.ls": "list topics, partitions and segments: sizes, offsets, times, formats, codecs",
    "reading.report": "report on everything in log dirs: contents, damage, losses, lag, what a broker will do",
    "reading.cat": "print records, as text or as JSON lines",
    "reading.sql": "run a query in SQL over topics as tables: fields of values, joins, groups",
    "reading.batches": "list record batches: sizes, counts, compression, producers; or sum up who sends what",
    "reading.lookup": "find an offset or a time, and show how",
    "reading.dump": "print segment files line for line as Kafka's DumpLogSegments does, or as JSON lines",
    "writing.export": "write records to Parquet, Arrow, CSV or JSON lines, a file or a partitioned directory",
    "reading.producers": "list producers, their last batches, open and hanging transactions",
    "reading.epochs": "list leader epochs; say where an epoch ends and where a follower truncates",
    "system_topics.groups": "list groups of consumers: committed offsets, lag, members and their assignments",
    "system_topics.transactions": "list transactional ids: what their coordinators know, and what ends one that hangs",
    "system_topics.metadata": "list a cluster's topics, partitions, settings, brokers and ACLs, from its metadata log",
    "system_topics.schemas": "list the schemas of a registry, deleted ones too, from its topic",
    "reading.index_stats": "measure indexes: gaps, bytes scanned a lookup, size; what other settings would give",
    "reading.verify": "check checksums, indexes, producer snapshots and checkpoints",
    "repairing.preflight": "say what a broker would do on its next start: recover, cut, delete, or die",
    "repairing.recover": "do a broker's recovery offline: cut torn and damaged ends, rebuild all that is derived",
    "repairing.truncate": "remove the end of a log, from an offset, an epoch or a time on",
    "repairing.trim": "remove the start of a log, before an offset or a time",
    "repairing.salvage": "save every intact batch of a damaged log; say exactly what is lost",
    "repairing.merge": "merge several copies of a partition into the best log; say where each range comes from",
    "repairing.diff": "compare two replicas of a partition: the first difference, and who would truncate",
    "repairing.boot": "make a directory on which a broker starts, out of partitions whose cluster is gone",
    "writing.reindex": "rebuild indexes from .log files",
    "writing.convert": "convert a log: v0 and v1 to v2, another codec, other sizes, records dropped or redacted",
    "writing.load": "write Parquet, Arrow, CSV or JSON lines as partitions that a broker serves",
    "spark.spark": "the same over a cluster, or all processors: scan, batches, verify, reindex, export",
}
"""The module of each command, and one sentence about it, for the help."""

LOCAL: Final = frozenset({"preflight", "recover", "truncate", "trim", "merge", "diff", "reindex"})
"""Commands that take no URLs of logs."""

MODULES: Final = {name.partition(".")[2].replace("_", "-"): f"kafkalog.cli.{name}" for name in _COMMANDS}
SUMMARIES: Final = dict(zip(MODULES, _COMMANDS.values(), strict=True))
