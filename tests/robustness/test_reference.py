"""The slow twin itself: against what a real consumer read, against textbook bytes, and against the builder."""

import hashlib
import struct
import zlib
from collections import defaultdict
from typing import Any

import builder
import golden_sets
import pytest
import reference
import strategies
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from reference import Record, read_segment

LIMIT = 1 << 20


def _shown(record: Record, partition: int) -> dict[str, Any]:
    timestamp, timestamp_type = golden_sets.shown_timestamp(record.magic, record.timestamp, record.timestamp_type)
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp": timestamp,
        "timestamp_type": timestamp_type,
        "leader_epoch": record.leader_epoch,
        "key": record.key,
        "value": record.value,
        "headers": record.headers,
    }


def _read_partitions(set_name: str, archive: str = "clean") -> dict[str, list[dict[str, Any]]]:
    """Records by topic as a consumer would show them."""
    starts = golden_sets.log_start_offsets(set_name, archive)
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for name, directory in golden_sets.partitions(set_name, archive).items():
        if name.endswith("-delete"):
            continue
        topic, _, partition = name.rpartition("-")
        for path in golden_sets.log_files(directory):
            data = path.read_bytes()
            result = read_segment(data)
            if archive == "clean":
                assert result.problem is None, path
                assert result.end == len(data)
            elif result.problem is not None:
                assert result.problem.kind == "zero_fill", path
                assert not any(data[result.end :])
            found[topic] += [
                _shown(record, int(partition))
                for record in result.records
                if not record.is_control and record.offset >= starts.get(name, 0)
            ]
    return found


@pytest.mark.parametrize("set_name", golden_sets.SETS)
def test_every_golden_partition_reads_as_the_consumer_did(set_name: str) -> None:
    found = _read_partitions(set_name)
    for topic in golden_sets.truth_topics(set_name):
        assert found[topic] == golden_sets.truth(set_name, topic), topic


@pytest.mark.parametrize("set_name", ["k44", "k28"])
def test_unclean_partitions_read_as_the_consumer_did_after_recovery(set_name: str) -> None:
    found = _read_partitions(set_name, "unclean")
    for topic in golden_sets.truth_topics(set_name, "unclean"):
        assert found[topic] == golden_sets.truth(set_name, topic, archive="unclean"), topic


def test_golden_files_are_those_of_the_manifest() -> None:
    for entry in golden_sets.manifest():
        directory = golden_sets.unpacked(entry["broker"]) / entry["dir"]
        assert sorted(path.name for path in directory.iterdir()) == sorted(entry["sha256"])
        for name, digest in entry["sha256"].items():
            path = directory / name
            if path.stat().st_size < 1 << 20:  # the larger ones are preallocated, all but empty indexes
                assert hashlib.sha256(path.read_bytes()).hexdigest() == digest, path


def test_the_small_log_dir_equals_the_packed_sets() -> None:
    names = [path.name for path in golden_sets.LOG_DIR.iterdir() if path.is_dir()]
    assert len(names) == 10
    for name in names:
        packed = golden_sets.partitions("k28" if "-v0" in name or "-v1" in name else "k44")[name]
        for path in packed.iterdir():
            assert (golden_sets.LOG_DIR / name / path.name).read_bytes() == path.read_bytes()
    for path in golden_sets.LOG_DIR.glob("*-checkpoint"):
        assert set(golden_sets.checkpoint(path)) <= set(names)


# ------------------------------------------------------------------------------------------------ textbook bytes


def test_seed_batch_field_by_field() -> None:
    data = golden_sets.seed_batch()
    assert len(data) == 160
    result = read_segment(data)
    assert result.problem is None
    (batch,) = result.batches
    assert (batch.position, batch.size_in_bytes, batch.magic, batch.crc) == (0, 160, 2, 0xC10D4BB7)
    assert (batch.base_offset, batch.last_offset, batch.last_offset_delta, batch.records_count) == (0, 4, 4, 5)
    assert (batch.base_timestamp, batch.max_timestamp) == (0x17A558B999C, 0x17A558BA75F)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.leader_epoch) == (-1, -1, 0, 0)
    assert (batch.attributes, batch.codec, batch.timestamp_type, batch.delete_horizon) == (0, 0, 0, None)
    assert [record.offset for record in result.records] == [0, 1, 2, 3, 4]
    assert {(record.key, record.value) for record in result.records} == {(b"tech", b"for good")}
    assert [(record.timestamp or 0) - batch.base_timestamp for record in result.records] == [0, 391, 1158, 1964, 3523]
    assert [record.sequence for record in result.records] == [0, 1, 2, 3, 4]
    assert builder.fix_crc(data) == data


def test_vintage_record_in_all_three_formats() -> None:
    v0 = builder.message(7, b"tech", b"for good", magic=0)
    assert len(v0) == 38
    assert int.from_bytes(v0[12:16], "big") == 533337200 == zlib.crc32(v0[16:])
    v1 = builder.message(8, b"tech", b"for good", magic=1, timestamp=1000)
    assert len(v1) == 46
    v2 = builder.batch_v2([builder.record_v2(0, 0, b"tech", b"for good")], base_offset=9, base_timestamp=1000)
    assert len(v2) == 61 + 19
    result = read_segment(v0 + v1 + v2)
    assert result.problem is None
    found = [(r.offset, r.magic, r.timestamp, r.timestamp_type, r.key, r.value) for r in result.records]
    assert found == [
        (7, 0, None, -1, b"tech", b"for good"),
        (8, 1, 1000, 0, b"tech", b"for good"),
        (9, 2, 1000, 0, b"tech", b"for good"),
    ]


def test_varints_are_zig_zag() -> None:
    assert [builder.varint(value) for value in (0, -1, 1, -2)] == [b"\0", b"\1", b"\2", b"\3"]
    assert builder.unsigned_varint(300) == b"\xac\x02"
    for value in (0, -1, 1, -2, 63, 64, -64, -65, 2**31 - 1, -(2**31)):
        assert reference.Cursor(builder.varint(value)).varint() == value
    for value in (2**63 - 1, -(2**63)):
        assert reference.Cursor(builder.varint(value)).varlong() == value
    assert reference.Cursor(b"\xff\xff\xff\xff\x7f").varint() == -(2**31)  # excess bits are dropped
    for text, reason in ((b"\xff" * 5 + b"\1", "varint_overlong"), (b"\x80", "varint_truncated")):
        with pytest.raises(reference.Damage) as caught:
            reference.Cursor(text).varint()
        assert caught.value.reason == reason


def test_checksums() -> None:
    assert reference.crc32c(b"123456789") == builder.crc32c(b"123456789") == 0xE3069283
    assert reference.xxh32(b"") == 0x02CC5D05
    for n in (0, 1, 3, 4, 15, 16, 17, 100, 1001):
        data = bytes(i * 7 & 0xFF for i in range(n))
        assert reference.crc32c(data) == builder.crc32c(data)
        assert reference.xxh32(data) == builder.xxh32(data)
    assert [builder.lz4_header_checksum(b"\x60\x40", magic).hex() for magic in (0, 1, 2)] == ["1a", "82", "82"]
    assert builder.lz4_header_checksum(b"\x70\x40", 2).hex() == "ad"


def test_a_marker_has_78_bytes() -> None:
    assert len(builder.control_batch(builder.COMMIT)) == 78


def test_sequences_wrap_after_the_largest_int() -> None:
    assert reference.increment_sequence(2**31 - 1, 1) == 0
    assert reference.increment_sequence(2**31 - 3, 9) == 6
    assert reference.increment_sequence(5, 4) == 9


# ------------------------------------------------------------------------------------------------------- codecs


def _verdict(codec: int, data: bytes, magic: int = 2) -> bytes | str | None:
    try:
        return reference.decompress(codec, data, magic, LIMIT)
    except reference.Damage as damage:
        return damage.reason or damage.kind


@pytest.mark.parametrize("codec", reference.CODECS)
@pytest.mark.parametrize("size", [1, 1000, 65536, 98304])
def test_every_producers_variant_of_a_codec_is_read(codec: int, size: int) -> None:
    data = (b"for good " * (size // 9 + 1))[:size]
    for magic in (0, 1, 2):
        for i, compressed in enumerate(builder.compress_variants(codec, data, magic)):
            assert _verdict(codec, compressed, magic) == data, i


@pytest.mark.parametrize("codec", reference.CODECS)
def test_decompression_stops_at_the_limit(codec: int) -> None:
    for compressed in builder.compress_variants(codec, bytes(LIMIT + 1)):
        assert _verdict(codec, compressed) == "limit"
    for compressed in builder.compress_variants(codec, bytes(LIMIT)):
        assert _verdict(codec, compressed) == bytes(LIMIT)


def _flipped(data: bytes, at: int) -> bytes:
    changed = bytearray(data)
    changed[at] ^= 1
    return bytes(changed)


def test_codec_semantics_measured_on_kafka() -> None:
    data = b"tech for good " * 9
    gzip, lz4, zstd = builder.gzip_member(data), builder.lz4_frame(data), builder.zstd_frame(data)
    xerial = builder.snappy_xerial(data)
    checked = builder.lz4_frame(data, content_checksum=True)
    blocks = builder.lz4_frame(data, block_checksum=True)
    cases: list[tuple[int, bytes, bytes | str]] = [
        (reference.GZIP, gzip + gzip, data * 2),
        (reference.GZIP, gzip + b"garbage, and much more of it", data),
        (reference.GZIP, gzip + gzip[:15], data),
        (reference.GZIP, gzip + gzip[:-1], "codec_stream"),
        (reference.GZIP, _flipped(gzip, -1), "codec_checksum"),
        (reference.GZIP, _flipped(gzip, -8), "codec_checksum"),
        (reference.GZIP, gzip[:-1], "codec_stream"),
        (reference.GZIP, gzip[:-9], "codec_stream"),
        (reference.GZIP, b"", "codec_stream"),
        (reference.SNAPPY, xerial + xerial, data * 2),
        (reference.SNAPPY, xerial + b"abc", data),
        (reference.SNAPPY, xerial + b"GARBAGE", "codec_stream"),
        (reference.SNAPPY, xerial[:-1], "codec_stream"),
        (reference.SNAPPY, b"", "codec_stream"),
        (reference.LZ4, lz4 + lz4, data),
        (reference.LZ4, lz4 + b"garbage", data),
        (reference.LZ4, _flipped(checked, -1), data),
        (reference.LZ4, checked[:-1], "codec_stream"),
        (reference.LZ4, _flipped(blocks, -5), "codec_checksum"),
        (reference.LZ4, _flipped(lz4, 6), "codec_checksum"),
        (reference.LZ4, lz4[:-4], "codec_stream"),
        (reference.LZ4, builder.lz4_frame(data, magic=0), "codec_checksum"),
        (reference.ZSTD, zstd + zstd, data * 2),
        (reference.ZSTD, zstd + b"garbage", "codec_trailing"),
        (reference.ZSTD, zstd[:-1], "codec_stream"),
        (reference.ZSTD, _flipped(builder.zstd_frame(data, checksum=True), -1), "codec_checksum"),
        (reference.ZSTD, b"", b""),
        (5, data, "unsupported"),
    ]
    for i, (codec, compressed, expected) in enumerate(cases):
        assert _verdict(codec, compressed) == expected, i
    assert _verdict(reference.LZ4, _flipped(lz4, 6), magic=0) == data


# ------------------------------------------------------------------------------------------------------- damage


def _v2(*records: bytes, **fields: Any) -> bytes:
    return builder.batch_v2(records or [builder.record_v2(0, 0, b"k", b"v")], **fields)


def _raw(body: bytes, **fields: Any) -> bytes:
    """A v2 batch with one record of this body."""
    return _v2(builder.varint(len(body)) + body, **fields)


def _message_with_lengths(key_length: int, value_length: int) -> bytes:
    """A v1 message with key and value of one byte each, and these lengths."""
    whole = builder.message(200, b"k", b"v")
    return builder.fix_crc(whole[:26] + struct.pack(">i", key_length) + b"k" + struct.pack(">i", value_length) + b"v")


_GOOD = _v2(base_offset=100)
_INNER = builder.message(0, b"k", b"v")
_MANY = b"\xff\xff\xff\xff\x0f"  # zig-zag -2147483648
_CASES: dict[str, tuple[bytes, str]] = {
    "16 bytes": (bytes(16), "partial_tail"),
    "17 zeros": (bytes(17), "zero_fill"),
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
    "codec 5": (_v2(base_offset=200, attributes=5), "unsupported"),
    "codec 7 of v1": (builder.message(200, attributes=7), "unsupported"),
    "zstd in v1": (builder.wrapper([], offset=200, codec=4, payload=b""), "header_inconsistent"),
    "count -1": (_v2(base_offset=200, records_count=-1), "record_count"),
    "count too large": (_v2(base_offset=200, records_count=2), "record_count"),
    "count too small": (_v2(*[builder.record_v2()] * 2, base_offset=200, records_count=1), "record_trailing_bytes"),
    "length 0": (_v2(b"\0", base_offset=200), "record_length"),
    "length -1": (_v2(b"\1", base_offset=200), "record_length"),
    "length too large": (_v2(b"\x7e" + bytes(7), base_offset=200), "record_length"),
    "byte left in the body": (_raw(bytes(7), base_offset=200), "record_length"),
    "length cut": (_v2(b"\x80", base_offset=200), "varint_truncated"),
    "length overlong": (_v2(b"\xff" * 5 + bytes(9), base_offset=200), "varint_overlong"),
    "timestamp overlong": (_raw(b"\0" + b"\xff" * 10 + bytes(9), base_offset=200), "varint_overlong"),
    "offset delta overlong": (_raw(b"\0\0" + b"\xff" * 5 + bytes(9), base_offset=200), "varint_overlong"),
    "body ends after attributes": (_raw(b"\0", base_offset=200), "varint_truncated"),
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
    "wrapper without value": (builder.message(200, codec=1), "value_length"),
    "wrapper without messages": (builder.wrapper([], offset=200), "record_count"),
    "wrapper of a cut message": (builder.wrapper([_INNER[:-1]], offset=200), "record_count"),
    "inner size 13": (builder.wrapper([_INNER[:8] + struct.pack(">i", 13) + bytes(13)], offset=200), "record_length"),
    "inner size -1": (builder.wrapper([_INNER[:8] + struct.pack(">i", -1) + bytes(13)], offset=200), "record_length"),
    "inner v1 of 14 bytes": (
        builder.wrapper([struct.pack(">qi", 0, 14) + b"\0\0\0\0\1" + bytes(9)], offset=200),
        "record_length",
    ),
    "inner magic 2": (builder.wrapper([builder.message(0, magic=2)], offset=200), "legacy_inner_magic"),
    "nested": (builder.wrapper([builder.wrapper([_INNER], offset=0)], offset=200), "legacy_nested"),
    "wrapper offset": (builder.wrapper([builder.message(201)], offset=200), "legacy_wrapper_offset"),
}


@pytest.mark.parametrize("case", _CASES)
def test_damage_stops_reading_and_says_why(case: str) -> None:
    data, expected = _CASES[case]
    result = read_segment(_GOOD + data)
    assert result.problem is not None
    assert (result.problem.reason or result.problem.kind) == expected
    assert result.problem.position == result.end == len(_GOOD)
    assert [record.offset for record in result.records] == [100]


_ACCEPTED: dict[str, tuple[bytes, list[tuple[bytes | None, bytes | None]]]] = {
    "no bytes at all": (b"", []),
    "count 0 with payload": (_v2(base_offset=200, records_count=0), []),
    "count 0 with a codec and no payload": (_v2(base_offset=200, codec=4, payload=b"", records_count=0), []),
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
def test_what_kafka_accepts_is_accepted(case: str) -> None:
    data, expected = _ACCEPTED[case]
    result = read_segment(_GOOD + data)
    assert result.problem is None
    assert [(record.key, record.value) for record in result.records[1:]] == expected


# --------------------------------------------------------------------------------------------------- properties


@settings(max_examples=examples(150))
@given(strategies.segments())
def test_what_was_built_is_what_is_read(segment: strategies.Segment) -> None:
    result = read_segment(segment.data)
    assert result.problem is None
    assert result.end == len(segment.data)
    assert result.records == segment.records
    assert [(b.position, b.position + b.size_in_bytes) for b in result.batches] == segment.batches
    assert builder.batch_positions(segment.data) == segment.batches


@settings(max_examples=examples(150))
@given(st.data())
def test_damage_is_never_more_than_a_problem(data: st.DataObject) -> None:
    segment = data.draw(strategies.segments(min_batches=1, max_batches=4))
    damaged = data.draw(strategies.damaged(segment))
    result = read_segment(damaged.data, LIMIT)
    if result.problem is None:
        assert result.end == len(damaged.data)
    else:
        assert result.problem.position == result.end < len(damaged.data)
        assert result.problem.kind in reference.KINDS
        assert (result.problem.kind == "corrupt") == (result.problem.reason in reference.REASONS)
    untouched = [end for _, end in segment.batches if end <= damaged.position]
    whole = [record for record in segment.records if untouched and record.batch_position < untouched[-1]]
    assert result.records[: len(whole)] == whole


@settings(max_examples=examples(100))
@given(st.binary(max_size=300))
def test_noise_is_never_more_than_a_problem(noise: bytes) -> None:
    result = read_segment(noise, LIMIT)
    assert (result.problem is None) == (result.end == len(noise))
