"""Batches are found by their size fields, in windows of any size."""

import struct

import builder
import numpy as np
import pytest
from dumping_support import ONE, write_log

from kafkalog.operations.dumping.batch_chain import Chain, Found, last_offsets
from kafkalog.storage.source import FileSource

BATCHES = [builder.batch_v2([ONE] * n, base_offset=10 * n) for n in range(1, 40)]
POSITIONS = np.cumsum([0, *map(len, BATCHES)])


def chain(path, start, window_bytes):
    with FileSource(path) as log:
        one = Chain(log, start, window_bytes)
        found = [(positions.copy(), offsets.copy()) for positions, offsets in one]
    positions, offsets = (np.concatenate(part).tolist() for part in zip(*found, strict=True))
    return positions, offsets, one


@pytest.mark.parametrize("window_bytes", [1, 100, 5000, 2**20])
@pytest.mark.parametrize("first", [0, 5])
def test_a_chain_leads_to_the_end(tmp_path, window_bytes, first):
    path = write_log(tmp_path, b"".join(BATCHES))
    positions, offsets, one = chain(path, int(POSITIONS[first]), window_bytes)
    assert positions == POSITIONS[first:-1].tolist()
    assert offsets == [11 * n - 1 for n in range(1 + first, 40)]
    assert (one.position, one.is_broken, one.ends_in_header) == (POSITIONS[-1], False, False)


def test_a_chain_that_breaks_says_where(tmp_path):
    whole = b"".join(BATCHES[:3])
    _, _, one = chain(write_log(tmp_path, whole + bytes(100)), 0, 2**20)
    assert (one.position, one.is_broken) == (len(whole), True)
    cut = BATCHES[3][:8] + struct.pack(">i", 20) + BATCHES[3][12:40]
    _, _, one = chain(write_log(tmp_path, whole + cut), 0, 2**20)
    assert (one.position, one.is_broken, one.ends_in_header) == (len(whole), False, True)


def test_less_than_a_header_is_the_end_and_a_size_of_0_behind_it_is_damage(tmp_path):
    whole = b"".join(BATCHES[:3])
    for n, is_broken in ((17, False), (18, True)):
        _, _, one = chain(write_log(tmp_path, whole + bytes(n)), 0, 2**20)
        assert (one.position, one.is_broken) == (len(whole), is_broken)


def test_a_window_that_ends_inside_a_header_is_not_the_end_of_the_log(tmp_path):
    positions, _, one = chain(write_log(tmp_path, b"".join(BATCHES[:3])), 0, 100)
    assert positions == POSITIONS[:3].tolist()
    assert not one.ends_in_header


def test_last_offsets_are_found_in_any_order(tmp_path):
    order = np.random.default_rng(1).permutation(len(BATCHES))
    with FileSource(write_log(tmp_path, b"".join(BATCHES))) as log:
        last, found = last_offsets(log, POSITIONS[order].astype(np.int64), 2**20)
        assert found is Found.BATCH
        assert last.tolist() == (11 * (order + 1) - 1).tolist()
        last, found = last_offsets(log, np.array([0, log.size + 1]), 2**20)
        assert (last.size, found) == (1, Found.END)
        last, found = last_offsets(log, np.array([0]), 50)
        assert (last.size, found) == (0, Found.END)
