"""The broker that all tests here share: its life is told once a session."""

import pytest
from conformance.history import History
from conformance.jars import fetch_all
from conformance.kafka import Broker, Client


def pytest_collection_finish(session):
    """Fetch the jars before the first test, whose time would not be enough for it."""
    wanted = any(item.get_closest_marker("broker") for item in session.items)
    if wanted and not session.config.option.collectonly:
        fetch_all()


@pytest.fixture(scope="session")
def client(tmp_path_factory):
    """Kafka's Java classes and clients; a broker need not run for the former."""
    with Client(tmp_path_factory.mktemp("client")) as client:
        yield client


@pytest.fixture(scope="session")
def history(tmp_path_factory, client):
    """The broker, still running, and what it left behind before."""
    properties = {
        # a killed broker may register again only when its session is over
        "broker.session.timeout.ms": 2500,
        "broker.heartbeat.interval.ms": 500,
        "log.cleaner.backoff.ms": 200,
        "log.cleaner.dedupe.buffer.size": 8_000_000,
        "log.initial.task.delay.ms": 500,
        "log.flush.start.offset.checkpoint.interval.ms": 400,
    }
    with Broker(tmp_path_factory.mktemp("kafka"), **properties) as broker:
        yield History(broker, client)
