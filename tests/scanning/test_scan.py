"""Scans: columns, ranges, damage, threads, memory, and every consumer of Arrow."""

import os
import pickle
import shutil
from copy import copy
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from builder import message, wrapper
from damaged_partitions import damaged_partition
from files import flip

import kafkalog
from kafkalog.column_names import ALL_COLUMNS
from kafkalog.format import RENAMED_KINDS


def test_partitions_come_in_order_and_offsets_rise(log_dir):
    table = kafkalog.read_table(log_dir, columns=["topic", "partition", "offset"])
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    assert rows == sorted(set(rows))
    assert len({row[:2] for row in rows}) == 10


def test_scans_made_of_a_scan_tell_their_bytes_as_well(log_dir):
    scan = kafkalog.scan(log_dir, topics="p-multi", include_deleted=True)
    done = []
    scan.progress = done.append
    whole = scan.to_table()
    n_bytes = sum(done)
    assert n_bytes == sum(path.stat().st_size for path in log_dir.glob("p-multi-*/*.log"))
    parts = scan.plan(target_bytes=2**14)
    assert len(parts) > 1
    for read in (
        lambda: [part.to_table() for part in parts],
        lambda: scan.tail(10**6),
        lambda: scan.narrowed(["offset"]).to_table(),
        lambda: copy(scan).to_table(),
    ):
        del done[:]
        read()
        assert sum(done) == n_bytes
    del done[:]
    assert pickle.loads(pickle.dumps(scan)).to_table() == whole  # a function need not pickle
    assert not done


def test_columns_come_in_the_order_asked_for(log_dir):
    assert kafkalog.read_table(log_dir, columns=["value", "offset"]).column_names == ["value", "offset"]


def test_a_broker_s_own_log_files_are_no_segments(log_dir, tmp_path):
    root = tmp_path / "kafka"
    shutil.copytree(log_dir, root)
    (root / "controller.log").write_text("[2026-11-21] INFO started\n")
    assert kafkalog.scan(root).count_rows() == kafkalog.scan(log_dir).count_rows()
    only = tmp_path / "logs"
    only.mkdir()
    (only / "server.log").write_text("INFO")
    with pytest.raises(kafkalog.NotKafkaError):
        kafkalog.open(only)


def test_the_same_path_twice_is_read_once(log_dir, monkeypatch):
    monkeypatch.chdir(log_dir / "p-multi-0")
    names = sorted(path.name for path in Path().glob("*.log"))
    both = kafkalog.open([*names, *(str(Path(name).absolute()) for name in names), f"./{names[0]}"])
    assert isinstance(both, kafkalog.LogDir)
    assert [str(key) for key in both] == ["p-multi-0"]
    assert not both.findings
    assert kafkalog.scan(both).count_rows() == kafkalog.scan(log_dir / "p-multi-0", include_deleted=True).count_rows()


def test_a_partition_is_found_by_its_name_and_a_missing_one_says_what_there_is(log_dir):
    opened = kafkalog.open(log_dir)
    assert opened["p-multi-1"] is opened["p-multi", 1]
    assert "p-multi-1" in opened
    assert "p-multi-7" not in opened
    assert list(opened["p-multi"]) == [("p-multi", 0), ("p-multi", 1), ("p-multi", 2)]
    for key in ("p-mult", ("p-multi", 7), "nope"):
        with pytest.raises(KeyError):
            opened[key]


def test_a_warning_points_at_the_line_that_reads(log_dir, tmp_path):
    root = tmp_path / "p-multi-0"
    shutil.copytree(log_dir / "p-multi-0", root)
    log = next(root.glob("*.log"))
    data = bytearray(log.read_bytes())
    data[100] ^= 0xFF
    log.write_bytes(data)
    for read in (lambda scan: scan.to_table(), lambda scan: list(scan.to_reader()), lambda scan: scan.count_rows()):
        with pytest.warns(kafkalog.CorruptionWarning) as caught:
            read(kafkalog.scan(root, on_corruption="skip"))
        assert {Path(one.filename).name for one in caught} == {Path(__file__).name}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_partition_does_not_end_the_others(log_dir, tmp_path):
    root = tmp_path / "kafka"
    shutil.copytree(log_dir, root)
    (root / "p-multi-1").chmod(0)
    try:
        with pytest.raises(kafkalog.ReadError):
            kafkalog.scan(root).count_rows()
        scan = kafkalog.scan(root, on_corruption="skip")
        with pytest.warns(kafkalog.CorruptionWarning):
            rest = scan.count_rows()
        assert rest == kafkalog.scan(log_dir).count_rows() - kafkalog.scan(log_dir / "p-multi-1").count_rows()
    finally:
        (root / "p-multi-1").chmod(0o755)


def test_several_log_dirs_make_one_and_a_partition_twice_is_a_finding(tmp_path, log_dir_copy):
    import shutil

    other = tmp_path / "other"
    other.mkdir()
    shutil.move(log_dir_copy / "p-txn-0", other / "p-txn-0")
    opened = kafkalog.open([log_dir_copy, other])
    assert isinstance(opened, kafkalog.LogDir)
    assert len(opened) == 10
    assert opened.findings == []
    shutil.copytree(other / "p-txn-0", log_dir_copy / "p-txn-0")
    opened = kafkalog.open([log_dir_copy, other])
    assert isinstance(opened, kafkalog.LogDir)
    assert [finding.reason for finding in opened.findings] == ["partition_twice"]
    assert opened["p-txn", 0].path == log_dir_copy / "p-txn-0"
    scan = kafkalog.scan(opened, topics="p-txn")
    with pytest.warns(kafkalog.CorruptionWarning, match="partition_twice"):
        assert scan.count_rows() == 358
    assert [finding.reason for finding in scan.findings] == ["partition_twice"]
    assert [finding.damage for finding in scan.findings] == [True]
    for number, root in enumerate((log_dir_copy, other)):
        (root / "meta.properties").write_text(f"version=1\nnode.id={number}\n")
    (finding,) = kafkalog.open_log_dir([log_dir_copy, other]).findings
    assert not finding.damage
    assert "replicas of another broker" in finding.detail


def test_directories_set_apart_are_listed_apart(log_dir_copy):
    names = dict(zip(RENAMED_KINDS, ("p-multi-1", "p-multi-2", "p-txn-0"), strict=True))
    for kind, name in names.items():
        (log_dir_copy / name).rename(log_dir_copy / f"{name}.c9eefd1639d646409599f16e98f3d811-{kind}")
    opened = kafkalog.open(log_dir_copy)
    assert isinstance(opened, kafkalog.LogDir)
    assert len(opened) == 7
    assert {kind: len(paths) for kind, paths in opened.set_apart.items()} == dict.fromkeys(names, 1)
    apart = kafkalog.open(opened.set_apart["stray"][0])
    assert isinstance(apart, kafkalog.Partition)
    assert apart.kind == "stray"
    assert kafkalog.scan(apart).count_rows() == 358


# --- damage ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("threads", [1, 3])
def test_a_flipped_bit_raises_with_its_place_after_the_records_before_it(log_dir_copy, threads):
    path, batches = damaged_partition(log_dir_copy)
    bad = len(batches) // 2
    flip(path, int(batches.position[bad]) + 80)
    seen = []
    with pytest.raises(kafkalog.CorruptionError) as caught:  # noqa: PT012
        for batch in kafkalog.scan(path.parent, threads=threads, columns=["offset"]).to_batches():
            seen += batch.column(0).to_pylist()
    assert seen == list(range(batches.base_offset[bad]))
    error = caught.value
    assert (error.path, error.position) == (str(path), batches.position[bad])
    assert (error.base_offset, error.reason) == (batches.base_offset[bad], "crc_mismatch")
    assert str(path) in str(error)
    assert isinstance(error, ValueError)
    assert pickle.loads(pickle.dumps(error)).as_dict() == error.as_dict()


# --- other libraries ------------------------------------------------------------------------------------------------


def test_directories_that_only_look_like_partitions_are_not_kafkas(tmp_path):
    (tmp_path / "dbus-1").mkdir()
    (tmp_path / "dbus-1" / "session.conf").touch()
    with pytest.raises(kafkalog.NotKafkaError):
        kafkalog.open(tmp_path)


@pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")
def test_a_tail_of_deleted_records_goes_as_far_back_as_it_has_to(log_dir_copy):
    partition = log_dir_copy / "p-multi-0"
    offsets = kafkalog.read_table(partition, columns=["offset"], include_deleted=True)["offset"].to_pylist()
    checkpoint = log_dir_copy / "log-start-offset-checkpoint"
    checkpoint.write_text(f"0\n1\np-multi 0 {offsets[-1] + 1000}\n")
    few = {"include_deleted": True, "filters": [("offset", "<", offsets[3])], "on_corruption": "skip"}
    assert kafkalog.scan(partition, **few).tail(2)["offset"].to_pylist() == offsets[1:3]
    assert len(kafkalog.scan(partition, include_deleted=True, on_corruption="skip").tail(9)) == 9


def test_a_tail_has_no_limit(log_dir):
    with pytest.raises(ValueError):
        kafkalog.scan(log_dir, limit=5).tail(3)


def test_every_consumer_of_arrow_takes_a_scan_each_time_anew(log_dir):
    import duckdb
    import pandas as pd
    import polars as pl

    scan = kafkalog.scan(log_dir, topics="p-multi")
    expected = scan.to_table()
    for _ in range(2):
        assert pa.table(scan).equals(expected)
        assert pa.RecordBatchReader.from_stream(scan).read_all().equals(expected)
        frame = pl.DataFrame(scan)
        assert frame["offset"].to_list() == expected.column("offset").to_pylist()
        assert frame["value"].to_list() == expected.column("value").to_pylist()
        if hasattr(pd.DataFrame, "from_arrow"):  # pandas 3; PySpark needs an older one
            assert pd.DataFrame.from_arrow(scan).shape == (303, 8)
        counted = duckdb.sql('select count(*), max("offset"), count(distinct partition) from scan').fetchall()
        assert counted == [(303, 123, 3)]


@pytest.mark.parametrize("binary_type", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_pandas_has_what_pyarrow_makes_of_the_table(log_dir, binary_type):
    columns = ["value", "topic", "offset", "headers", "key", "segment", "timestamp", "compression"]
    for names in (columns, ["key"], ["headers"], ["offset"]):
        table = kafkalog.read_table(log_dir, columns=names, binary_type=binary_type)
        frame = kafkalog.read_pandas(log_dir, columns=names, binary_type=binary_type)
        expected = table.to_pandas()
        assert list(frame.columns) == names
        assert (frame.index == expected.index).all()
        for name in names:
            if name == "headers":
                assert [list(row) for row in frame[name]] == [list(row) for row in expected[name]]
            else:
                assert frame[name].tolist() == expected[name].tolist()
        if "topic" in names and binary_type != pa.binary_view():
            assert str(frame["topic"].dtype) == "category"


def test_pandas_has_the_same_values_and_keeps_arrows_types_on_request(log_dir):
    frame = kafkalog.read_pandas(log_dir, topics="p-headers")
    table = kafkalog.read_table(log_dir, topics="p-headers")
    assert frame["value"].tolist() == table.column("value").to_pylist()
    assert str(frame["timestamp"].dtype) == "datetime64[ms, UTC]"
    arrow = kafkalog.read_pandas(log_dir, topics="p-headers", dtype_backend="pyarrow")
    assert pa.types.is_binary(arrow["value"].dtype.pyarrow_dtype)
    with pytest.raises(ValueError, match="dtype_backend"):
        kafkalog.read_pandas(log_dir, dtype_backend="numpy")


def test_numpy_columns_hold_the_same_as_arrow(log_dir):
    records = kafkalog.read_numpy(log_dir, columns=ALL_COLUMNS)
    table = kafkalog.read_table(log_dir, columns=ALL_COLUMNS)
    assert records.n_records == table.num_rows
    assert records.key.to_pylist() == table.column("key").to_pylist()
    assert records.value.to_pylist() == table.column("value").to_pylist()
    assert records.headers.to_pylist() == [
        [(header["key"].encode(), header["value"]) for header in headers]
        for headers in table.column("headers").to_pylist()
    ]
    for name in ("offset", "partition", "leader_epoch", "producer_id", "sequence", "is_control", "batch_position"):
        assert records[name].tolist() == table.column(name).to_pylist()
    assert records.topic.tolist() == table.column("topic").to_pylist()
    assert records.segment.tolist() == table.column("segment").to_pylist()
    assert records.key.offsets.dtype == np.int64
    assert records.slice(5, 8).value.to_pylist() == records.value.to_pylist()[5:8]
    assert records.value[-1] == records.value.to_pylist()[-1]
    assert pickle.loads(pickle.dumps(records)).value.to_pylist() == records.value.to_pylist()
    of_one = kafkalog.read_numpy(log_dir / "p-multi-1", columns=["topic", "partition", "segment"])
    assert (of_one.topic == "p-multi").all()
    assert (of_one.partition == 1).all()
    assert of_one.n_records > 1
    assert not any(column.flags.writeable for column in (*of_one.values(), records.topic, records.partition))
    with pytest.raises(AttributeError):
        _ = kafkalog.read_numpy(log_dir, columns=["offset"]).key


def test_the_last_records_are_those_of_a_message_that_names_a_lower_offset(tmp_path):
    # a wrapper of offset 0, as librdkafka sends it, holds the offsets from 0 on; the log ends at 1
    inside = [message(number, b"k", b"v%d" % number) for number in range(10)]
    log = tmp_path / "t-0" / f"{0:020d}.log"
    log.parent.mkdir()
    log.write_bytes(wrapper(inside, offset=0))
    assert kafkalog.scan(log.parent).tail(3)["offset"].to_pylist() == [7, 8, 9]
