"""Of intact batches that contradict each other, readers keep the largest set whose offsets rise."""

from __future__ import annotations

import builder
import pytest
from searches import dense

from kafkalog.log.searching.choosing import agreeing
from kafkalog.log.searching.resync import Found, find_batches
from kafkalog.storage.source import BufferSource


def kept(*parts: bytes, base_offset: int = 0, end_offset: int = 2**63 - 1) -> list[int]:
    """The first offsets of the runs that agree."""
    source = BufferSource(b"".join(parts))
    found = Found.concatenate([part.joined() for part in find_batches(source)])
    runs = agreeing(source, found, base_offset=base_offset, end_offset=end_offset).kept
    return [int(offset) for offset in runs.first_offset]


def test_the_largest_rising_set_is_kept() -> None:
    batches = dense(6)
    assert kept(*batches) == [0]
    assert kept(*batches[:3], batches[0], *batches[3:]) == [0, 3, 6, 9]
    assert kept(*batches, base_offset=3, end_offset=15) == [3, 6, 9, 12]


def test_readers_do_not_question_the_epoch_of_a_batch() -> None:
    batches = dense(6)
    batches[3] = batches[3][:12] + (8124).to_bytes(4, "big") + batches[3][16:]
    assert kept(*batches) == [0, 9, 12]


@pytest.mark.parametrize(("offset", "is_kept"), [(1, True), (20, True), (900, False), (2**40, False)])
def test_behind_damage_a_lone_batch_far_away_is_not_believed(offset: int, is_kept: bool) -> None:
    first, last = builder.message(0, b"k", b"v", magic=0), builder.message(offset, b"k", b"v", magic=0)
    assert kept(first, b"\xff" * 100, last) == [0, offset][: 1 + is_kept]


def test_relative_offsets_behind_a_lost_header_are_not_believed() -> None:
    inner = b"".join(builder.message(n, None, b"v" * 20, magic=1) for n in range(1, 4))
    whole = builder.wrapper([builder.message(0)], offset=0)
    # the header of a compressed message is lost, and its content was stored as it was
    assert kept(whole, b"\xff" * 90, inner, bytes(4), builder.wrapper([builder.message(0)], offset=9)) == [0, 9]
    # messages that were not compressed lead to the next one
    assert kept(whole, b"\xff" * 90, inner, builder.wrapper([builder.message(0)], offset=4)) == [0, 1, 4]
