"""Requests to a store: those of planning and reading many partitions, counted."""

import threading
import time
from collections import Counter

import obstore
import pytest
from obstore.store import MemoryStore

import kafkalog
from kafkalog.operations.exporting.export import Exporter
from kafkalog.scanning.planning import plan
from kafkalog.storage import stores

N_PARTITIONS = 404


class Requests(Counter):
    """Requests by kind, and how many lists were under way at a time at most."""

    def __init__(self):
        super().__init__()
        self.n_open = self.n_most = 0
        self.lock = threading.Lock()


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A log dir of many small partitions, with the checkpoints of a broker."""
    root, made = tmp_path_factory.mktemp("many"), MemoryStore()
    with kafkalog.PartitionWriter(root / "t-0") as writer:
        writer.append({"value": [b"x"] * 3})
    files = {path.name: path.read_bytes() for path in (root / "t-0").iterdir()}
    for number in range(N_PARTITIONS):
        for name, data in files.items():
            obstore.put(made, f"log/t-{number}/{name}", data)
    obstore.put(made, "log/meta.properties", b"version=1\nbroker.id=1\n")
    return made


@pytest.fixture
def requests(monkeypatch):
    counted = Requests()

    def count(name, pause=0.0):
        real = getattr(stores.ObjectStore, name)

        def method(self, *arguments, **options):
            with counted.lock:
                counted[name] += 1
                counted.n_open += name == "list"
                counted.n_most = max(counted.n_most, counted.n_open)
            time.sleep(pause)
            try:
                return real(self, *arguments, **options)
            finally:
                with counted.lock:
                    counted.n_open -= name == "list"

        monkeypatch.setattr(stores.ObjectStore, name, method)

    count("list", 0.002)
    count("status")
    count("range")
    return counted


def test_a_plan_lists_each_partition_once_and_asks_for_nothing_that_the_listing_does_not_show(store, requests):
    planned = plan(kafkalog.location("log", filesystem=store))
    assert sum(len(task.parts) for task in planned.tasks) == N_PARTITIONS
    assert requests == {"list": N_PARTITIONS + 1}
    assert requests.n_most > 4


def test_an_export_takes_a_few_requests_for_each_partition(store, requests, tmp_path):
    options = {"format": "parquet", "resume": True, "partition_by": ["topic"]}
    exporter = Exporter(kafkalog.location("log", filesystem=store), tmp_path / "lake", **options)
    assert requests["list"] == N_PARTITIONS + 1
    assert exporter.run().n_records == 3 * N_PARTITIONS
    assert requests["list"] == N_PARTITIONS + 1
    assert requests["status"] == 0
    # the end of the log, its last batch, and its records
    assert requests["range"] <= 3 * N_PARTITIONS


def test_the_first_records_take_a_few_lists(store, requests):
    assert kafkalog.scan(kafkalog.location("log", filesystem=store)).head(2).num_rows == 2
    assert requests["list"] < 100
