"""Lists the producers of a partition: their last batches, open transactions, and the last stable offset.

`ProducerState` replays all batches, starting from the snapshot at the first offset of the log if there is one. Later
snapshots are not used.

Mirrors DescribeProducers and `kafka-transactions.sh find-hanging`, without a broker.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from kafkalog import format as kf
from kafkalog.calls import leading_names
from kafkalog.errors import Finding, OnCorruption
from kafkalog.html import JsonFields
from kafkalog.log.partition import Partition
from kafkalog.log.segment_reader import ReadOptions
from kafkalog.records.selection import Selection
from kafkalog.state.producers import ProducerState, newest_snapshot, with_markers

TRANSACTION_MAX_TIMEOUT_MS: Final = 900_000
"""A broker's default of `transaction.max.timeout.ms`, the longest time that a transaction may stay open."""


@dataclass(frozen=True, slots=True)
class ListedProducer(JsonFields):
    """A producer of a partition."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_offset: int
    """Of the producer's last batch; -1 if the state has none."""
    last_timestamp: int
    """Timestamp of the last batch or marker, in ms; -1 for none."""
    coordinator_epoch: int
    """Of the last marker; -1 for none."""
    transaction_start_offset: int | None
    """First offset of the open transaction."""
    transaction_start_timestamp: int | None
    """Timestamp of the first batch of the open transaction, in ms; also None if that batch was not read."""
    idle_ms: int | None
    """Time since the last batch or marker."""
    is_overdue: bool
    """Whether a transaction is open and `idle_ms` exceeds `transaction.max.timeout.ms`."""
    is_blocking: bool
    """Whether this transaction determines the last stable offset."""


@leading_names
@dataclass(slots=True)
class PartitionProducers:
    """The producers of a partition."""

    topic_partition: kf.TopicPartition | None
    path: str
    producers: list[ListedProducer] = field(default_factory=list)
    """Sorted by producer id."""
    last_stable_offset: int = 0
    log_end_offset: int = 0
    """`read_committed` consumers do not get the records between these offsets yet."""

    @property
    def open(self) -> list[ListedProducer]:
        """Producers with an open transaction, the earliest transaction first."""
        found = [one for one in self.producers if one.transaction_start_offset is not None]
        return sorted(found, key=lambda one: one.transaction_start_offset or 0)

    @property
    def overdue(self) -> list[ListedProducer]:
        """Producers whose open transaction is overdue, the earliest transaction first."""
        return [one for one in self.open if one.is_overdue]


def list_producers(
    partition: Partition,
    *,
    now_ms: int | None = None,
    transaction_max_timeout_ms: int = TRANSACTION_MAX_TIMEOUT_MS,
    on_corruption: OnCorruption = "raise",
    report: Callable[[Finding], None] = lambda finding: None,
    progress: Callable[[int], object] = lambda n_bytes: None,
) -> PartitionProducers:
    """Replay a partition and list its producers; ages count up to `now_ms`, by default the system clock.

    Unlike in a broker, producers that have been idle for `producer.id.expiration.ms` are not removed. After skipped
    damage a transaction may look open because its marker was lost. `progress` is called with numbers of further bytes.

    Source: ProducerStateManager, TransactionsCommand.FindHangingTransactionsCommand, Kafka 4.3.
    """
    now = time.time_ns() // 10**6 if now_ms is None else now_ms
    state = _state_before(partition)
    begun: dict[int, tuple[int, int]] = {}  # by producer: first offset of its transaction, and when it began
    end = partition.log_start_offset
    n_seen = 0
    for window in partition.reader.windows(Selection(), ReadOptions(on_corruption=on_corruption, report=report)):
        batches, epochs = with_markers(window.window, window.batches, limits=window.segment.limits)
        # numbers of batches instead of positions: those begin again in each segment
        log_positions = np.arange(n_seen, n_seen + len(batches))
        state.update(batches, log_position=log_positions, coordinator_epoch=epochs)
        for one in state.transactions.open_transactions():
            # it began in this window: keep the timestamp of its first batch, which the state does not have
            if one.log_position >= n_seen:
                begun[one.producer_id] = one.first_offset, int(batches.base_timestamp[one.log_position - n_seen])
        n_seen += len(batches)
        end = max(end, int(batches.last_offset[-1]) + 1)
        progress(window.n_bytes)
        window.release()
        del window, batches
    first = state.transactions.first_open
    stable = end if first is None else max(first.first_offset, partition.log_start_offset)
    blocking = None if first is None else first.producer_id
    result = PartitionProducers(partition.topic_partition, str(partition.path), [], stable, end)
    for entry in np.sort(state.entries(), order="producer_id"):
        producer_id, start = int(entry["producer_id"]), int(entry["current_txn_first_offset"])
        last = int(entry["timestamp"])
        known = begun.get(producer_id)
        idle = max(now - last, 0) if last >= 0 else None
        result.producers.append(
            ListedProducer(
                producer_id=producer_id,
                producer_epoch=int(entry["producer_epoch"]),
                last_sequence=int(entry["last_sequence"]),
                last_offset=int(entry["last_offset"]),
                last_timestamp=last,
                coordinator_epoch=int(entry["coordinator_epoch"]),
                transaction_start_offset=start if start >= 0 else None,
                transaction_start_timestamp=known[1] if known is not None and known[0] == start else None,
                idle_ms=idle,
                is_overdue=start >= 0 and idle is not None and idle > transaction_max_timeout_ms,
                is_blocking=start >= 0 and producer_id == blocking,
            )
        )
    return result


def _state_before(partition: Partition) -> ProducerState:
    """Return the producers' state at the start of the first segment: from a snapshot, or empty without one."""
    base_offset = partition.segments[0].base_offset if partition.segments else 0
    snapshot = newest_snapshot(partition.path, base_offset, base_offset) if base_offset else None
    return ProducerState(snapshot, limits=partition.limits)
