"""Changes in place keep the owner and the mode of every file: a broker runs as another user than root."""

import os
import shutil

import golden_sets
import pytest

import kafkalog
from kafkalog.log.partition import Partition
from kafkalog.storage import atomic

# root changes owners; others test the modes alone
OWNER = (12321, 12322) if os.geteuid() == 0 else (os.geteuid(), os.getegid())
FILE_MODE, DIRECTORY_MODE = 0o640, 0o750


@pytest.fixture
def root(tmp_path):
    """A log dir of a broker's, without `.lock`, as after a clean shutdown."""
    source, root = golden_sets.unpacked("k44"), tmp_path / "data"
    root.mkdir()
    for name in ("p-multi-0", "p-txn-0"):
        shutil.copytree(source / name, root / name)
    for path in source.iterdir():
        if path.is_file() and path.name != ".lock":
            shutil.copy(path, root)
    _give_away(root)
    return root


def _give_away(root):
    for path in (root, *root.rglob("*")):
        os.chmod(path, DIRECTORY_MODE if path.is_dir() else FILE_MODE)
        os.chown(path, *OWNER)


def _recover(root, backup):
    log = Partition(root / "p-multi-0").segments[-1].path
    os.truncate(log, log.stat().st_size - 5)
    (root / ".kafka_cleanshutdown").unlink()
    for index in root.glob("*/*.index"):
        index.unlink()
    return kafkalog.recover(root, in_place=True, backup=backup, all_segments=True).n_backup_files


def _truncate(root, backup):
    return kafkalog.truncate(root, to_offset=100, in_place=True, backup=backup).n_backup_files


def _trim(root, backup):
    return kafkalog.trim(root / "p-txn-0", before_offset=170, in_place=True, backup=backup).n_backup_files


def _trim_all(root, backup):
    return len(
        kafkalog.trim(root, topics=["p-multi", "p-txn"], retention_bytes=0, in_place=True, backup=backup).partitions
    )


def _reindex(root, backup):
    for path in (*root.glob("*/*.index"), *root.glob("*/leader-epoch-checkpoint")):
        path.unlink()
    for path in root.glob("*/*.timeindex"):
        path.write_bytes(b"")
    return len(kafkalog.reindex(root, kinds=["offset", "time", "snapshot", "epochs"], in_place=True).files)


def _compact(root, backup):
    return len(kafkalog.compact(root, topics=["p-multi", "p-txn"], in_place=True, backup=backup).partitions)


def _append(root, backup):
    with kafkalog.PartitionWriter(root / "p-multi-0") as writer:
        writer.append({"value": [b"new"]})
    return 1


ACTS = {
    "recover": _recover,
    "truncate": _truncate,
    "trim": _trim,
    "trim to an empty segment": _trim_all,
    "reindex": _reindex,
    "compact": _compact,
    "append": _append,
}


@pytest.mark.parametrize("can_exchange", [True, False])
@pytest.mark.parametrize("name", ACTS)
def test_owners_and_modes_survive(name, can_exchange, root, tmp_path, monkeypatch):
    if not can_exchange:
        monkeypatch.setattr(atomic, "_renameat2", _cannot)
    before = {path: path.stat().st_ino for path in root.rglob("*")}
    umask = os.umask(0o077)
    try:
        assert ACTS[name](root, tmp_path / "old")
    finally:
        os.umask(umask)
    assert {path: path.stat().st_ino for path in root.rglob("*")} != before
    assert (root / ".lock").exists()
    for path in (root, *root.rglob("*")):
        info = path.stat()
        mode = DIRECTORY_MODE if path.is_dir() else FILE_MODE
        assert (info.st_uid, info.st_gid, info.st_mode & 0o7777) == (*OWNER, mode), path


def _cannot(source, target, flags):
    raise OSError(38, os.strerror(38))


@pytest.mark.skipif(os.geteuid() != 0, reason="changes owners")
def test_a_lock_file_that_root_left_is_given_to_the_owner_of_the_log_dir(root, tmp_path):
    (root / ".lock").touch()
    _truncate(root, tmp_path / "old")
    assert (root / ".lock").stat().st_uid == OWNER[0]


def test_files_have_the_mode_of_those_that_they_replace_whatever_that_of_the_directory_is(root, tmp_path):
    for path in root.rglob("*"):
        os.chmod(path, 0o755 if path.is_dir() else 0o600)
    _truncate(root, tmp_path / "old")
    modes = {path.suffix: path.stat().st_mode & 0o777 for path in (root / "p-multi-0").iterdir()}
    assert modes[".log"] == modes[".index"] == 0o600
