"""Opens the `PartitionWriter` of a converted partition, with the state of the source.

The writer gets the source's producer state before its first batch, its leader epochs, its topic id and its
`index.interval.bytes`. This module does not convert batches.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self

from kafkalog import format as kf
from kafkalog.errors import Finding, KafkalogError, Limits, ReadError
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.operations.converting.partition import Sink
from kafkalog.operations.rebuilding.index_interval import index_interval
from kafkalog.records.batch_table import Window
from kafkalog.state.checkpoints import parse_topic_id
from kafkalog.state.leader_epochs import Epochs, truncate_from_start
from kafkalog.state.log_config import NEVER_ROLLS, LogConfig, checked_config
from kafkalog.state.producers import ProducerSnapshot, newest_snapshot
from kafkalog.storage.atomic import check_free, make_parents
from kafkalog.storage.files import file_status
from kafkalog.storage.location import Place, parent_of
from kafkalog.survey.topics import TopicSettings
from kafkalog.writing.partition_writer import PartitionWriter


class ConvertedPartitions:
    """Opens the writers of a conversion. `config` decides where segments begin; None: where the source's begin."""

    def __init__(self, config: LogConfig | None, limits: Limits, report: Callable[[Finding], None]) -> None:
        self._config = None if config is None else checked_config(config)
        self._limits, self._report = limits, report
        self._settings: dict[Place, TopicSettings] = {}

    def open(
        self,
        directory: Path,
        partition: Partition,
        start_offset: int,
        *,
        leader_epochs: Epochs | None = None,
        topic_id: str | None = None,
    ) -> PartitionSink:
        """Open the writer of a new partition; `leader_epochs` and `topic_id` are those of the source unless given."""
        check_free(directory)
        make_parents(directory)
        name = kf.parse_partition_directory(directory.name)
        is_same_topic = name is not None and name.topic_partition == partition.topic_partition
        writer = PartitionWriter(
            directory,
            config=self._config or self._config_of(partition),
            start_offset=start_offset,
            topic_id=(topic_id or _topic_id(partition)) if is_same_topic else None,
            producer_snapshot=self._snapshot(partition, start_offset),
            leader_epochs=_epochs(partition, start_offset) if leader_epochs is None else leader_epochs,
            limits=self._limits,
        )
        writer.roll(start_offset)  # the first segment begins here even if it gets no batch
        return PartitionSink(writer)

    def is_compacted(self, partition: Partition) -> bool:
        """Whether the topic is compacted, by the config or by the cluster's metadata next to the source."""
        if self._config is not None and self._config.is_compacted:
            return True
        known = self._settings_of(partition).config(partition)
        return known.config.is_compacted

    def _settings_of(self, partition: Partition) -> TopicSettings:
        root = parent_of(partition.path)
        if root not in self._settings:
            self._settings[root] = settings = TopicSettings.of([root], limits=self._limits)
            for finding in settings.findings:
                self._report(finding)
        return self._settings[root]

    def _config_of(self, partition: Partition) -> LogConfig:
        """A config with which segments are rolled only at the format's limits: size, offset range, full index."""
        interval = index_interval(partition, self._settings_of(partition))
        return LogConfig(**NEVER_ROLLS, index_interval_bytes=interval.n_bytes)

    def _snapshot(self, partition: Partition, start_offset: int) -> ProducerSnapshot | None:
        """The source's producer snapshot at its first base offset; None if the output starts at another offset."""
        if not partition.segments or not start_offset or partition.segments[0].base_offset != start_offset:
            return None

        def report(error: KafkalogError) -> None:
            self._report(error.to_finding(damage=False))

        return newest_snapshot(partition.path, start_offset, start_offset, report=report)


class PartitionSink(Sink):
    """Passes windows of the source's segments, in order, to a `PartitionWriter`."""

    def __init__(self, writer: PartitionWriter) -> None:
        self._writer = writer
        self._modified_ms = time.time_ns() // 10**6

    def __enter__(self) -> Self:
        self._writer.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)

    def roll(self, base_offset: int) -> None:
        """Start a new segment at `base_offset`."""
        self._writer.roll(base_offset)

    def append(self, window: Window, segment: Segment) -> None:
        """Append batches of a source segment; the output keeps the modification time that retention may use."""
        # a running broker may have deleted it while it was read: the time that was last seen stands in
        with contextlib.suppress(ReadError):
            status = file_status(segment.path, was_there=True)
            self._modified_ms = status.st_mtime_ns // 10**6
        self._writer.append_batches(window, modified_ms=self._modified_ms)


def _topic_id(partition: Partition) -> str | None:
    try:
        return None if partition.topic_id is None else parse_topic_id(partition.topic_id)
    except (KafkalogError, ValueError):
        return None


def _epochs(partition: Partition, start_offset: int) -> Epochs:
    try:
        known = [(int(epoch), int(start)) for epoch, start in partition.leader_epochs.tolist()]
    except KafkalogError:
        return []
    return truncate_from_start(known, start_offset)
