"""kafkalog reads Apache Kafka's on-disk log (segment files and their indexes) without a broker, in columns.

>>> import kafkalog
>>> table = kafkalog.read_table("tests/golden/log_dir", topics="p-multi")
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from kafkalog.errors import (
    ConfigWarning,
    CorruptionError,
    CorruptionWarning,
    FileChangedError,
    Finding,
    KafkalogError,
    LimitExceededError,
    Limits,
    NotKafkaError,
    OutputExistsError,
    ReadError,
    Reason,
    SidecarError,
    TransactionWarning,
    TruncatedTailError,
    UnsafePathError,
    UnsupportedError,
    WriteError,
)

if TYPE_CHECKING:
    from kafkalog.api import read_numpy, read_pandas, read_table, scan
    from kafkalog.batch_scan import BatchScan, scan_batches
    from kafkalog.batches import BatchTable
    from kafkalog.columns import BinaryColumn, HeadersColumn, RecordColumns
    from kafkalog.config import LogConfig
    from kafkalog.converter import convert
    from kafkalog.converter.report import ConversionReport
    from kafkalog.dumper import Dump, dump
    from kafkalog.exporter import ExportResult, export
    from kafkalog.format import Codec, ControlRecordType, TimestampType, TopicPartition
    from kafkalog.index_measures import IndexMeasures
    from kafkalog.index_statistics import IndexStatistics, RollLimits
    from kafkalog.indexes import OffsetIndex, TimeIndex, TransactionIndex
    from kafkalog.installer import InstallReport, install
    from kafkalog.loader import LoadResult, load_files, write_table
    from kafkalog.log_dir import LogDir
    from kafkalog.opening import open
    from kafkalog.partition import Partition
    from kafkalog.repair.rebuild import rebuild_indexes
    from kafkalog.repair.report import RebuildReport
    from kafkalog.repair.verify import verify
    from kafkalog.scanner import Scan
    from kafkalog.segment import Segment
    from kafkalog.writer import AppendResult, PartitionWriter, Producer

__version__ = "0.1.0"

# Arrow and NumPy take longer to import than a small job takes to run: they come with the first use
_LAZY = {
    "open": "opening",
    "scan": "api",
    "read_table": "api",
    "read_pandas": "api",
    "read_numpy": "api",
    "export": "exporter",
    "scan_batches": "batch_scan",
    "verify": "repair.verify",
    "BatchScan": "batch_scan",
    "ExportResult": "exporter",
    "BatchTable": "batches",
    "IndexMeasures": "index_measures",
    "IndexStatistics": "index_statistics",
    "RollLimits": "index_statistics",
    "OffsetIndex": "indexes",
    "TimeIndex": "indexes",
    "TransactionIndex": "indexes",
    "Codec": "format",
    "ControlRecordType": "format",
    "TimestampType": "format",
    "TopicPartition": "format",
    "ConversionReport": "converter.report",
    "convert": "converter",
    "Dump": "dumper",
    "dump": "dumper",
    "LogConfig": "config",
    "LoadResult": "loader",
    "load_files": "loader",
    "write_table": "loader",
    "LogDir": "log_dir",
    "Partition": "partition",
    "BinaryColumn": "columns",
    "HeadersColumn": "columns",
    "RecordColumns": "columns",
    "RebuildReport": "repair.report",
    "rebuild_indexes": "repair.rebuild",
    "Scan": "scanner",
    "Segment": "segment",
    "InstallReport": "installer",
    "install": "installer",
    "AppendResult": "writer",
    "PartitionWriter": "writer",
    "Producer": "writer",
}

__all__ = [
    "AppendResult",
    "BatchScan",
    "BatchTable",
    "BinaryColumn",
    "Codec",
    "ConfigWarning",
    "ControlRecordType",
    "ConversionReport",
    "CorruptionError",
    "CorruptionWarning",
    "Dump",
    "ExportResult",
    "FileChangedError",
    "Finding",
    "HeadersColumn",
    "IndexMeasures",
    "IndexStatistics",
    "InstallReport",
    "KafkalogError",
    "LimitExceededError",
    "Limits",
    "LoadResult",
    "LogConfig",
    "LogDir",
    "NotKafkaError",
    "OffsetIndex",
    "OutputExistsError",
    "Partition",
    "PartitionWriter",
    "Producer",
    "ReadError",
    "Reason",
    "RebuildReport",
    "RecordColumns",
    "RollLimits",
    "Scan",
    "Segment",
    "SidecarError",
    "TimeIndex",
    "TimestampType",
    "TopicPartition",
    "TransactionIndex",
    "TransactionWarning",
    "TruncatedTailError",
    "UnsafePathError",
    "UnsupportedError",
    "WriteError",
    "convert",
    "dump",
    "export",
    "install",
    "load_files",
    "open",
    "read_numpy",
    "read_pandas",
    "read_table",
    "rebuild_indexes",
    "scan",
    "scan_batches",
    "verify",
    "write_table",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(f"kafkalog.{_LAZY[name]}"), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module 'kafkalog' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *_LAZY})
