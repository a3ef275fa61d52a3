"""Threads that work ahead on a plan, and results in the order of the plan.

One thread plans and takes the results; others work on what is planned, a few steps ahead. What the planner meets
meanwhile, such as damage, waits among the steps for its turn, so the number of threads changes nothing but the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from types import TracebackType
from typing import Final, Generic, Protocol, Self, TypeVar

import numpy as np

from kafkalog import format as kf
from kafkalog.errors import KafkalogError
from kafkalog.records.batch_table import BatchTable

_COMPRESSED_BYTES: Final = 2**19  # of batches in one call: few enough for several threads to share a window
_STEP_BEHIND_DAMAGE: Final = 8
_ALL: Final = 2**31

Item = TypeVar("Item")
Result = TypeVar("Result")


class OrderedPool:
    """Threads, and a bound on how far they work ahead.

    Parameters
    ----------
    threads : int
        With 0 there are none: a call is made when its result is asked for.
    name : str
        What the names of the threads begin with.
    """

    def __init__(self, threads: int, name: str = "kafkalog") -> None:
        self._executor = ThreadPoolExecutor(threads, name) if threads else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._executor is not None:
            self._executor.shutdown(wait=True, cancel_futures=True)

    def submit(self, call: Callable[[], Result]) -> Pending[Result]:
        """Have a call made by one of the threads."""
        return Pending(call, None if self._executor is None else self._executor.submit(call))

    def ahead(self, plan: Iterable[Item], n: int) -> Iterator[Item]:
        """Steps of a plan in order; when one is handed out, `n` more have been planned."""
        steps = iter(plan)
        planned: deque[Item] = deque()
        while True:
            while len(planned) <= n:
                try:
                    planned.append(next(steps))
                except StopIteration:
                    break
            if not planned:
                return
            yield planned.popleft()


class Pending(Generic[Result]):
    """The result of a call that is made by a thread, or when it is asked for."""

    def __init__(self, call: Callable[[], Result], future: Future[Result] | None = None) -> None:
        self._call, self._future = call, future

    def wait(self, seconds: float) -> bool:
        """Wait for the call at most so long; whether it is done, or made by who asks for its result."""
        return self._future is None or bool(wait([self._future], seconds).done)

    def result(self) -> Result:
        """What the call returns, or raises."""
        return self._call() if self._future is None else self._future.result()


class Worked(Protocol):
    """What became of some batches."""

    @property
    def n_batches(self) -> int:
        """How many batches are done, from the first on."""

    @property
    def error(self) -> KafkalogError | None:
        """Why the next one could not be."""


AnyWorked = TypeVar("AnyWorked", bound=Worked)


class BatchTask(Generic[AnyWorked]):
    """Work on batches of a window: one call, or several where damage ends one.

    Parameters
    ----------
    pool : OrderedPool
    work : callable
        ``work(first, stop)`` works on rows of the window's batch table until one is damaged.
    first, stop : int
        The rows.
    """

    def __init__(self, pool: OrderedPool, work: Callable[[int, int], AnyWorked], first: int, stop: int) -> None:
        self._pool, self._work = pool, work
        self._first, self._stop = first, stop
        self._pending: Pending[AnyWorked] | None = pool.submit(partial(work, first, stop))

    def results(self) -> Iterator[AnyWorked]:
        """What became of the batches, until all are done; a damaged one is passed over."""
        step = _ALL
        while self._pending is not None:
            done = self._pending.result()
            self._pending = None  # it holds on to the result
            self._first += done.n_batches + (done.error is not None)
            # behind damage more may be near, and whatever is done beyond it is done in vain
            step = _STEP_BEHIND_DAMAGE if done.error is not None else min(4 * step, _ALL)
            first, stop = self._first, min(self._stop, self._first + step)
            if first < stop:
                call = partial(self._work, first, stop)
                # a few batches are sooner worked on than handed to another thread
                self._pending = self._pool.submit(call) if step == _ALL else Pending(call)
            yield done
            del done


def shares(batches: BatchTable, first: int = 0) -> Iterator[tuple[int, int]]:
    """Rows of a window to work on at a time: all, or what of compressed batches several threads can share."""
    n = len(batches)
    if not np.bitwise_or.reduce(batches.attributes[first:]) & kf.CODEC_MASK:
        yield first, n
        return
    share = (batches.position - batches.position[0]) // _COMPRESSED_BYTES
    for stop in [*(np.flatnonzero(np.diff(share)) + 1).tolist(), n]:
        if stop > first:
            yield first, stop
            first = stop
