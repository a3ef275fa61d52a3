"""With which leader epochs and topic ids a broker starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import format as kf
from kafkalog.survey.startup_files import epochs_problem, topic_id_problem

ID = "pVtd5q9fv17AmQxDD_e9Gw"


@pytest.mark.parametrize(
    ("text", "starts"),
    [
        ("0\n1\n0 0\n", True),
        ("", True),
        ("0\n", True),
        ("0\n2\n3 5\n1 9", True),  # it only drops what does not rise
        ("1\n1\n0 0\n", False),
        ("0\n2\n0 0\n", False),
        ("0\n1\n0 0 0\n", False),
        ("0 \n1\n0 0\n", False),
        ("0\n1\n 0 0\n", False),
        ("0\n1\n 5\n", False),
        ("0\n7\nx 0\n", False),
        ("0\n1\n3000000000 0\n", False),
        ("0\n-2\n", False),
        ("0\n1\n-1 0\n", False),
        ("0\n1\n0 -5\n", False),
    ],
)
def test_leader_epochs(tmp_path: Path, text: str, starts: bool) -> None:
    (tmp_path / kf.LEADER_EPOCH_CHECKPOINT).write_text(text)
    assert (epochs_problem(tmp_path) is None) == starts


def test_a_link_to_nowhere_and_no_file(tmp_path: Path) -> None:
    assert epochs_problem(tmp_path) is None
    assert topic_id_problem(tmp_path) is None
    (tmp_path / kf.LEADER_EPOCH_CHECKPOINT).symlink_to("nowhere")
    assert epochs_problem(tmp_path) is not None


@pytest.mark.parametrize(
    ("data", "starts"),
    [
        (f"version: 0\ntopic_id: {ID}".encode(), True),
        (f"version: 0\r\ntopic_id: {ID}\nmore".encode(), True),
        # a broker does not look at the last bits
        (f"version: 0\ntopic_id: {ID[:-1]}x".encode(), True),
        (f"version: 0\ntopic_id: {ID}==".encode(), True),
        (f"version: 0\ntopic_id: {ID[:-1]}+".encode(), False),
        (f"version:0\ntopic_id: {ID}".encode(), False),
        (f"version: x\ntopic_id: {ID}".encode(), False),
        (b"version: 0\ntopic_id: " + b"A" * 22, False),
        (b"version: 0\ntopic_id: \xff" + b"A" * 21, False),
        (b"version: 0", False),
        (b"", False),
        (b"version: 0\ntopic_id: short", False),
        (f"version: 0\ntopic_id: {ID}{ID}".encode(), False),
    ],
)
def test_topic_id(tmp_path: Path, data: bytes, starts: bool) -> None:
    (tmp_path / kf.PARTITION_METADATA).write_bytes(data)
    assert (topic_id_problem(tmp_path) is None) == starts


def test_a_later_version_of_the_topic_ids_file_is_read(tmp_path: Path) -> None:
    (tmp_path / kf.PARTITION_METADATA).write_text(f"version: 1\ntopic_id: {ID}")
    assert topic_id_problem(tmp_path) is None
