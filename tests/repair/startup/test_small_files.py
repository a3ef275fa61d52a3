"""What a broker throws about the leader epochs and the topic id."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import format as kf
from kafkalog.repair.startup.small_files import epochs_exception, topic_id_exception

ID = "pVtd5q9fv17AmQxDD_e9Gw"
OFFLINE = "KafkaStorageException"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0\n1\n0 0\n", None),
        ("", None),
        ("0\n", None),
        ("0\n2\n3 5\n1 9", None),  # it only drops what does not rise
        ("1\n1\n0 0\n", OFFLINE),
        ("0\n2\n0 0\n", OFFLINE),
        ("0\n1\n0 0 0\n", OFFLINE),
        ("0 \n1\n0 0\n", OFFLINE),
        ("0\n1\n 0 0\n", OFFLINE),
        ("0\n1\n 5\n", "NumberFormatException"),
        ("0\n7\nx 0\n", "NumberFormatException"),
        ("0\n1\n3000000000 0\n", "NumberFormatException"),
        ("0\n-2\n", "IllegalArgumentException"),
        ("0\n1\n-1 0\n", "IllegalArgumentException"),
        ("0\n1\n0 -5\n", "IllegalArgumentException"),
    ],
)
def test_leader_epochs(tmp_path: Path, text: str, expected: str | None) -> None:
    (tmp_path / kf.LEADER_EPOCH_CHECKPOINT).write_text(text)
    found = epochs_exception(tmp_path, "4.3")
    assert (None if found is None else found.name) == expected
    assert found is None or found.is_offline == (expected == OFFLINE)
    old = epochs_exception(tmp_path, "2.8")
    is_form = expected == "NumberFormatException" or "-2" in text  # which 2.8 takes for the file's
    assert (None if old is None else old.name) == (OFFLINE if is_form else expected)
    assert old is None or not old.is_offline


def test_a_link_to_nowhere_and_no_file(tmp_path: Path) -> None:
    assert epochs_exception(tmp_path, "4.3") is None
    assert topic_id_exception(tmp_path, "4.3") is None
    (tmp_path / kf.LEADER_EPOCH_CHECKPOINT).symlink_to("nowhere")
    found = epochs_exception(tmp_path, "4.3")
    assert found is not None
    assert found.is_offline


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (f"version: 0\ntopic_id: {ID}".encode(), None),
        (f"version: 0\r\ntopic_id: {ID}\nmore".encode(), None),
        # a broker does not look at the last bits
        (f"version: 0\ntopic_id: {ID[:-1]}x".encode(), None),
        (f"version: 0\ntopic_id: {ID}==".encode(), None),
        (f"version: 0\ntopic_id: {ID[:-1]}+".encode(), "IllegalArgumentException"),
        (f"version:0\ntopic_id: {ID}".encode(), OFFLINE),
        (f"version: x\ntopic_id: {ID}".encode(), OFFLINE),
        (b"version: 0\ntopic_id: " + b"A" * 22, OFFLINE),
        (b"version: 0\ntopic_id: \xff" + b"A" * 21, OFFLINE),
        (b"version: 0", "NullPointerException"),
        (b"", "NullPointerException"),
        (b"version: 0\ntopic_id: short", "IllegalArgumentException"),
        (f"version: 0\ntopic_id: {ID}{ID}".encode(), "IllegalArgumentException"),
    ],
)
def test_topic_id(tmp_path: Path, data: bytes, expected: str | None) -> None:
    (tmp_path / kf.PARTITION_METADATA).write_bytes(data)
    found = topic_id_exception(tmp_path, "4.3")
    assert (None if found is None else found.name) == expected


def test_a_later_version_of_the_topic_ids_file_is_read_by_4_3_only(tmp_path: Path) -> None:
    (tmp_path / kf.PARTITION_METADATA).write_text(f"version: 1\ntopic_id: {ID}")
    assert topic_id_exception(tmp_path, "4.3") is None
    old = topic_id_exception(tmp_path, "2.8")
    assert old is not None
    assert (old.name, old.is_offline) == (OFFLINE, False)
