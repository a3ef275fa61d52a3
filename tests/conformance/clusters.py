"""Clusters of brokers: those that boot made, and three that tests kill."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
from contextlib import contextmanager, suppress
from pathlib import Path

from conformance.jars import KAFKA_VERSION, class_path, java
from conformance.kafka import CENTURY_MS, TIMELESS, Broker, free_ports, jvm, lines_said, wait_until

KNOWN = (
    *("Performing controller activation", "NetworkClient that has already been closed"),
    "apiKey=CONTROLLER_REGISTRATION",
)
"""The lines with which starts of 4.3 complain; the last one where a controller asks before one is elected."""


class BootedBroker(Broker):
    """A broker on one node of a boot: its properties and its log dir are those that boot made."""

    def __init__(self, folder, address, **options):
        super().__init__(folder, **options)
        self.address = address

    def _prepare(self):
        # a segment that is older than a week is rolled, and what was the last one is cleaned then
        properties = TIMELESS | {"log.roll.ms": CENTURY_MS} | self.properties
        with (self.folder / "server.properties").open("a") as file:
            file.writelines(f"{name}={value}\n" for name, value in properties.items())

    def _write_properties(self):
        pass


def listeners(n=1):
    ports = free_ports(2 * n)
    return [f"127.0.0.1:{ports[2 * i]}:{ports[2 * i + 1]}" for i in range(n)]


@contextmanager
def served(client, report, *, complains=False, leaderless=False, version=KAFKA_VERSION, **properties):
    """The nodes of a boot, running; nothing of them is set apart, and no line complains.

    `leaderless` partitions are elected first, by the command that the report of a rescue names.
    """
    jars = class_path(java(), version)
    nodes = [(Path(node.directory), node.listener) for node in report.nodes]
    brokers = [BootedBroker(*node, jars=jars, **properties) for node in nodes]
    try:
        # all of them: none is ready without a quorum
        for broker in brokers:
            broker.begin()
        for broker in brokers:
            wait_until(broker.has_started, "the broker starts")
        client.server = brokers[0].address
        wait_until(lambda: is_ready(client, brokers[0] if leaderless else None), "every partition has a leader")
        yield brokers
        said = {broker.log_dir: broker.log.read_text() for broker in brokers}
        for broker in brokers:
            # the last ones of a quorum wait for the others in vain
            broker.stop() if len(brokers) == 1 else broker.kill()
    finally:
        for broker in brokers:
            if broker.is_running:
                broker.kill()
    for log_dir, text in said.items():
        assert not [path.name for path in log_dir.iterdir() if path.name.endswith(("-stray", "-delete"))]
        lines = [line for line in lines_said(text) if " WARN " in line or " ERROR " in line]
        # nodes of a quorum look for one another until all are there
        known = (
            KNOWN
            if len(brokers) == 1
            else (*KNOWN, "could not be established", "kafka.raft", "Error in response for fetch request")
        )
        assert complains or [line for line in lines if not any(words in line for words in known)] == []


def is_ready(client, elect=None):
    """Whether every partition has a leader; with several nodes that takes longer than the client waits.

    `elect` is a broker that is asked for an unclean election before that.
    """
    if elect is not None:
        # fails while some of the lost nodes still count as running
        with suppress(AssertionError):
            elect.tool("LeaderElectionCommand", "--all-topic-partitions", "--election-type", "UNCLEAN")
    try:
        client.ask("ready")
    except RuntimeError:
        return False
    return True


@contextmanager
def three_brokers(folder, client, version=KAFKA_VERSION, **properties):
    """Three stock nodes, each a broker and a controller, which the client knows; none is left behind."""
    ports = free_ports(6)
    voters = ",".join(f"{number}@127.0.0.1:{ports[number + 2]}" for number in (1, 2, 3))
    brokers = []
    for number in (1, 2, 3):
        (folder / f"node-{number}").mkdir(parents=True)
        listener = f"PLAINTEXT://127.0.0.1:{ports[number - 1]}"
        own = {
            "node.id": number,
            "controller.quorum.voters": voters,
            "listeners": f"{listener},CONTROLLER://127.0.0.1:{ports[number + 2]}",
            "advertised.listeners": listener,
            "offsets.topic.replication.factor": 3,
            "transaction.state.log.replication.factor": 3,
        }
        jars = class_path(java(), version)
        brokers.append(Broker(folder / f"node-{number}", jars=jars, **own, **properties))
    try:
        for broker in brokers:
            broker.begin()
        # all of them: a topic needs three
        for broker in brokers:
            wait_until(broker.has_started, "the broker starts")
        client.server = f"127.0.0.1:{ports[0]}"
        wait_until(lambda: is_ready(client), "three brokers are there")
        yield brokers
    finally:
        for broker in brokers:
            if broker.is_running:
                broker.kill()


TOOLS = {
    "kafka-topics.sh": "org.apache.kafka.tools.TopicCommand",
    "kafka-configs.sh": "kafka.admin.ConfigCommand",
    "kafka-transactions.sh": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-features.sh": "org.apache.kafka.tools.FeatureCommand",
}
"""The programs of Kafka's scripts."""


def run_commands(commands, folder, version=KAFKA_VERSION):
    """Run the lines of a report in a shell, as somebody who pastes them; the first one has started the broker.

    The tools of releases after 4.3 are not published: those of 4.3 run with the classes of the release.
    """
    later = class_path(java(), version) + os.pathsep if version > KAFKA_VERSION else ""
    jars = later + class_path(java())
    (folder / "bin").mkdir()
    for name, program in {**TOOLS, "kafka-server-start.sh": None}.items():
        line = "exit 0" if program is None else f'exec {shlex.join(jvm(program, jars=jars))} "$@"'
        (folder / "bin" / name).write_text(f"#!/bin/sh\n{line}\n")
        (folder / "bin" / name).chmod(0o755)
    path = f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}"
    script = "\n".join(["set -e", *commands])
    done = subprocess.run(
        ["sh", "-c", script], env=os.environ | {"PATH": path}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree(folder / "bin")
