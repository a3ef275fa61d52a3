"""The commands in the order of the help, with the module of each, which is imported when its command runs.

A module has `add_parser`, which registers the command's arguments, and `run`.
"""

from __future__ import annotations

from typing import Final

_JOBS: Final = {
    "look": {
        "reading.ls": "list topics, partitions and segments: sizes, offsets, times, formats, codecs",
        "reading.report": "write a report: contents, damage, losses, lag, the next start of the broker",
        "reading.verify": "check for damage: checksums, indexes, producer snapshots and checkpoints",
        "reading.space": "show disk usage: by topic, day, codec, producer and key; savings with another codec",
        "reading.batches": "list record batches: sizes, counts, compression, producers; or summarise them",
        "reading.index_stats": "measure indexes: gaps, bytes read per lookup, size, effect of other settings",
    },
    "find": {
        "reading.cat": "print records, as text or as JSON lines",
        "reading.lookup": "find an offset or a time, and show each step",
        "reading.dump": "print the lines of Kafka's DumpLogSegments: or JSON lines",
    },
    "tables": {
        "reading.sql": "run an SQL query, with one table per topic",
        "writing.export": "write Parquet, Arrow, CSV, JSON, Delta or Iceberg",
    },
    "repair": {
        "repairing.preflight": "show what a broker does at its next start: recover, cut, delete or fail",
        "repairing.recover": "do a broker's recovery offline: cut torn and damaged ends, rebuild indexes and snapshots",
        "repairing.salvage": "save every intact batch of a damaged log: and report the losses",
        "repairing.undelete": "find deleted segments in the image of a disk",
        "repairing.truncate": "remove the end of a log: from an offset, an epoch or a time",
        "repairing.trim": "remove the start of a log: before an offset or a time",
        "repairing.compact": "run the log cleaner: of each key only the last record stays",
        "writing.reindex": "rebuild indexes from .log files",
    },
    "bring back": {
        "repairing.diff": "compare two replicas: first difference, which one would truncate",
        "repairing.merge": "merge several copies of a partition into one log",
        "reading.tiered": "check remote storage of tiered topics, or restore it",
        "repairing.boot": "build a log dir for a new broker: from partitions of a lost cluster",
    },
    "write": {
        "writing.load": "write tables as partitions that a broker serves: Parquet, Arrow, CSV or JSON lines",
        "writing.convert": "rewrite a log: to format v2, another codec or size, with records dropped or redacted",
        "writing.sample": "write a small log dir to try the commands on",
    },
    "clusters": {
        "system_topics.groups": "list consumer groups: committed offsets, lag, members and assignments",
        "system_topics.transactions": "list transactions that hang: with the command that ends each",
        "reading.producers": "list producers: their last batches, and open and overdue transactions",
        "reading.epochs": "list leader epochs: and where a follower would truncate",
        "system_topics.metadata": "list topics, settings, brokers and ACLs of KRaft: also partitions and quotas",
        "system_topics.schemas": "list the schemas of a registry: also deleted ones, from its topic",
    },
}
"""By job, the module of each command, and one sentence about it, for the help."""

LISTS: Final = ("ls", "groups", "transactions", "producers", "epochs", "metadata", "schemas")
"""The commands that list, with or without a verb for it."""
LISTING_VERBS: Final = ("list", "describe", "show")
"""What Kafka's scripts have after such a command."""

WITHOUT_ADVICE: Final = ("boot", "report", "diff", "tiered", "undelete", "load", "sample")
"""The commands that name no boot of their paths after damage: these are no log dirs, or their results have steps."""
LOCAL: Final = frozenset(
    {
        *(
            "preflight",
            "recover",
            "truncate",
            "trim",
            "compact",
            "merge",
            "reindex",
            "boot",
            "undelete",
            "load",
            "sample",
        ),
    }
)
"""Commands whose paths are no URLs."""

JOBS: Final = {job: [name.partition(".")[2].replace("_", "-") for name in commands] for job, commands in _JOBS.items()}
_COMMANDS: Final = {name: summary for commands in _JOBS.values() for name, summary in commands.items()}
MODULES: Final = {name.partition(".")[2].replace("_", "-"): f"kafkalog.cli.{name}" for name in _COMMANDS}
SUMMARIES: Final = dict(zip(MODULES, _COMMANDS.values(), strict=True))
