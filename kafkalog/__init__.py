"""kafkalog reads Apache Kafka's on-disk log (segment files and their indexes) without a broker, in columns.

>>> import kafkalog
>>> table = kafkalog.read_table("tests/golden/log_dir", topics="p-multi")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kafkalog.errors import (
    CorruptionError,
    CorruptionWarning,
    FileChangedError,
    Finding,
    KafkalogError,
    LimitExceededError,
    Limits,
    NotKafkaError,
    ReadError,
    Reason,
    SidecarError,
    TruncatedTailError,
    UnsupportedError,
)

if TYPE_CHECKING:
    from kafkalog.api import open, read_numpy, read_pandas, read_table, scan
    from kafkalog.batches import BatchTable
    from kafkalog.dumper import Dump, dump
    from kafkalog.format import Codec, ControlRecordType, TimestampType, TopicPartition
    from kafkalog.indexes import OffsetIndex, TimeIndex, TransactionIndex
    from kafkalog.log_dir import LogDir
    from kafkalog.partition import Partition
    from kafkalog.records import BinaryColumn, HeadersColumn, RecordColumns
    from kafkalog.scanner import Scan
    from kafkalog.segment import Segment

__version__ = "0.1.0"

# Arrow and NumPy take longer to import than a small job takes to run: they come with the first use
_LAZY = {
    "open": "api",
    "scan": "api",
    "read_table": "api",
    "read_pandas": "api",
    "read_numpy": "api",
    "BatchTable": "batches",
    "OffsetIndex": "indexes",
    "TimeIndex": "indexes",
    "TransactionIndex": "indexes",
    "Codec": "format",
    "ControlRecordType": "format",
    "TimestampType": "format",
    "TopicPartition": "format",
    "Dump": "dumper",
    "dump": "dumper",
    "LogDir": "log_dir",
    "Partition": "partition",
    "BinaryColumn": "records",
    "HeadersColumn": "records",
    "RecordColumns": "records",
    "Scan": "scanner",
    "Segment": "segment",
}

__all__ = [
    "BatchTable",
    "BinaryColumn",
    "Codec",
    "ControlRecordType",
    "CorruptionError",
    "CorruptionWarning",
    "Dump",
    "FileChangedError",
    "Finding",
    "HeadersColumn",
    "KafkalogError",
    "LimitExceededError",
    "Limits",
    "LogDir",
    "NotKafkaError",
    "OffsetIndex",
    "Partition",
    "ReadError",
    "Reason",
    "RecordColumns",
    "Scan",
    "Segment",
    "SidecarError",
    "TimeIndex",
    "TimestampType",
    "TopicPartition",
    "TransactionIndex",
    "TruncatedTailError",
    "UnsupportedError",
    "dump",
    "open",
    "read_numpy",
    "read_pandas",
    "read_table",
    "scan",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(f"kafkalog.{_LAZY[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'kafkalog' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
