"""The broker that all tests here share: its life is told once a session."""

import json

import pytest
from conformance.history import History
from conformance.jars import class_path, fetch_all, java
from conformance.kafka import Broker, Client


def pytest_collection_finish(session):
    """Fetch the jars before the first test, whose time would not be enough for it."""
    wanted = any(item.get_closest_marker("broker") for item in session.items)
    if wanted and not session.config.option.collectonly:
        fetch_all()


@pytest.fixture(scope="session")
def client(tmp_path_factory):
    """Kafka's Java classes and clients; a broker need not run for the former."""
    program = java()
    client = Client(program, class_path(program), tmp_path_factory.mktemp("client"))
    yield client
    client.close()


@pytest.fixture(scope="session")
def history(tmp_path_factory, client):
    """The broker, still running, and what it left behind before."""
    program = java()
    jars = class_path(program)
    folder = tmp_path_factory.mktemp("kafka")
    broker = None
    try:
        properties = {
            # a killed broker may register again only when its session is over
            "broker.session.timeout.ms": 2500,
            "broker.heartbeat.interval.ms": 500,
            "log.cleaner.backoff.ms": 200,
            "log.cleaner.dedupe.buffer.size": 8_000_000,
            "log.initial.task.delay.ms": 500,
            "log.flush.start.offset.checkpoint.interval.ms": 400,
        }
        broker = Broker(program, jars, folder, **properties)
        history = History(broker, client)
        (folder / "seconds.json").write_text(json.dumps(history.seconds))
        yield history
    finally:
        if broker is not None and broker.is_running:
            broker.kill()
