"""Exports into an Iceberg table: rollbacks, expired snapshots, tables of others."""

import pytest
from lakes import Iceberg, grow
from refusals import fails_with

import kafkalog
from kafkalog.operations.exporting import iceberg
from kafkalog.operations.exporting.export import Exporter

pytest.importorskip("pyiceberg_core", reason="not tested here: pyiceberg is not installed")


@pytest.fixture
def root(tmp_path):
    grow(tmp_path / "logs", 20)
    return tmp_path / "logs"


@pytest.fixture
def lake(tmp_path):
    return Iceberg(tmp_path / "lake")


def three_runs(root, lake):
    """Export three times; the ids of the snapshots."""
    ids = []
    for _ in range(3):
        assert lake.run(root).n_records > 0
        ids.append(lake.output.current_snapshot().snapshot_id)
        grow(root, 5)
    return ids


def test_offsets_outlive_snapshots(root, lake):
    first, second, third = three_runs(root, lake)
    lake.output.maintenance.expire_snapshots().by_ids([first, second]).commit()
    assert lake.run(root).n_records == 5
    assert lake.offsets() == [*range(35)]
    # other rows on top, and the snapshots of exports are gone
    last = lake.output.current_snapshot().snapshot_id
    lake.output.append(lake.output.scan(limit=1).to_arrow())
    lake.output.maintenance.expire_snapshots().by_ids([third, last]).commit()
    grow(root, 2)
    assert lake.run(root).n_records == 2


def test_a_table_that_was_rolled_back_is_refused(root, lake):
    first, second, _ = three_runs(root, lake)
    lake.output.manage_snapshots().rollback_to_snapshot(second).commit()
    with fails_with("file_changed"):
        lake.run(root)
    lake.output.maintenance.expire_snapshots().by_ids([first]).commit()
    with fails_with("file_changed"):
        lake.run(root)


def test_a_table_of_the_user(root, lake):
    names = ["offset", "value"]
    rows = kafkalog.read_table(root, columns=names)
    lake.catalog.create_namespace("kafka")
    made = lake.catalog.create_table("kafka.orders", rows.schema)
    # the table itself, instead of its name
    assert kafkalog.export(root, made, format="iceberg", columns=names, resume=True).n_records == 20
    grow(root, 1)
    assert Exporter(root, made, format="iceberg", columns=names, resume=True).run().n_records == 1
    assert made.refresh().scan().count() == 21
    other = lake.catalog.create_table("kafka.others", rows.schema)
    other.append(rows)
    with fails_with("output_exists"):
        kafkalog.export(root, other, format="iceberg", columns=names, resume=True)
    with pytest.raises(ValueError, match=r"CATALOG\.NAMESPACE\.TABLE"):
        kafkalog.export(root, "orders", format="iceberg", resume=True)


def test_each_data_file_has_a_name_of_its_own(root, lake, monkeypatch):
    monkeypatch.setattr(iceberg, "_CHUNK_BYTES", 1)
    grow(root, 5)
    assert lake.run(root, batch_size=7).n_files >= 4
    assert lake.offsets() == [*range(25)]


def test_a_run_that_dies_before_its_commit_has_added_nothing(root, lake, monkeypatch):
    from pyiceberg.table import Transaction

    def die(self):
        raise KeyboardInterrupt

    lake.run(root)
    grow(root, 3)
    with monkeypatch.context() as patch:
        patch.setattr(Transaction, "commit_transaction", die)
        with pytest.raises(KeyboardInterrupt):
            lake.run(root)
    assert lake.offsets() == [*range(20)]
    assert lake.run(root).n_records == 3
    assert lake.offsets() == [*range(23)]


def test_a_commit_whose_end_nobody_knows_is_found_out_by_the_next_run(root, lake, monkeypatch):
    from pyiceberg.exceptions import CommitStateUnknownException
    from pyiceberg.table import Transaction

    commit = Transaction.commit_transaction

    def then_lost(self):
        commit(self)
        raise CommitStateUnknownException("the connection was lost")

    lake.run(root)
    grow(root, 3)
    with monkeypatch.context() as patch:
        patch.setattr(Transaction, "commit_transaction", then_lost)
        with fails_with("write_failed"):
            lake.run(root)
    assert lake.run(root).n_records == 0
    assert lake.offsets() == [*range(23)]


def test_a_catalog_that_does_not_answer_is_an_error_of_kafkalog(root, monkeypatch):
    def refuse(name):
        raise RuntimeError("no answer")

    monkeypatch.setattr("pyiceberg.catalog.load_catalog", refuse)
    with fails_with("file_unreadable"):
        kafkalog.export(root, "lake.kafka.orders", format="iceberg", resume=True)
