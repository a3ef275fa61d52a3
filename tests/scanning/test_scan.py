"""Scans: columns, ranges, damage, threads, memory, and every consumer of Arrow."""

from __future__ import annotations

import itertools
import os
import pickle
import shutil
import subprocess
import sys
import warnings
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import builder
import numpy as np
import pyarrow as pa
import pytest
from effort import thinned

import kafkalog
from kafkalog import TopicPartition
from kafkalog.interchange.arrow_output import ALL_COLUMNS
from kafkalog.log.segment import Segment

SCHEMA = pa.schema(
    [
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("ms", tz="UTC")),
        ("timestamp_type", pa.int8()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))),
    ]
)


def flip(path: Path, position: int, bits: int = 0x10) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= bits
    path.write_bytes(data)


def test_the_schema_is_the_documented_one_in_every_form(log_dir: Path) -> None:
    scan = kafkalog.scan(log_dir)
    assert scan.schema.equals(SCHEMA)
    assert scan.to_reader().schema.equals(SCHEMA)
    table = scan.to_table()
    assert table.schema.equals(SCHEMA)
    table.validate(full=True)
    assert scan.count_rows() == table.num_rows
    everything = kafkalog.read_table(log_dir, columns=ALL_COLUMNS)
    everything.validate(full=True)
    assert everything.column_names == list(ALL_COLUMNS)


def test_partitions_come_in_order_and_offsets_rise(log_dir: Path) -> None:
    table = kafkalog.read_table(log_dir, columns=["topic", "partition", "offset"])
    rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
    assert rows == sorted(set(rows))
    assert len({row[:2] for row in rows}) == 10


@pytest.mark.parametrize(
    ("threads", "memory_map", "batch_size"),
    thinned(itertools.product((1, 2, 4), ("auto", True, False), (None, 1, 7, 10**6)), 5),
)
def test_threads_mapping_and_batch_size_change_nothing(
    log_dir: Path, threads: int, memory_map: bool | str, batch_size: int | None
) -> None:
    expected = kafkalog.read_table(log_dir, threads=1)
    scan = kafkalog.scan(log_dir, threads=threads, memory_map=memory_map, batch_size=batch_size)
    batches = list(scan.to_batches())
    assert pa.Table.from_batches(batches).equals(expected)
    if batch_size:
        assert max(map(len, batches)) <= batch_size


@pytest.mark.parametrize("name", ALL_COLUMNS)
def test_a_single_column_equals_the_same_of_the_whole(log_dir: Path, name: str) -> None:
    whole = kafkalog.read_table(log_dir, columns=ALL_COLUMNS)
    assert kafkalog.read_table(log_dir, columns=[name]).column(0).equals(whole.column(name))


def test_columns_come_in_the_order_asked_for(log_dir: Path) -> None:
    assert kafkalog.read_table(log_dir, columns=["value", "offset"]).column_names == ["value", "offset"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"columns": []}, "count_rows"),
        ({"topics": "nope"}, "p-multi"),
        ({"partitions": 9}, "0, 1, 2"),
        ({"partitions": -1}, "0, 1, 2"),
        ({"topics": "p-txn", "partitions": 2}, "there are 0"),
        ({"partitions": "0"}, "a list of numbers"),
        ({"partitions": ["0"]}, "int"),
        ({"start_offset": {("nope", 0): 3}}, "p-multi-0"),
        ({"end_offset": {"p-multi": 3}}, "(topic, partition)"),
    ],
)
def test_what_names_nothing_is_refused_and_what_there_is_is_shown(
    log_dir: Path, options: dict[str, Any], said: str
) -> None:
    with pytest.raises((TypeError, ValueError)) as caught:
        kafkalog.scan(log_dir, **options)
    assert said in str(caught.value)


def test_numpy_numbers_are_numbers_too(log_dir: Path) -> None:
    one = kafkalog.scan(log_dir, topics="p-multi", partitions=np.int64(1), start_offset=np.int32(3))
    assert one.count_rows() == kafkalog.scan(log_dir / "p-multi-1", start_offset=3).count_rows() > 0


def test_a_segment_outside_the_topics_asked_for_is_refused(log_dir: Path) -> None:
    segment = next((log_dir / "p-multi-0").glob("*.log"))
    with pytest.raises(ValueError, match="no topic 'nope' here; there are p-multi"):
        kafkalog.scan(segment, topics="nope")


def test_limits_of_what_is_open_cannot_be_changed(log_dir: Path) -> None:
    opened = kafkalog.open(log_dir, limits=kafkalog.Limits(max_batch_bytes=100))
    with pytest.raises(kafkalog.LimitExceededError):
        kafkalog.scan(opened).count_rows()
    with pytest.raises(ValueError, match="give them to kafkalog"):
        kafkalog.scan(opened, limits=kafkalog.Limits())


def test_a_broker_s_own_log_files_are_no_segments(log_dir: Path, tmp_path: Path) -> None:
    root = tmp_path / "kafka"
    shutil.copytree(log_dir, root)
    (root / "controller.log").write_text("[2026-11-21] INFO started\n")
    assert kafkalog.scan(root).count_rows() == kafkalog.scan(log_dir).count_rows()
    only = tmp_path / "logs"
    only.mkdir()
    (only / "server.log").write_text("INFO")
    with pytest.raises(kafkalog.NotKafkaError):
        kafkalog.open(only)


def test_the_same_path_twice_is_read_once(log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(log_dir / "p-multi-0")
    names = sorted(path.name for path in Path().glob("*.log"))
    both = kafkalog.open([*names, *(str(Path(name).absolute()) for name in names), f"./{names[0]}"])
    assert isinstance(both, kafkalog.LogDir)
    assert [str(key) for key in both] == ["p-multi-0"]
    assert not both.findings
    assert kafkalog.scan(both).count_rows() == kafkalog.scan(log_dir / "p-multi-0", include_deleted=True).count_rows()


def test_many_indexes_hold_no_descriptors(log_dir: Path) -> None:
    before = len(os.listdir("/proc/self/fd")) if Path("/proc/self/fd").exists() else pytest.skip("no /proc")
    kept = [kafkalog.open(log_dir) for _ in range(20)]
    for one in kept:
        assert all(segment.offset_index is not None for segment in one["p-multi", 0].segments)
    assert len(os.listdir("/proc/self/fd")) <= before + 2


def test_a_partition_is_found_by_its_name_and_a_missing_one_says_what_there_is(log_dir: Path) -> None:
    opened = kafkalog.open(log_dir)
    assert opened["p-multi-1"] is opened["p-multi", 1]
    assert "p-multi-1" in opened
    assert "p-multi-7" not in opened
    assert list(opened["p-multi"]) == [("p-multi", 0), ("p-multi", 1), ("p-multi", 2)]
    for key in ("p-mult", ("p-multi", 7), "nope"):
        with pytest.raises(KeyError, match="p-multi-0"):
            opened[key]


def test_a_warning_points_at_the_line_that_reads(log_dir: Path, tmp_path: Path) -> None:
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
def test_an_unreadable_partition_does_not_end_the_others(log_dir: Path, tmp_path: Path) -> None:
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


def test_an_unreadable_file_is_passed_over_like_damage(
    log_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = str(log_dir / "p-multi-1")
    opened = Segment.open

    def refuse(self: Segment) -> Any:
        if str(self.path).startswith(broken):
            raise kafkalog.ReadError("file_unreadable", "Input/output error", path=self.path)
        return opened(self)

    expected = kafkalog.scan(log_dir).count_rows() - kafkalog.scan(log_dir / "p-multi-1").count_rows()
    scan = kafkalog.scan(kafkalog.open(log_dir), on_corruption="skip")
    assert len(list(scan.partitions())) == 10
    monkeypatch.setattr(Segment, "open", refuse)
    with pytest.warns(kafkalog.CorruptionWarning, match="Input/output error"):
        assert scan.count_rows() == expected
    with pytest.raises(kafkalog.ReadError):
        kafkalog.scan(scan.target).count_rows()


def test_a_segment_over_a_limit_is_passed_over_like_damage(log_dir: Path) -> None:
    sizes = {segment.size_in_bytes for segment in kafkalog.Partition(log_dir / "p-multi-0").segments}
    limits = kafkalog.Limits(max_segment_bytes=max(sizes) - 1)
    with pytest.raises(kafkalog.LimitExceededError):
        kafkalog.scan(log_dir / "p-multi-0", limits=limits).count_rows()
    scan = kafkalog.scan(log_dir / "p-multi-0", limits=limits, on_corruption="skip")
    with pytest.warns(kafkalog.CorruptionWarning, match="max_segment_bytes"):
        assert scan.to_numpy().offset.tolist() == [121, 123]
    assert [finding.reason for finding in scan.findings] == ["segment_too_large"]


def test_a_damaged_swap_file_hides_no_segments(log_dir: Path, tmp_path: Path) -> None:
    directory = shutil.copytree(log_dir / "p-multi-0", tmp_path / "p-multi-0")
    (directory / f"{0:020d}.log.swap").write_bytes(b"\0")
    partition = kafkalog.Partition(directory)
    assert [finding.reason for finding in partition.findings] == ["partial_tail"]
    assert partition.findings[0].damage
    with pytest.warns(kafkalog.CorruptionWarning, match="not taken in place"):
        assert kafkalog.scan(partition).count_rows() == kafkalog.scan(log_dir / "p-multi-0").count_rows()


def test_a_range_does_not_end_where_only_a_damaged_header_says_so(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    batches = [builder.batch_v2([builder.record_v2(0, 0, None, b"x")], base_offset=n) for n in range(8)]
    batches[3] = batches[3][:23] + b"\x7f" + batches[3][24:]  # of the last offset delta
    path.write_bytes(b"".join(batches))
    for window_bytes in (100, 2**22):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("kafkalog.scanning.execution.WINDOW_BYTES", window_bytes)
            patch.setattr("kafkalog.scanning.execution._MIN_WINDOW_BYTES", window_bytes)
            scan = kafkalog.scan(path, end_offset=6, on_corruption="skip")
            with pytest.warns(kafkalog.CorruptionWarning):
                assert scan.to_numpy().offset.tolist() == [0, 1, 2, 4, 5], window_bytes


@pytest.mark.parametrize(
    "options",
    [
        {"start_offset": 50},
        {"end_offset": 50},
        {"start_offset": 20, "end_offset": 60},
        {"start_offset": 60, "end_offset": 20},
        {"start_offset": {("p-multi", 0): 100, ("p-multi", 1): 98}},
        {"end_offset": {TopicPartition("p-txn", 0): 0}},
        {"start_timestamp": 1_700_000_005_000},
        {"end_timestamp": 1_700_000_005_000},
        {"start_timestamp": 1_700_000_003_001, "end_timestamp": 1_700_000_009_001},
        {"start_timestamp": datetime(2023, 11, 14, 22, 13, 25, tzinfo=UTC)},
        {"start_timestamp": -10, "end_timestamp": 10},
        {"topics": "p-multi"},
        {"topics": ["p-multi", "p-txn"], "partitions": 0},
        {"partitions": [1, 2]},
        {"topics": "p-txn", "start_offset": 30, "start_timestamp": 1_700_000_005_000},
    ],
)
def test_a_range_equals_filtering_the_whole(log_dir: Path, options: dict[str, Any]) -> None:
    whole = kafkalog.read_table(log_dir).to_pylist()

    def bound(name: str, row: dict[str, Any]) -> Any:
        value = options.get(name)
        return value.get((row["topic"], row["partition"])) if isinstance(value, dict) else value

    def wanted(row: dict[str, Any]) -> bool:
        for name, compare in (("start_offset", int.__ge__), ("end_offset", int.__lt__)):
            limit = bound(name, row)
            if limit is not None and not compare(row["offset"], limit):
                return False
        for name, compare in (("start_timestamp", int.__ge__), ("end_timestamp", int.__lt__)):
            limit = options.get(name)
            if limit is None:
                continue
            limit = round(limit.timestamp() * 1000) if isinstance(limit, datetime) else limit
            if row["timestamp"] is None or not compare(round(row["timestamp"].timestamp() * 1000), limit):
                return False
        topics = options.get("topics", [row["topic"]])
        if row["topic"] not in ([topics] if isinstance(topics, str) else topics):
            return False
        partitions = options.get("partitions", [row["partition"]])
        return row["partition"] in ([partitions] if isinstance(partitions, int) else partitions)

    assert kafkalog.read_table(log_dir, **options).to_pylist() == [row for row in whole if wanted(row)]


def test_deleted_records_are_left_out_unless_asked_for(log_dir: Path) -> None:
    partition = kafkalog.open(log_dir / "p-delrec-0")
    assert isinstance(partition, kafkalog.Partition)
    assert partition.log_start_offset == 334
    assert partition.log_end_offset == 500
    assert kafkalog.read_table(partition, columns=["offset"]).column(0).to_pylist() == list(range(334, 500))
    everything = kafkalog.read_table(partition, columns=["offset"], include_deleted=True).column(0).to_pylist()
    assert min(everything) < 334
    assert everything == list(range(everything[0], 500))


def test_control_records_are_records_on_request_only(log_dir: Path) -> None:
    columns = ["offset", "is_control", "is_transactional", "key"]
    plain = kafkalog.read_table(log_dir / "p-txn-0", columns=columns)
    with_control = kafkalog.read_table(log_dir / "p-txn-0", columns=columns, include_control=True)
    assert not any(plain.column("is_control").to_pylist())
    markers = with_control.filter(with_control.column("is_control"))
    assert markers.num_rows + plain.num_rows == with_control.num_rows
    assert {key[:2] for key in markers.column("key").to_pylist()} == {b"\0\0"}
    assert all(markers.column("is_transactional").to_pylist())


def test_what_can_be_known_of_a_partition(log_dir: Path) -> None:
    opened = kafkalog.open(log_dir)
    assert isinstance(opened, kafkalog.LogDir)
    partition = opened["p-multi", 0]
    assert partition.topic_partition == ("p-multi", 0)
    assert partition.high_watermark == 125
    assert partition.log_end_offset == 125
    assert partition.leader_epochs.dtype.names == ("epoch", "start_offset")
    assert partition.leader_epochs.tolist()[0] == (0, 0)
    assert partition.topic_id is not None
    assert len(partition.topic_id) == 22
    assert opened.properties()["version"] == "1"
    assert TopicPartition("p-multi", 0) in opened
    assert ("absent", 0) not in opened
    assert not opened.is_live
    with pytest.raises(KeyError):
        opened["absent", 0]


def test_several_log_dirs_make_one_and_a_partition_twice_is_a_finding(tmp_path: Path, log_dir_copy: Path) -> None:
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


def test_directories_set_apart_are_listed_apart(log_dir_copy: Path) -> None:
    names = {"delete": "p-multi-1", "future": "p-multi-2", "stray": "p-txn-0"}
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


def test_a_list_of_segments_is_read_as_one_partition(log_dir: Path) -> None:
    paths = sorted((log_dir / "p-txn-0").glob("*.log"))
    assert kafkalog.scan(paths).count_rows() == 358
    assert kafkalog.scan(paths[1:2], columns=["offset"]).head(1).column(0).to_pylist() == [16]


# --- damage ---------------------------------------------------------------------------------------------------------


def damaged_partition(log_dir_copy: Path) -> tuple[Path, kafkalog.BatchTable]:
    path = log_dir_copy / "p-zstd-java-0" / "00000000000000000000.log"
    segment = kafkalog.open(path)
    assert isinstance(segment, kafkalog.Segment)
    return path, segment.batches


@pytest.mark.parametrize("threads", [1, 3])
def test_a_flipped_bit_raises_with_its_place_after_the_records_before_it(log_dir_copy: Path, threads: int) -> None:
    path, batches = damaged_partition(log_dir_copy)
    bad = len(batches) // 2
    flip(path, int(batches.position[bad]) + 80)
    seen: list[int] = []
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


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_stop_ends_a_partition_and_skip_leaves_out_one_batch(log_dir_copy: Path, policy: Any, threads: int) -> None:
    path, batches = damaged_partition(log_dir_copy)
    bad = len(batches) // 2
    flip(path, int(batches.position[bad]) + 80)
    scan = kafkalog.scan(log_dir_copy, threads=threads, columns=["topic", "offset"], on_corruption=policy)
    with pytest.warns(kafkalog.CorruptionWarning, match="crc_mismatch"):
        table = scan.to_table()
    offsets = [offset for topic, offset in zip(*(c.to_pylist() for c in table.columns), strict=True) if "zstd" in topic]
    first, last = int(batches.base_offset[bad]), int(batches.last_offset[bad])
    expected = list(range(first)) + ([] if policy == "stop" else list(range(last + 1, 600)))
    assert offsets == expected
    (finding,) = [finding for finding in scan.findings if finding.damage]
    assert (finding.path, finding.position) == (str(path), batches.position[bad])
    assert finding.length == batches.size_in_bytes[bad]
    assert scan.n_damage == 1


@pytest.mark.parametrize("size", [0x7FFFFF00, 70, 0, -1, 13])
def test_a_wrong_length_in_a_sealed_segment_is_reported_and_skip_goes_on_at_the_next_batch(
    log_dir_copy: Path, size: int
) -> None:
    path, batches = damaged_partition(log_dir_copy)
    bad = len(batches) // 2
    data = bytearray(path.read_bytes())
    position = int(batches.position[bad])
    data[position + 8 : position + 12] = size.to_bytes(4, "big", signed=True)
    path.write_bytes(data)
    with pytest.raises(kafkalog.CorruptionError) as caught:
        kafkalog.scan(path.parent).count_rows()
    assert caught.value.position in (position, position + size + 12)
    scan = kafkalog.scan(path.parent, columns=["offset"], on_corruption="skip")
    with pytest.warns(kafkalog.CorruptionWarning):
        offsets = scan.to_table().column(0).to_pylist()
    assert offsets == [*range(batches.base_offset[bad]), *range(batches.last_offset[bad] + 1, 600)]
    assert sum(finding.n_records or 0 for finding in scan.findings) == batches.records_count[bad]


def test_an_unknown_magic_or_codec_is_an_error_never_the_end(log_dir_copy: Path) -> None:
    path, batches = damaged_partition(log_dir_copy)
    last = len(batches) - 1
    for offset, value, error, reason in (
        (16, 3, kafkalog.CorruptionError, "bad_magic"),
        (16, 255, kafkalog.CorruptionError, "bad_magic"),
    ):
        data = bytearray(path.read_bytes())
        before = data[int(batches.position[last]) + offset]
        data[int(batches.position[last]) + offset] = value
        path.write_bytes(data)
        with pytest.raises(error) as caught:
            kafkalog.scan(path.parent).count_rows()
        assert caught.value.reason == reason
        data[int(batches.position[last]) + offset] = before
        path.write_bytes(data)


@pytest.mark.parametrize("cut", [1, 5, 20, 60, 100])
def test_a_torn_tail_is_a_fact_in_the_last_segment_and_damage_in_a_sealed_one(log_dir_copy: Path, cut: int) -> None:
    directory = log_dir_copy / "p-zstd-java-0"
    sealed, last = sorted(directory.glob("*.log"))
    whole = kafkalog.scan(directory).count_rows()
    size = kafkalog.Segment(last).batches.size_in_bytes[-1]
    os.truncate(last, last.stat().st_size - min(cut, size - 1))
    scan = kafkalog.scan(directory)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert scan.count_rows() < whole
    (finding,) = scan.findings
    assert (finding.reason, finding.damage) == ("partial_tail", False)
    os.truncate(sealed, sealed.stat().st_size - cut)
    with pytest.raises(kafkalog.TruncatedTailError) as caught:
        scan.count_rows()
    assert caught.value.reason == "partial_tail"


def test_a_preallocated_tail_is_a_fact_in_the_last_segment_and_damage_in_a_sealed_one(log_dir_copy: Path) -> None:
    directory = log_dir_copy / "p-zstd-java-0"
    sealed, last = sorted(directory.glob("*.log"))
    whole = kafkalog.scan(directory).count_rows()
    os.truncate(last, last.stat().st_size + 5_000_000)
    scan = kafkalog.scan(directory)
    assert scan.count_rows() == whole
    assert [(finding.reason, finding.damage) for finding in scan.findings] == [("zero_fill", False)]
    os.truncate(sealed, sealed.stat().st_size + 100)
    with pytest.raises(kafkalog.TruncatedTailError) as caught:
        scan.count_rows()
    assert caught.value.reason == "zero_fill"


def test_garbage_behind_the_last_batch_and_a_length_over_intact_batches_are_damage(log_dir_copy: Path) -> None:
    directory = log_dir_copy / "p-zstd-java-0"
    last = sorted(directory.glob("*.log"))[-1]
    data = last.read_bytes()
    last.write_bytes(data + np.random.default_rng(1).bytes(500))
    with pytest.raises(kafkalog.CorruptionError):
        kafkalog.scan(directory).count_rows()
    batches = kafkalog.Segment(last, is_last=True)
    last.write_bytes(data)
    position = int(batches.batches.position[1])
    for size in (len(data) - position, 2**26, 0x7FFFFF00):
        damaged = bytearray(data)
        damaged[position + 8 : position + 12] = size.to_bytes(4, "big")
        last.write_bytes(damaged)
        with pytest.raises(kafkalog.CorruptionError) as caught:
            kafkalog.scan(directory).count_rows()
        assert caught.value.reason == "size_exceeds_file"
        assert caught.value.position == position


def test_a_missing_checksum_check_is_a_choice(log_dir_copy: Path) -> None:
    path, batches = damaged_partition(log_dir_copy)
    flip(path, int(batches.position[1]) + 17)  # in the checksum itself
    assert kafkalog.scan(path.parent, check_crcs=False).count_rows() == 600
    with pytest.raises(kafkalog.CorruptionError):
        kafkalog.scan(path.parent).count_rows()


# --- other libraries ------------------------------------------------------------------------------------------------


def test_every_consumer_of_arrow_takes_a_scan_each_time_anew(log_dir: Path) -> None:
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
        assert pd.DataFrame.from_arrow(scan).shape == (303, 8)
        counted = duckdb.sql('select count(*), max("offset"), count(distinct partition) from scan').fetchall()
        assert counted == [(303, 123, 3)]


@pytest.mark.parametrize("binary_type", [pa.binary(), pa.large_binary(), pa.binary_view()])
def test_pandas_has_what_pyarrow_makes_of_the_table(log_dir: Path, binary_type: pa.DataType) -> None:
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


def test_pandas_has_the_same_values_and_keeps_arrows_types_on_request(log_dir: Path) -> None:
    frame = kafkalog.read_pandas(log_dir, topics="p-headers")
    table = kafkalog.read_table(log_dir, topics="p-headers")
    assert frame["value"].tolist() == table.column("value").to_pylist()
    assert str(frame["timestamp"].dtype) == "datetime64[ms, UTC]"
    arrow = kafkalog.read_pandas(log_dir, topics="p-headers", dtype_backend="pyarrow")
    assert pa.types.is_binary(arrow["value"].dtype.pyarrow_dtype)
    with pytest.raises(ValueError, match="dtype_backend"):
        kafkalog.read_pandas(log_dir, dtype_backend="numpy")


@pytest.mark.parametrize("binary_type", [pa.binary(), pa.large_binary(), pa.binary_view()])
@pytest.mark.parametrize("memory_map", [True, False])
def test_binary_types_hold_the_same(log_dir: Path, binary_type: pa.DataType, memory_map: bool) -> None:
    table = kafkalog.read_table(log_dir, binary_type=binary_type, memory_map=memory_map)
    table.validate(full=True)
    assert table.schema.field("key").type == binary_type
    expected = kafkalog.read_table(log_dir)
    for name in ("key", "value", "headers"):
        assert table.column(name).to_pylist() == expected.column(name).to_pylist()


def test_numpy_columns_hold_the_same_as_arrow(log_dir: Path) -> None:
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
    with pytest.raises(AttributeError, match="columns="):
        _ = kafkalog.read_numpy(log_dir, columns=["offset"]).key


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"columns": ["valeu"]}, ValueError, "There are topic, partition"),
        ({"columns": "value"}, TypeError, r"columns=\['value'\]"),
        ({"columns": ["offset", "offset"]}, ValueError, "twice"),
        ({"topics": "nope"}, ValueError, "p-multi"),
        ({"start_timestamp": datetime(2023, 1, 1)}, ValueError, "naive"),
        ({"start_offset": 1.5}, TypeError, "start_offset"),
        ({"on_corruption": "ignore"}, ValueError, "'skip'"),
        ({"threads": 0}, ValueError, "threads"),
        ({"batch_size": -1}, ValueError, "batch_size"),
        ({"memory_map": "yes"}, ValueError, "memory_map"),
        ({"binary_type": pa.string()}, ValueError, "binary_view"),
        ({"wher": 1}, TypeError, "wher"),
    ],
)
def test_misuse_is_a_type_or_value_error_that_says_what_to_do(
    log_dir: Path, options: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        kafkalog.read_table(log_dir, **options)


def test_a_path_that_holds_nothing_says_what_to_name(tmp_path: Path, log_dir: Path) -> None:
    with pytest.raises(kafkalog.NotKafkaError, match=r"log\.dirs"):
        kafkalog.open(tmp_path)
    with pytest.raises(kafkalog.ReadError, match="no such"):
        kafkalog.open(tmp_path / "absent")
    with pytest.raises(kafkalog.NotKafkaError, match=r"00000000000000000000\.log"):
        kafkalog.open(log_dir / "p-multi-0" / "00000000000000000000.index")
    with pytest.raises(ValueError, match="no path"):
        kafkalog.open([])


def test_head_reads_no_more_than_it_needs(log_dir: Path) -> None:
    assert kafkalog.scan(log_dir).head(3).num_rows == 3
    assert kafkalog.scan(log_dir).head(0).num_rows == 0
    assert kafkalog.scan(log_dir).head(10**6).num_rows == kafkalog.scan(log_dir).count_rows()


def test_streaming_a_large_file_takes_bounded_memory(tmp_path: Path, log_dir: Path) -> None:
    """ru_maxrss of a process that streams 200 MB, less that of one that streams 1 MB: within the documented 32 MiB."""
    program = f"""
import resource, sys
from pathlib import Path
import kafkalog
batch = Path({str(log_dir)!r}, "p-headers-0", "00000000000000000000.log").read_bytes()
size = 12 + int.from_bytes(batch[8:12], "big")
count = int.from_bytes(batch[23:27], "big") + 1
directory = Path(sys.argv[1])
directory.mkdir()
n = 0
with open(directory / "00000000000000000000.log", "wb") as f:
    while f.tell() < int(sys.argv[2]):
        f.write(n.to_bytes(8, "big") + batch[8:size])
        n += count
rows = sum(len(b) for b in kafkalog.scan(directory, memory_map=eval(sys.argv[3]), threads=2).to_reader())
assert rows == n
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024)
"""

    def peak(name: str, size: int, memory_map: bool) -> int:
        arguments = [sys.executable, "-c", program, str(tmp_path / name), str(size), str(memory_map)]
        return int(subprocess.run(arguments, capture_output=True, text=True, check=True, timeout=120).stdout)

    for memory_map in (False, True):
        small, large = (
            peak(f"small{memory_map}-0", 10**6, memory_map),
            peak(f"large{memory_map}-0", 2 * 10**8, memory_map),
        )
        assert large - small <= 32, f"{small} MiB for 1 MB, {large} MiB for 200 MB"


def test_limits_hold_for_batches_inside_a_window_too(log_dir: Path) -> None:
    path = log_dir / "p-multi-0" / "00000000000000000000.log"
    sizes = kafkalog.Segment(path).batches.size_in_bytes
    limits = kafkalog.Limits(max_batch_bytes=int(sizes.max()) - 1)
    with pytest.raises(kafkalog.LimitExceededError, match="max_batch_bytes") as caught:
        kafkalog.scan(path, limits=limits).count_rows()
    assert caught.value.length == sizes.max()
    assert kafkalog.scan(path, limits=kafkalog.Limits(max_batch_bytes=int(sizes.max()))).count_rows() > 0


def test_directories_that_only_look_like_partitions_are_not_kafkas(tmp_path: Path) -> None:
    (tmp_path / "dbus-1").mkdir()
    (tmp_path / "dbus-1" / "session.conf").touch()
    with pytest.raises(kafkalog.NotKafkaError):
        kafkalog.open(tmp_path)


def test_a_log_file_without_an_offset_for_a_name_is_a_finding(log_dir_copy: Path) -> None:
    (log_dir_copy / "p-multi-0" / "server.log").write_text("hello")
    scan = kafkalog.scan(log_dir_copy, topics="p-multi")
    assert scan.count_rows() == 303
    assert [finding.reason for finding in scan.findings] == ["unknown_file"]


def test_named_files_are_read_whole(log_dir: Path) -> None:
    paths = sorted((log_dir / "p-delrec-0").glob("*.log"))
    whole = kafkalog.scan(log_dir / "p-delrec-0", include_deleted=True).count_rows()
    assert kafkalog.scan(paths).count_rows() == whole
    assert sum(kafkalog.scan(path).count_rows() for path in paths) == whole
    assert whole > kafkalog.scan(log_dir / "p-delrec-0").count_rows()


def test_a_swap_left_by_a_crash_counts_as_a_broker_would_count_it(log_dir_copy: Path) -> None:
    directory = log_dir_copy / "p-compact-0"
    expected = kafkalog.read_table(directory)
    first = max(sorted(directory.glob("*.log"))[:-1], key=lambda path: path.stat().st_size)
    first.rename(first.with_name(first.name + ".swap"))
    scan = kafkalog.scan(directory)
    assert scan.to_table().equals(expected)
    assert "swap_file" in [finding.reason for finding in scan.findings]
    unfinished = directory / (first.name + ".cleaned")
    unfinished.touch()
    assert kafkalog.scan(directory).count_rows() < expected.num_rows


def test_skip_gives_a_batch_once_that_lies_there_several_times_and_says_so(tmp_path: Path) -> None:
    import builder

    directory = tmp_path / "t-0"
    directory.mkdir()
    batch = builder.batch_v2([builder.record_v2(value=b"v")], base_offset=0)
    (directory / "00000000000000000000.log").write_bytes(batch * 3)
    with pytest.raises(kafkalog.CorruptionError) as caught:
        kafkalog.read_table(directory)
    assert (caught.value.reason, caught.value.position, caught.value.base_offset) == ("offset_order", len(batch), 0)
    scan = kafkalog.scan(directory, columns=["offset"], on_corruption="skip")
    with pytest.warns(kafkalog.CorruptionWarning, match="offset_order"):
        assert scan.to_table().column(0).to_pylist() == [0]
    assert [finding.position for finding in scan.findings] == [len(batch), 2 * len(batch)]


@pytest.mark.parametrize("threads", [1, 4])
def test_skip_passes_over_many_damaged_places_and_finds_every_intact_batch(tmp_path: Path, threads: int) -> None:
    import builder

    directory = tmp_path / "t-0"
    directory.mkdir()
    batches, entries, position = [], [], 0
    for offset in range(400):
        batch = bytearray(builder.batch_v2([builder.record_v2(value=b"v" * 50)], base_offset=offset))
        if offset % 4 == 1:
            batch[8:12] = (2**26).to_bytes(4, "big")
        if offset:
            entries.append((offset, position))
        batches.append(bytes(batch))
        position += len(batch)
    (directory / "00000000000000000000.log").write_bytes(b"".join(batches))
    (directory / "00000000000000000400.log").touch()
    (directory / "00000000000000000000.index").write_bytes(np.array(entries, ">i4").tobytes())
    scan = kafkalog.scan(directory, columns=["offset"], on_corruption="skip", threads=threads)
    with pytest.warns(kafkalog.CorruptionWarning):
        offsets = scan.to_table().column(0).to_pylist()
    assert offsets == [offset for offset in range(400) if offset % 4 != 1]
    assert scan.n_damage == 100


def test_a_scan_given_up_early_leaves_no_file_open(log_dir: Path) -> None:
    descriptors = Path("/proc/self/fd")
    before = len(list(descriptors.iterdir()))
    for threads in (1, 3):
        for _ in range(20):
            kafkalog.scan(log_dir, threads=threads).head(1)
            next(kafkalog.scan(log_dir, threads=threads, batch_size=1).to_batches())
    assert len(list(descriptors.iterdir())) <= before + 1
