"""A power loss at any call of a command that writes: no file is in part, nothing is lost, and a rerun ends as ever.

Also kills (model A), and file systems without an exchange of names.
"""

import contextlib
import errno
import json
import os
import random
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from effort import spared, trials
from metadata_logs import survivor
from power_loss import Disk, hash_of
from recorded_disk import Recording, Sync, owner_of

import kafkalog
from kafkalog.cli import main
from kafkalog.state.log_config import LogConfig
from kafkalog.storage import atomic
from kafkalog.storage.own_names import BACKUP_SUFFIX

N_RERUNS = trials(10, 40)
OWNER = (12321, 12322, 0o640) if os.geteuid() == 0 else (os.geteuid(), os.getegid(), 0o640)
LEFT = (".kafkalog-staged", ".kafkalog-old", ".kafkalog-export")
"""What a kill leaves next to a log dir or an output, and the next run removes."""


class Case(NamedTuple):
    """A command: `act` runs it in a directory with ``data``, a log dir; its number is that of the run."""

    act: Callable[[Path, int], Any]
    output: str = "data"
    """What it writes; ``data`` is changed in place, others are absent or complete."""
    backup: str = ""
    """A directory with the old files; ``{}`` is the number of the run. Or the suffix of the old files in the output."""
    prepare: Callable[[Path], Any] = lambda base: None
    may_differ: tuple[str, ...] = ()
    """Names that a rerun need not give back."""
    has_ids: bool = False
    """Whether random ids make each run another."""


def _write(path, n, epoch, **options):
    config = LogConfig(segment_bytes=500)
    with kafkalog.PartitionWriter(
        path, config=config, max_records_per_batch=3, leader_epoch=epoch, seed=1, **options
    ) as writer:
        keys = [b"%d" % (i % 4) for i in range(n)]
        times = [1_700_000_000_000 + i for i in range(n)]
        writer.append(
            {"key": keys, "value": [b"%s-%d-%d" % (path.name.encode(), epoch, i) for i in range(n)], "timestamp": times}
        )


def log_dir(root):
    """Two partitions of several small segments, after a clean shutdown; all files are a broker's."""
    root.mkdir()
    for topic in ("orders", "users"):
        for epoch in range(3):
            _write(root / f"{topic}-0", 12, epoch)
    ends = "".join(f"{topic} 0 36\n" for topic in ("orders", "users"))
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint"):
        (root / name).write_text(f"0\n2\n{ends}")
    (root / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=kafkalogSampleBroker01A\n")
    (root / ".kafka_cleanshutdown").write_text('{"version":0,"brokerEpoch":7}')
    (root / "log-start-offset-checkpoint").write_text("0\n0\n")
    give_away(root)


def give_away(root):
    for path in (root, *root.rglob("*")):
        os.chmod(path, 0o750 if path.is_dir() else OWNER[2])
        os.chown(path, *OWNER[:2])


def damaged(base):
    """After a crash: a torn tail, and indexes that are gone."""
    data = base / "data"
    (data / ".kafka_cleanshutdown").unlink()
    log = max((data / "orders-0").glob("*.log"))
    os.truncate(log, log.stat().st_size - 5)
    for index in (data / "users-0").glob("*.index"):
        index.write_bytes(bytes(16))
    (data / "recovery-point-offset-checkpoint").write_text("0\n0\n")


def without_indexes(base):
    for index in (base / "data").glob("*/*.*index"):
        index.write_bytes(b"")
    for path in (base / "data").glob("*/leader-epoch-checkpoint"):
        path.unlink()


def interrupted(base):
    """After a kill of the cleaner: a swap next to the file that it replaces, after damage."""
    damaged(base)
    logs = sorted((base / "data/users-0").glob("*.log"))
    shutil.copy(logs[2], f"{logs[2]}.swap")
    data = bytearray(logs[1].read_bytes())
    data[70] ^= 1
    logs[1].write_bytes(data)


def _recover(base, n):
    kafkalog.recover(base / "data", in_place=True, backup=base / f"old/{n}", all_segments=True, threads=1)


def _truncate(base, n):
    kafkalog.truncate(base / "data", to_offset=24, in_place=True, backup=base / f"old/{n}")


def _trim(base, n):
    kafkalog.trim(base / "data", before_offset=20, in_place=True, backup=base / f"old/{n}")


def _trim_by_retention(base, n):
    kafkalog.trim(base / "data", retention_bytes=500, in_place=True, now=1_800_000_000_000)


def _compact(base, n):
    topics = ["orders", "users"]
    if n == 2:  # a broker's start does the same
        kafkalog.recover(base / "data", in_place=True, backup=base / "old", threads=1)
        # and leaves the indexes of a `.log.swap` without its own empty or preallocated
        kafkalog.reindex(base / "data", kinds=["offset", "time"], in_place=True, now=1_700_000_000_000)
    kafkalog.compact(base / "data", topics=topics, in_place=True, now=1_800_000_000_000, threads=1)


def _reindex(base, n):
    kinds = ["offset", "time", "txn", "snapshot", "epochs"]
    kafkalog.reindex(base / "data", kinds=kinds, in_place=True, now=1_700_000_000_000)


def _export_again(base, n):
    kafkalog.export(base / "data", base / "out", format="jsonl", partition_by=["topic"], resume=True)


def _first_export(base):
    _export_again(base, 0)
    _write(base / "data/orders-0", 6, 3)


def _boot(base, n):
    kafkalog.boot([base / "data"], base / "out")


def _load(base, n):
    if n > 1 and (base / "data/fresh-0").exists():
        return
    assert (
        main(
            [
                "load",
                str(base / "rows.jsonl"),
                "-o",
                str(base / "data"),
                "--topic",
                "fresh",
                "--encoding",
                "base64",
                "-q",
            ]
        )
        == 0
    )


def _rows(base):
    lines = [json.dumps({"key": "a2V5", "value": "dmFsdWU=", "timestamp": n}) for n in range(5)]
    (base / "rows.jsonl").write_text("\n".join(lines))


def _rescue_quorum(base, n):
    kafkalog.rescue_quorum(base / "data", backup=base / f"old/{n}")


def controllers(base):
    """A controller of a quorum whose others are lost."""
    shutil.rmtree(base / "data")
    shutil.move(survivor(base / "cluster"), base / "data")
    shutil.rmtree(base / "cluster")
    give_away(base / "data")


def _report(base, n):
    assert main(["verify", "data", "-q", "--report", "out"]) == 0


def _old_report(base):
    (base / "out").write_text("{}")


def _of(function, **options):
    return lambda base, n: getattr(kafkalog, function)(base / "data", output=base / "out", **options)


ROOT_FILES = (".kafka_cleanshutdown", "recovery-point-offset-checkpoint", "replication-offset-checkpoint")
CASES = {
    "recover --in-place": Case(_recover, backup="old/{}", prepare=damaged),
    "recover --in-place after a cleaning": Case(_recover, backup="old/{}", prepare=interrupted),
    "truncate --in-place": Case(_truncate, backup="old/{}", may_differ=(".kafka_cleanshutdown",)),
    "trim --in-place": Case(_trim, backup="old/{}"),
    "trim --retention-bytes --in-place": Case(_trim_by_retention),
    "compact --in-place": Case(_compact, may_differ=ROOT_FILES),
    "reindex --in-place": Case(_reindex, backup=BACKUP_SUFFIX, prepare=without_indexes),
    "boot --rescue-quorum": Case(
        _rescue_quorum, "data/__cluster_metadata-0", backup="old/{}", prepare=controllers, has_ids=True
    ),
    "recover -o": Case(
        _of("recover", all_segments=True, threads=1), "out", prepare=damaged, may_differ=("origin.json",)
    ),
    "truncate -o": Case(_of("truncate", to_offset=24), "out"),
    "trim -o": Case(_of("trim", before_offset=20), "out"),
    "compact -o": Case(_of("compact", topics=["users"], now=1_800_000_000_000, threads=1), "out"),
    "reindex -o": Case(_of("reindex"), "out"),
    "salvage -o": Case(_of("salvage"), "out", prepare=damaged, may_differ=("origin.json",)),
    "convert -o": Case(_of("convert", compression="gzip"), "out"),
    "export FILE": Case(_of("export", format="jsonl"), "out"),
    "export --partition-by": Case(_of("export", format="jsonl", partition_by=["topic"]), "out"),
    "export --resume": Case(_export_again, "out", prepare=_first_export, may_differ=("_kafkalog_export.json",)),
    "boot": Case(_boot, "out", has_ids=True),
    "load": Case(_load, prepare=_rows),
    "--report": Case(_report, "out", prepare=_old_report),
}


def _plain_and_spared(plain, every):
    """Names of cases: those of a plain run, and of the others, which are slow, those that CI takes."""
    # from the end: others than `spared` takes of the cases in their order
    others = [name for name in reversed(CASES) if name not in plain]
    return [*plain, *(pytest.param(name, marks=pytest.mark.slow) for name in spared(others, every))]


IN_EVERY_BUILD = ("recover --in-place", "trim --in-place", "--report")


@pytest.fixture
def tmp_path(tmp_path):
    """In memory, where there is one: what would be on a disk is computed, and files are made by the thousand."""
    memory = "/dev/shm"
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as name:
        yield Path(name)


def listed(root):
    """Hash and owner by path of an output that a run gave back."""
    found = {}
    for path in (root, *root.rglob("*")) if root.is_dir() else (root,) if root.exists() else ():
        content = None if path.is_dir() else hash_of(path.read_bytes())
        found[f"/{path.relative_to(root)}" if path != root else ""] = content, owner_of(path.stat())
    return found


def within(tree, output):
    """The part of a state that is the output, without what a kill leaves next to it."""
    prefix = f"/{output}"
    return {
        path[len(prefix) :]: entry
        for path, entry in tree.items()
        if (path == prefix or path.startswith(f"{prefix}/")) and not any(left in path for left in LEFT)
    }


class Trial:
    """A command, recorded once."""

    def __init__(self, name, tmp_path):
        self.case = CASES[name]
        self.base = tmp_path / "base"
        self.base.mkdir()
        log_dir(self.base / "data")
        self.case.prepare(self.base)
        if self.case.output == "data":
            give_away(self.base / "data")
        self.recording = Recording(self.base)
        self.before = listed(self.base / self.case.output)
        with self.recording.running():
            self.run(self.base, 1)
        self.wanted = listed(self.base / self.case.output)
        self._known = {entry for tree in (self.before, self.wanted) for entry in tree.values()}
        # an exchange gives the new file the old one's place, so that each may have any name meanwhile
        assert self.before != self.wanted

    def run(self, base, n):
        with contextlib.chdir(base):  # reports have the path
            self.case.act(Path(), n)

    def fault(self, state):
        """What is wrong in a state; "" if nothing is."""
        tree = within(state.tree, self.case.output)
        if state.is_after:
            return "" if tree == self.wanted else f"not durable at the end: {_difference(tree, self.wanted)}"
        if self.case.output == "out" and "/data" in state.tree and not self.before:
            return "" if tree in ({}, self.wanted) else f"neither absent nor complete: {_difference(tree, self.wanted)}"
        for path, entry in tree.items():
            if entry not in self._known and not path.endswith((".lock", ".kafkalog-backup")):
                return f"{path} is neither old nor new"
        kept = self.kept(state) if self.case.backup else {**self.before}
        for path, entry in self.before.items():
            if tree.get(path) != entry and entry[0] is not None and kept.get(path) != entry:
                return f"the old {path} is gone"
        return ""

    def kept(self, state):
        """The old files in the backup."""
        if self.case.backup != BACKUP_SUFFIX:
            return within(state.tree, self.case.backup.format(1))
        tree = within(state.tree, self.case.output)
        return {path.removesuffix(BACKUP_SUFFIX): entry for path, entry in tree.items() if path.endswith(BACKUP_SUFFIX)}

    def rerun(self, state, disk, to):
        """What is wrong after the command has run again on a state."""
        to.mkdir()
        disk.materialise(state, to)
        for n in (2, 3):
            self.run(to, n)
            found, wanted = listed(to / self.case.output), dict(self.wanted)
            for name in self.case.may_differ:
                found.pop(f"/{name}", None)
                wanted.pop(f"/{name}", None)
            # backups differ, and who has nothing to write removes nothing
            found = {path: entry for path, entry in found.items() if ".kafkalog-" not in path}
            wanted = {path: entry for path, entry in wanted.items() if ".kafkalog-" not in path}
            if found != wanted:
                return f"run {n}: {_difference(found, wanted)}"
            if self.case.output != "data":
                break
        return ""


def _difference(found, wanted):
    return {
        path: (found.get(path), wanted.get(path)) for path in {*found, *wanted} if found.get(path) != wanted.get(path)
    }


def check(trial, model, tmp_path, n_reruns):
    """Judge all states of a model, and run the command again on some."""
    disk, states = Disk(trial.recording, model), []
    for state in disk.states():
        fault = trial.fault(state)
        assert not fault, f"{state.why}: {fault}"
        if not state.is_after:
            states.append(state)
    assert states
    if trial.case.has_ids:
        return
    is_repeatable = trial.case.output == "data" or trial.before
    chosen = random.Random(1).sample(states, min(n_reruns, len(states)))
    for number, state in enumerate(chosen):
        absent = not within(state.tree, trial.case.output)
        if is_repeatable or absent:
            fault = trial.rerun(state, disk, tmp_path / f"{model}{number}")
            assert not fault, f"{state.why}: {fault}"


@pytest.mark.parametrize(
    "name", [name if name in IN_EVERY_BUILD else pytest.param(name, marks=pytest.mark.slow) for name in CASES]
)
def test_a_power_loss_or_a_kill_at_any_call(name, tmp_path):
    trial = Trial(name, tmp_path)
    for model in ("A", "B"):
        check(trial, model, tmp_path, N_RERUNS // 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", spared(CASES, 2))
def test_a_power_loss_on_a_strict_disk(name, tmp_path):
    check(Trial(name, tmp_path), "C", tmp_path, N_RERUNS)


@pytest.mark.parametrize("name", _plain_and_spared(["trim --in-place"], 2))
def test_a_kill_where_names_cannot_be_exchanged(name, tmp_path, monkeypatch):
    def cannot(source, target, flags):
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(atomic, "_renameat2", cannot)
    check(Trial(name, tmp_path), "A", tmp_path, N_RERUNS)


@pytest.mark.parametrize("name", _plain_and_spared(["--report", "trim --in-place"], 3))
def test_without_the_fsyncs_of_any_file_a_state_is_wrong(name, tmp_path):
    """Of each kind of file, or of directory, some are tried."""
    trial = Trial(name, tmp_path)
    ops, tree = trial.recording.ops, trial.recording.tree
    paths = {path for path in tree.listed() if within({path: None}, trial.case.output) or path.startswith("/old")}
    lasting = {tree.place(f"{tree.root}{path}")[2] for path in paths}
    synced = {op.inode for op in ops if isinstance(op, Sync) and op.inode in lasting and tree.nodes[op.inode]}
    assert synced
    by_kind = {}
    for path in sorted(paths):
        inode = tree.place(f"{tree.root}{path}")[2]
        if inode in synced:
            is_directory = isinstance(tree.nodes[inode], dict)
            kind = path.count("/") if is_directory else Path(path).suffix or Path(path).name
            by_kind.setdefault(kind, []).append(inode)
    for inode in (inode for inodes in by_kind.values() for inode in inodes[: trials(1, 2)]):
        disk = Disk(trial.recording, "C", without=inode, n_random=0)
        noticed = any(trial.fault(state) for state in disk.states())
        # only another run looks at the directories that an interrupted export is moved to; and where one file is
        # renamed into a directory, the fsync of the one that it comes from is enough
        assert noticed or name in ("export --resume", "boot --rescue-quorum"), next(
            path for path in paths if tree.place(tree.root + path)[2] == inode
        )
