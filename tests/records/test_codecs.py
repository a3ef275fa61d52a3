"""Codecs: what Kafka's consumer accepts is accepted, the rest is refused, and no bomb goes off."""

import gzip
import random

import builder
import cramjam
import lz4.frame
import numpy as np
import pytest
import reference
from hypothesis import given
from hypothesis import strategies as st
from refusals import fails_with

import kafkalog
from kafkalog import format as kf
from kafkalog._kernels.crc import checksum_xxh32
from kafkalog.errors import Limits
from kafkalog.records.codecs import Arena, Compression, decompress_into, header_checksum

GZIP, SNAPPY, LZ4, ZSTD = 1, 2, 3, 4
RAW = b"".join(b"record %d, " % (i * i) for i in range(6000))


def decompress(codec, data, magic=2, limits=None):
    arena = Arena()
    arena.append(b"before")
    n = decompress_into(arena, codec, np.frombuffer(data, np.uint8), magic=magic, limits=limits or Limits())
    assert arena.used == 6 + n
    assert arena.data[:6].tobytes() == b"before"
    return arena.data[6 : arena.used].tobytes()


@pytest.mark.parametrize("size", [0, 1, 1000, 65_536, 98_304, 300_000])
@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_every_form_that_producers_write(codec, magic, size):
    if codec == ZSTD and magic < 2:
        pytest.skip("zstd came with v2")
    data = (RAW * 5)[:size]
    for form in builder.compress_variants(codec, data, magic):
        assert decompress(codec, form, magic) == data


@given(st.sampled_from([GZIP, SNAPPY, LZ4, ZSTD]), st.binary(max_size=2000), st.data())
def test_damaged_streams_give_what_the_twin_gives(codec, raw, data):
    form = bytearray(data.draw(st.sampled_from(builder.compress_variants(codec, raw))))
    for _ in range(data.draw(st.integers(0, 3))):
        if form:
            form[data.draw(st.integers(0, len(form) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(form[: data.draw(st.integers(0, len(form)))])
    try:
        expected = reference.decompress(codec, damaged, 2, 1 << 20)
    except reference.Damage:
        expected = None
    try:
        got = decompress(codec, damaged, limits=Limits(max_decompressed_bytes=1 << 20))
    except kafkalog.KafkalogError:
        got = None
    assert got == expected


XERIAL = builder.snappy_xerial(RAW)

KAFKA_READS = {
    "gzip, two members": (GZIP, gzip.compress(RAW) + gzip.compress(RAW), RAW + RAW),
    "gzip, bytes behind": (GZIP, gzip.compress(RAW) + b"trailing garbage", RAW),
    "snappy, two xerial streams": (SNAPPY, builder.snappy_xerial(RAW) * 2, RAW + RAW),
    "snappy, any version in the first header": (SNAPPY, XERIAL[:11] + b"\0" + XERIAL[12:], RAW),
    "snappy, four bytes make a second header": (SNAPPY, XERIAL + XERIAL[:4] + b"oops" + XERIAL[8:], RAW + RAW),
    "snappy, fewer than four bytes behind": (SNAPPY, XERIAL + b"abc", RAW),
    "snappy, raw": (SNAPPY, builder.snappy_raw(RAW), RAW),
    "lz4, the second of two frames is not read": (LZ4, builder.lz4_frame(RAW, 2) * 2, RAW),
    "lz4, bytes behind": (LZ4, builder.lz4_frame(RAW, 2) + b"garbage", RAW),
    "lz4, wrong content checksum": (
        LZ4,
        lz4.frame.compress(RAW, content_checksum=True, block_linked=False, store_size=False)[:-4] + b"oops",
        RAW,
    ),
    "zstd, two frames": (ZSTD, builder.zstd_frame(RAW) * 2, RAW + RAW),
    "zstd, a skippable frame first": (ZSTD, b"\x50\x2a\x4d\x18\x02\0\0\0ab" + builder.zstd_frame(RAW), RAW),
}

KAFKA_REFUSES = {
    "gzip, wrong crc": (GZIP, gzip.compress(RAW)[:-8] + b"oops" + gzip.compress(RAW)[-4:]),
    "gzip, wrong size": (GZIP, gzip.compress(RAW)[:-4] + b"oops"),
    "gzip, cut trailer": (GZIP, gzip.compress(RAW)[:-5]),
    "gzip, cut": (GZIP, gzip.compress(RAW)[:500]),
    "lz4, wrong block checksum": (
        LZ4,
        lz4.frame.compress(RAW[:1000], block_checksum=True, block_linked=False, store_size=False)[:-8]
        + b"oops\0\0\0\0",
    ),
    "lz4, wrong header checksum": (LZ4, builder.lz4_frame(RAW, 0)),
    "lz4, no content checksum where one is announced": (
        LZ4,
        lz4.frame.compress(RAW, content_checksum=True, block_linked=False, store_size=False)[:-4],
    ),
    "lz4, no end mark": (LZ4, builder.lz4_frame(RAW, 2)[:-4]),
    "lz4, linked blocks": (LZ4, lz4.frame.compress(RAW * 3, block_linked=True)),
    "snappy, version 0 in a second header": (SNAPPY, XERIAL + XERIAL[:11] + b"\0" + XERIAL[12:]),
    "snappy, a cut second header": (SNAPPY, XERIAL + XERIAL[:10]),
    "snappy, nothing": (SNAPPY, b""),
    "snappy, a chunk too long": (SNAPPY, builder.snappy_xerial(RAW) + b"GARBAGE"),
    "zstd, bytes behind": (ZSTD, builder.zstd_frame(RAW) + b"garbage"),
    "zstd, cut": (ZSTD, builder.zstd_frame(RAW)[:-3]),
    "zstd, wrong checksum": (ZSTD, builder.zstd_frame(RAW, checksum=True)[:-4] + b"oops"),
}


@pytest.mark.parametrize("case", KAFKA_READS)
def test_what_kafka_reads(case):
    codec, data, expected = KAFKA_READS[case]
    assert decompress(codec, data) == expected == reference.decompress(codec, data, 2, 1 << 20)


@pytest.mark.parametrize("case", KAFKA_REFUSES)
def test_what_kafka_refuses(case):
    codec, data = KAFKA_REFUSES[case]
    with pytest.raises(kafkalog.CorruptionError) as caught:
        decompress(codec, data)
    assert caught.value.reason == "codec_stream"
    with pytest.raises(reference.Damage):
        reference.decompress(codec, data, 2, 1 << 20)


def test_the_arena_is_as_it_was_after_an_error():
    arena = Arena()
    arena.append(b"kept")
    for codec, data in KAFKA_REFUSES.values():
        with pytest.raises(kafkalog.CorruptionError):
            decompress_into(arena, codec, np.frombuffer(data, np.uint8), magic=2)
        assert arena.data[: arena.used].tobytes() == b"kept"


def test_codecs_that_kafka_does_not_have():
    for codec in (5, 6, 7):
        with fails_with("unknown_codec"):
            decompress(codec, b"x")
    with fails_with("legacy_codec"):
        decompress(ZSTD, builder.zstd_frame(RAW), magic=1)


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (GZIP, gzip.compress(bytes(2**24))),
        (LZ4, builder.lz4_frame(bytes(2**24), 2)),
        (LZ4, lz4.frame.compress(bytes(2**24), block_checksum=True, block_linked=False)),
        (ZSTD, builder.zstd_frame(bytes(2**24))),
        (SNAPPY, builder.snappy_raw(bytes(2**24))),
        (SNAPPY, builder.snappy_xerial(bytes(2**24))),
    ],
    ids=["gzip", "lz4", "lz4 checked", "zstd", "snappy", "xerial"],
)
def test_a_bomb_is_refused_with_its_size(codec, data):
    with fails_with("decompressed_too_large"):
        decompress(codec, data, limits=Limits(max_decompressed_bytes=2**20))
    assert decompress(codec, data) == bytes(2**24)


@pytest.mark.timeout(200)
def test_many_small_gzip_members_take_time_in_proportion_to_their_bytes():
    """Under a second; with a copy of the rest for each member it is many minutes."""
    member = gzip.compress(b"")
    assert decompress(GZIP, member * 100_000 + gzip.compress(b"end")) == b"end"
    large = gzip.compress(random.Random(1).randbytes(300_000))
    assert len(decompress(GZIP, (member + large) * 3)) == 900_000


def test_a_declared_size_beyond_the_codec_is_damage():
    with pytest.raises(kafkalog.CorruptionError) as caught:
        decompress(SNAPPY, b"\xff\xff\xff\xff\x0f" + bytes(cramjam.snappy.compress_raw(b"abc"))[1:])
    assert caught.value.reason == "codec_ratio"


@given(st.binary(max_size=100))
def test_xxh32_is_the_twins(data):
    assert checksum_xxh32(data) == reference.xxh32(data)


def test_the_header_checksum_of_a_frame_as_java_writes_it():
    assert header_checksum(b"\x60\x40") == 0x82


def test_a_codec_and_a_level_may_be_integers_of_numpy():
    for kind in (np.int8, np.int64, np.uint8):
        compression = Compression(kind(4), kind(5))
        assert compression == Compression("zstd", 5)
        assert (type(compression.codec), type(compression.level)) == (kf.Codec, int)
    with pytest.raises(TypeError, match="a codec is a name or a Codec"):
        Compression(np.True_)
