"""What preflight says is what a real 4.3.1 broker does: with every kind of damage, clean and unclean."""

import random
import re
import shutil
import time
from pathlib import Path

import golden_sets
import pytest
from conformance.damages import DAMAGES, in_log
from conformance.kafka import QUIET, Broker, Client, wait_until
from conformance.loads import plan_differences
from effort import spared
from files import flip
from survey.test_startup_root import CASES as ROOT_CASES
from survey.test_startup_root import CHECKPOINTS

import kafkalog

pytestmark = [pytest.mark.broker, pytest.mark.slow]

LOADED = re.compile(r"Completed load of (?:Unified)?Log\(dir=(\S+), .*?logStartOffset=(\d+), logEndOffset=(\d+)\)")
START_OFFSETS = {"start_above_end": 100_000, "start_inside": 40}
POINTS = {"point_above_end": 10**9}


def missing(suffix, number=-1):
    return lambda partition, logs: logs[number].with_suffix(suffix).unlink()


def content(suffix, data, number=-1):
    return lambda partition, logs: _write(logs[number].with_suffix(suffix), data)


def _write(path, data):
    path.write_bytes(data)


def extra(name, data=b""):
    return lambda partition, logs: _write(partition / name, data)


def no_snapshots(partition, logs):
    for path in partition.glob("*.snapshot"):
        path.unlink()


def damaged_snapshots(partition, logs):
    for path in partition.glob("*.snapshot"):
        path.write_bytes(path.read_bytes()[:-3] + b"abc")


def swapped(partition, logs):
    for suffix in (".log", ".index", ".timeindex"):
        path = logs[1].with_suffix(suffix)
        path.rename(f"{path}.swap")


def unfinished_split(partition, logs):
    shutil.copy(logs[1], f"{logs[1]}.swap")
    (partition / f"{logs[1].name}.cleaned").write_bytes(b"")


def no_middle_segment(partition, logs):
    for suffix in (".log", ".index", ".timeindex"):
        logs[1].with_suffix(suffix).unlink()


def damaged_without_index(partition, logs):
    flip(logs[1], logs[1].stat().st_size // 2, 4)
    logs[1].with_suffix(".index").unlink()


def low_offset(partition, logs):
    logs[-1].write_bytes(bytes(8) + logs[-1].read_bytes()[8:])


def damaged(damage, number):
    return lambda partition, logs: in_log(damage, random.Random(7), logs[number])


CASES = {
    "healthy": lambda partition, logs: None,
    **{f"{damage.__name__}_last": damaged(damage, -1) for damage in DAMAGES},
    **{f"{damage.__name__}_middle": damaged(damage, 1) for damage in DAMAGES},
    "index_missing": missing(".index"),
    "old_index_missing": missing(".index", 0),
    "time_index_missing": missing(".timeindex", 0),
    "indexes_garbage": content(".index", b"\xff" * 24, 0),
    "last_index_garbage": content(".index", b"\x00\x00\x00\x09\x7f\xff\xff\x00"),
    "last_index_empty": content(".index", b""),
    "txn_index_below": content(".txnindex", bytes(34), 1),
    "txn_index_odd": content(".txnindex", b"12345", 1),
    "no_snapshots": no_snapshots,
    "damaged_snapshots": damaged_snapshots,
    "epochs_missing": lambda partition, logs: (partition / "leader-epoch-checkpoint").unlink(),
    "epochs_malformed": extra("leader-epoch-checkpoint", b"0\n5\n1 2\n"),
    "topic_id_missing": lambda partition, logs: (partition / "partition.metadata").unlink(),
    "topic_id_malformed": extra("partition.metadata", b"what"),
    "orphan_index": extra("00000000000000007777.index", bytes(8)),
    "left_deleted": extra("00000000000000000001.log.deleted", b"old"),
    "left_cleaned": extra("00000000000000000000.log.cleaned", b"half"),
    "swapped": swapped,
    "unfinished_split": unfinished_split,
    "no_middle_segment": no_middle_segment,
    "middle_emptied": lambda partition, logs: _write(logs[1], b""),
    "last_emptied": lambda partition, logs: _write(logs[-1], b""),
    "damaged_without_index": damaged_without_index,
    "offset_below_the_segment": low_offset,
    "high_epoch": lambda partition, logs: flip(logs[-1], 12, 0x40),
    "stray_log_name": extra("server.log", b"text"),
    "plain_extra_file": extra("notes.txt", b"text"),
    "start_above_end": lambda partition, logs: None,
    "start_inside": lambda partition, logs: None,
    "point_above_end": lambda partition, logs: None,
}


def build(target, mode, cases):
    """A log dir with a partition a case, as after a clean shutdown, or a crash with or without recovery points."""
    sources = golden_sets.partitions("k44_extra")
    points, starts = {}, {}
    for name, change in cases.items():
        partition = target / f"{name}-0"
        # where batches of transactions change places, a broker may die of a transaction that has not begun
        source = "p-idem-now-0" if name.startswith(("swap_", "repeat", "leave_out")) else "p-txn-now-0"
        shutil.copytree(sources[source], partition)
        logs = sorted(partition.glob("*.log"))
        if name in START_OFFSETS:
            starts[name] = START_OFFSETS[name]
        if mode != "unclean":
            points[name] = POINTS.get(name, int(logs[-1].stem))
        change(partition, logs)
    for file, offsets in (("recovery-point-offset-checkpoint", points), ("log-start-offset-checkpoint", starts)):
        lines = [f"{topic} 0 {offset}" for topic, offset in offsets.items()]
        (target / file).write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    marker = target / ".kafka_cleanshutdown"
    marker.unlink(missing_ok=True)
    if mode == "clean":
        marker.write_bytes(b"")


class Trial:
    """A broker that is started on one log dir after the other."""

    def __init__(self, broker, client):
        self.broker = broker
        self.bare = broker.folder / "bare"
        broker.start()
        client.server = broker.address
        client.ask("ready")
        client.ask("create", topics=[{"name": "orders", "partitions": 1, "configs": {"cleanup.policy": "compact"}}])
        client.ask("ready")
        metadata = broker.log_dir / "__cluster_metadata-0"
        wait_until(lambda: any(metadata.glob("*.checkpoint")), "the broker has written a metadata snapshot")
        broker.stop()
        shutil.copytree(broker.log_dir, self.bare)
        for path in self.bare.glob("*-checkpoint"):
            path.unlink()
        self.whole = shutil.copytree(broker.log_dir, broker.folder / "whole")

    def run(self, mode, cases):
        """What preflight says, and the log of a broker that did not start."""
        shutil.rmtree(self.broker.log_dir)
        shutil.copytree(self.bare, self.broker.log_dir, ignore=shutil.ignore_patterns("orders-0"))
        build(self.broker.log_dir, mode, cases)
        result = kafkalog.preflight(self.broker.log_dir, index_interval_bytes=4096)
        assert result.is_clean == (mode == "clean")
        return result, None if self.starts() else self.broker.log.read_text()

    def starts(self, *, ends=False, seconds=0):
        """Whether the broker starts, and still runs after some seconds, or is waited for until it ends by itself."""
        try:
            self.broker.start()
            if ends:
                wait_until(lambda: not self.broker.is_running, "the broker ends by itself")
            time.sleep(seconds)
            return self.broker.is_running
        except RuntimeError:
            return False
        finally:
            if self.broker.is_running:
                self.broker.kill()


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    folder = tmp_path_factory.mktemp("preflight")
    # the cleaner reads its checkpoint soon
    eager = {"log.cleaner.enable": "true", "log.cleaner.backoff.ms": 200}
    snapshots = {"metadata.log.max.record.bytes.between.snapshots": 1500}
    with Client(folder) as client, Broker(folder, **{**QUIET, **eager, **snapshots}) as broker:
        yield Trial(broker, client)


@pytest.mark.parametrize("mode", ["unclean", "unclean with recovery points", "clean"])
def test_what_is_planned_happens(trial, mode):
    assert len(CASES) >= 40
    root = trial.broker.folder / "all"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(trial.bare, root)
    build(root, mode, CASES)
    planned = {
        Path(row.path).name.removesuffix("-0"): row
        for row in kafkalog.preflight(root, index_interval_bytes=4096).partitions
    }
    deadly = [name for name in CASES if planned[name].verdict == "does not start"]
    result, log = trial.run(mode, {name: change for name, change in CASES.items() if name not in deadly})
    assert log is None, log[-6000:]
    loaded = {
        Path(path).name.partition(".")[0]: (int(start), int(end))
        for path, start, end in LOADED.findall(trial.broker.log.read_text())
    }
    wrong = [
        problem
        for row in result.partitions
        if not Path(row.path).name.startswith("__")
        for problem in disagreements(row, trial.broker.log_dir, loaded)
    ]
    assert wrong == []
    for name in spared(deadly, 4):  # each takes a start; `test_random_loads` has many more
        _, log = trial.run(mode, {name: CASES[name]})
        assert log is not None, f"{name}: {planned[name].error}, and the broker started"


def disagreements(row, root, loaded):
    name = Path(row.path).name
    there = [path for path in root.iterdir() if path.name == name or path.name.startswith(f"{name}.")]
    if row.stray is not None and not any(path.name.endswith("-stray") for path in there):
        yield f"{name}: not stray, but: {row.stray}"
    directory = next((path for path in there if path.name.endswith("-stray")), Path(row.path))
    if name not in loaded:
        yield f"{name}: not loaded"
    else:
        yield from (f"{name}: {one}" for one in plan_differences(row, directory, loaded[name]))
    for removed in row.removed:
        # recovery may write a snapshot or a transaction index of that name again
        if (directory / removed).exists() and not removed.endswith((".snapshot", ".txnindex")):
            yield f"{name}: {removed} is there"


# one of each kind of file and of damage; each takes a broker's start
BOOTED = (
    "good",
    "meta_empty",
    "meta_missing",
    "quorum_zeros",
    "quorum_missing",
    f"{CHECKPOINTS[0]}_zeros",
    f"{CHECKPOINTS[1]}_too_few",
    f"{CHECKPOINTS[2]}_text_for_offset",
    "bootstrap_zeros_after",
    "snapshot_flip",
    "future_next_to_it",
    "other_directory",
)


def check_root_cases(trial, names):
    wrong = []
    for name in names:
        change, file = ROOT_CASES[name]
        shutil.rmtree(trial.broker.log_dir)
        shutil.copytree(trial.whole, trial.broker.log_dir)
        change(trial.broker.log_dir, "orders-0")
        planned = kafkalog.preflight(trial.broker.log_dir).verdict
        if (planned == "does not start") != bool(file):
            wrong.append(f"{name}: {planned}")
        # checkpoints of the cleaner and of high watermarks are read a little later
        if trial.starts(ends=bool(file), seconds=1.5 if "checkpoint" in name else 0) == bool(file):
            wrong.append(f"{name}: the broker {'starts' if file else 'does not start'}")
    assert wrong == []


def test_files_outside_of_partitions_keep_a_broker_from_starting(trial):
    check_root_cases(trial, BOOTED)


@pytest.mark.soak
@pytest.mark.timeout(1800)
def test_every_file_outside_of_partitions(trial):
    check_root_cases(trial, sorted(ROOT_CASES.keys() - set(BOOTED)))
