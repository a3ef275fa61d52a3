"""What `kafkalog.compact` leaves is what Kafka's own cleaner leaves of the same partitions.

`KAFKALOG_COMPACTIONS` sets how many are cleaned three times, and `KAFKALOG_COMPACTIONS_SEED` chooses others.
"""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import effort
import golden_sets
import pytest
from compactions import DAY, HOUR, RandomPartition
from conformance.clusters import listeners, served
from conformance.kafka import Client, run_java

import kafkalog
from kafkalog.records.batch_table import COLUMNS

# segments are small here
pytestmark = [pytest.mark.broker, pytest.mark.filterwarnings("ignore::kafkalog.errors.ConfigWarning")]

SEED = 20261127
KINDS = {
    "plain": {},
    "compressed": {"codecs": ("none", "gzip", "snappy", "lz4", "zstd")},
    "old": {"old_formats": True},
    "old compressed": {"old_formats": True, "codecs": ("none", "gzip", "snappy", "lz4")},
}
GIVES_UP = "Empty batches are only supported for magic v2 and above"
DERIVED = (".index", ".timeindex", ".txnindex")


@dataclass
class Trial:
    """A partition, and how it is cleaned."""

    partition: RandomPartition
    directory: Path
    """Of Kafka's copy."""
    settings: dict[str, int]
    now: int
    dirty: int = -1
    is_given_up: bool = False

    @property
    def line(self):
        words = (self.now, 1, self.directory, self.dirty)
        return "\t".join([*map(str, words), *(f"{name}={value}" for name, value in self.settings.items())])


def by_kafka(trials):
    said = run_java(Path(__file__).with_name("Cleaning.java"), given=[one.line for one in trials]).splitlines()
    # Kafka's cleaner gives up a partition of an old format whose last batch loses all records
    return [-2 if GIVES_UP in one else int(one) for one in said]


OF_BROKERS = {
    "internal.segment.bytes": "log.segment.bytes",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
}
"""Names of topics' settings in `server.properties`."""


def ours(trial, source, folder, rng):
    """Compact a copy of a partition; returns its row. The copy is `folder` / t-0."""
    config = folder / "server.properties"
    folder.mkdir()
    config.write_text("".join(f"{OF_BROKERS[name]}={value}\n" for name, value in trial.settings.items()))
    (folder / "data").mkdir()
    shutil.copytree(source, folder / "data" / "t-0")
    if trial.dirty >= 0:
        (folder / "data" / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {trial.dirty}\n")
    options = {"now": trial.now, "config": config}
    dry = None if rng.random() < 0.8 else kafkalog.compact(folder / "data" / "t-0", dry_run=True, **options)
    if rng.random() < 0.5:
        report = kafkalog.compact(folder / "data", topics="t", output=folder / "out", **options)
        shutil.rmtree(folder / "data")
        (folder / "out").rename(folder / "data")
    else:
        backup = folder / "backup" if rng.random() < 0.5 else None
        report = kafkalog.compact(folder / "data" / "t-0", in_place=True, backup=backup, **options)
    (row,) = report.partitions
    assert row.error is None
    names = {"path": str(folder / "data" / "t-0")}
    assert dry is None or row.as_dict() | names == dry.partitions[0].as_dict() | names
    return row


def logs(directory):
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.log"))}


def content(directory):
    """What is in the segments, whatever the codec made of it."""
    names = [name for name in COLUMNS if name not in ("position", "size_in_bytes", "crc")]
    found = {}
    for segment in kafkalog.open_partition(directory).segments:
        batches = segment.batches
        columns = ["offset", "timestamp", "timestamp_type", "key", "value", "headers", "batch_base_offset"]
        records = kafkalog.scan(segment.path, columns=columns, include_control=True).to_table().to_pylist()
        found[segment.path.name] = ([getattr(batches, name).tolist() for name in names], records)
    return found


def _batches(segments):
    return [row for batches, _ in segments.values() for row in zip(*batches, strict=True)]


def _records(segments):
    return [row for _, records in segments.values() for row in records]


def compare(trial, source, theirs, mine, seen):
    their_logs, my_logs = logs(theirs), logs(mine)
    assert [*my_logs] == [*their_logs]
    if my_logs != their_logs:
        assert len(trial.partition.codecs) > 1
        assert content(mine) == content(theirs)
        seen["compressed again"] += 1
        return
    seen["equal"] += 1
    for name in [*my_logs][:-1]:
        for suffix in DERIVED:
            stem = name.removesuffix(".log") + suffix
            their_file, my_file = theirs / stem, mine / stem
            # an index that is there but empty is none
            data = their_file.read_bytes() if their_file.exists() else b""
            assert (my_file.read_bytes() if my_file.exists() else b"") == data, stem
            seen[suffix] += bool(data)
        assert abs((theirs / name).stat().st_mtime - (mine / name).stat().st_mtime) < 0.002
    merged = {path.stem for path in source.glob("*.log")} - {name.removesuffix(".log") for name in my_logs}
    left = {path.stem for path in mine.glob("*.snapshot")}
    assert not merged & left
    assert left <= {path.stem for path in source.glob("*.snapshot")}


def trials(n, seed, folder):
    rng, found = random.Random(seed), []
    now = time.time_ns() // 10**6
    for number in range(n):
        partition = RandomPartition(rng.getrandbits(60), now, **KINDS[[*KINDS][number % len(KINDS)]])
        partition.ends_transactions = rng.random() < 0.5
        directory = folder / f"theirs-{number}" / "t-0"
        directory.mkdir(parents=True)
        partition.append(directory, rng.randrange(1, 7), is_first=True)
        settings = {
            "internal.segment.bytes": rng.choice((1000, 3000, 2**30)),
            "delete.retention.ms": rng.choice((0, HOUR, DAY)),
            "index.interval.bytes": partition.config.index_interval_bytes,
            "segment.index.bytes": rng.choice((600, 2**20)),
        }
        if rng.random() < 0.3:
            settings["min.compaction.lag.ms"] = rng.choice((10 * HOUR, 20 * HOUR))
        found.append(Trial(partition, directory, settings, now))
    return found


def check(n, seed, folder, *, n_rounds):
    """Clean partitions, append to what Kafka left, and clean that again."""
    rng, seen = random.Random(seed), Counter[str]()
    found = trials(n, seed, folder)
    for round_number in range(n_rounds):
        found = [trial for trial in found if not trial.is_given_up]
        sources = []
        for number, trial in enumerate(found):
            source = folder / f"source-{round_number}-{number}" / "t-0"
            shutil.copytree(trial.directory, source)
            for path in source.glob("*.deleted"):
                path.unlink()
            sources.append(source)
        ends = by_kafka(found)
        for number, (trial, source, end) in enumerate(zip(found, sources, ends, strict=True)):
            mine = folder / f"ours-{round_number}-{number}"
            row = ours(trial, source, mine, rng)
            if end == -2:
                found[number].is_given_up = True
                continue
            assert (row.cleaned_to or -1) == end, trial
            compare(trial, source, trial.directory, mine / "data" / "t-0", seen)
            seen["removed"] += row.n_records_removed
            seen["cleaned"] += row.cleaned_to is not None
            trial.partition.now = trial.now = trial.now + rng.choice((0, HOUR, 2 * DAY))
            trial.partition.append(trial.directory, rng.randrange(3), is_first=False)
            trial.dirty = end if rng.random() < 0.5 else -1
    return seen


@pytest.mark.slow
def test_compact_leaves_what_kafkas_cleaner_leaves_of_many(tmp_path):
    n = int(os.environ.get("KAFKALOG_COMPACTIONS") or effort.trials(40, 100))
    seed = int(os.environ.get("KAFKALOG_COMPACTIONS_SEED", SEED + 1))
    seen = check(n, seed, tmp_path, n_rounds=3)
    # in three rounds
    assert seen["equal"] + seen["compressed again"] > 2.7 * n
    assert min(seen["cleaned"], seen["equal"]) > n // 2
    assert min(seen["compressed again"], seen[".txnindex"]) > n // 10


@pytest.mark.slow
def test_compact_leaves_what_kafkas_cleaner_leaves(tmp_path):
    seen = check(16, SEED, tmp_path, n_rounds=1)
    assert min(seen["equal"], seen["cleaned"], seen["removed"], seen[".index"]) > 5, seen


@pytest.mark.slow
def test_a_broker_serves_what_compact_leaves(tmp_path):
    names = [f"t{number}" for number in range(20)]
    rng = random.Random(SEED)
    now = time.time_ns() // 10**6
    for number, name in enumerate(names):
        directory = tmp_path / "data" / f"{name}-0"
        directory.mkdir(parents=True)
        kind = KINDS[[*KINDS][number % len(KINDS)]]
        partition = RandomPartition(rng.getrandbits(60), now, ends_transactions=rng.random() < 0.7, **kind)
        partition.append(directory, 5, is_first=True)
    in_place = {"in_place": True, "now": now}
    report = kafkalog.compact(tmp_path / "data", topics=names, **in_place)
    assert all(row.error is None for row in report.partitions)
    assert report.n_records_removed > 100
    # of a cluster with its own metadata: what brokers compact there, among it the groups' offsets
    cluster = golden_sets.unpack(tmp_path / "k44")
    groups = {one.name: one.offsets for one in kafkalog.groups(cluster)}
    assert "__consumer_offsets" in {
        row.topic_partition.topic for row in kafkalog.compact(cluster, **in_place).partitions
    }
    wanted = {
        level: [
            (name, row["offset"], row["key"], row["value"], row["timestamp"])
            for name in names
            for row in table_rows(tmp_path / "data" / f"{name}-0", level)
        ]
        for level in ("read_uncommitted", "read_committed")
    }
    boot = kafkalog.boot([tmp_path / "data", cluster], tmp_path / "out", nodes=listeners(), include_unknown=True)
    with Client(tmp_path) as client, served(client, boot, complains=True):
        for level, rows in wanted.items():
            found = client.consume(tmp_path / "read.jsonl", names, isolation=level).records
            fields = ("offset", "key", "value", "timestamp")
            assert [(name, *(one[field] for field in fields)) for name in names for one in found[name]] == rows
        served_groups = {one["group"]: one["offsets"] for one in client.ask("groups")["groups"]}
        for name, offsets in groups.items():
            if name in served_groups:
                assert {(topic, number): offset for topic, number, offset, *_ in served_groups[name]} == {
                    (one.topic, one.partition): one.offset for one in offsets
                }
        assert len({*groups} & {*served_groups}) > 2


def table_rows(directory, level):
    """Records of a partition, as a consumer gets them."""
    columns = ["offset", "key", "value", "timestamp"]
    table = kafkalog.scan(directory, columns=columns, isolation_level=level).to_table()
    stamps = table["timestamp"].cast("int64").fill_null(-1)
    return table.set_column(table.schema.get_field_index("timestamp"), "timestamp", stamps).to_pylist()
