"""Read and write Apache Kafka's on-disk log (segment files and their indexes) in columns, without a broker.

>>> import kafkalog
>>> table = kafkalog.read_table("tests/golden/log_dir", topics="p-multi")
"""

from __future__ import annotations

import importlib
import os
import sys
from importlib.util import find_spec
from types import ModuleType
from typing import Any, NoReturn

if find_spec("kafkalog._kernels.wire") is None:
    # Python's own error would only name the missing module, not why it is missing
    raise ImportError(
        f"no kernels compiled for Python {sys.version_info[0]}.{sys.version_info[1]} in {__path__[0]}/_kernels, so this"
        f" is a source folder: run `pip install -e .` in {os.path.dirname(__path__[0])}, or start Python in another"
        " directory to import the kafkalog that is installed",
        name=__name__,
    )

__version__ = "0.2.0"


# Importing Arrow and NumPy takes longer than a small job takes to run, so names are imported on first use. So are the
# errors: dataclasses take as long to import as Python to start
_MODULES = {
    "booting.boot": "boot",
    "booting.quorum": "QuorumRescue rescue_quorum",
    "booting.report": "BootReport",
    "booting.sample": "sample",
    "errors": (
        "ConfigWarning CorruptionError CorruptionWarning FileChangedError Finding FunctionWarning "
        "KafkalogError LimitExceededError Limits Loss NotKafkaError OutputExistsError ReadError "
        "Reason SidecarError TransactionWarning TruncatedTailError UnsafePathError UnsupportedError "
        "UnwritableError WriteError"
    ),
    "format": "Codec ControlRecordType TimestampType TopicPartition",
    "indexes.index_files": "OffsetIndex TimeIndex TransactionIndex",
    "indexes.statistics": "IndexStatistics",
    "log.log_dir": "LogDir",
    "log.open": "open open_buffer open_log_dir open_partition open_segment",
    "log.partition": "Partition",
    "log.segment": "Segment",
    "operations.cat": "Record cat",
    "operations.converting.convert": "convert",
    "operations.converting.converted_partitions": "ConversionReport",
    "operations.dumping.dump": "Dump dump",
    "operations.exporting.export": "ExportResult export",
    "operations.inspecting": "epochs index_stats lookup ls producers",
    "operations.listing": "PartitionSummary",
    "operations.loading.install": "InstallReport install",
    "operations.loading.load": "load write_table",
    "operations.loading.loaded_partitions": "LoadResult",
    "operations.querying": "QueryResult sql",
    "operations.rebuilding.rebuilt_files": "RebuildReport",
    "operations.rebuilding.reindex": "reindex",
    "operations.remote_storage": "StorageReport restore_tiered verify_tiered",
    "operations.trace_lookup": "Lookup",
    "operations.verifying.verified_partitions": "Verification",
    "operations.verifying.verify": "verify",
    "records.batch_table": "BatchTable",
    "records.byte_columns": "BinaryColumn HeadersColumn",
    "records.codecs": "Compression",
    "records.columns": "RecordColumns",
    "repair.compacting.compact": "compact",
    "repair.compacting.compacted_partitions": "CompactionReport",
    "repair.cutting.trim": "trim",
    "repair.cutting.truncate": "truncate",
    "repair.diff": "ReplicaDiff diff",
    "repair.merging.merge": "merge",
    "repair.merging.merged_partitions": "MergeReport",
    "repair.recovering.preflight": "preflight",
    "repair.recovering.recover": "recover",
    "repair.recovering.recovered_partitions": "Preflight RecoveryReport",
    "repair.salvaging.quarantine": "open_quarantine",
    "repair.salvaging.salvage": "salvage",
    "repair.salvaging.salvaged_partitions": "SalvageReport",
    "reporting.report": "Report report",
    "reporting.space": "Space space",
    "scanning.batch_scan": "BatchScan batches",
    "scanning.read": "dataset read_numpy read_pandas read_polars read_table scan",
    "scanning.scan": "Scan",
    "state.log_config": "LogConfig",
    "state.producers": "ProducerSnapshot",
    "storage.location": "Location",
    "storage.stores": "location",
    "system_topics.groups": "Groups groups",
    "system_topics.history": "History history",
    "system_topics.metadata": "Metadata metadata",
    "system_topics.remote_log": "RemoteLog remote_log",
    "system_topics.schemas": "Schemas schemas",
    "system_topics.transactions": "Transactions transactions",
    "tiered.joined": "tiered_location",
    "undeleting.undelete": "undelete",
    "values.decoding": "DecodeWarning",
    "writing.partition_writer": "PartitionWriter Producer",
}
"""The public names by module, as in `__init__.pyi`, which type checkers read and bundles of programs leave out."""
_NAMES = {name: f"kafkalog.{module}" for module, names in _MODULES.items() for name in names.split()}
_PUBLIC_MODULES = ("codec", "errors", "format", "functions", "spark", "types")

__all__ = sorted(_NAMES)


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        value = getattr(importlib.import_module(_NAMES[name]), name)
        if type(value) is type(__getattr__):
            from kafkalog.calls import leading

            value = leading(value)
            value.__module__ = __name__  # pickles name the module in which a function is found
        globals()[name] = value
        return value
    if name in _PUBLIC_MODULES:
        return importlib.import_module(f"kafkalog.{name}")
    if name == "comparing":
        importlib.import_module("kafkalog.comparing.content")
        return sys.modules["kafkalog.comparing"]
    if name == "column_arrays":  # for methods of records
        return importlib.import_module("kafkalog.interchange.column_arrays")
    if name[:1].isupper():
        # until 0.3, these are found here too
        types = importlib.import_module("kafkalog.types")
        if name in types.__all__:
            return getattr(types, name)
    message = f"module 'kafkalog' has no attribute {name!r}"
    if not name.startswith("_"):
        from kafkalog.words import names_like, unknown_function

        if meant := unknown_function(name, __all__) or names_like(name, __all__):
            # with an object, Python would add the name that is most similar, however little
            raise AttributeError(f"{message}; {meant}", name=name, obj=None)
    raise AttributeError(message)


class _Package(ModuleType):
    """The package: its internal modules, of which some are called like verbs, name the function that is meant."""

    def __setattr__(self, name: str, value: Any) -> None:
        if type(value) is ModuleType and name not in _PUBLIC_MODULES:
            value.__class__ = _Internal
        super().__setattr__(name, value)


class _Internal(ModuleType):
    def __call__(self, *args: Any, **options: Any) -> NoReturn:
        from kafkalog.words import unknown_function

        name = self.__name__.rpartition(".")[2]
        raise TypeError(f"kafkalog.{name} is a package of modules; {unknown_function(name, __all__)}")


sys.modules[__name__].__class__ = _Package


def __dir__() -> list[str]:
    """Return the public names, without the internal modules that are imported."""
    return sorted({*__all__, *_PUBLIC_MODULES, "__version__", "__doc__", "__file__", "__name__", "__path__"})
