"""Outputs of a rebuild: in place with backups, never through a link, each file old or new."""

import pytest
from faults import Faulty
from rebuilds import EPOCHS, batches_of, files_in
from refusals import fails_with

import kafkalog
from kafkalog.cli.app import main
from kafkalog.operations.rebuilding.rebuilder import KINDS
from kafkalog.storage.own_names import BACKUP_SUFFIX


def test_in_place_replaces_what_is_wrong_and_keeps_the_old(partition):
    whole = files_in(partition)
    first = partition / "00000000000000000000.index"
    first.write_bytes(b"\0" * 13)
    (partition / "00000000000000000070.timeindex").unlink()
    (partition / "00000000000000000070.snapshot").write_bytes(b"\1")
    (partition / "00000000000000000099.snapshot").write_bytes(b"left over")
    (partition / EPOCHS).unlink()
    assert main(["reindex", "-q", str(partition), "--in-place", "--backup", "--kinds", ",".join(KINDS)]) == 0
    after = files_in(partition)
    backups = {name: after.pop(name) for name in list(after) if name.endswith(BACKUP_SUFFIX)}
    assert after == whole or {**after, EPOCHS: b""} == {**whole, EPOCHS: b""}
    assert set(backups) == {
        f"{name}{BACKUP_SUFFIX}"
        for name in (first.name, "00000000000000000070.snapshot", "00000000000000000099.snapshot")
    }
    assert backups[first.name + BACKUP_SUFFIX] == b"\0" * 13
    assert kafkalog.reindex(partition, in_place=True).count("same") == 8


def test_a_backup_is_never_replaced_and_may_be_left_out(partition, capsys):
    index = partition / f"{0:020d}.index"
    whole = index.read_bytes()
    for number, old in enumerate((b"first", b"second", b"first"), 1):
        index.write_bytes(old)
        assert main(["reindex", str(partition), "--in-place"]) == 0
        assert index.read_bytes() == whole
        assert "1 old file kept as NAME.kafkalog-backup" in capsys.readouterr().err, number
    backups = {name: data for name, data in files_in(partition).items() if BACKUP_SUFFIX in name}
    assert backups == {index.name + BACKUP_SUFFIX: b"first", f"{index.name}{BACKUP_SUFFIX}-2": b"second"}
    index.write_bytes(b"third")
    assert main(["reindex", str(partition), "--in-place", "--no-backup"]) == 0
    assert "backup" not in capsys.readouterr().err
    assert {name: data for name, data in files_in(partition).items() if BACKUP_SUFFIX in name} == backups
    assert kafkalog.verify(partition).ok


@pytest.mark.parametrize("there", [False, True])
def test_nothing_is_written_where_a_link_leads(partition, tmp_path, there):
    path, outside = batches_of(partition)[0].with_suffix(".index"), tmp_path / "outside"
    path.unlink()
    path.symlink_to(outside)
    if there:
        outside.write_bytes(b"theirs")
    with fails_with("link_outside"):
        kafkalog.reindex(partition, in_place=True)
    assert path.is_symlink()
    assert outside.exists() == there
    assert not there or outside.read_bytes() == b"theirs"


def test_an_interrupted_write_is_an_error_and_leaves_each_file_old_or_new(partition):
    def fail(name):
        raise OSError(28, "No space left on device")

    healthy = files_in(partition)
    names = ("00000000000000000000.index", "00000000000000000000.timeindex")
    left = set()
    for step in range(1, 200):
        for name in names:
            (partition / name).write_bytes(b"old")
        fault = Faulty(step, fail)
        with fault.installed():
            try:
                kafkalog.reindex(partition, in_place=True, backup=False)
            except kafkalog.WriteError:
                assert fault.n_calls >= step
            else:
                assert fault.n_calls < step or files_in(partition) == healthy
        after = files_in(partition)
        assert after.keys() == healthy.keys(), step
        assert all(
            after[name] == (b"old" if name in names else data) or after[name] == data for name, data in healthy.items()
        )
        left.add(tuple(after[name] == b"old" for name in names))
        if fault.n_calls < step:
            break
    else:
        raise AssertionError("it never came to its end")
    assert after == healthy
    assert left == {(True, True), (False, True), (False, False)}


def test_a_failed_write_leaves_no_backup_of_what_was_not_replaced(partition):
    def fail(name):
        raise OSError(28, "No space left on device")

    (partition / f"{0:020d}.index").write_bytes(b"old")
    before = files_in(partition)
    failed = 0
    for step in range(1, 60):
        with Faulty(step, fail).installed():
            try:
                kafkalog.reindex(partition, in_place=True, backup=True)
            except kafkalog.WriteError as error:
                failed += 1
                if "it is in place" in str(error):
                    break
                assert files_in(partition) == before, step
            else:
                break
    assert failed > 10
    assert (partition / f"{0:020d}.index{BACKUP_SUFFIX}").read_bytes() == b"old"
