"""Compressing: frames as Kafka's own writers make them, levels as Kafka names them."""

import gzip
import random
import struct
from importlib.metadata import version

import builder
import lz4.block
import numpy as np
import pytest
import reference
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from kafkalog.format import CODEC_LEVELS, DEFAULT_LEVELS, Codec
from kafkalog.records.codecs import UNCOMPRESSED, Arena, Compression, decompress_into
from kafkalog.records.compress import LZ4_BLOCK, XERIAL_BLOCK, compressor

WHOLE_BLOCKS = pytest.mark.skipif(
    version("cramjam") < "2.14", reason="cramjam before 2.14, which kafkalog needs, ends a block of LZ4's after 8 KiB"
)
NOISE = random.Random(1).randbytes(200_000)
TEXT = b" ".join(b"word%d" % (i * i % 977) for i in range(30_000))
SIZES = (0, 1, 100, XERIAL_BLOCK - 1, XERIAL_BLOCK, XERIAL_BLOCK + 1, LZ4_BLOCK, LZ4_BLOCK + 1, 180_000)
EVERY = [Compression(codec) for codec in Codec] + [
    *(Compression(Codec.GZIP, level) for level in (-1, 1, 5, 9)),
    *(Compression(Codec.LZ4, level) for level in (1, 2, 3, 8, 9, 10, 12, 17)),
    *(Compression(Codec.ZSTD, level) for level in (-(2**17), -5, 0, 1, 3, 12)),
]


def compressed(compression, data, magic=2):
    arena = Arena()
    compressor(compression, magic=magic)(arena, memoryview(data))
    return arena.data[: arena.used].tobytes()


def decompressed(codec, data, magic=2):
    arena = Arena()
    decompress_into(arena, codec, np.frombuffer(data, np.uint8), magic=magic)
    return arena.data[: arena.used].tobytes()


@pytest.mark.parametrize("compression", EVERY, ids=str)
def test_every_level_gives_back_what_went_in(compression):
    for content in (TEXT, NOISE, bytes(200_000)):
        for size in SIZES:
            data = content[:size]
            out = compressed(compression, data)
            assert decompressed(compression.codec, out) == data
    assert reference.decompress(compression.codec, compressed(compression, TEXT), 2) == TEXT


@given(st.sampled_from(list(Codec)), st.binary(max_size=300), st.integers(1, 400))
def test_any_bytes_come_back_from_any_codec(codec, unit, times):
    data = unit * times
    assert decompressed(codec, compressed(Compression(codec), data)) == data


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_wrappers_of_old_formats_come_back(codec, magic):
    out = compressed(Compression(codec), TEXT, magic)
    assert decompressed(codec, out, magic) == reference.decompress(codec, out, magic) == TEXT


def test_zstd_is_refused_before_v2():
    with pytest.raises(ValueError):
        compressed(Compression(Codec.ZSTD), TEXT, 1)


def test_snappy_is_xerial_blocks_of_32_kib():
    out = compressed(Compression(Codec.SNAPPY), TEXT[:100_000])
    assert out[:16] == b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)
    sizes, at = [], 16
    while at < len(out):
        (n,) = struct.unpack_from(">i", out, at)
        sizes.append(len(decompressed(Codec.SNAPPY, out[at + 4 : at + 4 + n])))
        at += 4 + n
    assert sizes == [XERIAL_BLOCK] * 3 + [100_000 - 3 * XERIAL_BLOCK]
    assert compressed(Compression(Codec.SNAPPY), b"") == out[:16]


def lz4_blocks(frame):
    """Whether a block is compressed, and its bytes."""
    blocks, at = [], 7
    while word := int.from_bytes(frame[at : at + 4], "little"):
        size = word & 0x7FFFFFFF
        blocks.append((word < 2**31, frame[at + 4 : at + 4 + size]))
        at += 4 + size
    assert at + 4 == len(frame)
    return blocks


@pytest.mark.parametrize("level", [9, *(pytest.param(level, marks=WHOLE_BLOCKS) for level in (1, 2, 12, 17))])
def test_lz4_is_a_frame_of_independent_64_kib_blocks_without_checksums(level):
    data = TEXT[:100_000] + NOISE[:150_000]
    frame = compressed(Compression(Codec.LZ4, level), data)
    assert frame[:6] == b"\x04\x22\x4d\x18\x60\x40"
    assert frame[:7] == builder.lz4_frame(b"")[:7]
    blocks = lz4_blocks(frame)
    parts = [
        lz4.block.decompress(block, uncompressed_size=LZ4_BLOCK) if is_compressed else block
        for is_compressed, block in blocks
    ]
    assert [len(part) for part in parts] == [LZ4_BLOCK] * 3 + [250_000 - 3 * LZ4_BLOCK]
    assert b"".join(parts) == data
    # noise is stored as it is
    assert [is_compressed for is_compressed, _ in blocks] == [True, True, False, False]
    assert compressed(Compression(Codec.LZ4, level), b"") == frame[:7] + bytes(4)


def test_lz4_of_v0_has_the_checksum_that_kafka_computed_then():
    for magic in (0, 1, 2):
        assert compressed(Compression(Codec.LZ4), TEXT, magic)[:7] == builder.lz4_frame(TEXT, magic)[:7]
    assert compressed(Compression(Codec.LZ4), TEXT, 0)[6:7] != compressed(Compression(Codec.LZ4), TEXT, 1)[6:7]


def test_zstd_frames_say_no_content_size_and_have_no_checksum():
    for size in (1, 1000, 200_000):
        frame = zstandard.get_frame_parameters(compressed(Compression(Codec.ZSTD), (TEXT * 3)[:size]))
        assert frame.content_size == zstandard.CONTENTSIZE_UNKNOWN
        assert not frame.has_checksum
        assert frame.dict_id == 0


def test_gzip_is_one_member():
    out = compressed(Compression(Codec.GZIP), TEXT)
    assert out[:4] == b"\x1f\x8b\x08\0"
    assert gzip.decompress(out) == TEXT


@WHOLE_BLOCKS
def test_levels_mean_what_they_mean_to_kafka():
    sizes = {(compression.codec, compression.level): len(compressed(compression, TEXT)) for compression in EVERY}
    for codec, default in DEFAULT_LEVELS.items():
        assert sizes[codec, None] == sizes[codec, default]
    gzip_, lz4_, zstd = Codec.GZIP, Codec.LZ4, Codec.ZSTD
    assert sizes[gzip_, 1] > sizes[gzip_, -1] == len(compressed(Compression(gzip_, 6), TEXT)) > sizes[gzip_, 9]
    # 9 is the fast compressor; all others try harder
    assert sizes[lz4_, 9] > sizes[lz4_, 1] >= sizes[lz4_, 3] >= sizes[lz4_, 8] >= sizes[lz4_, 12] == sizes[lz4_, 17]
    assert sizes[zstd, -(2**17)] > sizes[zstd, -5] > sizes[zstd, 3] > sizes[zstd, 12]
    assert sizes[zstd, 0] == sizes[zstd, 3]


@pytest.mark.parametrize(("codec", "least", "most"), [("gzip", 1, 9), ("lz4", 1, 17), ("zstd", -131_072, 22)])
def test_levels_have_kafkas_ranges(codec, least, most):
    assert Compression.parse(codec, level=least).level == least
    assert Compression.parse(codec, level=most).level == most
    for level in (least - 1, most + 1):
        if (codec, level) == ("gzip", 0) or level not in CODEC_LEVELS[Codec[codec.upper()]]:
            with pytest.raises(ValueError, match=f"{codec}"):
                Compression.parse(codec, level=level)
    with pytest.raises(TypeError):
        Compression.parse(codec, level=2.0)


def test_codecs_are_named_as_kafka_names_them():
    assert [Compression.parse(name).codec for name in ("none", "gzip", "snappy", "lz4", "zstd")] == list(Codec)
    assert Compression.parse(None) == Compression.parse("NONE") == UNCOMPRESSED
    assert Compression.parse(Codec.ZSTD, level=5) == Compression.parse("zstd", level=5)
    given_ = Compression(Codec.GZIP, 4)
    assert Compression.parse(given_) == given_
    assert Compression.parse(given_, level=7).level == 7
    assert [str(one) for one in (UNCOMPRESSED, given_)] == ["none", "gzip(4)"]
    assert [Compression(codec).effective_level for codec in Codec] == [None, -1, None, 9, 3]
    for name in ("brotli", "uncompressed", "producer", ""):
        with pytest.raises(ValueError):
            Compression.parse(name)
    for codec in ("none", "snappy"):
        with pytest.raises(ValueError):
            Compression.parse(codec, level=1)
    with pytest.raises(ValueError):
        Compression.parse(5)
    with pytest.raises(TypeError):
        Compression.parse(True)
