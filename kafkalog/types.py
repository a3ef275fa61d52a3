"""Types of the parts of results and of options, for annotations: functions return or take them, nobody creates them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from kafkalog.indexes.measures import IndexMeasures
from kafkalog.operations.inspecting import (
    EpochsOptions,
    ListOptions,
    LookupOptions,
    PartitionEpochs,
    ProducersOptions,
)
from kafkalog.operations.listing import SegmentSummary
from kafkalog.operations.remote_storage import StorageFault
from kafkalog.operations.trace_lookup import Trace
from kafkalog.operations.verifying.values import VerifiedValues
from kafkalog.operations.verifying.verified_partitions import VerifiedPartition, VerifiedSegment
from kafkalog.operations.verifying.verify import VerifyOptions
from kafkalog.repair.compacting.compacted_partitions import CompactedPartition
from kafkalog.scanning.options import ScanOptions
from kafkalog.scanning.query import Explanation
from kafkalog.state.leader_epochs import EpochEndOffset
from kafkalog.system_topics.groups import Group, GroupMember, GroupOffset
from kafkalog.system_topics.history import StateRecord
from kafkalog.system_topics.list_producers import PartitionProducers
from kafkalog.system_topics.remote_log import RemoteSegment
from kafkalog.system_topics.schemas import Schema, SchemaReference
from kafkalog.system_topics.share_state import Delivery
from kafkalog.system_topics.transactions import OpenTransaction, Transaction
from kafkalog.text import missing_in_module
from kafkalog.values.options import Decode
from kafkalog.writing.partition_writer import AppendResult

__all__ = [
    "AppendResult",
    "CompactedPartition",
    "Decode",
    "Delivery",
    "EpochEndOffset",
    "EpochsOptions",
    "Explanation",
    "Group",
    "GroupMember",
    "GroupOffset",
    "IndexMeasures",
    "ListOptions",
    "LookupOptions",
    "OpenTransaction",
    "PartitionEpochs",
    "PartitionProducers",
    "ProducersOptions",
    "RemoteSegment",
    "ScanOptions",
    "Schema",
    "SchemaReference",
    "SegmentSummary",
    "StateRecord",
    "StorageFault",
    "Trace",
    "Transaction",
    "VerifiedPartition",
    "VerifiedSegment",
    "VerifiedValues",
    "VerifyOptions",
]


if not TYPE_CHECKING:

    def __getattr__(name: str) -> NoReturn:
        missing_in_module(__name__, __all__, name)
