"""What is rebuilt is what a broker rebuilds, and a broker serves the same from it."""

import time
from pathlib import Path

import pytest
from conformance.kafka import QUIET, Broker, copy_tree

import kafkalog
from kafkalog.operations.rebuilding.rebuilder import KINDS

pytestmark = [pytest.mark.broker, pytest.mark.slow]

DERIVED = (".index", ".timeindex", ".txnindex", ".snapshot")


def bare_copy(log_dir, target):
    """A log dir, or a partition, without derived files."""
    for path in copy_tree(log_dir, target).rglob("*"):
        if path.suffix in DERIVED and not path.parent.name.startswith("__cluster_metadata"):
            path.unlink()
    return target


def answers(history, log_dir):
    """Offsets for some timestamps of each partition."""
    times = {}
    opened = kafkalog.open(log_dir)
    for key, partition in opened.items():
        stamps = {
            int(stamp) for segment in partition.segments for stamp in segment.batches.max_timestamp[::3] if stamp > 0
        }
        if not key.topic.startswith("__cluster"):
            times[str(key)] = [-1, -2, -3, *sorted(near for stamp in stamps for near in (stamp, stamp + 1))[:60]]
    rows = history.client.ask("offsets", times=times)["partitions"]
    return {f"{row['topic']}-{row['partition']}": (times, row["answers"]) for row in rows}


def consumed(history, name):
    return (
        history.client.consume(history.folder / f"{name}.jsonl"),
        history.client.consume(history.folder / f"{name}.committed.jsonl", isolation="read_committed"),
    )


def derived_files(directory):
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.suffix in DERIVED}


def test_a_broker_rebuilds_the_same_and_serves_the_same_from_ours(history):
    folder = history.folder / "rebuilt"
    folder.mkdir()
    broker = Broker(folder, **QUIET)
    source = history.clean.log_dir

    bare_copy(source, broker.log_dir)
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (broker.log_dir / name).unlink()
    before = time.time()
    with broker.serving(history.client):
        theirs_listed = answers(history, source)
        theirs_read = consumed(history, "theirs")
    theirs = folder / "theirs"
    broker.log_dir.rename(theirs)

    bare_copy(source, broker.log_dir)
    report = kafkalog.reindex(
        broker.log_dir, kinds=KINDS, in_place=True, threads=2, now=int(before * 1000), backup=True
    )
    assert report.findings.rows == []
    assert {interval.origin for interval in report.intervals.values()} >= {"cluster metadata", "default"}
    n_files = compare(source, theirs, broker.log_dir)
    assert n_files[".index"] >= 60, n_files
    assert n_files[".snapshot"] >= 60, n_files
    assert n_files[".txnindex"] >= 3, n_files

    for path in broker.log_dir.rglob("*.kafkalog-backup"):
        path.unlink()
    with broker.serving(history.client):
        assert answers(history, source) == theirs_listed
        ours_read = consumed(history, "ours")
    assert ours_read == theirs_read
    assert len(history.clean.truth.records) >= 15
    for topic, records in history.clean.truth.records.items():
        if not topic.startswith("__"):
            assert ours_read[0].records[topic] == records, topic
    # with the clean shutdown marker nothing was rebuilt: closed segments still have our files
    assert compare(source, broker.log_dir, theirs) == n_files


def compare(source, theirs, ours):
    """Derived files of partitions that were not written to since, by suffix; they have to be equal."""
    n_files = dict.fromkeys(DERIVED, 0)
    n_partitions = 0
    for directory in sorted(path for path in source.iterdir() if path.is_dir()):
        logs = {path.name: path.read_bytes() for path in directory.glob("*.log")}
        now = {path.name: path.read_bytes() for path in (theirs / directory.name).glob("*.log")}
        if logs != now or directory.name.startswith("__cluster_metadata"):
            continue  # the coordinator ended a transaction
        n_partitions += 1
        expected, found = derived_files(theirs / directory.name), derived_files(ours / directory.name)
        assert sorted(found) == sorted(expected), directory.name
        for name, data in expected.items():
            assert found[name] == data, f"{directory.name}/{name}"
            n_files[Path(name).suffix] += 1
        end = kafkalog.Partition(directory).log_end_offset
        assert epochs_below(ours / directory.name, end) == epochs_below(theirs / directory.name, end)
    assert n_partitions >= 30
    return n_files


def epochs_below(directory, end):
    """Leader epochs but for the last boots', which wrote nothing."""
    return [one for one in kafkalog.Partition(directory).leader_epochs.tolist() if one[1] < end]
