"""Trim by retention deletes the segments that a broker would delete, and the oldest ones where room is needed."""

import functools
import os
import shutil
from pathlib import Path

import pytest
from effort import thinned
from files import content, offsets_of
from golden_sets import unpacked
from metadata_logs import TOPIC, write_meta_properties, write_metadata, write_server_properties

import kafkalog
from kafkalog.cli.app import main
from kafkalog.repair.cutting.retention import RetentionOptions
from kafkalog.state.checkpoints import read_offset_checkpoint
from kafkalog.survey.retention import first_dirty

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
@pytest.mark.parametrize("name", thinned(["k44", "k28"], 2))
def test_the_segments_go_that_a_broker_would_delete(name, ms, n_bytes):
    source = unpacked(name)
    rows = golden_times(name)
    # in the middle of all records, so that each rule has something to decide
    stamps = sorted(stamp for some in rows.values() for _, _, stamp in some)
    now = stamps[len(stamps) // 2] + 60_000
    # ZooKeeper has the settings of k28, so that each topic has to be named
    named = sorted({key.topic for key in rows}) if name == "k28" else None
    options = {"topics": named, "now": now, "dry_run": True}
    report = kafkalog.trim(source, retention_ms=ms, retention_bytes=n_bytes, **options)
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
    topics = [path.name.rpartition("-")[0] for path in root.glob("t*-0")]
    shutil.rmtree(root / "__cluster_metadata-0", ignore_errors=True)
    write_metadata(root, topics, {})
    write_meta_properties(root)
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
    given = {"retention": True, "now": DAY, "dry_run": True}
    (row,) = kafkalog.trim(data, **given).partitions
    assert row.count("deleted") > 2
    shutil.rmtree(tmp_path / "out")
    kafkalog.boot(tmp_path / "log", tmp_path / "out", settings={"*": {"retention": "as-was"}})
    (tmp_path / "server.properties").write_text("log.retention.hours=1\nlog.retention.ms=-1\n")
    options = {"retention": True, "now": 9 * DAY, "dry_run": True}
    (row,) = kafkalog.trim(data, config=tmp_path / "server.properties", **options).partitions
    assert row.count("deleted") == 0
    (row,) = kafkalog.trim(data, config=tmp_path / "out" / "server.properties", **options).partitions
    assert row.count("deleted") > 2
    with pytest.raises(kafkalog.UnsafePathError, match="--config"):
        kafkalog.trim(data, **options)


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


def stamped(root, name, times, modified_ms, indexes=False):
    """A topic with a segment for each time, whose files have another time."""
    with kafkalog.PartitionWriter(root / f"{name}-0") as writer:
        for time in times:
            writer.append({"key": [b"k"], "value": [b"v" * 20], "timestamp": [time]})
            writer.roll()
    for path in (root / f"{name}-0").iterdir():
        if not indexes and path.suffix in (".index", ".timeindex"):
            path.unlink()
        else:
            os.utime(path, ns=(modified_ms * 10**6,) * 2)


@pytest.mark.parametrize("indexes", [False, True])
def test_a_segment_is_as_old_as_its_batches(tmp_path, indexes):
    now, hour = 2 * 10**12, 3_600_000
    root = tmp_path / "data"
    root.mkdir()
    files = {"young": now - 2 * hour, "old": now, "future": now - 2 * hour, "keys": now - 2 * hour, "none": now - hour}
    times = {"young": [now - 60_000] * 3, "old": [now - hour] * 3, "future": [now + DAY, now - hour, now - hour]}
    times |= {"keys": [now - 60_000] * 3, "none": [-1] * 3}
    for name, modified in files.items():
        stamped(root, name, times[name], modified, indexes)
    settings = {(TOPIC, "keys"): {"cleanup.policy": "compact", "min.compaction.lag.ms": str(hour)}}
    write_metadata(root, [*files], settings)
    write_meta_properties(root)
    config = write_server_properties(tmp_path / "server.properties", [root], log_retention_ms=600_000)
    given = {"config": config, "now": now, "dry_run": True}
    deleted = {
        row.topic_partition.topic: row.count("deleted")
        for row in kafkalog.trim(root, retention=True, **given).partitions
    }
    assert deleted == {"young": 0, "old": 3, "future": 0, "keys": 0, "none": 3}
    freed = kafkalog.trim(root, free=1, dry_run=True, topics=["young", "old", "keys"])
    assert {row.topic_partition.topic for row in freed.partitions if row.count("deleted")} == {"old"}
    [row] = kafkalog.compact(root, **given).partitions
    assert row.cleaned_to is None
    ahead = kafkalog.report(root, config=config, now=now).tables["outlook"].objects()
    expired = {one["partition"]: one["n_segments_expired"] for one in ahead}
    # the last segment is empty, and a broker keeps it
    assert expired == {"young-0": 0, "old-0": 3, "future-0": 0, "keys-0": 0, "none-0": 3}


def test_what_is_deleted_is_old_even_if_an_index_ends_early(tmp_path):
    root = small(tmp_path / "log")
    index = sorted((root / "t0-0").glob("*.timeindex"))[0]
    [log] = {index.with_suffix(".log")}
    index.write_bytes((0).to_bytes(8, "big") + (0).to_bytes(4, "big"))
    newest = max(kafkalog.batches(log).to_table()["max_timestamp"].cast("int64").to_pylist())
    (row,) = kafkalog.trim(root, retention_ms=1000, now=newest + 1000, dry_run=True).partitions
    assert row.count("deleted") == 0
    (row,) = kafkalog.trim(root, retention_ms=1000, now=newest + 1001, dry_run=True).partitions
    assert row.count("deleted") == 1


@pytest.mark.parametrize("is_known", [True, False])
def test_the_log_start_of_a_tiered_topic_does_not_move(tmp_path, is_known):
    root = tmp_path / "data"
    root.mkdir()
    with kafkalog.PartitionWriter(root / "orders-0", start_offset=234) as writer:
        for _ in range(3):
            writer.append({"value": [b"v"] * 20, "timestamp": [10**12] * 20})
            writer.roll()
    (root / "log-start-offset-checkpoint").write_text("0\n1\norders 0 0\n")
    write_meta_properties(root)
    if is_known:
        write_metadata(root, ["orders"], {(TOPIC, "orders"): {"remote.storage.enable": "true", "retention.ms": "1"}})
    before = content(root)
    for rule in ({"free": 1}, {"retention_ms": 1}, {"retention": True}):
        if is_known or "free" in rule:
            report = kafkalog.trim(root, in_place=True, **rule)
            assert [row.count("deleted") for row in report.partitions] == [0]
            assert "orders" in report.findings.rows[0].detail
        else:
            with pytest.raises(kafkalog.UnsafePathError, match="orders"):
                kafkalog.trim(root, in_place=True, **rule)
    with pytest.raises(kafkalog.UnsafePathError, match="remote"):
        kafkalog.trim(root, before_offset=254, in_place=True, backup=tmp_path / "backup")
    assert content(root) == before
    if is_known:
        config = write_server_properties(tmp_path / "p", [root], remote_log_storage_system_enable="true")
        [ahead] = kafkalog.report(root, config=config).tables["outlook"].objects()
        assert (ahead["n_segments_expired"], "tiered" in ahead["reasons"][0]) == (0, True)


def test_only_some_topics_are_trimmed(tmp_path):
    log_dir = small(small(tmp_path / "log"), first=DAY)
    report = kafkalog.trim(log_dir, topics="t0", retention_ms=1, now=9 * DAY, output=tmp_path / "out")
    assert [row.topic_partition.topic for row in report.partitions] == ["t0"]
    assert content(tmp_path / "out" / f"t{DAY}-0") == content(log_dir / f"t{DAY}-0")
    with pytest.raises(ValueError, match="no topic"):
        kafkalog.trim(log_dir, topics="nobody", retention_ms=1, dry_run=True)


def test_free_leaves_the_last_records_of_keys(tmp_path):
    now, root = 2 * 10**12, tmp_path / "data"
    root.mkdir()
    for name, age in (("both", 5), ("plain", 1)):
        stamped(root, name, [now - age * DAY] * 3, now, True)
    write_metadata(root, ["both", "plain"], {(TOPIC, "both"): {"cleanup.policy": "compact,delete"}})
    write_meta_properties(root)
    freed = kafkalog.trim(root, free=10**9, dry_run=True)
    assert {row.topic_partition.topic for row in freed.partitions if row.count("deleted")} == {"plain"}
    # a broker deletes of it, too, and so do its own limits
    aged = kafkalog.trim(root, retention_ms=DAY * 2, now=now, dry_run=True)
    assert {row.topic_partition.topic for row in aged.partitions if row.count("deleted")} == {"both"}


def test_the_cleaner_has_been_where_its_checkpoint_says_up_to_the_end_of_the_log(tmp_path):
    """A checkpoint past the end is of another log, and does not count."""
    with kafkalog.PartitionWriter(tmp_path / "t-0") as writer:
        writer.append({"key": [b"a", b"b", b"c"], "value": [b"1", b"2", b"3"]})
    for known, expected in ((0, 0), (2, 2), (3, 3), (4, 0)):
        (tmp_path / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {known}\n")
        assert first_dirty(kafkalog.Partition(tmp_path / "t-0")) == expected, known
