"""Whether offsets that no segment holds were compacted away, by each kind of evidence."""

from __future__ import annotations

import shutil
from pathlib import Path

import golden_sets
import pytest
from files import broker_on
from salvages import dense, log_of, written

import kafkalog
from kafkalog.log.compaction import Density
from kafkalog.state.checkpoints import encode_offset_checkpoint

KEY = kafkalog.TopicPartition("t", 0)
CLEANER = "cleaner-offset-checkpoint"
DENSE = (Density(0, 29, False), Density(60, 89, False))


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Offsets 0 to 30 and 60 to 90."""
    batches = dense(30)
    return written(tmp_path, log_of(*batches[:10]), log_of(*batches[20:]))


def judged(partition: Path, *segments: Density) -> bool | None:
    return kafkalog.Partition(partition).is_compacted(60, segments or None)


def put_checkpoint(partition: Path, offsets: dict[kafkalog.TopicPartition, int]) -> None:
    (partition.parent / CLEANER).write_bytes(encode_offset_checkpoint(offsets))


def test_dense_offsets_show_that_nothing_was_compacted(partition: Path) -> None:
    assert judged(partition) is judged(partition, *DENSE) is False
    finding = kafkalog.Partition(partition).gap_between(30, 60)
    assert finding is not None
    assert (finding.reason, finding.base_offset, finding.last_offset, finding.n_records) == ("offset_gap", 30, 59, 30)
    assert finding.damage


@pytest.mark.parametrize(
    ("segments", "expected"),
    [
        ((Density(0, 29, True), Density(60, 89, False)), True),
        ((Density(0, 29, False), Density(60, 89, True)), True),  # a follower copies the gaps of its leader
        ((Density(0, 0, False), Density(60, 89, False)), None),  # the cleaner never touches the last segment
        ((Density(0, -1, False), Density(10, 29, False), Density(60, 89, False)), None),  # it empties others
        ((Density(0, 69, True), Density(60, 89, False)), None),
    ],
)
def test_what_the_offsets_of_the_segments_tell(
    partition: Path, segments: tuple[Density, ...], expected: bool | None
) -> None:
    assert judged(partition, *segments) is expected


def test_how_far_the_cleaner_has_come_decides_first(partition: Path) -> None:
    put_checkpoint(partition, {KEY: 60})
    assert judged(partition) is True
    assert kafkalog.Partition(partition).gap_between(30, 60) is None
    put_checkpoint(partition, {KEY: 59})
    assert judged(partition) is False
    # gaps before that offset are its own, and say nothing of those after it
    assert judged(partition, Density(0, 29, True), Density(60, 89, False)) is False
    put_checkpoint(partition, {})
    assert judged(partition, Density(0, 0, False), Density(60, 89, False)) is False
    (partition.parent / CLEANER).write_text("?")
    assert judged(partition, Density(0, 0, False), Density(60, 89, False)) is None


def test_while_a_broker_runs_no_gap_is_a_loss(partition: Path) -> None:
    with broker_on(partition.parent):
        assert judged(partition) is None


def test_internal_topics_are_known(partition: Path) -> None:
    offsets = partition.rename(partition.with_name("__consumer_offsets-3"))
    assert judged(offsets) is True
    assert judged(offsets.rename(offsets.with_name("__cluster_metadata-0"))) is False


@pytest.mark.parametrize(("topic", "expected"), [("p-compact", True), ("p-multi", None)])
def test_the_metadata_log_tells_the_policy(partition: Path, topic: str, expected: bool | None) -> None:
    source = golden_sets.unpacked("k44") / "__cluster_metadata-0"
    shutil.copytree(source, partition.parent / source.name)
    renamed = partition.rename(partition.with_name(f"{topic}-0"))
    assert judged(renamed, Density(0, 0, False), Density(60, 89, False)) is expected


def test_a_part_of_a_partition_takes_the_whole_for_evidence(partition: Path) -> None:
    one = kafkalog.Partition(partition, segments=[partition / f"{0:020d}.log"])
    assert one.gap_between(30, 60) is None
