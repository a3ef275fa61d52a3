"""Segments are rolled where brokers rolled them, by each of the conditions and by all of them together."""

import numpy as np
import pytest
from writing import batch_table

from kafkalog import LogConfig
from kafkalog.writing.segment_writer import SegmentRoll, rolled_base_offset

pytestmark = pytest.mark.kernels

INT32_MAX = 2**31 - 1


def broker_rolls(base, batches, conditions, jitter_ms=0):
    """`LogSegment.shouldRoll` and `append`, a batch at a time, as they are written in Java."""
    size, since, first, largest, last_time = 0, 0, None, -1, -1
    n_offset = n_time = 0
    for row in range(len(batches)):
        nbytes, stamp = int(batches.size_in_bytes[row]), int(batches.max_timestamp[row])
        relative = int(batches.last_offset[row]) - base
        waited = stamp - first if first is not None and first >= 0 else 0
        waited = (waited + 2**63) % 2**64 - 2**63
        if not 0 <= relative <= INT32_MAX:
            return row
        if size > 0 and (
            size > conditions.segment_bytes - nbytes
            or waited > conditions.segment_ms - jitter_ms
            or n_offset >= conditions.segment_index_bytes // 8
            or n_time >= conditions.segment_index_bytes // 12 - 1
        ):
            return row
        first = stamp if size == 0 else first
        largest = max(largest, stamp)
        if since > conditions.index_interval_bytes:
            n_offset += 1
            if largest > last_time:
                n_time, last_time = n_time + 1, largest
            since = 0
        since += nbytes
        size += nbytes
    return len(batches)


def test_the_kernel_agrees_with_a_broker_s_loop_on_drawn_batches():
    rng = np.random.default_rng(7)
    stops = []
    for _ in range(800):
        n = int(rng.integers(1, 60))
        steps = rng.choice([1, 2, 50, 2**29], n, p=[0.7, 0.2, 0.07, 0.03])
        base = int(rng.choice([0, 10**15]))
        stamps = rng.choice([-1, 0, 2**62, 10**12], n) + rng.integers(0, 2000, n).cumsum()
        batches = batch_table(
            rng.integers(61, 700, n), base + np.cumsum(steps) - 1, np.where(rng.random(n) < 0.1, -1, stamps)
        )
        if rng.random() < 0.5:
            batches.max_timestamp[:] = np.sort(batches.max_timestamp)
        conditions = LogConfig(
            segment_bytes=int(rng.choice([14, 1000, 5000, 2**30])),
            segment_ms=int(rng.choice([1, 5000, 30000, 2**63 - 1])),
            segment_index_bytes=int(rng.choice([12, 24, 96, 10485760])),
            index_interval_bytes=int(rng.choice([0, 300, 1024, 4096])),
        )
        jitter = int(rng.integers(min(conditions.segment_ms, 1000)))
        roll = SegmentRoll(base, conditions, jitter)
        expected = broker_rolls(base, batches, conditions, jitter)
        cut = int(rng.integers(n + 1))
        first = roll.take(batches[:cut])
        found = first if first < cut else cut + roll.take(batches[cut:])
        assert found == expected
        assert roll.size_in_bytes == int(batches.size_in_bytes[:found].sum())
        stops.append(expected < n)
    assert 200 < sum(stops) < 780


def test_an_offset_that_is_too_far_rolls_even_an_empty_segment():
    far = batch_table(100, [INT32_MAX, INT32_MAX + 1])
    assert SegmentRoll(0, LogConfig()).take(far) == 1
    assert SegmentRoll(0, LogConfig()).take(far[1:]) == 0
    assert rolled_base_offset(far, 1, 5) == INT32_MAX + 1
    far.magic[:] = 1  # how far down an old message set reaches is not looked for
    assert rolled_base_offset(far, 1, 5) == 5
    far.last_offset[:] += 100
    assert rolled_base_offset(far, 1, 5) == 101
