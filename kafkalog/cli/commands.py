"""The commands in the order of the help, with the module of each, which is imported when its command runs."""

from __future__ import annotations

from typing import Final

SUMMARIES: Final = {
    "ls": "list topics, partitions and segments: sizes, offsets, times, formats, codecs",
    "cat": "print records, as text or as JSON lines",
    "batches": "list record batches: sizes, counts, compression, producers; or sum up who sends what",
    "lookup": "find an offset or a time, and show how",
    "dump": "print segment files line for line as Kafka's DumpLogSegments does, or as JSON lines",
    "export": "write records to Parquet, Arrow, CSV or JSON lines, a file or a partitioned directory",
    "producers": "list producers, their last batches, open and hanging transactions",
    "epochs": "list leader epochs; say where an epoch ends and where a follower truncates",
    "groups": "list groups of consumers: committed offsets, lag, members and their assignments",
    "transactions": "list transactional ids: what their coordinators know, and what ends a hanging transaction",
    "metadata": "list a cluster's topics, partitions, settings, brokers, ACLs and so on, out of its metadata log",
    "schemas": "list the schemas of a registry, deleted ones too, out of its topic",
    "index-stats": "measure indexes: gaps, bytes scanned a lookup, size; what other settings would give",
    "verify": "check checksums, indexes, producer snapshots and checkpoints",
    "preflight": "say what a broker would do on its next start: recover, cut, delete, or die",
    "recover": "do a broker's recovery offline: cut torn and damaged ends, rebuild all that is derived",
    "truncate": "remove the end of a log, from an offset, an epoch or a time on",
    "trim": "remove the start of a log, before an offset or a time",
    "salvage": "save every intact batch of a damaged log; say exactly what is lost",
    "merge": "merge several copies of a partition into the best log; say where each range comes from",
    "diff": "compare two replicas of a partition: the first difference, and who would truncate",
    "reindex": "rebuild indexes from .log files",
    "convert": "convert a log: v0 and v1 to v2, another codec, other sizes, records dropped or redacted",
    "load": "write Parquet, Arrow, CSV or JSON lines as partitions that a broker serves",
    "spark": "the same over a cluster, or all processors: scan, batches, verify, reindex, export",
}
"""One sentence about each command, for the help."""

MODULES: Final = {
    "ls": "kafkalog.cli.reading.ls",
    "cat": "kafkalog.cli.reading.cat",
    "batches": "kafkalog.cli.reading.batches",
    "lookup": "kafkalog.cli.reading.lookup",
    "dump": "kafkalog.cli.reading.dump",
    "export": "kafkalog.cli.writing.export",
    "producers": "kafkalog.cli.reading.producers",
    "epochs": "kafkalog.cli.reading.epochs",
    "groups": "kafkalog.cli.internal.groups",
    "transactions": "kafkalog.cli.internal.transactions",
    "metadata": "kafkalog.cli.internal.metadata",
    "schemas": "kafkalog.cli.internal.schemas",
    "index-stats": "kafkalog.cli.reading.index_stats",
    "verify": "kafkalog.cli.reading.verify",
    "preflight": "kafkalog.cli.repairing.preflight",
    "recover": "kafkalog.cli.repairing.recover",
    "truncate": "kafkalog.cli.repairing.truncate",
    "trim": "kafkalog.cli.repairing.trim",
    "salvage": "kafkalog.cli.repairing.salvage",
    "merge": "kafkalog.cli.repairing.merge",
    "diff": "kafkalog.cli.repairing.diff",
    "reindex": "kafkalog.cli.writing.reindex",
    "convert": "kafkalog.cli.writing.convert",
    "load": "kafkalog.cli.writing.load",
    "spark": "kafkalog.cli.writing.spark",
}
