"""Trim by retention deletes the segments that a broker would delete, and the oldest ones where room is needed."""

import functools
import shutil
from pathlib import Path

import pytest
from files import content, offsets_of
from golden_sets import unpacked

import kafkalog
from kafkalog.cli.app import main
from kafkalog.repair.cutting.retention import RetentionOptions
from kafkalog.state.checkpoints import read_offset_checkpoint

DAY = 86_400_000


def times(partition):
    """Base offset, bytes and largest timestamp of each segment, from its records."""
    rows = []
    for segment in partition.segments:
        table = kafkalog.batches(segment.path).to_table()
        newest = max([-1, *table["max_timestamp"].cast("int64").fill_null(-1).to_pylist()])
        modified = segment.path.stat().st_mtime_ns // 10**6
        rows.append((segment.base_offset, segment.size_in_bytes, modified if newest < 0 else newest))
    return rows


@functools.cache
def golden_times(name):
    return {key: times(one) for key, one in kafkalog.open(unpacked(name)).items() if key.topic.startswith("p-")}


def expected(rows, ms, n_bytes, now):
    """How many segments a broker deletes: `UnifiedLog.deleteOldSegments`, one rule after the other."""
    n = 0
    while ms >= 0 and n < len(rows) and rows[n][1] and now - rows[n][2] > ms:
        n += 1
    excess = sum(size for _, size, _ in rows[n:]) - n_bytes
    while n_bytes >= 0 and n < len(rows) and rows[n][1] and excess - rows[n][1] >= 0:
        excess -= rows[n][1]
        n += 1
    return n


@pytest.mark.parametrize(
    ("ms", "n_bytes"), [(0, -1), (60_000, -1), (10_000, -1), (-1, 0), (-1, 30_000), (600_000, 20_000), (-1, -1)]
)
@pytest.mark.parametrize("name", ["k44", "k28"])
def test_the_segments_go_that_a_broker_would_delete(name, ms, n_bytes):
    source = unpacked(name)
    rows = golden_times(name)
    # in the middle of all records, so that each rule has something to decide
    stamps = sorted(stamp for some in rows.values() for _, _, stamp in some)
    now = stamps[len(stamps) // 2] + 60_000
    report = kafkalog.trim(source, retention_ms=ms, retention_bytes=n_bytes, now=now, dry_run=True)
    n = n_kept = 0
    for row in report.partitions:
        assert row.topic_partition is not None
        if row.topic_partition not in rows:
            assert row.count("deleted") == 0
            continue
        compacted = "compact" in row.topic_partition.topic or "tombstone" in row.topic_partition.topic
        wanted = 0 if compacted else expected(rows[row.topic_partition], ms, n_bytes, now)
        assert row.count("deleted") == wanted, row.path
        n, n_kept = n + wanted, n_kept + row.count("kept")
    assert (n > 10) == ((ms, n_bytes) != (-1, -1))
    assert n_kept > 10


def test_what_stays_is_a_log_that_a_broker_starts_on(tmp_path):
    source, out = unpacked("k44"), tmp_path / "out"
    report = kafkalog.trim(source, retention_bytes=20_000, output=out)
    assert sum(row.count("deleted") for row in report.partitions) > 10
    assert {row.verdict for row in kafkalog.preflight(out).partitions} <= {"starts", "recovers"}
    for row in report.partitions:
        wanted = [one for one in offsets_of(source / Path(row.path).name) if one >= row.log_start_offset]
        assert offsets_of(out / Path(row.path).name) == wanted
    again = kafkalog.trim(out, retention_bytes=20_000, dry_run=True)
    assert sum(row.count("deleted") for row in again.partitions) == 0


def small(root, n_segments=5, first=0):
    """A log dir with a topic of some segments; each record is a minute younger."""
    config = kafkalog.LogConfig.from_properties({"internal.segment.bytes": "100"})
    n = n_segments * 2
    table = {"value": [b"v" * 20] * n, "timestamp": [first + i * 60_000 for i in range(n)]}
    kafkalog.write_table(table, root, topic=f"t{first}", config=config, batch_size=1)
    return root


def test_if_all_is_old_an_empty_segment_stays_at_the_end(tmp_path):
    log_dir = small(tmp_path / "log")
    n = len([*(log_dir / "t0-0").glob("*.log")])
    report = kafkalog.trim(log_dir, retention_ms=1, now=DAY, in_place=True)
    (row,) = report.partitions
    assert row.count("deleted") == n > 2
    assert (row.log_start_offset, row.log_end_offset) == (10, 10)
    assert [path.name for path in (log_dir / "t0-0").glob("*.log")] == [f"{10:020d}.log"]
    assert report.n_backup_files == 0
    with kafkalog.PartitionWriter(log_dir / "t0-0") as writer:
        assert writer.append({"value": [b"x"]}).first_offset == 10
    assert kafkalog.verify(log_dir).ok


def test_nothing_goes_above_the_high_watermark(tmp_path):
    log_dir = small(tmp_path / "log")
    bases = sorted(int(path.name[:20]) for path in (log_dir / "t0-0").glob("*.log"))
    (log_dir / "replication-offset-checkpoint").write_text(f"0\n1\nt0 0 {bases[2]}\n")
    (row,) = kafkalog.trim(log_dir, retention_ms=1, now=DAY, dry_run=True).partitions
    assert row.count("deleted") == 2


def test_room_is_made_with_the_oldest_segments_of_all_partitions(tmp_path):
    log_dir = small(small(tmp_path / "log"), first=DAY)
    before = content(log_dir)
    sizes = {Path(name).parent.name: 0 for name in before}
    report = kafkalog.trim(log_dir, free=1, dry_run=True)
    assert [row.count("deleted") for row in report.partitions] == [1, 0]
    report = kafkalog.trim(log_dir, free=10**9, in_place=True)
    assert [row.count("kept") for row in report.partitions] == [1, 1]
    assert [finding.damage for finding in report.findings.rows] == [False]
    assert sum(len(data) for data in content(log_dir).values()) < sum(len(data) for data in before.values())
    assert sizes
    assert kafkalog.verify(log_dir).ok


def test_the_clusters_own_settings_count(tmp_path):
    kafkalog.boot(small(tmp_path / "log"), tmp_path / "out", settings={"t0": {"retention.ms": "60000"}})
    data = tmp_path / "out" / "data"
    (row,) = kafkalog.trim(data, retention=True, now=DAY, dry_run=True).partitions
    assert row.count("deleted") > 2
    shutil.rmtree(tmp_path / "out")
    kafkalog.boot(tmp_path / "log", tmp_path / "out", retention="as-was")
    (tmp_path / "server.properties").write_text("log.retention.hours=1\nlog.retention.ms=-1\n")
    options = {"retention": True, "now": 9 * DAY, "dry_run": True}
    (row,) = kafkalog.trim(data, config=tmp_path / "server.properties", **options).partitions
    assert row.count("deleted") == 0
    (row,) = kafkalog.trim(data, **options).partitions
    assert row.count("deleted") > 2


@pytest.mark.parametrize(
    "options",
    [
        {"free": 5, "retention_ms": 5},
        {"retention": True, "free": 5},
        {"retention_ms": -2},
        {"free": 0},
        {"config": "x"},
        {},
        {"retention_ms": 5, "before_offset": 5},
    ],
)
def test_rules_that_do_not_go_together_are_refused(log_dir, options):
    with pytest.raises(ValueError, match=r"retention|free|required"):
        kafkalog.trim(log_dir, dry_run=True, **options)
    assert not RetentionOptions().is_set


def test_the_command_needs_no_backup_for_retention(tmp_path, capsys):
    log_dir = small(tmp_path / "log")
    assert main(["trim", str(log_dir), "--before-offset", "4", "--in-place", "-q"]) == 2
    assert main(["trim", str(log_dir), "--in-place", "-q"]) == 2
    assert main(["trim", str(log_dir), "--free", "1K", "--dry-run", "-q"]) == 0
    assert main(["trim", str(log_dir), "--retention-ms", "60000", "--in-place", "-q"]) == 0
    assert "deleted" in capsys.readouterr().out
    starts = read_offset_checkpoint(log_dir / "log-start-offset-checkpoint")
    assert starts == {("t0", 0): 10}
