"""Bounds inside kernels that no file of a broker reaches: each of these inputs passes if its check is taken away."""

import gc
import random
import runpy
import sys
from pathlib import Path

import builder
import numpy as np
import pytest
from guard import Guard

import kafkalog
from kafkalog import codec
from kafkalog._kernels import avro
from kafkalog._kernels.buffer_pool import Block
from kafkalog._kernels.fill import PAD, Codecs
from kafkalog.records.byte_columns import BinaryColumn, HeadersColumn
from kafkalog.records.columns import RecordColumns

pytestmark = pytest.mark.kernels

LZ4 = 3
DOUBT, NO_ROOM = -1, -2


def decompressed(frame, room):
    """The result, and whether the bytes after the room and its padding are as before."""
    memory = np.full(room + PAD + 70_000, 7, np.uint8)
    result = Codecs().decompress(LZ4, np.frombuffer(frame, np.uint8), memory[: room + PAD])
    return result, bool((memory[room + PAD :] == 7).all())


def test_an_lz4_block_needs_room_for_what_it_becomes():
    import lz4.frame

    frame = lz4.frame.compress(
        b"abcd" * 15_000, block_size=lz4.frame.BLOCKSIZE_MAX64KB, block_linked=False, store_size=False
    )
    assert len(frame) < 1000
    assert decompressed(frame, 1000) == (NO_ROOM, True)
    assert decompressed(frame, 2**16) == (60_000, True)


@pytest.mark.parametrize(("n_literals", "result"), [(5, 2**16), (4, DOUBT)])
def test_no_lz4_match_reaches_into_the_last_five_bytes(n_literals, result):
    n = 2**16 - 8 - n_literals
    more = n - 4 - 15
    match = b"\x08\0" + b"\xff" * (more // 255) + bytes([more % 255])
    block = b"\x8f" + b"abcdefgh" + match + bytes([n_literals << 4]) + b"x" * n_literals
    descriptor = b"\x60\x40"
    head = b"\x04\x22\x4d\x18" + descriptor + bytes([builder.xxh32(descriptor) >> 8 & 0xFF])
    frame = head + len(block).to_bytes(4, "little") + block + bytes(4)
    assert decompressed(frame, 2**16) == (result, True)


def test_many_headers_after_batches_without_any_find_room():
    batches = [builder.batch_v2([builder.record_v2(0, value=b"v" * 400)], base_offset=n) for n in range(40)]
    headers = [(b"", None)] * 20_000
    # all as large, so that the room for one would do for each if those before took none
    batches += [builder.batch_v2([builder.record_v2(0, headers=headers)], base_offset=40 + n) for n in range(4)]
    batches.append(builder.batch_v2([builder.record_v2(0, headers=[(b"a", b"1")])], base_offset=44))
    for _ in range(3):
        decoded = codec.decode(b"".join(batches))
        assert decoded.headers.to_pylist() == [[]] * 40 + [headers] * 4 + [[(b"a", b"1")]]
        assert decoded.value.to_pylist() == [b"v" * 400] * 40 + [None] * 5


@pytest.mark.parametrize("size", [3, 1000, 2**30])
def test_a_header_value_ends_with_its_record(size):
    body = b"\0\0\0\1\1" + builder.varint(1) + builder.varint(1) + b"k" + builder.varint(size) + b"v"
    batch = builder.batch_v2([builder.varint(len(body)) + body])
    with pytest.raises(kafkalog.CorruptionError, match="header"):
        codec.decode(Guard().ending(batch))


def test_an_avro_string_ends_with_its_value():
    nodes = np.array([[6, 0, 0, 0, 0, 0]], np.int32)  # a string, to column 0
    columns, none = np.array([[1, 0, 0, 0, 1]], np.int32), np.zeros(0, np.int32)
    guard = Guard()
    for n, size in ((3, 3), (3, 4), (3, 60), (40, 41), (40, 4000), (300, 301)):
        length = builder.varint(size)
        data = guard.ending(length + b"x" * n)
        failures = np.zeros(1, np.int32)
        start, stop = np.array([0], np.int64), np.array([data.size], np.int64)
        ((_, valid, _, _),) = avro.decode(
            nodes,
            none,
            columns,
            none,
            none,
            np.zeros(0, np.uint8),
            data,
            start,
            stop,
            1 << 20,
            failures,
            np.zeros((0, 3), np.int32),
        )[:1]
        assert bool(failures[0]) == (size > n)
        assert np.frombuffer(valid, np.uint8).tolist() == [size <= n]


@pytest.mark.parametrize(
    ("key", "is_text"), [(b"\xf4\x8f\xbf\xbf", True), (b"\xf4\x90\x80\x80", False), (b"\xf5\x80\x80\x80", False)]
)
def test_the_last_character_is_u_10ffff(key, is_text):
    headers = HeadersColumn(np.array([0, 1]), BinaryColumn.of([key]), BinaryColumn.of([b""]))
    records = RecordColumns(1, {"headers": headers})
    if is_text:
        assert codec.decode(codec.encode(records)).headers.to_pylist() == [[(key, b"")]]
    else:
        with pytest.raises(kafkalog.UnwritableError, match="UTF-8"):
            codec.encode(records)


@pytest.mark.parametrize("inner", range(8))
def test_messages_in_a_message_are_not_compressed(inner):
    messages = [builder.message(0, value=b"v", magic=1, timestamp=5, attributes=inner)]
    outer = builder.message(
        0, value=builder.compress(builder.GZIP, b"".join(messages), 1), magic=1, timestamp=5, codec=builder.GZIP
    )
    if inner:
        with pytest.raises(kafkalog.CorruptionError):
            codec.decode(outer)
    else:
        assert codec.decode(outer).value.to_pylist() == [b"v"]


def test_blocks_do_not_overlap():
    source, blocks = random.Random(9), {}
    for n in range(600):
        if len(blocks) > 12 or (blocks and source.random() < 0.45):
            del blocks[source.choice(list(blocks))]
        size = source.choice((65_536, 69_632, 131_072, 200_000, 1_000_000, 2_000_000)) + source.choice((0, 1, 4096))
        block = np.frombuffer(Block(size), np.uint8)
        block[:] = n % 251
        blocks[n] = block
        for number, one in blocks.items():
            assert one[0] == one[-1] == number % 251
            assert (one[::4096] == number % 251).all()


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_decoded_columns_do_not_stay_when_they_are_freed():
    def resident():
        return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 2**20

    nodes, columns = np.array([[6, 0, 0, 0, 0, 0]], np.int32), np.array([[1, 0, 0, 0, 1]], np.int32)
    none, n, text = np.zeros(0, np.int32), 200, b"x" * 10_000
    one = builder.varint(len(text)) + text
    data = np.frombuffer(one * n, np.uint8)
    start = np.arange(n, dtype=np.int64) * len(one)

    def decode():
        rest = (
            np.zeros(0, np.uint8),
            data,
            start,
            start + len(one),
            1 << 30,
            np.zeros(n, np.int32),
            np.zeros((0, 3), np.int32),
        )
        made = avro.decode(nodes, none, columns, none, none, *rest)
        assert len(made[0][3]) == len(text) * n

    decode()
    gc.collect()
    before = resident()
    for _ in range(60):
        decode()
    assert resident() - before < 40


def test_other_machines_are_refused_with_a_sentence(monkeypatch):
    setup = Path(__file__).parents[2] / "setup.py"
    for name, value, kind in (("byteorder", "big", "big-endian machine"), ("maxsize", 2**31 - 1, "32-bit Python")):
        with monkeypatch.context() as patch:
            patch.setattr(sys, name, value)
            with pytest.raises(
                SystemExit, match=f"needs a 64-bit Python on a little-endian machine .* this is a {kind}"
            ):
                runpy.run_path(str(setup))
