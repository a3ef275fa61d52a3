"""Tasks together read what one scan reads, whatever the indexes hold, and notice when the files are no longer those."""

import itertools
import os
import shutil
import warnings
from pathlib import Path

import builder
import golden_sets
import pytest
from effort import thinned
from plans import batch, index, make, offsets, read

import kafkalog
from kafkalog import format as kf
from kafkalog.errors import CorruptionError, ReadError, Reason
from kafkalog.indexes.index_files import OffsetIndex
from kafkalog.scanning.planning import plan
from kafkalog.scanning.tasks import read_task

LEVELS = ("read_uncommitted", "read_committed")


TOPICS = [("k44", "p-txn"), ("k44", "p-multi"), ("k44", "p-compact"), ("k44", "p-delrec"), ("k28", "p-v1-lz4")]


@pytest.fixture
def log(tmp_path):
    """Three segments of a hundred batches each."""
    return make(tmp_path, {base: [batch(base + 4 * i) for i in range(100)] for base in (0, 400, 800)})


@pytest.mark.parametrize(
    ("broker_topic", "level", "options"),
    thinned(itertools.product(TOPICS, LEVELS, [{}, {"start_offset": 100, "end_offset": 333}, {"max_records": 41}]), 4),
)
def test_tasks_together_read_what_one_scan_reads(broker_topic, level, options):
    broker, topic = broker_topic
    root = golden_sets.unpacked(broker)
    bounds = {name: value for name, value in options.items() if name != "max_records"}
    whole = kafkalog.read_table(root, topics=topic, isolation_level=level, **bounds)
    for task_bytes in (2**12, 2**14, 2**26):
        tasks = plan(root, topics=[topic], isolation_level=level, task_bytes=task_bytes, **options)
        assert read(tasks).equals(whole), task_bytes
    assert whole.num_rows or topic == "p-delrec"


def test_every_byte_is_read_by_one_task_of_about_the_size_asked_for(log):
    total = sum(path.stat().st_size for path in log.glob("*.log"))
    tasks = plan(log, task_bytes=2**14).tasks
    assert sum(task.n_bytes for task in tasks) == total
    assert all(task.n_bytes <= 2**14 + 2**11 for task in tasks)
    assert total / 2**14 <= len(tasks) <= 2 * total / 2**14


def test_a_plan_reads_no_more_than_its_offsets_need(log):
    segment = kafkalog.Partition(log).segments[1]
    index, batches = segment.offset_index, segment.batches
    assert index is not None
    entry = len(index) // 2
    row = batches.position.tolist().index(int(index.position[entry]))
    place, end = int(batches.position[row]), int(batches.base_offset[row])

    def parts(**offsets):
        tasks = plan(log, task_bytes=2**14, **offsets).tasks
        return [(one.name, one.start, one.stop) for task in tasks for part in task.parts for one in part.segments]

    assert parts(start_offset=int(index.offset[entry]))[0][:2] == (segment.path.name, place)
    assert parts(end_offset=end)[-1][::2] == (segment.path.name, place)
    assert parts(start_offset=segment.base_offset)[0][:2] == (segment.path.name, 0)


def test_small_segments_of_several_partitions_make_one_task(tmp_path):
    for number in range(30):
        make(tmp_path, {base: [batch(base)] for base in range(0, 40, 4)}, name=f"t-{number}")
    (task,) = plan(tmp_path).tasks
    assert (len(task.parts), task.n_segments) == (30, 300)
    assert len(plan(tmp_path, min_tasks=10).tasks) >= 10
    assert read(plan(tmp_path, min_tasks=10)).num_rows == 1200


def test_what_is_appended_after_planning_is_not_read(log):
    tasks = plan(log, task_bytes=2**14)
    with (log / kf.segment_file_name(800)).open("ab") as file:
        file.write(batch(1200))
    assert offsets(tasks) == list(range(1200))
    assert offsets(plan(log)) == list(range(1204))


def test_a_batch_that_is_being_written_ends_the_plan_and_is_no_damage(log):
    with (log / kf.segment_file_name(800)).open("ab") as file:
        file.write(batch(1200)[:-10])
    found = []
    assert offsets(plan(log, task_bytes=2**14), report=found.append) == list(range(1200))
    assert [(finding.reason, finding.damage) for finding in found] == [(Reason.PARTIAL_TAIL, False)]


def test_an_index_that_lies_changes_how_the_work_is_cut_and_nothing_else(log):
    whole = kafkalog.read_table(log)
    paths = sorted(log.glob("*.index"))
    honest = [path.read_bytes() for path in paths]
    n_cut = len(plan(log, task_bytes=2**14).tasks)
    for shift in (1, 7, 61, 10**6):
        for path in paths:
            entries = OffsetIndex.open(path, 0).entries.copy()
            entries["position"] += shift
            path.write_bytes(entries.tobytes())
        tasks = plan(log, task_bytes=2**14)
        assert len(tasks.tasks) < n_cut
        assert read(tasks).equals(whole)
        for path, data in zip(paths, honest, strict=True):
            path.write_bytes(data)


def test_damage_is_met_by_the_task_that_reads_there(log):
    path = log / kf.segment_file_name(400)
    data = bytearray(path.read_bytes())
    data[builder.batch_positions(bytes(data))[50][0] + 100] ^= 1
    path.write_bytes(data)
    tasks = plan(log, task_bytes=2**14).tasks
    errors = []
    for task in tasks:
        try:
            list(read_task(task))
        except CorruptionError as error:
            errors.append(error)
    assert [error.path for error in errors] == [str(path)]
    found = []
    with pytest.warns(kafkalog.CorruptionWarning):
        left = offsets(plan(log, task_bytes=2**14, on_corruption="skip"), report=found.append)
    assert len(left) == 1196
    assert [(finding.path, finding.position) for finding in found] == [(str(path), errors[0].position)]
    with pytest.warns(kafkalog.CorruptionWarning):
        stopped = offsets(plan(log, task_bytes=2**14, on_corruption="stop"))
    assert stopped == left[: len(stopped)] == list(range(left[len(stopped)] - 4))


def test_transactions_across_tasks_are_judged_as_in_one(tmp_path):
    def data(offset, producer_id):
        return batch(offset, producer_id=producer_id, producer_epoch=0, base_sequence=0, transactional=True)

    batches = []
    for i in range(200):
        batches.append(data(4 * i, 7 + i % 3))
    batches.append(builder.control_batch(builder.ABORT, base_offset=800, producer_id=7))
    batches.append(builder.control_batch(builder.COMMIT, base_offset=801, producer_id=8))
    batches += [batch(802 + 4 * i) for i in range(50)]
    log = make(tmp_path, {0: batches[:90], 360: batches[90:]})
    open_from = 8  # of producer 9
    whole = kafkalog.read_table(log, isolation_level="read_committed")
    assert whole["offset"].to_pylist() == [4, 5, 6, 7]
    tasks = plan(log, isolation_level="read_committed", task_bytes=2**13)
    assert len(tasks.tasks) < len(plan(log, task_bytes=2**13).tasks), "nothing is planned behind what is open"
    assert read(tasks).equals(whole)
    with (log / kf.segment_file_name(360)).open("ab") as file:
        file.write(builder.control_batch(builder.COMMIT, base_offset=1002, producer_id=9))
    index(log)
    whole = kafkalog.read_table(log, isolation_level="read_committed")
    tasks = plan(log, isolation_level="read_committed", task_bytes=2**13)
    assert len(tasks.tasks) > 8
    assert read(tasks).equals(whole)
    assert set(range(800)) - set(whole["offset"].to_pylist()) == {o for o in range(800) if o // 4 % 3 == 0}
    assert open_from in whole["offset"].to_pylist()


def test_a_partition_that_cannot_be_read_is_a_finding_where_damage_is_passed_over(log, tmp_path):
    shutil.copytree(log, tmp_path / "t-1")
    broken = tmp_path / "t-1" / kf.segment_file_name(400)
    broken.unlink()
    os.mkfifo(broken)
    with pytest.raises(ReadError):
        plan(tmp_path)
    tasks = plan(tmp_path, on_corruption="skip")
    assert [finding.path for finding in tasks.findings] == [str(broken)]
    with pytest.warns(kafkalog.CorruptionWarning):
        expected = kafkalog.scan(tmp_path, on_corruption="skip").to_table().num_rows
    assert 1200 < expected < 2400
    for options in itertools.product(("read_uncommitted", "read_committed"), (2**12, 2**30)):
        level, task_bytes = options
        tasks = plan(tmp_path, on_corruption="skip", isolation_level=level, task_bytes=task_bytes)
        assert read(tasks).num_rows == expected, options
    tasks = plan(tmp_path, on_corruption="stop")
    assert [finding.path for finding in tasks.findings] == [str(broken)]
    with pytest.warns(kafkalog.CorruptionWarning):
        stopped = kafkalog.scan(tmp_path, on_corruption="stop").to_table().num_rows
    assert read(tasks).num_rows == stopped < expected


@pytest.mark.parametrize("mode", ["skip", "stop"])
@pytest.mark.parametrize("level", LEVELS)
def test_a_gap_before_a_segment_that_cannot_be_read_is_said_by_parts_too(tmp_path, mode, level):
    log = make(tmp_path, {0: [batch(0), batch(4)], 20: [batch(20)], 30: [batch(30)]})
    (log / kf.segment_file_name(20)).unlink()
    (log / kf.segment_file_name(20)).mkdir()
    for end, n in ((None, 1), (25, 1), (20, 0)):
        scan = kafkalog.scan(log, on_corruption=mode, isolation_level=level, end_offset=end)
        for target in (100, 2**20):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
                scan.to_table()
                expected = [str(one) for one in scan.findings if one.reason is Reason.OFFSET_GAP]
                found = []
                for part in scan.plan(target_bytes=target):
                    part.to_table()
                    found += [str(one) for one in part.findings if one.reason is Reason.OFFSET_GAP]
            assert found == expected
            assert len(found) == n, (end, target)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("bases", [[0], [0, 8]])
def test_what_is_missing_behind_an_empty_segment_is_said_once(tmp_path, level, bases):
    log = make(tmp_path, {base: [batch(base), batch(base + 4)] for base in bases})
    (log / kf.segment_file_name(bases[-1])).write_bytes(b"")
    index(log)
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 99\n")
    for end, n in ((None, 1), (50, 1), (bases[-1], 0)):
        scan = kafkalog.scan(tmp_path, isolation_level=level, end_offset=end)
        assert scan.to_table().num_rows == min(4 * len(bases[1:]) * 2, 8)
        assert [one.reason for one in scan.findings] == [Reason.LOG_END_MISSING] * n
        for target in (100, 2**20):
            parts = scan.plan(target_bytes=target)
            found = list(scan.findings)
            for part in parts:
                part.to_table()
                found += part.findings
            assert [one.reason for one in found] == [Reason.LOG_END_MISSING] * n, (end, target)


@pytest.mark.parametrize("level", LEVELS)
def test_a_range_that_ends_before_the_next_segment_says_nothing_of_the_log_end(tmp_path, level):
    log = make(tmp_path, {0: [batch(0)], 20: [batch(20)]})
    (log / kf.segment_file_name(0)).write_bytes(b"")
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 24\n")
    for end in (1, 10, 20):
        scan = kafkalog.scan(tmp_path, isolation_level=level, start_offset=0, end_offset=end)
        assert scan.to_table().num_rows == 0
        assert not list(scan.findings), end
        for part in scan.plan():
            assert part.to_table().num_rows == 0
            assert not list(part.findings), end


def gaps(path):
    scan = kafkalog.scan(path)
    scan.to_table()
    return [(one.base_offset, one.last_offset) for one in scan.findings if one.reason is Reason.OFFSET_GAP]


@pytest.mark.parametrize(
    ("gone", "task_bytes", "level"),
    thinned(itertools.product(({400}, {400, 800}, {1200}), (2**12, 2**14, 2**17), LEVELS), 5),
)
def test_gaps_between_segments_are_found_by_one_task_each(tmp_path, gone, task_bytes, level):
    bases = sorted({0, 400, 800, 1200, 1600} - gone)
    log = make(tmp_path, {base: [batch(base + 4 * i) for i in range(100)] for base in bases})
    (log / kf.segment_file_name(2100)).touch()  # what it held is gone, too
    make(tmp_path / "more", {2400: [batch(2400)]})
    (tmp_path / "more" / "t-0" / kf.segment_file_name(2400)).rename(log / kf.segment_file_name(2400))
    found = []
    tasks = plan(log, task_bytes=task_bytes, isolation_level=level)
    read(tasks, report=found.append)
    assert [(one.base_offset, one.last_offset) for one in found if one.reason is Reason.OFFSET_GAP] == gaps(log)
    assert len(gaps(log)) == 3


def test_a_partition_that_is_gone_ends_a_plan_or_is_a_finding(log_dir_copy):
    opened = kafkalog.open(log_dir_copy)
    (log_dir_copy / "p-multi-1").rename(log_dir_copy.parent / "moved")
    with pytest.raises(ReadError):
        plan(opened, topics="p-multi")
    tasks = plan(opened, topics="p-multi", on_corruption="skip")
    assert [Path(str(finding.path)).name for finding in tasks.findings] == ["p-multi-1"]
    assert set(read(tasks)["partition"].to_pylist()) == {0, 2}


@pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")
def test_a_batch_whose_last_offset_the_next_one_contradicts_ends_no_range(tmp_path):
    log = make(tmp_path, {0: [batch(4 * i) for i in range(100)]})
    (path,) = log.glob("*.log")
    data = bytearray(path.read_bytes())
    start, stop = builder.batch_positions(bytes(data))[5]
    data[start + 23] ^= 1  # its last offset delta, under a checksum that is right
    data[start:stop] = builder.fix_crc(bytes(data[start:stop]))
    path.write_bytes(data)
    for level in LEVELS:
        options = {"isolation_level": level, "columns": ["offset"], "end_offset": 100}
        scan = kafkalog.scan(log, on_corruption="skip", **options)
        (part,) = scan.plan(target_bytes=2**20)
        assert part.to_table()["offset"].to_pylist() == [*range(100)]
        assert scan.to_table()["offset"].to_pylist() == [*range(100)]
        assert [(one.reason, one.base_offset) for one in scan.findings] == [(Reason.OFFSET_ORDER, 24)]
        with pytest.raises(CorruptionError, match="offset_order"):
            kafkalog.scan(log, **options).to_table()


@pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")
@pytest.mark.parametrize("with_index", [True, False])
@pytest.mark.parametrize("base_offset", [130, 160])
def test_a_copy_of_a_segment_is_given_once_in_parts_too(tmp_path, with_index, base_offset):
    log = make(tmp_path, {0: [batch(4 * i) for i in range(20)], 80: [batch(80 + 4 * i) for i in range(20)]})
    for path in log.glob(f"{0:020d}.*"):
        if with_index or path.suffix == ".log":
            shutil.copy(path, path.with_name(f"{base_offset:020d}{path.suffix}"))
    scan = kafkalog.scan(log, on_corruption="skip", columns=["offset"])
    whole = scan.to_table()["offset"].to_pylist()
    said = {one.base_offset for one in scan.findings if "returned once" in one.detail}
    for target in (700, 3000, 2**20):
        parts = scan.plan(target_bytes=target)
        assert list(itertools.chain(*(part.to_table()["offset"].to_pylist() for part in parts))) == whole
        assert {one.base_offset for part in parts for one in part.findings if "returned once" in one.detail} == said
    assert said
    assert whole[:100] == [*range(100)]


@pytest.mark.filterwarnings("ignore::kafkalog.CorruptionWarning")
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("mode", ["skip", "stop"])
def test_a_segment_that_cannot_be_read_before_the_start_does_not_matter(tmp_path, mode, level):
    log = make(tmp_path, {0: [batch(0)], 4: [batch(4), batch(8)], 12: [batch(12), batch(16)]})
    (log / kf.segment_file_name(0)).unlink()
    (log / kf.segment_file_name(0)).mkdir()
    for start in (4, 9, 12, 13):
        scan = kafkalog.scan(log, columns=["offset"], on_corruption=mode, isolation_level=level, start_offset=start)
        for target in (100, 2**20):
            parts = [part.to_table()["offset"].to_pylist() for part in scan.plan(target_bytes=target)]
            assert list(itertools.chain(*parts)) == scan.to_table()["offset"].to_pylist() == [*range(start, 20)]


@pytest.mark.parametrize("check_crcs", [False, True])
def test_transactions_of_damaged_batches_are_judged_in_parts_as_in_one(tmp_path, check_crcs):
    begun = batch(4, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    abort = builder.control_batch(builder.ABORT, base_offset=8, producer_id=7)
    log = make(tmp_path, {0: [batch(0), begun], 8: [abort, batch(9)]})
    file = log / kf.segment_file_name(0)
    damaged = bytearray(file.read_bytes())
    damaged[-3] ^= 1  # in a value of the second batch
    file.write_bytes(damaged)
    for start in (0, 4):
        options = {"isolation_level": "read_committed", "on_corruption": "skip", "check_crcs": check_crcs}
        scan = kafkalog.scan(log, columns=["offset"], start_offset=start, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
            for target in (100, 2**20):
                parts = [part.to_table()["offset"].to_pylist() for part in scan.plan(target_bytes=target)]
                expected = [*range(start, 4), 9, 10, 11, 12]
                assert list(itertools.chain(*parts)) == scan.to_table()["offset"].to_pylist() == expected


@pytest.mark.parametrize("wound", ["length", "magic"])
def test_damaged_headers_read_the_same_in_parts(log, wound):
    path = log / kf.segment_file_name(400)
    data = bytearray(path.read_bytes())
    (position, _) = builder.batch_positions(bytes(data))[50]
    data[position + {"length": 9, "magic": 16}[wound]] ^= 0x40
    path.write_bytes(data)
    with pytest.warns(kafkalog.CorruptionWarning):
        whole = kafkalog.read_table(log, on_corruption="skip")
    for task_bytes in (2**12, 2**13, 2**14):
        with pytest.warns(kafkalog.CorruptionWarning):
            assert read(plan(log, task_bytes=task_bytes, on_corruption="skip")).equals(whole)
        with pytest.raises(CorruptionError) as raised:
            read(plan(log, task_bytes=task_bytes))
        assert (raised.value.path, raised.value.position) == (str(path), position)
