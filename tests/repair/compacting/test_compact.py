"""Compact: of each key the last record stays, and nothing else is lost. `conformance` compares with Kafka's cleaner."""

import shutil
import sys
from functools import partial
from pathlib import Path
from typing import Any

import golden_sets
import pytest
from compactions import DAY, RandomPartition
from effort import thinned
from faults import is_killed_at
from files import broker_on, content
from refusals import fails_with

import kafkalog
from kafkalog.errors import Reason
from kafkalog.state.checkpoints import read_offset_checkpoint
from kafkalog.types import CompactedPartition

NOW = 1_795_000_000_000
CLEANER = "cleaner-offset-checkpoint"
Row = dict[str, Any]


def partition(folder, seed, n_segments=5, name="t-0", **options):
    """A random partition in a log dir."""
    directory = folder / name
    directory.mkdir(parents=True)
    RandomPartition(seed, NOW, ends_transactions=True, has_gaps=False, **options).append(
        directory, n_segments, is_first=True
    )
    return directory


def rows(directory, **options):
    columns = ["offset", "key", "value", "headers", "timestamp"]
    return kafkalog.scan(directory, columns=columns, **options).to_table().to_pylist()


def expected(directory, end, keeps_tombstones):
    """What a consumer is to get after a compaction up to an offset: by the definition, record by record."""
    committed = rows(directory, isolation_level="read_committed")
    last = {row["key"]: row["offset"] for row in committed if row["offset"] < end}
    return [
        row
        for row in committed
        if row["offset"] >= end
        or (
            row["key"] is not None
            and last[row["key"]] == row["offset"]
            and (keeps_tombstones or row["value"] is not None)
        )
    ]


@pytest.mark.parametrize("n_runs", [1, 2])
@pytest.mark.parametrize("seed", thinned(range(6), 3))
def test_the_last_record_of_each_key_stays(tmp_path, seed, n_runs):
    codecs = ("none", "gzip", "zstd") if seed % 2 else ("none",)
    source = partition(tmp_path, seed, codecs=codecs)
    before = content(source)
    (tmp_path / "out").mkdir()
    options = {"now": NOW}
    if n_runs == 2:
        kafkalog.compact(source, in_place=True, **options)
        options = {"now": NOW + 2 * DAY}
        before = content(source)
    dry = kafkalog.compact(source, dry_run=True, **options)
    report = kafkalog.compact(source, output=tmp_path / "out" / "t-0", **options)
    assert content(source) == before
    (row,) = report.partitions
    assert isinstance(row, CompactedPartition)
    assert row.as_dict() == dry.partitions[0].as_dict()
    end = row.cleaned_to or 0
    found = rows(tmp_path / "out" / "t-0", isolation_level="read_committed")
    assert found == expected(source, end, keeps_tombstones=n_runs == 1)
    old, new = kafkalog.open_partition(source), kafkalog.open_partition(tmp_path / "out" / "t-0")
    assert (new.log_end_offset, new.last_stable_offset) == (old.log_end_offset, old.last_stable_offset)
    assert row.n_records_removed == sum(r["offset"] < end for r in rows(source)) - sum(
        r["offset"] < end for r in rows(new.path)
    )
    assert kafkalog.verify(new.path).ok
    kafkalog.compact(source, in_place=True, **options)
    assert content(source) == content(tmp_path / "out" / "t-0")


def test_a_backup_has_each_file_once_however_many_parts_are_changed(tmp_path):
    source = partition(tmp_path / "data", 4, n_segments=8)
    (source / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
    before = content(source)
    config = tmp_path / "config"
    config.write_text("internal.segment.bytes=700\n")
    options = {"now": NOW, "in_place": True, "config": config}
    kafkalog.compact(source, backup=tmp_path / "backup", **options)
    kept = content(tmp_path / "backup" / "t-0")
    assert "leader-epoch-checkpoint" in kept
    assert kept.items() <= before.items()


def test_threads_change_nothing_but_the_time(tmp_path):
    for number in range(24):
        partition(tmp_path / "data", number, n_segments=2, name=f"t-{number}", codecs=("none", "gzip"))
    (tmp_path / "data" / "t-7" / "00000000000000000000.log").write_bytes(b"\0" * 99)
    n_bytes = [0, 0]
    found = []
    for threads in (1, 5):
        shutil.copytree(tmp_path / "data", tmp_path / str(threads) / "data")
        report = kafkalog.compact(
            tmp_path / str(threads) / "data",
            topics="t",
            now=NOW,
            in_place=True,
            backup=tmp_path / str(threads) / "backup",
            threads=threads,
            on_start=lambda n: n_bytes.__setitem__(0, n),
            progress=lambda n: n_bytes.__setitem__(1, n_bytes[1] + n),
        )
        rows = [(one.path.split("/")[-1], one.cleaned_to, one.n_bytes) for one in report.partitions]
        found.append(
            (rows, report.n_backup_files, *(content(tmp_path / str(threads) / one) for one in ("data", "backup")))
        )
        assert n_bytes[0] * 0.8 < n_bytes[1] <= n_bytes[0]
        n_bytes[1] = 0
    assert found[0] == found[1]
    assert [one.error is not None for one in report.partitions] == [
        one.path.endswith("t-7") for one in report.partitions
    ]


def test_only_topics_that_count_as_compacted_are_compacted(tmp_path):
    for name in ("cleaned-0", "cleaned-1", "other-0", "__consumer_offsets-0"):
        partition(tmp_path / "data", 3, name=name)
    (tmp_path / "data" / CLEANER).write_text("0\n1\ncleaned 1 0\n")

    def compacted(*topics, **options):
        report = kafkalog.compact(tmp_path / "data", topics=topics or None, dry_run=True, now=NOW, **options)
        return {Path(row.path).name for row in report.partitions}

    assert compacted() == {"cleaned-0", "cleaned-1", "__consumer_offsets-0"}
    assert compacted("!cleaned") == {"__consumer_offsets-0"}
    assert compacted("*") == {"cleaned-0", "cleaned-1", "__consumer_offsets-0"}
    # its policy is not known: it has to be named
    assert compacted("other", "cleaned") == {"cleaned-0", "cleaned-1", "other-0"}
    (tmp_path / "p").write_text("log.cleanup.policy=compact\n")
    assert "other-0" in compacted(config=tmp_path / "p")
    with pytest.raises(ValueError):
        compacted("nobody")
    report = kafkalog.compact(tmp_path / "data", output=tmp_path / "out", now=NOW)
    ends = {(row.topic_partition, row.cleaned_to) for row in report.partitions}
    assert ends == {*(read_offset_checkpoint(tmp_path / "out" / CLEANER) or {}).items()}
    assert content(tmp_path / "out" / "other-0") == content(tmp_path / "data" / "other-0")

    partition(tmp_path / "unknown", 3, name="other-0")
    report = kafkalog.compact(tmp_path / "unknown", dry_run=True, now=NOW)
    [note] = report.findings.rows
    assert (report.partitions, note.damage, note.path) == ([], False, str(tmp_path / "unknown"))
    # a glob names no topic
    globbed = kafkalog.compact(tmp_path / "unknown", topics="oth*", dry_run=True, now=NOW)
    assert (globbed.partitions, globbed.findings.rows) == ([], [note])


def test_the_clusters_metadata_decides(tmp_path):
    root = golden_sets.unpacked("k44")
    names = {path.name for path in root.iterdir() if path.is_dir() and not path.name.startswith("__")}
    report = kafkalog.compact(root, dry_run=True)
    compacted = {Path(row.path).name for row in report.partitions}
    policies = {one.name: one.configs.get("cleanup.policy", "delete") for one in kafkalog.ls(root) if one.name in names}
    assert compacted - {one for one in compacted if one.startswith("__")} == {
        name for name, policy in policies.items() if "compact" in policy
    }
    # known, and not compacted: naming it is no reason
    name = next(name for name, policy in policies.items() if policy == "delete")
    report = kafkalog.compact(root / name, dry_run=True)
    assert not report.partitions
    assert "cleanup.policy" in report.findings.rows[0].detail


def test_damage_and_unfinished_work_are_refused(tmp_path):
    source = partition(tmp_path, 3)
    partition(tmp_path, 3, name="t-1")
    first = min(source.glob("*.log"))
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    before = content(source)
    report = kafkalog.compact(tmp_path, topics="t", in_place=True, now=NOW)
    damaged, good = report.partitions
    assert damaged.problem is not None
    assert damaged.problem.reason is Reason.CRC_MISMATCH
    assert "kafkalog salvage" in (damaged.error or "")
    assert content(source) == before
    assert good.error is None
    assert good.n_bytes_lost > 0
    with fails_with("crc_mismatch"):
        kafkalog.compact(source, output=tmp_path / "out", now=NOW)
    assert not (tmp_path / "out").exists()
    log = max((tmp_path / "t-1").glob("*.log"))
    shutil.copy(log, f"{log}.swap")
    (row,) = kafkalog.compact(tmp_path / "t-1", dry_run=True, now=NOW).partitions
    assert row.problem is not None
    assert row.problem.reason is Reason.SWAP_FILE


def test_a_running_broker_and_urls_are_refused(tmp_path):
    source = partition(tmp_path, 3)
    with broker_on(tmp_path), pytest.raises(kafkalog.UnsafePathError):
        kafkalog.compact(source, in_place=True, now=NOW)
    with fails_with("not_local"):
        kafkalog.compact("s3://bucket/t-0", dry_run=True)
    with fails_with("unsafe_path"):
        kafkalog.compact(golden_sets.unpacked("k44") / "__cluster_metadata-0", dry_run=True)


def test_what_is_not_cleaned_is_said(tmp_path):
    source = partition(tmp_path, 11)
    (tmp_path / "lag").write_text(f"log.cleaner.min.compaction.lag.ms={30 * DAY}\n")
    (row,) = kafkalog.compact(source, dry_run=True, now=NOW, config=tmp_path / "lag").partitions
    assert isinstance(row, CompactedPartition)
    assert row.cleaned_to is None
    assert "min.compaction.lag.ms" in row.remarks[0]
    bases = [segment.base_offset for segment in kafkalog.open_partition(source).segments]
    (tmp_path / "replication-offset-checkpoint").write_text(f"0\n1\nt 0 {bases[2] + 1}\n")
    (row,) = kafkalog.compact(source, dry_run=True, now=NOW).partitions
    assert isinstance(row, CompactedPartition)
    assert row.cleaned_to is None or row.cleaned_to <= bases[2]
    assert row.remarks


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="forks")
def test_a_kill_loses_no_record(tmp_path):
    seed = 4
    config = tmp_path / "config"
    config.write_text("internal.segment.bytes=700\n")
    options = {"now": NOW, "in_place": True, "config": config}
    wanted = partition(tmp_path / "wanted", seed)
    before = rows(wanted, isolation_level="read_committed")
    kafkalog.compact(wanted, **options)
    n, is_killed = 1, True
    while is_killed:
        source = partition(tmp_path / f"data-{n}", seed)
        is_killed = is_killed_at(n, partial(kafkalog.compact, source, **options))
        # as a broker that starts
        kafkalog.recover(source.parent, in_place=True, backup=tmp_path / f"old-{n}", all_segments=True)
        found = rows(source, isolation_level="read_committed")
        assert all(row in before for row in found)
        kafkalog.compact(source, **options)
        assert rows(source, isolation_level="read_committed") == rows(wanted, isolation_level="read_committed")
        shutil.rmtree(source.parent)
        n += 5
    assert n > 100
