"""Transactions as their coordinators know them (`__transaction_state`), joined with those that partitions have open.

A partition's transaction hangs if nobody will end it: nothing was written in it for longer than any may be open, and no
coordinator has it. Mirrors `TransactionStateManager.loadTransactionMetadata` and
`TransactionsCommand.FindHangingTransactionsCommand`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import pyarrow as pa

from kafkalog.errors import DEFAULT_LIMITS, Finding, KafkalogError, Limits
from kafkalog.format import CONSUMER_OFFSETS, INTERNAL_TOPICS, TRANSACTION_STATE, TopicPartition
from kafkalog.html import JsonFields
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import Paths, latest_of, open_log_dir, partitions_of
from kafkalog.parsing import Time, name_matcher, parse_milliseconds
from kafkalog.protocol.framing import InternalRecord
from kafkalog.protocol.printed import TRANSACTION_STATES
from kafkalog.result_kinds import arrow_schema
from kafkalog.survey.next_steps import paths_read
from kafkalog.system_topics.coordinator_load import LoadCheck, with_load_failures
from kafkalog.system_topics.list_producers import (
    TRANSACTION_MAX_TIMEOUT_MS,
    ListedProducer,
    PartitionProducers,
    list_producers,
)
from kafkalog.system_topics.reading import AsOf, StateList, check_known, name_of
from kafkalog.system_topics.replay import LastRecord, load_topic


@dataclass(frozen=True, slots=True)
class OpenTransaction(JsonFields):
    """A transaction that a partition has open."""

    topic: str
    partition: int
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    """As the partition has them; the last one is -1 before the producer's first marker there."""
    start_offset: int
    start_timestamp: int | None
    """In ms."""
    last_timestamp: int
    """Of the last batch in it, in ms."""
    idle_ms: int | None
    n_held: int
    """Offsets from the last stable one to the end of the log, which `read_committed` consumers wait for."""
    is_blocking: bool
    """Whether the last stable offset waits for this transaction."""
    is_hanging: bool
    """Whether it has been idle for longer than any may be open, and no coordinator found here has it."""

    @property
    def abort_command(self) -> str:
        """The command that ends this transaction in a running cluster, with `HOST:PORT` in the place of a broker."""
        return abort_command(TopicPartition(self.topic, self.partition), self.start_offset)

    def as_dict(self) -> dict[str, Any]:
        """The fields and the command, for JSON."""
        return {**JsonFields.as_dict(self), "abort_command": self.abort_command if self.is_hanging else None}


@dataclass(slots=True)
class Transaction(JsonFields):
    """The transactions of a transactional id."""

    _json_properties: ClassVar[tuple[str, ...]] = ("is_hanging",)

    transactional_id: str | None
    """None for a producer that no coordinator found here knows, but that has a transaction open in a partition."""
    state: str | None
    """Of the coordinator: ``Empty``, ``Ongoing``, ``PrepareCommit``, ``PrepareAbort``, ``CompleteCommit``,
    ``CompleteAbort``, ``Dead`` or ``PrepareEpochFence``.
    """
    producer_id: int
    producer_epoch: int
    timeout_ms: int | None = None
    """After which the coordinator aborts a transaction."""
    start_timestamp: int | None = None
    """Of the transaction that is going on, in ms."""
    last_update_timestamp: int | None = None
    """Of the last change, in ms."""
    coordinator_partition: int | None = None
    """Partition of `__transaction_state`; its leader is the coordinator."""
    partitions: list[TopicPartition] = field(default_factory=list)
    """Which the coordinator has to write markers to."""
    open: list[OpenTransaction] = field(default_factory=list)
    """In partitions of this log dir, sorted by topic and partition."""

    @property
    def is_open(self) -> bool:
        """Whether the coordinator has not ended it, or a partition has it open."""
        return bool(self.open) or self.state in _UNENDED

    @property
    def is_hanging(self) -> bool:
        """Whether it hangs in a partition."""
        return any(one.is_hanging for one in self.open)

    def ends_in(self, partition: TopicPartition) -> bool:
        """Whether its coordinator ends it in a partition: a transaction that is not over still has the partition."""
        return self.state in _UNENDED and partition in self.partitions


def abort_command(partition: TopicPartition, start_offset: int, server: str = "HOST:PORT") -> str:
    """The command that ends the transaction that a partition has open from an offset on."""
    return (
        f"kafka-transactions.sh --bootstrap-server {server} abort --topic {shlex.quote(partition.topic)}"
        f" --partition {partition.partition} --start-offset {start_offset}"
    )


_UNENDED: Final = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


class Transactions(StateList[Transaction]):
    """Transactions, sorted by transactional id; those without one are the last."""

    noun = "transactional id"

    def summary(self) -> str:
        """Return how many are not ended, and how many hang."""
        return f"{sum(one.is_open for one in self):,} not ended, {len(self.hanging):,} hanging"

    @property
    def hanging(self) -> list[OpenTransaction]:
        """Those that hang in a partition."""
        return [one for transaction in self for one in transaction.open if one.is_hanging]

    def to_arrow(self) -> pa.Table:
        """The transactions as a table, a row per transactional id."""
        return pa.Table.from_pylist([one.as_dict() for one in self], schema=_ARROW)


_LAST: Final = ("is_hanging", "open")
_NARROW: Final[dict[str, pa.DataType]] = {
    **dict.fromkeys(("partition", "coordinator_partition", "coordinator_epoch", "timeout_ms"), pa.int32()),
    "producer_epoch": pa.int16(),
}
_OPEN: Final = [*arrow_schema(OpenTransaction, _NARROW), pa.field("abort_command", pa.string())]
_PARTITIONS: Final = pa.struct({"topic": pa.string(), "partition": pa.int32()})
_OF_TRANSACTION: Final = arrow_schema(
    Transaction, {**_NARROW, "partitions": pa.list_(_PARTITIONS), "open": pa.list_(pa.struct(_OPEN))}
)
_ARROW: Final = pa.schema(
    [*(one for one in _OF_TRANSACTION if one.name not in _LAST), *(_OF_TRANSACTION.field(name) for name in _LAST)]
)


def transactions(
    path: Paths | LogDir,
    *,
    transactional_ids: str | Sequence[str] | None = None,
    read_partitions: bool | Collection[TopicPartition] = True,
    end_offset: int | None = None,
    end_timestamp: Time | None = None,
    now: Time | None = None,
    transaction_max_timeout_ms: int = TRANSACTION_MAX_TIMEOUT_MS,
    limits: Limits | None = None,
    progress: Callable[[int], object] = lambda n_bytes: None,
) -> Transactions:
    """Read transactions: what coordinators know of them, and in which partitions they are open or hang.

    Parameters
    ----------
    path : path-like, sequence of path-like, or LogDir
        A log dir, better those of all brokers: a coordinator that is not among them cannot say that a transaction is
        going on.
    transactional_ids : str or sequence of str, optional
        Only these: names or globs such as ``billing-*``. Transactions without a coordinator are left out then.
    read_partitions : bool or collection of TopicPartition
        Whether to look for open transactions in partitions, or in these alone. It reads the headers of all their
        batches, and is not done for a state of the past.
    end_offset, end_timestamp, limits
        See `groups`.
    now : int (ms), str or aware datetime, optional
        The time from which it is told how long a transaction has been idle; default: the system clock.
    transaction_max_timeout_ms : int
        The brokers' `transaction.max.timeout.ms`.
    progress : callable
        Called with the number of further bytes of partitions that are read.

    Returns
    -------
    Transactions
        A list of `Transaction`. Damage does not raise: reading continues after it, and `findings` has it.

    Examples
    --------
    >>> found = kafkalog.transactions("tests/golden/log_dir", now="2023-11-14T22:30:00Z")
    >>> [one.abort_command for one in found.hanging]
    ['kafka-transactions.sh --bootstrap-server HOST:PORT abort --topic p-txn --partition 0 --start-offset 426']
    """
    log_dir = path if isinstance(path, LogDir) else open_log_dir(path, limits=limits or DEFAULT_LIMITS)
    as_of = AsOf.of(log_dir, [TRANSACTION_STATE], end_offset, end_timestamp)
    result = Transactions()
    result.log_dirs = paths_read(log_dir)
    report, check = result.findings.append, LoadCheck(log_dir, TRANSACTION_STATE)
    result += [_known(*pair) for pair in load_topic(log_dir, TRANSACTION_STATE, as_of, report, watch=check.feed)]
    result.findings = with_load_failures(result.findings, check.failures)
    report = result.findings.append
    result.sort(key=lambda one: one.transactional_id or "")
    # partitions are read up to now, and would contradict coordinators of the past
    if read_partitions and as_of == AsOf():
        given = "now" if now is None else now
        now_ms = parse_milliseconds("now", given, end_ms=lambda: latest_of(partitions_of(log_dir)))
        among = None if read_partitions is True else read_partitions
        _join(result, _producers(log_dir, among, now_ms, transaction_max_timeout_ms, report, progress))
    if transactional_ids is not None:
        known = [one.transactional_id for one in result if one.transactional_id is not None]
        check_known("transactional id", transactional_ids, known, as_of, result.findings)
        is_wanted = name_matcher(transactional_ids)
        result[:] = [one for one in result if one.transactional_id is not None and is_wanted(one.transactional_id)]
    return result


def _known(record: InternalRecord, last: LastRecord) -> Transaction:
    """The transactions that the coordinator knows, by producer id."""
    key, value = record.key or {}, record.value or {}
    start = value["transactionStartTimestampMs"]
    return Transaction(
        key["transactionalId"],
        name_of(TRANSACTION_STATES, value["transactionStatus"]),
        value["producerId"],
        value["producerEpoch"],
        value["transactionTimeoutMs"],
        start if start >= 0 else None,
        value["transactionLastUpdateTimestampMs"],
        last.partition,
        sorted(
            TopicPartition(of_topic["topic"], partition)
            for of_topic in value["transactionPartitions"] or ()
            for partition in of_topic["partitionIds"]
        ),
    )


def _producers(
    log_dir: LogDir,
    among: Collection[TopicPartition] | None,
    now_ms: int,
    timeout_ms: int,
    report: Callable[[Finding], None],
    progress: Callable[[int], object],
) -> Iterator[PartitionProducers]:
    """The producers of each partition that may have transactions."""
    for key in log_dir:
        if among is not None and key not in among:
            continue
        # of internal topics only committed offsets are written in transactions
        if key.topic in INTERNAL_TOPICS and key.topic != CONSUMER_OFFSETS:
            continue
        try:
            yield list_producers(
                log_dir[key],
                now_ms=now_ms,
                transaction_max_timeout_ms=timeout_ms,
                on_corruption="skip",
                report=report,
                progress=progress,
            )
        except KafkalogError as error:
            report(error.to_finding())


def _join(result: Transactions, partitions: Iterable[PartitionProducers]) -> None:
    """Add what partitions have open to the transactions of the same producer."""
    by_producer = {one.producer_id: one for one in result}
    for partition in partitions:
        for producer in partition.open:
            known = by_producer.get(producer.producer_id)
            if known is None:
                known = Transaction(None, None, producer.producer_id, producer.producer_epoch)
                by_producer[producer.producer_id] = known
                result.append(known)
            known.open.append(_open(partition, producer, known))


def _open(partition: PartitionProducers, producer: ListedProducer, known: Transaction) -> OpenTransaction:
    where = partition.topic_partition or TopicPartition(partition.path, 0)
    return OpenTransaction(
        where.topic,
        where.partition,
        producer.producer_id,
        producer.producer_epoch,
        producer.coordinator_epoch,
        producer.transaction_start_offset or 0,
        producer.transaction_start_timestamp,
        producer.last_timestamp,
        producer.idle_ms,
        partition.log_end_offset - partition.last_stable_offset,
        producer.is_blocking,
        producer.is_overdue and not known.ends_in(where),
    )
