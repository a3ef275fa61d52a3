"""Memory that comes back: never while somebody looks at it, never without bound."""

from __future__ import annotations

import gc
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from kafkalog._kernels.buffer_pool import Block, Growing, kept_bytes
from kafkalog.storage.buffer_pool import GrowingArray, empty

pytestmark = pytest.mark.kernels

MEBIBYTE = 2**20


@pytest.fixture(autouse=True)
def _nothing_else_is_freed() -> Iterator[None]:
    """What tests before left in circles goes before or after, as its blocks would change what waits."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def address(array: np.ndarray) -> int:
    return int(array.__array_interface__["data"][0])


def test_freed_memory_serves_the_next_of_about_the_same_size() -> None:
    first = empty(3 * MEBIBYTE, np.uint8)
    where = address(first)
    del first
    assert address(empty(3 * MEBIBYTE - 5000, np.uint8)) == where


def in_a_new_process(code: str) -> None:
    """Run code with nothing in use, and nothing waiting."""
    head = """
import numpy as np
from kafkalog._kernels.buffer_pool import kept_bytes
from kafkalog.storage.buffer_pool import empty
address = lambda array: array.__array_interface__["data"][0]
mebibytes = lambda n: empty(int(n * 2**20), np.uint8)
"""
    subprocess.run([sys.executable, "-c", head + code], check=True)


def test_freed_memory_serves_what_fits_into_the_gap() -> None:
    in_a_new_process("""
blocks = [mebibytes(n) for n in (5, 1, 5)]
where = [address(block) for block in blocks]
blocks[0] = None
assert address(mebibytes(6)) > where[2]
for smaller in (5, 4, 2):
    assert address(mebibytes(smaller)) == where[0]
small = [mebibytes(n) for n in (2, 3)]
assert [address(block) for block in small] == [where[0], where[0] + 2 * 2**20]
blocks[2] = small = None
assert address(mebibytes(7)) > where[1], "two gaps with a block between them are not one"
blocks[1] = None
assert address(mebibytes(11)) == where[0]
""")


def test_the_whole_region_can_be_used_in_blocks_of_the_least_size() -> None:
    in_a_new_process("""
blocks = [empty(65_536, np.uint8) for _ in range(384)]
first = min(map(address, blocks))
assert sorted(map(address, blocks)) == [first + n * 65_536 for n in range(384)]
one_more = empty(65_536, np.uint8)
assert not first <= address(one_more) < first + 24 * 2**20
for number, block in enumerate(blocks):
    block[:] = number % 251
assert all((block == number % 251).all() for number, block in enumerate(blocks))
del blocks[::2]
assert kept_bytes() == 192 * 65_536
assert not first <= address(mebibytes(0.125)) < first + 24 * 2**20
assert first <= address(empty(65_536, np.uint8)) < first + 24 * 2**20
""")


def test_where_others_are_kept_freed_memory_serves_the_next_of_about_the_same_size() -> None:
    in_a_new_process("""
others = [mebibytes(8) for _ in range(3)]
assert kept_bytes() == 0
where = address(mebibytes(5))
assert kept_bytes() == 5 * 2**20
blocks = [mebibytes(4)]
assert address(blocks[0]) == where and kept_bytes() == 0
blocks.clear()
for much_smaller in (3, 3.5):
    blocks.append(mebibytes(much_smaller))
    assert address(blocks[-1]) != where
blocks.clear()
assert kept_bytes() == 11.5 * 2**20
del blocks
block = mebibytes(9)
assert kept_bytes() == 11.5 * 2**20
del block
assert kept_bytes() == 12 * 2**20, "the oldest go first"
large = mebibytes(13)
del large
assert kept_bytes() == 12 * 2**20
del others
assert kept_bytes() == 24 * 2**20
""")


def test_memory_that_a_view_points_into_is_not_handed_out() -> None:
    whole = empty(MEBIBYTE, np.uint8)
    whole[:] = 7
    view = whole[1000:2000].view(np.int64)
    del whole
    others = [empty(MEBIBYTE, np.uint8) for _ in range(4)]
    for other in others:
        other[:] = 9
    assert (view == int.from_bytes(bytes([7] * 8), "little")).all()


def test_what_waits_is_bounded() -> None:
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


def test_large_and_small_memory_is_given_back() -> None:
    before = kept_bytes()
    for size in (0, 1, 100, 65_000, 17 * MEBIBYTE):
        block = empty(size, np.uint8)
        block[:] = 1
        assert block.size == size
        del block
        assert kept_bytes() == before


def test_columns_of_any_type_can_be_written_and_pickled() -> None:
    column = empty(100_000, np.int64)
    column[:] = np.arange(100_000)
    assert column.flags.writeable
    assert (pickle.loads(pickle.dumps(column)) == column).all()


@pytest.mark.parametrize("size", [-1, -(2**63)])
def test_a_negative_size_is_refused(size: int) -> None:
    with pytest.raises(ValueError):
        Block(size)


def test_more_than_there_is_is_a_memory_error() -> None:
    with pytest.raises(MemoryError):
        Block(2**63 - 1)


def test_threads_never_share_a_block() -> None:
    wrong = []

    def work(number: int) -> None:
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


def test_an_array_grows_part_by_part() -> None:
    rng = np.random.default_rng(42)
    for dtype in (np.uint8, np.int32, np.int64, np.bool_):
        array, parts = GrowingArray(dtype), [np.empty(0, dtype)]
        for size in (0, 1, 7, 100_000, 0, 3_000_000, 5):
            parts.append(rng.integers(0, 2, size).astype(dtype))
            array.extend(size)[:] = parts[-1]
        assert len(array) == sum(map(len, parts))
        assert np.array_equal(array.finish(), np.concatenate(parts))
    assert GrowingArray(np.int64).finish().size == 0


def test_bytes_that_somebody_looks_at_do_not_move() -> None:
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
        with pytest.raises(ValueError, match="larger than any"):
            growing.extend(n)
    with pytest.raises(MemoryError):
        growing.extend(2**59)
    assert len(growing) == 10_030
