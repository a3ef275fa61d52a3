"""A real broker to read behind: a KRaft broker on loopback, Kafka's own clients behind a pipe."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Any, NamedTuple

from conformance.jars import class_path, java

QUICK_JVM = (
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+IgnoreUnrecognizedVMOptions"),
    # classes of Kafka's own jars need no verification, which takes a sixth of a start
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),
)
"""Options for a JVM that lives for seconds."""
_QUICK_JVM = (*QUICK_JVM, "-Dorg.slf4j.simpleLogger.showDateTime=true")
_OVERLOADED = re.compile(
    r"\bcontroller event queue overloaded\. Timed out heartbeat from broker \d+\.$"
    r"|\bExceptionally slow controller event \S+ took \d+ ms\.$"
)
_CLIENT = Path(__file__).with_name("Client.java")


def wait_until(reached, what, seconds=60):
    """Poll until something holds."""
    deadline = time.monotonic() + seconds
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {seconds:g} s")
        time.sleep(0.05)


class Client:
    """Kafka's Java clients in a JVM of their own; a command is answered before the next one is sent."""

    def __init__(self, java, jars, folder, *options):
        self.server = ""
        self._log = folder / "client.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(java, "-Xmx512m", *_QUICK_JVM, "-Dorg.slf4j.simpleLogger.defaultLogLevel=error"),
                    *(*options, "-cp", jars, str(_CLIENT)),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
            )

    def ask(self, command, **options):
        """What the client answers; what it threw is raised."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"do": command, "server": self.server, **options}) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the Java client is gone:\n{self._log.read_text()[-3000:]}")
        answer = json.loads(line)
        if "error" in answer:
            raise RuntimeError(f"{command}: {answer['error']}")
        return answer

    def consume(self, file, topics=None, **options):
        """Everything that a consumer gets.

        Parameters
        ----------
        file : Path
            Where the client may write it to.
        topics : list of str, optional
        **options
            ``isolation`` is "read_uncommitted" if left out; ``from`` is an offset to begin at.
        """
        answer = self.ask("consume", file=str(file), topics=topics or [], **options)
        by_topic = {topic: [] for topic, _ in answer["partitions"]}
        with file.open(encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                for name in ("key", "value"):
                    record[name] = _bytes(record[name])
                record["headers"] = [(name, _bytes(value)) for name, value in record["headers"]]
                by_topic[record["topic"]].append(record)
        return Truth(by_topic, sorted((topic, partition) for topic, partition in answer["partitions"]))

    def last_stable_offsets(self):
        """What the broker lists with isolation `read_committed`."""
        return {(topic, partition): offset for topic, partition, offset in self.ask("stable")["partitions"]}

    def kill(self):
        """End the JVM at once; a command that it has not answered is an error."""
        self._process.kill()

    def close(self):
        """End the JVM."""
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self._process.kill()


class Truth(NamedTuple):
    """What a consumer got: records by topic, sorted by partition and offset; and which partitions there are."""

    records: dict[str, list[dict[str, Any]]]
    partitions: list[tuple[str, int]]


def _bytes(text):
    return None if text is None else base64.b64decode(text)


class Broker:
    """A KRaft broker and controller in one process; its log dir outlives it."""

    _started = "Kafka Server started"

    def __init__(self, java, jars, folder, **properties):
        self.folder = folder
        self.log_dir = folder / "data"
        self.address = ""
        self._java, self._jars = java, jars
        self.properties = properties
        self._process = None
        self._n_starts = 0
        self._prepare()

    def _prepare(self):
        self._write_properties()
        subprocess.run(
            [
                *(self._java, *_QUICK_JVM, "-cp", self._jars, "kafka.tools.StorageTool", "format"),
                *("--cluster-id", "kafkalogConformance01w", "--config", str(self.folder / "server.properties")),
            ],
            check=True,
            capture_output=True,
        )

    def _role(self):
        """Properties of the broker's part in the cluster, with ports that are free now."""
        port, controller = free_ports(2)
        self.address = f"127.0.0.1:{port}"
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "listeners": f"PLAINTEXT://{self.address},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
        }

    def _write_properties(self):
        properties = {
            **self._role(),
            "log.dirs": self.log_dir,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 2,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 2,
            # transactions that tests leave open stay open until the end, however slow the machine is
            "transaction.max.timeout.ms": 7_200_000,
            "group.initial.rebalance.delay.ms": 0,
            "auto.create.topics.enable": "false",
            "message.max.bytes": 4_000_000,
            **self.properties,
        }
        lines = "".join(f"{name}={value}\n" for name, value in properties.items())
        (self.folder / "server.properties").write_text(lines)

    @property
    def log(self):
        """What the broker of the last start said."""
        return self.folder / f"server-{self._n_starts}.log"

    @property
    def is_running(self):
        """Whether the process is there."""
        return self._process is not None and self._process.poll() is None

    def begin(self):
        """Begin to boot."""
        self._n_starts += 1
        self._write_properties()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [
                    *(self._java, "-Xmx448m", *_QUICK_JVM, "-cp", self._jars),
                    *("kafka.Kafka", str(self.folder / "server.properties")),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def start(self):
        """Boot, and wait until the broker says that it has started."""
        for attempt in range(3):
            self.begin()
            wait_until(lambda: not self.is_running or self._said(self._started), "the broker starts", 200)
            if self.is_running:
                return
            # somebody else may have taken a port in the meantime
            if attempt == 2 or not (self._said("BindException") or self._said("Address already in use")):
                raise RuntimeError(f"the broker did not start:\n{self.log.read_text()[-4000:]}")

    def has_started(self):
        """Whether it says that it has started; raises if it died."""
        assert self.is_running, self.log.read_text()[-4000:]
        return self._said(self._started)

    def _said(self, words):
        return words in self.log.read_text(errors="replace")

    def stop(self):
        """A clean shutdown."""
        self._end(signal.SIGTERM)

    def kill(self):
        """As a crash of the process: what it wrote is there, what it would have tidied up is not."""
        self._end(signal.SIGKILL)

    def _end(self, how):
        if self._process is None:
            return
        self._process.send_signal(how)
        try:
            self._process.wait(90)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(90)
            raise


class BrokerLife:
    """A broker that is stopped and started again, with Kafka's clients turned to it.

    Attributes
    ----------
    folder : Path
        Where client and broker have their files.
    client : Client
    broker : Broker
    logs : list of str
        What the broker said in each of its lives that are over.
    """

    def __init__(self, folder, **properties):
        program = java()
        jars = class_path(program)
        self.folder = folder
        self.client = Client(program, jars, folder)
        self.broker = Broker(program, jars, folder, **properties)
        self.logs = []

    @property
    def log_dir(self):
        """The broker's."""
        return self.broker.log_dir

    def boot(self):
        """Start the broker, and wait until every partition has a leader."""
        self.broker.start()
        self.client.server = self.broker.address
        self.client.ask("ready")

    def stop(self):
        """A clean shutdown."""
        self.broker.stop()
        self.logs.append(self.broker.log.read_text())

    def end(self):
        """Leave no process behind."""
        self.client.close()
        if self.broker.is_running:
            self.broker.kill()


class OldBroker(Broker):
    """A 2.8 broker, and the ZooKeeper that it cannot do without; `close` ends the latter."""

    _started = "kafka.server.KafkaServer - [KafkaServer id=1] started"

    def _prepare(self):
        (self._zookeeper_port,) = free_ports(1)
        properties = self.folder / "zookeeper.properties"
        properties.write_text(
            f"tickTime=500\ndataDir={self.folder / 'zookeeper'}\nclientPort={self._zookeeper_port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n"
        )
        self._zookeeper_log = self.folder / "zookeeper.log"
        with self._zookeeper_log.open("wb") as said:
            self._zookeeper = subprocess.Popen(
                [
                    *(self._java, "-Xmx128m", *_QUICK_JVM, "-cp", self._jars),
                    *("org.apache.zookeeper.server.quorum.QuorumPeerMain", str(properties)),
                ],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
            )
        wait_until(lambda: self._heard("binding to port"), "ZooKeeper starts")

    def _heard(self, words):
        return self._zookeeper_log.read_text(errors="replace").count(words)

    def _role(self):
        (port,) = free_ports(1)
        self.address = f"127.0.0.1:{port}"
        return {
            "broker.id": 1,
            "listeners": f"PLAINTEXT://{self.address}",
            "advertised.listeners": f"PLAINTEXT://{self.address}",
            "zookeeper.connect": f"127.0.0.1:{self._zookeeper_port}",
            "zookeeper.session.timeout.ms": 2000,
        }

    def kill(self):
        before = self._heard("Expiring session")
        super().kill()
        # it cannot register again while ZooKeeper takes it for alive
        wait_until(lambda: self._heard("Expiring session") > before, "the session expires")

    def close(self):
        """End both."""
        if self.is_running:
            super().kill()
        self._zookeeper.kill()
        self._zookeeper.wait(30)


def free_ports(n):
    """Ports of loopback that nobody listens at now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def lines_said(log):
    """The lines of a broker's log, save those that speak of how loaded the machine is, and of no partition.

    Source: ReplicationControlManager.processExpiredBrokerHeartbeat and EventPerformanceMonitor, Kafka 4.3.
    """
    return [line for line in log.splitlines() if not _OVERLOADED.search(line)]


def parse_dump(text):
    """`DumpLogSegments` output: the words of each batch's line by file."""
    files = {}
    rows = []
    for line in text.splitlines():
        if line.startswith("Dumping "):
            rows = files.setdefault(line.removeprefix("Dumping "), [])
        elif line.startswith("baseOffset: "):
            rows.append(dict(re.findall(r"(\w+): (\S+)", line)))
        elif not line.startswith("Log starting offset: "):
            raise ValueError(f"a line that nobody expected: {line!r}")
    return files
