"""Outputs that do not fit on their disk are refused before anything is written, and advice names another disk."""

import os
from types import SimpleNamespace

import pytest
from merges import replica

import kafkalog
from kafkalog.cli.app import main
from kafkalog.errors import WriteError
from kafkalog.operations.converting import convert
from kafkalog.storage import room

LOG = [(1, offset) for offset in range(24)]


@pytest.fixture
def disks(tmp_path, monkeypatch):
    """Two disks with the same damaged partition; there is room next to those in `roomy` alone."""
    roomy = []
    for number in (1, 2):
        path = replica(tmp_path / f"mount-{number}" / "disk", LOG, bases=(0, 6, 12, 18), damaged=(7,))
    size = sum(one.stat().st_size for one in path.glob("*.log"))

    def free(output):
        return size - 1 + 2**16 * any(str(output).startswith(f"{one}/") for one in roomy)

    monkeypatch.setattr(room, "free_bytes", free)
    monkeypatch.setattr(room, "_mount", lambda path: ("ext4", "/dev/sda1"))
    return [tmp_path / "mount-1" / "disk", tmp_path / "mount-2" / "disk"], roomy


COPYING = {
    "boot": kafkalog.boot,
    "salvage": kafkalog.salvage,
    "merge": lambda disk, out, **how: kafkalog.merge([disk], out, **how),
}


@pytest.mark.parametrize("command", COPYING)
def test_what_does_not_fit_is_refused_before_anything_is_written(disks, tmp_path, command):
    (disk, _), roomy = disks
    run, out = COPYING[command], tmp_path / "new" / "out"
    with pytest.raises(WriteError, match=r"this needs .* and the disk has .* free") as error:
        run(disk, out)
    assert not out.parent.exists()
    assert "another disk" in error.value.__notes__[0]
    (finding,) = [one for one in run(disk, out, dry_run=True).findings.rows if one.reason == "write_failed"]
    assert (finding.damage, finding.detail) == (False, error.value.detail)
    roomy.append(out.parent)
    run(disk, out)
    assert out.is_dir()


CUTTING = {
    "trim": lambda disk, out, **how: kafkalog.trim(disk, before_offset=1, output=out, **how),
    "truncate": lambda disk, out, **how: kafkalog.truncate(disk, to_offset=23, output=out, **how),
    "compact": lambda disk, out, **how: kafkalog.compact(disk, topics=["t"], output=out, **how),
    "convert": kafkalog.convert,
}


@pytest.mark.parametrize("command", CUTTING)
def test_so_is_what_is_cut_or_converted_if_what_stays_does_not_fit(tmp_path, monkeypatch, command):
    disk, run = tmp_path / "disk", CUTTING[command]
    path = replica(disk, LOG, bases=(0, 6, 12, 18))
    # what the command leaves as it is
    kept = sorted(path.glob("*.log"))[{"truncate": slice(3), "compact": slice(3, 4)}.get(command, slice(4))]
    free = [sum(one.stat().st_size for one in kept) - 1]
    for module in (room, convert):
        monkeypatch.setattr(module, "free_bytes", lambda output: free[0])
    monkeypatch.setattr(room, "_mount", lambda path: ("ext4", "/dev/sda1"))
    with pytest.raises(WriteError, match=r"this needs .* and the disk has .* free"):
        run(disk, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    free[0] += 1
    run(disk, tmp_path / "out")
    if command == "convert":
        free[0] = 0
        kafkalog.convert(disk, tmp_path / "less", filters=[("offset", "<", 2)])


def test_so_is_what_undelete_has_found(tmp_path, monkeypatch):
    path = replica(tmp_path / "disk", LOG) / f"{0:020}.log"
    free = [path.stat().st_size - 1]
    monkeypatch.setattr(room, "free_bytes", lambda output: free[0])
    with pytest.raises(WriteError, match=r"this needs .* and the disk has .* free"):
        kafkalog.undelete(path, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    free[0] += 1
    kafkalog.undelete(path, tmp_path / "out")


def test_a_refusal_names_a_disk_with_room(disks, tmp_path, monkeypatch):
    (disk, _), roomy = disks
    (tmp_path / "large").mkdir()
    roomy.append(tmp_path / "large")
    mounts = [("/proc", "proc", "proc"), (str(tmp_path / "large"), "ext4", "/dev/sdb"), ("/", "ext4", "/dev/sda")]
    monkeypatch.setattr(room, "_mounts", lambda: iter(mounts))
    with pytest.raises(WriteError) as error:
        kafkalog.salvage(disk, tmp_path / "out")
    assert f"another disk, such as {tmp_path}/large with " in error.value.__notes__[0]


def test_recovery_may_cut_what_does_not_fit(disks, tmp_path):
    (disk, _), _ = disks
    for how in ({"dry_run": True}, {}):
        report = kafkalog.recover(disk, tmp_path / "out", **how)
        (finding,) = [one for one in report.findings.rows if one.reason == "write_failed"]
        assert finding.detail.startswith("if recovery cuts nothing, this needs ")
        assert not finding.damage
    assert (tmp_path / "out").is_dir()


def test_only_the_holes_of_preallocated_files_need_no_room(disks, tmp_path):
    (disk, _), roomy = disks
    roomy.append(tmp_path)
    last = disk / "t-0" / f"{18:020}.log"
    os.truncate(last, 2**30)
    kafkalog.salvage(disk, tmp_path / "out")
    with last.open("r+b") as file:
        file.seek(2**20)
        file.write(bytes(2**17))
    assert room.lacking_room(tmp_path / "out-2", room.log_files([last]))


def test_copies_that_may_share_blocks_are_made(disks, tmp_path, monkeypatch):
    (disk, _), _ = disks
    monkeypatch.setattr(room, "_mount", lambda path: ("xfs", "/dev/sda1"))
    kafkalog.salvage(disk, tmp_path / "out")


def test_advice_names_a_disk_with_room(disks, capsys):
    (first, second), roomy = disks
    main(["verify", str(first), str(second)])
    line = f"# first choose a new DIR on a larger disk: of {first}-booted, this needs "
    assert line in (text := "".join(capsys.readouterr()))
    assert f"kafkalog boot {first} {second} -o DIR" in text
    (row,) = kafkalog.report([first, second]).as_dict()["next"]
    assert (row["command"][-1], row["line"].startswith(line)) == ("DIR", True)
    roomy.append(second.parent)
    (step,) = kafkalog.preflight([first, second]).next
    assert (step.command[-1], step.after) == (f"{second}-booted", "")
    assert main([*step.command[1:], "-q"]) == 1


def test_advice_names_no_disk_that_is_mounted_read_only(disks, monkeypatch):
    (first, second), roomy = disks
    roomy += [first.parent, second.parent]
    read_only = {str(first.parent)}
    monkeypatch.setattr(room.os, "access", lambda path, mode: str(path) not in read_only)
    (step,) = kafkalog.preflight([first, second]).next
    assert (step.command[-1], step.after) == (f"{second}-booted", "")
    read_only.add(str(second.parent))
    (step,) = kafkalog.preflight([first, second]).next
    assert step.after == (
        f"first choose a new DIR on another disk: of {first}-booted, {first.parent} cannot be written"
    )


@pytest.mark.parametrize(("user", "n_blocks"), [(0, 50), (1000, 40)])
def test_reserved_blocks_are_free_for_root(tmp_path, monkeypatch, user, n_blocks):
    monkeypatch.setattr(os, "statvfs", lambda path: SimpleNamespace(f_bfree=50, f_bavail=40, f_frsize=4096))
    monkeypatch.setattr(os, "geteuid", lambda: user)
    assert room.free_bytes(tmp_path / "out") == 4096 * n_blocks


def test_the_mount_point_of_a_path_may_have_spaces(tmp_path, monkeypatch):
    where = str(tmp_path / "a\\b\u2028c d").replace("\\", r"\134").replace(" ", r"\040")
    lines = f"1 0 8:1 / / rw - ext4 /dev/sda rw\n2 1 8:2 / {where} rw shared:1 - xfs /dev/sdb rw\n"
    monkeypatch.setattr(room.Path, "read_text", lambda path, **how: lines)
    assert room._mount(tmp_path / "a\\b\u2028c d" / "new") == ("xfs", "/dev/sdb")
    assert room._mount(tmp_path) == ("ext4", "/dev/sda")


def test_the_file_system_of_a_path_is_known(tmp_path):
    kind, device = room._mount(tmp_path)
    assert kind
    assert device
    assert room.free_bytes(tmp_path / "new" / "out") > 0
