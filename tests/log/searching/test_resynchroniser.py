"""Reading that skips damage goes on at the next batch that salvage keeps, and nothing is lost unsaid."""

import time
import warnings

import builder
import numpy as np
import pytest
import salvage_trials
from effort import examples

import kafkalog
from kafkalog import format as kf
from kafkalog._kernels.wire import STATUS
from kafkalog.errors import DEFAULT_LIMITS
from kafkalog.log.searching import resynchroniser
from kafkalog.log.segment import Segment
from kafkalog.log.segment_stream import SegmentStream
from kafkalog.records.batch_table import lost_batch, valid_crcs
from kafkalog.records.spans import batch_error
from kafkalog.repair.salvaging.plan import plan_segment
from kafkalog.storage.source import BufferSource

KINDS = ("flip", "insert", "cut", "zero", "length", "garbage", "duplicate")


def dense(n=60, n_records=5, codec=0):
    """Batches of one size, which a wrong size field may lead to by chance."""
    records = [builder.record_v2(delta, delta, b"k", b"v" * 30) for delta in range(n_records)]
    return b"".join(
        builder.batch_v2(records, base_offset=n_records * row, codec=codec, base_timestamp=10**12) for row in range(n)
    )


def dumped(codec):
    """Values that hold whole batches, as of a topic of segments; their offsets fit the holes that damage leaves."""
    inner = [dense(1, 5).replace(bytes(8), (5 * row).to_bytes(8, "big"), 1) for row in range(120)]
    return b"".join(
        builder.batch_v2(
            [builder.record_v2(delta, delta, b"k", inner[3 * row + delta]) for delta in range(3)],
            base_offset=3 * row,
            codec=codec,
        )
        for row in range(40)
    )


def source_of(name, data):
    return salvage_trials.Source(name, 0, data, tuple(builder.batch_positions(data)))


@pytest.fixture(scope="module")
def sources():
    made = [source_of("dense", dense()), source_of("dumped", dumped(0)), source_of("dumped-zstd", dumped(4))]
    return [*salvage_trials.sources(), *made]


def skipped(log, *, is_last=True):
    """The intact batches that reading gives, and all findings, those of wrong checksums included."""
    data = log.read_bytes()
    segment = Segment(log, is_last=is_last)
    batches, findings = [], []
    with segment.open() as source:
        for window in SegmentStream(segment, source, on_corruption="skip", report=findings.append).windows():
            for row, is_valid in enumerate(valid_crcs(window).tolist()):
                start, end = int(window.batches.position[row]), int(window.batches.next_position[row])
                if is_valid:
                    batches.append(data[start:end])
                else:
                    error = batch_error(STATUS["CRC_MISMATCH"], window.batches, row, str(log))
                    findings.append(lost_batch(error, window.batches))
    return batches, findings


def salvaged(log):
    data = log.read_bytes()
    segment = Segment(log)
    with segment.open() as source:
        kept = plan_segment(segment, source, None, [], DEFAULT_LIMITS, lambda n: None).kept
    return [
        data[start + first : start + end]
        for start, stop in zip(kept.start.tolist(), kept.end.tolist(), strict=True)
        for first, end in builder.batch_positions(data[start:stop])
    ]


def n_records(batches):
    """Markers are none."""
    return sum(int.from_bytes(batch[57:61], "big") for batch in batches if not batch[22] & kf.CONTROL_BIT)


def trials(seed, numbers, sources):
    for number in numbers:
        rng = np.random.default_rng((seed, number))
        source, kind = sources[int(rng.integers(len(sources)))], KINDS[number % len(KINDS)]
        if kind == "duplicate":
            first, last = sorted(rng.integers(0, len(source.data), 2).tolist())
            yield number, source, kind, source.data[:last] + source.data[first:last] + source.data[last:]
        else:
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(salvage_trials, "KINDS", (kind,))
                yield number, source, kind, salvage_trials.damage(rng, source, 1).data


def check(seed, numbers, folder, sources):
    n_unseen = 0
    for number, source, kind, data in trials(seed, numbers, sources):
        log = folder / kf.segment_file_name(source.base_offset)
        log.write_bytes(data)
        given, findings = skipped(log)
        kept = salvaged(log)
        log.unlink()
        original = set(source.batches)
        where = f"trial {number}: {kind} in {source.name}"
        # no checksum covers a base offset or a leader epoch, so damage there may stay unseen: the records are right
        protected = {salvage_trials.protected(batch) for batch in original}
        extra = [batch for batch in given if batch not in original]
        n_unseen += bool(extra)
        if given != kept:
            assert extra, where
            assert all(salvage_trials.protected(batch) in protected for batch in extra), where
            continue
        assert sum(map(len, given)) + sum(one.length or 0 for one in findings) == len(data), where
        is_known = all(one.n_records is not None for one in findings)
        if (
            is_known
            and not extra  # lost records are counted by offsets, of which one is wrong then
            and source.batches[0][16] == 2
            and kind not in ("cut", "duplicate")
            and "compact" not in source.name
        ):
            lost = sum(one.n_records or 0 for one in findings)
            actual = n_records(source.batches) - n_records(given)
            is_sure = all(one.certainty != "header" for one in findings)
            assert lost >= actual or not is_sure, where
    assert n_unseen <= len(numbers) // 50 + 1


def test_skip_gives_exactly_the_undamaged_batches_that_salvage_keeps(tmp_path, sources):
    check(1, range(examples(3000)), tmp_path, sources)


@pytest.mark.soak
def test_skip_and_salvage_agree_on_many_damages(tmp_path, sources):
    check(20261122, range(50_000), tmp_path, sources)


def test_what_trials_once_lost_is_there(tmp_path, sources):
    # 8941: a damaged size field leads into an intact batch, to bytes that look like the header of another
    # 11379: one that leads over several, to bytes whose offsets show only behind the magic that they are no header
    # 19134: a changed base offset makes a batch equal to one that is far before it
    check(20261122, [8941, 11379, 19134], tmp_path, sources)


def test_behind_bytes_inside_an_intact_batch_the_next_one_follows():
    data, size = dense(), len(dense(1))
    with BufferSource(data) as source:
        found = resynchroniser.Resynchroniser(
            source, start=0, base_offset=0, end_offset=lambda: None, limits=DEFAULT_LIMITS
        )
        assert [found.after(at) for at in (1, 20 * size - 1, 20 * size, 20 * size + 1)] == [
            size,
            20 * size,
            21 * size,
            21 * size,
        ]
        assert found.after(len(data) - 1) is None


@pytest.fixture
def partition(tmp_path):
    directory = tmp_path / "t-0"
    directory.mkdir()
    return directory


def offsets(partition, **options):
    scan = kafkalog.scan(partition, columns=["offset"], on_corruption="skip", **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
        return scan.to_table().column(0).to_pylist(), scan


def test_more_runs_than_are_held_are_chosen_piece_by_piece(partition, monkeypatch):
    monkeypatch.setattr(resynchroniser, "MOST_RUNS", 2)
    monkeypatch.setattr("kafkalog.records.header_walk._SEARCH_ROWS", 3)
    data, size = bytearray(dense()), len(dense(1))
    for row in range(5, 55, 4):
        data[row * size + 16] = 9
    data[30 * size : 30 * size] = b"x" * 99
    (partition / kf.segment_file_name(0)).write_bytes(data)
    found, scan = offsets(partition)
    assert found == [one for one in range(300) if one // 5 not in range(5, 55, 4)]
    assert scan.losses[str(partition)].n_records == 13 * 5


@pytest.mark.parametrize("claimed", [100, 3000, 2**20])
def test_skipping_is_linear_in_hostile_bytes(partition, claimed):
    head = builder.batch_v2([builder.record_v2()], base_offset=5, leader_epoch=1)[:61]
    head = head[:8] + claimed.to_bytes(4, "big") + head[12:]
    took = [10.0, 10.0]
    for _ in range(2):  # in turn: what else runs makes both longer
        for which, n_bytes in enumerate((2**21, 2**22)):
            (partition / kf.segment_file_name(0)).write_bytes(dense(2) + head * (n_bytes // 61) + b"\xff" * 99)
            before = time.process_time()
            assert offsets(partition, check_crcs=True)[0][:5] == [0, 1, 2, 3, 4]
            took[which] = min(took[which], time.process_time() - before)
    assert took[1] < 3 * took[0] + 0.05
    assert took[0] < 4  # 2 MiB


@pytest.mark.parametrize("damage", ["twice", "magic"])
def test_damage_is_skipped_alike_where_checksums_are_not_compared(damage, tmp_path):
    data = dense(20)
    size = len(data) // 20
    if damage == "twice":
        data += data
    else:
        data = data[: 9 * size + 16] + b"\3" + data[9 * size + 17 :]
    partition = tmp_path / "t-0"
    partition.mkdir()
    (partition / f"{0:020}.log").write_bytes(data)
    with pytest.warns(kafkalog.CorruptionWarning):
        expected = kafkalog.read_table(partition, on_corruption="skip")
    with pytest.warns(kafkalog.CorruptionWarning):
        assert kafkalog.read_table(partition, on_corruption="skip", check_crcs=False).equals(expected)
    assert expected.num_rows == (100 if damage == "twice" else 95)


@pytest.mark.parametrize("memory_map", [False, True])
@pytest.mark.parametrize("columns", [["offset"], ["offset", "key", "value"]])
def test_records_read_with_a_batch_that_leads_astray_are_decoded_again(memory_map, columns, tmp_path):
    # ten bytes of the last value of a batch are missing: it has those of the next batch, which its size leads over
    data = dense(20)
    size = len(data) // 20
    partition = tmp_path / "t-0"
    partition.mkdir()
    (partition / f"{0:020}.log").write_bytes(data[: 10 * size - 20] + data[10 * size - 10 :])
    scan = kafkalog.scan(partition, columns=columns, on_corruption="skip", check_crcs=False, memory_map=memory_map)
    with pytest.warns(kafkalog.CorruptionWarning):
        assert scan.to_table()["offset"].to_pylist() == [*range(45), *range(50, 100)]
    (finding,) = scan.findings
    assert (finding.position, finding.n_records) == (9 * size, 5)
