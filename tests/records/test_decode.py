"""Decoding: the textbook's bytes, everything that can be generated, and damage, against the slow twin."""

import struct

import builder
import numpy as np
import pytest
import reference
import strategies
from effort import examples
from golden_sets import seed_batch
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import EVERYTHING, read, without_magic

import kafkalog
from kafkalog import format as kf
from kafkalog.errors import Limits, Reason
from kafkalog.records.byte_columns import BinaryColumn
from kafkalog.records.columns import ALL_COLUMNS, RecordColumns
from kafkalog.records.decode import decode
from kafkalog.records.header_walk import walk
from kafkalog.records.selection import Selection
from kafkalog.storage.source import BufferSource

# --- the textbook ----------------------------------------------------------------------------------------


def test_the_160_byte_batch_field_by_field():
    (window,) = walk(BufferSource(seed_batch()))
    table = window.batches
    fields = {name: table.to_arrow().column(name).to_pylist() for name in table.to_arrow().column_names}
    assert fields == {
        "position": [0],
        "size_in_bytes": [160],
        "base_offset": [0],
        "last_offset": [4],
        "partition_leader_epoch": [0],
        "magic": [2],
        "crc": [0xC10D4BB7],
        "attributes": [0],
        "base_timestamp": [0x17A558B999C],
        "max_timestamp": [0x17A558BA75F],
        "producer_id": [-1],
        "producer_epoch": [-1],
        "base_sequence": [0],
        "records_count": [5],
        "control_type": [-1],
        "codec": [0],
        "timestamp_type": [0],
        "is_transactional": [False],
        "is_control": [False],
        "delete_horizon_ms": [-1],
    }
    reading = read(seed_batch())
    assert reading.error is None
    c = reading.columns
    assert c.offset.tolist() == [0, 1, 2, 3, 4]
    assert c.key.to_pylist() == [b"tech"] * 5
    assert c.value.to_pylist() == [b"for good"] * 5
    assert c.headers.to_pylist() == [[]] * 5
    assert (c.timestamp - 0x17A558B999C).tolist() == [0, 391, 1158, 1964, 3523]
    assert c.sequence.tolist() == [0, 1, 2, 3, 4]
    assert c.leader_epoch.tolist() == [0] * 5


# --- against the twin ------------------------------------------------------------------------------------


@settings(max_examples=examples(300))
@given(strategies.segments(), st.sampled_from([64, 300, 4096, 2**20]))
def test_any_log_is_read_as_the_twin_reads_it(segment, window_bytes):
    reading = read(segment.data, window_bytes=window_bytes)
    assert reading.error is None
    assert reading.records() == without_magic(segment.records)


@settings(max_examples=examples(150))
@given(strategies.segments(), st.data())
def test_any_projection_is_the_same_columns_of_the_whole(segment, data):
    names = data.draw(st.lists(st.sampled_from(ALL_COLUMNS), unique=True))
    whole, part = read(segment.data).columns, read(segment.data, names).columns
    assert list(part) == names
    for name in names:
        assert np.array_equal(_plain(part[name]), _plain(whole[name]))


@settings(max_examples=examples(150))
@given(strategies.segments(), st.data())
def test_any_range_is_the_same_records_of_the_whole(segment, data):
    records = without_magic(segment.records)
    offsets = st.sampled_from([r.offset for r in records] or [0]) | st.integers(-2, 2**62)
    stamps = st.sampled_from([r.timestamp or 0 for r in records] or [0]) | st.integers(-(2**62), 2**62)
    selection = Selection(
        data.draw(st.none() | offsets),
        data.draw(st.none() | offsets),
        None,  # a generated largest timestamp may be smaller than its records', which no broker writes
        data.draw(st.none() | stamps),
        data.draw(st.booleans()),
    )
    reading = read(segment.data, selection=selection)
    assert reading.error is None

    def wanted(record):
        return (
            (selection.start_offset is None or record.offset >= selection.start_offset)
            and (selection.end_offset is None or record.offset < selection.end_offset)
            and (selection.include_control or not record.is_control)
            and (
                selection.end_timestamp is None
                or (record.timestamp is not None and record.timestamp < selection.end_timestamp)
            )
        )

    honest = all(r.batch_base_offset <= r.offset for r in records)
    if honest:
        assert reading.records() == [record for record in records if wanted(record)]


@settings(max_examples=examples(500))
@given(st.data())
def test_damage_is_met_where_the_twin_meets_it(data):
    segment = data.draw(strategies.segments())
    damaged = data.draw(strategies.damaged(segment))
    expected = reference.read_segment(damaged.data)
    reading = read(damaged.data)
    if expected.problem is None:
        assert reading.error is None
    else:
        assert reading.error is not None
        assert reading.error.position == expected.problem.position
        if reading.error.reason == Reason.SIZE_EXCEEDS_FILE:  # the twin takes the batch for torn
            assert expected.problem.kind == "partial_tail"
        elif expected.problem.kind in ("partial_tail", "zero_fill"):
            # the twin looks for zeros only where a magic could be
            assert reading.error.reason in ("partial_tail", "zero_fill")
        elif expected.problem.kind == "unsupported":
            assert isinstance(reading.error, kafkalog.UnsupportedError)
    assert reading.records() == without_magic(expected.records)


@settings(max_examples=examples(150))
@given(st.data())
def test_the_verdict_does_not_depend_on_the_columns(data):
    segment = data.draw(strategies.segments())
    damaged = data.draw(strategies.damaged(segment, repair=True)).data
    whole, part = read(damaged), read(damaged, data.draw(st.lists(st.sampled_from(ALL_COLUMNS), unique=True)))
    assert (whole.error is None) == (part.error is None)
    if whole.error is not None and part.error is not None:
        assert whole.error.as_dict() == part.error.as_dict()
    assert whole.columns.n_records == part.columns.n_records


def _plain(column):
    return column if isinstance(column, np.ndarray) else np.array(column.to_pylist(), object)


@pytest.mark.parametrize("codec", [codec for codec in kf.Codec if codec])
def test_views_stay_when_the_memory_for_decompression_is_used_again(codec, monkeypatch):
    monkeypatch.setenv("KAFKALOG_DECODERS", "python")
    kept, values = [], []
    for first in range(0, 30, 10):
        values.append([b"%d" % (first + i) * 50 for i in range(10)])
        records = [builder.record_v2(i, 0, None, value) for i, value in enumerate(values[-1])]
        (window,) = walk(BufferSource(builder.batch_v2(records, base_offset=first, codec=codec)))
        kept.append(decode(window, ["value"], form="views").columns)
    assert [columns.value.to_pylist() for columns in kept if columns is not None] == values


# --- one rule at a time ----------------------------------------------------------------------------------


def one(*records, **fields):
    fields.setdefault("last_offset_delta", max(len(records) - 1, 0))
    return builder.batch_v2(records, **fields)


RECORD = builder.record_v2(key=b"k", value=b"v")


def _v2(*records, **fields):
    return builder.batch_v2(records or [builder.record_v2(0, 0, b"k", b"v")], **fields)


def _raw(body, **fields):
    """A v2 batch with one record of this body."""
    return _v2(builder.varint(len(body)) + body, **fields)


def _message_with_lengths(key_length, value_length):
    """A v1 message with key and value of one byte each, and these lengths."""
    whole = builder.message(200, b"k", b"v")
    return builder.fix_crc(whole[:26] + struct.pack(">i", key_length) + b"k" + struct.pack(">i", value_length) + b"v")


_GOOD = _v2(base_offset=100)
_INNER = builder.message(0, b"k", b"v")
_MANY = b"\xff\xff\xff\xff\x0f"  # zig-zag -2147483648
_CASES = {
    "16 bytes": (bytes(16), "partial_tail"),
    "17 zeros": (bytes(17), "partial_tail"),
    "a zero tail": (bytes(4096), "zero_fill"),
    "zeros, then something": (bytes(4096) + b"\1", "size_too_small"),
    "cut in the header": (_v2(base_offset=200)[:60], "partial_tail"),
    "cut in the payload": (_v2(base_offset=200)[:-1], "partial_tail"),
    "size 13": (_v2(base_offset=200, length=13), "size_too_small"),
    "size 48": (_v2(base_offset=200, length=48), "size_too_small"),
    "size 21 under v1": (builder.message(200, size=21), "size_too_small"),
    "size -1": (_v2(base_offset=200, length=-1), "size_negative"),
    "magic 3": (_v2(base_offset=200, magic=3), "bad_magic"),
    "magic -1": (_v2(base_offset=200, magic=-1), "bad_magic"),
    "crc": (_v2(base_offset=200, crc=1), "crc_mismatch"),
    "crc of v0": (builder.message(200, magic=0, crc=1), "crc_mismatch"),
    "last offset delta -1": (_v2(base_offset=200, last_offset_delta=-1), "header_inconsistent"),
    "the same batch again": (_GOOD, "offset_order"),
    "an older message": (builder.message(100, magic=0), "offset_order"),
    "codec 5": (_v2(base_offset=200, attributes=5), "unknown_codec"),
    "codec 7 of v1": (builder.message(200, value=b"", attributes=7), "unknown_codec"),
    "zstd in v1": (builder.wrapper([], offset=200, codec=4, payload=b""), "legacy_codec"),
    "count -1": (_v2(base_offset=200, records_count=-1), "record_count"),
    "count too large": (_v2(base_offset=200, records_count=2), "record_count"),
    "count too small": (_v2(*[builder.record_v2()] * 2, base_offset=200, records_count=1), "record_trailing_bytes"),
    "length 0": (_v2(b"\0", base_offset=200), "record_count"),
    "length -1": (_v2(b"\1", base_offset=200), "record_count"),
    "length too large": (_v2(b"\x7e" + bytes(7), base_offset=200), "record_length"),
    "byte left in the body": (_raw(bytes(7), base_offset=200), "record_length"),
    "count too large by far": (_v2(base_offset=200, records_count=2**31 - 1), "record_count"),
    "a byte behind the records": (_v2(builder.record_v2() + b"\0", base_offset=200), "record_trailing_bytes"),
    "length -1 of several bytes": (_v2(b"\1" + bytes(14), base_offset=200), "record_length"),
    "a negative base offset": (_v2(base_offset=-5), "offset_order"),
    "length cut": (_v2(b"\x80", base_offset=200), "record_count"),
    "length overlong": (_v2(b"\xff" * 5 + bytes(9), base_offset=200), "varint_overlong"),
    "timestamp overlong": (_raw(b"\0" + b"\xff" * 10 + bytes(9), base_offset=200), "varint_overlong"),
    "offset delta overlong": (_raw(b"\0\0" + b"\xff" * 5 + bytes(9), base_offset=200), "varint_overlong"),
    "body ends after attributes": (_raw(b"\0", base_offset=200), "record_count"),
    "key too long": (_raw(b"\0\0\0\x0a\0\0", base_offset=200), "key_length"),
    "value too long": (_raw(b"\0\0\0\1\x0a\0", base_offset=200), "value_length"),
    "header count -1": (_raw(b"\0\0\0\1\1\1", base_offset=200), "header_count"),
    "header count too large": (_raw(b"\0\0\0\1\1\4\0", base_offset=200), "header_count"),
    "header name null": (_raw(b"\0\0\0\1\1\2\1\1", base_offset=200), "header_key_null"),
    "header name too long": (_raw(b"\0\0\0\1\1\2\x0a\1", base_offset=200), "header_length"),
    "header value too long": (_raw(b"\0\0\0\1\1\2\0\x0a", base_offset=200), "header_length"),
    "gzip noise": (_v2(base_offset=200, codec=1, payload=b"noise"), "codec_stream"),
    "legacy key too long": (_message_with_lengths(100, 1), "key_length"),
    "legacy value too long": (_message_with_lengths(1, 2), "value_length"),
    "legacy value length cut off": (_message_with_lengths(5, 1), "value_length"),
    "wrapper without value": (builder.message(200, codec=1), "legacy_null_wrapper"),
    "wrapper without messages": (builder.wrapper([], offset=200), "legacy_empty_wrapper"),
    "wrapper of a cut message": (builder.wrapper([_INNER[:-1]], offset=200), "legacy_empty_wrapper"),
    "inner size 13": (builder.wrapper([_INNER[:8] + struct.pack(">i", 13) + bytes(13)], offset=200), "size_too_small"),
    "inner size -1": (builder.wrapper([_INNER[:8] + struct.pack(">i", -1) + bytes(13)], offset=200), "size_too_small"),
    "inner v1 of 14 bytes": (
        builder.wrapper([struct.pack(">qi", 0, 14) + b"\0\0\0\0\1" + bytes(9)], offset=200),
        "size_too_small",
    ),
    "inner magic 2": (builder.wrapper([builder.message(0, magic=2)], offset=200), "legacy_inner_magic"),
    "nested": (builder.wrapper([builder.wrapper([_INNER], offset=0)], offset=200), "legacy_nested"),
    "wrapper offset": (builder.wrapper([builder.message(201)], offset=200), "legacy_wrapper_offset"),
}


@pytest.mark.parametrize("case", _CASES)
def test_a_broken_rule_has_its_name_and_its_place(case):
    data, reason = _CASES[case]
    reading, twin = read(_GOOD + data), reference.read_segment(_GOOD + data)
    assert reading.error is not None
    assert twin.problem is not None
    assert reading.error.reason == reason
    assert reading.error.position == twin.problem.position == twin.end == len(_GOOD)
    assert reading.columns.key.to_pylist() == [b"k"]
    assert reading.records() == without_magic(twin.records)


_ACCEPTED = {
    "no bytes at all": (b"", []),
    "count 0 with payload": (_v2(base_offset=200, records_count=0), []),
    "count 0 with a codec and no payload": (_v2(base_offset=200, codec=4, payload=b"", records_count=0), []),
    "count 0 with a payload of no codec's": (_v2(base_offset=200, codec=4, payload=b"anything", records_count=0), []),
    "any negative length is null": (_raw(b"\0\0\0" + _MANY * 2 + b"\0", base_offset=200), [(None, None)]),
    "negative legacy lengths are null": (
        builder.fix_crc(builder.message(200)[:26] + struct.pack(">ii", -2, -9)),
        [(None, None)],
    ),
    "offset delta beyond the last": (_v2(builder.record_v2(1000), base_offset=200), [(None, None)]),
    "record attributes": (_v2(builder.record_v2(attributes=-1), base_offset=200), [(None, None)]),
    "a cut-off last inner message": (builder.wrapper([_INNER, _INNER[:30]], offset=200), [(b"k", b"v")]),
    "a cut-off last inner envelope": (builder.wrapper([_INNER, _INNER[:11]], offset=200), [(b"k", b"v")]),
    "bytes after a legacy value": (
        builder.fix_crc(builder.message(200, b"k", b"v", size=25) + b"x"),
        [(b"k", b"v")],
    ),
}


@pytest.mark.parametrize("case", _ACCEPTED)
def test_what_kafka_accepts_is_accepted(case):
    data, expected = _ACCEPTED[case]
    reading = read(_GOOD + data)
    assert reading.error is None
    found = zip(reading.columns.key.to_pylist(), reading.columns.value.to_pylist(), strict=True)
    assert [*found][1:] == expected
    assert reading.records() == without_magic(reference.read_segment(_GOOD + data).records)


def test_limits_are_refused_with_their_size_and_not_tried():
    bomb = one(payload=builder.zstd_frame(bytes(2**26)), attributes=4, records_count=1)
    assert len(bomb) < 10_000
    reading = read(bomb, limits=Limits(max_decompressed_bytes=2**20))
    assert isinstance(reading.error, kafkalog.LimitExceededError)
    assert reading.error.reason == "decompressed_too_large"
    big = one(builder.record_v2(value=bytes(10_000)))
    reading = read(big + big, limits=Limits(max_batch_bytes=5000), window_bytes=64)
    assert isinstance(reading.error, kafkalog.LimitExceededError)
    assert reading.error.length == len(big)
    headers = one(builder.record_v2(headers=[(b"", None)] * 100))
    reading = read(headers, limits=Limits(max_headers_per_record=99))
    assert isinstance(reading.error, kafkalog.LimitExceededError)
    assert read(headers, limits=Limits(max_headers_per_record=100)).error is None
    two = [builder.record_v2(n, headers=[(b"", None)] * 100) for n in range(2)]
    reading = read(one(*two), limits=Limits(max_headers_per_batch=199))
    assert isinstance(reading.error, kafkalog.LimitExceededError)
    assert "max_headers_per_batch" in str(reading.error)
    assert read(one(*two), limits=Limits(max_headers_per_batch=200)).error is None
    with pytest.raises(ValueError):
        Limits(max_batch_bytes=0)


def test_columns_of_many_parts_and_slices_keep_null_and_empty():
    values = [b"", None, b"abc", None, b"x" * 300, b""]
    data = one(*(builder.record_v2(i, value=value) for i, value in enumerate(values)))
    column = read(data, ["value"]).columns.value
    assert isinstance(column, BinaryColumn)
    assert column.to_pylist() == values
    assert [column[i] for i in range(-6, 6)] == values + values
    assert column.null_count == 2
    assert BinaryColumn.concatenate([column, column.slice(1, 4), column]).to_pylist() == values + values[1:4] + values
    with pytest.raises(IndexError):
        column[6]
    assert RecordColumns.empty(ALL_COLUMNS).n_records == 0


def test_selecting_everything_is_the_default_less_control_records():
    data = one(RECORD) + builder.control_batch(1, base_offset=1) + one(RECORD, base_offset=2)
    assert read(data, selection=Selection()).columns.offset.tolist() == [0, 2]
    assert read(data, selection=EVERYTHING).columns.offset.tolist() == [0, 1, 2]


# --- found by fuzzing -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", range(5))
def test_a_wrapper_at_offset_0_is_not_passed_over_for_its_offset(start):
    # as librdkafka writes it: the offsets inside stand as they are, the one outside says nothing
    inner = [builder.message(i, None, b"v", magic=1, timestamp=i) for i in range(4)]
    data = builder.wrapper(inner, offset=0, magic=1, codec=builder.GZIP) + builder.message(4, None, b"v", magic=0)
    got = read(data, ("offset",), selection=Selection(start_offset=start))
    assert got.error is None
    assert got.columns["offset"].tolist() == list(range(start, 5))
