"""Where a range of offsets ends in logs whose offsets go back."""

from __future__ import annotations

import warnings
from pathlib import Path

import builder
import numpy as np
import pytest
from ways import seams

import kafkalog
from kafkalog.log.segment_reader import overlapping

SIZES = (None, 100, 300, 4096)


def batch(offset: int, value: bytes = b"x") -> bytes:
    return builder.batch_v2([builder.record_v2(0, 0, None, 50 * value)], base_offset=offset)


def offsets_below(path: Path, end: int, size: int | None) -> list[int]:
    with seams(size), warnings.catch_warnings():
        warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
        scan = kafkalog.scan(path, columns=["offset"], end_offset=end, on_corruption="skip", threads=1)
        return scan.to_numpy().offset.tolist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("size", SIZES)
def test_a_segment_that_begins_below_the_end_is_read_though_the_one_before_reaches_it(
    tmp_path: Path, size: int | None
) -> None:
    directory = tmp_path / "p-0"
    directory.mkdir()
    (directory / f"{0:020d}.log").write_bytes(b"".join(map(batch, range(40))))
    (directory / f"{25:020d}.log").write_bytes(b"".join(batch(n, b"y") for n in range(25, 60)))
    (directory / f"{60:020d}.log").write_bytes(b"".join(map(batch, range(60, 70))))
    # both copies of 25..30 are read, or one of them where a window ends at 30
    assert sorted(set(offsets_below(directory, 30, size))) == [*range(30)]
    if size is None:
        assert offsets_below(directory, 30, size) == [*range(30), *range(25, 30)]
    assert offsets_below(directory, 62, size) == [*range(40), *range(25, 62)]


@pytest.mark.parametrize("size", SIZES)
def test_a_segment_ends_at_the_first_batch_behind_which_offsets_are_higher(tmp_path: Path, size: int | None) -> None:
    path = tmp_path / f"{0:020d}.log"
    # 900 was written wrong, as the batch behind it shows; behind 30 and 31 the offsets go back, too late to be noticed
    again = [batch(offset, b"y") for offset in range(5, 10)]
    path.write_bytes(b"".join([*map(batch, [*range(10), 900, *range(11, 32)]), *again, *map(batch, range(40, 50))]))
    assert offsets_below(path, 30, size) == [*range(10), *range(11, 30)]


def test_rows_that_may_hold_offsets_of_a_range(tmp_path: Path) -> None:
    path = tmp_path / f"{0:020d}.log"
    path.write_bytes(b"".join(map(batch, range(10))))
    batches = kafkalog.open(path).batches
    assert overlapping(batches, None, None) is batches
    assert overlapping(batches, 3, 6).base_offset.tolist() == [3, 4, 5]
    assert overlapping(batches, np.int64(9), None).base_offset.tolist() == [9]
