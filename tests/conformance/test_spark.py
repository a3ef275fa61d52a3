"""What our source reads out of a broker's files is what Spark's own Kafka source gets from that broker, row for row."""

import contextlib
import json
import os
import subprocess
import sys
from collections import Counter
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from conformance.history import FLOODED, SMALL, TOPICS
from conformance.jars import java, spark_connector
from conformance.kafka import wait_until
from spark.sessions import settings

import kafkalog

pytestmark = [pytest.mark.broker, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(600)]

QUIET = tuple(name for name in TOPICS if name not in FLOODED)


class Spark:
    """A Spark process that reads with either source."""

    def __init__(self, history, jars, folder):
        self.log_dir, self._server, self._folder = history.broker.log_dir, history.broker.address, folder
        self._log = folder / "spark.log"
        self._n_asked = 0
        root = Path(__file__).parents[2]
        path = os.pathsep.join(filter(None, [str(root), os.environ.get("PYTHONPATH")]))
        given = settings(folder) | {"spark.log.level": "OFF", "spark.jars": jars.replace(os.pathsep, ",")}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(Path(__file__).with_name("spark_reader.py")), "local[2]", json.dumps(given)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, "PYTHONPATH": path},
                cwd=folder,
                text=True,
            )

    def ask(self, do, **command):
        self._n_asked += 1
        self._process.stdin.write(json.dumps({"number": self._n_asked, "do": do, **command}) + "\n")
        self._process.stdin.flush()
        while line := self._process.stdout.readline():
            answer = json.loads(line)
            if answer.pop("number") == self._n_asked:  # else to a question whose test ran out of time
                return answer
        raise RuntimeError(f"Spark is gone:\n{self._log.read_text()[-3000:]}")

    def _read(self, **command):
        to = self._folder / "rows.arrow"
        answer = self.ask("read", to=str(to), **command)
        if "error" in answer:
            return [], answer
        with pa.memory_map(str(to)) as file:
            table = pa.ipc.open_file(file).read_all()
        stamps = table.column("timestamp").cast(pa.int64())
        rows = table.set_column(table.schema.get_field_index("timestamp"), "timestamp", stamps).to_pylist()
        return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"])), answer

    def theirs(self, **options):
        """From the broker."""
        quick = {"fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "50"}
        given = {"kafka.bootstrap.servers": self._server, **quick, **flat(options)}
        return self._read(format="kafka", options=given, path=None)

    def ours(self, **options):
        """From its files."""
        return self._read(format="kafkalog", options=flat(options), path=str(self.log_dir))

    def close(self):
        with self._process:
            self._process.stdin.close()
            try:
                self._process.wait(30)
            except subprocess.TimeoutExpired:
                self._process.kill()


def flat(options):
    return {
        name.replace("__", "."): value if isinstance(value, str) else json.dumps(value)
        for name, value in options.items()
    }


@pytest.fixture(scope="module")
def spark(history, tmp_path_factory):
    program = java()
    one = Spark(history, spark_connector(program), tmp_path_factory.mktemp("spark"))
    with contextlib.closing(one):
        yield one


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_every_topic_reads_as_sparks_own_source_reads_it(spark, level):
    # of held-back, the last stable offset lies below the log start, at which Spark's own source fails
    topics = [name for name in QUIET if level == "read_uncommitted" or name != "held-back"]
    options = {"subscribe": ",".join(topics), "includeHeaders": True, "kafka__isolation__level": level}
    theirs, about_theirs = spark.theirs(**options)
    ours, about_ours = spark.ours(**options)
    assert "error" not in about_theirs, about_theirs["error"]
    assert about_ours.get("schema") == about_theirs.get("schema")
    assert {row["topic"] for row in theirs} == set(topics) - {"empty", "trimmed-whole"}
    assert len(ours) == len(theirs) > 3000
    for mine, other in zip(ours, theirs, strict=True):
        assert mine == other


def bounds(spark, topic):
    log_dir = kafkalog.open(spark.log_dir)
    return {
        key.partition: (log_dir[key].log_start_offset, log_dir[key].log_end_offset)
        for key in log_dir
        if key.topic == topic
    }


def times(spark, topic):
    table = kafkalog.read_table(spark.log_dir, topics=topic, columns=["timestamp"])
    return sorted(table["timestamp"].cast(pa.int64()).to_pylist())


def cases(spark):
    stamps = times(spark, "gzip")
    early, late = stamps[len(stamps) // 4], stamps[3 * len(stamps) // 4]
    yield {"subscribe": "gzip", "startingOffsets": {"gzip": {"0": 40, "1": -2}}}
    yield {"subscribe": "gzip", "endingOffsets": {"gzip": {"0": 40, "1": -1}}}
    yield {
        "assign": {"gzip": [1], "lz4": [0]},
        "startingOffsets": {"gzip": {"1": 17}, "lz4": {"0": 3}},
        "endingOffsets": {"gzip": {"1": 90}, "lz4": {"0": 4}},
    }
    yield {"subscribePattern": "^(gz|z).*$", "includeHeaders": True}
    yield {"subscribePattern": "^trimmed.*"}
    yield {"subscribePattern": "^(.*ssed|transactions)$", "kafka__isolation__level": "read_committed"}
    yield {"subscribe": "gzip,backwards", "startingTimestamp": early, "startingOffsetsByTimestampStrategy": "latest"}
    yield {"subscribe": "gzip", "startingTimestamp": early, "endingTimestamp": late}
    yield {
        "subscribe": "gzip",
        "startingOffsetsByTimestamp": {"gzip": {"0": early, "1": 0}},
        "endingOffsetsByTimestamp": {"gzip": {"0": late, "1": 2**52}},
        "startingOffsets": {"gzip": {"0": 1, "1": 1}},
        "endingOffsets": "latest",
    }
    yield {"subscribe": "gzip", "startingTimestamp": 2**52, "startingOffsetsByTimestampStrategy": "latest"}
    yield {"subscribe": "defaults", "minPartitions": 12}
    yield {"subscribe": "defaults,compacted", "maxRecordsPerPartition": 40}
    (last,) = {end for _, end in bounds(spark, "compacted").values()}
    yield {"subscribe": "compacted", "startingOffsets": {"compacted": {"0": last // 2 + 1}}}
    yield {
        "subscribe": "gzip",
        "startingOffsets": {"gzip": {"0": 40, "1": 50}},
        "endingOffsets": {"gzip": {"0": 40, "1": 50}},
    }


def partition_of(row):
    return row["topic"], row["partition"]


def test_options_choose_the_same_rows(spark):
    n_rows = []
    for options in cases(spark):
        theirs, about_theirs = spark.theirs(**options)
        ours, about_ours = spark.ours(**options)
        assert "error" not in about_theirs, (options, about_theirs)
        assert "error" not in about_ours, (options, about_ours)
        assert ours == theirs, options
        n_rows.append(len(theirs))
        if "minPartitions" in options:
            assert about_ours["partitions"] >= 3
        if "maxRecordsPerPartition" in options:
            assert about_ours["partitions"] >= sum(-(-n // 40) for n in Counter(partition_of(r) for r in ours).values())
    assert n_rows.count(0) == 2
    assert len(n_rows) == 14


REFUSED = [
    {"subscribe": "gzip", "assign": {"gzip": [0]}},
    {"assign": "gzip"},
    {"assign": '{"gzip":0}'},
    {"assign": "{gzip"},
    {"subscribe": " , "},
    {"subscribePattern": " "},
    {"subscribe": "gzip", "minPartitions": "0"},
    {"subscribe": "gzip", "startingOffsets": "latest"},
    {"subscribe": "gzip", "endingOffsets": "earliest"},
    {"subscribe": "gzip", "startingOffsets": {"gzip": {"0": -1, "1": 0}}},
    {"subscribe": "gzip", "endingOffsets": {"gzip": {"0": -2, "1": 0}}},
    {"subscribe": "gzip", "startingOffsets": "soon"},
    {"subscribe": "gzip", "startingOffsets": '{"gzip":0}'},
    {"subscribe": "gzip", "startingTimestamp": "soon"},
    {"subscribe": "gzip", "startingOffsetsByTimestamp": "soon"},
    {"subscribe": "gzip", "kafka__key__deserializer": "x"},
    {"subscribe": "gzip", "kafka__value__deserializer": "x"},
    {"subscribe": "gzip", "kafka__enable__auto__commit": "x"},
    {"subscribe": "gzip", "kafka__interceptor__classes": "x"},
    {"subscribe": "gzip", "startingTimestamp": 2**52},
    {"subscribe": "gzip", "startingOffsets": {"gzip": {"0": 10, "1": 0}}, "endingOffsets": {"gzip": {"0": 9, "1": -1}}},
]


def test_what_sparks_source_refuses_is_refused(spark):
    for options in REFUSED:
        _, theirs = spark.theirs(**options)
        _, ours = spark.ours(**options)
        assert "error" in theirs, options
        assert "ValueError" in ours.get("error", "nothing"), options


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_a_stream_under_a_live_broker_reads_each_record_once(spark, history, tmp_path, level):
    topic = f"streamed-{level}"
    configs = {**SMALL, "retention.ms": -1}
    history.client.ask("create", topics=[{"name": topic, "partitions": 2, "configs": configs}])
    options = flat(
        {
            "subscribe": topic,
            "startingOffsets": "earliest",
            "kafka__isolation__level": level,
            "maxOffsetsPerTrigger": 150,
        }
    )

    def rows():
        found = Counter()
        for log in sorted((tmp_path / "out" / "_spark_metadata").glob("[0-9]*")):
            for line in log.read_text().splitlines()[1:]:
                lines = Path(json.loads(line)["path"].removeprefix("file://")).read_text().splitlines()
                found.update((row["partition"], row["offset"]) for row in map(json.loads, lines))
        return found

    def consumed(name):
        truth = history.client.consume(tmp_path / f"{name}.jsonl", [topic], isolation=level)
        return Counter((row["partition"], row["offset"]) for row in truth.records[topic])

    def is_read(expected):
        return sum(rows().values()) >= expected.total() or not spark.ask("state")["is_active"]

    for life in range(3):
        spark.ask("start", options=options, path=str(spark.log_dir), folder=str(tmp_path))
        try:
            for part in range(2):
                if level == "read_committed":
                    more = {"rounds": 12, "fence": False, "open": False, "kind": "plain", "partitions": 2}
                    history.client.ask("transactions", topic=topic, seed=7000 + 10 * life + part, first=10**6, **more)
                else:
                    more = {"kind": "headers", "partitions": 2, "codecs": ["lz4"], "per_batch": 5, "idempotent": False}
                    history.client.ask(
                        "produce", topic=topic, seed=7000 + 10 * life + part, first=10**6, records=200, **more
                    )
            expected = consumed(f"{life}")
            wait_until(partial(is_read, expected), "the stream reads all")
            assert spark.ask("state")["is_active"], spark.ask("state")["exception"]
        finally:
            spark.ask("stop")
        assert rows() == expected
        assert len(expected) > 20 * (life + 1)
