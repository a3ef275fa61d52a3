"""The contents of a report, as tables: the results of other commands, joined by topic and partition.

Each partition is verified, and then its headers are read once more for all counts. Findings come from `verify`;
preflight, groups and transactions add theirs if verify has none about the same bytes.
"""

from __future__ import annotations

import contextlib
import os
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain
from typing import Any, Final

from kafkalog import format as kf
from kafkalog.errors import Finding, Findings, KafkalogError, Limits, Reason, least_certain, lost_markers, lost_records
from kafkalog.indexes.statistics import PartitionMeter, SegmentMeter
from kafkalog.log.live import is_live, settled
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import partitions_of
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.operations.listing import Clusters, clusters_beside, summarise
from kafkalog.operations.verifying.values import VerifiedValues
from kafkalog.operations.verifying.verified_partitions import Verification, VerifiedPartition
from kafkalog.operations.verifying.verify import iter_verify
from kafkalog.parsing import TopicPatterns
from kafkalog.records.batch_table import BatchTable
from kafkalog.repair.recovering.recovered_partitions import Preflight
from kafkalog.reporting.space_meter import SPACE_TABLES, SpaceMeter
from kafkalog.reporting.tables import Table, tables_of
from kafkalog.scanning.batch_scan import BatchRows
from kafkalog.scanning.batch_summary import BatchSummary
from kafkalog.state.cluster_image import OF_TOPIC
from kafkalog.state.log_config import DELETE, LogConfig
from kafkalog.storage.location import parent_of
from kafkalog.storage.removals import is_gone
from kafkalog.survey.next_steps import NextStep
from kafkalog.survey.retention import cleanable, expiring, first_dirty, newest_timestamp, retention_rules
from kafkalog.survey.startup import VERDICTS, Verdict
from kafkalog.survey.topics import TopicConfig, TopicSettings
from kafkalog.system_topics.groups import GroupOffset, Groups
from kafkalog.system_topics.transactions import Transactions
from kafkalog.text import counted, iso_seconds

UNKNOWN: Final = "unknown"
"""The verdict about a partition whose files are not local."""
MOST_ROWS: Final = 1000
"""Rows of the table of producers."""

TABLES: Final = f"""
findings: Findings. What is damaged, and notes about what is unusual.
    damage bool, path?, position number?, base_offset number?, last_offset number?, n_records number?, certainty?,
    reason, detail
losses: Losses. Offsets whose records existed and cannot be read. Certainty says where the number comes from.
    path, first_offset number?, end_offset number?, n_records number?, certainty? ~1, n_bytes bytes ~2, reason,
    n_markers number
problems: Problems at start. Files that keep a broker from starting.
    path, effect, reason, detail ~1
start: What a broker does when it starts. Partitions with which something happens.
    path, verdict, log_start_offset number ~1, log_end_offset number, n_bytes_lost bytes, n_records_lost number ~2,
    steps list
topics: Topics. Sizes are those of the .log files.
    topic, n_partitions number ~7, n_segments number ~4, n_bytes bytes, share share ~3, n_records number,
    n_records_is_minimum bool ~2, first_timestamp time? ~6, max_timestamp time?, formats list ~1, codecs list ~5,
    cleanup_policy? ~8, n_damaged number, verdict
partitions: Partitions. Files are the .log files with their indexes and all else in the directory.
    partition, topic, path, n_segments number, n_bytes bytes, n_file_bytes bytes, log_start_offset number,
    log_end_offset number, high_watermark number?, n_records number, n_records_is_minimum bool,
    first_timestamp time?, max_timestamp time?, formats list, codecs list, n_damage number, n_unreadable number,
    n_records_lost number, verdict
groups: Groups. Offsets out of range are those that the log no longer has, or does not have yet.
    group, type ~1, state, n_members number ~2, n_partitions number, lag number?, n_out_of_range number ~3
lags: Lag by topic. The lag of each group in each topic.
    group, topic, n_partitions number, lag number?, n_out_of_range number
transactions: Open transactions. Consumers with read_committed wait for those that block. A command ends one that hangs.
    transactional_id?, state? ~3, producer_id number, producer_epoch number ~1, topic, partition number,
    start_offset number, last_timestamp time, idle_ms ms? ~5, n_held number ~2, is_blocking bool ~6, is_hanging bool,
    abort_command command? ~4
undecodable: Values that do not decode. By topic and column, with the first reason.
    topic?, column, n_records number, n_undecoded number, first_partition number?, first_offset number?,
    first_reason?
outlook: Retention and cleaning. What a broker deletes or cleans next, and why not more.
    partition, policy list, settings, n_bytes bytes, n_segments_expired number, n_bytes_expired bytes,
    next_deletion time?, dirty_bytes bytes?, dirty_ratio share?, will_be_cleaned bool?, reasons list
batches: Batching by topic. Small batches cost space and time: each has a header of 61 bytes, and compresses less.
    topic, compression, magic number, n_batches number, n_records number, n_bytes bytes, mean_records decimal?,
    mean_bytes decimal, p50_bytes bytes, p99_bytes bytes
producers: Producers. Those with the most bytes; -1 are all without an id.
    producer_id number, n_batches number, n_records number, n_bytes bytes, mean_records decimal?, mean_bytes decimal,
    n_transactional number
indexes: Offset indexes by topic. Bytes between entries. A lookup scans half of a gap on average.
    topic, n_segments number, n_unindexed number, n_entries number?, entries_per_mib decimal?, mean_gap_bytes decimal?,
    p99_gap_bytes bytes?, max_gap_bytes bytes?, worst_scan bytes?
{SPACE_TABLES.strip()}
next: Next steps. The shortest way to a running broker.
    line command, why, command arguments
"""
"""Name, title and about of each table; below, its columns with their kinds. Those without a kind are text."""


_OF_SUMMARY: Final = ("path", "high_watermark", "first_timestamp", "max_timestamp", "codecs")
_OF_INDEX: Final = ("mean", "p99", "max")


@dataclass(slots=True)
class Contents:
    """Fills the tables of a report. Segments expire by the clock `now_ms`."""

    limits: Limits
    now_ms: int
    tables: dict[str, Table] = field(default_factory=lambda: tables_of(TABLES))
    findings: Findings = field(init=False)
    space: SpaceMeter = field(default_factory=SpaceMeter)
    transactional: set[kf.TopicPartition] = field(default_factory=set)
    """Partitions that may have open transactions."""
    _seen: set[tuple[Any, ...]] = field(default_factory=set)
    _damaged: set[str | None] = field(default_factory=set)
    _index: tuple[str, PartitionMeter] | None = None
    """The topic whose partitions are walked, and what their indexes add up to."""
    _batches: BatchSummary = field(default_factory=lambda: BatchSummary(["compression", "magic"]))
    _producers: BatchSummary = field(default_factory=lambda: BatchSummary(["producer_id"]))
    _verdicts: dict[str, Verdict] = field(default_factory=dict)
    _policies: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.findings = Findings(self.limits.max_findings)

    def row(self, name: str, **values: Any) -> None:
        """Add a row to a table; the names are those of its columns."""
        table = self.tables[name]
        table.rows.append(tuple(values.pop(column) for column in table.columns))
        assert not values, values

    def add_findings(self, found: Iterable[Finding], *, is_secondary: bool = False) -> None:
        """Add findings, each once.

        With `is_secondary`, damage of files with earlier damage is left out: several passes read the same bytes.
        """
        for one in found:
            path = one.path and os.path.abspath(one.path)
            key = (path, one.reason, one.position, one.base_offset)
            # no other pass looks for a topic id
            is_known = one.damage and path in self._damaged and one.reason is not Reason.TOPIC_ID_MISSING
            if key in self._seen or (is_secondary and is_known):
                continue
            self.findings.add(one)
            if len(self._seen) < self.limits.max_findings:
                self._seen.add(key)
                if one.damage:
                    self._damaged.add(path)

    def lost(self) -> dict[str, Any]:
        """Return how many records are lost, and the same in words."""
        losses = [*self.findings.losses.values()]
        n_records, n_unknown = sum(one.n_records for one in losses), sum(one.n_unknown for one in losses)
        certainty = least_certain(*(one.certainty for one in losses))
        n_partitions = sum(bool(one.n_records or one.n_unknown or one.n_markers) for one in losses)
        n_markers = sum(one.n_markers for one in losses)
        text = lost_records(n_records, certainty) if n_records else ""
        more = f"{lost_records(None)} in {counted(n_unknown, 'place')}" if n_unknown else ""
        where = f" in {counted(n_partitions, 'partition')}" if n_partitions else ""
        return {
            "n_records_lost": n_records,
            "n_unknown_losses": n_unknown,
            "losses": " and ".join(filter(None, [text, more, lost_markers(n_markers) if n_markers else ""])) + where,
        }

    def add_next(self, step: NextStep) -> None:
        """Add a command to run next."""
        self.row("next", line=str(step), why=step.why, command=list(step.command))

    def add_start(self, plans: Preflight) -> None:
        """Add what a broker's start does."""
        for problem in plans.problems:
            self.row(
                "problems", path=problem.path, effect=problem.effect, reason=problem.reason.value, detail=problem.detail
            )
        for plan in plans.partitions:
            self._verdicts[os.path.abspath(plan.path)] = plan.verdict
            if plan.verdict != "starts":
                names = ("path", "verdict", "log_start_offset", "log_end_offset", "n_bytes_lost")
                self.row(
                    "start",
                    **{name: getattr(plan, name) for name in names},
                    n_records_lost=plan.loss.n_records,
                    steps=[line.strip() for line in plan.lines()[1:]],
                )

    def add_groups(self, groups: Groups, topics: TopicPatterns) -> None:
        """Add groups, and their lag in each topic."""
        for group in groups:
            by_topic: dict[str, list[Any]] = defaultdict(list)
            for offset in group.offsets:
                if topics.wants(offset.topic):
                    by_topic[offset.topic].append(offset)
            offsets = [*chain.from_iterable(by_topic.values())]
            members = len(group.members)
            self.row(
                "groups", group=group.name, type=group.type, state=group.state, n_members=members, **_lag_of(offsets)
            )
            for topic, some in by_topic.items():
                self.row("lags", group=group.name, topic=topic, **_lag_of(some))

    def add_transactions(self, found: Transactions, topics: TopicPatterns) -> dict[kf.TopicPartition, int]:
        """Add open transactions; return the first offset of the earliest one by partition."""
        first: dict[kf.TopicPartition, int] = {}
        for one in found:
            for part in one.open:
                key = kf.TopicPartition(part.topic, part.partition)
                first[key] = min(part.start_offset, first.get(key, part.start_offset))
                if topics.wants(part.topic):
                    values = {**part.as_dict(), "transactional_id": one.transactional_id, "state": one.state}
                    self.row("transactions", **{name: values[name] for name in self.tables["transactions"].columns})
        return first

    def add_partitions(
        self,
        log_dir: LogDir,
        topics: str | Sequence[str] | None,
        **options: Any,
    ) -> None:
        """Verify each partition, and walk its headers once more.

        `options` are `threads` and `progress` of `iter_verify`.
        """
        found = [one for one in partitions_of(log_dir, topics, set_apart=True) if isinstance(one, Partition)]
        partitions = {str(one.path): one for one in found}
        clusters = clusters_beside(found, self.limits)
        self.add_findings(clusters.findings)
        result = Verification()
        for verified in iter_verify(log_dir, topics=topics, limits=self.limits, into=result, **options):
            self.add_findings(verified.findings)
            self.findings.n_more += verified.n_more_findings
            self.findings.n_damage += verified.n_more_findings
            for lost in verified.losses:
                row = lost.as_dict()
                del row["n_intact"]  # batches that cannot be read are not intact
                self.row("losses", **row)
            partition = partitions.pop(verified.path, None)
            if partition is None or _is_removed(partition):
                continue
            self._measure(partition, verified, clusters)
        self._end_topic()
        self.add_findings(result.own_findings)
        self._end_partitions()

    def add_outlook(
        self,
        log_dir: LogDir,
        topics: str | Sequence[str] | None,
        config: str | os.PathLike[str] | None,
        first_open: dict[kf.TopicPartition, int],
    ) -> None:
        """Add what retention and the log cleaner do next; `first_open` has the earliest open transactions."""
        found = [one for one in partitions_of(log_dir, topics) if isinstance(one, Partition)]
        settings = TopicSettings.of((parent_of(one.path) for one in found), config=config, limits=self.limits)
        for partition in found:
            key = partition.topic_partition
            # raft deletes the segments of the metadata log itself, once a snapshot covers them
            if key is None or key.topic == kf.METADATA_TOPIC or _is_removed(partition):
                continue
            ahead = self._outlook(partition, settings, first_open.get(key))
            if isinstance(ahead, KafkalogError):
                self.add_findings([] if _is_removed(partition) else [ahead.to_finding()], is_secondary=True)
                continue
            self.row("outlook", partition=str(key), n_bytes=partition.size_in_bytes, **asdict(ahead))

    def _outlook(
        self, partition: Partition, settings: TopicSettings, first_open: int | None
    ) -> Outlook | KafkalogError:
        """The outlook of a partition; a running broker may delete segments meanwhile, so each attempt lists them."""

        def attempt() -> Outlook | KafkalogError:
            try:
                return outlook(partition, settings, self.now_ms, first_open)
            except KafkalogError as error:
                with contextlib.suppress(KafkalogError):
                    partition.segments = Partition(partition.path, limits=self.limits).segments
                return error

        root = parent_of(partition.path)
        return settled(attempt, lambda found: not isinstance(found, KafkalogError), is_live=is_live(root))

    def _measure(self, partition: Partition, verified: VerifiedPartition, clusters: Clusters) -> None:
        """Count the batches of a partition in one walk."""
        key = partition.topic_partition
        topic = str(partition.path) if key is None else key.topic
        if self._index is None or self._index[0] != topic:
            self._end_topic()
            self._index = topic, PartitionMeter(topic)
        meters: list[SegmentMeter] = []
        last: Segment | None = None

        def visit(segment: Segment, batches: BatchTable) -> None:
            nonlocal last
            if segment is not last:
                last = segment
                meters.append(segment.index_meter())
            meters[-1].feed(batches)
            rows = BatchRows(key, segment.path.name, batches)
            self._batches.add(rows)
            self._producers.add(rows)
            self.space.add(batches)
            if key is not None and bool(batches.is_transactional.any()):
                self.transactional.add(key)

        summary = summarise(partition, clusters=clusters, visit=visit)
        # of transactions that began before the log starts, a snapshot tells; damage may hide batches of one
        if key is not None and (not verified.ok or any(one.base_offset for one in partition.segments[:1])):
            self.transactional.add(key)
        for meter in meters:
            meter.finish()
            self._index[1].add(meter)
        if summary.configs is not None:
            self._policies[topic] = summary.configs.get("cleanup.policy", "")
        self.row(
            "partitions",
            partition=summary.name,
            topic=topic,
            n_segments=len(summary.segments),
            n_bytes=summary.size_in_bytes,
            n_file_bytes=self.space.add_files(partition.path, summary.size_in_bytes),
            log_start_offset=summary.start,
            log_end_offset=summary.end,
            n_records=summary.n_readable_records,
            n_records_is_minimum=summary.n_readable_is_minimum,
            formats=[f"v{magic}" for magic in summary.magics],
            n_damage=verified.n_more_findings + sum(one.damage and not one.is_unreadable for one in verified.findings),
            n_unreadable=sum(one.is_unreadable for one in verified.findings),
            n_records_lost=verified.loss.n_records,
            verdict=self._verdicts.get(os.path.abspath(verified.path), UNKNOWN),
            **{name: getattr(summary, name) for name in _OF_SUMMARY},
        )

    def _end_topic(self) -> None:
        """Add the rows of a topic, whose partitions follow each other: its indexes, and its batches by codec."""
        if self._index is None:
            return
        topic, meter = self._index
        self._index = None
        batches, self._batches = self._batches, BatchSummary(self._batches.keys)
        for one in batches.objects():
            values = {"topic": topic, **one}
            self.row("batches", **{column: values[column] for column in self.tables["batches"].columns})
        found = meter.statistics()
        index = found.index
        gaps = {} if index is None else asdict(index.gap_bytes)
        self.row(
            "indexes",
            topic=topic,
            n_segments=found.n_segments,
            n_unindexed=found.n_unindexed,
            n_entries=None if index is None else index.n_entries,
            entries_per_mib=None if index is None else index.entries_per_mib,
            worst_scan=None if index is None else index.worst_scan,
            **{f"{name}_gap_bytes": gaps.get(name) for name in _OF_INDEX},
        )

    def _end_partitions(self) -> None:
        """Add the tables of sums over all partitions."""
        partitions = [*self.tables["partitions"].objects()]
        all_bytes = sum(one["n_bytes"] for one in partitions)
        by_topic: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for one in partitions:
            by_topic[one["topic"]].append(one)
        for topic, rows in by_topic.items():
            self.row(
                "topics",
                topic=topic,
                n_partitions=len(rows),
                share=sum(one["n_bytes"] for one in rows) / all_bytes if all_bytes else 0.0,
                n_records_is_minimum=any(one["n_records_is_minimum"] for one in rows),
                cleanup_policy=self._policies.get(topic),
                n_damaged=sum(bool(one["n_damage"]) for one in rows),
                verdict=max((one["verdict"] for one in rows), key=[UNKNOWN, *VERDICTS].index),
                first_timestamp=min(
                    (one["first_timestamp"] for one in rows if one["first_timestamp"] is not None), default=None
                ),
                max_timestamp=max(
                    (one["max_timestamp"] for one in rows if one["max_timestamp"] is not None), default=None
                ),
                **{name: sorted({value for one in rows for value in one[name]}) for name in ("formats", "codecs")},
                **{name: sum(one[name] for one in rows) for name in ("n_segments", "n_bytes", "n_records")},
            )
        for one in self._producers.objects(MOST_ROWS):
            self.row("producers", **{column: one[column] for column in self.tables["producers"].columns})
        self.tables["producers"].n_more = max(len(self._producers) - MOST_ROWS, 0)
        for name in ("days", "codecs", "files"):
            self.tables[name].rows = self.space.rows(name)

    def end(self) -> None:
        """Add the table of findings, damage first."""
        table = self.tables["findings"]
        for one in sorted(self.findings.rows, key=lambda finding: not finding.damage):
            values = one.as_dict()
            table.rows.append(tuple(values[name] for name in table.columns))
        table.n_more = self.findings.n_more

    def add_values(self, values: Iterable[VerifiedValues]) -> None:
        """Add how many keys or values do not decode."""
        table = self.tables["undecodable"]
        for one in values:
            table.rows.append(tuple(getattr(one, name) for name in table.columns))
            if not one.ok:
                self.findings.add(one.to_finding())


def _is_removed(partition: Partition) -> bool:
    """Whether a running broker has removed a partition since it was listed."""
    return is_gone(partition.path)


def _lag_of(offsets: Sequence[GroupOffset]) -> dict[str, int | None]:
    known = [one.lag for one in offsets if one.lag is not None]
    return {
        "n_partitions": len(offsets),
        "lag": sum(known) if known else None,
        "n_out_of_range": sum(one.out_of_range is not None for one in offsets),
    }


@dataclass(frozen=True, slots=True)
class Outlook:
    """The outlook of a partition."""

    policy: list[str]
    settings: str
    """Where they come from: "topic", "broker", "assumed" (Kafka's defaults; "compact" if the cleaner was here), or
    "unknown": nothing is foretold, and `reasons` says what is not known."""
    n_segments_expired: int = 0
    n_bytes_expired: int = 0
    """Segments that a broker deletes at its next check."""
    next_deletion: int | None = None
    """When the next segment expires by retention.ms, in ms; None if none will."""
    dirty_bytes: int | None = None
    dirty_ratio: float | None = None
    """Bytes that the cleaner could clean, and their share; None if the topic is not compacted."""
    will_be_cleaned: bool | None = None
    reasons: tuple[str, ...] = ()
    """Reasons that block deletion or cleaning."""


def outlook(partition: Partition, settings: TopicSettings, now_ms: int, first_open: int | None) -> Outlook:
    """Predict the next actions of retention and the cleaner at a time of the broker's clock.

    `first_open` is the start offset of the first open transaction. All records count as replicated. Source:
    UnifiedLog.deleteOldSegments, LogCleanerManager.cleanableOffsets, Kafka 4.3.
    """
    is_assumed = settings.properties is None
    # the page and the guide promise Kafka's defaults for a broker whose server.properties is not given
    known = (replace(settings, properties={}, _configs={}) if is_assumed else settings).config(partition)
    config, why = retention_rules(known)
    is_foretold = not why or known.cleaner
    place = _place(known, settings) if is_foretold or known.is_tiered else "unknown"
    found: dict[str, Any] = {"policy": list(config.cleanup_policy), "settings": place}
    if not is_foretold:
        is_unknown = bool(known.why_unknown("cleanup.policy"))
        return Outlook(**found | {"policy": [] if is_unknown else found["policy"]}, reasons=(why,))
    sizes = [segment.size_in_bytes for segment in partition.segments]
    bases = [segment.base_offset for segment in partition.segments]
    last = partition.segments[-1:]
    newest = [newest_timestamp(segment, is_proved=segment in last) for segment in partition.segments]
    reasons: list[str] = []
    if DELETE in config.cleanup_policy:
        expired = expiring(sizes, newest, config, now_ms)
        found |= {"n_segments_expired": len(expired), "n_bytes_expired": sum(sizes[: len(expired)])}
        stays = next((number for number in range(len(expired), len(sizes)) if sizes[number]), None)
        if config.retention_ms < 0 and config.retention_bytes < 0:
            reasons.append("no limit: retention.ms and retention.bytes are -1")
        elif stays is not None and config.retention_ms >= 0:
            found["next_deletion"] = newest[stays] + config.retention_ms
            old = sum(now_ms - one > config.retention_ms for one in newest[stays + 1 :])
            waits = f"; {counted(old, 'later segment')} that expired wait for it" if old else ""
            if newest[stays] > now_ms:
                when = iso_seconds(newest[stays])
                reasons.append(f"segment {bases[stays]} has timestamps in the future, up to {when}{waits}")
            elif waits:
                reasons.append(f"segment {bases[stays]} has not expired{waits}")
    if config.is_compacted:
        found |= _cleaning(partition, config, now_ms, first_open, (bases, sizes, newest), reasons)
    return Outlook(**found, reasons=tuple(reasons))


def _place(known: TopicConfig, settings: TopicSettings) -> str:
    has_topic = settings.metadata is not None and known.topic in settings.metadata.topic_ids
    return OF_TOPIC if has_topic else "broker" if settings.properties is not None else "assumed"


def _cleaning(
    partition: Partition,
    config: LogConfig,
    now_ms: int,
    first_open: int | None,
    segments: tuple[list[int], list[int], list[int]],
    reasons: list[str],
) -> dict[str, Any]:
    bases, sizes, newest = segments
    if not bases:
        return {"dirty_bytes": 0, "dirty_ratio": 0.0, "will_be_cleaned": False}
    lag, dirty = config.min_compaction_lag_ms, first_dirty(partition)
    first, stop, why = cleanable(bases, newest.__getitem__, lag, now_ms, dirty=dirty, first_open=first_open)
    end = max(stop, first)
    # a segment that holds the first dirty offset after its base is clean up to there, and cleaned again
    n_clean = sum(sizes[:first])
    n_dirty = sum(sizes[first:end])
    ratio = n_dirty / (n_clean + n_dirty) if n_clean + n_dirty else 0.0
    is_overdue = any(now_ms - one > config.max_compaction_lag_ms for one in newest[first:end])
    is_cleaned = bool(n_dirty) and (is_overdue or ratio > config.min_cleanable_dirty_ratio)
    if why:
        reasons.append(why)
    if not is_cleaned and n_dirty:
        reasons.append(
            f"dirty ratio {ratio:.2f} is not above min.cleanable.dirty.ratio {config.min_cleanable_dirty_ratio}"
        )
    elif not n_dirty and not reasons:
        reasons.append("all that is not cleaned is in the active segment")
    return {"dirty_bytes": n_dirty, "dirty_ratio": ratio, "will_be_cleaned": is_cleaned}
