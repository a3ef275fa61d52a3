"""`kafkalog load`, run as a user runs it."""

import json
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from effort import thinned
from files import broker_on

import kafkalog


@pytest.fixture
def parquet(tmp_path):
    table = {
        "key": [b"a", b"b", None, b"a"],
        "value": [b"1", b"", None, b"4"],
        "timestamp": pa.array([1000, 2000, 3000, 4000], pa.timestamp("ms", "UTC")),
    }
    pq.write_table(pa.table(table), tmp_path / "x.parquet")
    return tmp_path / "x.parquet"


@pytest.mark.parametrize("format", thinned(["csv", "jsonl", "arrows"], 3))
def test_a_pipe_from_export_to_load(log_dir, tmp_path, format):
    program = f"{sys.executable} -m kafkalog"
    command = f"{program} export {log_dir} -t p-multi -o - --format {format}"
    command += f" | {program} load - --format {format} -o {tmp_path / format} -q"
    subprocess.run(["bash", "-o", "pipefail", "-c", command], check=True, stdout=subprocess.DEVNULL)
    assert kafkalog.read_table(tmp_path / format).equals(kafkalog.read_table(log_dir, topics="p-multi"))


def test_what_was_written_is_said_in_lines_or_json(run, parquet, tmp_path):
    code, out, err = run("load", parquet, "-o", tmp_path / "log", "--topic", "t", "--partitions", 2)
    assert code == 0
    assert out.splitlines()[0].startswith("t-0  ")
    assert "4 records in 2 partitions written to" in err
    assert "partitioner kafka: murmur2 of the key, records without a key in turn\n" in err
    code, out, err = run("load", parquet, "-o", tmp_path / "log", "--topic", "u", "--json", "-q")
    (line,) = map(json.loads, out.splitlines())
    assert (code, err) == (0, "")
    assert line["path"] == str(tmp_path / "log" / "u-0")
    assert {name: line[name] for name in ("topic", "partition", "n_records", "first_offset", "next_offset")} == {
        "topic": "u",
        "partition": 0,
        "n_records": 4,
        "first_offset": 0,
        "next_offset": 4,
    }
    code, out, err = run("load", parquet, "-o", tmp_path / "log", "--topic", "v", "--dry-run")
    assert (code, out.startswith("v-0  4 records")) == (0, True)
    assert "would be written" in err
    assert sorted(os.listdir(tmp_path / "log")) == ["t-0", "t-1", "u-0"]


def test_settings_come_from_a_file_and_from_options(run, parquet, tmp_path):
    (tmp_path / "server.properties").write_text("compression.type=zstd\nlog.message.timestamp.type=LogAppendTime\n")
    options = ["--config-file", tmp_path / "server.properties", "--config", "message.timestamp.type=CreateTime"]
    assert run("load", parquet, "-o", tmp_path / "log", "--topic", "t", *options)[0] == 0
    table = kafkalog.read_table(tmp_path / "log", columns=["compression", "timestamp_type"])
    assert set(table.column("compression").to_pylist()) == {"zstd"}
    assert set(table.column("timestamp_type").to_pylist()) == {0}
    warned = run("load", parquet, "-o", tmp_path / "log", "--topic", "u", "--config", "segment.bytes=5000")
    assert warned[0] == 0
    assert "note: segment.bytes=5000: a broker of Kafka 4.x takes no less" in warned[2]


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--topic", "t", "--config", "segment.bytes"],
        ["--topic", "t", "--config", "segment.bytes=1"],
        ["--topic", "t", "--config", "segmnt.bytes=5000"],
        ["--topic", "t", "--partitions", "0"],
        ["--topic", "t", "--batch-size", "0"],
        ["--topic", "t", "--compression-level", "99", "--compression", "zstd"],
        ["--topic", "t", "--replace"],
        ["--topic", "t", "--topic-id", "x"],
        ["--topic", "t", "--format", "xml"],
    ],
)
def test_wrong_usage_is_2_and_a_missing_topic_is_told(run, parquet, tmp_path, options):
    code, out, err = run("load", parquet, "-o", tmp_path / "log", *options)
    assert code == (2 if options else 3)
    assert out == ""
    assert err.count("\n") == 1
    assert not (tmp_path / "log").exists()


def test_inputs_that_hold_no_records_are_3(run, tmp_path):
    tables = {
        "unknown": pa.table({"value": [b"a"], "colour": ["red"]}),
        "offsets": pa.table({"value": [b"a", b"b"], "offset": [2, 1]}),
    }
    for name, table in tables.items():
        with pa.OSFile(str(tmp_path / f"{name}.arrow"), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
            writer.write_table(table)
        code, out, err = run("load", tmp_path / f"{name}.arrow", "-o", tmp_path / "log", "--topic", "t")
        assert (code, out, err.count("\n")) == (3, "", 1), err
        assert f"{name}.arrow" in err
    for name in ("none.parquet", "none"):
        code, out, err = run("load", tmp_path / name, "-o", tmp_path / "log", "--topic", "t")
        assert (code, out) == (3, "")
        assert f"{name}: file_unreadable: No such file or directory" in err
    assert not (tmp_path / "log").exists()
    options = ["--ignore-columns", "*", "--topic", "t"]
    assert run("load", tmp_path / "unknown.arrow", "-o", tmp_path / "log", *options)[0] == 0
    assert run("load", tmp_path / "offsets.arrow", "-o", tmp_path / "log2", *options, "--no-keep-offsets")[0] == 0


def test_what_is_there_and_what_is_locked_is_6(run, parquet, tmp_path):
    load = ["load", parquet, "-o", tmp_path / "log", "--topic"]
    assert run(*load, "t")[0] == 0
    code, _, err = run(*load, "t")
    assert code == 6
    assert "t-0: output_exists" in err
    assert run(*load, "../t")[0] == 2
    with broker_on(tmp_path / "log"):
        assert run(*load, "u")[0] == 6
    assert sorted(os.listdir(tmp_path / "log")) == [".lock", "t-0"]


def test_stdin_needs_its_format_and_stands_alone(run, tmp_path):
    assert run("load", "-", "-o", tmp_path / "log", "--topic", "t")[0] == 2
    assert run("load", "-", tmp_path / "x.csv", "--format", "csv", "-o", tmp_path / "log", "--topic", "t")[0] == 2
    assert run("load", "-", "--format", "parquet", "-o", tmp_path / "log", "--topic", "t")[0] == 2


def test_install_needs_a_brokers_log_dir(run, parquet, tmp_path):
    install = ["load", parquet, "-o", tmp_path / "broker", "--topic", "t", "--install"]
    assert run(*install)[0] == 3
    (tmp_path / "broker").mkdir()
    assert run(*install)[0] == 3
    (tmp_path / "broker" / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\ndirectory.id=y\n")
    assert run(*install)[0] == 6
    assert sorted(os.listdir(tmp_path / "broker")) == [".lock", "meta.properties"]
    topic_id = "AAAAAAAAAAAAAAAAAAAAAQ"
    assert run(*install, "--topic-id", topic_id)[0] == 0
    assert kafkalog.open(tmp_path / "broker" / "t-0").topic_id == topic_id
    assert run(*install, "--topic-id", topic_id)[0] == 6
    assert run(*install, "--topic-id", topic_id, "--replace")[0] == 0
    assert sorted(os.listdir(tmp_path)) == ["broker", "x.parquet"]


def test_a_record_above_the_topics_limit_is_noted(run, tmp_path):
    path = tmp_path / "large.csv"
    path.write_text("value\n" + "x" * 2_000_000 + "\n")
    code, out, error = run("load", str(path), "-o", str(tmp_path / "log"), "--topic", "t", "--encoding", "utf8")
    assert code == 0
    assert out.startswith("t-0  1 record  ")
    assert "kafkalog: note: t-0: the batch at offset 0 has 2000074 bytes, but max.message.bytes is 1048588" in error
