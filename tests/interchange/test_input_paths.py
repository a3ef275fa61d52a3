"""A directory stands for the files in it, and what the names of directories say is a column of them."""

import os

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from refusals import fails_with

import kafkalog
from kafkalog import load, write_table
from kafkalog.errors import NotKafkaError, Reason
from kafkalog.interchange.input_paths import input_files


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def test_parts_are_read_in_the_order_of_their_numbers(tmp_path):
    for number in (10, 9, 2, 0, 1):
        write(tmp_path / "topic=t" / f"part-{number}.parquet", value=[b"%d" % number], offset=[number])
    write(tmp_path / "topic=t" / "date=2024-01-01" / "part-0.parquet", value=[b"11"], offset=[11])
    load([tmp_path / "topic=t"], tmp_path / "log")
    assert kafkalog.read_table(tmp_path / "log").column("offset").to_pylist() == [0, 1, 2, 9, 10, 11]


def test_hidden_names_and_other_files_are_passed_over(tmp_path):
    for name in ("a.parquet", "deep/b.pq", "deep/deeper/c.csv.gz"):
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).touch()
    for name in (".a.parquet", "_b.parquet", ".hidden/c.parquet", "_delta_log/d.parquet", "README.md", "_SUCCESS", "x"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    def found(format):
        return [os.path.relpath(str(each.path), tmp_path) for each in input_files([tmp_path], format=format)]

    assert found(None) == ["a.parquet", "deep/b.pq", "deep/deeper/c.csv.gz"]
    assert found("csv") == ["deep/deeper/c.csv.gz"]


def test_a_column_of_the_file_counts_before_its_path_and_an_option_before_both(tmp_path):
    file = write(tmp_path / "topic=path" / "partition=3" / "x.parquet", value=[b"a", b"b"], partition=[5, 6])
    for inputs in ([file], [tmp_path / "topic=path"], [str(tmp_path)]):
        result = load(inputs, tmp_path / "log", dry_run=True)
        assert [(each.topic, each.partition) for each in result.partitions] == [("path", 5), ("path", 6)]
    result = load([file], tmp_path / "log", dry_run=True, topic="option", partitions=1)
    assert [(each.topic, each.partition) for each in result.partitions] == [("option", 0)]
    file = write(tmp_path / "source=path" / "p=3" / "x.parquet", value=[b"a"])
    names = {"topic": "source", "partition": "p"}
    (each,) = load([file], tmp_path / "log", dry_run=True, columns=names).partitions
    assert (each.topic, each.partition) == ("path", 3)


def test_of_two_names_the_inner_one_counts_and_null_is_none(tmp_path):
    file = write(tmp_path / "topic=outer" / "topic=in%2Dner" / "x.parquet", value=[b"a"])
    (each,) = load([file], tmp_path / "log", dry_run=True).partitions
    assert each.topic == "in-ner"
    file = write(tmp_path / "topic=__HIVE_DEFAULT_PARTITION__" / "x.parquet", value=[b"a"])
    with fails_with("column_missing"):
        load([file], tmp_path / "log")
    assert load([file], tmp_path / "log", topic="t", dry_run=True).n_records == 1


@pytest.mark.parametrize("number", ["x", "-1", "2147483648", "", "1.0", "²"])
def test_a_path_that_says_no_partition_is_refused(tmp_path, number):
    file = write(tmp_path / "topic=t" / f"partition={number}" / "x.parquet", value=[b"a"])
    with fails_with("column_value") as caught:
        load([tmp_path / "topic=t"], tmp_path / "log")
    assert caught.value.path == str(file)
    write(file, value=[b"a"], partition=[1])
    assert load([tmp_path / "topic=t"], tmp_path / "log", dry_run=True).n_records == 1


def test_a_directory_without_records_is_refused_with_what_helps(tmp_path):
    (tmp_path / "empty" / "below").mkdir(parents=True)
    with fails_with("not_a_file"):
        load([tmp_path / "empty"], tmp_path / "out", topic="t")
    write_table({"value": [b""]}, tmp_path / "log", topic="t")
    for path in (tmp_path / "log", tmp_path / "log" / "t-0"):
        with fails_with("not_a_file"):
            load([path], tmp_path / "out", topic="t")
    assert not (tmp_path / "out").exists()


def test_links_that_lead_out_and_files_that_are_none_are_refused(tmp_path):
    write(tmp_path / "in" / "a.parquet", value=[b"a"])
    (tmp_path / "in" / "same.parquet").symlink_to("a.parquet")
    (tmp_path / "in" / "around").symlink_to(tmp_path / "in")
    assert load([tmp_path / "in"], tmp_path / "log", topic="t", dry_run=True).n_records == 2
    (tmp_path / "entry").symlink_to(tmp_path / "in")  # one that was named is followed
    assert load([tmp_path / "entry"], tmp_path / "log", topic="t", dry_run=True).n_records == 2
    write(tmp_path / "out" / "b.parquet", value=[b"b"])
    for link, target in (("b.parquet", tmp_path / "out" / "b.parquet"), ("folder", tmp_path / "out")):
        (tmp_path / "in" / link).symlink_to(target)
        with pytest.raises(NotKafkaError) as caught:
            load([tmp_path / "in"], tmp_path / "log", topic="t")
        assert caught.value.reason is Reason.LINK_OUTSIDE
        (tmp_path / "in" / link).unlink()
    os.mkfifo(tmp_path / "in" / "pipe.csv")
    with fails_with("not_a_file"):
        load([tmp_path / "in"], tmp_path / "log", topic="t")


def test_a_directory_that_cannot_be_read_is_said(tmp_path, monkeypatch):
    write(tmp_path / "in" / "closed" / "a.parquet", value=[b"a"])
    scan = os.scandir

    def refusing(path):
        if str(path).endswith("closed"):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refusing)
    with fails_with("file_unreadable"):
        input_files([tmp_path / "in"])
