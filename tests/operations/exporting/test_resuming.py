"""``export(resume=True)`` into a directory, a Delta table and an Iceberg table: exactly once, whenever it is killed.

The last runs of the 200 exports that are killed (`soak`) lost and repeated no offset, in each of the three, as DuckDB
reads them and as Spark does.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time

import lakes
import pyarrow as pa
import pytest
from lakes import LAKES, grow
from refusals import fails_with
from spark.sessions import settings

import kafkalog
from kafkalog.cli.app import main


def killed_at_random(root, lake, n, seed):
    """Kill an export of a growing log `n` times, and finish it; how often it was killed."""
    draw = random.Random(seed)
    n_killed = 0
    usual = 0.3
    for _ in range(n):
        grow(root, 50)
        with subprocess.Popen(
            [sys.executable, "-c", lake.script, root, lake.name, lake.format],
            stdout=subprocess.PIPE,
            env={**os.environ, **lake.environment},
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            began = time.monotonic()
            try:
                process.wait(draw.uniform(0, 1.2 * usual))
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
            if process.wait() == 0:
                usual = time.monotonic() - began
            else:
                n_killed += 1
        if lake.exists():
            there = lake.offsets()
            assert len(set(there)) == len(there)
    lake.run(root)
    assert lake.offsets() == [*range(kafkalog.open_partition(root / "orders-0").log_end_offset)]
    return n_killed


@pytest.fixture
def root(tmp_path):
    grow(tmp_path / "logs", 20)
    return tmp_path / "logs"


@pytest.fixture(params=LAKES)
def lake(request, tmp_path):
    if request.param == "delta":
        pytest.importorskip("deltalake", reason="not tested here: deltalake is not installed")
    if request.param == "iceberg":
        pytest.importorskip("pyiceberg_core", reason="not tested here: pyiceberg is not installed")
    made = LAKES[request.param](tmp_path / "lake")
    made.path.mkdir()
    return made


def test_each_run_adds_what_is_new(root, lake):
    assert lake.run(root).n_records == 20
    assert lake.run(root).n_records == 0
    grow(root, 5)
    grow(root, 3, partition=1)
    (root / "empty-0").mkdir()
    result = lake.run(root)
    assert (result.n_records, result.n_files) == (8, 2)
    assert result.n_bytes > 0
    assert lake.offsets() == [*range(25)]
    assert lake.offsets(1) == [*range(3)]
    assert lake.run(root).n_records == 0


def test_other_options_are_refused(root, lake):
    lake.run(root, columns=["offset", "value"])
    with pytest.raises(ValueError, match="columns"):
        lake.run(root)
    with pytest.raises(ValueError, match="filters"):
        lake.run(root, columns=["offset", "value"], filters="key == a")
    with pytest.raises(ValueError, match="start_offset"):
        lake.run(root, start_offset=3)
    with pytest.raises(ValueError, match="overwrite"):
        lake.run(root, overwrite=True)
    lake.run(root, columns=["offset", "value"], threads=1)  # does not change the result


def test_a_filter_that_keeps_nothing_counts_as_done(root, lake):
    assert lake.run(root, filters="value == 3").n_records == 1
    grow(root, 2)
    assert lake.run(root, filters="value == 3").n_records == 0
    assert lake.offsets() == [3]


def test_a_log_that_lost_its_end_or_is_another_is_refused(root, lake, tmp_path):
    (root / "orders-0" / "partition.metadata").write_text("version: 0\ntopic_id: " + "A" * 22 + "\n")
    lake.run(root)
    grow(tmp_path / "others", 3)
    with fails_with("file_changed"):
        lake.run(tmp_path / "others")
    (root / "orders-0" / "partition.metadata").write_text("version: 0\ntopic_id: " + "B" * 22 + "\n")
    with fails_with("file_changed"):
        lake.run(root)
    assert lake.offsets() == [*range(20)]


def write_again(root, start, n, epoch):
    """Replace the records of the log from an offset on, as a new leader or a new topic does."""
    directory = root / "orders-0"
    kept = kafkalog.read_table(directory, end_offset=start).select(["value", "timestamp"])
    shutil.rmtree(directory)
    if start:
        with kafkalog.PartitionWriter(directory) as writer:
            writer.append(kept)
    with kafkalog.PartitionWriter(directory, leader_epoch=epoch) as writer:
        writer.append({"value": [b"new-%d" % at for at in range(n)], "timestamp": [1_800_000_000_000] * n})


@pytest.mark.parametrize(
    ("start", "n", "epoch", "message"),
    [
        (0, 30, 0, "the batch with offset 19 is not the one that was exported"),
        (0, 20, 0, "checksum"),
        (5, 30, 1, "at offset 5 or before"),
        (19, 1, 1, "at offset 19 or before"),
        (0, 3, 0, "the log ends at 3"),
    ],
)
def test_other_records_at_exported_offsets_are_refused(root, lake, start, n, epoch, message):
    """A topic that was created again without ids, or an unclean election."""
    lake.run(root)
    write_again(root, start, n, epoch)
    with fails_with("file_changed") as error:
        lake.run(root)
    assert message in str(error.value)
    assert lake.offsets() == [*range(20)]


def test_retention_and_a_cleaner_may_remove_what_was_exported(root, lake):
    shutil.rmtree(root)
    config = {"config": kafkalog.LogConfig(segment_bytes=400)}
    for _ in range(4):
        grow(root, 5, **config)
    lake.run(root)
    grow(root, 5, **config)
    # of the last exported batch, some records are gone: offset and end of the batch stay
    with kafkalog.PartitionWriter(root / "orders-0", **config) as writer:
        writer.append({"key": [b"a", b"b", b"a"], "value": [b"1", b"2", b"3"]})
    lake.run(root)
    grow(root, 5, **config)
    kafkalog.compact(root / "orders-0", in_place=True)
    lake.run(root)
    logs = sorted((root / "orders-0").glob("*.log"))
    grow(root, 5, **config)
    for log in logs[:-1]:
        log.unlink()
    lake.run(root)
    assert lake.offsets() == [*range(38)]


def test_an_export_of_an_older_version_is_continued(root, tmp_path):
    lake = LAKES["directory"](tmp_path / "lake")
    lake.path.mkdir()
    lake.run(root)
    manifest = lake.output / "_kafkalog_export.json"
    content = json.loads(manifest.read_text())
    assert content["partitions"]["orders-0"].pop("last_batch") == {
        "base_offset": 0,
        "last_offset": 19,
        "leader_epoch": 0,
        "crc": next(kafkalog.open_partition(root / "orders-0").iter_batches()).batches.crc[0],
        "n_records": 20,
    }
    manifest.write_text(json.dumps(content))
    grow(root, 3)
    lake.run(root)
    assert lake.offsets() == [*range(23)]
    assert json.loads(manifest.read_text())["partitions"]["orders-0"]["last_batch"]["last_offset"] == 22


def test_damage_leaves_the_output_as_it_was(root, lake):
    lake.run(root)
    grow(root, 20)
    log = max((root / "orders-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-3] + b"xyz")
    with fails_with("crc_mismatch"):
        lake.run(root)
    assert lake.offsets() == [*range(20)]
    with pytest.warns(kafkalog.CorruptionWarning):
        assert lake.run(root, on_corruption="skip").n_records == 0


@pytest.mark.parametrize("lake", ["delta", "iceberg"], indirect=True)
def test_of_two_runs_at_a_time_one_adds_nothing(root, lake):
    lake.run(root)
    grow(root, 5)
    late = lake.exporter(root)
    assert lake.run(root).n_records == 5
    with fails_with("write_failed"):
        late.run()
    assert lake.offsets() == [*range(25)]
    assert lake.run(root).n_records == 0


@pytest.mark.parametrize("lake", ["delta", "iceberg"], indirect=True)
def test_columns_and_keys_of_a_table(root, lake):
    with kafkalog.PartitionWriter(root / "times-0") as writer:
        writer.append({"value": [b"a", b"b", b"c"], "timestamp": [2**62, -1, 86_400_000 - 1]})
    result = lake.run(root, topics="times", columns=["value", "timestamp"], partition_by=["topic", "date"])
    assert "1 value of timestamp" in str(result.findings)
    table = lakes_table(lake)
    found = sorted(table.select(["value", "timestamp", "topic"]).to_pylist(), key=lambda row: row["value"])
    assert [row["timestamp"] and row["timestamp"].timestamp() for row in found] == [None, -0.001, 86399.999]
    assert {row["topic"] for row in found} == {"times"}
    assert table.schema.field("timestamp").type == pa.timestamp("us", "UTC")


def lakes_table(lake):
    """All rows, read by the library of the table."""
    if isinstance(lake, lakes.Delta):
        return lake.table().to_pyarrow_table()
    return lake.output.scan().to_arrow()


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_options_of_files_are_refused(root, format, capsys):
    for options, message in (
        ({}, "resume"),
        ({"resume": True, "compression": "zstd"}, "compression does not work with"),
        ({"resume": True, "overwrite": True}, "excludes overwrite"),
    ):
        with pytest.raises(ValueError, match=message):
            kafkalog.export(root, "lake.kafka.table", format=format, **options)
    assert main(["export", str(root), "-o", "lake.kafka.table", "--format", format]) == 2
    assert "resume" in capsys.readouterr().err


def test_a_run_that_is_killed_loses_and_repeats_nothing(root, lake):
    killed_at_random(root, lake, 2, seed=1)


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_two_hundred_kills(lake, tmp_path):
    sql = pytest.importorskip("pyspark.sql", reason="not tested here: pyspark is not installed")
    n_killed, made = 0, []
    for one in range(20):
        path = tmp_path / f"lake-{one}"
        path.mkdir()
        made.append(type(lake)(path))
        n_killed += killed_at_random(tmp_path / f"logs-{one}", made[-1], 10, one)
    assert n_killed > 100
    builder = sql.SparkSession.builder.master("local[1]")
    for name, value in settings(tmp_path).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        for one in made:
            found = spark.read.parquet(*one.files()).select("offset").orderBy("offset").collect()
            assert [row.offset for row in found] == one.offsets(), one.path
    finally:
        spark.stop()


def test_a_partition_that_is_gone_is_named(root, tmp_path, capsys):
    """A directory that is not mounted looks like a log without new records."""
    grow(root, 3, partition=1)
    arguments = ["export", str(root), "-o", str(tmp_path / "out"), "--resume", "--format", "parquet"]
    assert main(arguments) == 0
    assert "not in the log now" not in capsys.readouterr().err
    (root / "orders-1").rename(tmp_path / "orders-1")
    assert main(arguments) == 0
    assert "orders-1: exported before, but not in the log now" in capsys.readouterr().err
