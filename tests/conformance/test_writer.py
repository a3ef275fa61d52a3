"""A real broker starts on partitions that were written here as on its own, and serves them to real consumers."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import os
import re
import signal
import time
from pathlib import Path
from typing import NamedTuple

import golden_sets
import numpy as np
import pytest
from conformance.kafka import BrokerLife, lines_said, parse_dump
from writing import Record, columns_of, draw

import kafkalog
from kafkalog import ConfigWarning, LogConfig, PartitionWriter, TransactionWarning
from kafkalog import format as kf
from kafkalog.state.producers import ProducerSnapshot
from kafkalog.storage import atomic as file_steps

pytestmark = [pytest.mark.broker, pytest.mark.slow]

QUIET = {
    "log.retention.check.interval.ms": 10**9,
    "broker.session.timeout.ms": 2500,
    "broker.heartbeat.interval.ms": 500,
    "producer.id.expiration.ms": 2**31 - 1,
}
"""Nothing but what the tests ask for is to change files."""

NOW = time.time_ns() // 10**6
MAX_MESSAGE_BYTES = 4_000_000
SMALL = LogConfig(segment_bytes=4000, index_interval_bytes=512)


class Told(NamedTuple):
    """What was written: the records by offset, and which of them a transaction keeps from `read_committed`."""

    records: dict[int, Record]
    hidden: set[int]


class Case:
    """A partition on its way: a writer, and what it was given."""

    def __init__(self, path, told=None, **options):
        self.writer = PartitionWriter(path, **{"config": SMALL, **options})
        self.records = {} if told is None else dict(told.records)
        self.hidden = set() if told is None else set(told.hidden)
        self._open = {}

    def __enter__(self):
        return self

    def __exit__(self, *error):
        is_open = len(self.writer._files.producers.transactions) and self.records and error[0] is None
        with pytest.warns(TransactionWarning) if is_open else contextlib.nullcontext():
            self.writer.__exit__(*error)

    def add(self, records, **options):
        """Append; an offset is the record's own, or the next."""
        before = self.writer.next_offset
        result = self.writer.append(columns_of(records), **options)
        offsets = [before + row if record.offset is None else record.offset for row, record in enumerate(records)]
        assert (result.first_offset, result.last_offset) == (offsets[0], offsets[-1])
        self.records.update(zip(offsets, records, strict=True))
        if options.get("transactional"):
            self._open.setdefault(options["producer"][0], set()).update(offsets)
        return self

    def end(self, producer, how):
        """Commit or abort."""
        getattr(self.writer, f"{how}_transaction")(producer=producer)
        offsets = self._open.pop(producer[0])
        self.hidden |= offsets if how == "abort" else set()
        return self

    @property
    def told(self):
        first_open = min((min(offsets) for offsets in self._open.values()), default=2**63)
        return Told(self.records, self.hidden | {offset for offset in self.records if offset >= first_open})


def simple(n=200, **options):
    """Drawn records, all at once."""

    def write(path):
        with Case(path, **options) as case:
            case.add(draw(n, len(path.name)))
        return case.told

    return write


def moved(offset, n=120, **options):
    """Records with offsets of their own."""

    def write(path):
        with Case(path, **options) as case:
            case.add([record._replace(offset=offset(row)) for row, record in enumerate(draw(n))])
        return case.told

    return write


def stamped(stamp, n=150, **options):
    """Records with timestamps of their own."""

    def write(path):
        with Case(path, **options) as case:
            case.add([record._replace(timestamp=stamp(row)) for row, record in enumerate(draw(n))])
        return case.told

    return write


def transactions(script):
    """A letter a step: a and b write, A and B commit, x and y abort theirs, p writes outside."""
    producers = {"a": (4001, 0), "b": (70_000_000_001, 3)}

    def write(path):
        with Case(path, batch_size=700) as case:
            for number, step in enumerate(script):
                records = draw(15, number, start=NOW + 1000 * number)
                if step == "p":
                    case.add(records)
                elif step in producers:
                    case.add(records, producer=producers[step], transactional=True)
                elif step in "AB":
                    case.end(producers[step.lower()], "commit")
                else:
                    case.end(producers["a" if step == "x" else "b"], "abort")
        return case.told

    return write


def idempotent(path):
    with Case(path, batch_size=500) as case:
        for number in range(9):
            case.add(draw(20, number, start=NOW + 1000 * number), producer=(900 + number % 3, number % 3))
    return case.told


def wrapped_sequence(path):
    entry = np.zeros(1, kf.PRODUCER_SNAPSHOT_DTYPE)
    entry[0] = (55, 0, 2**31 - 30, 9, 0, NOW, -1, -1)
    known = ProducerSnapshot(10, entry)
    with Case(path, batch_size=400, start_offset=10, producer_snapshot=known, producer=(55, 0)) as case:
        case.add(draw(90, start=NOW))
    sequences = kafkalog.Partition(path).segments[-1].batches.base_sequence
    assert 0 <= sequences[-1] < 90
    return case.told


def large(path):
    with Case(path, config=LogConfig(), compression="zstd") as case:
        case.add([Record(value=bytes([row]) * 700_000) for row in range(4)])
        case.add([Record(value=np.random.default_rng(row).bytes(300_000)) for row in range(3)])
    return case.told


def over_the_limit(path):
    """A record that no producer could send to its topic."""
    big = Record(value=np.random.default_rng(0).bytes(4_500_000))
    with (
        Case(path, config=LogConfig(max_message_bytes=MAX_MESSAGE_BYTES)) as case,
        pytest.warns(ConfigWarning),
    ):
        case.add([*draw(20, 1), big, *draw(20, 2)])
    return case.told


def twice(path):
    with Case(path, compression="lz4") as case:
        case.add(draw(100, 1))
    with Case(path, case.told, compression="gzip") as again:
        again.add(draw(100, 2, start=1_700_001_000_000))
    return again.told


def ended_later(path):
    """A transaction that is left open, and ended by who writes next."""
    with Case(path, batch_size=500) as case:
        case.add(draw(10, start=NOW)).add(draw(40, 1, start=NOW), producer=(31, 2), transactional=True)
    with Case(path, case.told._replace(hidden=set()), batch_size=500) as again:
        again._open[31] = set(case.told.hidden)
        again.add(draw(20, 2, start=NOW), producer=(31, 2), transactional=True).end((31, 2), "abort")
        again.add(draw(20, 3, start=NOW))
    return again.told


def many_epochs(path):
    with Case(path, leader_epoch=0) as case:
        case.add(draw(50))
    with Case(path, case.told, leader_epoch=1) as again:
        again.add(draw(50, 1))
    return again.told


def far_from_the_start(path):
    """An empty segment where the log begins, since the first offset is too far for its indexes."""
    with Case(path, start_offset=100) as case:
        case.add([record._replace(offset=2**33 + 3 * row) for row, record in enumerate(draw(60))])
    assert (path / "00000000000000000100.log").stat().st_size == 0
    return case.told


def nothing(path):
    with Case(path) as case:
        pass
    return case.told


CASES = {
    **{f"codec-{codec}": simple(compression=codec) for codec in ("none", "gzip", "snappy", "lz4", "zstd")},
    "defaults": simple(config=None, n=3000),
    "record-a-batch": simple(batch_size=1, compression="zstd"),
    "seven-a-batch": simple(max_records_per_batch=7),
    "one": simple(1),
    "empty": nothing,
    "large": large,
    "over-the-limit": over_the_limit,
    "appended-time": simple(timestamp_type="LogAppendTime", log_append_time=NOW),
    "appended-time-zstd": simple(timestamp_type="LogAppendTime", log_append_time=NOW, compression="zstd"),
    "backwards": stamped(lambda row: 1_700_000_000_000 - 7 * row),
    "jumping": stamped(lambda row: 1_700_000_000_000 + (row * 7919) % 5000, compression="lz4"),
    "no-timestamps": stamped(lambda row: -1),
    "some-timestamps": stamped(lambda row: -1 if row % 3 else 1_700_000_000_000 + row),
    "zero-timestamps": stamped(lambda row: 0),
    "rolled-by-time": stamped(lambda row: NOW + 1000 * row, config=LogConfig(segment_ms=20_000), batch_size=300),
    "rolled-by-index": simple(config=LogConfig(segment_index_bytes=96, index_interval_bytes=0), batch_size=300),
    "rolled-by-batch": simple(40, config=LogConfig(segment_index_bytes=12, index_interval_bytes=0), batch_size=300),
    "rolled-by-offset": moved(lambda row: row * 2**29, batch_size=300),
    "jittered": stamped(
        lambda row: NOW + 1000 * row,
        config=LogConfig(segment_ms=20_000, segment_jitter_ms=15_000),
        seed=3,
        batch_size=300,
    ),
    "gaps": moved(lambda row: 5 * row + row % 3),
    "high": moved(lambda row: 2**40 + row),
    "very-high": moved(lambda row: 2**62 + 1000 * row),
    "far-from-the-start": far_from_the_start,
    "idempotent": idempotent,
    "wrapped-sequence": wrapped_sequence,
    "committed": transactions("aaAbB"),
    "aborted": transactions("pababxpyp"),
    "interleaved": transactions("abpabApyabxaBpbyAp"),
    "left-open": transactions("abApbap"),
    "twice": twice,
    "ended-later": ended_later,
    "many-epochs": many_epochs,
}
BROKERS_OWN = ("behind-a-broker", "behind-a-broker-s-transactions", "behind-nothing")
"""Topics that the broker wrote to before, or has made the directory of."""
CRASHED = tuple(f"crashed-{n}" for n in range(1, 16))
"""Partitions behind which somebody wrote who was killed before the n-th file was moved in."""
COPIED = ("p-txn-0", "p-headers-0", "p-compact-txn-0", "p-compact-idem-0", "p-retention-0")
"""Partitions of another broker, written again batch by batch."""


def topic_of(name):
    return f"w-{name}"


def copy_batches(source, target):
    """All batches as they are, in segments of another size."""
    partition = kafkalog.Partition(source)
    with PartitionWriter(target, config=SMALL, start_offset=partition.segments[0].base_offset) as writer:
        for segment in partition.segments:
            with segment.open() as opened:
                for window in segment.iter_windows(opened):
                    writer.append_batches(window)


def begun(path):
    """What is there before somebody is killed."""
    with Case(path, leader_epoch=0, batch_size=500) as case:
        case.add(draw(60, 1, start=NOW)).add(draw(30, 2, start=NOW), producer=(12, 0), transactional=True)
    return case.told


def die(n, path, told):
    """Append more, and be killed before the n-th rename."""
    child = os.fork()
    if not child:
        renames = itertools.count(1)
        rename = file_steps._renameat2

        def last(*arguments):
            if next(renames) == n:
                os.kill(os.getpid(), signal.SIGKILL)
            rename(*arguments)

        file_steps._renameat2 = last
        more(path, told)
        os._exit(0)
    os.waitpid(child, 0)


def more(path, told):
    """What is appended by who is killed."""
    with Case(path, told, leader_epoch=1, batch_size=500) as again:
        again._open[12] = set(told.hidden)
        again.add(draw(30, 3, start=NOW), producer=(12, 0), transactional=True).end((12, 0), "abort")
        again.add(draw(60, 4, start=NOW))
    return again.told


class Written(BrokerLife):
    """A broker that is started on partitions that were written here, stopped and started again."""

    def __init__(self, folder):
        super().__init__(folder, **QUIET)
        self.told = {}
        self.brokers_own = {}

    def path(self, name):
        return self.log_dir / f"{topic_of(name)}-0"

    def tell(self):
        """Create topics, write some of them, stop the broker, write the others, start it, and so on."""
        names = [*CASES, *BROKERS_OWN, *COPIED, *CRASHED]
        topics = [
            {
                "name": topic_of(name),
                "partitions": 1,
                "configs": {"retention.ms": -1, "max.message.bytes": MAX_MESSAGE_BYTES},
            }
            for name in names
        ]
        self.boot()
        self.client.ask("create", topics=topics)
        own = {"partitions": 1, "seed": 5, "first": 0, "kind": "headers"}
        common = {**own, "records": 60, "per_batch": 9, "idempotent": True, "codecs": ["none", "zstd"]}
        self.client.ask("produce", topic=topic_of("behind-a-broker"), **common)
        self.client.ask(
            "transactions", topic=topic_of("behind-a-broker-s-transactions"), rounds=4, fence=True, open=True, **own
        )
        before = [topic_of(name) for name in BROKERS_OWN]
        self.before = self.client.consume(self.folder / "before.jsonl", before)
        self.stop()
        self.write()
        self.written = self.hashes()
        self.boot()
        self.read = self.client.consume(self.folder / "read.jsonl", [topic_of(name) for name in names])
        self.committed = self.client.consume(
            self.folder / "committed.jsonl", [topic_of(name) for name in names], isolation="read_committed"
        )
        self.times = {f"{topic_of(name)}-0": self.stamps(name) for name in names}
        rows = self.client.ask("offsets", times=self.times)["partitions"]
        self.offsets = {row["topic"]: row for row in rows}
        self.stable = self.client.last_stable_offsets()
        self.stop()
        self.restarted = self.hashes()
        self.ours = {
            name: kafkalog.Partition(self.path(name)).offset_for_timestamp([max(at, 0) for at in times])
            for name, times in zip(names, self.times.values(), strict=True)
        }
        self.boot()
        self.written_to = names[::2]
        for number, name in enumerate(self.written_to):
            self.client.ask(
                "produce", topic=topic_of(name), **{**common, "records": 5, "first": 1000, "seed": 900 + number}
            )
        self.after = self.client.consume(self.folder / "after.jsonl", [topic_of(name) for name in self.written_to])
        self.stop()
        self.again = self.hashes()

    def write(self):
        """The partitions: apart, to be installed, or right where they belong."""
        apart = self.folder / "apart"
        apart.mkdir()
        for name, case in CASES.items():
            path = apart / f"{topic_of(name)}-0"
            self.told[name] = case(path)
            report = kafkalog.install(path, self.log_dir)
            assert (report.is_replaced, report.is_rebuilt, report.findings) == (True, False, []), name
        for name in COPIED:
            path = apart / f"{topic_of(name)}-0"
            copy_batches(golden_sets.partitions("k44")[name], path)
            kafkalog.install(path, self.log_dir)
        for name in BROKERS_OWN:
            old = {file.name: file.read_bytes() for file in self.path(name).iterdir()}
            records = [
                Record(row["timestamp"], row["key"], row["value"], tuple(map(tuple, row["headers"])))
                for row in self.before.records[topic_of(name)]
            ]
            offsets = [row["offset"] for row in self.before.records[topic_of(name)]]
            known = Told(dict(zip(offsets, records, strict=True)), set())
            with Case(self.path(name), known, compression="lz4") as case:
                case.add(draw(80, 77, start=NOW))
                case.add(draw(40, 78, start=NOW + 1000), producer=(6001, 0), transactional=True).end((6001, 0), "abort")
            self.told[name] = case.told
            for file, content in old.items():
                if content and "epoch" not in file:
                    assert (self.path(name) / file).read_bytes() == content, file
        assert [path.name for path in self.folder.iterdir() if path.name.startswith(".")] == []
        for n, name in enumerate(CRASHED, 1):
            path = apart / f"{topic_of(name)}-0"
            self.before_crash = begun(path)
            kafkalog.install(path, self.log_dir)
            die(n, self.path(name), self.before_crash)
        self.after_crash = more(path, self.before_crash)

    def stamps(self, name):
        stamps = {
            int(stamp)
            for segment in kafkalog.Partition(self.path(name)).segments
            for stamp in segment.batches.max_timestamp[::5]
            if stamp > 0
        }
        return [-1, -2, -3, *sorted(near for stamp in stamps for near in (stamp, stamp + 1))[:30]]

    def hashes(self):
        """Of all files of ours that are not the broker's to change."""
        return {
            f"{path.parent.name}/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest()
            for path in sorted(self.log_dir.glob("w-*/*"))
            if path.name != "leader-epoch-checkpoint"
        }


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    with Written(tmp_path_factory.mktemp("writer")) as written:
        written.tell()
        yield written


def as_records(rows):
    return {
        row["offset"]: Record(
            row["timestamp"], row["key"], row["value"], tuple((name, value) for name, value in row["headers"])
        )
        for row in rows
    }


def test_at_least_thirty_partitions_were_written(written):
    assert len(written.told) >= 30
    n_segments = {name: len(kafkalog.Partition(written.path(name)).segments) for name in written.told}
    for name in ("rolled-by-time", "rolled-by-index", "rolled-by-batch", "rolled-by-offset", "jittered", "codec-none"):
        assert n_segments[name] >= 3, name
    assert n_segments["rolled-by-offset"] >= 120 // 4


COMPLAINT = r"\b(WARN|ERROR|FATAL)\b|[Rr]ecover(y|ing) (un|seg|log)|[Tt]runcat(ed|ing)|[Cc]orrupt|stray"
EXPECTED = (
    "partition=__cluster_metadata-0|Performing controller activation|NetworkClient that has already been closed"
    # a controller that registers with itself before it is ready to, now and then
    "|Unexpected error handling request RequestHeader.apiKey=CONTROLLER_REGISTRATION"
)
"""What a broker always has to say: none of it is about partitions."""
ORPHAN = r"LogLoader partition=w-crashed-\d+-0, .*Found an orphaned index file"
"""Whose segment was still to come."""


def test_the_broker_has_nothing_to_say_about_them(written):
    assert len(written.logs) == 3
    n_orphans = []
    n_partitions = len(CASES) + len(BROKERS_OWN) + len(COPIED) + len(CRASHED)
    for log in written.logs[1:]:
        assert len(re.findall(r"Completed load of Log\(dir=\S+/w-", log)) == n_partitions
        lines = lines_said(log)
        said = [line for line in lines if re.search(COMPLAINT, line) and not re.search(EXPECTED, line)]
        assert [line for line in said if not re.search(ORPHAN, line)] == []
        n_orphans.append(len(said))
    assert n_orphans[0] > 2
    assert n_orphans[1:] == [0]


def test_a_broker_starts_on_what_a_kill_leaves(written):
    before, after = sorted(written.before_crash.records), sorted(written.after_crash.records)
    lengths = []
    for name in CRASHED:
        rows = written.read.records[topic_of(name)]
        found = as_records(rows)
        offsets = sorted(found)
        assert offsets == after[: len(offsets)], name
        assert all(found[offset] == written.after_crash.records[offset] for offset in offsets)
        committed = [row["offset"] for row in written.committed.records[topic_of(name)]]
        end = written.offsets[topic_of(name)]["latest"]
        if end <= 120:  # the transaction is open as long as its marker is not there
            assert committed == before[:60], name
        else:
            hidden = written.after_crash.hidden
            assert committed == [offset for offset in offsets if offset not in hidden], name
        lengths.append(len(offsets))
    assert lengths == sorted(lengths)
    assert lengths[0] == len(before)
    assert lengths[-1] == len(after)
    assert len(set(lengths)) >= 3


def test_a_consumer_gets_exactly_what_was_written(written):
    n_records = 0
    for name, told in written.told.items():
        rows = written.read.records[topic_of(name)]
        found = as_records(rows)
        expected = {offset: record._replace(offset=None) for offset, record in told.records.items()}
        if name.startswith("appended-time"):
            assert {row["timestamp_type"] for row in rows} == {1}
            expected = {offset: record._replace(timestamp=NOW) for offset, record in expected.items()}
        assert found == expected, name
        n_records += len(found)
    assert n_records > 5000


def test_a_consumer_of_committed_records_gets_no_others(written):
    n_hidden = 0
    for name, told in written.told.items():
        if name == "behind-a-broker-s-transactions":
            continue  # whether its records are to be seen was the broker's to decide
        found = {row["offset"] for row in written.committed.records[topic_of(name)]}
        assert found == told.records.keys() - told.hidden, name
        n_hidden += len(told.hidden)
    assert n_hidden > 300
    for name in [*written.told, *COPIED]:
        ours = kafkalog.scan(
            written.path(name), isolation_level="read_committed", end_offset=written.offsets[topic_of(name)]["latest"]
        )
        offsets = ours.to_table().column("offset").to_pylist()
        assert offsets == [row["offset"] for row in written.committed.records[topic_of(name)]], name


def test_batches_of_another_broker_come_out_as_there(written):
    for name in COPIED:
        table = kafkalog.read_table(golden_sets.partitions("k44")[name])
        rows = written.read.records[topic_of(name)]
        assert [row["offset"] for row in rows] == table.column("offset").to_pylist(), name
        assert [row["value"] for row in rows] == table.column("value").to_pylist(), name
        assert len(rows) > 10


WITH_MARKERS = ("committed", "aborted", "interleaved", "left-open", "ended-later", *BROKERS_OWN)


def test_offsets_for_times_agree(written):
    n_answers = 0
    for name in [*CASES, *BROKERS_OWN, *COPIED]:
        row = written.offsets[topic_of(name)]
        told = written.told.get(name)
        asked = zip(written.times[f"{topic_of(name)}-0"], row["answers"], written.ours[name].tolist(), strict=True)
        for at, (_, offset, _), ours in asked:
            if at < 0:
                continue
            assert offset == ours, (name, at)
            if told is not None and name not in WITH_MARKERS and "appended-time" not in name:
                matching = [number for number, record in told.records.items() if record.timestamp >= at]
                assert offset == min(matching, default=-1), (name, at)
            n_answers += 1
        if told is not None and told.records:
            assert row["earliest"] <= min(told.records)
            assert row["latest"] > max(told.records)
    assert n_answers > 300


def test_a_restart_changes_none_of_the_files(written):
    ours = {name: content for name, content in written.written.items() if not name.startswith("w-crashed")}
    # what was known before the first offset is nothing to a broker
    del ours["w-wrapped-sequence-0/00000000000000000010.snapshot"]
    assert len(ours) > 800
    assert {name: written.restarted.get(name) for name in ours} == ours
    touched = {f"{topic_of(name)}-0" for name in written.written_to}
    left = {name: content for name, content in ours.items() if name.partition("/")[0] not in touched}
    assert len(left) > 300
    assert {name: written.again.get(name) for name in left} == left


def test_the_broker_appends_behind_ours(written):
    assert len(written.written_to) > 20
    for name in written.written_to:
        after = written.after.records[topic_of(name)]
        before = written.read.records.get(topic_of(name), [])
        assert after[: len(before)] == before, name
        new = after[len(before) :]
        assert len(new) == 5, name
        assert new[0]["offset"] == written.offsets[topic_of(name)]["latest"]
        if before:
            assert new[0]["offset"] > before[-1]["offset"]


def test_nothing_is_found_by_verify(written):
    result = kafkalog.verify(written.log_dir, deep=True)
    found = [str(finding) for finding in result.findings]
    assert found == []
    assert sum(len(partition.segments) for partition in result.partitions) > 200


def test_kafka_s_own_tool_finds_every_batch_valid_and_every_index_sound(written):
    file = written.folder / "dump.txt"
    logs = sorted(map(str, written.log_dir.glob("w-*/*.log")))
    written.client.ask("dump", file=str(file), logs=logs)
    batches = [batch for rows in parse_dump(file.read_text()).values() for batch in rows]
    assert len(batches) > 900
    assert {batch["isvalid"] for batch in batches} == {"true"}
    indexes = sorted(map(str, (*written.log_dir.glob("w-*/*.index"), *written.log_dir.glob("w-*/*.timeindex"))))
    written.client.ask("dump", file=str(file), logs=indexes, options=["--index-sanity-check"])
    lines = file.read_text().splitlines()
    assert {line.partition(" passed")[0] for line in lines if line.endswith("passed sanity check.")} >= {
        path for path in indexes if Path(path).stat().st_size
    }
    written.client.ask("dump", file=str(file), logs=indexes, options=["--verify-index-only"])
    complaints = [line for line in file.read_text().splitlines() if not line.startswith("Dumping ")]
    assert [line for line in complaints if not line.endswith("is empty.")] == []
