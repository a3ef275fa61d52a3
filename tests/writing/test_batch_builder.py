"""However records are cut into pieces, the same batches come of them, and small pieces cost no more than large ones."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from writing import Record, columns_of, draw

from kafkalog.errors import UnwritableError
from kafkalog.records.columns import RecordColumns
from kafkalog.records.encode import cut_batches, encode_batches
from kafkalog.writing import batch_builder
from kafkalog.writing.batch_builder import Filled, RecordAccumulator


def numbered(records: list[Record], step: int = 1) -> RecordColumns:
    return columns_of([record._replace(offset=step * row) for row, record in enumerate(records)])


def fill(accumulator: RecordAccumulator, columns: RecordColumns, cuts: list[int]) -> list[Filled]:
    """All that comes out when records come in pieces."""
    ends = sorted({0, *cuts, columns.n_records})
    given_out = [accumulator.add(columns.slice(start, stop)) for start, stop in itertools.pairwise(ends)]
    return [filled for filled in (*given_out, accumulator.finish()) if filled is not None]


def written(filled: list[Filled]) -> bytes:
    return b"".join(encode_batches(*one).data.tobytes() for one in filled)


RECORDS = st.lists(
    st.builds(
        Record,
        timestamp=st.sampled_from([-1, 0, 1_700_000_000_000]),
        key=st.none() | st.sampled_from([b"", b"k" * 30]),
        value=st.none() | st.sampled_from([b"", b"v", b"v" * 90, b"v" * 700]),
        headers=st.sampled_from([(), (("h", None),), (("h", b"x" * 50), ("", b""))]),
    ),
    min_size=1,
    max_size=60,
)


@given(
    RECORDS,
    st.lists(st.integers(0, 60)),
    st.sampled_from([1, 80, 200, 900, 10**6]),
    st.sampled_from([None, 1, 7]),
    st.sampled_from([1, 2**30]),
)
def test_batches_are_the_same_however_records_were_cut(
    records: list[Record], cuts: list[int], batch_size: int, max_records: int | None, step: int
) -> None:
    columns = numbered(records, step)
    boundaries = cut_batches(columns, batch_size=batch_size, max_records=max_records)
    accumulator = RecordAccumulator(batch_size=batch_size, max_records=max_records)
    filled = fill(accumulator, columns, [cut for cut in cuts if cut < len(records)])
    sizes = np.concatenate([np.diff(bounds) for _, bounds in filled])
    assert sizes.tolist() == np.diff(boundaries).tolist()
    assert written(filled) == encode_batches(columns, boundaries).data.tobytes()
    assert accumulator.last_offset is None
    assert accumulator.finish() is None


@pytest.mark.parametrize("n_rows", [1, 10, 100])
def test_small_pieces_are_neither_cut_nor_copied_again_and_again(n_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    n_pieces = 2000
    n_cut = n_copied = 0
    whole_cut, whole_concatenate = cut_batches, RecordColumns.concatenate

    def cut(columns: RecordColumns, **options: int) -> object:
        nonlocal n_cut
        n_cut += columns.n_records
        return whole_cut(columns, **options)

    def concatenate(parts: list[RecordColumns]) -> RecordColumns:
        nonlocal n_copied
        n_copied += sum(part.n_records for part in parts) * (len(parts) > 1)
        return whole_concatenate(parts)

    monkeypatch.setattr(batch_builder, "cut_batches", cut)
    monkeypatch.setattr(RecordColumns, "concatenate", concatenate)
    accumulator = RecordAccumulator(batch_size=1000 * n_rows * 20)
    piece = columns_of([Record(value=b"v" * 20)] * n_rows)
    for number in range(n_pieces):
        offset = np.arange(number * n_rows, (number + 1) * n_rows)
        accumulator.add(RecordColumns(n_rows, {**piece, "offset": offset}))
        assert len(accumulator._parts) < 64
    filled = accumulator.finish()
    assert filled is not None
    n = n_pieces * n_rows
    assert accumulator._n_done == n
    assert 0 < n_cut < 3 * n
    assert 0 < n_copied < 8 * n  # not once for each piece of its batch


def test_what_waits_is_not_much_more_than_a_batch() -> None:
    accumulator = RecordAccumulator(batch_size=20_000)
    columns = numbered([Record(value=bytes(size)) for size in [100] * 500 + [50_000, 10] * 5 + [1] * 3000])
    most = n_out = 0
    for row in range(columns.n_records):
        filled = accumulator.add(columns.slice(row, row + 1))
        n_out += filled is not None
        most = max(most, sum(accumulator._sizes))
    assert n_out > 5
    assert most < 2 * 50_100


def test_a_record_that_cannot_be_written_is_named_by_its_row_in_the_whole() -> None:
    records = draw(300)
    offsets = [*range(250), 100, *range(251, 300)]
    columns = columns_of([record._replace(offset=offset) for record, offset in zip(records, offsets, strict=True)])
    for size in (300, 40, 7):
        accumulator = RecordAccumulator(batch_size=500)
        with pytest.raises(UnwritableError, match="row 250: its offset") as caught:
            fill(accumulator, columns, list(range(0, 300, size)))
        assert caught.value.row == 250
