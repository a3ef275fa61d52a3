"""Read and write Apache Kafka's on-disk log (segment files and their indexes) in columns, without a broker.

>>> import kafkalog
>>> table = kafkalog.read_table("tests/golden/log_dir", topics="p-multi")
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if find_spec("kafkalog._kernels.wire") is None:
    # Python's own error would only name the missing module, not why it is missing
    raise ImportError(
        f"no kernels compiled for Python {sys.version_info[0]}.{sys.version_info[1]} in {__path__[0]}/_kernels, so this"
        f" is a source folder: run `pip install -e .` in {os.path.dirname(__path__[0])}, or start Python in another"
        " directory to import the kafkalog that is installed",
        name=__name__,
    )

from kafkalog.errors import (
    ConfigWarning,
    CorruptionError,
    CorruptionWarning,
    FileChangedError,
    Finding,
    FunctionWarning,
    KafkalogError,
    LimitExceededError,
    Limits,
    Loss,
    NotKafkaError,
    OutputExistsError,
    ReadError,
    Reason,
    SidecarError,
    TransactionWarning,
    TruncatedTailError,
    UnsafePathError,
    UnsupportedError,
    UnwritableError,
    WriteError,
)

if TYPE_CHECKING:
    from kafkalog.format import Codec, ControlRecordType, TimestampType, TopicPartition
    from kafkalog.indexes.index_files import OffsetIndex, TimeIndex, TransactionIndex
    from kafkalog.indexes.measures import IndexMeasures
    from kafkalog.indexes.statistics import IndexStatistics
    from kafkalog.internal.groups import Group, GroupMember, GroupOffset, Groups, groups
    from kafkalog.internal.history import History, StateRecord, history
    from kafkalog.internal.list_producers import PartitionProducers
    from kafkalog.internal.metadata import Metadata, metadata
    from kafkalog.internal.remote_log import RemoteLog, RemoteSegment, remote_log
    from kafkalog.internal.schemas import Schema, SchemaReference, Schemas, schemas
    from kafkalog.internal.share_state import Delivery
    from kafkalog.internal.transactions import OpenTransaction, Transaction, Transactions, transactions
    from kafkalog.log.log_dir import LogDir
    from kafkalog.log.open import open, open_log_dir, open_partition, open_segment
    from kafkalog.log.partition import Partition
    from kafkalog.log.segment import Segment
    from kafkalog.operations.converting.convert import convert
    from kafkalog.operations.converting.report import ConversionReport
    from kafkalog.operations.dumping.dump import Dump, dump
    from kafkalog.operations.exporting.export import ExportResult, export
    from kafkalog.operations.listing import PartitionSummary, SegmentSummary
    from kafkalog.operations.loading.install import InstallReport, install
    from kafkalog.operations.loading.load import load, write_table
    from kafkalog.operations.loading.report import LoadResult
    from kafkalog.operations.partition_facts import PartitionEpochs, epochs, index_stats, lookup, ls, producers
    from kafkalog.operations.rebuilding.rebuild import reindex
    from kafkalog.operations.rebuilding.report import RebuildReport
    from kafkalog.operations.records import Record, cat
    from kafkalog.operations.trace_lookup import Trace
    from kafkalog.operations.verifying.segment import VerifiedSegment
    from kafkalog.operations.verifying.verify import Verification, VerifiedPartition, verify
    from kafkalog.records.batch_table import BatchTable
    from kafkalog.records.codecs import Compression
    from kafkalog.records.columns import BinaryColumn, HeadersColumn, RecordColumns
    from kafkalog.repair.cutting.trim import trim
    from kafkalog.repair.cutting.truncate import truncate
    from kafkalog.repair.diff import ReplicaDiff, diff
    from kafkalog.repair.merging.merge import merge
    from kafkalog.repair.merging.report import MergeReport
    from kafkalog.repair.recovering.recover import recover
    from kafkalog.repair.recovering.report import RecoveryReport
    from kafkalog.repair.salvaging.report import SalvageReport
    from kafkalog.repair.salvaging.salvage import salvage
    from kafkalog.repair.startup.forecast import Preflight
    from kafkalog.repair.startup.preflight import preflight
    from kafkalog.scanning.batch_scan import BatchScan, batches
    from kafkalog.scanning.explain import Explanation
    from kafkalog.scanning.read import dataset, read_numpy, read_pandas, read_polars, read_table, scan
    from kafkalog.scanning.scan import Scan
    from kafkalog.state.leader_epochs import EpochEndOffset
    from kafkalog.state.log_config import LogConfig
    from kafkalog.state.producers import ProducerSnapshot
    from kafkalog.values.decoding import DecodeWarning
    from kafkalog.writing.partition_writer import AppendResult, PartitionWriter, Producer

__version__ = "0.2.0"

# Importing Arrow and NumPy takes longer than a small job takes to run, so they are imported on first use
_LAZY = {
    "VerifiedSegment": "operations.verifying.segment",
    "VerifiedPartition": "operations.verifying.verify",
    "Explanation": "scanning.explain",
    "PartitionProducers": "internal.list_producers",
    "Trace": "operations.trace_lookup",
    "SegmentSummary": "operations.listing",
    "PartitionSummary": "operations.listing",
    "Record": "operations.records",
    "cat": "operations.records",
    "PartitionEpochs": "operations.partition_facts",
    "epochs": "operations.partition_facts",
    "groups": "internal.groups",
    "Groups": "internal.groups",
    "Group": "internal.groups",
    "GroupMember": "internal.groups",
    "GroupOffset": "internal.groups",
    "Delivery": "internal.share_state",
    "remote_log": "internal.remote_log",
    "RemoteLog": "internal.remote_log",
    "RemoteSegment": "internal.remote_log",
    "metadata": "internal.metadata",
    "Metadata": "internal.metadata",
    "history": "internal.history",
    "History": "internal.history",
    "StateRecord": "internal.history",
    "transactions": "internal.transactions",
    "Transactions": "internal.transactions",
    "Transaction": "internal.transactions",
    "OpenTransaction": "internal.transactions",
    "schemas": "internal.schemas",
    "Schemas": "internal.schemas",
    "Schema": "internal.schemas",
    "SchemaReference": "internal.schemas",
    "producers": "operations.partition_facts",
    "index_stats": "operations.partition_facts",
    "lookup": "operations.partition_facts",
    "ls": "operations.partition_facts",
    "read_polars": "scanning.read",
    "open_segment": "log.open",
    "open_partition": "log.open",
    "open_log_dir": "log.open",
    "open": "log.open",
    "scan": "scanning.read",
    "dataset": "scanning.read",
    "read_table": "scanning.read",
    "read_pandas": "scanning.read",
    "read_numpy": "scanning.read",
    "export": "operations.exporting.export",
    "batches": "scanning.batch_scan",
    "verify": "operations.verifying.verify",
    "Verification": "operations.verifying.verify",
    "Compression": "records.codecs",
    "EpochEndOffset": "state.leader_epochs",
    "ProducerSnapshot": "state.producers",
    "BatchScan": "scanning.batch_scan",
    "ExportResult": "operations.exporting.export",
    "BatchTable": "records.batch_table",
    "IndexMeasures": "indexes.measures",
    "IndexStatistics": "indexes.statistics",
    "OffsetIndex": "indexes.index_files",
    "TimeIndex": "indexes.index_files",
    "TransactionIndex": "indexes.index_files",
    "Codec": "format",
    "ControlRecordType": "format",
    "TimestampType": "format",
    "TopicPartition": "format",
    "DecodeWarning": "values.decoding",
    "ConversionReport": "operations.converting.report",
    "convert": "operations.converting.convert",
    "Dump": "operations.dumping.dump",
    "dump": "operations.dumping.dump",
    "LogConfig": "state.log_config",
    "LoadResult": "operations.loading.report",
    "load": "operations.loading.load",
    "write_table": "operations.loading.load",
    "LogDir": "log.log_dir",
    "Partition": "log.partition",
    "BinaryColumn": "records.columns",
    "HeadersColumn": "records.columns",
    "RecordColumns": "records.columns",
    "RebuildReport": "operations.rebuilding.report",
    "reindex": "operations.rebuilding.rebuild",
    "ReplicaDiff": "repair.diff",
    "diff": "repair.diff",
    "MergeReport": "repair.merging.report",
    "merge": "repair.merging.merge",
    "SalvageReport": "repair.salvaging.report",
    "salvage": "repair.salvaging.salvage",
    "Scan": "scanning.scan",
    "Preflight": "repair.startup.forecast",
    "preflight": "repair.startup.preflight",
    "truncate": "repair.cutting.truncate",
    "trim": "repair.cutting.trim",
    "RecoveryReport": "repair.recovering.report",
    "recover": "repair.recovering.recover",
    "Segment": "log.segment",
    "InstallReport": "operations.loading.install",
    "install": "operations.loading.install",
    "AppendResult": "writing.partition_writer",
    "PartitionWriter": "writing.partition_writer",
    "Producer": "writing.partition_writer",
}

__all__ = [
    "AppendResult",
    "BatchScan",
    "BatchTable",
    "BinaryColumn",
    "Codec",
    "Compression",
    "ConfigWarning",
    "ControlRecordType",
    "ConversionReport",
    "CorruptionError",
    "CorruptionWarning",
    "DecodeWarning",
    "Delivery",
    "Dump",
    "EpochEndOffset",
    "Explanation",
    "ExportResult",
    "FileChangedError",
    "Finding",
    "FunctionWarning",
    "Group",
    "GroupMember",
    "GroupOffset",
    "Groups",
    "HeadersColumn",
    "History",
    "IndexMeasures",
    "IndexStatistics",
    "InstallReport",
    "KafkalogError",
    "LimitExceededError",
    "Limits",
    "LoadResult",
    "LogConfig",
    "LogDir",
    "Loss",
    "MergeReport",
    "Metadata",
    "NotKafkaError",
    "OffsetIndex",
    "OpenTransaction",
    "OutputExistsError",
    "Partition",
    "PartitionEpochs",
    "PartitionProducers",
    "PartitionSummary",
    "PartitionWriter",
    "Preflight",
    "Producer",
    "ProducerSnapshot",
    "ReadError",
    "Reason",
    "RebuildReport",
    "Record",
    "RecordColumns",
    "RecoveryReport",
    "RemoteLog",
    "RemoteSegment",
    "ReplicaDiff",
    "SalvageReport",
    "Scan",
    "Schema",
    "SchemaReference",
    "Schemas",
    "Segment",
    "SegmentSummary",
    "SidecarError",
    "StateRecord",
    "TimeIndex",
    "TimestampType",
    "TopicPartition",
    "Trace",
    "Transaction",
    "TransactionIndex",
    "TransactionWarning",
    "Transactions",
    "TruncatedTailError",
    "UnsafePathError",
    "UnsupportedError",
    "UnwritableError",
    "Verification",
    "VerifiedPartition",
    "VerifiedSegment",
    "WriteError",
    "batches",
    "cat",
    "convert",
    "dataset",
    "diff",
    "dump",
    "epochs",
    "export",
    "groups",
    "history",
    "index_stats",
    "install",
    "load",
    "lookup",
    "ls",
    "merge",
    "metadata",
    "open",
    "open_log_dir",
    "open_partition",
    "open_segment",
    "preflight",
    "producers",
    "read_numpy",
    "read_pandas",
    "read_polars",
    "read_table",
    "recover",
    "reindex",
    "remote_log",
    "salvage",
    "scan",
    "schemas",
    "transactions",
    "trim",
    "truncate",
    "verify",
    "write_table",
]


# what else one might call a function, and what it is called here
_OTHER_NAMES = {
    "to_pandas": "read_pandas",
    "to_polars": "read_polars",
    "to_table": "read_table",
    "to_numpy": "read_numpy",
    "read": "read_table",
    "read_arrow": "read_table",
    "read_parquet": "export",
    "to_parquet": "export",
    "count": "scan(path).count_rows()",
    "count_rows": "scan(path).count_rows()",
    "head": "scan(path).head(n)",
    "tail": "scan(path).tail(n)",
    "list": "ls",
    "topics": "open_log_dir(path).topics",
    "partitions": "ls",
    "check": "verify",
    "rebuild_indexes": "reindex",
    "scan_batches": "batches",
    "load_files": "load",
    "write": "write_table",
    "write_pandas": "write_table",
    "find": "lookup",
    "index_statistics": "index_stats",
}
_PUBLIC_MODULES = ("errors", "format", "functions", "spark")


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(f"kafkalog.{_LAZY[name]}"), name)
        globals()[name] = value
        return value
    if name in _PUBLIC_MODULES:
        return importlib.import_module(f"kafkalog.{name}")
    message = f"module 'kafkalog' has no attribute {name!r}"
    if not name.startswith("_"):
        from kafkalog.parsing import near

        meant = _OTHER_NAMES.get(name) or near(name, __all__)
        message += f"; did you mean kafkalog.{meant}?" if meant else ""
    raise AttributeError(message)


def __dir__() -> list[str]:
    """What users call: no modules of the inside, however many are imported."""
    return sorted({*__all__, *_PUBLIC_MODULES, "__version__", "__doc__", "__file__", "__name__", "__path__"})
