"""Damage in a conversion: raised, left out, or the end of the log; segments begin where they did."""

import shutil
import warnings
from pathlib import Path

import builder
import golden_sets
import pytest
import strategies
from conversions import (
    idempotent,
    logs,
    partition_of,
    raw_batches,
    rows,
    write_partition,
)
from effort import trials
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import fails_with

import kafkalog
from kafkalog import format as kf
from kafkalog.errors import Reason
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.log.segment_reader import SegmentReader


def test_segments_are_cut_anew_by_a_config(tmp_path):
    source = golden_sets.partitions("k28")["p-v0-gzip-0"]
    kafkalog.convert(source, tmp_path / "t-0", config=kafkalog.LogConfig(segment_bytes=4000))
    after = logs(tmp_path / "t-0")
    assert len(after) > 10
    assert all(len(data) <= 4000 for data in after.values())
    assert rows(tmp_path / "t-0") == rows(source)


def damaged_copy(tmp_path):
    """A partition of which one batch in the middle has a flipped byte, and how many records that batch has."""
    source = Path(shutil.copytree(golden_sets.partitions("k44")["p-zstd-java-0"], tmp_path / "t-0"))
    file = source / kf.segment_file_name(0)
    data = bytearray(file.read_bytes())
    start, stop = builder.batch_positions(bytes(data))[5]
    data[stop - 3] ^= 8
    file.write_bytes(data)
    return source, int.from_bytes(data[start + 57 : start + 61], "big")


@pytest.mark.parametrize("options", [{}, {"compression": "lz4"}, {"drop": [("offset", "==", 3)]}])
def test_damage_is_left_out_or_ends_the_log(options, tmp_path):
    source, n_lost = damaged_copy(tmp_path)
    for mode in ("skip", "stop"):
        with pytest.warns(kafkalog.CorruptionWarning):
            report = kafkalog.convert(source, tmp_path / f"{mode}-0", on_corruption=mode, **options)
        assert [finding.reason for finding in report.findings.rows if finding.damage] == [Reason.CRC_MISMATCH]
        scan = kafkalog.scan(source, on_corruption=mode, columns=["offset"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
            left = scan.to_numpy().offset.tolist()
        expected = [offset for offset in left if not ("drop" in options and offset == 3)]
        assert [row[0] for row in rows(tmp_path / f"{mode}-0")] == expected
    assert len(rows(tmp_path / "skip-0")) >= 600 - n_lost - 1


def test_what_retention_deletes_while_it_is_read_is_converted(tmp_path, log_dir_copy, monkeypatch):
    source = log_dir_copy / "p-txn-0"
    expected, opened = rows(source), kafkalog.open(source)
    first, second, *_ = sorted(source.glob("*.log"))
    first.rename(first.with_name(f"{first.name}.deleted"))
    kafkalog.convert(opened, tmp_path / "renamed-0")
    assert rows(tmp_path / "renamed-0") == expected
    read = SegmentReader.windows

    def windows(*arguments, **options):
        for window in read(*arguments, **options):
            if window.segment.path == second:
                second.unlink(missing_ok=True)  # which is open
            yield window

    monkeypatch.setattr(SegmentReader, "windows", windows)
    first.with_name(f"{first.name}.deleted").rename(first)
    kafkalog.convert(source, tmp_path / "gone-0")
    assert rows(tmp_path / "gone-0") == expected


@pytest.mark.parametrize("mode", ["stop", "skip"])
def test_batches_that_no_reader_decodes_are_left_out_as_scan_leaves_them_out(tmp_path, mode):
    records = [builder.record_v2(delta, 0, None, b"v" * 20) for delta in range(3)]
    odd = [
        {"records": [*records[:2], records[2][:-3]]},  # a length leads beyond the batch
        {"records": records, "records_count": 2},
        {"records": records, "records_count": 4},
        {"records": [*records, b"more"]},
        {"codec": builder.GZIP, "records": records, "records_count": 4},
    ]
    parts = [builder.batch_v2(records)]
    for n, options in enumerate(odd):
        codec = options.pop("codec", 0)
        bad = builder.batch_v2(base_offset=6 * n + 3, codec=codec, last_offset_delta=2, **options)
        parts += [bad, builder.batch_v2(records, base_offset=6 * n + 6)]
    # one that must be rewritten or dropped beside those that are copied
    parts.append(builder.message(40, b"k", b"v"))
    parts.append(builder.wrapper([b"no message"], offset=41, magic=1, codec=builder.GZIP))
    parts.append(builder.batch_v2(records, base_offset=50))
    source = tmp_path / "t-0"
    source.mkdir()
    (source / kf.segment_file_name(0)).write_bytes(b"".join(parts))
    scan = kafkalog.scan(source, on_corruption=mode)
    with pytest.warns(kafkalog.CorruptionWarning):
        left = scan.to_numpy().offset.tolist()
    assert len(left) == (22 if mode == "skip" else 3)
    for name, how in {"u": {}, "v": {"drop": [("offset", "==", 50)]}, "w": {"compression": "zstd"}}.items():
        with pytest.warns(kafkalog.CorruptionWarning):
            report = kafkalog.convert(source, tmp_path / f"{name}-0", on_corruption=mode, **how)
        expected = [offset for offset in left if name != "v" or offset != 50]
        assert [row[0] for row in rows(tmp_path / f"{name}-0")] == expected, name
        told = [
            (one.reason, one.position, one.base_offset, one.last_offset, one.n_records) for one in report.findings.rows
        ]
        assert told == [
            (one.reason, one.position, one.base_offset, one.last_offset, one.n_records) for one in scan.findings
        ], name


@pytest.mark.parametrize("options", [{}, {"compression": "lz4"}, {"config": kafkalog.LogConfig(segment_bytes=200)}])
def test_a_batch_whose_offsets_reach_beyond_the_next_segment_is_damage(options, tmp_path):
    one = [builder.record_v2(0, 0, b"k", b"v")]
    far = builder.batch_v2(one, base_offset=1095)  # a flipped bit: no checksum covers the offset
    segments = [
        (0, builder.batch_v2(one, base_offset=0) + far),
        (340, builder.batch_v2(one, base_offset=340)),
        (500, builder.batch_v2(one, base_offset=500)),
    ]
    source = write_partition(tmp_path / "t-0", segments)
    with fails_with("offset_outside_segment"):
        kafkalog.convert(source, tmp_path / "u-0", **options)
    with pytest.warns(kafkalog.CorruptionWarning):
        report = kafkalog.convert(source, tmp_path / "u-0", on_corruption="skip", **options)
    assert [row[0] for row in rows(tmp_path / "u-0")] == [0, 340, 500]
    assert Reason.OFFSET_OUTSIDE_SEGMENT in {finding.reason for finding in report.findings.rows}


def test_a_log_that_would_begin_where_no_record_can_be_is_damage(tmp_path):
    source = write_partition(tmp_path / "t-0", [(2**63 - 1, builder.batch_v2([builder.record_v2(0, 0, b"k", b"v")]))])
    for mode in ("raise", "skip"):
        with fails_with("offset_outside_segment"):
            kafkalog.convert(source, tmp_path / "u-0", on_corruption=mode)


DAMAGE = {
    "crc": (lambda data, start, stop: data.__setitem__(stop - 1, data[stop - 1] ^ 1), {Reason.CRC_MISMATCH}),
    "size": (
        lambda data, start, stop: data.__setitem__(slice(start + 8, start + 12), b"\xff\xff\xff\xf0"),
        {Reason.SIZE_NEGATIVE, Reason.SIZE_TOO_SMALL},
    ),
    "magic": (lambda data, start, stop: data.__setitem__(start + 16, 9), {Reason.BAD_MAGIC}),
    "torn": (lambda data, start, stop: data.__delitem__(slice(stop - 4, None)), {Reason.PARTIAL_TAIL}),
    "unreadable": (lambda data, start, stop: None, {Reason.FILE_UNREADABLE}),
}


def three_segments(directory, how, number, row):
    """Segments of three idempotent batches with a gap before each, one batch damaged; (offset, segment) of them."""
    places, segments = [], []
    for segment in range(3):
        offsets = [100 * segment + 10 * n for n in range(1, 4)]
        data = bytearray(b"".join(idempotent(one, one, n=2, producer_id=one) for one in offsets))
        places += [(one, segment) for one in offsets]
        if segment == number:
            DAMAGE[how][0](data, *builder.batch_positions(bytes(data))[row])
        segments.append((100 * segment, bytes(data)))
    write_partition(directory, segments)
    return places


@pytest.mark.parametrize("number", [0, 1, 2])
def test_an_unreadable_file_is_left_out_and_the_next_one_comes(number, tmp_path, monkeypatch):
    places = three_segments(tmp_path / "t-0", "unreadable", 0, 0)
    source = Partition(tmp_path / "t-0")
    bad = source.segments[number].path
    opened = Segment.open

    def refuse(self):
        if self.path == bad:
            raise kafkalog.ReadError("file_unreadable", "Input/output error", path=self.path)
        return opened(self)

    expected = [first + n for first, segment in places for n in (0, 1) if segment != number]
    for name, drop in (("u-0", None), ("v-0", [("offset", "in", [10, 11])])):
        monkeypatch.setattr(Segment, "open", refuse)
        with pytest.raises(kafkalog.ReadError):
            kafkalog.convert(source, tmp_path / name, drop=drop)
        with pytest.warns(kafkalog.CorruptionWarning):
            report = kafkalog.convert(source, tmp_path / name, on_corruption="skip", drop=drop)
        monkeypatch.setattr(Segment, "open", opened)
        (finding,) = (each for each in report.findings.rows if each.damage)
        assert (finding.path, finding.position, finding.length) == (str(bad), 0, bad.stat().st_size)
        assert [row[0] for row in rows(tmp_path / name)] == [one for one in expected if not drop or one > 11]
        assert report.partitions[0].end_offset == Partition(tmp_path / name).log_end_offset


@settings(max_examples=trials(8, 90))
@given(data=st.data(), repair=st.booleans(), rewrite=st.sampled_from([{}, {"compression": "gzip"}, {"batch_size": 99}]))
def test_bad_bytes_become_findings_and_never_a_bad_log(data, repair, rewrite):
    segment = data.draw(strategies.segments(max_batches=4))
    bad = data.draw(strategies.damaged(segment, repair=repair))
    with partition_of([(segment.base_offset, bad.data)]) as source, warnings.catch_warnings():
        warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
        target = source.parent / "out" / "t-0"
        target.parent.mkdir()
        limits = kafkalog.Limits(max_decompressed_bytes=2**20)
        kafkalog.convert(source, target, on_corruption="skip", threads=1, limits=limits, **rewrite)
        if "batch_size" in rewrite:
            rows(target)  # else what has the right checksum is copied, whatever is in it, as a broker would
        last = -1
        for batch in raw_batches(target):
            base = int.from_bytes(batch[:8], "big", signed=True)
            assert base > last
            last = base + int.from_bytes(batch[23:27], "big", signed=True)


def test_a_torn_tail_is_left_behind(tmp_path):
    record = builder.record_v2(0, 0, b"k", b"v")
    whole = builder.batch_v2([record])
    source = write_partition(tmp_path / "t-0", [(0, whole + builder.batch_v2([record], base_offset=1)[:-3])])
    report = kafkalog.convert(source, tmp_path / "u-0")
    assert b"".join(logs(tmp_path / "u-0").values()) == whole
    assert [(finding.reason, finding.damage) for finding in report.findings.rows] == [(Reason.PARTIAL_TAIL, False)]


def test_a_log_that_ends_in_an_empty_segment_ends_there_still(tmp_path):
    record = builder.record_v2(0, 0, b"k", b"v")
    source = write_partition(tmp_path / "t-0", [(0, builder.batch_v2([record])), (9, b"")])
    for number, options in enumerate([{}, {"config": kafkalog.LogConfig()}, {"filters": [("key", "==", b"x")]}]):
        kafkalog.convert(source, tmp_path / f"u-{number}", **options)
        assert kafkalog.open(tmp_path / f"u-{number}").log_end_offset == 9
