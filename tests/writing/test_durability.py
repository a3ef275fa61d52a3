"""The order of fsyncs and renames: what is renamed is durable before, and the name is durable behind it."""

import contextlib
import os
import sys
from pathlib import Path

import pytest

from kafkalog import format as kf
from kafkalog.operations.loading.load import write_table
from kafkalog.storage import atomic as file_steps
from kafkalog.storage.atomic import sync_directory, truncate_file
from kafkalog.storage.moves import Move, staged_additions
from kafkalog.storage.own_names import STAGED_SUFFIX
from kafkalog.storage.staging import staged_directory, staged_file
from kafkalog.writing import job_commit
from kafkalog.writing.job_commit import StagedWriter, commit
from kafkalog.writing.job_directories import StagingArea, create_job
from kafkalog.writing.partition_writer import PartitionWriter

Step = tuple[str, ...]


class Recorder:
    """Calls that write, make durable and rename, in their order, each with the paths as they were at that time."""

    def __init__(self):
        self.steps = []

    def note(self, *step):
        self.steps.append(step)

    def index(self, *step):
        return self.steps.index(step)

    def renames(self):
        return [(i, Path(step[1]), Path(step[2])) for i, step in enumerate(self.steps) if step[0] == "rename"]

    def check_order(self, n_renames):
        """Every file is fsynced behind its last write and before its rename, as are the directories that it lies in.

        A directory that is renamed is fsynced with all that was written in it; a name that appears is made durable.
        """
        renames = [one for one in self.renames() if not one[2].name.endswith(".kafkalog-old")]
        assert len(renames) == n_renames, self.steps
        for i, source, target in renames:
            before, after = self.steps[:i], self.steps[i + 1 :]
            written = {Path(step[1]) for step in before if step[0] == "write"}
            moved = {path for path in written if path == source or source in path.parents}
            for path in moved:
                last = max(j for j, step in enumerate(before) if step == ("write", str(path)))
                assert ("fsync", str(path)) in before[last:], f"{path} is renamed before it is durable"
                for directory in path.parents:
                    if source not in (directory, *directory.parents):
                        break
                    synced = [j for j, step in enumerate(before) if step == ("fsync", str(directory))]
                    assert synced, f"{directory} is renamed before it is durable"
                    assert max(synced) > last, f"{directory} is renamed before the names in it are durable"
            assert ("fsync", str(target.parent)) in after, f"the name of {target} is never made durable"


@contextlib.contextmanager
def recorded():
    """Record what the functions of `os` that matter are called with."""
    recorder = Recorder()
    kept = {name: getattr(os, name) for name in ("write", "fsync", "rename", "replace")}
    renameat2 = file_steps._renameat2

    def path_of(descriptor):
        return os.readlink(f"/proc/self/fd/{descriptor}")

    def write(descriptor, data):
        recorder.note("write", path_of(descriptor))
        return int(kept["write"](descriptor, data))

    def fsync(descriptor):
        recorder.note("fsync", path_of(descriptor))
        kept["fsync"](descriptor)

    def rename(source, target):
        recorder.note("rename", os.fspath(source), os.fspath(target))
        kept["rename"](source, target)

    def exchange(source, target, flags):
        recorder.note("rename", str(source), str(target))
        renameat2(source, target, flags)

    os.write, os.fsync, os.rename, os.replace = write, fsync, rename, rename
    file_steps._renameat2 = exchange
    try:
        yield recorder
    finally:
        for name, function in kept.items():
            setattr(os, name, function)
        file_steps._renameat2 = renameat2


pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc/self/fd")


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_file_is_durable_before_it_has_its_name(tmp_path, overwrite):
    if overwrite:
        (tmp_path / "out").write_bytes(b"old")
    with recorded() as recorder, staged_file(tmp_path / "out", overwrite=overwrite) as file:
        file.write(b"new")
    recorder.check_order(1)


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("elsewhere", [False, True])
def test_a_directory_is_durable_with_all_that_is_in_it_before_it_has_its_name(tmp_path, overwrite, elsewhere):
    target = tmp_path / "logs" / "out"
    target.parent.mkdir()
    if overwrite:
        target.mkdir()
        (target / "old").write_bytes(b"old")
    stage_in = tmp_path if elsewhere else None
    with recorded() as recorder, staged_directory(target, overwrite=overwrite, stage_in=stage_in) as staged:
        with staged.create("closed/early") as file:
            file.write(b"1")
        staged.create("d/e/late").write(b"2")
        staged.create("top").write(b"3")
    recorder.check_order(1)
    i, _, _ = recorder.renames()[0]
    staging = str(tmp_path if elsewhere else target.parent)
    assert ("fsync", staging) in recorder.steps[i:]  # where the temporary name was


def test_files_that_are_added_are_durable_before_the_first_and_each_group_before_the_next(tmp_path):
    target = tmp_path / "logs" / "orders-0"
    target.mkdir(parents=True)
    for name in ("put", "take"):
        (target / name).write_bytes(b"old")
    groups = [[Move("take", "take")], [Move("put", "put")], [Move("add", "add"), Move("more", "add")]]
    with recorded() as recorder, staged_additions(target, groups, stage_in=tmp_path) as staged:
        for name in ("take", "put", "add", "more"):
            with staged.create(name) as file:
                file.write(b"new")
    recorder.check_order(3)
    steps = [
        Path(step[2]).name if step[0] == "rename" else "fsync" if step == ("fsync", str(target)) else None
        for step in recorder.steps
    ]
    assert [step for step in steps if step] == [
        "take.kafkalog-old", "fsync", "put", "fsync", "add", "more", "fsync",
    ]  # fmt: skip


def test_a_partition_and_what_is_appended_to_it_are_durable_before_they_are_there(path):
    with recorded() as recorder, PartitionWriter(path) as writer:
        writer.append({"value": [b"a", b"b"], "timestamp": [1, 2]})
        writer.roll()
    recorder.check_order(1)
    with recorded() as recorder, PartitionWriter(path) as writer:  # in place of the empty last segment
        writer.append({"value": [b"c"], "timestamp": [3]})
        writer.roll()
    recorder.check_order(7)
    names = [target.name for _, _, target in recorder.renames() if not target.name.endswith(".kafkalog-old")]
    first, second = f"{2:020}", f"{3:020}"
    assert names[0] == first + ".log"
    assert names.index(first + ".log") < names.index(first + ".index")
    assert names.index(second + ".index") < names.index(second + ".log")
    assert names[-1] == second + ".log"
    for i, _, target in recorder.renames():
        # behind each `.log` and before it: a crash in between leaves what a broker starts on
        if target.suffix == ".log":
            assert recorder.steps[i - 1] == recorder.steps[i + 1] == ("fsync", str(path))


def test_a_load_is_durable_before_it_is_there(tmp_path):
    table = {"value": [b"a", b"b", b"c"], "partition": [0, 1, 2], "timestamp": [1, 2, 3]}
    with recorded() as recorder:
        write_table(table, tmp_path / "new", topic="t")
    recorder.check_order(4)  # three partitions in what is staged, and all of it
    with recorded() as recorder:
        write_table(table, tmp_path / "new", topic="u")
    recorder.check_order(6)


def test_a_commit_is_written_down_before_anything_is_moved(tmp_path):
    log_dir = tmp_path / "logs"
    write_table({"value": [b"a"], "timestamp": [1]}, log_dir, topic="t")
    area = StagingArea.of(log_dir)
    job = area.job("job-1")
    create_job(job)
    task = job / "task"
    task.mkdir()
    staged = []
    for key in (kf.TopicPartition("t", 0), kf.TopicPartition("t", 1)):
        writer = StagedWriter(area, task, key)
        first = writer.writer.next_offset
        writer.writer.append({"value": [b"b"], "timestamp": [2]})
        staged.append(writer.finish(1, first))
    with recorded() as recorder:
        commit(area, job, staged, {"job": "one"})
    log = f"{1:020}.log"
    moves = [
        (i, target)
        for i, _, target in recorder.renames()
        if log_dir in target.parents and STAGED_SUFFIX not in str(target)
    ]
    names = [target.relative_to(log_dir).as_posix() for _, target in moves]
    assert names[-2:] == [f"t-0/{1:020}.snapshot", "t-1"] or names[-3:] == [
        f"t-0/{log}",
        f"t-0/{2:020}.snapshot",
        "t-1",
    ]
    intent = next(i for i, _, target in recorder.renames() if target.name == job_commit.INTENT_NAME)
    assert intent < moves[0][0]
    before = recorder.steps[:intent]
    for directory in (task, job, job.parent):
        assert ("fsync", str(directory)) in before
    # the intent itself: its bytes, and its name
    assert ("fsync", str(job)) in recorder.steps[intent : moves[0][0]]
    for i, target in moves:
        assert ("fsync", str(target.parent)) in recorder.steps[i:]
    position = next(i for i, target in moves if target.name == log)
    assert ("fsync", str(log_dir / "t-0")) in recorder.steps[max(i for i, _ in moves if i < position) : position]
    noted = next(i for i, _, target in recorder.renames() if target.name.endswith(".kafkalog-commits"))
    assert noted > moves[-1][0]
    assert ("fsync", str(log_dir)) in recorder.steps[moves[-1][0] : noted]


def test_a_file_that_is_cut_and_names_that_change_are_made_durable(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"12345")
    with recorded() as recorder:
        truncate_file(path, 2)
        sync_directory(tmp_path)
    assert path.read_bytes() == b"12"
    assert recorder.steps == [("fsync", str(path)), ("fsync", str(tmp_path))]
