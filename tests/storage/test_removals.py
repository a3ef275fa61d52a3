"""Which directory a broker has removed, and which it has made again under the same name."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

from kafkalog.storage.broker_lock import hold_locks
from kafkalog.storage.removals import directory_identity, removed_directory, was_replaced


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    (tmp_path / ".lock").touch()
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / "partition.metadata").write_text("version: 0\n")
    return tmp_path / "t-0"


def test_a_directory_of_the_same_name_is_another_one_beside_a_broker_alone(partition: Path) -> None:
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


def test_a_topic_id_that_was_written_anew_tells_where_the_inode_is_the_same(partition: Path) -> None:
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


def test_another_topic_id_tells_everywhere_and_an_inode_where_it_was_seen(partition: Path) -> None:
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


def test_what_is_not_there_has_no_identity(tmp_path: Path) -> None:
    assert directory_identity(tmp_path / "t-1") is None
    assert not was_replaced(tmp_path / "t-1", None)
    assert removed_directory(tmp_path / "none" / "t-1") is None
