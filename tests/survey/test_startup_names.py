"""What a broker does with files and directories by their names."""

from __future__ import annotations

from pathlib import Path

import builder
import pytest

from kafkalog.errors import Finding, ReadError
from kafkalog.survey.startup_files import file_names, partition_directories


def name(offset: int, suffix: str) -> str:
    return f"{offset:020d}{suffix}"


def make(directory: Path, *names: str) -> Path:
    for one in names:
        (directory / one).write_bytes(b"")
    return directory


def test_what_is_sound_stays(tmp_path: Path) -> None:
    names = [name(0, suffix) for suffix in (".index", ".log", ".snapshot", ".timeindex")]
    make(tmp_path, *names, "leader-epoch-checkpoint", "partition.metadata")
    (tmp_path / "foo.log").mkdir()
    found = file_names(tmp_path)
    assert (found.removed, found.renamed, found.problem(tmp_path)) == ({}, {}, None)
    assert found.after() == {*names, "leader-epoch-checkpoint", "partition.metadata"}


def test_leftovers_and_lone_indexes_go(tmp_path: Path) -> None:
    gone = {
        name(0, ".log.deleted"): "marked for deletion",
        name(5, ".log.cleaned"): "the cleaner did not finish it",
        name(7, ".log.swap"): "of a split or a cleaning that did not finish",
        name(9, ".index"): "an index without its .log",
        name(9, ".timeindex"): "an index without its .log",
        name(9, ".txnindex"): "an index without its .log",
    }
    make(tmp_path, *gone, name(10, ".log"), name(10, ".index"), "00-00.checkpoint.deleted")
    found = file_names(tmp_path)
    assert found.removed == gone
    assert found.after() == {name(10, ".log"), name(10, ".index"), "00-00.checkpoint.deleted"}


def test_a_swap_replaces_the_segments_that_it_covers(tmp_path: Path) -> None:
    make(tmp_path, *(name(base, suffix) for base in (0, 10, 20, 30) for suffix in (".log", ".index")))
    (tmp_path / name(10, ".log.swap")).write_bytes(builder.batch_v2(base_offset=10, last_offset_delta=14))
    make(tmp_path, name(10, ".index.swap"))
    found = file_names(tmp_path)
    assert set(found.removed) == {name(base, suffix) for base in (10, 20) for suffix in (".log", ".index")}
    assert found.renamed == {name(10, f"{suffix}.swap"): name(10, suffix) for suffix in (".log", ".index")}
    assert found.after() == {name(base, suffix) for base in (0, 10, 30) for suffix in (".log", ".index")}


def test_what_stops_a_broker_is_the_problem(tmp_path: Path) -> None:
    make(tmp_path, "foo.log", name(0, ".log"))
    assert str(file_names(tmp_path).problem(tmp_path)).startswith(f"{tmp_path}/foo.log: unknown_file: not named after")
    (tmp_path / "foo.log").unlink()
    (tmp_path / name(0, ".log.swap")).write_bytes(builder.batch_v2(base_offset=0, crc=1) + bytes(61))
    swap = tmp_path / name(0, ".log.swap")
    assert str(file_names(tmp_path).problem(tmp_path)).startswith(f"{swap}: swap_file")
    with pytest.raises(ReadError, match="No such file"):
        file_names(tmp_path / "gone")


def test_directories_of_partitions_and_findings_of_others(tmp_path: Path) -> None:
    root, elsewhere = tmp_path / "data", tmp_path / "elsewhere-0"
    root.mkdir()
    elsewhere.mkdir()
    for one in ("t-0", "t-1", "nonsense", "remote-log-index-cache", f"t-2.{'a' * 32}-delete"):
        (root / one).mkdir()
    make(root, "meta.properties")
    (root / "u-0").symlink_to(elsewhere)
    (root / "u-1").symlink_to(root / "t-0")
    found = [(type(one), one.path if isinstance(one, Finding) else str(one)) for one in partition_directories(root)]
    assert [(kind is Finding, Path(str(path)).name) for kind, path in found] == [
        (True, "nonsense"), (False, "t-0"), (False, "t-1"), (False, f"t-2.{'a' * 32}-delete"), (True, "u-0"),
        (False, "u-1"),
    ]  # fmt: skip
    with pytest.raises(ReadError):
        list(partition_directories(tmp_path / "gone"))
