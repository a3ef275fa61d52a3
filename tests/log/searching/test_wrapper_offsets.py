"""Compressed v0 and v1 messages say inside where their offsets begin; those of v0 prove the wrapper's own."""

from __future__ import annotations

import golden_sets
import numpy as np
import pytest

import kafkalog
from kafkalog.errors import DEFAULT_LIMITS
from kafkalog.log.searching.choosing import read_wrappers
from kafkalog.log.searching.resync import Found, find_batches
from kafkalog.storage.source import BufferSource


def found_in(data: bytes) -> Found:
    return Found.concatenate(list(find_batches(BufferSource(data))))


@pytest.mark.parametrize("name", ["p-v0-gzip-0", "p-v1-lz4-0", "p-v0v1v2-mixed-0"])
def test_a_lone_compressed_message_begins_behind_the_one_before(name: str) -> None:
    log = sorted(golden_sets.partitions("k28")[name].glob("*.log"))[0]
    runs = found_in(log.read_bytes())
    numbered, is_wrong = read_wrappers(BufferSource(log.read_bytes()), runs, DEFAULT_LIMITS)
    offsets = kafkalog.read_numpy(log, columns=["offset"])["offset"]
    assert not is_wrong.any()
    expected = np.append(offsets[0], runs.last_offset[:-1] + 1)
    assert (numbered.first_offset == expected).all()
    assert (numbered.first_offset < runs.first_offset).any()
    assert (numbered.last_offset == runs.last_offset).all()


@pytest.mark.parametrize(("name", "is_proof"), [("p-v0-gzip-0", True), ("p-v1-lz4-0", False)])
def test_messages_of_v0_disprove_a_wrong_offset_of_their_wrapper(name: str, is_proof: bool) -> None:
    log = sorted(golden_sets.partitions("k28")[name].glob("*.log"))[0]
    data = bytearray(log.read_bytes())
    data[6] ^= 1  # the offset, by 256
    runs = found_in(bytes(data))[:1]
    numbered, is_wrong = read_wrappers(BufferSource(bytes(data)), runs, DEFAULT_LIMITS)
    assert is_wrong.tolist() == [is_proof]
    n_messages = 1 + int(runs.last_offset[0] - numbered.first_offset[0])
    whole, _ = read_wrappers(BufferSource(log.read_bytes()), found_in(log.read_bytes())[:1], DEFAULT_LIMITS)
    assert n_messages == (1 if is_proof else 1 + int(whole.last_offset[0] - whole.first_offset[0]))


def test_a_message_that_cannot_be_read_says_nothing() -> None:
    log = sorted(golden_sets.partitions("k28")["p-v0-gzip-0"].glob("*.log"))[0]
    data = bytearray(log.read_bytes())
    runs = found_in(bytes(data))[:1]
    data[40 : int(runs.end[0])] = bytes(int(runs.end[0]) - 40)
    numbered, is_wrong = read_wrappers(BufferSource(bytes(data)), runs, DEFAULT_LIMITS)
    assert (numbered.first_offset.tolist(), is_wrong.tolist()) == (runs.first_offset.tolist(), [False])
