"""Results come in the order of the plan, however many threads work, and no step is planned too far ahead."""

from __future__ import annotations

import threading
import time
from concurrent.futures import CancelledError
from functools import partial
from typing import NamedTuple

import pytest

from kafkalog.errors import CorruptionError, KafkalogError, Reason
from kafkalog.scanning.ordered_pool import BatchTask, OrderedPool


class Done(NamedTuple):
    rows: list[int]
    n_batches: int
    error: KafkalogError | None = None


@pytest.mark.parametrize("caller_works", [False, True])
@pytest.mark.parametrize("threads", [0, 1, 4])
def test_results_come_in_the_order_of_the_plan(threads, caller_works):
    def work(number):
        time.sleep(0.002 * (number % 3))
        return number

    with OrderedPool(threads, caller_works=caller_works) as pool:
        plan = ("met" if number % 5 == 4 else pool.submit(partial(work, number)) for number in range(20))
        found = [step if isinstance(step, str) else step.result() for step in pool.ahead(plan, threads)]
    assert found == ["met" if number % 5 == 4 else number for number in range(20)]


def test_a_caller_that_works_makes_calls_while_it_waits():
    threads = []
    release = threading.Event()

    def work(number):
        threads.append(threading.current_thread().name)
        if number == 0:
            release.wait(60)
        elif number == 2:
            release.set()
        return number

    with OrderedPool(2, caller_works=True) as pool:
        steps = [pool.submit(partial(work, number)) for number in range(2)]
        while not threads:
            time.sleep(0.001)
        # the other thread has begun the first call, and ends it once this one has made the third
        steps.append(pool.submit(partial(work, 2)))
        assert [step.result() for step in steps] == [0, 1, 2]
    assert threads[1:] == [threading.current_thread().name] * 2


@pytest.mark.parametrize("caller_works", [False, True])
def test_the_end_of_the_pool_cancels_what_has_not_begun(caller_works):
    begun, is_planned = threading.Event(), threading.Event()
    steps = []

    def work():
        begun.set()
        is_planned.wait(60)
        steps[-1].wait(60)  # until it is cancelled

    with OrderedPool(1 + caller_works, caller_works=caller_works) as pool:
        steps += [pool.submit(work) for _ in range(3)]
        is_planned.set()
        assert begun.wait(60)
    assert steps[0].result() is None
    for step in steps[1:]:
        with pytest.raises(CancelledError):
            step.result()


@pytest.mark.parametrize("threads", [0, 3])
def test_a_task_passes_over_what_is_damaged_and_takes_small_steps_behind_it(threads):
    steps = []
    damaged = {5, 6, 40}

    def work(first, stop):
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
