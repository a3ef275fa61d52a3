"""Runs the steps of a plan in threads, and returns the results in the order of the plan.

One thread plans and takes the results. The others work on planned steps, a few ahead. Anything that the planner finds
meanwhile, such as damage, is queued among the steps. So the number of threads changes the time, not the result.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from types import TracebackType
from typing import Any, Final, Generic, Protocol, Self, TypeVar

import numpy as np

from kafkalog import format as kf
from kafkalog.errors import KafkalogError
from kafkalog.records.batch_table import BatchTable

_COMPRESSED_BYTES: Final = 2**19  # bytes of batches per call: few enough for several threads to share a window
_STEP_BEHIND_DAMAGE: Final = 8
_ALL: Final = 2**31

Item = TypeVar("Item")
Result = TypeVar("Result")


class OrderedPool:
    """Threads, and a bound on how far they work ahead. Without threads a call is made when its result is requested.

    With `caller_works`, who waits for a result makes calls meanwhile that no thread has begun, and so is one of the
    `threads`. A thread that only waits is woken for each result, and finds its caches used by the others.
    """

    def __init__(self, threads: int, name: str = "kafkalog", *, caller_works: bool = False) -> None:
        self._n_others, self._name, self._caller_works = threads - caller_works, name, caller_works
        self._queue: SimpleQueue[Pending[Any]] = SimpleQueue()
        # True for each call to make, False to end the thread; the futures of an executor would cost 4 %
        self._calls: SimpleQueue[bool] = SimpleQueue()
        self._threads: list[Thread] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(Empty):
            while True:
                self._queue.get_nowait().cancel()
        for _ in self._threads:
            self._calls.put(False)
        # threads that still work would read files that the caller closes next
        for thread in self._threads:
            thread.join()
        self._threads.clear()

    def submit(self, call: Callable[[], Result]) -> Pending[Result]:
        """Queue a call for one of the threads."""
        if self._n_others <= 0:
            return Pending(call)
        pending = Pending(call, self._queue, helps=self._caller_works)
        self._queue.put(pending)
        # a caller that works makes one call itself: for a small file no thread is started, and none is woken in vain
        if not self._caller_works or self._queue.qsize() > 1:
            if len(self._threads) < self._n_others:
                thread = Thread(target=self._make_calls, name=f"{self._name}_{len(self._threads)}", daemon=True)
                thread.start()
                self._threads.append(thread)
            self._calls.put(True)
        return pending

    def _make_calls(self) -> None:
        """What a thread does until the pool ends."""
        while self._calls.get():
            _make_next(self._queue)

    def ahead(
        self, plan: Iterable[Item], n: int, is_done: Callable[[Item], bool] = lambda step: False
    ) -> Iterator[Item]:
        """Steps of a plan in order; when one is yielded, `n` more have been planned, unless it needed no work."""
        steps = iter(plan)
        planned: deque[Item] = deque()
        while True:
            # this bounds memory: a planned step holds a window, and then its result
            while len(planned) <= n and not (planned and is_done(planned[-1])):
                try:
                    planned.append(next(steps))
                except StopIteration:
                    break
            if not planned:
                return
            yield planned.popleft()


class Pending(Generic[Result]):
    """The result of a call that a thread makes, or that is made when the result is requested."""

    def __init__(
        self, call: Callable[[], Result], queue: SimpleQueue[Pending[Any]] | None = None, *, helps: bool = False
    ) -> None:
        self._call: Callable[[], Result] | None = call
        self._queue, self._helps = queue, helps
        self._value: Result | None = None
        self._error: BaseException | None = None
        self._running = Lock()  # held until the call was made
        if queue is not None:
            self._running.acquire()

    def make(self) -> None:
        """Make the call, and keep what it returns or raises."""
        call, self._call = self._call, None
        try:
            self._value = call()  # type: ignore[misc]
        except BaseException as error:
            self._error = error
        finally:
            del call
            self._running.release()

    def cancel(self) -> None:
        """End a call that nobody has begun; `result` raises."""
        self._error = CancelledError()
        self._running.release()

    def wait(self, seconds: float) -> bool:
        """Wait for the call at most `seconds`; whether `result` does not block on a thread any more."""
        if self._queue is None:
            return True
        is_done = self._running.acquire(timeout=seconds)
        if is_done:
            self._running.release()
        return is_done

    def result(self) -> Result:
        """Return or raise what the call does."""
        if self._queue is None:
            return self._call()  # type: ignore[misc]
        while self._helps and self._running.locked():
            made = _make_next(self._queue)
            if made is None:
                break
            if made._error is not None and not isinstance(made._error, Exception):
                raise made._error  # Ctrl-C, while this thread made the call
        with self._running:
            pass
        try:
            if self._error is not None:
                raise self._error
            return self._value  # type: ignore[return-value]
        finally:
            del self  # the error's traceback has this frame


def _make_next(queue: SimpleQueue[Pending[Any]]) -> Pending[Any] | None:
    """Make the oldest call that nobody has begun; None if there is none."""
    try:
        pending = queue.get_nowait()
    except Empty:
        return None
    pending.make()
    return pending


class Worked(Protocol):
    """The result of work on some batches."""

    @property
    def n_batches(self) -> int:
        """How many batches are done, from the first one on."""

    @property
    def error(self) -> KafkalogError | None:
        """The damage in the batch after those; None if there is none."""


AnyWorked = TypeVar("AnyWorked", bound=Worked)


class BatchTask(Generic[AnyWorked]):
    """Work on batches of a window: one call, or several if damage ends a call.

    ``work(first, stop)`` works on rows of the window's batch table, up to the first damaged one.
    """

    is_done = False
    """Whether the work was done before the task was made."""

    def __init__(self, pool: OrderedPool, work: Callable[[int, int], AnyWorked], first: int, stop: int) -> None:
        self._pool, self._work = pool, work
        self._first, self._stop = first, stop
        self._pending: Pending[AnyWorked] | None = self._pool.submit(partial(work, first, stop))

    def results(self) -> Iterator[AnyWorked]:
        """The results of the calls, until all batches are done; damaged batches are skipped."""
        step = _ALL
        while self._pending is not None:
            done = self._pending.result()
            self._pending = None  # it keeps the result alive
            self._first += done.n_batches + (done.error is not None)
            # more damage may be near, and work beyond it would be lost: start with a few batches, then take more
            step = _STEP_BEHIND_DAMAGE if done.error is not None else min(4 * step, _ALL)
            first, stop = self._first, min(self._stop, self._first + step)
            if first < stop:
                call = partial(self._work, first, stop)
                # for a few batches, handing over to a thread costs more than the work
                self._pending = self._pool.submit(call) if step == _ALL else Pending(call)
            yield done
            # the caller alone holds the result now, so that it is freed before the next one is asked for
            del done


class DoneTask(Generic[AnyWorked]):
    """A `BatchTask` whose work was done, without damage, in the call that read the batches."""

    is_done = True

    def __init__(self, result: AnyWorked) -> None:
        self._result: AnyWorked | None = result

    def results(self) -> Iterator[AnyWorked]:
        """The result, once; nobody but the caller holds it then."""
        result, self._result = self._result, None
        if result is not None:
            yield result


def shares(batches: BatchTable, first: int = 0) -> Iterator[tuple[int, int]]:
    """Ranges of rows to work on at a time: all rows, or shares of the window if batches are compressed."""
    n = len(batches)
    if not np.bitwise_or.reduce(batches.attributes[first:]) & kf.CODEC_MASK:
        yield first, n
        return
    share = (batches.position - batches.position[0]) // _COMPRESSED_BYTES
    for stop in [*(np.flatnonzero(np.diff(share)) + 1).tolist(), n]:
        if stop > first:
            yield first, stop
            first = stop
