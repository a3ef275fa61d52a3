"""A run hands on its windows one by one, and knows where it has got."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kafkalog.records.record_run import RecordRun


def window(number: int, batch: Any) -> Any:
    return SimpleNamespace(
        n_batches=2,
        first_offset=10 * number,
        last_offset=10 * number + 9,
        last_position=100 * number + 50,
        end_position=100 * number + 100,
        batch=batch,
    )


def test_a_run_gives_the_batches_of_its_windows_and_says_where_it_ends() -> None:
    following = [window(1, None), window(2, "c"), None]
    reached: list[tuple[int, int]] = []

    def read_next(run: RecordRun) -> Any:
        reached.append((run.end_position, run.end_offset))
        return following.pop(0)

    run = RecordRun(0, window(0, "a"), read_next)
    assert (run.first_offset, run.end_position, run.end_offset, len(run)) == (0, 100, 10, 0)
    assert list(run) == ["a", "c"]  # a window of control batches alone has no records
    assert reached == [(100, 10), (200, 20), (300, 30)]
    assert (run.end_position, run.end_offset, run.last_position, len(run)) == (300, 30, 250, 6)
    assert list(run) == []
