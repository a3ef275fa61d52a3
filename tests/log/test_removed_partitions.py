"""Partitions whose directory a running broker removes, as their topic is deleted, after it was listed."""

import os
import shutil
from pathlib import Path

import builder
import pytest
from effort import thinned
from refusals import fails_with

import kafkalog
from kafkalog.cli import main
from kafkalog.errors import CorruptionWarning
from kafkalog.log.log_dir import LogDir
from kafkalog.log.partition import Partition
from kafkalog.repair.recovering import preflight
from kafkalog.scanning.planning import plan
from kafkalog.scanning.tasks import read_task
from kafkalog.storage.broker_lock import hold_locks

GONE = "p-txn-0"
OTHERS = ("p-compact-0", "p-multi-0", "p-zstd-java-0")


@pytest.fixture
def root(tmp_path, log_dir):
    """A log dir of a few partitions, some before and some behind the one that goes away."""
    to = tmp_path / "log"
    to.mkdir()
    for name in (GONE, *OTHERS):
        shutil.copytree(log_dir / name, to / name)
    for file in log_dir.iterdir():
        if file.is_file():
            shutil.copy(file, to)
    return to


def remove(directory):
    """What a broker does with the directory of a deleted topic."""
    if directory.exists():
        directory.rename(directory.with_name(f"{directory.name}.0123456789abcdef0123456789abcdef-delete"))


def remake(directory):
    """What a broker does as a topic is deleted, and made again once its old directory is gone."""
    metadata = directory / "partition.metadata"
    if "AAAAAAAAAAAAAAAAAAAAAA" in metadata.read_text():
        return
    written_ns = metadata.stat().st_mtime_ns
    shutil.rmtree(directory)
    directory.mkdir()
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n")
    os.utime(metadata, ns=(1, written_ns + 10**9))  # a test is quicker than the clock of a file system
    (directory / f"{0:020d}.log").write_bytes(builder.batch_v2([builder.record_v2(value=b"of the new topic")]))


def arm(root, stage, monkeypatch, remove=remove):
    """Have the directory removed right after it was listed with the log dir, or after its own files were."""
    gone = root / GONE
    listed, opened = LogDir.__init__, Partition.__init__
    planned = preflight.LoadPlan

    def list_log_dir(self, *args, **options):
        listed(self, *args, **options)
        if stage == "listed":
            remove(gone)

    def open_partition(self, path, *args, **options):
        opened(self, path, *args, **options)
        if stage == "opened" and Path(path) == gone:
            remove(gone)

    def load_plan(directory, *args, **options):
        if stage == "listed":
            remove(gone)
        return planned(directory, *args, **options)

    monkeypatch.setattr(LogDir, "__init__", list_log_dir)
    monkeypatch.setattr(Partition, "__init__", open_partition)
    monkeypatch.setattr(preflight, "LoadPlan", load_plan)
    return gone


def rows(batches):
    return [(one["topic"], one["offset"]) for batch in batches for one in batch.to_pylist()]


def scanned(root, **options):
    scan = kafkalog.scan(root, columns=["topic", "offset"], **options)
    return rows(scan.to_batches()), scan.findings


def planned(root):
    made = plan(root)
    return [n for task in made.tasks for n in rows(read_task(task, columns=["topic", "offset"]))], made.findings


def tail(root):
    scan = kafkalog.scan(root, columns=["topic", "offset"])
    return rows(scan.tail(3).to_batches()), scan.findings


def batches(root):
    scan = kafkalog.batches(root, columns=["topic", "last_offset"])
    return scan.to_table().to_pylist(), scan.findings


def converted(root):
    out = root.with_name("out") if root.name == "log" else root.parent.with_name("out")
    report = kafkalog.convert(root, out, compression="zstd")
    shown = scanned(out)[0]
    shutil.rmtree(out)
    return shown, report.findings.rows


def verified(root):
    report = kafkalog.verify(root)
    shown = [(one.path, one.ok) for one in report.partitions if not one.path.endswith((GONE, "-delete"))]
    return shown, report.findings


def listed(root):
    found = kafkalog.ls(root)
    return [(one.name, one.end) for one in found if one.n_batches], [one for row in found for one in row.findings]


def planned_start(root):
    report = kafkalog.preflight(root, clean=False)
    shown = [(one.path, one.verdict) for one in report.partitions if not one.path.endswith("-delete")]
    return [*shown, report.verdict], report.findings.rows


def with_findings(function):
    def call(root):
        found = function(root)
        return [repr(one) for one in found], found.findings

    return call


NOTING = {
    "scan": scanned,
    "skip": lambda root: scanned(root, on_corruption="skip"),
    "committed": lambda root: scanned(root, isolation_level="read_committed"),
    "latest": lambda root: scanned(root, latest="key"),
    "threads": lambda root: scanned(root, threads=3),
    "plan": planned,
    "tail": tail,
    "batches": batches,
    "convert": converted,
    "verify": verified,
    "ls": listed,
    "preflight": planned_start,
    "transactions": with_findings(lambda root: kafkalog.transactions(root, now=0)),
}
EARLY = ("scan", "plan", "batches", "convert", "verify", "preflight", "transactions")
"""A part of a plan is about files, and raises if they are gone later."""
WARNING = {
    "lookup": lambda root: [one.offset for one in kafkalog.lookup(root, offset=20, timestamp=0)],
    "index_stats": lambda root: [(one.path, one.n_segments) for one in kafkalog.index_stats(root)],
    "producers": lambda root: [one.path for one in kafkalog.producers(root, now=0)],
    "epochs": lambda root: [one.topic_partition for one in kafkalog.epochs(root)],
}


def without(root, call):
    """What a function gives of the other partitions."""
    aside = root.parent / GONE
    shutil.move(root / GONE, aside)
    found = call(root)
    shutil.move(aside, root / GONE)
    return found


@pytest.mark.parametrize(
    ("name", "stage"), [*((name, "opened") for name in NOTING if name != "plan"), *((name, "listed") for name in EARLY)]
)
def test_the_others_are_read_and_a_note_says_what_went_away(root, name, stage, monkeypatch):
    expected, _ = without(root, NOTING[name])
    gone = arm(root, stage, monkeypatch)
    found, findings = NOTING[name](root)
    assert not gone.exists()
    assert found == expected
    assert [one.path for one in findings if one.reason == "partition_removed"] == [str(gone)]
    assert not [one for one in findings if one.damage]


REMADE = tuple(name for name in NOTING if name not in ("plan", "preflight"))
"""A plan is about files; preflight plans again, and is about the new partition then."""


@pytest.mark.parametrize("name", thinned(REMADE, 4))
def test_a_topic_that_is_made_again_meanwhile_is_another_one(root, name, monkeypatch):
    expected, _ = without(root, NOTING[name])
    (root / ".lock").touch()
    gone = arm(root, "opened", monkeypatch, remake)
    with hold_locks([root]):
        found, findings = NOTING[name](root)
    assert len(list(gone.iterdir())) == 2
    assert found == expected
    assert [one.path for one in findings if one.reason == "partition_removed"] == [str(gone)]
    assert not [one for one in findings if one.damage]


@pytest.mark.parametrize(("name", "stage"), [*((name, "opened") for name in WARNING), ("epochs", "listed")])
def test_lists_warn_of_what_went_away(root, name, stage, monkeypatch):
    expected = without(root, WARNING[name])
    gone = arm(root, stage, monkeypatch)
    with pytest.warns(CorruptionWarning, match=f"{GONE}: partition_removed") as warned:
        assert WARNING[name](root) == expected
    assert not gone.exists()
    assert len(warned) == 1


@pytest.mark.parametrize("name", [name for name in (*NOTING, *WARNING) if name not in ("transactions", "ls", "plan")])
def test_a_partition_that_was_named_is_an_error(root, name, monkeypatch):
    gone = arm(root, "opened", monkeypatch)
    with fails_with("partition_removed"):
        {**NOTING, **WARNING}[name](gone)
    assert not gone.exists()


def test_a_topic_that_holds_state_is_read_as_far_as_it_is_there(root, monkeypatch):
    gone = arm(root, "opened", monkeypatch)
    (note,) = kafkalog.schemas(root, topic="p-txn").findings
    assert (note.reason, note.damage, note.path) == ("partition_removed", False, str(gone))


def test_without_a_sign_of_a_broker_a_directory_that_is_gone_is_an_error(root):
    opened = kafkalog.open(root)
    shutil.rmtree(root / GONE)
    with fails_with("file_unreadable"):
        kafkalog.scan(opened).count_rows()


READINGS = {
    "scan": lambda opened: kafkalog.scan(opened).to_numpy().offset.tolist(),
    "batches": lambda opened: kafkalog.batches(opened).to_table()["last_offset"].to_pylist(),
    "offset": lambda opened: [one.offset for one in kafkalog.lookup(opened, offset=[20, 420])],
    "timestamp": lambda opened: [one.offset for one in kafkalog.lookup(opened, timestamp=["latest", 0])],
    "producers": lambda opened: repr(kafkalog.producers(opened, now=0)),
    "ls": lambda opened: [(one.n_records, one.ok, one.n_records_is_minimum) for one in kafkalog.ls(opened)],
}


@pytest.mark.parametrize("name", READINGS)
def test_segments_that_retention_deleted_for_good_after_the_listing_are_passed_over(root, name):
    opened = kafkalog.open(root / GONE)
    first, second, *_ = sorted((root / GONE).glob("*.log"))
    for path in (first, second):
        path.unlink()
    (root / ".lock").touch()
    with hold_locks([root]):
        assert READINGS[name](opened) == READINGS[name](root / GONE)
        note = kafkalog.scan(opened)
        assert note.to_table().num_rows
    if name == "scan":
        assert [(one.reason, one.path, one.damage) for one in note.findings if one.reason == "file_unreadable"] == [
            ("file_unreadable", str(path), False) for path in (first, second)
        ]
        with fails_with("file_changed"):  # no broker runs
            kafkalog.scan(opened).count_rows()


def test_a_segment_that_is_gone_from_the_middle_is_an_error_beside_a_broker_too(root):
    opened = kafkalog.open(root / GONE)
    sorted((root / GONE).glob("*.log"))[2].unlink()
    (root / ".lock").touch()
    with hold_locks([root]), fails_with("file_unreadable"):
        kafkalog.scan(opened).count_rows()


def test_preflight_reads_again_what_a_running_broker_changed(root, monkeypatch):
    expected, _ = planned_start(root)
    hidden = []
    planned = preflight.LoadPlan

    def load_plan(directory, *args, **options):
        if directory.name == GONE and hidden and not hidden[0].exists():
            hidden[0].with_suffix(".aside").rename(hidden[0])
        plan = planned(directory, *args, **options)
        if directory.name == GONE and not hidden:
            hidden.append(plan.partition.segments[-1].path)
            hidden[0].rename(hidden[0].with_suffix(".aside"))
        return plan

    monkeypatch.setattr(preflight, "LoadPlan", load_plan)
    monkeypatch.setattr(preflight, "is_live", lambda root: True)
    shown, findings = planned_start(root)
    assert shown == expected
    assert [(one.reason, one.damage) for one in findings] == [("file_changed", False)]


@pytest.mark.parametrize("is_there", [True, False])
def test_segments_that_a_cleaner_merges_after_the_listing_are_converted_as_they_are_now(tmp_path, is_there):
    root = tmp_path / "log"
    partition = root / "c-0"
    partition.mkdir(parents=True)
    for name in ("meta.properties", ".lock"):
        (root / name).touch()
    logs = [partition / f"{base:020d}.log" for base in (0, 4, 8)]
    for log in logs:
        records = [builder.record_v2(i, key=b"k", value=b"v") for i in range(4)]
        log.write_bytes(builder.batch_v2(records, base_offset=int(log.stem)))
    opened = kafkalog.open(partition)
    logs[0].write_bytes(logs[0].read_bytes() + logs[1].read_bytes())
    logs[1].rename(f"{logs[1]}.deleted")
    if not is_there:
        Path(f"{logs[1]}.deleted").unlink()
    (tmp_path / "out").mkdir()
    with hold_locks([root]):
        report = kafkalog.convert(opened, tmp_path / "out" / "c-0", on_corruption="skip")
        assert kafkalog.scan(opened).to_numpy().offset.tolist() == list(range(12))
    assert not report.findings.rows
    assert kafkalog.verify(tmp_path / "out").ok
    assert kafkalog.scan(tmp_path / "out").to_numpy().offset.tolist() == list(range(12))


def test_ls_notes_an_end_that_the_checkpoints_know_of(root):
    sorted((root / "p-multi-0").glob("*.log"))[-1].unlink()
    for path in (root, root / "p-multi-0"):
        (row,) = kafkalog.ls(path, topics="p-multi")
        assert [(one.reason, one.damage) for one in row.findings] == [("log_end_missing", False)]
        assert row.ok


COMMANDS = {
    "cat": ["cat"],
    "tail": ["cat", "--tail", "2"],
    "export": ["export", "-o", "OUT"],
    "convert": ["convert", "-o", "OUT"],
    "ls": ["ls"],
    "verify": ["verify"],
    "lookup": ["lookup", "--offset", "20"],
    "index-stats": ["index-stats"],
    "producers": ["producers"],
    "transactions": ["transactions"],
    "batches": ["batches"],
    "epochs": ["epochs"],
    "preflight": ["preflight", "--unclean"],
}


@pytest.mark.parametrize(("name", "stage"), [*((name, "opened") for name in COMMANDS), ("ls", "listed")])
def test_commands_end_well(root, name, stage, monkeypatch, capsys):
    command, *options = (one.replace("OUT", str(root.parent / "out.csv")) for one in COMMANDS[name])
    gone = arm(root, stage, monkeypatch)
    assert main([command, str(root), *options]) == 0
    shown = "".join(capsys.readouterr())
    assert not gone.exists()
    assert shown.count("partition_removed") == 1
