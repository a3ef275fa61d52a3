"""Memory that comes back: never while somebody looks at it, never without bound."""

import gc
import threading

import numpy as np
import pytest

from kafkalog._kernels.buffer_pool import Block, Growing, kept_bytes
from kafkalog.storage.buffer_pool import GrowingArray, empty

pytestmark = pytest.mark.kernels

MEBIBYTE = 2**20


@pytest.fixture(autouse=True, scope="module")
def _nothing_else_is_freed():
    """What tests before left in circles goes before or after, as its blocks would change what waits."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_memory_that_a_view_points_into_is_not_handed_out():
    whole = empty(MEBIBYTE, np.uint8)
    whole[:] = 7
    view = whole[1000:2000].view(np.int64)
    del whole
    others = [empty(MEBIBYTE, np.uint8) for _ in range(4)]
    for other in others:
        other[:] = 9
    assert (view == int.from_bytes(bytes([7] * 8), "little")).all()


def test_what_waits_is_bounded():
    blocks = [empty(n * MEBIBYTE, np.uint8) for n in range(1, 17)] * 2
    blocks.clear()
    assert 0 < kept_bytes() <= 24 * MEBIBYTE
    blocks = [empty(n * MEBIBYTE, np.uint8) for n in range(1, 17)]
    while blocks:
        blocks.pop(0)
        assert 0 < kept_bytes() <= 24 * MEBIBYTE
    small = [empty(65_536, np.uint8) for _ in range(1000)]
    small.clear()
    assert 0 < kept_bytes() <= 24 * MEBIBYTE


def test_large_and_small_memory_is_given_back():
    before = kept_bytes()
    for size in (0, 1, 100, 65_000, 17 * MEBIBYTE):
        block = empty(size, np.uint8)
        block[:] = 1
        assert block.size == size
        del block
        assert kept_bytes() == before


def test_more_than_there_is_is_a_memory_error():
    with pytest.raises(MemoryError):
        Block(2**63 - 1)


def test_threads_never_share_a_block():
    wrong = []

    def work(number):
        for turn in range(300):
            mine = empty(MEBIBYTE // 8 * (1 + turn % 3), np.uint8)
            mine[:] = number
            if not (mine == number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_an_array_grows_part_by_part():
    rng = np.random.default_rng(42)
    for dtype in (np.uint8, np.int32, np.int64, np.bool_):
        array, parts = GrowingArray(dtype), [np.empty(0, dtype)]
        for size in (0, 1, 7, 100_000, 0, 3_000_000, 5):
            parts.append(rng.integers(0, 2, size).astype(dtype))
            array.extend(size)[:] = parts[-1]
        assert len(array) == sum(map(len, parts))
        assert np.array_equal(array.finish(), np.concatenate(parts))
    assert GrowingArray(np.int64).finish().size == 0


def test_bytes_that_somebody_looks_at_do_not_move():
    growing = Growing()
    assert [growing.extend(n) for n in (10, 20, 0)] == [0, 10, 30]
    view = np.frombuffer(memoryview(growing), np.uint8)
    with pytest.raises(BufferError):
        growing.extend(2**27)
    with pytest.raises(BufferError):
        growing.trim()
    del view
    assert growing.extend(10_000) == 30
    for n in (-1, 2**63 - 1):
        with pytest.raises(ValueError):
            growing.extend(n)
    with pytest.raises(MemoryError):
        growing.extend(2**59)
    assert len(growing) == 10_030
