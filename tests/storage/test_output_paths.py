"""Output never lands in what is read, nor where a broker would find foreign files."""

import os
import shutil

import pytest
from refusals import fails_with

import kafkalog
from kafkalog import format as kf
from kafkalog.errors import OutputExistsError, UnsafePathError
from kafkalog.storage.output_paths import check_outside, check_stage_in, fitting_name, named_partition
from kafkalog.storage.staging import staged_directory
from kafkalog.writing.job_directories import StagingArea


def test_output_is_refused_where_it_would_do_harm(log_dir_copy, tmp_path):
    partition = log_dir_copy / "p-multi-0"
    log = partition / "00000000000000000000.log"
    away = tmp_path / "away"
    away.mkdir()
    (away / "into").symlink_to(partition)
    for target, source in [
        (log_dir_copy / "x.parquet", log_dir_copy),
        (log_dir_copy / "deep" / "x.parquet", log_dir_copy),
        (log_dir_copy, log_dir_copy),
        (tmp_path, log_dir_copy),
        (partition / "x.parquet", partition),
        (log_dir_copy / "x.parquet", partition),  # beside a partition, in a log dir
        (log, log),
        (partition / "x.parquet", log),
        (away / "into" / "x.parquet", partition),
        (log_dir_copy / "x.parquet", away / "other"),  # into a log dir, whatever is read
    ]:
        with pytest.raises(UnsafePathError):
            check_outside(target, [source])
    check_outside(away / "x.parquet", [log_dir_copy, partition, log])
    lone = away / "segment.log"
    lone.write_bytes(log.read_bytes())
    check_outside(away / "x.parquet", [lone])
    copy = away / "orders-0"
    copy.mkdir()
    check_outside(away / "x.parquet", [copy])
    check_outside(copy / "x.parquet", [lone])  # named like a partition, and holds no segments


def test_what_an_earlier_run_wrote_is_there_already_and_no_danger(log_dir, tmp_path):
    for target in (log_dir, log_dir / "p-multi-1"):
        with pytest.raises(UnsafePathError):
            check_outside(target, [tmp_path])
    check_outside(shutil.copytree(log_dir / "p-multi-1", tmp_path / "p-multi-1"), [log_dir], is_new=True)
    with pytest.raises(UnsafePathError):
        check_outside(log_dir / "new", [tmp_path], is_new=True)
    again = {"output": shutil.copytree(log_dir, tmp_path / "out")}, {"in_place": True, "backup": tmp_path / "out"}
    for where in again:
        with pytest.raises(OutputExistsError):
            kafkalog.recover(shutil.copytree(log_dir, tmp_path / "log", dirs_exist_ok=True), **where)


def test_nothing_is_staged_where_partitions_lie(log_dir_copy, tmp_path):
    for name in os.listdir(log_dir_copy):
        if (log_dir_copy / name).is_file():
            (log_dir_copy / name).unlink()
    (log_dir_copy / "within").mkdir()
    (tmp_path / "link").symlink_to(log_dir_copy)
    for place in (log_dir_copy, log_dir_copy / "within", log_dir_copy / "within" / "absent", tmp_path / "link"):
        with fails_with("unsafe_path"):
            check_stage_in(place)
    with fails_with("unsafe_path"):
        check_stage_in(log_dir_copy / "p-multi-0")
    check_stage_in(log_dir_copy.parent)
    (log_dir_copy / "another").mkdir()  # whose parent is no log dir, as a broker would not start on it
    check_stage_in(log_dir_copy / "within")
    with pytest.raises(UnsafePathError):
        check_stage_in(log_dir_copy)
    (tmp_path / "stage").mkdir()
    (tmp_path / "stage" / "orders-0").mkdir()  # of the name alone
    check_stage_in(tmp_path / "stage")
    with staged_directory(tmp_path / "new") as directory:
        directory.create("orders-0/00000000000000000000.log").close()
        check_stage_in(directory.path)
    with pytest.raises(UnsafePathError):
        check_stage_in(tmp_path / "new")


@pytest.mark.parametrize("name", kf.LOG_DIR_FILES)
def test_each_file_that_only_log_dirs_have_tells_one(tmp_path, name):
    (tmp_path / "data").mkdir()
    check_outside(tmp_path / "data" / "out", [])
    (tmp_path / "data" / name).touch()
    with fails_with("unsafe_path"):
        check_outside(tmp_path / "data" / "out", [])


def test_whoever_is_told_where_to_stage_looks_first(log_dir_copy, tmp_path):
    for name in os.listdir(log_dir_copy):
        if (log_dir_copy / name).is_file():
            (log_dir_copy / name).unlink()
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker" / "meta.properties").write_text("version=0\n")
    record = {"value": [b""]}
    for action in (
        lambda: kafkalog.PartitionWriter(log_dir_copy / "new-0", stage_in=log_dir_copy),
        lambda: kafkalog.install(log_dir_copy / "p-multi-0", tmp_path / "broker", stage_in=log_dir_copy),
        lambda: kafkalog.write_table(record, tmp_path / "other", topic="t", stage_in=log_dir_copy),
        lambda: StagingArea.of(tmp_path / "other", log_dir_copy),
    ):
        with fails_with("unsafe_path"):
            action()


def test_output_to_a_url_is_refused_with_the_url_as_given():
    with fails_with("not_local"):
        check_outside("s3://bucket/lake", [])
    with fails_with("not_local"):
        staged_directory("s3://bucket/lake", overwrite=False).__enter__()


def test_names_that_are_made_fit_in_a_file_system(tmp_path):
    assert fitting_name("orders-0", ".x") == "orders-0.x"
    names = [fitting_name(stem, ".unverified.jsonl") for stem in ("t" * 249 + "-1", "t" * 249 + "-2", "\u00e9" * 200)]
    assert len({*names}) == 3
    for name in names:
        assert name.endswith(".unverified.jsonl")
        (tmp_path / name).touch()


def test_one_partition_goes_to_a_directory_named_like_one():
    assert named_partition("copy/orders-0", is_one=True) == kafkalog.TopicPartition("orders", 0)
    assert named_partition("copy/orders-0", is_one=False) is None
    assert named_partition("copy", is_one=True) is None
    assert named_partition(f"copy/orders-0.{'0' * 32}-delete", is_one=True) is None
