"""Results come in the order of the plan, however many threads work, and no step is planned too far ahead."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import NamedTuple

import builder
import pytest

from kafkalog.errors import CorruptionError, KafkalogError, Reason
from kafkalog.records.batch_table import table_of
from kafkalog.scanning.ordered_pool import BatchTask, OrderedPool, Pending, shares
from kafkalog.storage.source import BufferSource


class Done(NamedTuple):
    rows: list[int]
    n_batches: int
    error: KafkalogError | None = None


@pytest.mark.parametrize("threads", [0, 1, 4])
def test_results_come_in_the_order_of_the_plan(threads: int) -> None:
    def work(number: int) -> int:
        time.sleep(0.002 * (number % 3))
        return number

    with OrderedPool(threads) as pool:
        plan: Iterator[Pending[int] | str] = (
            "met" if number % 5 == 4 else pool.submit(partial(work, number)) for number in range(20)
        )
        found = [step if isinstance(step, str) else step.result() for step in pool.ahead(plan, threads)]
    assert found == ["met" if number % 5 == 4 else number for number in range(20)]


@pytest.mark.parametrize("ahead", [0, 3])
def test_no_step_is_planned_too_far_ahead(ahead: int) -> None:
    planned: list[int] = []

    def plan() -> Iterator[int]:
        for number in range(10):
            planned.append(number)
            yield number

    with OrderedPool(2) as pool:
        for number in pool.ahead(plan(), ahead):
            assert planned == list(range(min(number + ahead + 1, 10)))


def test_a_step_that_is_done_does_not_wait_for_others_to_be_planned() -> None:
    planned: list[int] = []

    def plan() -> Iterator[int]:
        for number in range(10):
            planned.append(number)
            yield number

    with OrderedPool(2) as pool:
        for number in pool.ahead(plan(), 3, is_done=lambda step: step < 5):
            assert planned == list(range(number + 1 if number < 5 else min(number + 4, 10)))


def test_what_has_not_begun_is_not_done_after_an_error() -> None:
    begun: list[int] = []
    release = threading.Event()

    def work(number: int) -> int:
        begun.append(number)
        release.wait(10)
        return number

    with pytest.raises(RuntimeError), OrderedPool(1) as pool:  # noqa: PT012
        plan = (pool.submit(partial(work, number)) for number in range(50))
        for step in pool.ahead(plan, 40):
            assert not step.wait(0.01)
            threading.Timer(0.2, release.set).start()
            raise RuntimeError
    assert begun == [0]


@pytest.mark.parametrize("threads", [0, 3])
def test_a_task_passes_over_what_is_damaged_and_takes_small_steps_behind_it(threads: int) -> None:
    steps: list[tuple[int, int]] = []
    damaged = {5, 6, 40}

    def work(first: int, stop: int) -> Done:
        steps.append((first, stop))
        for row in range(first, stop):
            if row in damaged:
                error = CorruptionError(Reason.CRC_MISMATCH, str(row))
                return Done(list(range(first, row)), row - first, error)
        return Done(list(range(first, stop)), stop - first)

    with OrderedPool(threads) as pool:
        results = list(BatchTask(pool, work, 0, 100).results())
    assert [row for done in results for row in done.rows] == [row for row in range(100) if row not in damaged]
    assert [done.error.detail for done in results if done.error is not None] == ["5", "6", "40"]
    assert steps == [(0, 100), (6, 14), (7, 15), (15, 47), (41, 49), (49, 81), (81, 100)]


def test_compressed_batches_of_a_window_are_shared_out() -> None:
    payload = b"x" * 200_000
    plain = [builder.batch_v2(payload=payload, base_offset=n, last_offset_delta=0) for n in range(12)]
    packed = [
        builder.batch_v2(payload=payload, base_offset=n, last_offset_delta=0, codec=builder.ZSTD) for n in range(12)
    ]
    for batches, n_shares in ((plain, 1), (packed, 5)):
        source = BufferSource(b"".join(batches))
        found = list(shares(table_of(source.window(0, source.size), 12)))
        assert len(found) == n_shares
        assert [row for first, stop in found for row in range(first, stop)] == list(range(12))
