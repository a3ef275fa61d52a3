"""Leader epochs: where they end, where a follower truncates, and what is known without a checkpoint."""

import json
import shutil

import builder
import golden_sets
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kafkalog
from kafkalog import format as kf
from kafkalog.cli import main
from kafkalog.records.header_walk import walk
from kafkalog.state.leader_epochs import EpochEndOffset, LeaderEpochs, Truncation
from kafkalog.storage.source import BufferSource


def epochs(*entries):
    return LeaderEpochs(np.array(list(entries), kf.LEADER_EPOCH_DTYPE))


@pytest.mark.parametrize(
    ("epoch", "answer"),
    [(-1, (-1, -1)), (0, (0, 10)), (1, (1, 10)), (2, (2, 20)), (3, (2, 20)), (4, (4, 35)), (7, (7, 50)), (8, (-1, -1))],
)
def test_an_epoch_ends_where_the_next_one_begins_and_the_last_at_the_end(epoch, answer):
    known = epochs((2, 10), (4, 20), (7, 35))
    assert known.end_offset_for(epoch, 50) == EpochEndOffset(*answer)


def test_nothing_is_known_without_entries():
    assert epochs().end_offset_for(0, 50) == (-1, -1)
    assert epochs().truncation_for(0, 9, 50) == Truncation(-1, -1, -1, True)


@pytest.mark.parametrize(
    ("follower", "answer", "removes"),
    [
        ((4, 15), Truncation(4, 20, 15, True), False),
        ((4, 25), Truncation(4, 20, 20, True), True),
        ((5, 25), Truncation(4, 20, 20, False), True),
        ((7, 60), Truncation(7, 50, 50, True), True),
        ((9, 60), Truncation(-1, -1, -1, True), False),
        ((1, 60), Truncation(1, 10, 10, True), True),
    ],
)
def test_a_follower_keeps_what_it_shares(follower, answer, removes):
    found = epochs((2, 10), (4, 15), (6, 20), (7, 35)).truncation_for(*follower, 50)
    assert found == answer
    assert found.removes(follower[1]) == removes


def test_what_contradicts_a_later_entry_is_forgotten():
    assert epochs((0, 0), (3, 10), (2, 12)).entries.tolist() == [(0, 0), (2, 12)]
    assert epochs((0, 0), (3, 10), (4, 5)).entries.tolist() == [(0, 0), (4, 5)]
    assert epochs((0, 0), (0, 9)).entries.tolist() == [(0, 0)]


@pytest.mark.parametrize(
    ("start", "left"),
    [(0, [(1, 0), (2, 10)]), (5, [(1, 5), (2, 10)]), (10, [(2, 10)]), (15, [(2, 15)])],
)
def test_the_epoch_at_the_log_start_offset_begins_there(start, left):
    known = epochs((1, 0), (2, 10))
    known.truncate_from_start(start)
    assert known.entries.tolist() == left


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 3)), max_size=12),
    st.integers(1, 5),
)
def test_epochs_of_batches_are_those_that_assigning_each_would_give(drafts, rows):
    offset, parts, twin = 0, [], LeaderEpochs()
    latest = -1
    for epoch, n in drafts:
        parts.append(builder.batch_v2([builder.record_v2(i) for i in range(n)], base_offset=offset, leader_epoch=epoch))
        if epoch > latest:
            twin.assign(epoch, offset)
            latest = epoch
        offset += n
    tables = [window.batches for window in walk(BufferSource(b"".join(parts)))]
    split = [table[first : first + rows] for table in tables for first in range(0, len(table), rows)]
    assert LeaderEpochs.from_batches(split).entries.tolist() == twin.entries.tolist()


def test_golden_partitions_answer_the_same_without_their_checkpoint(tmp_path):
    n_answers = 0
    for name in golden_sets.SETS:
        for path in golden_sets.partitions(name).values():
            copy = tmp_path / name / path.name
            shutil.copytree(path, copy, ignore=shutil.ignore_patterns("leader-epoch-checkpoint"))
            with_file, without = kafkalog.Partition(path), kafkalog.Partition(copy)
            for epoch, start in without.epoch_cache.entries.tolist()[1:]:
                assert (epoch, start) in with_file.epoch_cache.entries.tolist()
                assert without.end_offset_for_epoch(epoch - 1) == with_file.end_offset_for_epoch(epoch - 1)
                n_answers += 1
    assert n_answers > 3


def test_the_command_answers_in_text_and_json(capsys, tmp_path):
    path = str(golden_sets.LOG_DIR / "p-txn-0")
    assert main(["epochs", path, "--end-offset-for", "3", "--follower", "3,100", "--follower", "9,9"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0] == "p-txn-0: 2 leader epochs"
    assert out[-3:] == [
        "  end of epoch 3: offset 430 of 0",
        "  follower at epoch 3, end 100: truncates to 100, or to the end of its epoch 0 if lower, and asks again",
        "  follower at epoch 9, end 9: the epoch is unknown here: it truncates to its high watermark",
    ]
    assert main(["epochs", path, "--json", "--follower", "0,500"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["epochs"][0] == {"epoch": 0, "start_offset": 0, "end_offset": 430}
    assert (row["followers"][0]["truncate_to"], row["followers"][0]["removes"]) == (430, True)
    copy = shutil.copytree(path, tmp_path / "p-txn-0", ignore=shutil.ignore_patterns("leader-epoch-checkpoint"))
    assert main(["epochs", str(copy), "--follower", "0,10"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert "from the batches" in out[0]
    assert out[-1].endswith("nothing to truncate (epoch 0 ends at 430)")
    (copy / "leader-epoch-checkpoint").write_text("junk")
    assert main(["epochs", str(copy)]) == 1


@pytest.mark.parametrize("argv", [["--follower", "3"], ["--follower", "a,b"], ["--end-offset-for", "-7"]])
def test_wrong_usage_is_said(argv, capsys):
    assert main(["epochs", str(golden_sets.LOG_DIR), *argv]) == 2
    assert "expected" in capsys.readouterr().err
