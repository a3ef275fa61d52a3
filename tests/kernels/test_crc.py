"""Checksums: every implementation the machine can run gives what zlib and a table give."""

import zlib

import builder
import numpy as np
import pytest

from kafkalog._kernels import crc
from kafkalog._kernels.wire import STATUS


@pytest.fixture(params=range(len(crc.LEVELS)), ids=crc.LEVELS)
def level(request):
    best = crc.implementation
    if crc.use_level(request.param) != crc.LEVELS[request.param]:
        crc.use_level(len(crc.LEVELS) - 1)
        pytest.skip(f"this machine has no {crc.LEVELS[request.param]}")
    yield request.param
    assert crc.use_level(len(crc.LEVELS) - 1) == best


def test_check_value(level):
    assert crc.checksum_crc32c(b"123456789") == 0xE3069283
    assert crc.checksum_crc32(b"123456789") == 0xCBF43926
    assert crc.checksum_crc32c(b"") == 0
    assert crc.checksum_crc32(b"") == 0


def test_every_length_and_alignment(level):
    data = np.frombuffer(np.random.default_rng(3).bytes(20_000), np.uint8)
    lengths = [*range(300), *range(380, 530), *range(1980, 2060), *range(4070, 4100), 5000, 7935, 7936, 7937, 8191]
    lengths += [15_871, 15_872, 15_873, 16_363, 16_384, 19_990]
    for start in (0, 1, 7, 9):
        for length in lengths:
            if start and length % 7:
                continue
            part = data[start : start + length]
            assert crc.checksum_crc32(part) == zlib.crc32(part.tobytes()), (start, length)
            assert crc.checksum_crc32c(part) == builder.crc32c(part.tobytes()), (start, length)


def test_the_first_batch_with_a_wrong_checksum_is_named():
    one = builder.batch_v2([builder.record_v2()])
    sizes, magics = np.full(4, len(one), np.int32), np.full(4, 2, np.int8)
    stored = np.full(4, int.from_bytes(one[17:21], "big"), np.uint32)
    position, valid = 1000 + np.arange(4, dtype=np.int64) * len(one), np.empty(4, np.uint8)
    window = np.frombuffer(one * 4, np.uint8)
    assert crc.check_crcs(window, 1000, position, sizes, magics, stored, valid) == (STATUS["OK"], 4, 1000)
    stored[[1, 3]] ^= 1
    wrong = (STATUS["CRC_MISMATCH"], 4, position[1])
    assert crc.check_crcs(window, 1000, position, sizes, magics, stored, valid) == wrong
    assert valid.tolist() == [1, 0, 1, 0]
