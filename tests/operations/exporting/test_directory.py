"""``export(resume=True)`` into a directory of files."""

import importlib.util
import random
import re
from pathlib import Path

import duckdb
import pyarrow.dataset
import pytest
from lakes import grow
from refusals import fails_with

import kafkalog
from kafkalog.cli.app import main
from kafkalog.operations.exporting import directory as exporting

KEYS = ["topic", "partition"]


def offsets(lake, partition=0):
    query = 'select "offset" from read_parquet(?, hive_partitioning = true) where partition = ? order by all'
    return [row[0] for row in duckdb.execute(query, [f"{lake}/**/*.parquet", partition]).fetchall()]


def run(root, lake, **options):
    return kafkalog.export(root, lake, partition_by=KEYS, resume=True, **options)


@pytest.fixture
def root(tmp_path):
    grow(tmp_path / "logs", 20)
    return tmp_path / "logs"


@pytest.fixture
def lake(tmp_path):
    return tmp_path / "lake"


def test_the_command_and_a_directory_without_keys(root, lake, capsys):
    arguments = ["export", str(root), "-o", str(lake), "--resume"]
    assert main(arguments) == 0
    grow(root, 5)
    assert main(arguments) == 0
    assert "5 records in 1 file" in capsys.readouterr().err
    assert duckdb.execute(f"select count(*) from '{lake}/*.parquet'").fetchall() == [(25,)]
    assert main([*arguments, "--overwrite"]) == 2
    assert main([*arguments, "--start-offset", "3"]) == 2
    assert main(["export", str(root), "-o", "-", "--format", "csv", "--resume"]) == 2


def test_offsets_that_were_deleted_before_they_were_exported_are_said(root, lake):
    run(root, lake)
    grow(root, 20)
    (root / "log-start-offset-checkpoint").write_text("0\n1\norders 0 30\n")
    result = run(root, lake)
    assert result.n_records == 10
    assert [(one.reason.value, one.base_offset, one.last_offset) for one in result.findings] == [("offset_gap", 20, 29)]


def test_a_directory_that_no_resumed_export_made_is_refused(root, lake):
    kafkalog.export(root, lake, partition_by=KEYS)
    with fails_with("output_exists"):
        run(root, lake)
    (lake / exporting.MANIFEST).write_text("{}")
    with fails_with("checkpoint_syntax"):
        run(root, lake)
    with pytest.raises(kafkalog.UnsafePathError):
        run(root, root / "orders-0" / "lake")


def test_two_exports_at_a_time_are_refused(root, lake):
    one = exporting.ResumedDirectory(lake)
    with fails_with("unsafe_path"):
        run(root, lake)
    one.close()
    assert run(root, lake).n_records == 20


@pytest.mark.parametrize("call", ["rename_new", "fsync_directory", "remove_tree"])
def test_a_run_that_dies_while_it_commits_is_finished_by_the_next(root, lake, monkeypatch, call):
    run(root, lake)
    grow(root, 20)
    for partition in (1, 2, 3):
        grow(root, 7, partition)
    actual = getattr(exporting, call)
    for at in range(1, 6):
        calls = 0

        def die(*arguments, at=at):
            nonlocal calls
            calls += 1
            if calls == at:
                raise KeyboardInterrupt
            return actual(*arguments)

        with monkeypatch.context() as patch:
            patch.setattr(exporting, call, die)
            try:
                run(root, lake)
            except KeyboardInterrupt:
                assert len(set(offsets(lake))) == len(offsets(lake))
    run(root, lake)
    assert offsets(lake) == [*range(40)]
    assert [offsets(lake, partition) for partition in (1, 2, 3)] == [[*range(7)]] * 3


def test_the_nights_of_the_guide_work_as_they_are_written(log_dir, tmp_path, monkeypatch, capsys):
    guide = Path("docs/guides/data-lake.md").read_text()
    commands = re.findall(r"^kafkalog (export .*--resume.*?)(?:#.*)?$", guide, re.MULTILINE)
    assert len(commands) > 1
    monkeypatch.chdir(tmp_path)
    for command in commands:
        if "delta" in command and importlib.util.find_spec("deltalake") is None:
            continue
        here = command.replace("/backup/kafka", str(log_dir)).replace("-t orders", "-t p-multi")
        words = here.replace("/lake/", "").split()
        # the first night has all records, the second one none
        assert main(words) == 0, (command, capsys.readouterr().err)
        assert main(words) == 0, (command, capsys.readouterr().err)
        assert "0 records" in capsys.readouterr().err


def test_the_command_and_the_functions_defaults_continue_one_another(root, lake):
    assert main(["export", str(root), "-o", str(lake), "--resume", "--partition-by", ",".join(KEYS)]) == 0
    for options in ({}, {"check_crcs": True}, {"isolation_level": "read_uncommitted"}):
        grow(root, 5)
        assert run(root, lake, **options).n_records == 5
    with pytest.raises(ValueError, match="check_crcs must match the first export"):
        run(root, lake, check_crcs=False)
    with pytest.raises(ValueError, match="isolation_level must match"):
        run(root, lake, isolation_level="read_committed")
    # manifests of an earlier version have the options that have their defaults, too
    manifest = lake / exporting.MANIFEST
    manifest.write_text(manifest.read_text().replace('"settings": {', '"settings": {"check_crcs": "True", '))
    grow(root, 5)
    assert run(root, lake).n_records == 5


def test_a_topic_is_the_same_as_a_list_with_it(root, lake):
    [topic] = {path.name.rpartition("-")[0] for path in root.iterdir() if path.is_dir()}
    command = ["export", str(root), "-o", str(lake), "-t", topic, "--resume", "--partition-by"]
    assert main([*command, ",".join(KEYS)]) == 0
    for topics in (topic, [topic], topic):
        grow(root, 5)
        assert run(root, lake, topics=topics).n_records == 5
    # a manifest of an earlier version has the text of the topic alone
    manifest = lake / exporting.MANIFEST
    manifest.write_text(manifest.read_text().replace(f"['{topic}']", f"'{topic}'"))
    grow(root, 5)
    assert run(root, lake, topics=[topic]).n_records == 5
    with pytest.raises(ValueError, match="topics must match"):
        run(root, lake, topics=[f"{topic[:-1]}*"])


def test_a_file_of_an_interrupted_run_that_is_gone_is_an_error(root, lake, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(exporting, "rename_new", _killed)
        with pytest.raises(KeyboardInterrupt):
            run(root, lake)
    [staged] = lake.parent.glob(".lake.kafkalog-export/new/**/*.parquet")
    staged.unlink()
    with fails_with("write_failed") as failed:
        run(root, lake)
    assert "export into a new directory" in str(failed.value)


def _killed(source, target):
    raise KeyboardInterrupt


def test_topics_that_readers_take_for_one_number_are_refused(tmp_path):
    root = tmp_path / "log"
    root.mkdir()
    for topic in ("007", "7", "x"):
        with kafkalog.PartitionWriter(root / f"{topic}-0") as writer:
            writer.append({"value": [b"v"]})
    with pytest.raises(ValueError, match="007 and 7"):
        kafkalog.export(root, tmp_path / "lake", partition_by=["topic"])
    assert kafkalog.export(root, tmp_path / "lake", partition_by=["topic"], topics=["007", "x"]).n_records == 2


@pytest.mark.slow
def test_readers_find_as_many_topics_as_an_export_has_or_it_is_refused(tmp_path):
    polars = pytest.importorskip("polars", reason="not tested here: polars is not installed")
    draw = random.Random(53)
    pool = [
        "007",
        "7",
        "-7",
        "-07",
        "7.0",
        "7.",
        ".5",
        "0.5",
        "1e1",
        "10",
        "0x0A",
        "1_0",
        "2024-1-1",
        "2024-01-01",
        "true",
        "TRUE",
        "null",
        "NULL",
        "nan",
        "NaN",
        "x",
        "X",
        "inf",
    ]
    pool += ["Infinity", "2024-01-01.x", "__HIVE_DEFAULT_PARTITION__"]
    root, refused = tmp_path / "log", []
    root.mkdir()
    for topic in pool:
        with kafkalog.PartitionWriter(root / f"{topic}-0") as writer:
            writer.append({"value": [topic.encode()]})
    for number in range(60):
        topics = draw.sample(pool, draw.randint(1, 3))
        lake = tmp_path / f"lake-{number}"
        try:
            kafkalog.export(root, lake, partition_by=["topic"], topics=topics)
        except ValueError as error:
            refused.append((topics, str(error)))
            continue
        files = f"{lake}/**/*.parquet"
        hive_files = f"read_parquet('{files}', hive_partitioning = true)"
        for found in (
            [row[0] for row in duckdb.sql(f"select topic from {hive_files}").fetchall()],
            pyarrow.dataset.dataset(lake, partitioning="hive").to_table()["topic"].to_pylist(),
            polars.scan_parquet(files, hive_partitioning=True).collect()["topic"].to_list(),
        ):
            assert None not in found
            assert len(set(found)) == len(topics), (topics, found)
    assert 5 < len(refused) < 45
    assert all(any(topic in text for topic in topics) for topics, text in refused)
