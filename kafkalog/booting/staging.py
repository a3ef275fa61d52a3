"""Stages the partitions of a boot: verifies and copies them, or joins their copies, and rebuilds their derived files.

`repair.recovering` reads every segment, checks it, and builds indexes, producer snapshots and leader epochs, so that a
broker starts without a recovery. This module chooses the other files, and collects facts from them. Where copies differ
or are damaged, `PlannedCopies` makes one log of them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kafkalog import format as kf
from kafkalog.booting.coordinators import highest_transactional_id
from kafkalog.booting.sources import Copy
from kafkalog.errors import CorruptionError, Finding, Findings, KafkalogError, Limits, Reason
from kafkalog.log.directory import Directory
from kafkalog.log.log_dir import LogDir
from kafkalog.log.partition import Partition
from kafkalog.log.recovery import rows_to_replay
from kafkalog.parsing import thread_count
from kafkalog.records.batch_table import Window
from kafkalog.repair.placement import Copied, PartitionOutput
from kafkalog.repair.recovering.recover import RecoveryRun
from kafkalog.repair.recovering.recovered_partitions import RecoveryReport
from kafkalog.repair.rescue.plan import LogPlan
from kafkalog.repair.rescue.replica import Replica, read_replica
from kafkalog.repair.rescue.writing import PlanWriter
from kafkalog.state.checkpoints import (
    encode_checkpoint,
    encode_partition_metadata,
    known_topic_id,
    read_leader_epochs,
)
from kafkalog.state.log_config import LogConfig
from kafkalog.state.producers import parse_snapshot, read_snapshot, with_markers
from kafkalog.state.transactions import TransactionReplay
from kafkalog.storage.location import Place
from kafkalog.storage.staging import StagedDirectory
from kafkalog.survey.retention import expiring, newest_timestamp
from kafkalog.survey.startup import PartitionPlan
from kafkalog.survey.startup_load import LoadPlan, RootOffsets
from kafkalog.text import counted, offset_range


@dataclass(slots=True)
class StagedPartition:
    """The facts about a staged copy of a partition."""

    copy: Copy
    node_id: int
    """The node that gets it."""
    log_start_offset: int = 0
    log_end_offset: int = 0
    n_bytes: int = 0
    n_segments: int = 0
    leader_epoch: int = kf.NO_EPOCH
    """The latest one."""
    producer_id: int = -1
    """The highest one."""
    open_transactions: list[tuple[int, int]] = field(default_factory=list)
    """Producer id and first offset of each."""


def stage(
    wanted: Sequence[tuple[Copy, int, str, str]],
    staged: StagedDirectory | None,
    *,
    limits: Limits,
    progress: Callable[[int], object],
    findings: Findings,
    strict: bool,
    is_compacted: Callable[[str], bool | None],
    is_tiered: Callable[[Copy], bool],
) -> tuple[list[StagedPartition], list[Path]]:
    """Verify and stage partitions; also returns the damaged ones, which are not staged.

    `wanted` has copies, each with its node, the directory of that node's partitions such as ``"data/"``, and the topic
    id. `staged` is None for a dry run. `findings` gets torn tails, and missing offsets, as `judged` returns them. With
    `strict`, a damaged partition is a CorruptionError, which is raised after all of them are verified. `is_compacted`
    returns whether a topic is compacted, None if that is unknown; `is_tiered`, whether segments of a copy are remote.
    """
    report = RecoveryReport(findings=Findings(findings.limit))
    offsets = {root: RootOffsets.read(root) for root in {copy.root.path for copy, *_ in wanted}}
    by_path = {copy.path: (copy, node_id, prefix, topic_id) for copy, node_id, prefix, topic_id in wanted}

    def planned(copy: Copy) -> LoadPlan:
        plan = LoadPlan(copy.path, offsets[copy.root.path], ignores_recovery_point=True, limits=limits)
        plan.partition.is_topic_compacted = is_compacted(copy.key.topic)
        return plan

    plans = [planned(copy) for copy, *_ in wanted]
    damaged: list[PartitionPlan] = []
    outputs: dict[Path, _Output] = {}

    def make(plan: LoadPlan) -> PartitionOutput:
        copy, _, prefix, topic_id = by_path[plan.path]
        inner = PartitionOutput()
        if staged is not None:
            (staged.path / prefix / str(copy.key)).mkdir(parents=True)
            inner = Copied(plan.path, staged, f"{prefix}{copy.key}/", _taken(plan.files.names))
        outputs[plan.path] = output = _Output(plan, inner, damaged if strict else [])
        output.write(kf.PARTITION_METADATA, encode_partition_metadata(topic_id))
        return output

    found = []

    def take(row: PartitionPlan) -> None:
        path = Path(row.path)
        # a broker serves what it does not notice, and consumers stop there
        if row.problem is not None or row.n_bytes_lost or row.unnoticed is not None:
            damaged.append(row)
            if staged is not None:
                staged.remove(f"{by_path[path][2]}{by_path[path][0].key}")
        else:
            copy, node_id, *_ = by_path[path]
            found.append(outputs.pop(path).described(StagedPartition(copy, node_id), row, findings))

    threads = thread_count(None)
    RecoveryRun(report, make, None, None, limits).recover(plans, threads, progress, take)
    if damaged and strict:
        raise damage_error(_why_damaged(damaged[0]), len(damaged), damaged[0].loss)
    paths = {Path(row.path) for row in damaged}
    _add_verified(report.findings, {str(copy.path): copy for copy, *_ in wanted}, paths, is_tiered, findings)
    return found, [*paths]


def _taken(names: Iterable[str]) -> list[str]:
    """The names of a partition's own files, without what else lies in its directory."""
    return [name for name in names if name.endswith(kf.SEGMENT_SUFFIXES) or name == kf.LEADER_EPOCH_CHECKPOINT]


def _add_verified(
    verified: Findings,
    copies: Mapping[str, Copy],
    damaged: set[Path],
    is_tiered: Callable[[Copy], bool],
    findings: Findings,
) -> None:
    """Add what the verification has found of the partitions that are served as they are; the others are joined."""
    for finding in verified.rows:
        path = finding.path or ""
        if any(Path(path).is_relative_to(one) for one in damaged):
            continue
        copy = copies.get(path) or copies.get(os.path.dirname(path))
        # files of a log dir hold no records
        findings.add(
            replace(finding, damage=False) if copy is None else judged(copy, finding, is_tiered=is_tiered(copy))
        )
    findings.n_more += verified.n_more
    findings.n_damage += verified.n_damage - sum(one.damage for one in verified.rows)


def judged(copy: Copy, finding: Finding, *, is_tiered: bool) -> Finding:
    """The finding about a copy, in which a gap that nothing explains counts as lost. What loses no records is a note.

    Offsets before the first segment of a tiered topic are in remote storage.
    """
    counts = finding.n_records, finding.n_markers, finding.n_returned
    if counts == (0, 0, 0) and finding.certainty == "exact":
        return replace(finding, damage=False)
    is_gap = finding.reason is Reason.OFFSET_GAP and finding.path == str(copy.path) and finding.length is None
    if not is_gap or finding.last_offset is None:
        return finding
    is_remote = is_tiered and finding.last_offset < copy.first_base_offset
    return finding if is_remote else replace(finding, damage=True)


def _why_damaged(row: PartitionPlan) -> Finding:
    """Why a broker would lose records of a partition, or not start."""
    finding = row.problem or next((one.finding for one in row.segments if one.finding is not None), row.unnoticed)
    end = "the log start offset is past the log end"
    return finding or Finding(Reason.LOG_START_BEHIND_END, end, path=row.path)


def damage_error(finding: Finding, n: int, loss: object = None) -> CorruptionError:
    """The error for `n` damaged partitions, of which the first has a finding, and what a broker would delete of it."""
    more = f"; so are {counted(n - 1, 'more partition')}" if n > 1 else ""
    lost = "" if loss is None else f" (a broker would delete {loss})"
    detail = (
        f"{finding.detail}: the partition is damaged{lost}{more}. Boot without --strict (strict=False) to keep every"
        " intact batch, or boot the output of kafkalog recover, which cuts it as a broker would"
    )
    return CorruptionError.about(finding, detail)


class _Output(PartitionOutput):
    """Collects facts from the small files of a partition while it is staged."""

    def __init__(self, plan: LoadPlan, inner: PartitionOutput, damaged: list[PartitionPlan]) -> None:
        self._plan, self._inner, self._damaged = plan, inner, damaged
        self._written: dict[str, bytes] = {}
        self._removed: set[str] = set()

    def write(self, name: str, data: bytes) -> None:
        """Give a file new content."""
        if name.endswith((kf.PRODUCER_SNAPSHOT_SUFFIX, kf.LEADER_EPOCH_CHECKPOINT)):
            self._written[name] = data
        self._removed.discard(name)
        self._inner.write(name, data)

    def copy(self, source: Place, name: str, size: int | None = None) -> None:
        """Give a file the content of another."""
        self._inner.copy(source, name, size)

    def remove(self, name: str) -> None:
        """Remove a file."""
        self._removed.add(name)
        self._inner.remove(name)

    def take_back(self, name: str) -> None:
        """Remove a file that was written."""
        self._written.pop(name, None)
        self._inner.take_back(name)

    def commit(self) -> None:
        """Make the changes; once a partition is damaged, the others are only verified."""
        if self._damaged:
            self._inner.abandon()
            return
        name = kf.LEADER_EPOCH_CHECKPOINT
        if name not in self._plan.files.names and name not in self._written:
            self.write(name, encode_checkpoint([]))
        self._inner.commit()

    def abandon(self) -> None:
        """Discard all changes."""
        self._inner.abandon()

    def described(self, found: StagedPartition, row: PartitionPlan, findings: Findings) -> StagedPartition:
        """Fill in the facts from the files."""
        found.log_start_offset, found.log_end_offset = row.log_start_offset, row.log_end_offset
        found.n_bytes, found.n_segments = row.n_bytes, len(row.segments)
        found.leader_epoch = max(self._epochs(findings), default=kf.NO_EPOCH)
        for name in {*self._plan.files.names, *self._written}:
            if not name.endswith(kf.PRODUCER_SNAPSHOT_SUFFIX):
                continue
            entries = self._entries(name)
            # producers whose batches are gone are in old snapshots only
            found.producer_id = max([found.producer_id, *entries["producer_id"].tolist()])
            if kf.parse_base_offset(name) == row.log_end_offset and name not in self._removed:
                is_open = entries["current_txn_first_offset"] >= 0
                rows = entries[is_open][["producer_id", "current_txn_first_offset"]].tolist()
                found.open_transactions = sorted(rows, key=lambda one: one[1])
        return found

    def _entries(self, name: str) -> npt.NDArray[np.void]:
        if name in self._written:
            return parse_snapshot(self._written[name])
        try:
            return read_snapshot(self._plan.path / name, may_go_on=True).entries
        except KafkalogError:
            return np.empty(0, kf.PRODUCER_SNAPSHOT_DTYPE)

    def _epochs(self, findings: Findings) -> list[int]:
        name = kf.LEADER_EPOCH_CHECKPOINT
        found = [int(line.split()[0]) for line in self._written.get(name, b"").decode().splitlines()[2:]]
        try:
            # the old file, too: it may be ahead of the records, and the next leader has to be later than all
            old = read_leader_epochs(self._plan.path / name)
        except KafkalogError as error:
            findings.add(error.to_finding(damage=False))
            old = None
        return found if old is None else [*found, *old["epoch"].tolist()]


@dataclass(eq=False)
class PlannedCopies:
    """The copies of a partition with the plan for them."""

    copies: list[Copy]
    """Those that can be read, by their number in the plan."""
    plan: LogPlan
    notes: list[Finding]
    """What is lost, and the source of each range."""

    @classmethod
    def of(cls, copies: Sequence[Copy], limits: Limits, *, is_compacted: bool | None) -> PlannedCopies:
        """Read the copies, and choose the batches. Raises the last KafkalogError if no copy can be read."""
        notes: list[Finding] = []
        replicas: list[Replica] = []
        read: list[Copy] = []
        problem: KafkalogError | None = None
        for copy in copies:
            try:
                partition = Partition(copy.path, limits=limits)
                partition.is_topic_compacted = is_compacted
                replicas.append(read_replica(partition, len(replicas), notes.append, lambda n: None, limits))
                read.append(copy)
            except KafkalogError as error:
                problem = error
                notes.append(error.to_finding(damage=False))
        if problem is not None and not replicas:
            raise problem
        plan = LogPlan(replicas)
        return cls(read, plan, [*notes, *plan.findings, *_about_sources(plan, read[0].key)])

    @property
    def leader(self) -> Copy:
        """The copy that leads."""
        return self.copies[self.plan.order[0]]

    def nodes(self, node_of: Mapping[Path, int]) -> list[int]:
        """The nodes in the order in which their copies lead, and then all nodes: a copy may not be readable."""
        return [*(node_of[self.copies[number].path] for number in self.plan.order), *sorted({*node_of.values()})]

    def as_they_are(self, node_of: Mapping[Path, int]) -> dict[int, Copy]:
        """The copies that nodes can have as they are: one with the whole log where the leader is, or a follower."""
        found: dict[int, Copy] = {}
        first = node_of[self.leader.path]
        for number in self.plan.order:
            copy, replica = self.copies[number], self.plan.replicas[number]
            node_id = node_of[copy.path]
            fits = self.plan.is_whole(replica) if node_id == first else self.plan.follows(number)
            if fits:
                found.setdefault(node_id, copy)
        return found

    @property
    def lacks_offsets(self) -> bool:
        """Whether no copy has some offsets, or may have lost them."""
        return bool(self.plan.holes) or any(one.reason is Reason.OFFSET_GAP for one in self.plan.findings)

    @property
    def damage(self) -> Finding | None:
        """The first loss of a copy."""
        losses = (lost for replica in self.plan.replicas for lost in replica.losses)
        return next((lost.to_finding("lost offsets") for lost in losses), None)

    def difference(self) -> tuple[Copy, str] | None:
        """The first copy that is not as the one that leads, and how it differs."""
        leader = self.plan.leader
        for copy, replica in zip(self.copies, self.plan.replicas, strict=True):
            # each replica deletes old segments at its own time
            first = max((int(one.rows["first_offset"][0]) for one in (replica, leader) if one.rows.size), default=0)
            rows, others = (one.rows[one.rows["first_offset"] >= first] for one in (replica, leader))
            n = min(rows.size, others.size)
            differs = np.flatnonzero(rows["crc"][:n] != others["crc"][:n])
            if differs.size:
                return copy, f"the batches differ from offset {int(rows['first_offset'][differs[0]])} on"
            if rows.size != others.size:
                return copy, f"it ends at offset {replica.end_offset}, the other at {leader.end_offset}"
        return None

    def write(self, directory: Path | None, topic_id: str | None, node_id: int, limits: Limits) -> StagedPartition:
        """Write the partition's files and return the facts about them; None only reads."""
        replay = TransactionReplay(limits=limits)
        if directory is not None:
            directory.parent.mkdir(parents=True, exist_ok=True)

        def see(window: Window) -> None:
            rows = rows_to_replay(window.batches)
            if rows.size:
                told, _ = with_markers(window, window.batches[rows], limits=limits)
                replay.update(told, told.base_offset)

        PlanWriter(self.plan, limits, self.notes.append, see).write(directory, topic_id)
        return StagedPartition(
            self.leader,
            node_id,
            self.plan.start_offset,
            self.plan.end_offset,
            int(self.plan.rows["size_in_bytes"].sum()),
            len(self.plan.boundaries),
            max(replica.last_epoch for replica in self.plan.replicas),
            open_transactions=[(one.producer_id, one.first_offset) for one in replay.open_transactions()],
        )


def with_futures(
    copies: list[Copy], futures: Iterable[Copy], topic_id: str | None, plan: Callable[[list[Copy]], PlannedCopies]
) -> list[Copy]:
    """The copies of a partition, and those that a broker was making of them, if these have what all others lost.

    A broker never has more in such a copy than in what it copies. `topic_id` is that of the topic in the metadata; such
    a copy may be of an earlier topic of that name.
    """
    known = {topic_id, *(known_topic_id(one.path) for one in copies)} - {None}
    same = [one for one in futures if not known or known_topic_id(one.path) in (None, *known)]
    if not same:
        return copies
    for one in same:
        one.refuse_forbidden()
    every = [*copies, *same]
    before, after = plan(copies), plan(every)
    if not before.lacks_offsets and after.plan.end_offset <= before.plan.end_offset:
        return copies
    offsets, more = (planned.plan.rows["first_offset"] for planned in (before, after))
    return every if more.size > offsets.size and np.isin(offsets, more).all() else copies


def _about_sources(plan: LogPlan, key: kf.TopicPartition) -> Iterator[Finding]:
    """Name the offsets that come from copies that do not lead, and those of copies that are dropped."""
    leader = plan.leader.partition.path
    taken: list[tuple[str, int, int]] = []
    for piece in plan.pieces:
        if taken and taken[-1][0] == piece.source and taken[-1][2] == piece.first_offset:
            taken[-1] = piece.source, taken[-1][1], piece.last_offset + 1
        else:
            taken.append((piece.source, piece.first_offset, piece.last_offset + 1))
    for source, start, end in taken:
        if source != str(leader):
            given = f"offsets {offset_range(start, end)} of {key}"
            detail = f"{given} come from this copy: {leader}, which leads, lacks them"
            yield Finding(Reason.PARTITION_TWICE, detail, path=source, damage=False)
    for number, compared in sorted(plan.comparisons.items()):
        replica, cut = plan.replicas[number], compared.end
        if cut < replica.end_offset:
            shared = max(min(replica.end_offset, plan.end_offset), cut)
            pairs = (cut, shared), (shared, replica.end_offset)
            parts = [f"offsets {offset_range(start, end)}" for start, end in pairs if start < end]
            detail = f"{' and '.join(parts)} of this copy are dropped: {leader}, which leads, has a later"
            detail += " leader epoch there"
            yield Finding(Reason.PARTITION_TWICE, detail, path=str(replica.partition.path), damage=False)


def highest_producer_id(directory: Path) -> int:
    """The highest producer id in a partition's snapshots, batches and coordinator's records; -1 for none."""
    found = -1
    with contextlib.suppress(KafkalogError):
        for window in Partition(directory).iter_batches(on_corruption="skip"):
            found = max([found, *window.batches.producer_id.tolist()])
    parsed = kf.parse_partition_directory(directory.name)
    if parsed is not None and parsed.topic_partition.topic == kf.TRANSACTION_STATE:
        with contextlib.suppress(KafkalogError):
            found = max(found, highest_transactional_id(LogDir(directory)))
    for name in Directory.or_empty(directory).snapshots:
        with contextlib.suppress(KafkalogError):
            found = max([found, *read_snapshot(directory / name, may_go_on=True).entries["producer_id"].tolist()])
    return found


def offsets_past_retention(partitions: Sequence[StagedPartition], config: LogConfig, now_ms: int) -> int:
    """How many offsets of some partitions a broker deletes with these settings: the number of records, or more."""
    total = 0
    for one in partitions:
        with contextlib.suppress(KafkalogError):
            segments = Partition(one.copy.path).segments
            newest = [newest_timestamp(segment) for segment in segments]
            n_gone = len(expiring([segment.size_in_bytes for segment in segments], newest, config, now_ms))
            end = segments[n_gone].base_offset if n_gone < len(segments) else one.log_end_offset
            total += max(end - one.log_start_offset, 0) if n_gone else 0
    return total
