"""Segments in remote storage (KIP-405), from `__remote_log_metadata`, as a broker has them after it loaded the topic.

Mirrors `RemotePartitionMetadataStore` and `RemoteLogMetadataCache`.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import pyarrow as pa

from kafkalog.errors import DEFAULT_LIMITS, Limits
from kafkalog.format import REMOTE_LOG_METADATA, TopicPartition, partition_order
from kafkalog.html import JsonFields
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import Paths, open_log_dir
from kafkalog.parsing import Time, name_matcher
from kafkalog.protocol.printed import DELETE_STATES, SEGMENT_STATES
from kafkalog.result_kinds import arrow_schema
from kafkalog.survey.next_steps import paths_read
from kafkalog.system_topics.reading import AsOf, StateList, name_of
from kafkalog.system_topics.replay import decoded_records


@dataclass(slots=True)
class RemoteSegment(JsonFields):
    """A segment in remote storage."""

    topic: str
    topic_id: str
    partition: int
    segment_id: str
    start_offset: int
    end_offset: int
    """First and last offset."""
    broker_id: int
    """The broker that changed it last."""
    max_timestamp: int
    event_timestamp: int
    """Of the records, and of the last change, in ms."""
    size_in_bytes: int
    leader_epochs: dict[int, int] = field(default_factory=dict)
    """Start offset by leader epoch."""
    state: str = ""
    """``COPY_SEGMENT_STARTED``, ``COPY_SEGMENT_FINISHED`` or ``DELETE_SEGMENT_STARTED``."""
    custom_metadata: str | None = None
    """What the storage plugin keeps, in base64."""
    txn_index_empty: bool | None = None
    """True if it has no aborted transactions; None if it may have some."""
    order: int = 0
    """Number of the event that changed it last, among those of all partitions."""

    def ranges(self) -> dict[int, tuple[int, int]]:
        """The first and last offset of each leader epoch."""
        epochs = sorted(self.leader_epochs.items())
        ends = [start - 1 for _, start in epochs[1:]] + [self.end_offset]
        # no epochs in a malformed record
        return {epoch: (start, end) for (epoch, start), end in zip(epochs, ends, strict=False)}


class RemoteLog(StateList[RemoteSegment]):
    """Remote segments, sorted by topic, partition and start offset.

    Attributes
    ----------
    deleting : dict of TopicPartition to str
        Partitions whose remote log is being deleted, and how far that is.
    deleted : dict of str to RemoteSegment
        Segments that brokers have deleted, by segment id. Their objects may still be there.
    by_epoch : dict of (str, int) to dict of int to dict of int to str
        The segments that a broker looks for: by topic id and partition, leader epoch, and start offset in that epoch.
        Others that are finished were replaced, for example by a segment of a later leader.
    """

    noun = "segment"

    def __init__(self) -> None:
        super().__init__()
        self.deleting: dict[TopicPartition, str] = {}
        self.deleted: dict[str, RemoteSegment] = {}
        self.by_epoch: dict[tuple[str, int], dict[int, dict[int, str]]] = {}
        self._highest: dict[tuple[str, int, int], int] = {}

    def _refer(self, segment: RemoteSegment) -> None:
        """Let a finished segment replace those of its epochs that it covers.

        Source: RemoteLogLeaderEpochState.handleSegmentWithCopySegmentFinishedState, Kafka 4.3.
        """
        epochs = self.by_epoch.setdefault((segment.topic_id, segment.partition), {})
        for epoch, (start, last) in segment.ranges().items():
            starts, key = epochs.setdefault(epoch, {}), (segment.topic_id, segment.partition, epoch)
            while starts and max(starts) >= start and self._highest[key] <= last:
                del starts[max(starts)]
            starts[start] = segment.segment_id
            self._highest[key] = max(last, self._highest.get(key, -1))

    def _forget(self, segment: RemoteSegment) -> None:
        epochs = self.by_epoch.get((segment.topic_id, segment.partition), {})
        for epoch, start in segment.leader_epochs.items():
            if epochs.get(epoch, {}).get(start) == segment.segment_id:
                del epochs[epoch][start]

    def to_arrow(self) -> pa.Table:
        """The segments as a table."""
        rows = [{**asdict(one), "leader_epochs": list(one.leader_epochs.items())} for one in self]
        return pa.Table.from_pylist(rows, schema=_ARROW)


_ARROW: Final = arrow_schema(
    RemoteSegment,
    {"partition": pa.int32(), "broker_id": pa.int32(), "leader_epochs": pa.map_(pa.int32(), pa.int64())},
)


def remote_log(
    path: Paths | LogDir,
    *,
    topics: str | Sequence[str] | None = None,
    end_offset: int | None = None,
    end_timestamp: Time | None = None,
    limits: Limits | None = None,
) -> RemoteLog:
    """Read which segments are in remote storage.

    Parameters
    ----------
    path : path-like, sequence of path-like, or LogDir
        Log dirs with the partitions of ``__remote_log_metadata``.
    topics : str or sequence of str, optional
        Only these: names or globs such as ``orders-*``.
    end_offset, end_timestamp, limits
        See `groups`.

    Returns
    -------
    RemoteLog
        A list of `RemoteSegment`. Damage does not raise: reading continues after it, and `findings` has it.

    Examples
    --------
    >>> kafkalog.remote_log("tests/golden/log_dir")
    RemoteLog(0 segments)
    """
    log_dir = path if isinstance(path, LogDir) else open_log_dir(path, limits=limits or DEFAULT_LIMITS)
    result = RemoteLog()
    result.log_dirs = paths_read(log_dir)
    segments: dict[str, RemoteSegment] = {}
    as_of = AsOf.of(log_dir, [REMOTE_LOG_METADATA], end_offset, end_timestamp)
    events = decoded_records(log_dir, REMOTE_LOG_METADATA, as_of, result.findings.append)
    for number, record in enumerate(events):
        _apply(record.type, record.value or {}, segments, result, number)
    is_wanted = name_matcher(topics)
    result.extend(
        one
        for one in sorted(segments.values(), key=lambda one: (partition_order(one), one.start_offset))
        if is_wanted(one.topic)
    )
    return result


def _apply(
    kind: str,
    value: Mapping[str, Any],
    segments: dict[str, RemoteSegment],
    result: RemoteLog,
    number: int,
) -> None:
    deleting = result.deleting
    if kind == "RemotePartitionDeleteMetadata":
        of = value["topicIdPartition"]
        key = TopicPartition(of["name"], of["partition"])
        deleting[key] = name_of(DELETE_STATES, value["remotePartitionDeleteState"])
        if deleting[key] == "DELETE_PARTITION_FINISHED":
            del deleting[key]
            for one in list(segments.values()):
                if (one.topic_id, one.partition) == (of["id"], of["partition"]):
                    del segments[one.segment_id]
    elif kind == "RemoteLogSegmentMetadata":
        of = value["remoteLogSegmentId"]["topicIdPartition"]
        segment_id = value["remoteLogSegmentId"]["id"]
        if segment_id in segments:
            return  # of an event that was written again, the first counts
        segments[segment_id] = RemoteSegment(
            of["name"],
            of["id"],
            of["partition"],
            segment_id,
            value["startOffset"],
            value["endOffset"],
            value["brokerId"],
            value["maxTimestampMs"],
            value["eventTimestampMs"],
            value["segmentSizeInBytes"],
            {one["leaderEpoch"]: one["offset"] for one in value["segmentLeaderEpochs"]},
            name_of(SEGMENT_STATES, value["remoteLogSegmentState"]),
            _text(value["customMetadata"]),
            value.get("txnIndexEmpty") or None,
            number,
        )
    elif kind == "RemoteLogSegmentMetadataUpdate":
        known = segments.get(value["remoteLogSegmentId"]["id"])
        state = name_of(SEGMENT_STATES, value["remoteLogSegmentState"])
        # retention has deleted the record that it changes; or a broker drops the event
        if known is None or state not in _FOLLOWING.get(known.state, (state,)):
            return
        known.state, known.order = state, number
        known.broker_id, known.event_timestamp = value["brokerId"], value["eventTimestampMs"]
        known.custom_metadata = _text(value["customMetadata"]) or known.custom_metadata
        if state == "COPY_SEGMENT_FINISHED":
            result._refer(known)
        elif state == "DELETE_SEGMENT_STARTED":
            result._forget(known)
        elif state == "DELETE_SEGMENT_FINISHED":
            result.deleted[known.segment_id] = segments.pop(known.segment_id)


_FOLLOWING: Final = {
    "COPY_SEGMENT_STARTED": ("COPY_SEGMENT_STARTED", "COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED"),
    "COPY_SEGMENT_FINISHED": ("COPY_SEGMENT_FINISHED", "DELETE_SEGMENT_STARTED"),
    "DELETE_SEGMENT_STARTED": ("DELETE_SEGMENT_STARTED", "DELETE_SEGMENT_FINISHED"),
}
"""The states that may follow one. Source: RemoteLogSegmentState.isValidTransition, Kafka 4.3."""


def _text(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode()
