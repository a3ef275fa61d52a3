"""A file that kafkalog may not read is unreadable: neither damaged nor lost, in any command."""

import errno
import json
import os
import shutil
import sys
from types import SimpleNamespace

import pytest
from booting.test_boot_metadata import append_metadata
from conftest import GOLDEN
from faults import forbid
from merges import replica
from metadata_logs import topic_id, write_metadata
from tiered_sets import TieredSet, key_pair

import kafkalog
from kafkalog.cli import main
from kafkalog.protocol.encoder import encode_metadata_record

SEGMENT, OTHER = "p-txn-0/00000000000000000014.log", "p-headers-0"


@pytest.fixture
def log_dir(tmp_path, monkeypatch):
    """A log dir with a segment and a partition directory for which permission is missing, for root too."""
    shutil.copytree(GOLDEN / "log_dir", tmp_path / "data")
    for name in ("p-v0v1v2-mixed-0", "p-v1-lz4-0"):  # strays
        shutil.rmtree(tmp_path / "data" / name)
    forbid(monkeypatch, *(tmp_path / "data" / name for name in (SEGMENT, OTHER)))
    return tmp_path / "data"


@pytest.mark.parametrize("command", ["verify", "ls", "preflight", "preflight --unclean", "salvage --dry-run", "report"])
def test_what_may_not_be_read_is_neither_damaged_nor_lost(command, log_dir, tmp_path, capsys):
    name, *options = command.split()
    assert main([name, str(log_dir), *options]) == 3
    out, err = capsys.readouterr()
    text = out + err
    assert "Permission denied" in text
    assert "unreadable" in text
    assert "damaged:" not in text
    assert "kafkalog: lost" not in text
    assert "kafkalog: damage" not in text
    assert not any(words in text for words in ("of damage", "with damage", "are gone", "findings of damage"))


def test_json_has_a_word_for_what_may_not_be_read(log_dir, tmp_path, capsys):
    assert main(["verify", str(log_dir), "--json"]) == 3
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["path"] for row in rows if row["kind"] == "segment" and row["unreadable"]] == [str(log_dir / SEGMENT)]
    assert (rows[-1]["damaged"], rows[-1]["unreadable"], rows[-1]["ok"]) == ([], ["p-txn-0"], False)
    (partition,) = (row for row in rows if row["kind"] == "partition" and not row["ok"])
    assert partition["unreadable"]
    assert not partition["losses"]
    for options in ([], ["--unclean"]):
        assert main(["preflight", str(log_dir), "--json", *options]) == 3
        found = json.loads(capsys.readouterr().out)
        assert found["verdict"] == "unreadable"
        (row,) = (row for row in found["partitions"] if row["verdict"] == "unreadable")
        assert row["unreadable"] == [os.path.basename(SEGMENT)]
        assert not row["losses"]
        assert [(one["effect"], one["path"]) for one in found["problems"]] == [("unreadable", str(log_dir / OTHER))]
    assert main(["report", str(log_dir), "-o", str(tmp_path / "r.json")]) == 3
    found = json.loads((tmp_path / "r.json").read_text())
    assert not found["ok"]
    summary = found["summary"]
    assert (summary["n_damage"], summary["n_unreadable"], summary["verdict"]) == (0, 2, "unreadable")
    assert (summary["n_records_lost"], summary["n_unknown_losses"]) == (0, 0)
    assert {row["partition"]: row["n_unreadable"] for row in found["partitions"]}["p-txn-0"] == 1


def test_damage_next_to_an_unreadable_file_is_damage(log_dir, capsys):
    path = log_dir / "p-multi-0" / "00000000000000000000.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert main(["verify", str(log_dir)]) == 3
    out, err = capsys.readouterr()
    assert "damaged: p-multi-0\nunreadable: p-txn-0\n" in out
    assert "1 finding of damage in 1 partition; 2 unreadable in 1 partition" in out
    assert "lost: " in err
    assert "p-txn-0: " not in err.partition("lost: ")[2]


METADATA = "__cluster_metadata-0"
NAMES = [
    *("meta.properties", "recovery-point-offset-checkpoint", "t-0", f"t-0/{0:020}.log", "t-0/partition.metadata"),
    *("t-0/leader-epoch-checkpoint", METADATA, f"{METADATA}/{0:020}.log"),
]


@pytest.fixture
def disk(tmp_path):
    """A log dir that boots without a loss."""
    partition = replica(tmp_path / "disk", [(1, offset) for offset in range(6)])
    (partition / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id(0)}")
    write_metadata(tmp_path / "disk", ["t"], {}, epoch=1)
    (tmp_path / "disk" / "meta.properties").write_text("version=1\ncluster.id=kafkalogBrokenDisks01w\nnode.id=1\n")
    (tmp_path / "disk" / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 6\n")
    return tmp_path / "disk"


@pytest.mark.parametrize("name", NAMES)
def test_boot_refuses_what_another_user_may_read(disk, tmp_path, monkeypatch, name):
    forbid(monkeypatch, disk / name)
    with pytest.raises(kafkalog.ReadError, match=r"read permission is needed: .* root \(sudo\)") as error:
        kafkalog.boot(disk, tmp_path / "out")
    assert error.value.path.startswith(str(disk / name))
    assert not (tmp_path / "out").exists()


def test_boot_refuses_metadata_that_another_user_may_read(disk, tmp_path, monkeypatch):
    (tmp_path / "other").mkdir()
    (disk / METADATA).rename(tmp_path / "other" / METADATA)
    forbid(monkeypatch, tmp_path / "other" / METADATA)
    with pytest.raises(kafkalog.ReadError, match="read permission is needed"):
        kafkalog.boot(disk, tmp_path / "out", metadata=tmp_path / "other")


@pytest.mark.parametrize(
    "name", ["t-0/notes.txt", "t-0/.parts", f"{METADATA}/notes.txt", "u-0", f"u-0/{0:020}.log", "t-0.backup/x"]
)
def test_boot_does_not_refuse_for_what_it_does_not_read(disk, tmp_path, monkeypatch, name):
    shutil.copytree(disk / "t-0", disk / "u-0")
    (disk / name).parent.mkdir(exist_ok=True)
    if name.endswith(".parts"):
        (disk / name).mkdir()
    elif not (disk / name).exists():
        (disk / name).write_text("")
    forbid(monkeypatch, disk / name)
    kafkalog.boot(disk, tmp_path / "out", topics="t")
    assert (tmp_path / "out" / "data" / "t-0").is_dir()


def test_boot_does_not_refuse_for_copies_that_it_leaves_out(disk, tmp_path, monkeypatch):
    other = shutil.copytree(disk / "t-0", disk / "gone-0")
    (other / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id(5)}")
    record = encode_metadata_record("Topic", 0, name="gone", topicId=topic_id(5))
    append_metadata(disk, record, encode_metadata_record("RemoveTopic", 0, topicId=topic_id(5)))
    forbid(monkeypatch, other / f"{0:020}.log")
    assert "deletes its topic" in kafkalog.boot(disk, tmp_path / "out").text()


@pytest.mark.parametrize("options", [[], ["--dry-run"]])
def test_salvage_names_meta_properties_that_it_leaves_out_and_boot_takes_its_output(
    disk, tmp_path, monkeypatch, capsys, options
):
    forbid(monkeypatch, disk / "meta.properties")
    assert main(["salvage", str(disk), "-o", str(tmp_path / "saved"), *options]) == 3
    assert "meta.properties: file_unreadable" in capsys.readouterr().err
    if not options:
        assert main(["boot", str(tmp_path / "saved"), "-o", str(tmp_path / "out")]) == 0
        assert f"From the metadata log of {disk}" in capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_no_report_calls_it_damage_or_advises_a_boot(disk, monkeypatch, capsys, name):
    forbid(monkeypatch, disk / name)
    for command in (["verify"], ["preflight"], ["report"], ["ls"], ["recover", "--dry-run"]):
        code = main([command[0], str(disk), *command[1:]])
        text = "".join(capsys.readouterr())
        assert code == 3 or command[0] in ("ls", "recover"), command
        assert not any(words in text for words in ("next:", "of damage", "kafkalog: lost", "does not start")), command


def test_the_owner_of_a_file_is_named(tmp_path, monkeypatch):
    path = tmp_path / "file"
    path.write_text("")
    error = PermissionError(errno.EACCES, "Permission denied")
    owner = SimpleNamespace(st_uid=1, st_mode=0o100000)
    monkeypatch.setattr(os, "stat", lambda path: owner)
    assert "run it as daemon (sudo -u daemon), or as root (sudo)" in kafkalog.ReadError.of(error, path).detail
    owner.st_uid = 2**31 - 7
    assert f"run it as #{2**31 - 7} (sudo -u '#{2**31 - 7}'), or" in kafkalog.ReadError.of(error, path).detail
    monkeypatch.setitem(sys.modules, "pwd", None)
    assert f"run it as #{2**31 - 7} " in kafkalog.ReadError.of(error, path).detail
    monkeypatch.setattr(os, "geteuid", lambda: owner.st_uid)
    assert kafkalog.ReadError.of(error, path).detail.endswith(f"needed: chmod u+r {path}")
    owner.st_mode = 0o040000
    assert kafkalog.ReadError.of(error, path).detail.endswith(f"needed: chmod u+rx {path}")


def test_without_its_key_remote_storage_is_unreadable(tmp_path, capsys):
    shutil.copytree(GOLDEN / "log_dir", tmp_path / "data")
    stored = TieredSet(tmp_path / "data", tmp_path / "remote", {"key": ("key1", key_pair()), "chunk": 4096})
    for partition in ("p-txn-0", "p-headers-0"):
        stored.move(partition)
    stored.finish()
    # as a broker keeps it of a segment that is in remote storage alone
    shutil.copy(
        GOLDEN / "log_dir" / "p-txn-0" / f"{164:020d}.snapshot", stored.log_dir / "p-txn-0" / f"{20:020d}.snapshot"
    )
    for command in ("verify", "ls"):
        assert (
            main([command, str(stored.log_dir), "-t", "p-txn", "-t", "p-headers", "--tiered", str(stored.remote)]) == 3
        )
        out, err = capsys.readouterr()
        assert "unreadable: p-headers-0, p-txn-0" in out
        assert "add its private key" in out + err
        assert not any(words in out + err for words in ("of damage", "with damage", "damaged:", "lost: "))
    assert main(["tiered", "verify", str(stored.remote), "--log-dir", str(stored.log_dir)]) == 3
    out = capsys.readouterr().out
    assert "unreadable" in out.splitlines()[-1]
    assert "lose records" not in out
