"""Producers and leader epochs are those that a real broker, and its own classes, tell of."""

import random

import pytest
from conformance.history import FLOODED, INTERNAL

import kafkalog
from kafkalog.state.checkpoints import read_leader_epochs
from kafkalog.state.leader_epochs import LeaderEpochs
from kafkalog.system_topics.list_producers import list_producers

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def test_producers_are_those_that_the_broker_describes(history):
    opened = kafkalog.open(history.live.log_dir)
    rows = history.client.ask("producers")["partitions"]
    n_producers = n_open = 0
    for row in rows:
        if row["topic"] in (*FLOODED, *INTERNAL) or "compacted" in row["topic"]:
            continue  # written to meanwhile; or the cleaner took away what the broker remembers
        found = list_producers(opened[row["topic"], row["partition"]])
        ours = {
            one.producer_id: (
                one.producer_epoch,
                one.last_sequence,
                one.last_timestamp,
                one.coordinator_epoch,
                -1 if one.transaction_start_offset is None else one.transaction_start_offset,
            )
            for one in found.producers
        }
        theirs = {producer[0]: tuple(producer[1:]) for producer in row["producers"]}
        # a broker forgets those that were idle for a day, by the clocks of their records
        assert ours.keys() >= theirs.keys()
        assert {key: ours[key] for key in theirs} == theirs
        n_producers += len(theirs)
        n_open += len(found.open)
    assert n_producers > 5
    assert n_open > 0


def test_epochs_end_where_kafkas_own_cache_says(history, tmp_path):
    draw = random.Random(3)
    logs = []
    for number in range(200):
        epoch = offset = 0
        lines = []
        for _ in range(draw.randrange(7)):
            epoch, offset = epoch + draw.randrange(1, 4), offset + draw.randrange(0, 30)
            lines.append(f"{epoch} {offset}\n")
        file = tmp_path / f"{number}.checkpoint"
        file.write_text(f"0\n{len(lines)}\n{''.join(lines)}")
        start = draw.choice([0, draw.randrange(60)])
        logs.append({"file": str(file), "start": start, "end": offset + 10, "epochs": list(range(-1, epoch + 3))})
    entries = [read_leader_epochs(log["file"]) for log in logs]
    answers = history.client.ask("epochs", logs=logs)["answers"]
    n_known = 0
    for log, lines_of, theirs in zip(logs, entries, answers, strict=True):
        epochs = LeaderEpochs(lines_of)
        epochs.truncate_from_start(log["start"])
        ours = [list(epochs.end_offset_for(epoch, log["end"])) for epoch in log["epochs"]]
        assert ours == theirs, (log, lines_of)
        n_known += sum(epoch >= 0 for epoch, _ in theirs)
    assert n_known > 300
