"""A real broker serves what `kafkalog load --install` put into its log dir, and goes on behind it."""

import base64
import re

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from conformance.kafka import BrokerLife, lines_said
from conformance.test_writer import COMPLAINT, EXPECTED, QUIET

import kafkalog
from kafkalog.cli.app import main

pytestmark = [pytest.mark.broker, pytest.mark.slow]

N = 3000
NOW = 1_790_000_000_000
COMMON = {"seed": 7, "kind": "headers", "per_batch": 7, "idempotent": True, "codecs": ["none", "lz4"]}


class Loaded(BrokerLife):
    """A broker that was stopped, loaded, and started again."""

    def tell(self):
        self.boot()
        configs = {"retention.ms": -1}
        topics = [{"name": name, "partitions": n, "configs": configs} for name, n in (("keyed", 3), ("placed", 2))]
        self.client.ask("create", topics=[*topics, {"name": "held", "partitions": 1, "configs": configs}])
        self.client.ask("produce", topic="held", partitions=1, records=40, first=0, **COMMON)
        self.stop()
        self.keyed, self.placed = self.inputs()
        self.refused = self.load(self.placed, "--topic", "held", "--ignore-columns", "partition,topic")
        self.codes = [
            self.load(self.keyed, "--topic", "keyed", "--partitions", "3", "--encoding", "utf8"),
            self.load(self.placed, "--compression", "zstd", "--config", "segment.bytes=100000"),
        ]
        self.boot()
        self.read = self.client.consume(self.folder / "read.jsonl", ["keyed", "placed", "held"])
        times = {f"placed-{number}": [NOW + at for at in range(-10, N, 211)] for number in (0, 1)}
        self.offsets = self.client.ask("offsets", times=times)["partitions"]
        self.times = times
        for topic, n in (("keyed", 3), ("placed", 2)):
            self.client.ask("produce", topic=topic, partitions=n, records=30, first=5000, **COMMON)
        self.after = self.client.consume(self.folder / "after.jsonl", ["keyed", "placed"])
        self.stop()

    def inputs(self):
        keyed, placed = self.folder / "keyed.csv", self.folder / "placed.parquet"
        lines = [f'k{i % 97},"value {i}",{NOW + i}' if i % 13 else f',"value {i}",{NOW + i}' for i in range(N)]
        keyed.write_text("\n".join(["key,value,timestamp", *lines, ""]))
        columns = {
            "topic": ["placed"] * N,
            "partition": pa.array([i % 2 for i in range(N)], pa.int32()),
            "offset": pa.array([7 + 3 * i for i in range(N)], pa.int64()),
            "value": [None if i % 17 == 0 else b"p%d" % i * 20 for i in range(N)],
            "timestamp": pa.array([NOW + (i * 37) % N for i in range(N)], pa.timestamp("ms", "UTC")),
        }
        pq.write_table(pa.table(columns), placed)
        return keyed, placed

    def load(self, path, *options):
        return main(["load", str(path), "-o", str(self.log_dir), "--install", "-q", *options])


@pytest.fixture(scope="module")
def loaded(tmp_path_factory):
    with Loaded(tmp_path_factory.mktemp("loading"), **QUIET) as loaded:
        loaded.tell()
        yield loaded


def test_a_partition_with_records_is_not_replaced_unasked(loaded):
    assert loaded.refused != 0
    assert loaded.codes == [0, 0]
    assert len(loaded.read.records["held"]) == 40


def test_a_consumer_gets_the_rows_of_the_files(loaded):
    rows = loaded.read.records["keyed"]
    assert sorted((row["timestamp"] - NOW, row["key"], row["value"]) for row in rows) == [
        (i, b"k%d" % (i % 97) if i % 13 else None, b"value %d" % i) for i in range(N)
    ]
    rows = loaded.read.records["placed"]
    assert {row["partition"] for row in rows} == {0, 1}
    found = {row["offset"]: (row["partition"], row["timestamp"], row["value"]) for row in rows}
    assert found == {7 + 3 * i: (i % 2, NOW + (i * 37) % N, None if i % 17 == 0 else b"p%d" % i * 20) for i in range(N)}


def test_keys_lie_where_a_producer_would_have_sent_them(loaded):
    keys = sorted({row["key"] for row in loaded.read.records["keyed"] if row["key"] is not None})
    asked = [base64.b64encode(key).decode() for key in keys]
    where = dict(zip(keys, loaded.client.ask("murmur2", keys=asked, partitions=3)["partitions"], strict=True))
    assert len(keys) == 97
    assert set(where.values()) == {0, 1, 2}
    for row in loaded.read.records["keyed"]:
        assert row["key"] is None or row["partition"] == where[row["key"]]


def test_offsets_for_times_agree(loaded):
    n_found = 0
    for row in loaded.offsets:
        partition = f"{row['topic']}-{row['partition']}"
        if partition not in loaded.times:
            continue
        rows = [one for one in loaded.read.records["placed"] if one["partition"] == row["partition"]]
        for at, (_, offset, _) in zip(loaded.times[partition], row["answers"], strict=True):
            assert offset == min((one["offset"] for one in rows if one["timestamp"] >= at), default=-1)
            n_found += offset >= 0
    assert n_found > 20


def test_the_broker_has_nothing_to_say_and_appends_behind(loaded):
    lines = [line for log in loaded.logs[1:] for line in lines_said(log)]
    assert [line for line in lines if re.search(COMPLAINT, line) and not re.search(EXPECTED, line)] == []
    for topic in ("keyed", "placed"):
        before, after = loaded.read.records[topic], loaded.after.records[topic]
        ends = {row["partition"]: row["offset"] for row in before}
        new = [row for row in after if row["offset"] > ends[row["partition"]]]
        assert [row for row in after if row["offset"] <= ends[row["partition"]]] == before
        assert len(new) == 30
    found = [str(finding) for finding in kafkalog.verify(loaded.log_dir, deep=True).findings]
    assert found == []
