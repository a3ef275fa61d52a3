"""What is recovered offline is what a broker's recovery leaves; a broker starts on it without any recovery."""

import re
import time

import pytest
from conformance.damages import damage_partitions
from conformance.kafka import QUIET, Broker, copy_tree
from conformance.test_rebuild import DERIVED, bare_copy, derived_files

import kafkalog
from kafkalog.operations.rebuilding.rebuilder import KINDS

pytestmark = [pytest.mark.broker, pytest.mark.slow]

RECOVERY = re.compile(
    r"Recovering|recovering|Corruption found|Rebuilding|Found invalid offset|orphan|Could not find|runcating|Deleting"
    r"|deletion|no clean shutdown|(WARN|ERROR) .*(LogLoader|UnifiedLog|LogSegment|ProducerState|LeaderEpoch)"
)


def recovery_lines(log):
    """What a broker says about recovery; raft always recovers the log of its metadata."""
    return [line for line in log.splitlines() if RECOVERY.search(line) and "__cluster_metadata" not in line]


@pytest.mark.parametrize("points", ["kept", "gone", "killed"])
def test_a_broker_starts_without_recovery_and_serves_what_its_own_recovery_serves(history, points):
    """On a log dir with damage, with or without recovery points, or as a broker left it that was killed."""
    folder = history.folder / f"offline-{points}"
    folder.mkdir()
    broker = Broker(folder, **QUIET)
    copy_tree(history.crashed.log_dir if points == "killed" else history.clean.log_dir, broker.log_dir)
    damaged = damage_partitions(broker.log_dir) if points != "killed" else {}
    assert len(damaged) >= 25 or points == "killed"
    (broker.log_dir / ".kafka_cleanshutdown").unlink(missing_ok=True)
    # such a segment is cut before the recovery begins, and those behind it are kept
    without = [name for name, one in damaged.items() if one.startswith(("flip in middle", "zero_hole in middle"))]
    if points == "gone":
        for name in without:
            (broker.log_dir / name / damaged[name].rpartition(" ")[2]).with_suffix(".index").unlink()
        (broker.log_dir / "recovery-point-offset-checkpoint").unlink()
        for path in broker.log_dir.rglob("*"):
            if path.suffix in (".snapshot", ".txnindex"):
                path.unlink()
    broken = copy_tree(broker.log_dir, folder / "broken")

    before = time.time()
    with broker.serving(history.client):
        theirs_read = served(history, damaged, points)
    assert recovery_lines(broker.log.read_text())
    theirs = folder / "theirs"
    broker.log_dir.rename(theirs)

    report = kafkalog.recover(broken, output=broker.log_dir, now=int(before * 1000))
    assert report.is_clean
    assert points != "gone" or report.n_bytes_lost > 0
    compare(copy_tree(broker.log_dir, folder / "ours"), theirs)
    bare = bare_copy(broken, folder / "bare")
    for name in sorted(damaged.keys() - {*without}) if points == "gone" else ():
        report = kafkalog.reindex(bare / name, kinds=KINDS, in_place=True, damaged="cut", now=int(before * 1000))
        assert report.n_bytes_read == sum(path.stat().st_size for path in (theirs / name).glob("*.log")), name
        assert derived_files(bare / name) == derived_files(theirs / name), name

    with broker.serving(history.client):
        ours_read = served(history, damaged, points)
    assert recovery_lines(broker.log.read_text()) == []
    assert ours_read == theirs_read


def served(history, damaged, points):
    """Offsets of all partitions, and the records of the topics that a consumer can read to the end."""
    unreadable = set()
    for name, one in damaged.items():
        if one.startswith("magic_3") or (points == "kept" and " middle " in one):
            unreadable.add(name.rpartition("-")[0])
    offsets = history.client.ask("offsets", times={})["partitions"]
    topics = sorted({row["topic"] for row in offsets} - unreadable)
    topics = [topic for topic in topics if not topic.startswith("__")]
    assert len(topics) >= 15
    return (
        {(row["topic"], row["partition"]): (row["earliest"], row["latest"]) for row in offsets},
        history.client.consume(history.folder / "offline.jsonl", topics=topics),
        history.client.consume(history.folder / "offline.jsonl", topics=topics, isolation="read_committed"),
    )


def compare(ours, theirs):
    """Logs and derived files have to be equal, in partitions to which the broker did not write since."""
    n_equal = 0
    for directory in sorted(path for path in ours.iterdir() if path.is_dir() and not path.name.startswith("__")):
        found, expected = (
            {path.name: path.read_bytes() for path in one.iterdir() if path.suffix in (*DERIVED, ".log")}
            for one in (directory, theirs / directory.name)
        )
        assert sorted(found) == sorted(expected), directory.name
        for name, data in expected.items():
            assert (len(found[name]), found[name]) == (len(data), data), f"{directory.name}/{name}"
        n_equal += 1
    assert n_equal >= 30
