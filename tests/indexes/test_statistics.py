"""How good indexes are: figures worked out by hand and by counting, and indexes that were really built."""

import itertools
import json
import math
import shutil
import statistics
import struct
import tempfile
from dataclasses import replace
from pathlib import Path

import golden_sets
import numpy as np
import pytest
import strategies
from effort import examples, thinned
from hypothesis import given, settings
from hypothesis import strategies as st
from index_twin import Batch, make_log, write_indexes

import kafkalog
from kafkalog.indexes.builder import EntryRule
from kafkalog.indexes.distribution import Distribution
from kafkalog.indexes.measures import IndexMeter, MeasuredWindow
from kafkalog.records.batch_table import BatchTable


def golden_batches(segment):
    table, previous, batches = segment.batches, segment.base_offset - 1, []
    columns = (table.base_offset, table.last_offset, table.position, table.size_in_bytes, table.max_timestamp)
    for base, last, *others in zip(*(column.tolist() for column in columns), strict=True):
        batches.append(Batch(base if base >= 0 else previous + 1, last, *others))
        previous = last
    return batches


def rebuild(directory, interval):
    """Write the indexes anew, by the rule of recovery: batch by batch."""
    for segment in kafkalog.Partition(directory).segments:
        indexes = write_indexes(golden_batches(segment), interval)
        segment.path.with_suffix(".index").write_bytes(indexes.offset_bytes(segment.base_offset))
        segment.path.with_suffix(".timeindex").write_bytes(indexes.time_bytes(segment.base_offset))


INTERVALS = (0, 512, 1024, 4096, 65536)

# index.interval.bytes of the golden topics, where it is not 4096
INTERVAL_OF = {
    "p-dense": 0,
    **dict.fromkeys(("p-compact", "p-compact-gzip", "p-compact-idem", "p-compact-lz4", "p-idxroll"), 1024),
    **dict.fromkeys(("p-tombstone", "p-txn", "p-epochs"), 1024),
}

# deleted, active across a restart, compacted by transactions, or with settings that changed
OTHER_HISTORY = ("p-compact-txn", "p-epochs", "p-mixcodec", "p-ooo", "p-segms", "p-vintage")
BY_APPEND_AS_BY_BATCH = (
    *(f"p-v{magic}-{codec}" for magic in (0, 1) for codec in ("gzip", "lz4", "snappy")),
    "p-v2-txn",
    "p-v2-zstd",
)


def a_log(path, timestamps, *, base_offset=0):
    """A partition of one segment, a record a batch, without indexes."""
    directory = path / "orders-0"
    directory.mkdir(exist_ok=True)
    data, _ = make_log([(0, 1, 191, timestamp) for timestamp in timestamps], base_offset)
    (directory / f"{base_offset:020}.log").write_bytes(data)
    return directory


def table_of(batches):
    table = BatchTable.empty(len(batches))
    columns = (table.base_offset, table.last_offset, table.position, table.size_in_bytes, table.max_timestamp)
    for column, values in zip(columns, zip(*batches, strict=True), strict=False):
        column[:] = values
    return table


def look_up(entries, offset):
    return max((position for known, position in entries if known <= offset), default=0)


def counted(batches, entries):
    """What `IndexMeasures` says, by looking every offset up."""
    scans = [
        batch.position - look_up(entries, offset)
        for batch in batches
        for offset in range(batch.base_offset, batch.last_offset + 1)
    ]
    end = batches[-1].position + batches[-1].size
    bounds = [0, *(position for _, position in entries), end]
    return {"gaps": np.diff(bounds).tolist(), "by_offset": sum(scans) / len(scans), "worst": max(scans)}


def check(measures, batches, entries):
    want = counted(batches, entries)
    assert measures.n_entries == len(entries)
    assert measures.expected_scan_by_offset == pytest.approx(want["by_offset"])
    assert measures.worst_scan == want["worst"]
    gaps = want["gaps"]
    assert (measures.gap_bytes.n, measures.gap_bytes.max) == (len(gaps), max(gaps))
    assert measures.gap_bytes.mean == pytest.approx(sum(gaps) / len(gaps))
    assert measures.entries_per_mib == pytest.approx(len(entries) * 2**20 / measures.size_in_bytes)


def measured(batches, entries, interval, cuts):
    """A meter that was fed these batches in windows; without entries it makes its own."""
    meter, rule = IndexMeter(None if entries else interval), EntryRule(interval)
    previous, timestamp, n_fed = batches[0].base_offset - 1, -1, 0
    bounds = sorted({0, len(batches), *(cut % len(batches) for cut in cuts)})
    for start, stop in itertools.pairwise(bounds):
        rows = MeasuredWindow(table_of(batches[start:stop]), previous, timestamp)
        if entries is None:
            chosen = rule.rows(rows.position.tolist())
            meter.feed(rows, rows.last_offset[chosen], rows.position[chosen])
        else:
            upto = sum(offset <= rows.last_offset[-1] for offset, _ in entries)
            part = np.array(entries[n_fed:upto], np.int64).reshape(-1, 2)
            meter.feed(rows, part[:, 0], part[:, 1])
            n_fed = upto
        previous, timestamp = int(rows.last_offset[-1]), int(rows.timestamp[-1])
    meter.finish(batches[-1].position + batches[-1].size, timestamp)
    return meter


@st.composite
def logs(draw):
    offset, position, batches = draw(st.integers(0, 1000)), 0, []
    for _ in range(draw(st.integers(1, 25))):
        size, n = draw(st.integers(61, 3000)), draw(st.integers(1, 6))
        offset += draw(st.sampled_from((0, 0, 0, 1, 40)))
        batches.append(Batch(offset, offset + n - 1, position, size, draw(st.integers(-1, 500))))
        position, offset = position + size, offset + n
    return batches


@given(logs(), st.sampled_from((0, 61, 500, 1024, 4096, 2**31 - 1)), st.lists(st.integers(0, 30), max_size=5))
@settings(max_examples=examples(200), deadline=None)
def test_an_index_made_by_the_rule_measures_as_looking_up_every_offset(batches, interval, cuts):
    meter = measured(batches, None, interval, cuts)
    indexes = write_indexes(batches, interval)
    check(meter.measures(), batches, indexes.offset)
    assert meter.n_time_entries == len(indexes.time)


@given(logs(), st.lists(st.integers(1, 4), min_size=25, max_size=25), st.lists(st.integers(0, 30), max_size=5))
@settings(max_examples=examples(200), deadline=None)
def test_an_index_of_whole_appends_measures_as_looking_up_every_offset(batches, appends, cuts):
    # as brokers before 4.0 made them: position of an append's first batch, last offset of its last
    entries, row = [], 0
    for n in appends:
        chunk = batches[row : row + n]
        if row and chunk:
            entries.append((chunk[-1].last_offset, chunk[0].position))
        row += n
    meter = measured(batches, entries, 0, cuts)
    assert meter.misleading is None
    check(meter.measures(), batches, entries)


@pytest.mark.parametrize("interval", [-1, 2**31])
def test_an_interval_is_what_kafka_takes(interval):
    with pytest.raises(ValueError, match=r"index\.interval\.bytes"):
        EntryRule(interval)


@pytest.mark.parametrize(
    ("set_name", "archive", "n_entries"),
    [("k44", "clean", 349), ("k44", "unclean_recovered", 44), ("k28", "clean", 215)],
)
def test_the_rule_makes_the_entries_that_a_broker_made(set_name, archive, n_entries):
    compared = 0
    for name, path in golden_sets.partitions(set_name, archive).items():
        topic = name.rpartition("-")[0]
        interval = INTERVAL_OF.get(topic, 4096) if set_name == "k44" else 1024
        # 2.8 made entries append by append, which for compressed v0 and v1 is message by message
        if set_name == "k28" and topic not in BY_APPEND_AS_BY_BATCH:
            continue
        if set_name == "k44" and archive == "clean" and topic in OTHER_HISTORY:
            continue
        for segment in kafkalog.Partition(path).segments:
            batches, index = segment.batches, segment.offset_index
            assert index is not None
            rows = EntryRule(interval).rows(batches.position.tolist())
            assert batches.position[rows].tolist() == index.position.tolist(), name
            assert batches.last_offset[rows].tolist() == index.offset.tolist(), name
            compared += len(index)
    assert compared >= n_entries


@pytest.mark.parametrize("set_name", golden_sets.SETS)
def test_a_healthy_log_has_no_finding_and_measures_as_counted(set_name):
    n_segments = n_entries = 0
    for path in golden_sets.partitions(set_name).values():
        found = []
        statistics = kafkalog.Partition(path).index_statistics(report=found.append)
        assert found == []
        partition = kafkalog.Partition(path)
        assert [one.segment for one in statistics.segments] == [segment.path.name for segment in partition.segments]
        for segment, one in zip(partition.segments, statistics.segments, strict=True):
            batches, index = golden_batches(segment), segment.offset_index
            assert index is not None
            assert one.index is not None
            if batches and batches[-1].last_offset - batches[0].base_offset < 10_000:
                entries = list(zip(index.offset.tolist(), index.position.tolist(), strict=True))
                check(one.index, batches, entries)
                n_segments, n_entries = n_segments + 1, n_entries + len(entries)
            assert segment.time_index is not None
            assert one.index.n_time_entries == len(segment.time_index)
    assert n_segments > 3
    assert n_entries > 10


@pytest.mark.parametrize("interval", INTERVALS)
@pytest.mark.parametrize("name", ["p-multi-0", "p-txn-0", "p-v0v1v2-mixed-0", "p-v1-lz4-0", "p-compact-0"])
def test_what_if_is_what_an_index_really_built_so_measures(name, interval, log_dir, tmp_path):
    copy = Path(shutil.copytree(log_dir / name, tmp_path / name))
    what_if = kafkalog.Partition(copy).index_statistics(what_if=INTERVALS)
    rebuild(copy, interval)
    built = kafkalog.Partition(copy).index_statistics()
    wanted = {one.index_interval_bytes: one for one in what_if.what_if}[interval]
    assert built.index is not None
    assert built.index == replace(wanted, index_interval_bytes=None)
    for segment, one in zip(built.segments, what_if.segments, strict=True):
        assert segment.index == replace(one.what_if[INTERVALS.index(interval)], index_interval_bytes=None)
    assert built.index.n_entries > 0 or interval > 4000


def test_an_empty_log_has_no_figures(tmp_path):
    directory = a_log(tmp_path, [])
    (directory / f"{0:020}.index").touch()
    statistics = kafkalog.Partition(directory).index_statistics(what_if=[4096])
    assert statistics.index is not None
    for measures in (statistics.index, *statistics.what_if):
        assert (measures.n_entries, measures.gap_bytes.n, measures.expected_scan_by_offset) == (0, 0, None)
        assert (measures.entries_per_mib, measures.index_bytes_per_log_byte) == (None, None)


@pytest.mark.parametrize(
    ("entries", "is_measured"),
    [
        ([(10, 3000), (9, 4000)], False),
        ([(10, 3000), (12, 2900)], False),
        ([(5, 261 * 6)], False),
        ([(-5, 261)], False),
        ([(5, 261), (900, 1305)], True),  # one lies past the last batch
    ],
)
def test_an_index_that_misleads_is_a_finding(entries, is_measured, tmp_path):
    directory = a_log(tmp_path, list(range(20)), base_offset=0)
    (directory / f"{0:020}.index").write_bytes(b"".join(struct.pack(">ii", *entry) for entry in entries))
    found = []
    statistics = kafkalog.Partition(directory).index_statistics(what_if=[512], report=found.append)
    assert [finding.reason for finding in found] == ["index_misleads"] * (not is_measured)
    assert (statistics.index is not None) == is_measured
    assert statistics.what_if[0].n_entries == 9  # every second batch of 261 bytes but the first


def test_damage_is_met_as_asked(log_dir, tmp_path):
    copy = Path(shutil.copytree(log_dir / "p-txn-0", tmp_path / "p-txn-0"))
    damaged = kafkalog.Partition(copy).segments[3]
    where = int(damaged.batches.position[20])
    with damaged.path.open("r+b") as file:
        file.seek(where + 8)
        file.write(b"\xff" * 4)
    partition = kafkalog.Partition(copy)
    with pytest.raises(kafkalog.CorruptionError):
        partition.index_statistics(what_if=[1024])
    found = []
    stopped = partition.index_statistics(what_if=[1024], on_corruption="stop", report=found.append)
    assert [finding.position for finding in found] == [where]
    assert [one.segment for one in stopped.segments] == [segment.path.name for segment in partition.segments[:4]]
    assert stopped.segments[-1].size_in_bytes == where
    assert stopped.segments[-1].index is not None
    assert stopped.segments[-1].index.n_entries == sum(damaged.offset_index["position"] < where)
    found.clear()
    skipped = partition.index_statistics(what_if=[1024], on_corruption="skip", report=found.append)
    assert [finding.position for finding in found] == [where]
    assert len(skipped.segments) == 6
    assert skipped.segments[3].size_in_bytes == damaged.size_in_bytes


def test_a_damaged_start_of_a_segment_behind_an_empty_one_ends_it(tmp_path):
    directory = a_log(tmp_path, [1, 2, 3])
    (directory / f"{10:020}.log").touch()
    for base in (20, 30):
        a_log(tmp_path, [4, 5], base_offset=base)
    with (directory / f"{20:020}.log").open("r+b") as file:
        file.seek(8)
        file.write(b"\xff" * 4)
    partition = kafkalog.Partition(directory)
    stopped = partition.index_statistics(on_corruption="stop")
    assert [(one.segment[:20].lstrip("0"), one.n_batches) for one in stopped.segments if one.segment] == [
        ("", 3),
        ("10", 0),
        ("20", 0),
    ]
    skipped = partition.index_statistics(on_corruption="skip")
    assert [one.n_batches for one in skipped.segments] == [3, 0, 1, 2]


def test_a_file_of_another_name_has_no_index_that_could_be_measured(log_dir, tmp_path):
    for suffix in ("log", "index", "timeindex"):
        shutil.copy(log_dir / "p-txn-0" / f"00000000000000000164.{suffix}", tmp_path / f"copy.{suffix}")
    (statistics,) = kafkalog.index_stats(kafkalog.Segment(tmp_path / "copy.log"), what_if=[1024])
    assert statistics.index is None
    segment = kafkalog.Segment(log_dir / "p-txn-0" / "00000000000000000164.log")
    (named,) = kafkalog.index_stats(segment, what_if=[1024])
    assert statistics.what_if == named.what_if


@given(st.binary(max_size=200), st.binary(max_size=100))
@settings(max_examples=examples(150), deadline=None)
def test_any_index_bytes_give_figures_or_findings(offsets, times):
    with tempfile.TemporaryDirectory() as root:
        directory = a_log(Path(root), list(range(8)), base_offset=100)
        (directory / f"{100:020}.index").write_bytes(offsets)
        (directory / f"{100:020}.timeindex").write_bytes(times)
        found = []
        statistics = kafkalog.Partition(directory).index_statistics(report=found.append)
        assert (statistics.index is None) <= bool(found)
        json.dumps(statistics.as_dict())


def measure_bytes(data, base_offset, on_corruption):
    with tempfile.TemporaryDirectory() as root:
        directory = Path(root) / "orders-0"
        directory.mkdir()
        (directory / f"{base_offset:020}.log").write_bytes(data)
        found = []
        statistics = kafkalog.Partition(directory).index_statistics(
            what_if=(0, 100), on_corruption=on_corruption, report=found.append
        )
        json.dumps(statistics.as_dict(), allow_nan=False)
        return statistics, found


@given(strategies.segments(min_batches=1))
@settings(max_examples=examples(40), deadline=None)
def test_a_healthy_segment_of_any_format_is_measured(segment):
    statistics, found = measure_bytes(segment.data, segment.base_offset, "raise")
    assert found == []
    assert (statistics.n_batches, statistics.size_in_bytes) == (len(segment.batches), len(segment.data))
    every = statistics.what_if[0]
    assert every.n_entries == len(segment.batches) - 1
    assert every.worst_scan <= max(stop - start for start, stop in segment.batches)


@given(strategies.segments(min_batches=1).flatmap(strategies.damaged), st.sampled_from(("stop", "skip")))
@settings(max_examples=examples(60), deadline=None)
def test_a_damaged_segment_gives_figures_of_what_was_walked(damaged, on_corruption):
    statistics, _ = measure_bytes(damaged.data, 0, on_corruption)
    assert statistics.size_in_bytes <= len(damaged.data)
    for measures in statistics.what_if:
        assert 0 <= measures.worst_scan <= len(damaged.data)
        assert (measures.expected_scan_by_offset or 0) <= measures.worst_scan + 1e-6


def distribution(*parts):
    made = Distribution()
    for part in parts:
        made.add(np.array(part, np.int64))
    return made


@given(st.lists(st.lists(st.integers(0, 2**40), max_size=20), max_size=5))
def test_figures_are_those_of_all_numbers_whatever_the_parts(parts):
    values = sorted(value for part in parts for value in part)
    spread = distribution(*parts).spread()
    merged = Distribution()
    for part in parts:
        merged.merge(distribution(part))
    for found in (spread, merged.spread()):
        assert found.n == len(values)
        if not values:
            assert set(found.as_dict().values()) == {0, None}
            continue
        mean = statistics.fmean(values)
        assert found.mean == pytest.approx(mean)
        assert found.max == values[-1]
        for percent, percentile in ((50, found.p50), (99, found.p99)):
            exact = values[math.ceil(len(values) * percent / 100) - 1]
            assert percentile is not None
            assert exact - exact / 64 <= percentile <= exact


def test_without_matplotlib_the_error_names_what_to_install(log_dir, run_lines, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    code, _, err = run_lines("index-stats", log_dir, "--plot", tmp_path / "x.svg")
    assert code == 2
    assert "pip install 'kafkalog[plot]'" in err


def needs_matplotlib():
    pytest.importorskip("matplotlib", reason="pictures are NOT tested: Matplotlib is missing (pip install matplotlib)")


@pytest.mark.parametrize(("suffix", "start"), thinned([("svg", b"<?xml"), ("png", b"\x89PNG"), ("pdf", b"%PDF")], 3))
def test_a_picture_is_drawn(suffix, start, log_dir, run_lines, tmp_path):
    needs_matplotlib()
    file = tmp_path / f"x.{suffix}"
    code, _, err = run_lines("index-stats", log_dir, "--plot", file)
    assert (code, err) == (0, "")
    picture = file.read_bytes()
    assert picture.startswith(start)
    assert len(picture) > 5000
    code, _, err = run_lines("index-stats", log_dir, "--plot", file)
    assert code == 6
    assert "--overwrite" in err
    assert run_lines("index-stats", log_dir, "--plot", file, "--overwrite")[0] == 0
    assert file.read_bytes() == picture  # the same log, the same picture


def test_a_picture_is_not_put_into_a_log_dir(log_dir_copy, run_lines):
    needs_matplotlib()
    code, _, err = run_lines("index-stats", log_dir_copy, "--plot", log_dir_copy / "x.svg")
    assert code == 6
    assert "unsafe_path" in err
    assert not (log_dir_copy / "x.svg").exists()
