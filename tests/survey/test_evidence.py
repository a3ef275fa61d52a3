"""What the files next to a log say of it."""

from __future__ import annotations

import os
from pathlib import Path

from files import broker_on
from salvages import dense, log_of, written

import kafkalog
from kafkalog.log.searching.missing import snapshot_name
from kafkalog.state.checkpoints import encode_offset_checkpoint
from kafkalog.survey.evidence import Evidence, LogDirState, SegmentContents

KEY = kafkalog.TopicPartition("t", 0)
ENTRY = bytes([0, 0, 0, 3, 0, 0, 0, 90])


def evidence_of(partition: Path) -> Evidence:
    opened = kafkalog.Partition(partition)
    segments = [
        SegmentContents(str(one.path), one.base_offset, one.next_offset - 1, one.size_in_bytes)
        for one in opened.segments
    ]
    return Evidence.of(opened, segments, LogDirState.of(opened), sorted(os.listdir(partition)))


def test_what_files_say(tmp_path: Path) -> None:
    batches = dense(20)
    partition = written(tmp_path, log_of(*batches[:10]), log_of(*batches[10:]))
    (partition / f"{60:020d}.index").write_bytes(ENTRY)
    (partition / f"{70:020d}.index").write_bytes(bytes(80))  # preallocated, and never used
    (partition / f"{15:020d}.timeindex").write_bytes(bytes(4) + ENTRY)  # the cleaner merged its segment
    (partition / snapshot_name(50)).touch()
    (partition / "leader-epoch-checkpoint").write_text("0\n1\n2 7\n")
    for name, offset in (("log-start-offset", 5), ("recovery-point-offset", 61), ("replication-offset", 62)):
        (tmp_path / f"{name}-checkpoint").write_bytes(encode_offset_checkpoint({KEY: offset}))
    found = evidence_of(partition)
    assert found.orphans == {60: [f"{60:020d}.index"]}
    assert found.leftovers == [f"{15:020d}.timeindex", f"{70:020d}.index"]
    assert (found.snapshots, found.log_start, found.epochs_start) == ([50], 5, 7)
    assert found.ends == {
        "recovery-point-offset-checkpoint": 61,
        "replication-offset-checkpoint": 62,
        snapshot_name(50): 50,
        f"{60:020d}.index": 64,
    }
    assert (found.has(".index", ".x"), found.has(".x")) == (True, False)
    with broker_on(tmp_path):
        assert evidence_of(partition).ends == {}


def test_the_state_of_a_log_dir(tmp_path: Path) -> None:
    partition = kafkalog.Partition(written(tmp_path, log_of(*dense(2))))
    assert LogDirState.of(partition) == LogDirState()
    (tmp_path / ".kafka_cleanshutdown").touch()
    assert LogDirState.of(partition) == LogDirState(was_closed=True)
    with broker_on(tmp_path):
        assert LogDirState.of(partition) == LogDirState(is_live=True)
