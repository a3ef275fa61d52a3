"""The end of a log that grows is behind its last complete batch, and finding it costs next to nothing."""

import os
import shutil
import time

import builder
import numpy as np
import pytest
from refusals import fails_with

import kafkalog
from kafkalog import format as kf
from kafkalog.indexes.index_files import OffsetIndex
from kafkalog.log import tail as tailing
from kafkalog.log.log_dir import LogDir
from kafkalog.log.tail import LogTail
from kafkalog.scanning.planning import plan
from kafkalog.scanning.tasks import read_task

T0 = kf.TopicPartition("t", 0)


@pytest.fixture(autouse=True)
def no_pause(monkeypatch):
    monkeypatch.setattr(tailing, "PAUSE_SECONDS", 0)


def batch(offset, n=4, producer_id=-1):
    records = [builder.record_v2(i, 0, None, b"%d" % (offset + i)) for i in range(n)]
    options = {}
    if producer_id >= 0:
        options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": 0, "transactional": True}
    return builder.batch_v2(records, base_offset=offset, **options)


def append(root, data, *, base=0, partition=0):
    path = root / f"t-{partition}" / kf.segment_file_name(base)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(data)
    return path


def follow(root, **options):
    return LogTail(lambda: LogDir([root]), lambda key: True, **options)


def test_every_complete_batch_is_seen_and_no_other(tmp_path):
    append(tmp_path, batch(0))
    tail = follow(tmp_path)
    assert tail.ends() == {T0: 4}
    data = batch(4, n=7)
    for at in range(0, len(data), 13):
        append(tmp_path, data[at : at + 13])
        assert tail.ends() == {T0: 4 if at + 13 < len(data) else 11}
    assert follow(tmp_path).ends() == {T0: 11}


def test_a_batch_whose_bytes_are_not_all_there_yet_is_waited_for(tmp_path):
    whole = batch(4)
    path = append(tmp_path, batch(0) + whole[:-9] + b"\0" * 9)
    tail = follow(tmp_path)
    assert tail.ends() == {T0: 4}
    with path.open("r+b") as file:
        file.seek(-9, os.SEEK_END)
        file.write(whole[-9:])
    assert tail.ends() == {T0: 8}


def test_room_made_ahead_of_writing_is_no_data_and_not_looked_through(tmp_path):
    path = append(tmp_path, batch(0))
    os.truncate(path, 2**30)
    tail = follow(tmp_path)
    assert tail.ends() == {T0: 4}
    start = time.process_time()
    for i in range(20):
        os.utime(path, ns=(i, i))
        assert tail.ends() == {T0: 4}
    assert time.process_time() - start < 1
    with path.open("r+b") as file:
        file.seek(len(batch(0)))
        file.write(batch(4))
    assert tail.ends() == {T0: 8}


def test_damage_with_intact_batches_behind_it_does_not_hold_up_what_follows(tmp_path):
    damaged = bytearray(batch(4))
    damaged[70] ^= 1
    append(tmp_path, batch(0) + bytes(damaged))
    tail = follow(tmp_path)
    assert tail.ends() == {T0: 4}
    append(tmp_path, batch(8))
    assert tail.ends() == {T0: 12}


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_segments_that_are_deleted_just_after_the_listing_are_no_error(tmp_path, monkeypatch, level):
    old = append(tmp_path, batch(0))
    tail = follow(tmp_path, isolation_level=level)
    assert tail.ends() == {T0: 4}
    monkeypatch.setattr(tailing, "PAUSE_SECONDS", 60)
    append(tmp_path, batch(4), base=4)
    append(tmp_path, batch(8), base=8)
    old.unlink()
    assert tail.ends() == {T0: 12}
    assert tail.starts() == {T0: 4}
    old.with_name(kf.segment_file_name(4)).unlink()
    append(tmp_path, batch(12), base=8)
    assert tail.ends() == {T0: 16}


def test_new_segments_and_partitions_are_found_and_deleted_ones_leave(tmp_path):
    append(tmp_path, batch(0))
    tail = follow(tmp_path)
    assert tail.ends() == {T0: 4}
    append(tmp_path, batch(4))
    append(tmp_path, b"", base=8)
    assert tail.ends() == {T0: 8}
    append(tmp_path, batch(8), base=8)
    append(tmp_path, batch(0, n=1), partition=1)
    assert tail.ends() == {T0: 12, kf.TopicPartition("t", 1): 1}
    (tmp_path / "t-0" / kf.segment_file_name(0)).unlink()
    assert tail.ends()[T0] == 12
    assert tail.starts()[T0] == 8
    for path in (tmp_path / "t-0").iterdir():
        path.unlink()
    (tmp_path / "t-0").rmdir()
    assert tail.ends() == {kf.TopicPartition("t", 1): 1}


def test_a_truncated_log_ends_earlier(tmp_path):
    path = append(tmp_path, batch(0) + batch(4) + batch(8))
    tail = follow(tmp_path)
    assert tail.ends() == {T0: 12}
    os.truncate(path, 2 * len(batch(0)))
    assert tail.ends() == {T0: 8}


def test_a_start_in_a_long_segment_reads_its_end_only(tmp_path, monkeypatch):
    path = append(tmp_path, b"".join(batch(4 * i) for i in range(5000)))
    (segment,) = kafkalog.Partition(path.parent).segments
    path.with_suffix(".index").write_bytes(OffsetIndex.build(segment.batches, 0).entries.tobytes() + b"\0" * 4096)
    walked = []
    take = tailing.PartitionTail._take
    monkeypatch.setattr(
        tailing.PartitionTail, "_take", lambda self, window: (walked.append(window.data.size), take(self, window))[1]
    )
    tail = follow(tmp_path)
    assert tail.ends() == {T0: 20_000}
    assert sum(walked) < 10_000 < path.stat().st_size
    walked.clear()
    append(tmp_path, batch(20_000))
    assert tail.ends() == {T0: 20_004}
    assert sum(walked) == len(batch(20_000))


def test_asking_again_reads_nothing(tmp_path, monkeypatch):
    path = append(tmp_path, batch(0))
    for one in (path, path.parent, tmp_path):
        os.utime(one, ns=(0, 0))
    tail = follow(tmp_path)
    assert tail.ends() == {T0: 4}
    with monkeypatch.context() as patch:
        for name in ("listdir", "scandir", "open"):
            patch.setattr(os, name, lambda *args, name=name: pytest.fail(f"os.{name} was called"))
        for _ in range(3):
            assert tail.ends() == {T0: 4}


def test_read_committed_ends_before_the_first_open_transaction(tmp_path):
    append(tmp_path, batch(0) + batch(4, producer_id=7))
    tail = follow(tmp_path, isolation_level="read_committed")
    assert tail.ends() == {T0: 4}
    append(tmp_path, batch(8, producer_id=8) + builder.control_batch(builder.ABORT, base_offset=12, producer_id=7))
    assert tail.ends() == {T0: 8}
    append(tmp_path, b"", base=13)
    append(tmp_path, builder.control_batch(builder.COMMIT, base_offset=13, producer_id=8), base=13)
    assert tail.ends() == {T0: 14}

    def read(start, end):
        made = plan(
            tmp_path,
            start_offset={T0: start},
            end_offset={T0: end},
            isolation_level="read_committed",
            outcomes=tail.outcomes,
        )
        return [offset for task in made.tasks for some in read_task(task) for offset in some["offset"].to_pylist()]

    assert read(0, 14) == [0, 1, 2, 3, 8, 9, 10, 11]
    assert read(5, 9) == [8]
    tail.discard_below({T0: 13})
    assert read(13, 14) == []
    append(tmp_path, batch(14, producer_id=7) + batch(18), base=13)
    assert tail.ends() == {T0: 14}
    append(tmp_path, builder.control_batch(builder.COMMIT, base_offset=22, producer_id=7), base=13)
    assert tail.ends() == {T0: 23}
    assert read(14, 23) == list(range(14, 22))


def test_outcomes_stay_right_when_the_cleaner_moved_what_they_are_about(tmp_path):
    batches = [
        batch(0, n=200),
        batch(200, producer_id=7),
        builder.control_batch(builder.ABORT, base_offset=204, producer_id=7),
    ]
    batches += [batch(205, producer_id=7), builder.control_batch(builder.COMMIT, base_offset=209, producer_id=7)]
    path = append(tmp_path, b"".join(batches))
    tail = follow(tmp_path, isolation_level="read_committed")
    assert tail.ends() == {T0: 210}
    path.write_bytes(batch(0, n=1) + b"".join(batches[1:]))
    made = plan(tmp_path, isolation_level="read_committed", outcomes=tail.outcomes)
    offsets = np.concatenate([some["offset"] for task in made.tasks for some in read_task(task)])
    assert offsets.tolist() == [0, 205, 206, 207, 208]


def test_an_outcome_that_damage_hides_is_raised_unless_it_is_passed_over(tmp_path):
    marker = bytearray(builder.control_batch(builder.ABORT, base_offset=8, producer_id=7))
    marker[-1] ^= 1
    append(tmp_path, batch(4, producer_id=7) + bytes(marker) + batch(9))
    with fails_with("crc_mismatch"):
        follow(tmp_path, isolation_level="read_committed").ends()
    assert follow(tmp_path, isolation_level="read_committed", on_corruption="skip").ends() == {T0: 13}


def test_the_checkpointed_high_watermark_is_an_end_for_who_asks_for_it(tmp_path):
    append(tmp_path, batch(0) + batch(4))
    checkpoint = tmp_path / "replication-offset-checkpoint"
    checkpoint.write_text("0\n1\nt 0 4\n")
    tail = follow(tmp_path, high_watermark="checkpoint")
    assert tail.ends() == {T0: 4}
    assert follow(tmp_path).ends() == {T0: 8}
    fresh = tmp_path / "replication-offset-checkpoint.tmp"
    fresh.write_text("0\n1\nt 0 8\n")
    fresh.rename(checkpoint)
    assert tail.ends() == {T0: 8}


def test_a_topic_that_is_made_again_is_followed_from_its_start_and_named_once(tmp_path):
    path = append(tmp_path, batch(0, producer_id=7) + batch(4))
    metadata = path.with_name("partition.metadata")
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n")
    other = append(tmp_path, batch(0), partition=1)
    tail = follow(tmp_path, isolation_level="read_committed")
    assert tail.ends() == {T0: 0, kf.TopicPartition("t", 1): 4}
    assert tail.take_replaced() == set()
    other.unlink()
    other.parent.rmdir()
    path.write_bytes(b"".join(batch(3 * i, n=3) for i in range(9)))  # a batch is where the tail has read to, or is not
    metadata.write_text("version: 0\ntopic_id: BBBBBBBBBBBBBBBBBBBBBB\n")
    os.utime(metadata, ns=(1, 1))  # a test is quicker than the clock of a file system
    assert tail.ends() == {T0: 27}
    assert tail.take_replaced() == {T0}
    assert tail.take_replaced() == set()
    other = append(tmp_path, batch(0) + batch(4), partition=1)  # it was gone for a while
    other.with_name(metadata.name).write_bytes(metadata.read_bytes())
    assert tail.ends() == {T0: 27, kf.TopicPartition("t", 1): 8}
    assert tail.take_replaced() == set()  # nothing tells that it is another one
    metadata.write_text("version: 0\ntopic_id: CCCCCCCCCCCCCCCCCCCCCC\n")
    os.utime(metadata, ns=(1, 2))
    assert tail.take_replaced() == {T0}  # without asking for ends
    assert tail.ends()[T0] == 27


def test_a_topic_that_was_gone_for_a_while_is_known_by_its_id(tmp_path):
    path = append(tmp_path, batch(0))
    metadata = path.with_name("partition.metadata")
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n")
    append(tmp_path, batch(0), partition=1)
    tail = follow(tmp_path)
    both = tail.ends()
    for topic_id, replaced in (("A" * 22, set()), ("B" * 22, {T0})):
        shutil.rmtree(path.parent)
        assert tail.ends() == {kf.TopicPartition("t", 1): 4}
        append(tmp_path, batch(0))
        metadata.write_text(f"version: 0\ntopic_id: {topic_id}\n")
        assert tail.ends() == both
        assert tail.take_replaced() == replaced
