"""Compacts one partition: how far the cleaner goes, which segments it merges, and the files that result.

Mirrors `LogCleanerManager.cleanableOffsets`, `Cleaner.doClean` and `Cleaner.groupSegmentsBySize`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from kafkalog import format as kf
from kafkalog.errors import Finding, KafkalogError, OutputExistsError, Reason, UnwritableError, WriteError
from kafkalog.log.segment import Segment
from kafkalog.repair.compacting.cleaner_facts import CleanerFacts
from kafkalog.repair.compacting.cleaning import CleanerPass
from kafkalog.repair.compacting.compacted_partitions import CompactedPartition
from kafkalog.repair.placement import PartitionOutput
from kafkalog.state.log_config import LONG_MAX, NEVER_ROLLS, LogConfig
from kafkalog.state.outcomes import TransactionOutcomes
from kafkalog.storage.files import file_status, size_of
from kafkalog.storage.location import Place
from kafkalog.survey.retention import cleanable, first_dirty, newest_timestamp
from kafkalog.survey.startup import SegmentAction, SegmentPlan
from kafkalog.survey.startup_load import LoadPlan
from kafkalog.writing.segment_writer import SegmentWriter


class PartitionCompaction:
    """Compacts one partition.

    `now_ms` is the cleaner's clock, and `progress` gets the number of bytes read since the last call.
    """

    def __init__(self, plan: LoadPlan, config: LogConfig, now_ms: int, progress: Callable[[int], object]) -> None:
        self.plan, self._config, self._now, self._progress = plan, config, now_ms, progress
        self._partition, self._segments = plan.partition, plan.partition.segments
        self._row = CompactedPartition(str(plan.path), self._partition.topic_partition)

    @property
    def n_bytes_to_read(self) -> int:
        """Bytes to be read: once for the keys, and once to write what stays."""
        return 2 * sum(segment.size_in_bytes for segment in self._segments)

    def run(self, output: PartitionOutput) -> CompactedPartition:
        """Compact the partition, and return what became of it; a problem leaves it as it is."""
        row = self._row
        row.problem = self.plan.files.problem(self.plan.path) or self._unfinished()
        try:
            row.log_start_offset, row.log_end_offset = self._partition.log_start_offset, self._partition.log_end_offset
            if row.problem is None:
                self._compact(output)
        except (WriteError, OutputExistsError):
            raise
        except KafkalogError as error:
            hint = "" if isinstance(error, UnwritableError) else ". Run kafkalog salvage or kafkalog recover first"
            row.problem = replace(error.to_finding(), detail=f"{error.detail}{hint}")
        if row.problem is not None:
            row.cleaned_to, row.segments = None, []
            output.abandon()
        return row

    def _unfinished(self) -> Finding | None:
        if not self.plan.files.renamed:
            return None
        detail = "a .swap file waits to replace others: start the broker, or run kafkalog recover first"
        return Finding(Reason.SWAP_FILE, detail, path=str(self.plan.path / next(iter(self.plan.files.renamed))))

    def _compact(self, output: PartitionOutput) -> None:
        outcomes = self._partition.learn_outcomes().or_raise()
        n = self._n_cleanable(outcomes)
        if n:
            upper = self._segments[n].base_offset
            facts = CleanerFacts.of(self._partition, self._segments[:n], upper, outcomes, self._now, self._progress)
            cleaner = CleanerPass(facts, self._now, self._config.delete_retention_ms, self._partition.limits)
            horizon = self._horizon_of_old_formats()
            for group in [*self._groups(n)]:
                self._clean_group(group, cleaner, horizon, output)
            self._row.cleaned_to = upper
            self._row.n_records_before, self._row.n_records = cleaner.n_records_before, cleaner.n_records
        for segment in self._segments[n:]:
            self._note(segment, "kept", segment.size_in_bytes)
            self._progress(2 * segment.size_in_bytes)
        output.commit()

    def _n_cleanable(self, outcomes: TransactionOutcomes) -> int:
        """How many of the first segments are cleaned."""
        segments, lag = self._segments, self._config.min_compaction_lag_ms
        if not segments:
            return 0
        found = cleanable(
            [one.base_offset for one in segments],
            lambda number: newest_timestamp(segments[number]),
            lag,
            self._now,
            dirty=first_dirty(self._partition),
            first_open=None if outcomes.end is None else outcomes.end.first_offset,
            high_watermark=self._partition.high_watermark,
        )
        if found.why:
            self._row.remarks.append(found.why)
        return found.end

    def _groups(self, n: int) -> Iterator[list[Segment]]:
        """Which segments become one: as many as one segment has room for."""
        most = (self._config.segment_bytes, *[self._config.segment_index_bytes] * 2)
        sizes = [_sizes(one) for one in self._segments[:n]]
        group: list[Segment] = []
        total = [0, 0, 0]
        for number, segment in enumerate(self._segments[:n]):
            # an empty segment has no offset of its own
            is_near = not sizes[number][0] or (
                group and self._segments[number + 1].base_offset - 1 - group[0].base_offset <= kf.MAX_RELATIVE_OFFSET
            )
            more = [have + new for have, new in zip(total, sizes[number], strict=True)]
            if group and not (is_near and all(have <= room for have, room in zip(more, most, strict=True))):
                yield group
                group, more = [], list(sizes[number])
            group.append(segment)
            total = more
        yield group

    def _clean_group(self, group: list[Segment], cleaner: CleanerPass, horizon: int, output: PartitionOutput) -> None:
        """Write the segment that replaces some, and remove these."""
        # no rolling: what is left of the segments fits into one
        config = replace(
            self._config,
            **NEVER_ROLLS,
            segment_index_bytes=kf.MAX_SEGMENT_BYTES,
            max_compaction_lag_ms=LONG_MAX,
        )
        writer = SegmentWriter(output, group[0].base_offset, config)
        cleaner.is_changed = len(group) > 1
        for segment in group:
            keeps = _modified(segment) > horizon
            with segment.open() as source:
                for window in segment.iter_windows(source):
                    for cleaned in cleaner.clean(window, keeps_old_tombstones=keeps, path=str(segment.path)):
                        if writer.take(cleaned) < len(cleaned.batches):
                            detail = "what is left of these segments does not fit into one of 2 GiB and 2^31 offsets"
                            raise UnwritableError(Reason.SEGMENT_TOO_LARGE, detail, path=str(group[0].path))
                    source.release(window.data, window.start)
            self._progress(segment.size_in_bytes)
        writer.set_modified(_modified(group[-1]))
        writer.add_aborted(cleaner.take_aborted())
        n_bytes = writer.size_in_bytes
        writer.close()
        if not cleaner.is_changed:
            for name in writer.names:
                output.take_back(name)
            self._note(group[0], "kept", n_bytes)
            return
        self._remove_old(group, output)
        output.commit_part()
        for number, segment in enumerate(group):
            self._note(segment, "deleted" if number else "cleaned", 0 if number else n_bytes)

    def _remove_old(self, group: list[Segment], output: PartitionOutput) -> None:
        there = set(self.plan.files.names)
        for number, segment in enumerate(group):
            # the snapshot at a base offset goes with the segment
            suffixes = (kf.LOG_SUFFIX, *kf.INDEX_SUFFIXES, *([kf.PRODUCER_SNAPSHOT_SUFFIX] if number else []))
            for suffix in suffixes:
                name = kf.sidecar_name(segment.path.name, suffix)
                if name in there:
                    output.remove(name)

    def _horizon_of_old_formats(self) -> int:
        """When the file of a segment must have been written for tombstones of v0 and v1 to stay; these have no horizon.

        Source: Cleaner.doClean, Kafka 4.3.
        """
        dirty = first_dirty(self._partition)
        clean = [one for one in self._segments if one.base_offset < dirty]
        return _modified(clean[-1]) - self._config.delete_retention_ms if clean else 0

    def _note(self, segment: Segment, action: SegmentAction, n_bytes: int) -> None:
        name = segment.path.name
        self._row.segments.append(SegmentPlan(name, segment.base_offset, action, segment.size_in_bytes, n_bytes))


def _sizes(segment: Segment) -> tuple[int, int, int]:
    """Bytes of the `.log`, of the offset index and of the time index."""
    return (
        segment.size_in_bytes,
        _size(segment.sidecar_path(kf.INDEX_SUFFIX), kf.OFFSET_INDEX_DTYPE.itemsize),
        _size(segment.sidecar_path(kf.TIME_INDEX_SUFFIX), kf.TIME_INDEX_DTYPE.itemsize),
    )


def _size(path: Place, entry_bytes: int) -> int:
    return size_of(path) // entry_bytes * entry_bytes


def _modified(segment: Segment) -> int:
    """When the `.log` was written, ms."""
    modified_ns: int = file_status(segment.path).st_mtime_ns
    return modified_ns // 10**6
