"""The files of a log dir itself after a recovery."""

from __future__ import annotations

from pathlib import Path

import pytest

from kafkalog import format as kf
from kafkalog.repair.recovering.log_dir import clean_shutdown_marker, root_files
from kafkalog.state.checkpoints import encode_offset_checkpoint

T0, T1 = kf.TopicPartition("t", 0), kf.TopicPartition("t", 1)


def test_recovery_points_are_those_of_before_and_of_the_recovered(tmp_path: Path) -> None:
    points = tmp_path / kf.RECOVERY_POINT_CHECKPOINT
    assert root_files(tmp_path, {T0: 5}, is_clean=False) == {points.name: encode_offset_checkpoint({T0: 5})}
    points.write_bytes(encode_offset_checkpoint({T1: 7, T0: 3}))
    files = root_files(tmp_path, {T0: 5}, is_clean=False)
    assert files == {points.name: encode_offset_checkpoint({T0: 5, T1: 7})}
    assert root_files(tmp_path, {T1: 7}, is_clean=False) == {}
    points.write_text("nonsense")
    assert root_files(tmp_path, {T0: 5}, is_clean=False) == {points.name: encode_offset_checkpoint({T0: 5})}


def test_start_offsets_are_replaced_where_they_cannot_be_read(tmp_path: Path) -> None:
    starts = tmp_path / kf.LOG_START_OFFSET_CHECKPOINT
    starts.write_bytes(encode_offset_checkpoint({T0: 2}))
    assert starts.name not in root_files(tmp_path, {}, is_clean=False)
    starts.write_text("nonsense")
    assert root_files(tmp_path, {}, is_clean=False)[starts.name] == encode_offset_checkpoint({})


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (None, b'{"version":0,"brokerEpoch":-1}'),
        ("version=1\n", b'{"version":0,"brokerEpoch":-1}'),
        ("version=0\n", b""),
    ],
)
def test_the_marker_is_the_last_file_and_that_of_the_broker(
    tmp_path: Path, properties: str | None, expected: bytes
) -> None:
    if properties is not None:
        (tmp_path / kf.META_PROPERTIES).write_text(properties)
    files = root_files(tmp_path, {T0: 1}, is_clean=True)
    assert list(files)[-1] == kf.CLEAN_SHUTDOWN_FILE
    assert files[kf.CLEAN_SHUTDOWN_FILE] == clean_shutdown_marker(tmp_path) == expected
