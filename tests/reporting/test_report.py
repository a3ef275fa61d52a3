"""`kafkalog.report`: its numbers are those of other commands; its outlook on retention and cleaning."""

import json
import random
import shutil
import struct
import tarfile
from pathlib import Path

import builder
import numpy as np
import pytest
from effort import thinned
from golden_sets import shared_log_dir, unpack, unpacked
from writing import TOPIC_ID, columns_of, draw, write

import kafkalog
from kafkalog import LogConfig, PartitionWriter
from kafkalog.cli import main
from kafkalog.reporting.contents import outlook
from kafkalog.reporting.space_meter import stored_bytes
from kafkalog.survey.topics import TopicSettings

NOW = "2026-11-26T00:00:00Z"


def rows(report, name):
    return [*report.tables[name].objects()]


def place(finding):
    one = finding if isinstance(finding, dict) else finding.as_dict()
    return one["path"], one["reason"], one["position"], one["base_offset"], one["damage"]


def planted_log(path):
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data)


@pytest.fixture(scope="module")
def damaged_root(tmp_path_factory):
    root = unpack(tmp_path_factory.mktemp("report"), "k44", "unclean")
    planted_log(sorted((root / "p-txn-0").glob("*.log"))[1])
    planted_log(sorted((root / "__consumer_offsets-0").glob("*.log"))[0])
    sorted((root / "p-multi-0").glob("*.timeindex"))[0].write_bytes(b"\1" * 24)
    return root


@pytest.mark.parametrize("name", ["damaged", "clean"])
@pytest.mark.slow
def test_its_numbers_are_those_of_the_other_commands(name, damaged_root):
    root = unpacked("k44") if name == "clean" else damaged_root
    report = kafkalog.report(root, now=NOW)
    verified = kafkalog.verify(root)
    of_verify = {place(one) for one in verified.findings}
    found = {place(one) for one in rows(report, "findings")}
    assert of_verify <= found
    assert {one for one in found - of_verify if one[-1]} == set()
    assert [
        (row["path"], row["first_offset"], row["n_records"], row["certainty"]) for row in rows(report, "losses")
    ] == [
        (lost.path, lost.first_offset, lost.n_records, lost.certainty)
        for one in verified.partitions
        for lost in one.losses
    ]
    plans = kafkalog.preflight(root, now=NOW)
    assert (report.summary["verdict"], report.summary["n_bytes_lost"]) == (plans.verdict, plans.n_bytes_lost)
    assert {row["path"]: row["verdict"] for row in rows(report, "start")} == {
        one.path: one.verdict for one in plans.partitions if one.verdict != "starts"
    }
    assert len(rows(report, "problems")) == len(plans.problems)
    listed = {one.path: one for one in kafkalog.ls(root)}
    partitions = {row["path"]: row for row in rows(report, "partitions")}
    assert listed.keys() == partitions.keys() - {path for path in partitions if path.endswith(("-delete", "-stray"))}
    for path, one in listed.items():
        row = partitions[path]
        assert (row["n_records"], row["n_bytes"]) == (one.n_readable_records, one.size_in_bytes)
        assert (row["log_start_offset"], row["log_end_offset"]) == (one.start, one.end)
        assert (row["first_timestamp"], row["max_timestamp"]) == (one.first_timestamp, one.max_timestamp)
        assert row["codecs"] == one.codecs
    known = kafkalog.groups(root)
    assert [(row["group"], row["state"], row["lag"]) for row in rows(report, "groups")] == [
        (one.name, one.state, one.lag) for one in known
    ]
    assert sum(row["lag"] or 0 for row in rows(report, "lags")) == report.summary["lag"]
    transactions = kafkalog.transactions(root, now=NOW)
    assert [row["abort_command"] for row in rows(report, "transactions") if row["is_hanging"]] == [
        one.abort_command for one in transactions.hanging
    ]
    assert report.summary["n_hanging"] == len(transactions.hanging)
    assert report.ok == (name == "clean")
    total = sum(stored_bytes(file.stat()) for path in partitions for file in Path(path).iterdir())
    assert sum(row["n_bytes"] for row in rows(report, "files")) == report.summary["n_file_bytes"] == total
    for table in ("days", "codecs", "topics"):
        assert sum(row["n_bytes"] for row in rows(report, table)) == report.summary["n_bytes"]


def flipped(directory, rng):
    """A bit of a record."""
    path = rng.choice([one for one in directory.glob("*.log") if one.stat().st_size > 100])
    planted_log(path)
    return path


def moved_entry(directory, rng):
    path = rng.choice([one for one in directory.glob("*.index") if one.stat().st_size >= 8])
    data = bytearray(path.read_bytes())
    struct.pack_into(">i", data, 4, struct.unpack_from(">i", data, 4)[0] + 1)
    path.write_bytes(data)
    return path


def wrong_time(directory, rng):
    path = rng.choice([one for one in directory.glob("*.timeindex") if one.stat().st_size >= 12])
    path.write_bytes(struct.pack(">qi", 5, 0) + path.read_bytes()[12:])
    return path


def wrong_snapshot(directory, rng):
    path = rng.choice(sorted(directory.glob("*.snapshot")))
    path.write_bytes(path.read_bytes()[:5] + b"\xff" + path.read_bytes()[6:])
    return path


def wrong_epochs(directory, rng):
    path = directory / "leader-epoch-checkpoint"
    path.write_text("0\n1\nnothing\n")
    return path


def no_segment(directory, rng):
    """A segment in the middle is gone, with its indexes."""
    stem = sorted(directory.glob("*.log"))[1].stem
    for path in directory.glob(f"{stem}.*"):
        path.unlink()
    return directory


def not_an_offset(directory, rng):
    path = directory / "copy.log"
    path.write_bytes(b"")
    return path


FAULTS = (*(flipped, moved_entry, wrong_time, wrong_snapshot, wrong_epochs, no_segment, not_an_offset),)
WRITTEN = "written-0"
PARTITIONS = (WRITTEN, "p-txn-0", "p-multi-0", "p-compact-0", "p-headers-0", "p-zstd-java-0", "p-multi-1")


@pytest.mark.parametrize("seed", thinned(range(60), 4))
def test_what_is_planted_is_in_the_report_and_nothing_else(seed, tmp_path):
    rng = random.Random(seed)
    root = tmp_path / "data"
    root.mkdir()
    names = rng.sample(PARTITIONS, 3)
    for name in names:
        if name == WRITTEN:
            write(root / name)
        else:
            shutil.copytree(shared_log_dir() / name, root / name)
    planted = set()
    # two files of one partition may bear on each other: one fault a partition
    for name in names[: rng.randrange(4)]:
        fault = rng.choice([one for one in FAULTS if one is not no_segment or name == WRITTEN])
        planted.add(str(fault(root / name, rng)))
    report = kafkalog.report(root, now=NOW)
    assert {row["path"] for row in rows(report, "findings") if row["damage"]} == planted
    assert (report.findings.n_damage > 0) == bool(planted)
    damaged = {row["path"] for row in rows(report, "partitions") if row["n_damage"]}
    assert damaged == {one if Path(one).is_dir() else str(Path(one).parent) for one in planted}
    markdown = report.to_markdown()
    assert f"State: {'no damage' if not planted else ''}" in markdown


def test_records_that_do_not_decode(tmp_path):
    table = {"value": [b'{"a": 1}', b"{", b"2", b"\xff", None]}
    kafkalog.write_table(table, tmp_path / "log", topic="t")
    kafkalog.write_table({"value": [b"[]"]}, tmp_path / "log", topic="good")
    report = kafkalog.report(tmp_path / "log", decode={"value": "json"})
    found = {row["topic"]: row for row in rows(report, "undecodable")}
    assert (found["t"]["n_records"], found["t"]["n_undecoded"], found["t"]["first_offset"]) == (5, 2, 1)
    assert found["good"]["n_undecoded"] == 0
    only = kafkalog.report(tmp_path / "log", topics="good")
    assert [row["topic"] for row in rows(only, "topics")] == ["good"]


def test_a_url_is_reported_but_for_the_start(tmp_path, capsys):
    with tarfile.open(tmp_path / "log.tar", "w") as archive:
        archive.add(shared_log_dir(), "log")
    url = f"tar://log::{tmp_path / 'log.tar'}"
    local, remote = (kafkalog.report(path, now=NOW).as_dict() for path in (shared_log_dir(), url))
    assert (remote["summary"]["verdict"], remote["start"], remote["outlook"], remote["ok"]) == ("unknown", [], [], True)
    for name in ("groups", "transactions", "batches", "producers", "indexes", "days", "codecs", "files"):
        assert remote[name] == local[name], name
    places = [{**row, "verdict": "", "path": ""} for found in (local, remote) for row in found["partitions"]]
    assert places[: len(places) // 2] == places[len(places) // 2 :]
    assert main(["report", url]) == 0
    assert main(["preflight", url]) == 2
    capsys.readouterr()


def test_the_command(tmp_path, capsys):
    root, page, ticket = tmp_path / "data", tmp_path / "report.html", tmp_path / "ticket.md"
    root.mkdir()
    write(root / "t-0", topic_id=TOPIC_ID)
    assert main(["report", str(root), "-o", str(page), "--now", NOW]) == 0
    assert page.read_text().startswith("<!doctype html>")
    assert main(["report", str(root), "-o", str(page)]) == 6
    assert main(["report", str(root), "-o", str(tmp_path / "end.html"), "--now", "end"]) == 0
    flipped(root / "t-0", random.Random(1))
    assert main(["report", str(root), "-o", str(ticket)]) == 1
    assert "crc\\_mismatch" in ticket.read_text()
    assert main(["report", str(root), "-o", str(tmp_path / "x.pdf")]) == 2
    assert main(["report", str(root), "-o", str(root / "x.html")]) == 6
    capsys.readouterr()
    assert main(["report", str(root), "--json", "--now", NOW]) == 1
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads(json.dumps(kafkalog.report(str(root), now=NOW).as_dict()))


DAY = 86_400_000
START = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=3000, index_interval_bytes=256)


def looked(path, now, first_open=None, **settings):
    partition = kafkalog.open_partition(path)
    return outlook(partition, TopicSettings(None, 1, settings), now, first_open)


@pytest.fixture
def partition(tmp_path):
    """Five or more segments of half an hour each."""
    path = tmp_path / "data" / "t-0"
    path.parent.mkdir()
    with PartitionWriter(path, config=CONFIG, batch_size=400) as writer:
        writer.append(columns_of(draw(150, step=60_000, start=START)))
    return path


def test_old_segments_are_deleted_and_young_ones_say_when(partition):
    never = looked(partition, START + 10 * DAY, **{"log.retention.ms": "-1"})
    assert (never.n_segments_expired, never.next_deletion) == (0, None)
    assert never.reasons == ("no limit: retention.ms and retention.bytes are -1",)
    every = looked(partition, START + 30 * DAY)
    assert every.n_bytes_expired == kafkalog.open_partition(partition).size_in_bytes
    some = looked(partition, START + 7 * DAY + 60 * 60_000)
    assert 0 < some.n_segments_expired < every.n_segments_expired
    assert some.next_deletion is not None
    assert some.next_deletion > START + 7 * DAY + 60 * 60_000
    assert some.settings == "broker"


def test_a_timestamp_in_the_future_holds_up_all_behind_it(tmp_path):
    path = tmp_path / "data" / "t-0"
    path.parent.mkdir()
    with PartitionWriter(path, config=CONFIG) as writer:
        for start in (START + 1000 * DAY, START, START):
            writer.append({"value": [b"v" * 500], "timestamp": np.array([start])})
            writer.roll()
    found = looked(path, START + 30 * DAY)
    assert found.n_segments_expired == 0
    (reason,) = found.reasons
    assert reason.startswith("segment 0 has timestamps in the future, up to 2026-08-10")
    assert reason.endswith("2 later segments that expired wait for it")


COMPACT = {"log.cleanup.policy": "compact"}


def test_cleaning_waits_for_the_dirty_ratio_lag_and_open_transactions(partition):
    segments = kafkalog.open_partition(partition).segments
    dirty = sum(one.size_in_bytes for one in segments[:-1])
    ready = looked(partition, START + DAY, **COMPACT)
    assert (ready.dirty_bytes, ready.dirty_ratio, ready.will_be_cleaned, ready.reasons) == (dirty, 1.0, True, ())
    checkpoint = partition.parent / "cleaner-offset-checkpoint"
    checkpoint.write_text(f"0\n1\nt 0 {segments[-2].base_offset}\n")
    below = looked(partition, START + DAY, **COMPACT)
    assert below.dirty_bytes == segments[-2].size_in_bytes
    assert not below.will_be_cleaned
    assert "is not above min.cleanable.dirty.ratio 0.5" in below.reasons[0]
    overdue = looked(partition, START + DAY, **COMPACT, **{"log.cleaner.max.compaction.lag.ms": "1000"})
    assert overdue.will_be_cleaned
    checkpoint.unlink()
    held = looked(partition, START + DAY, first_open=segments[1].base_offset + 1, **COMPACT)
    assert held.dirty_bytes == segments[0].size_in_bytes
    assert held.reasons[0].startswith("a transaction is open from offset")
    young = looked(partition, START + 60_000, **COMPACT, **{"log.cleaner.min.compaction.lag.ms": str(DAY)})
    assert (young.dirty_bytes, young.will_be_cleaned) == (0, False)
    assert "has timestamps in the future" in young.reasons[0]
    checkpoint.write_text(f"0\n1\nt 0 {segments[-1].base_offset}\n")
    done = looked(partition, START + DAY, **COMPACT)
    assert done.reasons == ("all that is not cleaned is in the active segment",)


def test_a_partition_that_was_cleaned_counts_as_compacted(partition):
    (partition.parent / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 0\n")
    found = outlook(kafkalog.open_partition(partition), TopicSettings(None, None), START, None)
    assert (found.policy, found.settings) == (["compact"], "assumed")


def compacted_root(root):
    with PartitionWriter(root / "users-0", config=LogConfig(segment_bytes=3000), batch_size=500) as writer:
        keys = [b"k%d" % (i % 7) for i in range(100)]
        writer.append({"key": keys, "value": [b"v" * 40] * 100, "timestamp": list(range(1000, 1100))})
    with PartitionWriter(root / "orders-0") as writer:
        writer.append({"value": [b"v" * 40] * 10})
    (root / "cleaner-offset-checkpoint").write_text("0\n1\nusers 0 0\n")
    return root


@pytest.mark.parametrize("seed", range(12))
def test_damage_in_a_compacted_topic_leaves_a_report_of_all_partitions(tmp_path, seed):
    draw = random.Random(seed)
    root = compacted_root(tmp_path)
    log = draw.choice(sorted((root / "users-0").glob("*.log"))[-2:])
    data = bytearray(log.read_bytes())
    positions = builder.batch_positions(data)
    at, _ = draw.choice(positions)
    if draw.random() < 0.5:
        data[at + 8 : at + 12] = draw.choice([b"\xff" * 4, bytes(4), b"\0\0\0\1"])
    else:
        n = draw.choice([1, 30, 61])
        data[at : at + n] = bytes(n)
    log.write_bytes(data)
    report = kafkalog.report(root)
    assert [row["partition"] for row in rows(report, "partitions")] == ["orders-0", "users-0"]
    assert sorted(row["partition"] for row in rows(report, "outlook")) == ["orders-0", "users-0"]
    assert report.summary["n_records_lost"] == sum(one.loss.n_records for one in kafkalog.verify(root).partitions)


def test_a_stray_next_to_topics_that_are_served_is_no_reason_for_a_step(tmp_path):
    for name in ("old", "t"):
        kafkalog.write_table({"value": [b"x", b"y"]}, tmp_path, topic=name)
    (tmp_path / "old-0").rename(tmp_path / f"old-0.{'0123456789abcdef' * 2}-stray")
    assert kafkalog.report(tmp_path).as_dict()["next"] == []
    # with damage, nothing that may have records is left out
    log = next((tmp_path / "t-0").glob("*.log"))
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    (row,) = kafkalog.report(tmp_path).as_dict()["next"]
    assert "--include-unknown" in row["command"]


def test_an_empty_disk_that_is_called_as_a_partition_counts_as_none(tmp_path):
    kafkalog.write_table({"value": [b"x"]}, tmp_path / "disk-1", topic="t")
    (tmp_path / "disk-2").mkdir()
    found = kafkalog.report([tmp_path / "disk-1", tmp_path / "disk-2"]).as_dict()
    assert [row["partition"] for row in found["partitions"]] == ["t-0"]
