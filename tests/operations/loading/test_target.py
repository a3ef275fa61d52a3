"""Where a load may put partitions, and what keeps it out."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest
from files import broker_on
from loaded import table_of

import kafkalog
from kafkalog import OutputExistsError, UnsafePathError, WriteError, write_table


def test_partitions_come_to_a_log_dir_that_is_there_and_never_over_others(tmp_path: Path) -> None:
    write_table(table_of(10), tmp_path / "log", topic="t")
    (tmp_path / "log" / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
    write_table(table_of(20), tmp_path / "log", topic="u", partitions=3)
    assert sorted(os.listdir(tmp_path / "log")) == [".lock", "meta.properties", "t-0", "u-0", "u-1", "u-2"]
    before = kafkalog.read_table(tmp_path / "log")
    with pytest.raises(OutputExistsError, match="t-0"):
        write_table(pa.table({"topic": ["v", "t"], "value": [b"", b""]}), tmp_path / "log")
    assert kafkalog.read_table(tmp_path / "log").equals(before)
    assert sorted(os.listdir(tmp_path / "log")) == [".lock", "meta.properties", "t-0", "u-0", "u-1", "u-2"]
    assert os.listdir(tmp_path) == ["log"]


def test_a_place_where_a_broker_would_trip_is_refused(tmp_path: Path) -> None:
    write_table(table_of(5), tmp_path / "log", topic="t")
    (tmp_path / "log" / "meta.properties").write_text("version=1\n")
    for path in (tmp_path / "log" / "t-0", tmp_path / "log" / "t-0" / "x", tmp_path / "log" / "below"):
        with pytest.raises(UnsafePathError):
            write_table(table_of(5), path, topic="u")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputExistsError):
        write_table(table_of(5), tmp_path / "file", topic="u")
    with pytest.raises(WriteError):
        write_table(table_of(5), tmp_path / "no" / "such" / "log", topic="u")


def test_a_log_dir_is_no_place_to_stage_in(tmp_path: Path) -> None:
    write_table(table_of(5), tmp_path / "log", topic="t")
    for target in ("log", "new"):
        for place in (tmp_path / "log", tmp_path / "log" / "t-0"):
            with pytest.raises(UnsafePathError):
                write_table(table_of(5), tmp_path / target, topic="u", stage_in=place)
    (tmp_path / "stage").mkdir()
    write_table(table_of(5), tmp_path / "log", topic="u", stage_in=tmp_path / "stage")
    assert sorted(os.listdir(tmp_path / "log")) == ["t-0", "u-0"]
    assert os.listdir(tmp_path / "stage") == []


def test_under_a_brokers_lock_nothing_is_written(tmp_path: Path) -> None:
    write_table(table_of(5), tmp_path / "log", topic="t")
    with broker_on(tmp_path / "log"), pytest.raises(UnsafePathError, match="lock"):
        write_table(table_of(5), tmp_path / "log", topic="u")
    assert sorted(os.listdir(tmp_path / "log")) == [".lock", "t-0"]
