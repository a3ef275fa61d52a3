"""Exports into a Delta table: what its log keeps, and what it may not forget."""

import os
import sys

import pyarrow as pa
import pytest
from lakes import Delta, grow
from refusals import fails_with

import kafkalog
from kafkalog.cli.app import main
from kafkalog.interchange import record_writers
from kafkalog.operations.exporting import delta
from kafkalog.operations.exporting.delta import PROPERTY
from kafkalog.operations.exporting.export import Exporter

deltalake = pytest.importorskip("deltalake", reason="not tested here: deltalake is not installed")


@pytest.fixture
def root(tmp_path):
    grow(tmp_path / "logs", 20)
    return tmp_path / "logs"


@pytest.fixture
def lake(tmp_path):
    (tmp_path / "lake").mkdir()
    return Delta(tmp_path / "lake")


def test_offsets_outlive_checkpoints_compaction_and_vacuum(root, lake):
    for _ in range(4):
        lake.run(root)
        grow(root, 3)
    table = lake.table()
    table.optimize.compact()
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    table.create_checkpoint()
    for version in range(table.version()):
        (lake.output / "_delta_log" / f"{version:020}.json").unlink()  # as a cleanup of the table's log does
    assert lake.run(root).n_records == 3
    assert lake.offsets() == [*range(32)]


def test_rows_of_others_stay_and_their_tables_are_refused(root, lake):
    names = ["offset", "value"]
    rows = kafkalog.read_table(root, columns=names)
    deltalake.write_deltalake(lake.output, rows)
    with fails_with("output_exists"):
        lake.run(root, columns=names)
    lake.table().delete()
    assert lake.run(root, columns=names, partition_by=()).n_records == 20  # an empty table of the user is taken
    deltalake.write_deltalake(lake.output, rows, mode="append")
    grow(root, 1)
    assert lake.run(root, columns=names, partition_by=()).n_records == 1
    assert lake.table().count() == 41
    with pytest.raises(ValueError, match="partition_by"):
        lake.run(root, columns=names)


def test_a_table_without_a_column_gets_it(root, lake):
    deltalake.DeltaTable.create(lake.output, pa.schema([("own", pa.int64()), ("offset", pa.int64())]))
    lake.run(root, columns=["offset", "value"], partition_by=())
    found = lake.table().to_pyarrow_table()
    assert found.schema.names == ["own", "offset", "value"]
    assert found.column("own").null_count == found.num_rows == 20


def test_a_table_that_forgets_transactions_is_refused(root, lake):
    lake.run(root)
    lake.table().alter.set_table_properties({"delta.setTransactionRetentionDuration": "interval 1 days"})
    with pytest.raises(ValueError, match="delta"):
        lake.run(root)


def test_what_is_no_table_is_refused(root, lake):
    lake.output.mkdir()
    (lake.output / "notes.txt").touch()
    with fails_with("output_exists"):
        lake.run(root)
    (lake.output / "notes.txt").unlink()
    lake.run(root)
    lake.table().alter.set_table_properties({PROPERTY: "{}"}, raise_if_not_exists=False)
    with fails_with("checkpoint_syntax"):
        lake.run(root)


def test_a_run_that_dies_before_its_rows_has_added_none(root, lake, monkeypatch):
    def die(*arguments, **options):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(deltalake.DeltaTable, "create_write_transaction", die)
        with pytest.raises(KeyboardInterrupt):
            lake.run(root)
    assert not lake.output.exists()
    assert lake.run(root).n_records == 20


def test_a_table_whose_log_is_damaged_is_an_error_of_kafkalog(root, lake):
    lake.run(root)
    for path in (lake.output / "_delta_log").glob("*.json"):
        path.write_text("{")
    with fails_with("file_unreadable"):
        lake.run(root)


def test_what_the_command_line_says_without_the_library(root, lake, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "deltalake", None)
    assert main(["export", str(root), "-o", lake.name, "--format", "delta", "--resume"]) == 2
    assert "pip install 'kafkalog[delta]'" in capsys.readouterr().err


def test_a_local_table_is_durable_when_the_export_ends(root, lake, monkeypatch):
    synced = set()

    def fsync(descriptor, real=os.fsync):
        synced.add(os.fstat(descriptor).st_ino)
        real(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    for _ in range(2):
        before = {*lake.output.rglob("*")}
        assert lake.run(root).n_records
        grow(root, 3)
        new = {*lake.output.rglob("*")} - before
        assert {path.suffix for path in new} >= {".json", ".parquet"}
        changed = {*new, *(path.parent for path in new)}
        assert {path.stat().st_ino for path in changed if not path.name.startswith(".")} <= synced


def test_a_table_of_the_user_keeps_its_partitioning(root, lake):
    own = pa.schema([("value", pa.binary()), ("leader_epoch", pa.int32()), ("topic", pa.string()), ("own", pa.bool_())])
    deltalake.DeltaTable.create(lake.output, own, partition_by=["leader_epoch", "topic", "own"])
    grow(root, 5, leader_epoch=7)
    options = {"columns": ["offset", "value", "topic", "leader_epoch"], "partition_by": ()}
    lake.run(root, **options)
    found = lake.table().to_pyarrow_table().to_pylist()
    truth = kafkalog.read_table(root, columns=["offset", "value", "topic", "leader_epoch"]).to_pylist()
    assert sorted(found, key=lambda row: row["offset"]) == [{**row, "own": None} for row in truth]
    (epochs,) = {tuple(lake.table().get_add_actions(flatten=True)["partition.leader_epoch"].to_pylist())}
    assert sorted(epochs) == [0, 7]


def test_a_table_with_constraints_is_refused(root, lake):
    deltalake.DeltaTable.create(lake.output, pa.schema([("offset", pa.int64())]))
    lake.table().alter.add_constraint({"small": "offset < 3"})
    with pytest.raises(ValueError, match=r"delta\.constraints\.small"):
        lake.run(root, columns=["offset"], partition_by=())
    assert lake.table().count() == 0


def test_the_log_has_the_bounds_that_deltas_own_writer_gives(tmp_path, lake):
    """Of columns for which kafkalog gives any; where it gives none, readers skip nothing."""
    values = [
        b'{"n": %d, "t": "\xc3\xa4%d", "in": {"b": true, "n": %d, "f": 0.5}}' % (at, at, at % 3) for at in range(9)
    ]
    with kafkalog.PartitionWriter(tmp_path / "orders-0") as writer:
        values[4] = b'{"n": null}'
        writer.append({"value": values, "key": [b"k"] * 9, "timestamp": [10**12 + at for at in range(9)]})
    options = {"decode": {"value": "json"}, "columns": ["offset", "key", "value", "timestamp"]}
    lake.run(tmp_path / "orders-0", **options)
    theirs = lake.path / "theirs"
    deltalake.write_deltalake(theirs, lake.table().to_pyarrow_table(), partition_by=["topic", "partition"])
    rows = [
        pa.table(one.get_add_actions(flatten=True))
        .drop_columns(["path", "size_bytes", "modification_time"])
        .to_pylist()
        for one in (lake.table(), deltalake.DeltaTable(theirs))
    ]
    ((ours,), (others,)) = rows
    given = {name: value for name, value in ours.items() if value is not None}
    # theirs has no counts of nulls of bytes
    assert given == {name: given[name] if others[name] is None else others[name] for name in given}
    assert {"min.offset", "max.timestamp", "min.value.in.n", "max.value.t", "null_count.value.n"} <= given.keys()
    assert "min.value.in.f" not in given


def test_rows_of_any_width_and_length_end_files_in_time(root, lake, monkeypatch):
    monkeypatch.setattr(delta, "_FILE_BYTES", 1)
    monkeypatch.setattr(record_writers, "ROW_GROUP_BYTES", 100)
    lake.run(root, batch_size=3)
    assert lake.offsets() == [*range(20)]
    assert len(lake.files()) > 3


def test_of_two_first_exports_the_one_that_fails_leaves_the_table_of_the_other(root, tmp_path):
    first, second = (delta_exporter(root, tmp_path / "table") for _ in range(2))
    first.run()
    before = sorted(path.relative_to(tmp_path) for path in (tmp_path / "table").rglob("*"))
    with pytest.raises(kafkalog.errors.KafkalogError):
        second.run()
    assert sorted(path.relative_to(tmp_path) for path in (tmp_path / "table").rglob("*")) == before


def delta_exporter(root, table):
    """An export that has seen no table yet."""
    return Exporter(root, table, format="delta", resume=True)
