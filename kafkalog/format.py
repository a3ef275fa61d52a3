"""Constants and names of Kafka's format: file names, layouts of index entries, attribute bits, codec ids.

Parses and builds file and directory names; does not read files. Mirrors `RecordBatch`, `CompressionType`,
`TimestampType`, `ControlRecordType`, `LogFileUtils` and `LocalLog.parseTopicPartitionName`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from operator import attrgetter
from types import ModuleType
from typing import TYPE_CHECKING, Final, NamedTuple, NoReturn

import numpy as np

from kafkalog.text import LeadingInt, missing_in_module

# bits of a batch's attributes
CODEC_MASK: Final = 0x07
TIMESTAMP_TYPE_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
DELETE_HORIZON_BIT: Final = 0x40

LOG_OVERHEAD: Final = 12
"""Bytes at the start of a batch that its size field does not count: offset (8) and size (4)."""
RECORD_BATCH_OVERHEAD: Final = 61
"""Bytes of a v2 batch header, and so the size of an empty v2 batch."""
MESSAGE_V0_OVERHEAD: Final = 14
MESSAGE_V1_OVERHEAD: Final = 22
LEAST_BATCH_BYTES: Final = LOG_OVERHEAD + MESSAGE_V0_OVERHEAD
"""The size of the shortest batch or message."""
MIN_RECORD_BYTES: Final = 7
"""The shortest v2 record: length, attributes, two deltas, two null lengths, no headers."""
BATCH_SIZE: Final = 16_384
"""Default of a producer's `batch.size`."""

NO_OFFSET: Final = -1
NO_TIMESTAMP: Final = -1
NO_EPOCH: Final = -1
MAX_OFFSET: Final = 2**63 - 1


class Codec(LeadingInt):
    """Compression codec ids, as in the attributes of a batch (`CompressionType`)."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


LAST_CODEC: Final = max(Codec)
KNOWN_CODEC_NAMES: Final = tuple(codec.name.lower() for codec in Codec)
CODEC_NAMES: Final = (*KNOWN_CODEC_NAMES, *(f"unknown({number})" for number in range(LAST_CODEC + 1, 8)))
CODEC_LEVELS: Final = {Codec.GZIP: range(1, 10), Codec.LZ4: range(1, 18), Codec.ZSTD: range(-(2**17), 23)}
"""Valid `compression.gzip.level`, `compression.lz4.level` and `compression.zstd.level`; gzip also accepts -1."""
DEFAULT_LEVELS: Final = {Codec.GZIP: -1, Codec.LZ4: 9, Codec.ZSTD: 3}
"""Kafka's default levels. For gzip, -1 means 6; for lz4, 9 means the fast compressor."""


class TimestampType(LeadingInt):
    """What a record's timestamp means (`TimestampType`). A v0 record has none."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


TIMESTAMP_TYPE_NAMES: Final = {-1: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}


class ControlRecordType(LeadingInt):
    """The type in a control record's key (`ControlRecordType`)."""

    ABORT = 0
    COMMIT = 1
    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


NOT_CONTROL: Final = -1
"""`control_type` of a batch that is not a control batch."""
NO_CONTROL_RECORD: Final = -2
"""`control_type` of a control batch without a readable first record (compaction can leave such batches)."""

OFFSET_INDEX_DTYPE: Final = np.dtype([("relative_offset", ">i4"), ("position", ">i4")])
"""An entry of `.index`: last offset of a batch minus the segment's base offset, and the batch's position."""
TIME_INDEX_DTYPE: Final = np.dtype([("timestamp", ">i8"), ("relative_offset", ">i4")])
"""An entry of `.timeindex`: the largest timestamp so far (ms), and the last offset of the batch that reached it."""
TRANSACTION_INDEX_DTYPE: Final = np.dtype(
    [
        ("version", ">i2"),
        ("producer_id", ">i8"),
        ("first_offset", ">i8"),
        ("last_offset", ">i8"),
        ("last_stable_offset", ">i8"),
    ]
)
"""An entry of `.txnindex` (`AbortedTxn`)."""
ABORTED_TRANSACTION_DTYPE: Final = np.dtype(
    [
        ("producer_id", np.int64),
        ("producer_epoch", np.int16),
        ("first_offset", np.int64),
        ("last_offset", np.int64),
        ("last_stable_offset", np.int64),
    ]
)
"""Result of `Partition.aborted_transactions`: offsets of the first batch and of the marker, epoch of the marker."""
PRODUCER_SNAPSHOT_DTYPE: Final = np.dtype(
    [
        ("producer_id", ">i8"),
        ("producer_epoch", ">i2"),
        ("last_sequence", ">i4"),
        ("last_offset", ">i8"),
        ("offset_delta", ">i4"),
        ("timestamp", ">i8"),
        ("coordinator_epoch", ">i4"),
        ("current_txn_first_offset", ">i8"),
    ]
)
"""An entry of `.snapshot` (`ProducerStateEntry`); -1 means no batch, no coordinator, no open transaction."""
LEADER_EPOCH_DTYPE: Final = np.dtype([("epoch", np.int32), ("start_offset", np.int64)])
"""A line of `leader-epoch-checkpoint`."""
LOG_OFFSET_POSITION_DTYPE: Final = np.dtype(
    [("base_offset", np.int64), ("last_offset", np.int64), ("position", np.int64), ("size_in_bytes", np.int32)]
)
"""Result of `Segment.find_offsets`: the batch that holds an offset (`FileRecords.LogOffsetPosition`); -1 if none."""
TIMESTAMP_AND_OFFSET_DTYPE: Final = np.dtype(
    [("timestamp", np.int64), ("offset", np.int64), ("leader_epoch", np.int32)]
)
"""Result of `Segment.find_timestamps` (`FileRecords.TimestampAndOffset`); -1 if none."""

LOG_SUFFIX: Final = ".log"
INDEX_SUFFIX: Final = ".index"
TIME_INDEX_SUFFIX: Final = ".timeindex"
TRANSACTION_INDEX_SUFFIX: Final = ".txnindex"
PRODUCER_SNAPSHOT_SUFFIX: Final = ".snapshot"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
SWAP_SUFFIX: Final = ".swap"
INDEX_SUFFIXES: Final = (INDEX_SUFFIX, TIME_INDEX_SUFFIX, TRANSACTION_INDEX_SUFFIX)
"""Those of the files beside a `.log` that are about its batches."""
SEGMENT_SUFFIXES: Final = (LOG_SUFFIX, *INDEX_SUFFIXES, PRODUCER_SNAPSHOT_SUFFIX)
"""Those of files that are named after a base offset."""
_OFFSET_SUFFIXES: Final = (*SEGMENT_SUFFIXES, CLEANED_SUFFIX, SWAP_SUFFIX)

INDEX_INTERVAL_BYTES: Final = 4096
"""Default of a topic's `index.interval.bytes`."""

LEADER_EPOCH_CHECKPOINT: Final = "leader-epoch-checkpoint"
PARTITION_METADATA: Final = "partition.metadata"
META_PROPERTIES: Final = "meta.properties"
LOG_START_OFFSET_CHECKPOINT: Final = "log-start-offset-checkpoint"
HIGH_WATERMARK_CHECKPOINT: Final = "replication-offset-checkpoint"
RECOVERY_POINT_CHECKPOINT: Final = "recovery-point-offset-checkpoint"
CLEANER_OFFSET_CHECKPOINT: Final = "cleaner-offset-checkpoint"
OFFSET_CHECKPOINTS: Final = (
    RECOVERY_POINT_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    HIGH_WATERMARK_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)
"""The checkpoints of a log dir with an offset per partition, in the order in which a broker reads them."""
LOADED_CHECKPOINTS: Final = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT)
"""Those by which a broker loads its partitions. Source: LogManager.loadLogs, Kafka 4.3."""
END_CHECKPOINTS: Final = (RECOVERY_POINT_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)
"""Those with offsets that a log reached."""
BOUNDED_CHECKPOINTS: Final = (*END_CHECKPOINTS, CLEANER_OFFSET_CHECKPOINT)
"""Those whose offsets are not past the end of a log: a broker that truncates a log lowers them."""
LOCK_FILE: Final = ".lock"
CLEAN_SHUTDOWN_FILE: Final = ".kafka_cleanshutdown"
CLEAN_SHUTDOWN_TEXT: Final = '{"version":0,"brokerEpoch":-1}'
"""What a broker of KRaft writes to it, whose epoch is unknown here."""
LOG_DIR_FILES: Final = (META_PROPERTIES, *LOADED_CHECKPOINTS, HIGH_WATERMARK_CHECKPOINT, CLEAN_SHUTDOWN_FILE)
"""Files by which a directory is known as a log dir. `compact` leaves the checkpoint of the cleaner in others, too."""

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
METADATA_TOPIC: Final = "__cluster_metadata"
REMOTE_LOG_METADATA: Final = "__remote_log_metadata"
METADATA_DIRECTORY: Final = f"{METADATA_TOPIC}-0"
RAFT_SNAPSHOT_SUFFIX: Final = ".checkpoint"
"""Of snapshots of the metadata log, `OFFSET-EPOCH.checkpoint` next to its segments."""
BOOTSTRAP_CHECKPOINT: Final = f"bootstrap{RAFT_SNAPSHOT_SUFFIX}"
QUORUM_STATE: Final = "quorum-state"

INTERNAL_TOPICS: Final = frozenset(
    {CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE, METADATA_TOPIC, REMOTE_LOG_METADATA}
)
"""Topics that hold the brokers' own state. Scans and exports skip them unless they are named."""

SCHEMAS_TOPIC: Final = "_schemas"
"""The default of `kafkastore.topic`, in which a Confluent Schema Registry keeps its schemas."""

TOPIC_PATTERN: Final = "[a-zA-Z0-9._-]{1,249}"
_TOPIC = re.compile(TOPIC_PATTERN)
RENAMED_KINDS: Final = ("delete", "future", "stray")
"""Suffixes after ``-`` of partition directories that a broker has renamed (`LocalLog.logDirNameWithSuffix`)."""
_SUFFIXED = re.compile(rf"(?P<name>.+)\.(?P<id>[^.]*)-(?P<kind>{'|'.join(RENAMED_KINDS)})")


class TopicPartition(NamedTuple):
    """A topic and one of its partitions; sorts by topic, then by number."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"

    def __getattr__(self, name: str) -> NoReturn:
        """Raise AttributeError: the partition itself may be meant."""
        names = "topic and partition, str() is topic-0, and log_dir[it] is the partition, with its offsets and segments"
        lead = "" if name.startswith("_") else f"; it has {names}"
        raise AttributeError(f"'TopicPartition' object has no attribute {name!r}{lead}", name=name, obj=None)


partition_order: Final = attrgetter("topic", "partition")
"""The key that sorts rows by their `topic` and `partition` as `TopicPartition` sorts."""


SEQUENCE_MASK: Final = 0x7FFFFFFF
"""Sequence numbers wrap from 2^31 - 1 to 0, as in `DefaultRecordBatch.incrementSequence`."""


class PartitionDirectory(NamedTuple):
    """The parts of a partition directory's name (`LocalLog.parseTopicPartitionName`)."""

    topic_partition: TopicPartition
    kind: str | None
    """None for a live partition, else `"delete"`, `"future"` or `"stray"`.

    The topic of a `delete` or `stray` directory may be truncated to fit a file name.
    """


@lru_cache(4096)
def parse_partition_directory(name: str) -> PartitionDirectory | None:
    """Parse a name in a log dir, such as ``orders-0`` or ``orders-0.<32 hex>-delete``; None if it is no partition's."""
    kind = None
    # the suffix begins at the last dot: names of topics may contain dots
    if suffixed := _SUFFIXED.fullmatch(name):
        name, kind = suffixed["name"], suffixed["kind"]
    # the number comes after the last dash: names of topics may contain dashes
    topic, dash, number = name.rpartition("-")
    if not dash or not _TOPIC.fullmatch(topic) or topic in (".", ".."):
        return None
    if not number.isdecimal() or len(number) > 10 or int(number) >= 2**31:
        return None
    return PartitionDirectory(TopicPartition(topic, int(number)), kind)


def is_deleted_directory(name: str) -> bool:
    """Whether this is the name of a partition directory that a broker is about to delete."""
    parsed = parse_partition_directory(name)
    return parsed is not None and parsed.kind == "delete"


@lru_cache(4096)  # most partitions of a log dir have files of the same names
def parse_base_offset(file_name: str) -> int | None:
    """Offset in the name of a segment's file: the digits before the first dot; None if there is no valid offset.

    Any Unicode decimal digits are accepted: old brokers wrote those of their JVM's default locale.
    """
    digits = file_name.partition(".")[0]
    # more digits than an int64 has cannot be an offset, and would be slow to parse
    if not digits.isdecimal() or len(digits) > 20:
        return None
    offset = int(digits)
    return offset if offset <= MAX_OFFSET else None


def offsets_of(names: Iterable[str], suffix: str) -> dict[str, int]:
    """The names with a suffix that are those of an offset, and their offsets."""
    offsets: dict[str, int] = {}
    for name in names:
        if name.endswith(suffix) and (offset := parse_base_offset(name)) is not None:
            offsets[name] = offset
    return offsets


def is_fatal_name(file_name: str) -> bool:
    """Whether a file of this name in a partition keeps a broker from starting.

    The broker parses the part before the first dot of a segment's file name as an offset. If that fails, nothing
    catches the exception. A sign and any number of leading zeros are accepted.
    Source: LogFileUtils.offsetFromFile, LogLoader, ProducerStateManager, Kafka 4.3.
    """
    if not file_name.endswith(_OFFSET_SUFFIXES):
        return False
    text = file_name.partition(".")[0]
    sign, digits = (text[0], text[1:]) if text[:1] in ("+", "-") else ("", text)
    return not digits.isdecimal() or not -MAX_OFFSET - 1 <= int(sign + digits) <= MAX_OFFSET


def segment_file_name(base_offset: int, suffix: str = LOG_SUFFIX) -> str:
    """Name of a segment's file: the base offset in 20 ASCII digits, and a suffix."""
    return f"{base_offset:020d}{suffix}"


PACKED_LOG_SUFFIXES: Final = tuple(f"{LOG_SUFFIX}{suffix}" for suffix in (".gz", ".zst", ".bz2", ".xz", ".lz4"))
"""What compressed `.log` files are called, as in backups."""

MAX_SEGMENT_BYTES: Final = 2**31 - 1
"""Largest file of a segment: positions in it are int32."""
MAX_RELATIVE_OFFSET: Final = 2**31 - 1
"""Largest distance from the segment's base offset that an index entry can hold."""


def sidecar_name(log_name: str, suffix: str) -> str:
    """Name or path of the index that belongs to a `.log`; the index of a `.log.swap` also ends in `.swap`."""
    stem, log_suffix, rest = log_name.rpartition(LOG_SUFFIX)
    return stem + suffix + rest if log_suffix else log_name + suffix


class RaftSnapshot(NamedTuple):
    """What the name of a snapshot of the metadata log tells (`Snapshots.parse`)."""

    end_offset: int
    epoch: int


_RAFT_SNAPSHOT: Final = re.compile(rf"(\d{{20}})-(\d{{10}}){re.escape(RAFT_SNAPSHOT_SUFFIX)}")


def parse_raft_snapshot(file_name: str) -> RaftSnapshot | None:
    """The end offset and the epoch in the name of a snapshot of the metadata log; None for other names."""
    match = _RAFT_SNAPSHOT.fullmatch(file_name)
    return None if match is None else RaftSnapshot(int(match[1]), int(match[2]))


def raft_snapshots(names: Iterable[str]) -> dict[str, RaftSnapshot]:
    """The names of snapshots of the metadata log among some names, in their order, and what they tell."""
    return {name: parsed for name in names if (parsed := parse_raft_snapshot(name)) is not None}


def raft_snapshot_name(end_offset: int, epoch: int) -> str:
    """Name of a snapshot of the metadata log."""
    return f"{end_offset:020d}-{epoch:010d}{RAFT_SNAPSHOT_SUFFIX}"


def moved_names(log_name: str) -> tuple[str, str]:
    """Where a running broker moves a `.log` or `.log.swap`: to its final name, or to that under which it is deleted.

    Source: LocalLog.replaceSegments, LocalLog.deleteSegmentFiles, Kafka 4.3.
    """
    final = log_name.removesuffix(SWAP_SUFFIX)
    return final, final + DELETED_SUFFIX


def milliseconds(moment: datetime) -> int:
    """Convert an aware datetime to milliseconds since 1970 (UTC), rounded up to a whole millisecond."""
    # rounded up, by a floor division of the negative: no time may count as one before it
    return -((_EPOCH - moment) // timedelta(milliseconds=1))


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def codec_name(codec: int) -> str:
    """Name of a codec id: `"none"`, `"gzip"`, ...; `"unknown(n)"` for ids that Kafka does not define."""
    return CODEC_NAMES[codec & CODEC_MASK]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        own = [one for one, value in globals().items() if getattr(value, "__module__", __name__) == __name__]
        names = [one for one in own if not one.startswith("_") and not isinstance(globals()[one], ModuleType)]
        missing_in_module(__name__, names, name)
