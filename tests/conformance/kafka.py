"""A real broker to read behind: a KRaft broker on loopback, Kafka's own clients behind a pipe."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import functools
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import zlib
from pathlib import Path
from typing import Any, NamedTuple

from conformance.jars import KAFKA_VERSION, OLD_KAFKA_VERSION, cache_directory, class_path, java
from golden_sets import made_once

QUICK_JVM = (
    *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+IgnoreUnrecognizedVMOptions"),
    # classes of Kafka's own jars need no verification, which takes a sixth of a start
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),
)
"""Options for a JVM that lives for seconds."""
QUIET = {
    "log.cleaner.enable": "false",
    "log.retention.check.interval.ms": 10**9,
    # a killed broker may register again only when its session is over
    "broker.session.timeout.ms": 2500,
    "broker.heartbeat.interval.ms": 500,
}
"""Nothing but what the tests ask for is to change files."""
_INT, CENTURY_MS = 2**31 - 1, 100 * 365 * 86_400_000
TIMELESS = {
    "offsets.retention.minutes": _INT,
    "producer.id.expiration.ms": _INT,
    "transactional.id.expiration.ms": _INT,
    "transaction.remove.expired.transaction.cleanup.interval.ms": _INT,
    "metadata.log.segment.ms": CENTURY_MS,
    "metadata.max.retention.ms": -1,
}
"""Nothing expires because records are old: golden sets were written long ago, on whatever day tests run.

Numbers of 32 bits end after 24.8 days; what brokers expire later than that is not looked at within a test's time.
"""
_OF_SPEED = re.compile(
    r"\bcontroller event queue overloaded\. Timed out heartbeat from broker \d+\.$"
    r"|\bExceptionally slow controller event \S+ took \d+ ms\.$"
    # a controller that starts quickly registers before it leads, and then again
    r"|\bUnexpected error handling request RequestHeader\(apiKey=CONTROLLER_REGISTRATION,"
)
PATIENCE = 250
"""Seconds after which a test fails that waits for something: for a loaded machine, and below pytest's own limit."""
_IDLE_POLLS = 400
"""Polls without work, 20 seconds in all, after which a broker that has not started hangs."""
_CLIENT = Path(__file__).with_name("Client.java")


def _compiled(source, jars):
    """Where the classes of a program are, compiled once a run: that takes longer than most programs do."""

    def make(target):
        target.mkdir(parents=True)
        javac = ("-m", "jdk.compiler/com.sun.tools.javac.Main", "-nowarn", "-d", str(target), "-cp", jars, str(source))
        subprocess.run([java(), *QUICK_JVM, *javac], check=True, capture_output=True)

    return made_once("classes", f"{source.stem}-{zlib.crc32(source.read_bytes() + jars.encode())}", make)


def jvm(program, *arguments, version=KAFKA_VERSION, jars=None, memory="512m", said="error", options=(), shares=True):
    """A command line for a class or a source file, with Kafka's jars; `said` is what it logs."""
    jars = jars or class_path(java(), version)
    shared = _shared_classes() if shares and jars.startswith(class_path(java())) else ()
    if isinstance(program, Path):
        program, jars = program.stem, f"{jars}{os.pathsep}{_compiled(program, jars)}"
    start = [java(), f"-Xmx{memory}", *QUICK_JVM, *shared, f"-Dorg.slf4j.simpleLogger.defaultLogLevel={said}"]
    return [*start, *options, "-cp", jars, program, *map(str, arguments)]


@functools.cache
def _shared_classes():
    """Options by which a JVM maps Kafka's classes as a broker had them when it ended: half of a start is loading them.

    The archive is kept beside the jars. A JVM that it does not fit, such as one with another class path, goes without.
    """
    jars = class_path(java())
    release = subprocess.run([java(), "-version"], capture_output=True, check=False).stderr
    # a JVM compares the times of the jars, which a clock that is ahead changes
    seen = zlib.crc32(release + f"{jars} {[os.stat(jar).st_mtime_ns for jar in jars.split(os.pathsep)]}".encode())
    archive = cache_directory() / f"kafka-{KAFKA_VERSION}-{seen:08x}.jsa"
    if not archive.exists() and not os.access(archive.parent, os.W_OK):
        return ()
    with archive.with_suffix(".lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            fresh = archive.with_suffix(".fresh")
            fresh.unlink(missing_ok=True)
            with tempfile.TemporaryDirectory() as folder, _ArchivedBroker(Path(folder), fresh) as broker:
                broker.start()
                broker.stop()
            fresh.replace(archive)
    return (f"-XX:SharedArchiveFile={archive}", "-Xshare:auto", "-Xlog:disable")


def run_java(program, *arguments, given=None, timeout=800, **options):
    """What a program prints, whose input are lines."""
    done = subprocess.run(
        jvm(program, *arguments, **options),
        input=None if given is None else "".join(f"{line}\n" for line in given),
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def copy_tree(source, target):
    """Put a copy, with times and holes, where `target` is."""
    shutil.rmtree(target, ignore_errors=True)
    subprocess.run(["cp", "-a", str(source), str(target)], check=True)
    return target


def wait_until(reached, what):
    """Poll until something holds."""
    deadline = time.monotonic() + PATIENCE
    while not reached():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {PATIENCE} s")
        time.sleep(0.05)


def _is_busy(pid):
    """Whether a thread of a process runs, or waits for a processor or a disk."""
    for path in Path(f"/proc/{pid}/task").glob("*/stat"):
        with contextlib.suppress(OSError):
            # the state follows the name, which may have any characters
            if path.read_text().rpartition(")")[2].split()[0] in "RD":
                return True
    return False


class Client:
    """Kafka's Java clients in a JVM of their own; a command is answered before the next one is sent."""

    def __init__(self, folder, *options):
        self.server = ""
        self._log = folder / "client.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                jvm(_CLIENT, options=options),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
            )

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def ask(self, command, **options):
        """What the client answers; what it threw is raised."""
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
        """Everything that a consumer gets, by way of a file; options are ``isolation``, and ``from`` for an offset."""
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
    _version = KAFKA_VERSION
    _shares = True
    _options: tuple[str, ...] = ()

    def __init__(self, folder, *, jars=None, **properties):
        self.folder, self.log_dir, self.address = folder, folder / "data", ""
        self.properties = properties
        self._jars = jars or class_path(java(), self._version)
        self._process = None
        self._n_starts = 0
        self._prepare()

    def __enter__(self):
        return self

    def __exit__(self, *error):
        """Leave no process behind."""
        if self.is_running:
            self.kill()

    def _prepare(self, *options):
        self._write_properties()
        if options or not self._shares or "log.dirs" in self.properties:
            self._format(self.folder / "server.properties", *options)
        else:
            self._copy_formatted()

    def _copy_formatted(self):
        """Copy what the tool wrote for another node: ids differ, and nothing else."""
        shutil.copytree(made_once("formatted", f"{zlib.crc32(self._jars.encode()):08x}", self._format_in), self.log_dir)
        ids = {"node.id": self.properties.get("node.id", 1), "directory.id": f"A{secrets.token_urlsafe(16)[1:]}"}
        path = self.log_dir / "meta.properties"
        lines = [line.partition("=") for line in path.read_text().splitlines()]
        path.write_text("".join(f"{name}{sign}{ids.get(name, value)}\n" for name, sign, value in lines))

    def _format_in(self, log_dir):
        """Format a log dir as for a broker with nothing but the usual properties."""
        properties = log_dir.with_suffix(".properties")
        properties.parent.mkdir(parents=True, exist_ok=True)
        lines = (f"{name}={value}\n" for name, value in {**self._role(), "node.id": 1, "log.dirs": log_dir}.items())
        properties.write_text("".join(lines))
        self._format(properties)

    def _format(self, properties, *options):
        words = ("--cluster-id", "kafkalogConformance01w", "--config", properties, *options)
        run_java("kafka.tools.StorageTool", "format", *words, jars=self._jars, shares=self._shares)

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
            **TIMELESS,
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

    def _command(self, program, argument, memory):
        options = ["-Dorg.slf4j.simpleLogger.showDateTime=true", *self._options]
        return jvm(program, argument, jars=self._jars, memory=memory, said="info", options=options, shares=self._shares)

    def tool(self, name, *arguments, server=True):
        """What one of Kafka's tools prints."""
        where = ("--bootstrap-server", self.address) if server else ()
        return run_java(f"org.apache.kafka.tools.{name}", *arguments, *where, jars=self._jars)

    def begin(self):
        """Begin to boot."""
        self._n_starts += 1
        self._write_properties()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command("kafka.Kafka", self.folder / "server.properties", memory="448m"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def start(self):
        """Boot, and wait until the broker says that it has started."""
        for attempt in range(3):
            self.begin()
            wait_until(lambda: not self.is_running or self._said(self._started), "the broker starts")
            if self.is_running:
                return
            # somebody else may have taken a port in the meantime
            if attempt == 2 or not (self._said("BindException") or self._said("Address already in use")):
                raise RuntimeError(f"the broker did not start:\n{self.log.read_text()[-4000:]}")

    @contextlib.contextmanager
    def serving(self, client):
        """Boot, with a client turned to it, until every partition has a leader; a clean shutdown at the end."""
        before = client.server
        try:
            self.start()
            client.server = self.address
            client.ask("ready")
            yield
            if self.is_running:
                self.stop()
        finally:
            client.server = before
            if self.is_running:
                self.kill()

    def comes_up(self):
        """Boot; whether the broker starts. It does not if it ends, or hangs.

        A broker hangs when `_IDLE_POLLS` polls have seen none of its threads at work. A number of seconds would depend
        on the load of the machine.
        """
        self.begin()
        n_idle = 0
        while self.is_running and n_idle < _IDLE_POLLS:
            if self._said(self._started):
                return True
            n_idle += not _is_busy(self._process.pid)
            time.sleep(0.05)
        return False

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
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(PATIENCE)
            raise


class _ArchivedBroker(Broker):
    """A broker whose JVM leaves an archive of its classes when it ends."""

    _shares = False

    def __init__(self, folder, archive):
        self._options = (f"-XX:ArchiveClassesAtExit={archive}",)
        super().__init__(folder)


class BrokerLife:
    """A broker that is stopped and started again, with clients turned to it; `logs` has those of earlier lives."""

    def __init__(self, folder, **properties):
        self.folder = folder
        self.client = Client(folder)
        self.broker = Broker(folder, **properties)
        self.log_dir = self.broker.log_dir
        self.logs = []

    def __enter__(self):
        return self

    def __exit__(self, *error):
        with self.client, self.broker:
            pass

    def boot(self):
        """Start the broker, and wait until every partition has a leader."""
        self.broker.start()
        self.client.server = self.broker.address
        self.client.ask("ready")

    def stop(self):
        """A clean shutdown."""
        self.broker.stop()
        self.logs.append(self.broker.log.read_text())


class OldBroker(Broker):
    """A 2.8 broker, and the ZooKeeper that it cannot do without."""

    _version = OLD_KAFKA_VERSION
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
                self._command("org.apache.zookeeper.server.quorum.QuorumPeerMain", properties, memory="128m"),
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

    def __exit__(self, *error):
        if self.is_running:
            super().kill()
        self._zookeeper.kill()
        self._zookeeper.wait(PATIENCE)


def free_ports(n):
    """Ports of loopback that nobody listens at now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(n)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]


def lines_said(log):
    """The lines of a broker's log, save those that speak of how loaded or fast the machine is, and of no partition.

    Source: ReplicationControlManager.processExpiredBrokerHeartbeat and EventPerformanceMonitor, Kafka 4.3.
    """
    return [line for line in log.splitlines() if not _OF_SPEED.search(line)]


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
