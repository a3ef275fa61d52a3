"""Foretells how a broker loads one partition: files by name, recovery, log end, producers, epochs, topic id.

Mirrors `LogLoader.load`, step by step and in its order. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.errors import Finding, Findings, KafkalogError, Reason
from kafkalog.log.recovery import RecoveredSegment, fatal_epoch, recover, wrong_epoch
from kafkalog.log.segment import Segment
from kafkalog.log.segment_files import INDEX_SUFFIXES
from kafkalog.records.header_walk import intact_headers_at
from kafkalog.repair.startup.compressed_messages import base_offset
from kafkalog.repair.startup.forecast import BrokerException, LoadFailure, PartitionForecast, SegmentForecast
from kafkalog.repair.startup.load_plan import LoadPlan, transaction_index_problem, why_recovered
from kafkalog.repair.startup.producer_loading import NotPlain, ProducerLoading, Replay
from kafkalog.repair.startup.segment_reading import LoadedSegment
from kafkalog.repair.startup.settings import Cluster, expiring, last_timestamp, newest_timestamp
from kafkalog.repair.startup.small_files import epochs_exception, known_epochs, topic_id_exception
from kafkalog.state.checkpoints import read_leader_epochs, read_topic_id
from kafkalog.storage.source import file_status


@dataclass
class PartitionLoading:
    """The load of one partition."""

    plan: LoadPlan
    cluster: Cluster
    broker: str
    """One of "4.3", "2.8"."""
    is_whole_dir: bool
    """Whether the log dir was named, so that directories of other topics are looked for."""
    index_interval_bytes: int | None
    now_ms: int
    """For retention."""
    findings: Findings
    """Gets the damage."""
    progress: Callable[[int], object]
    row: PartitionForecast = field(init=False)
    _pieces: dict[int, int] = field(default_factory=dict)
    """Of segments that are split: base offset and end of each."""
    _cut_piece: int | None = None
    """Base offset of the first of them that is cut: a broker deletes all segments behind it."""
    _late_names: list[str] = field(default_factory=list)
    _read: dict[int, RecoveredSegment] = field(default_factory=dict)
    _newest_read: dict[int, int] = field(default_factory=dict)
    _damage: list[Finding] = field(default_factory=list)
    _bad_snapshots: dict[str, str] = field(default_factory=dict)
    _loaded: dict[int, LoadedSegment] = field(default_factory=dict)
    _producers: ProducerLoading = field(init=False)

    def run(self) -> PartitionForecast:
        """Foretell the load; a segment that cannot be read is an exception of the forecast."""
        try:
            self._attempt("check")
        except NotPlain:
            # what was read is read again: its index entries are needed this time, and are not kept otherwise
            self._read.clear()
            self.progress = lambda n_bytes: None
            self._attempt("exact")
        for finding in self._damage:
            self.findings.add(finding)
        self._check_state()
        return self.row

    def _attempt(self, replay: Replay) -> None:
        """Foretell the load from its beginning, with producers replayed batch by batch or not."""
        plan = self.plan
        row = self.row = PartitionForecast(str(plan.path), plan.partition.topic_partition)
        row.log_start_offset = row.log_end_offset = plan.negative_start or plan.partition.log_start_offset
        wrong_start = plan.start_problem()
        if wrong_start is not None:
            row.remarks.append(wrong_start.detail)
        self._loaded, self._damage, self._pieces, self._cut_piece = {}, [], {}, None
        self._latest_epoch = known_epochs(plan.path).latest
        self._producers = ProducerLoading(self._snapshots, self.broker, self.now_ms, replay=replay)
        row.removed, row.renamed = {**plan.files.removed, **self._bad_snapshots}, dict(plan.files.renamed)
        self._late_names = [name for name in plan.files.fatal if not name.endswith(_READ_FIRST)]
        self._die_of([name for name in plan.files.fatal if name.endswith(_READ_FIRST)])
        if self.broker != "2.8":
            self._die_of_swaps()
        epochs = epochs_exception(plan.path, self.broker)
        if epochs is not None:  # it comes before all others, with 2.8 but for those of the names of snapshots
            is_later = self.broker == "2.8"
            n = sum(is_later and one.path.endswith(kf.PRODUCER_SNAPSHOT_SUFFIX) for one in row.exceptions)
            row.exceptions.insert(n, epochs)
        try:
            self._load()
        except LoadFailure as error:
            self._dies(error.java_name, row.segments[-1].name if row.segments else "", str(error))
        except KafkalogError as error:
            self._damage.append(error.to_finding())
            self._dies("KafkaStorageException", error.path or "", str(error), is_offline=True)
        self._die_of(self._late_names)

    def _die_of(self, names: list[str]) -> None:
        """Die of names that are no offsets. Source: LogFileUtils.offsetFromFile, Kafka 4.3."""
        for name in names:
            self._dies("NumberFormatException", name, "its name is not an offset")

    def _die_of_swaps(self) -> None:
        for name, failure in self.plan.files.bad_swaps.items():
            self._dies(failure.java_name, name, str(failure))

    def _load(self) -> None:
        segments = self.plan.partition.segments
        self.row.log_end_offset_before = self.plan.end_before
        rows = self.row.segments
        self._load_files(segments)
        if self.plan.partition.kind == "delete":
            return  # only waits for its deletion
        self._recover_unflushed(segments, rows)
        if not rows or self.row.exceptions:
            return
        if self._pieces or any(row.action == "split" for row in rows):
            bases = [*self._pieces, *(row.base_offset for row in rows if row.action not in ("split", "deleted"))]
            self.row.log_start_offset = max(self.plan.log_start, min(bases))
        last = max((number for number, row in enumerate(rows) if row.action not in ("deleted", "split")), default=0)
        end = self._log_end(segments[last], rows[last])
        if end < self.plan.log_start:
            for row in rows:
                row.action, row.n_bytes, row.indexes = "deleted", 0, {}
            self._loaded.clear()
            self.row.remarks.append(
                f"the log ends at {end}, below its start {self.plan.log_start}: an empty one begins"
            )
            end = self.row.log_start_offset = self.plan.log_start
        self.row.log_end_offset = end
        if self._loaded and not any(row.action == "split" for row in rows):
            self._load_producers(end)
        left = [(one, row) for one, row in zip(segments, rows, strict=True) if row.action != "deleted"]
        self._expire([row for _, row in left], [self._newest(*one) for one in left])

    def _expire(self, rows: list[SegmentForecast], newest: list[tuple[int, int]]) -> None:
        """Note what retention deletes; `newest` has the largest timestamp for a broker, and the one that is true."""
        config = self.cluster.config(self.plan.partition)
        wrong = [row for row, (told, right) in zip(rows, newest, strict=True) if told < right]
        if config is None and wrong:
            config = self.cluster.likely_config(self.plan.partition)
        if config is None:
            return
        sizes = [row.n_bytes for row in rows]
        told = expiring(sizes, [one for one, _ in newest], config, self.now_ms)
        n_old = len(expiring(sizes, [right for _, right in newest], config, self.now_ms))
        for number, setting in enumerate(told if wrong or self.cluster.properties is not None else []):
            rows[number].expires, rows[number].is_expired_early = setting, number >= n_old
            if number >= n_old:
                detail = (
                    f"{_ZEROS}, which a broker takes for records of 1970: {setting} deletes the segment soon after the"
                    " start. kafkalog recover repairs the index"
                )
                path = self.plan.path / kf.segment_file_name(rows[number].base_offset, kf.TIME_INDEX_SUFFIX)
                self.findings.add(Finding(Reason.INDEX_PADDING, detail, path=str(path)))

    def _load_files(self, segments: list[Segment]) -> None:
        """The first pass. Source: LogLoader.loadSegmentFiles, Kafka 4.3; Log.loadSegments, Kafka 2.8."""
        replaced = self.plan.files.replaced
        late = [one for one in segments if self.broker == "2.8" and one.path.name.endswith(kf.SWAP_SUFFIX)]
        for segment in sorted((one for one in (*segments, *replaced) if one not in late), key=_base_offset):
            # files are loaded in the order of their names
            log_name = kf.segment_file_name(segment.base_offset, kf.LOG_SUFFIX)
            self._die_of([name for name in self._late_names if name < log_name])
            self._late_names = [name for name in self._late_names if name > log_name]
            self._load_file(segment, is_replaced=segment in replaced)
        self._die_of(self._late_names)
        self._late_names = []
        for segment in late:
            self._load_file(segment, is_replaced=False)
        if self.broker == "2.8":
            self._die_of_swaps()
        self.row.segments.sort(key=_base_offset)
        self._loaded = {row.base_offset: self._loaded[row.base_offset] for row in self.row.segments}

    def _load_file(self, segment: Segment, *, is_replaced: bool) -> None:
        if self.plan.files.replaced:  # another file of this offset was read, or will be
            self._read.pop(segment.base_offset, None)
        self._loaded.pop(segment.base_offset, None)
        is_swap = segment.path.name.endswith(kf.SWAP_SUFFIX)
        row = self._segment_row(segment, is_lone=not is_swap and segment.base_offset in self.plan.files.without_index)
        if not is_replaced:
            self.row.segments.append(row)
        self._loaded.setdefault(segment.base_offset, LoadedSegment(segment, self.broker))

    def _newest(self, segment: Segment, row: SegmentForecast) -> tuple[int, int]:
        """The largest timestamp of a segment, by its last time index entry as for a broker, and without zeros there.

        A broker asks nothing else: an index that was not trimmed, after a crash, ends in entries of the year 1970.
        Source: LogSegment.largestTimestamp, Kafka 4.3.
        """
        if row.action != "kept":
            newest = self._newest_read.get(segment.base_offset, -1)
            return (newest, newest) if newest >= 0 else (_modified_ms(segment),) * 2
        told = last_timestamp(segment.sidecar_path(kf.TIME_INDEX_SUFFIX))
        index = segment.time_index
        right = int(index.entries["timestamp"][-1]) if index is not None and len(index) else -1
        if told == 0 and right < 0:
            right = newest_timestamp(segment)
        return (_modified_ms(segment),) * 2 if told < 0 else (told, max(told, right))

    def _segment_row(self, segment: Segment, *, is_lone: bool) -> SegmentForecast:
        """The first pass: a segment without an index is recovered at once, without its followers being deleted.

        Source: LogLoader.loadSegmentFiles, Kafka 4.3.
        """
        name = segment.path.name.removesuffix(kf.SWAP_SUFFIX)
        row = SegmentForecast(name, segment.base_offset, "kept", segment.size_in_bytes, segment.size_in_bytes)
        if not segment.sidecar_path(kf.TIME_INDEX_SUFFIX).exists():
            row.indexes[kf.TIME_INDEX_SUFFIX] = "created empty"
        has_index = segment.sidecar_path(kf.INDEX_SUFFIX).exists()
        problem = transaction_index_problem(segment, self.broker) if has_index else ""
        if problem:
            self._dies("KafkaException", segment.sidecar_path(kf.TRANSACTION_INDEX_SUFFIX).name, problem)
        elif is_lone or why_recovered(segment, self.broker):
            self._recover(segment, row, is_first_pass=True)
        return row

    def _recover_unflushed(self, segments: list[Segment], rows: list[SegmentForecast]) -> None:
        """Source: LogLoader.recoverLog, Kafka 4.3."""
        is_cut = False
        for segment, row in zip(segments, rows, strict=True):
            if not self.plan.is_unflushed(row.base_offset):
                continue
            is_behind = self._cut_piece is not None and row.base_offset > self._cut_piece
            # what another segment is split into takes the place of a segment of the same name
            is_replaced = row.base_offset in self._pieces
            if is_cut or ((is_behind or is_replaced) and row.action != "split"):
                row.action, row.n_bytes, row.indexes = "deleted", 0, {}
                self._producers.remove([row.base_offset])
                del self._loaded[row.base_offset]
            elif row.action == "kept":
                self._recover(segment, row, is_first_pass=False)
                is_cut = row.action in ("cut", "emptied") and row.n_bytes < row.n_bytes_before
                # what a segment before it was split into lies behind it, too
                if is_cut:
                    self._pieces = {base: end for base, end in self._pieces.items() if base < row.base_offset}

    def _recovered(self, segment: Segment) -> RecoveredSegment:
        if segment.base_offset not in self._read:
            self._read[segment.base_offset] = recover(segment, self._interval, progress=self.progress)
            self.row.n_bytes_read += segment.size_in_bytes
        return self._read[segment.base_offset]

    @cached_property
    def _interval(self) -> int:
        given = self.index_interval_bytes
        return self.cluster.index_interval(self.plan.partition) if given is None else given

    def _recover(self, segment: Segment, row: SegmentForecast, *, is_first_pass: bool) -> None:
        """Source: LogLoader.recoverSegment, LogSegment.recover, Kafka 4.3."""
        loaded = sorted(self._loaded.values(), key=_base_offset)
        manager = self._producers.begin_recovery(loaded, segment.base_offset, self.plan.log_start)
        found = self._recovered(segment)
        row.indexes = dict.fromkeys(INDEX_SUFFIXES[:2], "rebuilt")
        if segment.sidecar_path(kf.TRANSACTION_INDEX_SUFFIX).exists():
            row.indexes[kf.TRANSACTION_INDEX_SUFFIX] = "rebuilt"
        row.action, row.finding = "recovered", found.finding
        row.n_bytes_before = row.n_bytes = found.n_bytes
        if found.finding is not None:
            self._damage.append(found.finding)
        fatal = fatal_epoch(found, self._latest_epoch)
        if fatal is not None:
            self._dies("IllegalArgumentException", row.name, fatal)
        self._latest_epoch = max(self._latest_epoch, *(epoch for epoch, _ in found.epochs), -1)
        if found.finding is not None and found.finding.reason is Reason.OFFSET_OUTSIDE_SEGMENT:
            self._outside(segment, row, found)
        elif found.is_emptied and is_first_pass:
            self._dies("InvalidOffsetException", row.name, "its index is missing, and its offsets do not rise")
        elif found.is_emptied:
            row.action, row.n_bytes = "emptied", 0
        elif found.is_cut:
            row.action, row.n_bytes = "cut", found.n_valid_bytes
        entries = found.offset_entries if self._producers.is_exact else found.offset_entries[:0].copy()
        if not self._pieces:
            self._producers.recover(manager, LoadedSegment(segment, self.broker), found)
        self._loaded[segment.base_offset] = LoadedSegment(segment, self.broker, row.n_bytes, entries)
        found.replay.clear()
        limit = self.cluster.max_index_bytes(self.plan.partition)
        for entries in (found.offset_entries, found.time_entries):
            if entries.size > limit // entries.dtype.itemsize:
                detail = f"the index needs {entries.nbytes} bytes, and segment.index.bytes is {limit}"
                self._dies("IllegalArgumentException", row.name, detail)
                break
        if found.time_entries.size:
            self._newest_read[segment.base_offset] = int(found.time_entries["timestamp"][-1])
        found.drop_entries()

    def _outside(self, segment: Segment, row: SegmentForecast, found: RecoveredSegment) -> None:
        """Where an offset is that no index entry can hold, the broker splits the segment, if its end is that far away.

        Source: LogLoader.retryOnOffsetOverflow, LocalLog.splitOverflowedSegment, LogSegment.hasOverflow, Kafka 4.3.
        """
        if segment.path.name.endswith(kf.SWAP_SUFFIX) and self.broker == "2.8":
            self._dies("LogSegmentOffsetOverflowException", row.name, "a .swap is not split")
            return
        end = LoadedSegment(segment, self.broker, entries=found.offset_entries).next_offset()
        if 0 <= end - 1 - segment.base_offset < 2**31 or end <= segment.base_offset:
            assert found.finding is not None
            detail = f"the batch at {found.finding.position} is in no segment that begins at {segment.base_offset}"
            self._dies("IllegalArgumentException", row.name, detail)
        else:
            self._split(segment)
            row.action = "split"
            self.row.remarks.append(f"{row.name} is split: its last batch ends at {end - 1}")

    def _split(self, segment: Segment) -> None:
        """Find the segments that a segment is split into, and where they are cut next: a broker starts again with them.

        Raises
        ------
        LoadFailure
            A broker dies of a batch that it copies into one of them.

        Notes
        -----
        Source: LocalLog.splitOverflowedSegment, ByteBufferLogInputStream.nextBatchSize, Kafka 4.3.
        """
        loaded, pieces = LoadedSegment(segment, self.broker), self._pieces
        cut = set() if self._cut_piece is None else {self._cut_piece}
        base = position = 0
        with segment.open() as source:
            for batch in loaded.batches(0, segment.size_in_bytes):
                if not position or not 0 <= batch.last_offset - base < 2**31:
                    base = batch.offset
                    if batch.is_compressed_message and (self.broker != "2.8" or batch.head[16] == 0):
                        base = base_offset(loaded.content(batch), batch.position)
                    if not 0 <= batch.last_offset - base < 2**31:
                        detail = f"the batch at {batch.position} is in no segment that begins at {base}"
                        raise LoadFailure("IllegalStateException", detail)
                # 2.8 takes a negative one for a message's, and the others for that of a batch
                if batch.head[16] > (127 if self.broker == "2.8" else 2):
                    detail = f"the batch at {batch.position} has magic {batch.head[16]}, and the segment is split"
                    name = "IllegalArgumentException" if self.broker == "2.8" else "CorruptRecordException"
                    raise LoadFailure(name, detail)
                pieces.setdefault(base, base)
                place = batch.position, batch.size_in_bytes
                if self.plan.is_unflushed(base) and intact_headers_at(source, *place) is None:
                    cut.add(base)
                if base not in cut:
                    pieces[base] = batch.last_offset + 1
                position = batch.position + batch.size_in_bytes
        if position < segment.size_in_bytes:
            detail = f"the bytes from {position} on are no batch, and the segment is split"
            raise LoadFailure("NoSuchElementException", detail)
        if cut:
            self._cut_piece = min(cut)
            self._pieces = {base: end for base, end in pieces.items() if base <= self._cut_piece}

    def _log_end(self, segment: Segment, row: SegmentForecast) -> int:
        last_piece = max(self._pieces, default=-1)
        if last_piece > segment.base_offset:
            return self._pieces[last_piece]
        if row.action == "kept" or self._producers.is_exact:
            return self._loaded[segment.base_offset].next_offset()
        return self._recovered(segment).next_offset

    def _load_producers(self, end: int) -> None:
        """Source: LogLoader.load, Kafka 4.3."""
        if self.plan.is_clean and not self._producers.snapshots and end > self.row.log_start_offset:
            self.row.remarks.append("no producer snapshot: the state of producers is forgotten")
        start = self.row.log_start_offset
        self._producers.load([*self._loaded.values()], start, end, is_clean=self.plan.is_clean)

    @cached_property
    def _snapshots(self) -> dict[int, npt.NDArray[np.void] | None]:
        """See `LoadPlan.snapshots`."""

        def note(name: str, error: KafkalogError) -> None:
            self.findings.add(error.to_finding())
            self._bad_snapshots[name] = "a snapshot that cannot be read"

        return self.plan.snapshots(note)

    def _check_state(self) -> None:
        """The leader epochs and the topic id."""
        path = self.plan.path / kf.LEADER_EPOCH_CHECKPOINT
        try:
            epochs = read_leader_epochs(path)
        except KafkalogError as error:
            self.findings.add(error.to_finding())
            epochs = None
        if epochs is None and not path.exists() and any(row.n_bytes for row in self.row.segments):
            is_partly = any(row.action == "kept" for row in self.row.segments)
            self.row.remarks.append(
                "no leader epochs: only those of recovered segments are found"
                if is_partly
                else "no leader epochs: found anew"
            )
        end = self.row.log_end_offset
        if epochs is not None and not self.row.exceptions and (epochs["start_offset"] > end).any():
            self.row.remarks.append(f"leader epochs begin beyond the log end offset {end}: the broker drops them")
        largest = -1 if epochs is None or not epochs.size else int(epochs["epoch"].max())
        new = max((epoch for found in self._read.values() for epoch, _ in found.epochs), default=-1)
        assigned = self._assigned_epoch()
        if assigned is not None and new > max(largest, assigned):
            self.row.remarks.append(
                f"a batch says leader epoch {new}, above the cluster's {assigned}: it gets into the file"
            )
        elif new > largest and (wrong := wrong_epoch(self._read[base] for base in sorted(self._read))) is not None:
            self.row.remarks.append(wrong)
        if self.plan.path.name != kf.METADATA_DIRECTORY:
            self._check_topic_id()

    def _assigned_epoch(self) -> int | None:
        key = self.plan.partition.topic_partition
        if key is None or self.cluster.metadata is None:
            return None
        assigned = self.cluster.metadata.partition(key)
        return None if assigned is None else assigned.leader_epoch

    def _check_topic_id(self) -> None:
        """Source: LogManager.isStrayKraftReplica, PartitionMetadataFile.read, Kafka 4.3."""
        key = self.plan.partition.topic_partition
        try:
            topic_id = read_topic_id(self.plan.path)
        except KafkalogError as error:
            self.findings.add(error.to_finding())
            topic_id = None
        exception = topic_id_exception(self.plan.path, self.broker)
        if exception is not None:
            self.row.exceptions.append(exception)
            return
        if self.broker == "2.8" or not self.is_whole_dir or self.plan.partition.kind is not None:
            return
        metadata = self.cluster.metadata
        if topic_id is None:
            self.row.stray = "it has no topic id (partition.metadata; kafkalog.install writes the broker's)"
        elif metadata is not None and self.cluster.is_complete and key is not None:
            self.row.stray = metadata.why_stray(key, topic_id, self.cluster.node_id) or self.row.stray

    def _dies(self, name: str, file: str, detail: str, *, is_offline: bool = False) -> None:
        path = file if "/" in file else f"{self.plan.path}/{file}" if file else str(self.plan.path)
        self.row.exceptions.append(BrokerException(name, path, detail, is_offline))


def _modified_ms(segment: Segment) -> int:
    return file_status(segment.path, kf.moved_names(str(segment.path))).st_mtime_ns // 10**6


_base_offset = attrgetter("base_offset")
_READ_FIRST = (kf.PRODUCER_SNAPSHOT_SUFFIX, kf.CLEANED_SUFFIX, kf.SWAP_SUFFIX)
"""A broker takes offsets from the names of these files before it loads segments."""

_ZEROS = "the time index ends in zeros"
