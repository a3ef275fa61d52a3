"""Planted faults of remote storage are named, healthy storage has none, and a restored log dir has all records."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import GOLDEN
from Crypto.PublicKey import RSA
from tiered_sets import DELETED, DELETING, STARTED, TieredSet

import kafkalog
from kafkalog.cli import main

LOG_DIR = GOLDEN / "log_dir"
PARTITION, OTHER = "p-txn-0", "p-headers-0"
KEY = RSA.generate(2048)
KEYS = {"key1": KEY.export_key(pkcs=8).decode()}
KINDS: dict[str, Any] = {"apache": None, "aiven": {"compressed": True, "key": ("key1", KEY), "chunk": 3000}}


@pytest.fixture(params=KINDS)
def one(request: pytest.FixtureRequest, tmp_path: Path) -> TieredSet:
    """A log dir with segments in remote storage, whose metadata topic is not written yet."""
    shutil.copytree(LOG_DIR, tmp_path / "data")
    found = TieredSet(tmp_path / "data", tmp_path / "remote", KINDS[request.param])
    found.move(PARTITION)
    found.move(OTHER)
    return found


def checked(one: TieredSet, **options: Any) -> kafkalog.StorageReport:
    """Write the metadata topic, and check."""
    one.finish()
    return kafkalog.verify_tiered(one.remote, one.log_dir, keys=KEYS, **options)


def test_healthy_storage_has_no_faults(one: TieredSet) -> None:
    report = checked(one, deep=True)
    assert not report.faults
    assert report.ok
    assert (report.n_partitions, report.n_copies) == (2, 6)
    assert report.n_bytes == sum(path.stat().st_size for path in one.remote.rglob("*") if path.is_file())
    # without the log dir, too
    assert kafkalog.verify_tiered(one.remote, keys=KEYS).ok


def _objects(one: TieredSet, number: int, partition: str = PARTITION) -> dict[str, Path]:
    """The objects of a copy, by suffix."""
    main = one.copies[partition][number][1]
    return {path.name[len(main.name) :]: path for path in main.parent.glob(f"{main.name}.*")}


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def _orphan(one: TieredSet) -> None:
    one.copy(OTHER, 294, 587, state=None)


def _deleted(one: TieredSet) -> None:
    one.copy(OTHER, 294, 587, state=DELETED)


def _unfinished(one: TieredSet) -> None:
    one.copy(OTHER, 294, 587, state=STARTED)


def _deleting(one: TieredSet) -> None:
    one.copy(OTHER, 294, 587, state=DELETING)


def _torn(one: TieredSet) -> None:
    found = _objects(one, 1)
    found[".rsm-manifest" if ".rsm-manifest" in found else ".timeindex"].unlink()


def _hole(one: TieredSet) -> None:
    for path in _objects(one, 2).values():
        path.unlink()


def _size(one: TieredSet) -> None:
    path = _objects(one, 0)[".log"]
    if one.aiven is None:
        path.write_bytes(path.read_bytes() + b"x" * 70)
    else:
        one.events[0] = one.events[0][:-7] + b"\0\0\0\5" + one.events[0][-3:]  # the size in the event


def _cut(one: TieredSet) -> None:
    path = _objects(one, 0)[".log"]
    path.write_bytes(path.read_bytes()[:-70])


def _damaged(one: TieredSet) -> None:
    path = _objects(one, 0)[".log"]
    _flip(path, path.stat().st_size // 2)


def _index(one: TieredSet) -> None:
    if one.aiven is None:
        own, other = (_objects(one, n)[".index"] for n in (1, 3))
        own.write_bytes(other.read_bytes()[::-1])
    else:
        _flip(_objects(one, 1)[".indexes"], 20)


def _replaced(one: TieredSet) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        shutil.copy(LOG_DIR / OTHER / f"{0:020d}{suffix}", one.log_dir / OTHER)
    one.copy(OTHER, 0, 293)
    for suffix in (".log", ".index", ".timeindex"):
        (one.log_dir / OTHER / f"{0:020d}{suffix}").unlink()


def _leftover(one: TieredSet) -> None:
    of = base64.urlsafe_b64encode(b"0123456789abcdef").decode().rstrip("=")
    main = one.copies[OTHER][0][1]
    names = {True: f"{OTHER}-{of}", False: f"p-headers-{of}/0"}
    target = one.remote / names[one.aiven is None]
    shutil.copytree(main.parent, target)


FAULTS: dict[str, tuple[Callable[[TieredSet], object], set[str], bool]] = {
    "orphan": (_orphan, {"orphan"}, True),
    "deleted": (_deleted, {"orphan"}, True),
    "unfinished": (_unfinished, {"unfinished"}, True),
    "deleting": (_deleting, {"deleting"}, True),
    "replaced": (_replaced, {"replaced"}, True),
    "torn": (_torn, {"torn"}, False),
    "hole": (_hole, {"hole"}, False),
    "size": (_size, {"size"}, False),
    "cut": (_cut, {"size", "unreadable", "checksum"}, False),
    "damaged": (_damaged, {"checksum", "unreadable"}, False),
    "index": (_index, {"index", "unreadable"}, False),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_named(one: TieredSet, fault: str) -> None:
    plant, kinds, is_ok = FAULTS[fault]
    plant(one)
    report = checked(one)
    found = {each.kind for each in report.faults}
    assert found & kinds
    assert found <= kinds | ({"checksum"} if fault == "size" else set())
    assert report.ok is is_ok
    assert report.wasted_bytes if is_ok else not report.ok
    assert {each.topic for each in report.faults} <= {"p-txn", "p-headers"}


def test_without_a_key_nothing_can_be_read(one: TieredSet) -> None:
    one.finish()
    report = kafkalog.verify_tiered(one.remote, one.log_dir)
    assert report.ok is (one.aiven is None)
    assert {fault.kind for fault in report.faults} <= {"unreadable"}


def test_objects_of_other_brokers_are_skipped(one: TieredSet) -> None:
    _leftover(one)
    report = checked(one)
    assert not report.faults
    assert report.n_skipped == 1  # the log dir does not know all topics of the cluster


def test_a_restored_log_dir_has_all_records(one: TieredSet, tmp_path: Path) -> None:
    one.finish()
    kafkalog.restore_tiered(one.remote, tmp_path / "whole", one.log_dir, topics=["p-*"], keys=KEYS)
    golden = kafkalog.open(LOG_DIR)
    assert kafkalog.read_table(tmp_path / "whole", topics="p-*") == golden.to_table(topics="p-*")
    assert kafkalog.verify(tmp_path / "whole").ok
    kafkalog.restore_tiered(one.remote, tmp_path / "alone", keys=KEYS)
    for name in (PARTITION, OTHER):
        end = golden[name].segments[-1].base_offset
        restored = kafkalog.open(tmp_path / "alone")[name]
        assert restored.to_table() == golden[name].to_table(end_offset=end)
        assert restored.topic_id == golden[name].topic_id
        for segment in golden[name].segments[:-1]:
            assert (restored.path / segment.path.name).read_bytes() == segment.path.read_bytes()
    assert kafkalog.verify(tmp_path / "alone").ok


def test_nothing_is_restored_from_what_cannot_be_read(one: TieredSet, tmp_path: Path) -> None:
    one.finish()
    _objects(one, 0)[".log"].write_bytes(b"")
    if one.aiven is not None:
        with pytest.raises(kafkalog.KafkalogError):
            kafkalog.restore_tiered(one.remote, tmp_path / "new", one.log_dir, keys=KEYS)
        assert not (tmp_path / "new").exists()
    else:
        found = kafkalog.restore_tiered(one.remote, tmp_path / "new", one.log_dir)
        assert any(finding.damage for finding in found)


def test_the_command_line(one: TieredSet, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _orphan(one)
    one.finish()
    (tmp_path / "key.pem").write_text(KEYS["key1"])
    options = ["--log-dir", str(one.log_dir), "--key", f"key1={tmp_path / 'key.pem'}"]
    assert main(["tiered", "verify", str(one.remote), *options, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"]
    assert [fault["kind"] for fault in report["faults"]] == ["orphan"]
    assert report["wasted_bytes"] > 0
    assert main(["tiered", "restore", str(one.remote), "-q", "-o", str(tmp_path / "new"), *options, "-t", "p-txn"]) == 0
    assert kafkalog.open(tmp_path / "new").topics == ["p-txn"]
    _damaged(one)
    assert main(["tiered", "verify", str(one.remote), *options]) == 1
    assert "faults that lose records" in capsys.readouterr().out
