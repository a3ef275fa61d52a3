"""Windows of one segment past damage, and gaps that show whether a log was compacted."""

import os
import shutil
import warnings

import builder
import golden_sets
import numpy as np
import pytest
from effort import thinned
from files import broker_on
from salvages import dense, log_of, written

import kafkalog
from kafkalog.log.compaction import Density
from kafkalog.state.checkpoints import encode_offset_checkpoint


@pytest.mark.parametrize("cut", [1, 5, 20, 60, 100])
def test_a_torn_tail_is_a_fact_in_the_last_segment_and_damage_in_a_sealed_one(log_dir_copy, cut):
    directory = log_dir_copy / "p-zstd-java-0"
    sealed, last = sorted(directory.glob("*.log"))
    whole = kafkalog.scan(directory).count_rows()
    size = kafkalog.Segment(last).batches.size_in_bytes[-1]
    os.truncate(last, last.stat().st_size - min(cut, size - 1))
    scan = kafkalog.scan(directory)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert scan.count_rows() < whole
    # the log dir's checkpoints know of what is cut off
    assert [(one.reason, one.damage) for one in scan.findings] == [("partial_tail", False), ("log_end_missing", False)]
    os.truncate(sealed, sealed.stat().st_size - cut)
    with pytest.raises(kafkalog.TruncatedTailError) as caught:
        scan.count_rows()
    assert caught.value.reason == "partial_tail"


def test_a_preallocated_tail_is_a_fact_in_the_last_segment_and_damage_in_a_sealed_one(log_dir_copy):
    directory = log_dir_copy / "p-zstd-java-0"
    sealed, last = sorted(directory.glob("*.log"))
    whole = kafkalog.scan(directory).count_rows()
    os.truncate(last, last.stat().st_size + 5_000_000)
    scan = kafkalog.scan(directory)
    assert scan.count_rows() == whole
    assert [(finding.reason, finding.damage) for finding in scan.findings] == [("zero_fill", False)]
    os.truncate(sealed, sealed.stat().st_size + 100)
    with pytest.raises(kafkalog.TruncatedTailError) as caught:
        scan.count_rows()
    assert caught.value.reason == "zero_fill"


def test_garbage_behind_the_last_batch_and_a_length_over_intact_batches_are_damage(log_dir_copy):
    directory = log_dir_copy / "p-zstd-java-0"
    last = sorted(directory.glob("*.log"))[-1]
    data = last.read_bytes()
    last.write_bytes(data + np.random.default_rng(1).bytes(500))
    with pytest.raises(kafkalog.CorruptionError):
        kafkalog.scan(directory).count_rows()
    batches = kafkalog.Segment(last, is_last=True)
    last.write_bytes(data)
    position = int(batches.batches.position[1])
    for size in (len(data) - position, 2**26, 0x7FFFFF00):
        damaged = bytearray(data)
        damaged[position + 8 : position + 12] = size.to_bytes(4, "big")
        last.write_bytes(damaged)
        with pytest.raises(kafkalog.CorruptionError) as caught:
            kafkalog.scan(directory).count_rows()
        assert caught.value.reason == "size_exceeds_file"
        assert caught.value.position == position


@pytest.mark.parametrize("threads", [1, 4])
def test_skip_passes_over_many_damaged_places_and_finds_every_intact_batch(tmp_path, threads):

    directory = tmp_path / "t-0"
    directory.mkdir()
    batches, entries, position = [], [], 0
    for offset in range(400):
        batch = bytearray(builder.batch_v2([builder.record_v2(value=b"v" * 50)], base_offset=offset))
        if offset % 4 == 1:
            batch[8:12] = (2**26).to_bytes(4, "big")
        if offset:
            entries.append((offset, position))
        batches.append(bytes(batch))
        position += len(batch)
    (directory / "00000000000000000000.log").write_bytes(b"".join(batches))
    (directory / "00000000000000000400.log").touch()
    (directory / "00000000000000000000.index").write_bytes(np.array(entries, ">i4").tobytes())
    scan = kafkalog.scan(directory, columns=["offset"], on_corruption="skip", threads=threads)
    with pytest.warns(kafkalog.CorruptionWarning):
        offsets = scan.to_table().column(0).to_pylist()
    assert offsets == [offset for offset in range(400) if offset % 4 != 1]
    assert scan.n_damage == 100


def test_the_directory_is_not_listed_for_each_sound_segment(tmp_path, monkeypatch):
    partition = tmp_path / "t-0"
    partition.mkdir()
    for base in range(20):
        data = builder.batch_v2([builder.record_v2(0, 0, b"k", b"v")], base_offset=base)
        (partition / f"{base:020}.log").write_bytes(data)
    listings = []
    scandir = os.scandir
    monkeypatch.setattr(os, "scandir", lambda *path: (listings.append(path), scandir(*path))[1])
    assert kafkalog.verify(partition, threads=1).ok
    assert len(listings) < 6


@pytest.mark.parametrize("start", [(100, 110), (100, 205, 206, 208), (100, 208), (100,)])
@pytest.mark.parametrize("middle", [(191,), (191, 192), (191, 192, 195)])
@pytest.mark.parametrize(
    "end", thinned([[121], [121, 0], [121, 50], [121, 122], [121, 10, 11], [191, 121, 50, 121]], 3)
)
def test_offsets_that_go_back_again_and_again_end_somewhere(tmp_path, start, middle, end):
    """Each batch says that those before it are wrong: reading goes back once for each, and not for ever."""
    path = tmp_path / f"{100:020d}.log"
    offsets = (*start, *middle, *end)
    record = builder.record_v2(0, 0, b"k", bytes(20))
    path.write_bytes(b"".join(builder.batch_v2([record], base_offset=one) for one in offsets))
    scan = kafkalog.scan(path, columns=["offset"], on_corruption="skip")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
        found = scan.to_table()["offset"].to_pylist()
    assert set(found) <= set(offsets)
    # a batch is given, or a finding is about its position
    size = path.stat().st_size // len(offsets)
    positions = {one.position for one in scan.findings}
    assert [one for row, one in enumerate(offsets) if one not in found and size * row not in positions] == []
    assert len(scan.findings) <= 2 * len(offsets)
    kafkalog.verify(path)


KEY = kafkalog.TopicPartition("t", 0)
CLEANER = "cleaner-offset-checkpoint"
DENSE = (Density(0, 29, False), Density(60, 89, False))


@pytest.fixture
def partition(tmp_path):
    """Offsets 0 to 30 and 60 to 90."""
    batches = dense(30)
    return written(tmp_path, log_of(*batches[:10]), log_of(*batches[20:]))


def judged(partition, *segments):
    return kafkalog.Partition(partition).is_compacted(60, segments or None)


def put_checkpoint(partition, offsets):
    (partition.parent / CLEANER).write_bytes(encode_offset_checkpoint(offsets))


def test_dense_offsets_show_that_nothing_was_compacted(partition):
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
def test_what_the_offsets_of_the_segments_tell(partition, segments, expected):
    assert judged(partition, *segments) is expected


def test_how_far_the_cleaner_has_come_decides_first(partition):
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


def test_while_a_broker_runs_no_gap_is_a_loss(partition):
    with broker_on(partition.parent):
        assert judged(partition) is None


def test_internal_topics_are_known(partition):
    offsets = partition.rename(partition.with_name("__consumer_offsets-3"))
    assert judged(offsets) is True
    assert judged(offsets.rename(offsets.with_name("__cluster_metadata-0"))) is False


@pytest.mark.parametrize(("topic", "expected"), [("p-compact", True), ("p-multi", None)])
def test_the_metadata_log_tells_the_policy(partition, topic, expected):
    source = golden_sets.unpacked("k44") / "__cluster_metadata-0"
    shutil.copytree(source, partition.parent / source.name)
    renamed = partition.rename(partition.with_name(f"{topic}-0"))
    assert judged(renamed, Density(0, 0, False), Density(60, 89, False)) is expected


def test_a_part_of_a_partition_takes_the_whole_for_evidence(partition):
    one = kafkalog.Partition(partition, segments=[partition / f"{0:020d}.log"])
    assert one.gap_between(30, 60) is None
