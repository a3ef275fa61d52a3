"""Segments of a partition one behind the other: ranges of offsets, and past damage as asked."""

import gc
import warnings

import builder
import pytest
from damaged_partitions import damaged_partition
from files import flip
from refusals import fails_with
from ways import seams

import kafkalog
from kafkalog import TopicPartition
from kafkalog.log.segment import Segment
from kafkalog.log.segment_stream import SegmentStream
from kafkalog.records.selection import Selection


def test_an_unreadable_file_is_passed_over_like_damage(log_dir, tmp_path, monkeypatch):
    broken = str(log_dir / "p-multi-1")
    opened = Segment.open

    def refuse(self):
        if str(self.path).startswith(broken):
            raise kafkalog.ReadError("file_unreadable", "Input/output error", path=self.path)
        return opened(self)

    expected = kafkalog.scan(log_dir).count_rows() - kafkalog.scan(log_dir / "p-multi-1").count_rows()
    scan = kafkalog.scan(kafkalog.open(log_dir), on_corruption="skip")
    assert len(list(scan.partitions())) == 10
    monkeypatch.setattr(Segment, "open", refuse)
    with pytest.warns(kafkalog.CorruptionWarning):
        assert scan.count_rows() == expected
    with pytest.raises(kafkalog.ReadError):
        kafkalog.scan(scan.target).count_rows()


def test_a_segment_over_a_limit_is_passed_over_like_damage(log_dir):
    sizes = {segment.size_in_bytes for segment in kafkalog.Partition(log_dir / "p-multi-0").segments}
    limits = kafkalog.Limits(max_segment_bytes=max(sizes) - 1)
    with pytest.raises(kafkalog.LimitExceededError):
        kafkalog.scan(log_dir / "p-multi-0", limits=limits).count_rows()
    scan = kafkalog.scan(log_dir / "p-multi-0", limits=limits, on_corruption="skip")
    with pytest.warns(kafkalog.CorruptionWarning, match="max_segment_bytes"):
        assert scan.to_numpy().offset.tolist() == [121, 123]
    assert [finding.reason for finding in scan.findings] == ["segment_too_large"]


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("policy", ["stop", "skip"])
def test_stop_ends_a_partition_and_skip_leaves_out_one_batch(log_dir_copy, policy, threads):
    path, batches = damaged_partition(log_dir_copy)
    bad = len(batches) // 2
    flip(path, int(batches.position[bad]) + 80)
    scan = kafkalog.scan(log_dir_copy, threads=threads, columns=["topic", "offset"], on_corruption=policy)
    with pytest.warns(kafkalog.CorruptionWarning, match="crc_mismatch"):
        table = scan.to_table()
    offsets = [offset for topic, offset in zip(*(c.to_pylist() for c in table.columns), strict=True) if "zstd" in topic]
    first, last = int(batches.base_offset[bad]), int(batches.last_offset[bad])
    expected = list(range(first)) + ([] if policy == "stop" else list(range(last + 1, 600)))
    assert offsets == expected
    (finding,) = [finding for finding in scan.findings if finding.damage]
    assert (finding.path, finding.position) == (str(path), batches.position[bad])
    assert finding.length == batches.size_in_bytes[bad]
    assert scan.n_damage == 1


@pytest.mark.parametrize("size", [0x7FFFFF00, 70, 0, -1, 13])
def test_a_wrong_length_in_a_sealed_segment_is_reported_and_skip_goes_on_at_the_next_batch(log_dir_copy, size):
    path, batches = damaged_partition(log_dir_copy)
    bad = len(batches) // 2
    data = bytearray(path.read_bytes())
    position = int(batches.position[bad])
    data[position + 8 : position + 12] = size.to_bytes(4, "big", signed=True)
    path.write_bytes(data)
    with pytest.raises(kafkalog.CorruptionError) as caught:
        kafkalog.scan(path.parent).count_rows()
    assert caught.value.position in (position, position + size + 12)
    scan = kafkalog.scan(path.parent, columns=["offset"], on_corruption="skip")
    with pytest.warns(kafkalog.CorruptionWarning):
        offsets = scan.to_table().column(0).to_pylist()
    assert offsets == [*range(batches.base_offset[bad]), *range(batches.last_offset[bad] + 1, 600)]
    assert sum(finding.n_records or 0 for finding in scan.findings) == batches.records_count[bad]


def test_a_range_does_not_end_where_only_a_damaged_header_says_so(tmp_path):
    path = tmp_path / f"{0:020d}.log"
    batches = [builder.batch_v2([builder.record_v2(0, 0, None, b"x")], base_offset=n) for n in range(8)]
    batches[3] = batches[3][:23] + b"\x7f" + batches[3][24:]  # of the last offset delta
    path.write_bytes(b"".join(batches))
    for window_bytes in (100, 2**22):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("kafkalog.scanning.execution.WINDOW_BYTES", window_bytes)
            patch.setattr("kafkalog.scanning.execution._MIN_WINDOW_BYTES", window_bytes)
            scan = kafkalog.scan(path, end_offset=6, on_corruption="skip")
            with pytest.warns(kafkalog.CorruptionWarning):
                assert scan.to_numpy().offset.tolist() == [0, 1, 2, 4, 5], window_bytes


@pytest.mark.parametrize(
    "bounds",
    [
        {"start_offset": {("p-multi", 0): 100, ("p-multi", 1): 98}},
        {"end_offset": {TopicPartition("p-multi", 2): 0}},
        {"start_offset": 60, "end_offset": 20},
    ],
)
def test_bounds_may_be_those_of_a_partition(log_dir, bounds):
    def holds(row, name):
        bound = bounds.get(name, {})
        bound = bound.get((row["topic"], row["partition"])) if isinstance(bound, dict) else bound
        return bound is None or (row["offset"] >= bound) == (name == "start_offset")

    whole = kafkalog.read_table(log_dir, topics="p-multi").to_pylist()
    expected = [row for row in whole if holds(row, "start_offset") and holds(row, "end_offset")]
    assert kafkalog.read_table(log_dir, topics="p-multi", **bounds).to_pylist() == expected != whole


def test_deleted_records_are_left_out_unless_asked_for(log_dir):
    partition = kafkalog.open(log_dir / "p-delrec-0")
    assert isinstance(partition, kafkalog.Partition)
    assert partition.log_start_offset == 334
    assert partition.log_end_offset == 500
    assert kafkalog.read_table(partition, columns=["offset"]).column(0).to_pylist() == list(range(334, 500))
    everything = kafkalog.read_table(partition, columns=["offset"], include_deleted=True).column(0).to_pylist()
    assert min(everything) < 334
    assert everything == list(range(everything[0], 500))


@pytest.mark.parametrize("base", [5, 10])
def test_batches_that_an_earlier_segment_has_too_are_given_once(tmp_path, base):
    batches = [builder.batch_v2([builder.record_v2(0, 0, b"k")], base_offset=offset) for offset in range(12)]
    (tmp_path / "t-0").mkdir()
    for first, part in ((0, batches[:10]), (base, batches[5:])):
        (tmp_path / "t-0" / f"{first:020d}.log").write_bytes(b"".join(part))
    with pytest.raises(kafkalog.CorruptionError):
        kafkalog.scan(tmp_path / "t-0").count_rows()
    scan = kafkalog.scan(tmp_path / "t-0", on_corruption="skip")
    with pytest.warns(kafkalog.CorruptionWarning, match=f"a copy of the batch at position .* of {0:020d}.log"):
        assert scan.to_numpy().offset.tolist() == list(range(12))
    assert sum(finding.n_records or 0 for finding in scan.findings) == 0
    with pytest.warns(kafkalog.CorruptionWarning):
        kafkalog.convert(tmp_path / "t-0", tmp_path / "u-0", on_corruption="skip")
    assert kafkalog.scan(tmp_path / "u-0").to_numpy().offset.tolist() == list(range(12))


def retire(path):
    """What a broker does first with a segment that it deletes."""
    path.rename(path.with_name(f"{path.name}.deleted"))


READINGS = {
    "scan": lambda opened: kafkalog.scan(opened).to_numpy().offset.tolist(),
    "committed": lambda opened: kafkalog.scan(opened, isolation_level="read_committed").to_numpy().offset.tolist(),
    "skip": lambda opened: kafkalog.scan(opened, on_corruption="skip").to_numpy().offset.tolist(),
    "batches": lambda opened: kafkalog.batches(opened).to_table()["last_offset"].to_pylist(),
    "producers": lambda opened: repr(kafkalog.producers(opened, now=0)),
    "times": lambda opened: opened.offset_for_timestamp([0, 1_700_000_003_000, "max-timestamp"]).tolist(),
    "lookup": lambda opened: [one.as_dict()["offset"] for one in kafkalog.lookup(opened, offset=[20, 200, 420])],
}


@pytest.mark.parametrize("name", READINGS)
def test_what_retention_deletes_after_the_listing_is_still_read(log_dir_copy, name):
    partition = log_dir_copy / "p-txn-0"
    expected = READINGS[name](kafkalog.open(partition))
    opened = kafkalog.open(partition)
    for segment in sorted(partition.glob("*.log"))[:3]:
        retire(segment)
    assert READINGS[name](opened) == expected


@pytest.mark.parametrize("name", [name for name in READINGS if name not in ("lookup", "producers", "times")])
def test_what_the_cleaner_merges_after_the_listing_is_read_once(log_dir_copy, name):
    """As LocalLog.replaceSegments: the old ones are renamed, then the new one gets the name of the first."""
    partition = log_dir_copy / "p-compact-0"
    expected = READINGS[name](kafkalog.open(partition))
    opened = kafkalog.open(partition)
    first, second, third, _ = sorted(partition.glob("*.log"))
    merged = b"".join(path.read_bytes() for path in (first, second, third))
    for path in (first, second, third):
        retire(path)
    first.write_bytes(merged)
    assert READINGS[name](opened) == expected


def test_a_swap_file_that_gets_its_name_after_the_listing_is_read_under_it(log_dir_copy):
    partition = log_dir_copy / "p-compact-0"
    expected = READINGS["scan"](kafkalog.open(partition))
    second = sorted(partition.glob("*.log"))[1]
    swap = second.rename(second.with_name(f"{second.name}.swap"))
    opened = kafkalog.open(partition)
    swap.rename(second)
    assert READINGS["scan"](opened) == expected


def test_a_deleted_segment_that_no_listing_had_is_not_there(log_dir_copy):
    path = min((log_dir_copy / "p-txn-0").glob("*.log"))
    retire(path)
    with fails_with("file_unreadable"):
        Segment(path)


SIZES = (None, 100, 300, 4096)


def batch(offset, value=b"x"):
    return builder.batch_v2([builder.record_v2(0, 0, None, 50 * value)], base_offset=offset)


def offsets_below(path, end, size):
    with seams(size), warnings.catch_warnings():
        warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
        scan = kafkalog.scan(path, columns=["offset"], end_offset=end, on_corruption="skip", threads=1)
        return scan.to_numpy().offset.tolist()


@pytest.mark.parametrize("size", SIZES)
def test_a_segment_that_begins_below_the_end_is_read_though_the_one_before_reaches_it(tmp_path, size):
    directory = tmp_path / "p-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(b"".join(map(batch, range(40))))
    (directory / f"{25:020d}.log").write_bytes(b"".join(batch(n, b"y") for n in range(25, 60)))
    (directory / f"{60:020d}.log").write_bytes(b"".join(map(batch, range(60, 70))))
    # both copies of 25..30 are read, or one of them where a window ends at 30
    assert sorted(set(offsets_below(directory, 30, size))) == [*range(30)]
    if size is None:
        assert offsets_below(directory, 30, size) == [*range(30), *range(25, 30)]
    assert offsets_below(directory, 62, size) == [*range(40), *range(25, 62)]


@pytest.mark.parametrize("size", SIZES)
def test_a_segment_ends_at_the_first_batch_behind_which_offsets_are_higher(tmp_path, size):
    path = tmp_path / f"{0:020d}.log"
    # 900 was written wrong, as the batch behind it shows; behind 30 and 31 the offsets go back, too late to be noticed
    again = [batch(offset, b"y") for offset in range(5, 10)]
    path.write_bytes(b"".join([*map(batch, [*range(10), 900, *range(11, 32)]), *again, *map(batch, range(40, 50))]))
    assert offsets_below(path, 30, size) == [*range(10), *range(11, 30)]


def test_a_read_is_freed_at_its_end_without_garbage_collection(log_dir):
    gc.collect()
    gc.disable()
    try:
        # what earlier tests have left does not count
        before = streams()
        for window in kafkalog.open(log_dir / "p-multi-0").reader.windows(Selection()):
            window.release()
        del window
        assert streams() <= before
    finally:
        gc.enable()


def streams():
    """The streams that are there, by their identity."""
    # type, and not isinstance: among the objects may be a weak proxy to one that is gone
    return {id(held) for held in gc.get_objects() if type(held) is SegmentStream}
