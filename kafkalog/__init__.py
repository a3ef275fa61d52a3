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

if TYPE_CHECKING:
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
    from kafkalog.format import Codec, ControlRecordType, TimestampType, TopicPartition
    from kafkalog.indexes.index_files import OffsetIndex, TimeIndex, TransactionIndex
    from kafkalog.indexes.measures import IndexMeasures
    from kafkalog.indexes.statistics import IndexStatistics
    from kafkalog.log.log_dir import LogDir
    from kafkalog.log.open import open, open_buffer, open_log_dir, open_partition, open_segment
    from kafkalog.log.partition import Partition
    from kafkalog.log.segment import Segment
    from kafkalog.operations.cat import Record, cat
    from kafkalog.operations.converting.convert import convert
    from kafkalog.operations.converting.report import ConversionReport
    from kafkalog.operations.dumping.dump import Dump, dump
    from kafkalog.operations.exporting.export import ExportResult, export
    from kafkalog.operations.inspecting import PartitionEpochs, epochs, index_stats, lookup, ls, producers
    from kafkalog.operations.listing import PartitionSummary, SegmentSummary
    from kafkalog.operations.loading.install import InstallReport, install
    from kafkalog.operations.loading.load import load, write_table
    from kafkalog.operations.loading.report import LoadResult
    from kafkalog.operations.rebuilding.reindex import reindex
    from kafkalog.operations.rebuilding.report import RebuildReport
    from kafkalog.operations.trace_lookup import Lookup, Trace
    from kafkalog.operations.verifying.report import Verification, VerifiedPartition, VerifiedSegment
    from kafkalog.operations.verifying.verify import verify
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
    from kafkalog.system_topics.groups import Group, GroupMember, GroupOffset, Groups, groups
    from kafkalog.system_topics.history import History, StateRecord, history
    from kafkalog.system_topics.list_producers import PartitionProducers
    from kafkalog.system_topics.metadata import Metadata, metadata
    from kafkalog.system_topics.remote_log import RemoteLog, RemoteSegment, remote_log
    from kafkalog.system_topics.schemas import Schema, SchemaReference, Schemas, schemas
    from kafkalog.system_topics.share_state import Delivery
    from kafkalog.system_topics.transactions import OpenTransaction, Transaction, Transactions, transactions
    from kafkalog.values.decoding import DecodeWarning
    from kafkalog.writing.partition_writer import AppendResult, PartitionWriter, Producer

__version__ = "0.2.0"

# Importing Arrow and NumPy takes longer than a small job takes to run, so they are imported on first use. So are the
# errors: dataclasses take as long to import as Python to start
_HOMES = {
    "errors": (
        "ConfigWarning",
        "CorruptionError",
        "CorruptionWarning",
        "FileChangedError",
        "Finding",
        "FunctionWarning",
        "KafkalogError",
        "LimitExceededError",
        "Limits",
        "Loss",
        "NotKafkaError",
        "OutputExistsError",
        "ReadError",
        "Reason",
        "SidecarError",
        "TransactionWarning",
        "TruncatedTailError",
        "UnsafePathError",
        "UnsupportedError",
        "UnwritableError",
        "WriteError",
    ),
    "format": ("Codec", "ControlRecordType", "TimestampType", "TopicPartition"),
    "indexes.index_files": ("OffsetIndex", "TimeIndex", "TransactionIndex"),
    "indexes.measures": ("IndexMeasures",),
    "indexes.statistics": ("IndexStatistics",),
    "system_topics.groups": ("Group", "GroupMember", "GroupOffset", "Groups", "groups"),
    "system_topics.history": ("History", "StateRecord", "history"),
    "system_topics.list_producers": ("PartitionProducers",),
    "system_topics.metadata": ("Metadata", "metadata"),
    "system_topics.remote_log": ("RemoteLog", "RemoteSegment", "remote_log"),
    "system_topics.schemas": ("Schema", "SchemaReference", "Schemas", "schemas"),
    "system_topics.share_state": ("Delivery",),
    "system_topics.transactions": ("OpenTransaction", "Transaction", "Transactions", "transactions"),
    "log.log_dir": ("LogDir",),
    "log.open": ("open", "open_buffer", "open_log_dir", "open_partition", "open_segment"),
    "log.partition": ("Partition",),
    "log.segment": ("Segment",),
    "operations.converting.convert": ("convert",),
    "operations.converting.report": ("ConversionReport",),
    "operations.dumping.dump": ("Dump", "dump"),
    "operations.exporting.export": ("ExportResult", "export"),
    "operations.listing": ("PartitionSummary", "SegmentSummary"),
    "operations.loading.install": ("InstallReport", "install"),
    "operations.loading.load": ("load", "write_table"),
    "operations.loading.report": ("LoadResult",),
    "operations.inspecting": ("PartitionEpochs", "epochs", "index_stats", "lookup", "ls", "producers"),
    "operations.rebuilding.reindex": ("reindex",),
    "operations.rebuilding.report": ("RebuildReport",),
    "operations.cat": ("Record", "cat"),
    "operations.trace_lookup": ("Lookup", "Trace"),
    "operations.verifying.report": ("Verification", "VerifiedPartition", "VerifiedSegment"),
    "operations.verifying.verify": ("verify",),
    "records.batch_table": ("BatchTable",),
    "records.codecs": ("Compression",),
    "records.columns": ("BinaryColumn", "HeadersColumn", "RecordColumns"),
    "repair.cutting.trim": ("trim",),
    "repair.cutting.truncate": ("truncate",),
    "repair.diff": ("ReplicaDiff", "diff"),
    "repair.merging.merge": ("merge",),
    "repair.merging.report": ("MergeReport",),
    "repair.recovering.recover": ("recover",),
    "repair.recovering.report": ("RecoveryReport",),
    "repair.salvaging.report": ("SalvageReport",),
    "repair.salvaging.salvage": ("salvage",),
    "repair.startup.forecast": ("Preflight",),
    "repair.startup.preflight": ("preflight",),
    "scanning.batch_scan": ("BatchScan", "batches"),
    "scanning.explain": ("Explanation",),
    "scanning.read": ("dataset", "read_numpy", "read_pandas", "read_polars", "read_table", "scan"),
    "scanning.scan": ("Scan",),
    "state.leader_epochs": ("EpochEndOffset",),
    "state.log_config": ("LogConfig",),
    "state.producers": ("ProducerSnapshot",),
    "values.decoding": ("DecodeWarning",),
    "writing.partition_writer": ("AppendResult", "PartitionWriter", "Producer"),
}
_LAZY = {name: module for module, names in _HOMES.items() for name in names}

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
    "Lookup",
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
    "open_buffer",
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
        from kafkalog.text import near

        meant = near(name, __all__)
        message += f"; did you mean kafkalog.{meant}?" if meant else ""
    raise AttributeError(message)


def __dir__() -> list[str]:
    """What users call: no modules of the inside, however many are imported."""
    return sorted({*__all__, *_PUBLIC_MODULES, "__version__", "__doc__", "__file__", "__name__", "__path__"})
