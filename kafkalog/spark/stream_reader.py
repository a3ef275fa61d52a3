"""``readStream``: follows log dirs that grow, including those of a running broker.

Offsets have the JSON form and the meaning of those of Spark's Kafka source: topics, partitions, and the next offset to
read. A checkpoint therefore records which records were read, and a batch that is read again has the same records. Each
batch is planned as offset ranges; records appended meanwhile are read by the next one.
"""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from kafkalog import format as kf
from kafkalog.errors import CorruptionWarning
from kafkalog.log.partition import Partition
from kafkalog.log.tail import LogTail
from kafkalog.spark.offsets import LOST_HINT, DataLossError, Offsets, open_paths, starting_offsets, wanted_partitions
from kafkalog.spark.reader import TaskReader, plan_tasks
from kafkalog.spark.source_options import SourceOptions
from kafkalog.state.outcomes import TransactionOutcomes
from kafkalog.storage.location import is_url

JsonOffsets = dict[str, dict[str, int]]

_STARTING = {"startingoffsets", "startingtimestamp", "startingoffsetsbytimestamp"}


class KafkaLogStreamReader(TaskReader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the records that were appended since the previous micro-batch."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        if options.planning["on_corruption"] == "stop":
            raise ValueError("onCorruption=stop ends a partition at damage, and a stream has no end: use raise or skip")
        if stored := [path for path in options.followed if is_url(path)]:
            raise ValueError(
                f"{stored[0]} is in a store, which does not tell what is new: a stream follows log dirs on a disk (with"
                " the option tiered, their remote segments, too); read a store with spark.read, from the offsets where"
                " the last run ended"
            )
        super().__init__(options, schema, learns=False)
        self._tail: LogTail | None = None
        self._target: Offsets | None = None
        self._last_batch: float | None = None
        """When the last batch that has records began; its clock is monotonic."""

    def __getstate__(self) -> dict[str, Any]:
        # executors only need the options
        return {**self.__dict__, "_tail": None, "_target": None}

    def initialOffset(self) -> JsonOffsets:
        """Return the offsets at which a new query begins; Spark calls this once for each query."""
        options = self._options
        log_dir = open_paths(options.paths)
        keys = wanted_partitions(log_dir, options)
        ends = self._followed().ends()
        # a partition may have been deleted since the log dir was listed
        keys = [key for key in keys if key in ends]
        # like Spark's Kafka source, a stream begins at the end by default, and so do partitions that a JSON leaves out
        if not options.given & _STARTING:
            return to_json({key: ends[key] for key in keys})
        asked = options.starting.values
        # "latest" is the end that can be read now (LSO or high watermark); named offsets are taken as they are
        found = starting_offsets(log_dir, keys, options, ends.__getitem__)
        left = [key for key in keys if key not in found]
        at_end = [key for key in left if isinstance(asked, Mapping) and key not in asked]
        starts = self._starts([key for key in left if key not in at_end])
        return to_json({**{key: ends[key] for key in at_end}, **starts, **found})

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a batch; Spark passes ReadAllAvailable instead for ``once``, which has one batch."""
        least, most = self._options.min_offsets_per_trigger, self._options.max_offsets_per_trigger
        if most is not None:
            return ReadMaxRows(most)
        return ReadAllAvailable() if least is None else ReadMinRows(least)

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember the current end offsets, at which an ``availableNow`` query stops."""
        self._target = self._followed().ends()

    def latestOffset(self, start: JsonOffsets, limit: ReadLimit) -> JsonOffsets:
        """Return the end offsets of the next batch."""
        begun = from_json(start)
        ends = self._followed().ends()
        if self._target is not None:
            # with availableNow, records and partitions that come later are of the next run
            ends = {key: min(end, self._target[key]) for key, end in ends.items() if key in self._target}
        starts = self._starts([key for key in ends if key not in begun])
        begin = {key: begun[key] if key in begun else starts[key] for key in ends}
        # before the ends are raised, which would hide that a log was truncated
        self._check(begun, begin, ends)
        # offsets of a query never go back: of a truncated log the batch is empty
        ends = {key: max(end, begin[key]) for key, end in ends.items()}
        if not isinstance(limit, ReadAllAvailable) and self._waits(sum(ends.values()) - sum(begin.values())):
            return start
        if isinstance(limit, ReadMaxRows):
            ends = share(begin, ends, limit.max_rows)
        return to_json(ends)

    def _waits(self, n_new: int) -> bool:
        """Whether a batch of so many offsets waits for more; as in Spark's Kafka source, the first does not.

        Source: KafkaMicroBatchStream.delayBatch, Spark 4. With ``availableNow``, more is of the next run.
        """
        least, now = self._options.min_offsets_per_trigger, time.monotonic()
        if least is None or self._target is not None:
            return False
        since = math.inf if self._last_batch is None else now - self._last_batch
        if n_new < least and since * 1000 < self._options.max_trigger_delay_ms:
            return True
        self._last_batch = now
        return False

    def reportLatestOffset(self) -> JsonOffsets | None:
        """Return the end offsets of the files, for the query's progress."""
        return to_json(self._followed().ends())

    def partitions(self, start: JsonOffsets, end: JsonOffsets) -> list[InputPartition]:
        """Return the tasks of a micro-batch."""
        options = self._options
        begun, ends = from_json(start), from_json(end)
        log_dir = open_paths(options.paths)
        ranges = {key: (begun.get(key), stop) for key, stop in ends.items() if begun.get(key) != stop}
        for key, (first, stop) in list(ranges.items()):
            if key not in log_dir:
                self._lose(f"Partitions {key} have been deleted.")
                del ranges[key]
            elif first is not None and first < (earliest := log_dir[key].log_start_offset) and first < stop:
                self._lose(f"Starting offset for {key} was {first} but the log starts at {earliest}.")
        starts = {key: first for key, (first, _) in ranges.items() if first is not None}
        stops = {key: stop for key, (_, stop) in ranges.items()}
        # by offsets alone: a batch that Spark runs again after a failure has the same records
        made = plan_tasks(log_dir, options, ranges, starts, stops, partial(self._outcomes, starts))
        self._check_replaced(begun)
        return [InputPartition(task) for task in made.tasks]

    def _outcomes(self, starts: Offsets, partition: Partition, until_offset: int | None) -> TransactionOutcomes:
        """How the transactions of a batch ended; those of remote segments are not known from following local ones."""
        followed, key = self._followed(), partition.key
        if self._options.paths != self._options.followed:
            local_start = followed.starts().get(key)
            if local_start is None or starts.get(key, -1) < local_start:
                planning, reading = self._options.planning, self._options.reading
                return partition.reader.learn_outcomes(
                    until_offset, on_corruption=planning["on_corruption"], check_crcs=reading["check_crcs"]
                )
        return followed.outcomes(partition, until_offset)

    def commit(self, end: JsonOffsets) -> None:
        """Discard the state that only finished batches needed."""
        self._followed().discard_below(from_json(end))

    def _followed(self) -> LogTail:
        if self._tail is None:
            options = self._options
            self._tail = LogTail(
                lambda: open_paths(options.followed),
                options.topics.wants,
                isolation_level=options.planning["isolation_level"],
                on_corruption=options.planning["on_corruption"],
                check_crcs=options.reading["check_crcs"],
                high_watermark=options.high_watermark,
            )
        return self._tail

    def _starts(self, keys: Collection[kf.TopicPartition]) -> Offsets:
        """The log start offsets of partitions whose ends were asked for."""
        starts = self._followed().starts()
        if keys and self._options.paths != self._options.followed:
            joined = open_paths(self._options.paths)  # a broker moves segments between two triggers
            starts |= {key: joined[key].log_start_offset for key in keys if key in joined}
        return {key: starts[key] for key in keys}

    def _check(self, begun: Offsets, begin: Offsets, ends: Offsets) -> None:
        """Report data that has disappeared, including the first records of a partition that was added."""
        # with a target, partitions that it does not have are left out, and not gone
        gone = [] if self._target is not None else sorted(key for key in begun if key not in ends)
        if gone:
            self._lose(f"Partitions {', '.join(map(str, gone))} have been deleted.")
        self._check_replaced(begun)
        for key, end in ends.items():
            if key in begun and end < begun[key] and self._target is None:
                detail = "the checkpoint is ahead of the log, or the topic was deleted and created again"
                self._lose(f"Partition {key} offset was changed from {begun[key]} to {end}: {detail}.")
            if begun and key not in begun and begin[key] > 0:
                self._lose(f"Added partition {key} starts from {begin[key]} instead of 0.")

    def _check_replaced(self, begun: Offsets) -> None:
        """Report partitions whose topic was made again. After a restart only their offsets can tell."""
        replaced = sorted(key for key in self._followed().take_replaced() if key in begun)
        if replaced:
            self._lose(f"Partitions {', '.join(map(str, replaced))} have been deleted and created again.")

    def _lose(self, reason: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(f"{reason} {LOST_HINT}")
        warnings.warn(reason, CorruptionWarning, stacklevel=1)


def share(begin: Offsets, ends: Offsets, n_most: int) -> Offsets:
    """Limit a batch to about `n_most` offsets, shared among partitions in proportion to their new offsets.

    Source: KafkaMicroBatchStream.rateLimit, Spark 4.
    """
    sizes = {key: end - begin[key] for key, end in ends.items() if end > begin[key]}
    total = sum(sizes.values())
    if total <= n_most:
        return ends
    limited = dict(ends)
    for key, size in sizes.items():
        part = n_most * (size / total)
        # like Spark's Kafka source, round small parts up, so that no partition starves
        limited[key] = min(begin[key] + (math.ceil(part) if part < 1 else math.floor(part)), ends[key])
    return limited


def to_json(offsets: Offsets) -> JsonOffsets:
    """Convert offsets to the form in which Spark keeps them in a checkpoint."""
    made: JsonOffsets = {}
    for key, offset in sorted(offsets.items()):
        made.setdefault(key.topic, {})[str(key.partition)] = offset
    return made


def from_json(offsets: JsonOffsets) -> Offsets:
    """Convert offsets from the form of a checkpoint."""
    return {
        kf.TopicPartition(topic, int(partition)): offset
        for topic, numbers in offsets.items()
        for partition, offset in numbers.items()
    }
