"""Files that a running broker removes while they are read: no verb fails, and nothing is reported as lost."""

import itertools
import os
import shutil

import pytest
from effort import THOROUGH, spared
from faults import at_call
from writing import TOPIC_ID

import kafkalog
from kafkalog import LogConfig, PartitionWriter
from kafkalog.log.segment import Segment
from kafkalog.storage.broker_lock import hold_locks

VERBS = {
    "report": kafkalog.report,
    "preflight": lambda root: kafkalog.preflight(root, clean=False),
    "verify": kafkalog.verify,
    "ls": lambda root: list(kafkalog.ls(root)),
    "groups": kafkalog.groups,
    "transactions": kafkalog.transactions,
    "space": lambda root: kafkalog.space(root, records=True),
    "index_stats": lambda root: kafkalog.index_stats(root, on_corruption="skip"),
    "scan": lambda root: Scanned(root),
    "scan committed": lambda root: Scanned(root, isolation_level="read_committed"),
    "scan where": lambda root: Scanned(root, filters=["timestamp > 1000"]),
}


class Scanned:
    """The offsets and findings of a scan."""

    def __init__(self, root, **options):
        scan = kafkalog.scan(root, columns=["topic", "offset"], on_corruption="skip", **options)
        self.offsets = sorted(map(tuple, scan.to_table().to_pandas().to_numpy().tolist()))
        self.findings = scan.findings


@pytest.fixture
def root(tmp_path):
    """A log dir on which a broker runs, with two partitions of several segments."""
    tmp_path = tmp_path / "data"
    tmp_path.mkdir()
    for name in ("orders", "users"):
        with PartitionWriter(
            tmp_path / f"{name}-0", topic_id=TOPIC_ID, config=LogConfig(segment_bytes=400), batch_size=150
        ) as writer:
            writer.append({"value": [b"v" * 40] * 16, "timestamp": list(range(1000, 1016))})
    (tmp_path / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=kafkalogSampleBroker01A\n")
    with hold_locks([tmp_path]):
        yield tmp_path


def segments(partition):
    return sorted(partition.glob("*.log"))


def retire(partition):
    """What retention does with the first segment."""
    for path in partition.glob(f"{segments(partition)[0].stem}.*"):
        path.unlink()


def merge(partition):
    """What the log cleaner does with the first two segments."""
    first, second = segments(partition)[:2]
    whole = first.read_bytes() + second.read_bytes()
    swap = first.with_suffix(".log.swap")
    swap.write_bytes(whole)
    for old in (first, second):
        for path in partition.glob(f"{old.stem}.*"):
            if path != swap:
                path.rename(f"{path}.deleted")
    swap.rename(first)
    for path in partition.glob("*.deleted"):
        path.unlink()


def delete(partition):
    """What a broker does with a deleted topic."""
    gone = partition.rename(f"{partition}.{'a' * 32}-delete")
    for path in gone.iterdir():
        path.unlink()
    gone.rmdir()


OPENINGS_AND_LISTINGS = ((Segment, "open"), (Segment, "read_index"), (os, "scandir"), (os, "listdir"))
"""What a reader asks of segments and directories."""


def damage_in(found):
    """What a result says is damaged, lost, or not started."""
    findings = found.findings if hasattr(found, "all_findings") else getattr(found, "findings", found)
    rows = getattr(findings, "rows", findings)
    rows = [finding for row in rows for finding in getattr(row, "findings", [row])]
    plans = [one.lines() for one in getattr(found, "partitions", ()) if getattr(one, "verdict", "starts") in FAILS]
    return [str(one) for one in rows if getattr(one, "damage", False)] + plans


FAILS = ("loses", "does not start")


def counts_in(found):
    """What a result counts, which a merge does not change."""
    if isinstance(found, Scanned):
        return found.offsets
    if isinstance(found, kafkalog.Space):
        return [found.summary["n_batches"], found.summary["n_bytes"], found.tables["codecs"].rows]
    return (
        [(row.name, row.n_records, row.end) for row in found if hasattr(row, "n_records")]
        if isinstance(found, list)
        else []
    )


def failures_at(root, monkeypatch, verb, change, steps):
    """Run a verb as often as it opens or lists something, with a change before one of these calls."""
    kept = root.parent / "kept-orders"
    shutil.copytree(root / "orders-0", kept)
    failures, expected = [], counts_in(VERBS[verb](root))
    for number in steps:
        with monkeypatch.context() as patch:
            calls = at_call(patch, number, lambda: change(root / "orders-0"), OPENINGS_AND_LISTINGS)
            try:
                found = VERBS[verb](root)
                damage = damage_in(found)
                if change is merge and counts_in(found) != expected:
                    damage.append(f"{counts_in(found)}, but there are {expected}")
                failures += [(number, damage)] if damage else []
            except Exception as error:
                failures.append((number, repr(error)))
            is_done = next(calls) <= number
        for path in root.glob("orders-0*"):
            shutil.rmtree(path)
        shutil.copytree(kept, root / "orders-0")
        if is_done:
            break
    return failures


# a topic that is deleted is a note, which is a warning of Python's functions
@pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")
@pytest.mark.parametrize("change", [retire, merge, delete])
@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_survives_what_a_broker_removes(root, monkeypatch, verb, change):
    steps = itertools.count(3, 53) if verb == "report" else itertools.count(1, 19 if THOROUGH else 53)
    assert failures_at(root, monkeypatch, verb, change, steps) == []


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")
@pytest.mark.parametrize(("verb", "change"), spared(itertools.product(VERBS, [retire, merge, delete]), 4))
def test_a_verb_survives_what_a_broker_removes_at_any_moment(root, monkeypatch, verb, change):
    assert failures_at(root, monkeypatch, verb, change, itertools.count()) == []
