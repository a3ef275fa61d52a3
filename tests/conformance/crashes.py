"""Brokers that are killed while they write, and log dirs of the moments when they were, with damage.

Each is loaded twice: by the broker as it is, and by the broker after `kafkalog.recover`.
"""

from __future__ import annotations

import random
import shutil
import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field

from conformance.damages import DAMAGES as LOG_DAMAGES
from conformance.damages import in_log
from conformance.history import SMALL, TOPICS, Topic
from conformance.kafka import QUIET, Broker, Client, OldBroker, copy_tree, wait_until
from conformance.test_offline_recovery import recovery_lines
from conformance.test_rebuild import DERIVED, epochs_below
from conformance.test_rebuild_2_8 import BUSY
from conformance.test_rebuild_2_8 import topics as old_topics

import kafkalog
from kafkalog.errors import KafkalogError
from kafkalog.state.producers import read_snapshot

_POINTS = "recovery-point-offset-checkpoint"
_OFTEN = {
    "log.flush.offset.checkpoint.interval.ms": 700,
    "log.initial.task.delay.ms": 500,
    "log.retention.check.interval.ms": 900,
}
"""So that recovery points lie inside of the logs, and that retention has begun."""
_QUIET = {
    **QUIET,
    "log.flush.offset.checkpoint.interval.ms": 700,
    "log.initial.task.delay.ms": 10**9,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 10**9,
}
_DELETED = ("trimmed", "trimmed-live", "none", "v0-none", "v2-none")
"""Topics whose first records are deleted now and then."""

_LIMITED = Topic("plain", ("none", "lz4"), 1, 400, idempotent=True, configs={**SMALL, "retention.bytes": 9000})
"""Kafka 2.8 begins with retention half a minute after its start."""


def torn_log(rng, partition, logs):
    """What a crash may leave of the last segment."""
    names = ("cut", "zero", "garbage", "flip_in_the_last")
    if len(kafkalog.Segment(logs[-1]).batches) > 1:
        in_log(rng.choice([one for one in LOG_DAMAGES if one.__name__.startswith(names)]), rng, logs[-1])


def no_indexes(rng, partition, logs):
    for log in logs:
        for suffix in (".index", ".timeindex"):
            if rng.random() < 0.5:
                log.with_suffix(suffix).unlink(missing_ok=True)


def no_index_of_an_old_one(rng, partition, logs):
    rng.choice(logs).with_suffix(".index").unlink(missing_ok=True)


def bad_indexes(rng, partition, logs):
    for suffix in (".index", ".timeindex"):
        path = logs[-1].with_suffix(suffix)
        if path.exists():
            path.write_bytes(rng.choice([b"", bytes(40), rng.randbytes(48), path.read_bytes()[:-3]]))


def bad_snapshots(rng, partition, logs):
    for path in partition.glob("*.snapshot"):
        match rng.randrange(4):
            case 0:
                path.unlink()
            case 1:
                path.write_bytes(b"")
            case 2:
                path.write_bytes(path.read_bytes()[:-1] + b"?")


def no_epochs(rng, partition, logs):
    (partition / "leader-epoch-checkpoint").unlink(missing_ok=True)


def deletion_under_way(rng, partition, logs):
    """What a crash leaves of a deletion, and of a cleaning."""
    shutil.copy(logs[0], f"{logs[0]}.deleted")
    shutil.copy(logs[0], f"{logs[0]}.cleaned")


DAMAGES = (torn_log, no_indexes, no_index_of_an_old_one, bad_indexes, bad_snapshots, no_epochs, deletion_under_way)


@dataclass
class Tally:
    """Counts of some crashes: partitions whose files were compared, those that a broker wrote to at once, and so on."""

    counts: Counter[str] = field(default_factory=Counter)
    damages: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __str__(self):
        return f"{dict(self.counts)}, damages {dict(self.damages)}; {len(self.wrong)} differences"


class Crashes:
    """A broker that is killed again and again while it is written to."""

    def __init__(self, version, folder, seed):
        self.version, self.folder, self.rng = version, folder, random.Random(seed)
        self.tally = Tally()
        self.client = self._client(folder)
        if version == "4.3":
            self.broker = Broker(folder, **_OFTEN)
            self.topics = {**TOPICS, "limited": _LIMITED}
        else:
            # without a cluster's metadata all have to have one interval
            self.broker = OldBroker(folder, **{**BUSY, **_OFTEN, "log.index.interval.bytes": 512})
            self.topics = {name: one for name, one in old_topics().items() if not name.endswith("dense")}
        self._lively = dict(self.broker.properties)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        with self.client, self.broker:
            pass

    def _client(self, folder):
        # a producer that was idle for a day is dropped when a snapshot is loaded: which are loaded depends on the way
        return Client(folder, f"-Depoch={int(time.time() * 1000) - 43_200_000}")

    def run(self, numbers):
        """The tally after each crash."""
        with self.broker.serving(self.client):
            self.client.ask("create", topics=[_made(name, one) for name, one in self.topics.items()])
            for number, (name, topic) in enumerate(self.topics.items()):
                topic.produce(self.client, name, number)
        for number in numbers:
            self._crash(number)
            alive = self._copy(self.broker.log_dir, "alive")
            self._compare(number)
            copy_tree(alive, self.broker.log_dir)
            self.tally.counts["crashes"] += 1
            yield self.tally

    def _crash(self, number):
        """Boot, write to everything from another process, and kill the broker at some moment of that."""
        self.broker.properties = self._lively
        with self.broker.serving(self.client):
            folder = self.folder / f"writer-{number}"
            folder.mkdir()
            writer = self._client(folder)
            writer.server = self.broker.address
            writing = threading.Thread(target=self._write, args=(writer, number))
            writing.start()
            time.sleep(self.rng.uniform(2.0, 9.0))  # the first second is the JVM's
            self.broker.kill()
            writer.kill()
            writing.join()
            with suppress(BrokenPipeError):
                writer.close()

    def _write(self, writer, number):
        order = [*self.topics.items()]
        random.Random(number).shuffle(order)
        with suppress(RuntimeError, OSError, ValueError):  # the broker is gone, or the client
            for turn in range(100):
                for at, (name, topic) in enumerate(order):
                    seed = 100 * (1 + 100 * number + turn) + at
                    if name in _DELETED and self.rng.random() < 0.5:
                        writer.ask("delete_records", topic=name, partition=0, before=20 * (number + 1))
                    topic.produce(writer, name, seed, 1 + seed % 30)

    def _compare(self, number):
        rng, log_dir = random.Random(number), self.broker.log_dir
        damaged = self._damage(rng)
        broken = self._copy(log_dir, "broken")
        self.broker.properties = {**self._lively, **_QUIET}
        if self.version == "2.8":
            self.broker.properties.pop("broker.session.timeout.ms", None)
        now = int(time.time() * 1000)
        theirs_read = self._served()
        counts = self.tally.counts
        counts["lines about recovery"] += len(self._lines())
        theirs = self._copy(log_dir, "theirs")

        shutil.rmtree(log_dir)
        interval = None if self.version == "4.3" else 512
        report = kafkalog.recover(broken, output=log_dir, now=now, index_interval_bytes=interval)
        counts["bytes cut"] += report.n_bytes_lost
        differences = [f"not recovered: {one.error}" for one in report.partitions if one.error]
        ours = self._copy(log_dir, "ours")
        differences += self._differences(ours, theirs)
        ours_read = self._served(theirs_read)
        differences += [f"said: {line}" for line in self._lines()]
        repeated = self._repeated(ours, theirs) | self._repeated(ours, log_dir)
        counts["partitions with a marker once more"] += len(repeated)
        differences += [
            f"other {what}"
            for what in theirs_read
            if _without(ours_read[what], repeated) != _without(theirs_read[what], repeated)
        ]
        differences += [f"changed since: {one}" for one in self._differences(ours, log_dir)]
        counts["records"] += sum(map(len, ours_read["records"].records.values()))
        self.tally.wrong += [f"{number}: {one} ({damaged.get(_partition_of(one), 'intact')})" for one in differences]
        if differences:  # what is compared stays for a look
            shutil.move(broken, self.folder / f"kept-{number}")
            shutil.copy(self.broker.log, self.folder / f"kept-{number}")

    def _lines(self):
        """What the broker of the last start said of recovery; the controller of 2.8 speaks of deleted topics."""
        return [one for one in recovery_lines(self.broker.log.read_text()) if "kafka.controller" not in one]

    def _damage(self, rng):
        damaged = {}
        for directory in sorted(path for path in self.broker.log_dir.iterdir() if path.is_dir()):
            logs = sorted(directory.glob("*.log"))
            if directory.name.startswith("__cluster") or not logs or rng.random() < 0.3:
                continue
            damage = rng.choice(DAMAGES)
            damage(rng, directory, logs)
            damaged[directory.name] = damage.__name__
            self.tally.damages[damage.__name__] += 1
        if rng.random() < 0.4:
            (self.broker.log_dir / _POINTS).unlink(missing_ok=True)
        return damaged

    def _served(self, expected=None):
        """What the broker serves, once it has ended the transactions that it was about to end.

        It tries again after a while if it cannot connect to itself yet, so `expected` is waited for.
        """
        with self.broker.serving(self.client):
            stable = []

            def is_settled():
                time.sleep(1)
                stable.append((self.client.last_stable_offsets(), self.client.ask("offsets", times={})["partitions"]))
                if expected is not None and len(stable) < 45:
                    return bool(stable[-1][0] == expected["last stable offsets"])
                return len(stable) > 3 and stable[-1] == stable[-2] == stable[-3]

            wait_until(is_settled, "transactions are ended", 90)
            # the coordinator's own records have the time when it ended a transaction
            topics = sorted({topic for topic, _ in stable[-1][0]} - {"__transaction_state"})
            file = self.folder / "served.jsonl"
            return {
                "last stable offsets": stable[-1][0],
                "offsets": [(row["topic"], row["partition"], row["earliest"], row["latest"]) for row in stable[-1][1]],
                "records": self.client.consume(file, topics),
                "committed records": self.client.consume(file, topics, isolation="read_committed"),
            }

    def _differences(self, ours, theirs):
        names = {path.name for path in ours.iterdir() if path.is_dir()}
        others = {path.name for path in theirs.iterdir() if path.is_dir()}
        yield from (f"{name}: only once there" for name in sorted(names ^ others))
        for name in sorted(names & others):
            if not name.startswith("__cluster"):
                self.tally.counts["partitions"] += 1
                yield from self._partition_differences(ours / name, theirs / name)

    def _repeated(self, before, after):
        """Partitions to which a broker has appended markers that they had already.

        A coordinator whose last record is lost sends them again as it starts; it leaves that where the broker does not
        know the leader of the partition yet, and says that it has ended the transaction.
        Source: TransactionMarkerChannelManager.addTxnMarkersToBrokerQueue, Kafka 4.3.
        """
        found = set()
        for path in (one for one in before.iterdir() if one.is_dir() and not one.name.startswith("__")):
            old, new = kafkalog.Partition(path), kafkalog.Partition(after / path.name)
            if old.topic_partition is None or new.log_end_offset == old.log_end_offset:
                continue
            last = _last_batches(old)
            added = [one for one in _producer_batches(new) if one[0] >= old.log_end_offset]
            if all(is_marker and last.get(producer) == (epoch, True) for _, producer, epoch, is_marker in added):
                found.add((old.topic_partition.topic, old.topic_partition.partition))
        return found

    def _partition_differences(self, ours, theirs):
        found, expected = _files(ours), _files(theirs)
        last = max((name for name in found if name.endswith(".log")), default="")
        is_written = len(expected.get(last, b"")) > len(found.get(last, b"")) and not found.keys() - expected.keys()
        if is_written and _is_only_markers(found[last], expected[last], theirs / last):
            self.tally.counts["written since"] += 1
            expected = {name: data for name, data in expected.items() if name < last}
            found = {name: data for name, data in found.items() if name < last}
        if self.version == "2.8" and ours.name.startswith(("v0-", "v1-", "mixed-")):
            # such a topic has no producers; where its format is set to an old one, Kafka leaves empty snapshots about
            found, expected = (
                {name: data for name, data in files.items() if not name.endswith(".snapshot")}
                for files in (found, expected)
            )
        for name in sorted(found.keys() ^ expected.keys()):
            yield f"{ours.name}: {name} is {'ours' if name in found else 'theirs'} only"
        for name in sorted(found.keys() & expected.keys()):
            self.tally.counts["files"] += 1
            is_same = found[name] == expected[name]
            if not is_same and name.endswith(".snapshot") and self.version == "2.8":
                is_same = _entries(ours / name) == _entries(theirs / name)
            if not is_same:
                yield f"{ours.name}: {name} has {len(found[name])} bytes and {len(expected[name])} with the broker"
        end = kafkalog.Partition(ours).log_end_offset
        if epochs_below(ours, end) != epochs_below(theirs, end):
            yield f"{ours.name}: epochs {epochs_below(ours, end)} and {epochs_below(theirs, end)} with the broker"

    def _copy(self, source, name):
        return copy_tree(source, self.folder / name)


def _made(name, topic):
    configs = {"retention.ms": -1, "max.message.bytes": 4_000_000, **topic.configs}
    return {"name": name, "partitions": topic.partitions, "configs": configs}


def _partition_of(difference):
    return difference.removeprefix("changed since: ").partition(":")[0]


def _files(partition):
    return {path.name: path.read_bytes() for path in partition.iterdir() if path.suffix in (*DERIVED, ".log")}


def _entries(snapshot):
    """In order: Kafka 2.8 writes those of a hash map of Scala's."""
    try:
        return sorted(read_snapshot(snapshot).entries.tolist())
    except KafkalogError as error:
        return [error.reason]


def _producer_batches(partition):
    """Base offset, producer id and epoch of each batch, and whether it is a marker."""
    tables = [piece.batches for piece in partition.iter_batches()]
    return [
        row
        for one in tables
        for row in zip(
            one.base_offset.tolist(),
            one.producer_id.tolist(),
            one.producer_epoch.tolist(),
            one.is_control.tolist(),
            strict=True,
        )
    ]


def _last_batches(partition):
    return {producer: (epoch, is_marker) for _, producer, epoch, is_marker in _producer_batches(partition)}


def _without(served, repeated):
    """Offsets of the other partitions; what else was served as it is."""
    if isinstance(served, list):
        return [row for row in served if row[:2] not in repeated]
    return {key: value for key, value in served.items() if key not in repeated} if isinstance(served, dict) else served


def _is_only_markers(ours, theirs, log):
    """Whether a broker's last segment is ours, and what its coordinators wrote since."""
    if not theirs.startswith(ours):
        return False
    batches = kafkalog.Segment(log).batches
    added = batches[int((batches.position < len(ours)).sum()) :]
    return log.parent.name.startswith("__") or bool(added.is_control.all())
