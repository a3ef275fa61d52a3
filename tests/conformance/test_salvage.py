"""A real broker starts on logs that were salvaged, truncated or trimmed, and serves exactly what they are to hold."""

from __future__ import annotations

import hashlib
import re
import shutil
from pathlib import Path
from typing import NamedTuple

import builder
import golden_sets
import numpy as np
import pytest
import salvage_trials
from conformance.kafka import QUIET, BrokerLife
from conformance.test_offline_recovery import recovery_lines

import kafkalog
from kafkalog import format as kf
from kafkalog.state.checkpoints import encode_offset_checkpoint, read_offset_checkpoint

pytestmark = [pytest.mark.broker, pytest.mark.slow]

SALVAGED = (
    *(("k44", name) for name in ("p-mixcodec-0", "p-txn-0", "p-compact-0", "p-compact-gzip-0", "p-idem-0")),
    *(("k44", name) for name in ("p-zstd-java-0", "p-snappy-java-0", "p-lz4-rdk-0", "p-gzip-rdk-0", "p-headers-0")),
    *(("k44", name) for name in ("p-logappend-0", "p-none-java-0", "p-multi-0", "p-compact-txn-0", "p-ooo-0")),
    *(("k28", name) for name in ("p-v0-mixcodec-0", "p-v1-mixcodec-0", "p-v0v1v2-mixed-0", "p-v1-logappend-0")),
    *(("k28", name) for name in ("p-v0-none-0", "p-v1-compact-none-0", "p-v1v2-mixed-0", "p-v2-txn-0")),
)
TRUNCATED = (
    ("k44", "p-txn-0", {"to_offset": 156}),
    ("k44", "p-txn-0", {"to_offset": 304}),
    ("k44", "p-mixcodec-0", {"to_offset": 100}),
    ("k44", "p-multi-0", {"to_offset": 0}),
    ("k44", "p-compact-0", {"to_offset": 600}),
    ("k44", "p-idem-0", {"to_epoch": 0}),
    ("k28", "p-v0v1v2-mixed-0", {"to_offset": 200}),
    ("k28", "p-v0-gzip-0", {"to_offset": 333}),
)
TRIMMED = (
    ("k44", "p-txn-0", {"before_offset": 200}),
    ("k44", "p-txn-0", {"before_offset": 430}),
    ("k44", "p-mixcodec-0", {"before_offset": 77}),
    ("k44", "p-compact-0", {"before_offset": 555}),
    ("k44", "p-idem-0", {"before_offset": 61}),
    ("k28", "p-v0v1v2-mixed-0", {"before_offset": 321}),
    ("k28", "p-v1-gzip-0", {"before_offset": 222}),
)
MERGED = (("k44", "p-txn-0"), ("k44", "p-zstd-java-0"), ("k44", "p-compact-0"), ("k28", "p-v1-none-0"))
BY_TIME = (("k44", "p-multi-0"), ("k44", "p-ooo-0"), ("k44", "p-zstd-java-0"), ("k28", "p-v1-lz4-0"))

Row = tuple[int, bytes | None, bytes | None]


class Batch(NamedTuple):
    """A batch: its bytes, its last offset, and the offset behind the batch before."""

    first: int
    last: int
    data: bytes


class Repaired(BrokerLife):
    """A broker that was stopped, and started again on partitions that were repaired meanwhile.

    By the name of each partition, `expected` has offset, key and value of its records, and `bounds` the log start and
    end offsets that the reports name.
    """

    def tell(self):
        self.expected = {}
        self.bounds = {}
        self.lost = 0
        n_made, configs = 4, {"retention.ms": -1, "max.message.bytes": 4_000_000}
        sizes = {
            "salvaged": len(SALVAGED) + n_made,
            "truncated": len(TRUNCATED) + len(BY_TIME) + 1,
            "trimmed": len(TRIMMED) + len(BY_TIME),
            "trimmed-copies": 1,
            "merged": len(MERGED) + 1,
        }
        self.boot()
        topics = [{"name": name, "partitions": n, "configs": configs} for name, n in sizes.items()]
        self.client.ask("create", topics=topics)
        self.stop()
        self.salvage(n_made)
        self.truncate()
        self.trim()
        self.merge()
        self.before = self.hashes()
        self.boot()
        self.read = self.client.consume(self.folder / "read.jsonl", list(sizes))
        self.offsets = self.client.ask("offsets", times={})["partitions"]
        self.stop()
        self.after = self.hashes()

    def place(self, source, name):
        """Make a partition the one that the broker had when it stopped, but for the topic's id."""
        target = self.log_dir / name
        metadata = (target / kf.PARTITION_METADATA).read_bytes()
        shutil.rmtree(target)
        shutil.copytree(source, target)
        (target / kf.PARTITION_METADATA).write_bytes(metadata)
        parsed = kf.parse_partition_directory(name)
        assert parsed is not None
        for checkpoint in (kf.HIGH_WATERMARK_CHECKPOINT, kf.RECOVERY_POINT_CHECKPOINT):
            offsets = dict(read_offset_checkpoint(self.log_dir / checkpoint) or {})
            offsets[parsed.topic_partition] = kafkalog.Partition(target).log_end_offset
            (self.log_dir / checkpoint).write_bytes(encode_offset_checkpoint(offsets))
        return target

    def salvage(self, n_made):
        wanted = {}
        for number, (golden, name) in enumerate(SALVAGED):
            target = self.place(golden_sets.partitions(golden)[name], f"salvaged-{number}")
            wanted[target.name] = damage(target, records(golden, name), seed=number)
        for number in range(len(SALVAGED), len(SALVAGED) + n_made):
            target = self.place(made(self.folder / f"made-{number}", number), f"salvaged-{number}")
            wanted[target.name] = damage(target, rows_of(target), seed=number)
        report = kafkalog.salvage(self.log_dir, topics="salvaged", output=self.folder / "salvaged")
        assert len(report.partitions) == len(wanted)
        self.lost = report.total("n_bytes_lost")
        for one in report.partitions:
            self.put(one)
            self.expected[Path(one.output).name] = wanted[Path(one.output).name]

    def put(self, one):
        """A salvaged partition takes the place of the damaged one."""
        target = self.log_dir / Path(one.output).name
        shutil.rmtree(target)
        shutil.move(one.output, target)
        self.bounds[target.name] = one.start_offset, one.end_offset

    def truncate(self):
        cuts = [*TRUNCATED, *((*one, {"to_timestamp": middle_time(*one)}) for one in BY_TIME)]
        for number, (golden, name, how) in enumerate(cuts):
            target = self.place(golden_sets.partitions(golden)[name], f"truncated-{number}")
            rows, batches = records(golden, name), batches_of(target)
            if "to_offset" in how:
                at = how["to_offset"]
            elif "to_timestamp" in how:
                at = first_at(golden, name, how["to_timestamp"])
            else:
                at = 2**62  # nothing is of a later epoch
            end = max((batch.last + 1 for batch in batches if batch.last < at), default=0)
            self.note(kafkalog.truncate(target, **how, in_place=True, backup=self.folder / f"end-{number}"))
            self.expected[target.name] = [row for row in rows if row[0] < end]
            assert self.bounds[target.name][1] in (end, at)
        target = self.place(made(self.folder / "epochs", 0), f"truncated-{len(cuts)}")
        rows = rows_of(target)
        end = kafkalog.Partition(target).end_offset_for_epoch(1).end_offset
        assert 0 < end < rows[-1][0]
        self.note(kafkalog.truncate(target, to_epoch=1, in_place=True, backup=self.folder / "end-epochs"))
        self.expected[target.name] = [row for row in rows if row[0] < end]
        assert self.bounds[target.name] == (0, end)

    def trim(self):
        cuts = [*TRIMMED, *((*one, {"before_timestamp": middle_time(*one)}) for one in BY_TIME)]
        for number, (golden, name, how) in enumerate(cuts):
            target = self.place(golden_sets.partitions(golden)[name], f"trimmed-{number}")
            start = how.get("before_offset", 0) or first_at(golden, name, how["before_timestamp"])
            self.note(kafkalog.trim(target, **how, in_place=True, backup=self.folder / f"start-{number}"))
            self.expected[target.name] = [row for row in records(golden, name) if row[0] >= start]
            assert self.bounds[target.name] == (start, kafkalog.Partition(target).log_end_offset)
        # without the checkpoint of a log dir, what is left of the first segment is read, too
        target = self.place(golden_sets.partitions("k44")["p-txn-0"], "trimmed-copies-0")
        kafkalog.trim(target, before_offset=200, output=self.folder / "trimmed-copy-0")
        shutil.rmtree(target)
        shutil.move(self.folder / "trimmed-copy-0", target)
        base = min(int(path.stem) for path in target.glob("*.log"))
        assert 0 < base < 200
        self.bounds[target.name] = base, 430
        self.expected[target.name] = [row for row in records("k44", "p-txn-0") if row[0] >= base]

    def merge(self):
        """Three copies of a partition, each with every third batch damaged, make a whole one."""
        for number in range(len(MERGED) + 1):
            if number < len(MERGED):
                source = golden_sets.partitions(MERGED[number][0])[MERGED[number][1]]
            else:
                source = made(self.folder / "made-merged", number)
            target = self.place(source, f"merged-{number}")
            copies = [Path(shutil.copytree(target, self.folder / f"disk-{copy}" / target.name)) for copy in range(3)]
            for path in sorted(target.glob("*.log")):
                for row, (start, end) in enumerate(builder.batch_positions(path.read_bytes())):
                    with (copies[row % 3] / path.name).open("r+b") as file:
                        file.seek((start + 21 + end) // 2)
                        file.write(b"\xee" * 8)
            report = kafkalog.merge(copies, output=self.folder / f"merged-{number}")
            assert report.ok, list(report.lines())
            [one] = report.partitions
            assert len({each.source for each in one.ranges}) > 1
            shutil.rmtree(target)
            shutil.move(one.output, target)
            self.bounds[target.name] = one.start_offset, one.end_offset
            self.expected[target.name] = rows_of(source) if number == len(MERGED) else records(*MERGED[number])

    def note(self, report):
        (row,) = report.partitions
        assert row.error is None
        self.bounds[Path(row.path).name] = row.log_start_offset, row.log_end_offset

    def hashes(self):
        """Of all `.log` files of the repaired partitions."""
        return {
            f"{name}/{path.name}": hashlib.sha256(path.read_bytes()).hexdigest()
            for name in self.expected
            for path in sorted((self.log_dir / name).glob("*.log"))
        }


def damage(partition, rows, seed):
    """Damage each segment; returns the records of the batches that are still there, byte for byte."""
    rng = np.random.default_rng((20261122, seed))
    kept = []
    end = 0
    for path in sorted(partition.glob("*.log")):
        data = path.read_bytes()
        source = salvage_trials.Source(path.name, 0, data, tuple(builder.batch_positions(data)))
        damaged = salvage_trials.damage(rng, source, int(rng.integers(1, 8)), ("flip", "zero", "cut", "insert")).data
        path.write_bytes(damaged)
        position = 0
        for batch in batches_in(data, end):
            # where a cut took the last byte of a batch, the first of the next one may stand in for it
            at = damaged.find(batch.data, position)
            if at >= 0:
                position = at + len(batch.data)
                kept += [row for row in rows if batch.first <= row[0] <= batch.last]
            end = batch.last + 1
    return kept


def batches_in(data, start):
    """The batches of a segment; `start` is the offset behind the segment before."""
    for begin, end in builder.batch_positions(data):
        batch = data[begin:end]
        last = int.from_bytes(batch[:8], "big") + (int.from_bytes(batch[23:27], "big") if batch[16] == 2 else 0)
        yield Batch(start, last, batch)
        start = last + 1


def batches_of(partition):
    found = []
    for path in sorted(partition.glob("*.log")):
        found += batches_in(path.read_bytes(), found[-1].last + 1 if found else 0)
    return found


def made(target, seed):
    """A partition of two segments with all codecs and several leader epochs."""
    batches = salvage_trials.made(seed, 72).batches
    target.mkdir()
    for half in (batches[:40], batches[40:]):
        base = int.from_bytes(half[0][:8], "big")
        (target / kf.segment_file_name(base)).write_bytes(b"".join(half))
    kafkalog.reindex(target, kinds=["offset", "time", "txn", "snapshot", "epochs"], in_place=True)
    return target


def records(golden, name):
    """What a consumer of the broker that wrote a golden partition read."""
    parsed = kf.parse_partition_directory(name)
    assert parsed is not None
    return [
        (row["offset"], row["key"], row["value"])
        for row in golden_sets.truth(golden, parsed.topic_partition.topic)
        if row["partition"] == parsed.topic_partition.partition
    ]


def rows_of(partition):
    """The records of a made partition."""
    table = kafkalog.read_table(partition, columns=["offset", "key", "value"])
    return list(zip(*(table[name].to_pylist() for name in ("offset", "key", "value")), strict=True))


def timestamps(golden, name):
    topic = name.rpartition("-")[0]
    return [(row["offset"], row["timestamp"]) for row in golden_sets.truth(golden, topic) if row["partition"] == 0]


def middle_time(golden, name):
    """The timestamp of the record in the middle of a partition."""
    stamps = timestamps(golden, name)
    return stamps[len(stamps) // 2][1]


def first_at(golden, name, timestamp):
    """Offset of the first record at or after a time."""
    return min(offset for offset, at in timestamps(golden, name) if at >= timestamp)


@pytest.fixture(scope="module")
def repaired(tmp_path_factory):
    with Repaired(tmp_path_factory.mktemp("repaired"), **QUIET) as repaired:
        repaired.tell()
        yield repaired


def test_the_damage_is_worth_the_name(repaired):
    assert repaired.lost > 100_000
    n_rows = [len(repaired.expected[name]) for name in repaired.expected if name.startswith("salvaged")]
    assert min(n_rows) > 0
    assert sum(n_rows) > 3000


def test_a_consumer_reads_exactly_the_records_that_survive(repaired):
    read = {name: [] for name in repaired.expected}
    for rows in repaired.read.records.values():
        for row in rows:
            read[f"{row['topic']}-{row['partition']}"].append((row["offset"], row["key"], row["value"]))
    assert len(read) > 45
    assert [name for name in read if read[name] != repaired.expected[name]] == []


def test_logs_start_and_end_where_the_reports_say(repaired):
    listed = {f"{row['topic']}-{row['partition']}": (row["earliest"], row["latest"]) for row in repaired.offsets}
    assert {name: listed[name] for name in repaired.bounds} == repaired.bounds
    assert repaired.bounds.keys() == repaired.expected.keys()


def test_the_broker_recovers_nothing(repaired):
    assert recovery_lines(repaired.logs[1]) == []
    assert repaired.after == repaired.before


def test_a_recovery_of_everything_cuts_nothing(repaired):
    for name in (kf.CLEAN_SHUTDOWN_FILE, kf.RECOVERY_POINT_CHECKPOINT):
        (repaired.log_dir / name).unlink()
    repaired.boot()
    again = repaired.client.ask("offsets", times={})["partitions"]
    repaired.stop()
    log = repaired.logs[-1]
    assert "Recovering unflushed segment" in log
    complaints = re.compile(r"Corruption|orphan|runcating|Deleting|Found invalid|(WARN|ERROR) .*(LogLoader|UnifiedLog)")
    assert [line for line in recovery_lines(log) if complaints.search(line)] == []
    assert repaired.hashes() == repaired.before
    assert again == repaired.offsets
