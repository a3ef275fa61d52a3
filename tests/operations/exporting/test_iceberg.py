"""Exports into an Iceberg table: rollbacks, expired snapshots, tables of others."""

import json
import random

import pytest
from effort import THOROUGH
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


@pytest.mark.parametrize(
    ("value", "names"),
    [
        ({"a.b": 1, "a": {"b": 2}}, 'value."a.b" and value.a.b'),
        ({"price": {"usd": 5.0}, "price.usd": 8.5}, "value.price.usd"),
        ({"a": [{"b": 1}], "a.element.b": 2}, 'value."a.element.b"'),
        ({"": 1, "x": 2}, 'value.""'),
        ({"1": 1, "_1": 2}, "value.1 and value._1"),
    ],
)
def test_names_that_iceberg_does_not_have_are_refused(lake, tmp_path, value, names):
    lake.path.mkdir()
    with kafkalog.PartitionWriter(tmp_path / "t-0") as writer:
        writer.append({"value": [json.dumps(value).encode()]})
    with pytest.raises(kafkalog.UnwritableError, match="Iceberg") as error:
        lake.run(tmp_path / "t-0", decode={"value": "json"}, partition_by=())
    assert names in str(error.value)
    assert not lake.exists()


def test_random_names_are_refused_or_written(tmp_path):
    """Whatever names JSON has: the values are in the table, or an error names the fields."""
    draw = random.Random(5)
    steps = ["a", "b", "a.b", "element", "", "1", "_1", "A", "a b", "a_x20b", "\u00e9", "007", "7"]

    def value(depth=0):
        names = draw.sample(steps, draw.randint(1, 3))
        inner = [1, {"b": 1}, [{"b": 1}]]
        return {name: value(1) if depth == 0 and draw.random() < 0.2 else draw.choice(inner) for name in names}

    n_written = 0
    n_names = 25 if THOROUGH else 9
    for number in range(n_names):
        expected = value()
        with kafkalog.PartitionWriter(tmp_path / f"t{number}-0") as writer:
            writer.append({"value": [json.dumps(expected).encode()]})
        table = Iceberg(tmp_path / f"lake-{number}")
        try:
            table.run(tmp_path, topics=f"t{number}", decode={"value": "json"}, partition_by=())
        except kafkalog.UnwritableError:
            continue
        n_written += 1
        assert [row["value"] for row in table.output.scan().to_arrow().to_pylist()] == [expected]
    assert n_names // 8 < n_written <= n_names - 3
