"""The functions that read, as methods of a log dir, a partition and a segment."""

import pytest

import kafkalog


@pytest.fixture(params=["log dir", "partition", "segment"])
def target(request, log_dir):
    opened = kafkalog.open(log_dir)
    assert isinstance(opened, kafkalog.LogDir)
    partition = opened["p-multi", 0]
    return {"log dir": opened, "partition": partition, "segment": partition.segments[0]}[request.param]


def test_records_are_those_of_the_functions(target):
    options = {"columns": ["offset", "value"], "end_offset": 30}
    table = kafkalog.read_table(target, **options)
    assert len(table) > 20
    assert target.to_table(**options).equals(table)
    assert target.scan(**options).to_table().equals(table)
    assert target.to_pandas(**options).equals(kafkalog.read_pandas(target, **options))
    assert target.to_polars(**options).to_arrow()["offset"].equals(table["offset"])
    assert target.to_numpy(**options).offset.tolist() == table["offset"].to_pylist()
    assert target.count_rows(**options) == len(table)
    assert target.head(3, **options).equals(table.slice(0, 3))
    last = target.tail(3, **options)["offset"].to_pylist()
    assert last[-3:] == table["offset"].to_pylist()[-3:]
    assert [record.offset for record in target.cat(end_offset=30)] == table["offset"].to_pylist()


def test_facts_are_those_of_the_functions(target):
    assert target.ls() == kafkalog.ls(target)
    found = target.lookup(offset=5)
    assert found
    assert [trace.offset for trace in found] == [trace.offset for trace in kafkalog.lookup(target, offset=5)]
    assert target.verify().ok
    if not isinstance(target, kafkalog.Segment):
        assert [one.path for one in target.producers()] == [one.path for one in kafkalog.producers(target)]
        assert [one.as_dict() for one in target.epochs()] == [one.as_dict() for one in kafkalog.epochs(target)]


def test_completion_shows_public_names_alone(target):
    shown = dir(target)
    assert {"scan", "verify", "path" if not isinstance(target, kafkalog.LogDir) else "paths"} <= set(shown)
    assert not [name for name in shown if name.startswith("_")]


def test_a_notebook_shows_a_row_for_each_segment(log_dir):
    partition = kafkalog.Partition(log_dir / "p-txn-0")
    shown = partition._repr_html_()
    assert len(partition.segments) > 1
    assert all(segment.path.name in shown for segment in partition.segments)


def test_completion_lists_public_names(log_dir):
    partition = kafkalog.open_partition(log_dir / "p-multi-0")
    segment = partition.segments[0]
    records = segment.to_numpy()
    for value in (
        kafkalog.open_log_dir(log_dir),
        partition,
        segment,
        kafkalog.scan(log_dir),
        segment.batches,
        segment.offset_index,
        records,
        records.key,
        records.headers,
        kafkalog.verify(partition),
    ):
        names = dir(value)
        assert names
        assert not [name for name in names if name.startswith("_")], type(value)


def test_classes_and_modules_show_public_names_alone(target):
    internal = {"believed_entry", "witnesses", "reader", "learn_outcomes", "part"}
    shown = {*dir(target), *(dir(type(target)) if not isinstance(target, kafkalog.LogDir) else ())}
    assert "scan" in shown
    assert not internal & shown
    assert not [name for name in shown if name.startswith("_")]
    # what is left out is there
    assert all(hasattr(target, name) for name in type(target)._internal)
    assert [name for name in dir(kafkalog.functions) if name[0] != "_"] == sorted(kafkalog.functions.__all__)
    public = {name for name in vars(kafkalog.functions) if name in kafkalog.functions.HELPERS and name[0] != "_"}
    assert set(kafkalog.functions.__all__) == public
