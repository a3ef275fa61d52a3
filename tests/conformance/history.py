"""One broker's life: what the tests read is what is left of it, or what still runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from conformance.kafka import Truth, copy_tree, wait_until

import kafkalog
from kafkalog.state.checkpoints import read_offset_checkpoint

SMALL = {"internal.segment.bytes": 4000, "index.interval.bytes": 512}
COMPACTED = {
    **SMALL,
    "internal.segment.bytes": 3000,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": 0.01,
}


class Topic(NamedTuple):
    """A topic and what is written to it."""

    kind: str
    codecs: tuple[str, ...] = ("none",)
    partitions: int = 2
    records: int = 300
    per_batch: int = 12
    idempotent: bool = False
    transactions: int = 0
    fence: bool = False
    configs: dict[str, Any] = SMALL

    def produce(self, client, name, seed, records=None):
        """Write to it; the seed says what."""
        first = 100_000 * (seed % 100)
        common = {"topic": name, "kind": self.kind, "partitions": self.partitions, "seed": seed, "first": first}
        if self.transactions:
            rounds = self.transactions if records is None else 3
            leave_open = self.fence and records is not None
            answer = client.ask("transactions", rounds=rounds, fence=self.fence, open=leave_open, **common)
            assert answer["committed"]
            assert answer["aborted"] or records is not None
        elif self.records:
            client.ask(
                "produce",
                records=self.records if records is None else records,
                codecs=list(self.codecs),
                per_batch=self.per_batch,
                idempotent=self.idempotent,
                **common,
            )


EVERY_CODEC = ("none", "gzip", "snappy", "lz4", "zstd")
TOPICS = {
    **{codec: Topic("plain", (codec,)) for codec in EVERY_CODEC},
    "headers": Topic("headers", ("none", "zstd"), records=500),
    "appended": Topic("headers", EVERY_CODEC, configs={**SMALL, "message.timestamp.type": "LogAppendTime"}),
    "backwards": Topic("backwards", ("none", "gzip")),
    "idempotent": Topic("plain", ("none", "lz4", "none"), idempotent=True),
    "recompressed": Topic("plain", ("none", "gzip"), configs={**SMALL, "compression.type": "zstd"}),
    "large": Topic("large", ("none", "snappy", "lz4"), 1, 12, 3, configs={"index.interval.bytes": 512}),
    "defaults": Topic("plain", EVERY_CODEC, 3, configs={}),
    "dense": Topic("plain", ("none",), 1, 100, configs={"segment.index.bytes": 96, "index.interval.bytes": 0}),
    "preallocated": Topic("plain", ("lz4",), 1, 200, configs={"preallocate": "true", "internal.segment.bytes": 8000}),
    "transactions": Topic("headers", transactions=12, fence=True),
    "compacted": Topic("keyed", ("none", "zstd"), 1, 800, configs=COMPACTED),
    "compacted-transactions": Topic("keyed", partitions=1, transactions=14, configs=COMPACTED),
    "trimmed": Topic("plain", ("none", "gzip"), 1, 400),
    "trimmed-live": Topic("plain", ("none", "zstd"), 1, 400),
    "trimmed-backwards": Topic("backwards", ("none", "lz4"), 1, 500),
    "trimmed-whole": Topic("backwards", ("zstd",), 1, 60),
    "held-back": Topic("plain", partitions=1, transactions=3, fence=True),
    "empty": Topic("plain", records=0),
}
FLOODED = {
    "crashed": Topic("headers", ("lz4",), configs=SMALL),
    "growing": Topic("headers", ("lz4",), configs={"preallocate": "true", "internal.segment.bytes": 100_000}),
}
"""Topics that are written to while something else happens."""
INTERNAL = ("__consumer_offsets", "__transaction_state")


class Stage(NamedTuple):
    """A log dir, and what a consumer got when it was (or from what became of it)."""

    log_dir: Path
    truth: Truth
    was_live: bool
    committed: Truth
    """What a `read_committed` consumer got."""
    stable: dict[tuple[str, int], int]
    """Last stable offsets as the broker listed them."""


class History:
    """A broker that was booted, stopped, booted again and killed while it wrote; its third life still runs."""

    def __init__(self, broker, client):
        self.broker, self.client, self.folder = broker, client, broker.folder
        self._first_life()
        self._second_life()
        self._third_life()

    @property
    def stages(self):
        """The last one is live."""
        return [self.clean, self.crashed, self.live]

    def _boot(self):
        self.broker.start()
        self.client.server = self.broker.address
        self.client.ask("ready")

    def _produce(self, seed, records=None):
        for number, (name, topic) in enumerate(TOPICS.items()):
            topic.produce(self.client, name, 100 * number + seed, records)

    def _first_workload(self):
        topics = [
            {
                "name": name,
                "partitions": topic.partitions,
                "configs": {"retention.ms": -1, "max.message.bytes": 4_000_000, **topic.configs},
            }
            for name, topic in {**TOPICS, **FLOODED}.items()
        ]
        self.client.ask("create", topics=topics)
        self._produce(1)
        self.client.ask("commit", topic="none", group="readers")
        self.client.ask("delete_records", topic="trimmed", partition=0, before=150)

    def _first_life(self):
        self._boot()
        self._first_workload()
        self.sync()
        told = self._consume("clean")
        self.broker.stop()
        self.clean = self._keep("clean", *told)

    def _second_life(self):
        self._boot()
        self._produce(2, 30)
        self.sync()
        self.client.ask("flood", topic="crashed", partitions=2, seed=3)
        wait_until(lambda: min(map(self._n_bytes, ("crashed-0", "crashed-1"))) > 200_000, "enough is written")
        self.broker.kill()
        self.acknowledged = self.client.ask("dry")["acknowledged"]
        self.crashed = self._keep("crashed", self.clean.truth, self.clean.committed, self.clean.stable)

    def _third_life(self):
        self._boot()
        truth, committed, stable = self._consume("crashed")
        self.crashed = self.crashed._replace(truth=truth, committed=committed, stable=stable)
        self._last_workload()

    def _last_workload(self):
        self._produce(4, 60)
        for name, before in {"trimmed-live": 222, "trimmed-backwards": 305, "trimmed-whole": -1}.items():
            self.client.ask("delete_records", topic=name, partition=0, before=before)
        self._delete_into_an_open_transaction()
        self.sync()
        names = ("trimmed-live", "trimmed-backwards", "trimmed-whole")
        wait_until(lambda: all(self._start(name) is not None for name in names), "the starts are checkpointed")
        truth, committed, stable = self._consume("live")
        self.live = Stage(self.broker.log_dir, truth, self._is_live(), committed, stable)

    def _delete_into_an_open_transaction(self):
        """Of the first open one nothing is left to read, and still it holds back the rest."""
        before = self.client.last_stable_offsets()["held-back", 0] + 2
        self.client.ask("delete_records", topic="held-back", partition=0, before=before)
        wait_until(lambda: self._start("held-back") == before, "the start is checkpointed")

    def _start(self, topic):
        found = read_offset_checkpoint(self.broker.log_dir / "log-start-offset-checkpoint") or {}
        return found.get(kafkalog.TopicPartition(topic, 0))

    def _consume(self, name):
        """What consumers of both isolation levels get, and where the second kind ends."""
        return (
            self.client.consume(self.folder / f"{name}.jsonl"),
            self.client.consume(self.folder / f"{name}.committed.jsonl", isolation="read_committed"),
            self.client.last_stable_offsets(),
        )

    def _is_live(self):
        return kafkalog.open(self.broker.log_dir).is_live

    def _keep(self, name, truth, committed, stable):
        was_live = self._is_live()
        return Stage(copy_tree(self.broker.log_dir, self.folder / name), truth, was_live, committed, stable)

    def sync(self):
        """Wait until the cleaner and the retention task have nothing left to do, as long as nobody writes."""
        compacted = [name for name, topic in TOPICS.items() if topic.configs is COMPACTED]
        wait_until(lambda: all(map(self._is_cleaned, compacted)), "everything is compacted")
        if hasattr(self, "clean"):
            wait_until(self._is_trimmed, "whole segments below the log start offset are gone")

    def _n_bytes(self, partition):
        return sum(path.stat().st_size for path in (self.broker.log_dir / partition).glob("*.log"))

    def _bases(self, topic):
        return sorted(int(path.stem) for path in (self.broker.log_dir / f"{topic}-0").glob("*.log"))

    def _is_cleaned(self, topic):
        cleaned = read_offset_checkpoint(self.broker.log_dir / "cleaner-offset-checkpoint") or {}
        return cleaned.get(kafkalog.TopicPartition(topic, 0), -1) >= self._bases(topic)[-1]

    def _is_trimmed(self):
        return self._bases("trimmed")[1] > 150


READ = ("topic", "partition", "offset", "timestamp", "timestamp_type", "leader_epoch", "key", "value", "headers")


def rows(log_dir, topics, **options):
    """The records of topics as `Client.consume` gives them."""
    scan = kafkalog.scan(log_dir, topics=topics, columns=READ, **options)
    table = scan.to_table()
    assert not scan.n_damage
    stamps = table.column("timestamp").cast(pa.int64())
    read = table.set_column(READ.index("timestamp"), "timestamp", stamps).to_pylist()
    for row in read:
        row["headers"] = [(header["key"], header["value"]) for header in row["headers"]]
    return read
