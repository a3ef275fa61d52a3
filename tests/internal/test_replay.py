"""The last record of each key."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pyarrow as pa

from kafkalog.internal.reading import COLUMNS
from kafkalog.internal.replay import LastRecords

COMMIT, ABORT = b"\0\0\0\1", b"\0\0\0\0"


def batch(*rows: tuple[Any, ...]) -> pa.RecordBatch:
    """Rows of offset, key, value, producer id, is transactional, is control."""
    filled = [
        dict(zip(COLUMNS, (0, offset, 1000 + offset, key, value, producer, txn, control), strict=True))
        for offset, key, value, producer, txn, control in rows
    ]
    data, flag, time = pa.binary(), pa.bool_(), pa.timestamp("ms", tz="UTC")
    types = (pa.int32(), pa.int64(), time, data, data, pa.int64(), flag, flag)
    return pa.RecordBatch.from_pylist(filled, schema=pa.schema(list(zip(COLUMNS, types, strict=True))))


def plain(offset: int, key: bytes | None, value: bytes | None) -> tuple[Any, ...]:
    return offset, key, value, -1, False, False


def values(*batches: pa.RecordBatch) -> dict[bytes, bytes | None]:
    last = LastRecords()
    last.feed(batches)
    return {key: record.value for key, record in last.by_key.items()}


def test_the_last_value_of_each_key_stays() -> None:
    first = batch(plain(0, b"a", b"1"), plain(1, b"b", b"1"), plain(2, b"a", b"2"))
    second = batch(plain(3, b"b", None), plain(4, None, b"x"))
    assert values(first, second, batch()) == {b"a": b"2", b"b": None}


def test_a_transaction_counts_once_it_is_committed() -> None:
    opened = batch((0, b"a", b"1", 7, True, False), plain(1, b"b", b"1"))
    assert values(opened) == {b"b": b"1"}
    assert values(opened, batch((2, COMMIT, b"", 7, True, True))) == {b"b": b"1", b"a": b"1"}
    assert values(opened, batch((2, ABORT, b"", 7, True, True))) == {b"b": b"1"}
    assert values(opened, batch((2, COMMIT, b"", 8, True, True))) == {b"b": b"1"}, "another producer's marker"


def test_a_commit_does_not_undo_what_was_written_after_its_record() -> None:
    opened = batch((0, b"a", b"1", 7, True, False), plain(1, b"a", b"2"))
    assert values(opened, batch((2, COMMIT, b"", 7, True, True))) == {b"a": b"2"}


def test_offsets_and_times_are_those_of_the_last_record() -> None:
    last = LastRecords()
    last.feed([batch(plain(5, b"a", b"1"), plain(9, b"a", b"2"))])
    record = last.by_key[b"a"]
    assert (record.partition, record.offset, record.timestamp) == (0, 9, 1009)


def test_random_transactions_against_one_record_after_the_other() -> None:
    rng = random.Random(18)
    for _ in range(150):
        rows: list[tuple[Any, ...]] = []
        for offset in range(rng.randint(1, 60)):
            producer, kind = rng.randint(0, 3), rng.random()
            if kind < 0.25:
                rows.append((offset, rng.choice((COMMIT, ABORT)), b"", producer, True, True))
            else:
                key = rng.choice((b"a", b"b", b"c", None)) if kind < 0.9 else b"d"
                value = rng.choice((None, str(offset).encode()))
                rows.append((offset, key, value, producer, kind < 0.7, False))
        expected: dict[bytes, tuple[int, bytes | None]] = {}
        pending: dict[int, list[tuple[int, bytes, bytes | None]]] = {}
        for offset, key, value, producer, is_transactional, is_control in rows:
            if is_control:
                for one in pending.pop(producer, []):
                    if key == COMMIT and expected.get(one[1], (-1, None))[0] < one[0]:
                        expected[one[1]] = one[0], one[2]
            elif key is not None and is_transactional:
                pending.setdefault(producer, []).append((offset, key, value))
            elif key is not None:
                expected[key] = offset, value
        cuts = sorted({0, len(rows), *(rng.randint(0, len(rows)) for _ in range(rng.randint(0, 4)))})
        last = LastRecords()
        last.feed([batch(*rows[begin:end]) for begin, end in itertools.pairwise(cuts)])
        assert {key: (one.offset, one.value) for key, one in last.by_key.items()} == expected
