"""Offsets for timestamps are what a running broker lists."""

import random
from collections import Counter

import numpy as np
import pytest
from conformance.history import FLOODED, Topic
from conformance.kafka import wait_until
from oracles import BruteForce

import kafkalog
from kafkalog.operations.trace_lookup import trace_timestamp
from kafkalog.state.checkpoints import read_offset_checkpoint

pytestmark = [pytest.mark.broker, pytest.mark.slow]

NAMES = {"latest": -1, "earliest": -2, "max-timestamp": -3}


def questions(partition, draw):
    """Around record timestamps, around what begins and ends segments, far before and far behind all."""
    records = kafkalog.read_numpy(
        partition.path, columns=["timestamp"], include_control=True, include_deleted=True
    ).timestamp.tolist()
    stamps = set(draw.sample(records, min(len(records), 12)))
    for segment in partition.segments:
        batches = segment.batches
        if len(batches):
            stamps |= {int(batches.max_timestamp.max()), int(batches.max_timestamp[0]), int(batches.max_timestamp[-1])}
        stamps.add(segment.path.stat().st_mtime_ns // 10**6)
    near = {stamp + more for stamp in stamps for more in (-1, 0, 1)}
    between = {draw.randrange(min(records), max(records) + 1) for _ in range(12)} if records else set()
    return [*NAMES.values(), 0, 1, 2**62, *sorted(stamp for stamp in near | between if stamp >= 0)]


def asked_and_answered(history):
    opened = kafkalog.open(history.live.log_dir)
    draw = random.Random(7)
    partitions = {str(key): partition for key, partition in opened.items() if key.topic not in FLOODED}
    partitions.pop("__cluster_metadata-0", None)
    times = {name: questions(partition, draw) for name, partition in partitions.items()}
    rows = history.client.ask("offsets", times=times)["partitions"]
    answers = {f"{row['topic']}-{row['partition']}": [tuple(answer) for answer in row["answers"]] for row in rows}
    return {name: (partition, times[name], answers[name]) for name, partition in partitions.items()}


@pytest.mark.filterwarnings("ignore::kafkalog.ConfigWarning")  # random times may look like seconds
def test_offsets_for_timestamps_are_those_that_the_broker_lists(history):
    named = {number: word for word, number in NAMES.items()}
    kinds = Counter()
    for name, (partition, asked, answers) in asked_and_answered(history).items():
        found = partition.find_timestamps([named.get(stamp, stamp) for stamp in asked]).tolist()
        compared = zip(asked, found, answers, strict=True)
        assert not [(name, stamp, ours, theirs) for stamp, ours, theirs in compared if ours != theirs]
        again = kafkalog.Partition(partition.path)
        alone = [again.offset_for_timestamp(named.get(stamp, stamp)) for stamp in asked[:25]]
        assert alone == [offset for _, offset, _ in answers[:25]]
        slowly = BruteForce(partition)
        assert [slowly.answer(stamp)[:2] for stamp in asked] == [answer[:2] for answer in answers], name
        kinds += what_was_asked(partition, asked, answers)
        traces = [trace_timestamp(partition, named.get(stamp, stamp)) for stamp in asked[:25]]
        assert [trace.offset for trace in traces] == alone
        assert [finding for trace in traces for finding in trace.findings] == [], "a broker's own indexes are right"
    assert len(kinds) == 6, kinds
    assert kinds["questions"] >= 3000


def test_a_segment_that_the_cleaner_left_without_batches_counts_by_its_modification_time(history):
    """Every key of the first segments is written again later, and the cleaner is let at it once all is written."""
    configs = {"internal.segment.bytes": 3000, "retention.ms": -1, "min.cleanable.dirty.ratio": 0.01}
    history.client.ask("create", topics=[{"name": "superseded", "partitions": 1, "configs": configs}])
    history.client.ask("ready")
    Topic("keyed", partitions=1, records=600).produce(history.client, "superseded", 6)
    history.client.ask("alter", topic="superseded", configs={"cleanup.policy": "compact"})
    key = kafkalog.TopicPartition("superseded", 0)
    checkpoint = history.live.log_dir / "cleaner-offset-checkpoint"
    wait_until(lambda: key in (read_offset_checkpoint(checkpoint) or {}), "the topic is compacted")
    partition = kafkalog.Partition(history.live.log_dir / "superseded-0")
    first = partition.segments[0]
    assert first.size_in_bytes == 0
    modified = first.path.stat().st_mtime_ns // 10**6
    records = kafkalog.read_numpy(partition.path, columns=["timestamp"]).timestamp
    asked = [0, int(records.min()), int(records.max()), *range(modified - 2, modified + 3), modified + 10**6]
    rows = history.client.ask("offsets", times={"superseded-0": asked})["partitions"]
    (answers,) = (row["answers"] for row in rows if row["topic"] == "superseded")
    assert [list(answer) for answer in partition.find_timestamps(asked).tolist()] == answers
    assert answers[0] == [-1, -1, -1], "though every record is later"


def what_was_asked(partition, asked, answers):
    """Whether the questions are those that matter."""
    stamps = kafkalog.read_numpy(partition.path, columns=["timestamp"], include_control=True).timestamp
    largest = [int(segment.batches.max_timestamp.max(initial=-1)) for segment in partition.segments]
    unanswered = [stamp for stamp, (_, offset, _) in zip(asked, answers, strict=True) if offset == -1]
    kinds = {
        "questions": len(asked),
        "without an answer though a record matches": sum(0 <= one <= stamps.max(initial=-1) for one in unanswered),
        "largest timestamps fall from segment to segment": largest != sorted(largest),
        "equal timestamps": np.unique(stamps).size < stamps.size,
        "log start offset": partition.log_start_offset > 0,
        "largest timestamp deleted": 0 <= answers[asked.index(-3)][1] < partition.log_start_offset,
    }
    return Counter({kind: n for kind, n in kinds.items() if n})
