"""Moves, copies and removals: an undo removes what it placed, and nothing else."""

import errno
import os
import pickle
from pathlib import Path

import pytest
from refusals import fails_with

from kafkalog.errors import OutputExistsError
from kafkalog.storage import atomic as file_steps
from kafkalog.storage import copying
from kafkalog.storage.broker_lock import hold_locks
from kafkalog.storage.copying import Backup, copy_file
from kafkalog.storage.moves import Move, staged_additions
from kafkalog.storage.removals import directory_identity, removed_directory, was_replaced
from kafkalog.storage.staging import staged_directory, staged_file


def replace(path):
    with staged_file(path, overwrite=True) as file:
        file.write(b"theirs")


def append(path):
    with path.open("ab") as file:
        file.write(b"theirs")


@pytest.mark.parametrize("what", ["add", "put"])
@pytest.mark.parametrize(("change", "left"), [(replace, b"theirs"), (append, b"minetheirs"), (Path.unlink, None)])
def test_an_undo_takes_back_what_it_placed_and_nothing_else(tmp_path, change, left, what):
    target = tmp_path / "there"
    target.mkdir()
    old = dict.fromkeys(("last", "taken", *(["one", "two"] if what == "put" else [])), b"old")
    for name, content in old.items():
        (target / name).write_bytes(content)
    groups = [[Move("taken", "take"), Move("one", what), Move("two", what)], [Move("last", "add")]]
    steps = Steps(groups, target / "one", change)
    with pytest.raises(OutputExistsError):
        add_files(target, steps)
    found = {path.name: path.read_bytes() for path in target.iterdir()}
    assert found == (old if left is None else {**old, "one": left})


def add_files(target, groups):
    with staged_additions(target, groups) as staged:
        for name in ("one", "two", "last"):
            with staged.create(name) as file:
                file.write(b"mine")


class Steps(list[list[Move]]):
    """Groups of moves, with something that happens to a file behind the first."""

    def __init__(self, groups, path, change):
        super().__init__(groups)
        self._path, self._change = path, change

    def __iter__(self):
        for i, group in enumerate(super().__iter__()):
            if i == 1:
                self._change(self._path)
            yield group


@pytest.fixture
def partition(tmp_path):
    (tmp_path / ".lock").touch()
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "partition.metadata").write_text("version: 0\n")
    return tmp_path / "t-0"


def test_a_directory_of_the_same_name_is_another_one_beside_a_broker_alone(partition):
    identity = directory_identity(partition)
    assert identity is not None
    aside = partition.with_name("aside")
    partition.rename(aside)  # it keeps its inode, so that the new one has another
    partition.mkdir()
    assert not was_replaced(partition, identity)
    assert removed_directory(partition, identity=identity) is None
    with hold_locks([partition.parent]):
        assert was_replaced(partition, identity)
        assert removed_directory(partition) is None
        error = removed_directory(partition, identity=identity)
        assert error is not None
        assert (error.reason, error.path) == ("partition_removed", str(partition))
        partition.rmdir()
        assert not was_replaced(partition, identity)
        assert removed_directory(partition) is not None
        aside.rename(partition)
        assert removed_directory(partition, identity=identity) is None


def test_a_topic_id_that_was_written_anew_tells_where_the_inode_is_the_same(partition):
    identity = directory_identity(partition)
    assert identity is not None
    metadata = partition / "partition.metadata"
    with hold_locks([partition.parent]):
        assert not was_replaced(partition, identity)
        metadata.unlink()
        assert not was_replaced(partition, identity)  # an old broker writes none
        metadata.touch()
        os.utime(metadata, ns=(1, (identity.written_ns or 0) + 10**9))
        assert was_replaced(partition, identity)


def test_another_topic_id_tells_everywhere_and_an_inode_where_it_was_seen(partition):
    metadata = partition / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA\n")
    here = directory_identity(partition)
    elsewhere = pickle.loads(pickle.dumps(here))
    aside = partition.with_name("aside")
    partition.rename(aside)  # it keeps its inode, so that the new one has another, as on another mount
    partition.mkdir()
    metadata.write_bytes((aside / metadata.name).read_bytes())
    with hold_locks([partition.parent]):
        assert was_replaced(partition, here)
        assert not was_replaced(partition, elsewhere)
    assert not was_replaced(partition, here)
    metadata.write_text("version: 0\ntopic_id: BBBBBBBBBBBBBBBBBBBBBB\n")
    assert was_replaced(partition, here)  # whether or not a broker runs, and is seen to
    assert was_replaced(partition, elsewhere)
    metadata.unlink()
    os.mkfifo(metadata)
    assert not was_replaced(partition, elsewhere)  # nothing waits for a writer


def test_what_is_not_there_has_no_identity(tmp_path):
    assert directory_identity(tmp_path / "t-1") is None
    assert not was_replaced(tmp_path / "t-1", None)
    assert removed_directory(tmp_path / "none" / "t-1") is None


def test_a_name_that_is_taken_is_not_renamed_to_where_the_file_system_cannot_tell(tmp_path, monkeypatch):
    def cannot(*_):
        raise OSError(errno.EINVAL, "no flags here")

    monkeypatch.setattr(file_steps, "_renameat2", cannot)
    for name in ("new", "taken"):
        (tmp_path / name).write_text(name)
    with pytest.raises(FileExistsError):
        file_steps.rename_new(tmp_path / "new", tmp_path / "taken")
    file_steps.rename_new(tmp_path / "new", tmp_path / "free")
    assert [(tmp_path / name).read_text() for name in ("taken", "free")] == ["taken", "new"]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "data" / "x.log"
    path.parent.mkdir()
    path.write_bytes(bytes(range(250)) * 40)
    os.utime(path, ns=(10**18, 123_456 * 10**6))
    return path


@pytest.mark.parametrize(("size", "window"), [(None, 2**23), (None, 999), (2500, 999), (0, 999), (20_000, 999)])
def test_a_copy_has_the_bytes_and_the_time(path, tmp_path, size, window, monkeypatch):
    monkeypatch.setattr(copying, "COPY_BYTES", window)
    done = []
    with staged_directory(tmp_path / "out") as staged:
        copy_file(path, staged, "y.log", size=size, progress=done.append)
    copy = tmp_path / "out" / "y.log"
    expected = path.read_bytes()[:size]
    assert copy.read_bytes() == expected
    assert sum(done) == len(expected)
    assert copy.stat().st_mtime_ns == 123_456 * 10**6


def test_what_is_kept_is_a_link(path, tmp_path):
    backup = Backup(tmp_path / "old")
    backup.keep(path, "t-0/x.log")
    backup.sync()
    assert os.path.samefile(path, tmp_path / "old" / "t-0" / "x.log")
    assert backup.n_files == 1


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EMLINK])
def test_where_nothing_can_be_linked_it_is_a_copy(path, tmp_path, code, monkeypatch):
    def cannot(*_):
        raise OSError(code, os.strerror(code))

    backup = Backup(tmp_path / "old")
    monkeypatch.setattr(os, "link", cannot)
    backup.keep(path, "x.log")
    backup.sync()
    kept = tmp_path / "old" / "x.log"
    assert not os.path.samefile(path, kept)
    assert (kept.read_bytes(), kept.stat().st_mtime_ns) == (path.read_bytes(), path.stat().st_mtime_ns)


def test_another_error_is_said(path, tmp_path, monkeypatch):
    def cannot(*_):
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    backup = Backup(tmp_path / "old")
    monkeypatch.setattr(os, "link", cannot)
    with fails_with("write_failed"):
        backup.keep(path, "x.log")
    assert backup.n_files == 0


def test_a_backup_never_replaces_another(path, tmp_path):
    (tmp_path / "old").mkdir()
    Backup(tmp_path / "old").keep(path, "x.log")
    for taken in (tmp_path / "old", path):
        with pytest.raises(OutputExistsError):
            Backup(taken)
