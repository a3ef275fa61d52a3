"""Every intact batch of damaged bytes is found, in linear time; and the heaviest rising rows are chosen."""

import itertools
import struct
import time

import builder
import numpy as np
import pytest
from effort import examples

from kafkalog._kernels.resync import KINDS, first_candidate
from kafkalog.codec import encode
from kafkalog.errors import Limits
from kafkalog.format import Codec
from kafkalog.log.searching.resync import IntactRuns, find_batches, heaviest_rising
from kafkalog.storage.source import BufferSource


def hostile(n_bytes, claimed):
    """A header of a large batch every 61 bytes."""
    head = struct.pack(">qiibIhiqqqhii", 5, claimed, 0, 2, 1, 0, 0, 0, 0, -1, -1, -1, 1)
    return head * (n_bytes // len(head))


@pytest.mark.parametrize("claimed", [100, 3000, 2**20])
def test_the_search_is_linear_in_hostile_bytes(claimed):
    logs = [hostile(n_bytes, claimed) for n_bytes in (2**22, 2**23)]
    took = [10.0, 10.0]
    for _ in range(3):  # in turn: what else runs makes both longer
        for which, data in enumerate(logs):
            before = time.process_time()
            assert sum(len(part) for part in find_batches(BufferSource(data))) == 0
            took[which] = min(took[which], time.process_time() - before)
    assert took[1] < 3 * took[0] + 0.05
    assert took[0] < 2  # 4 MiB


@pytest.mark.parametrize("level", range(3))
def test_each_level_finds_the_same_places_where_a_batch_may_begin(level):
    rng = np.random.default_rng(level)
    for number in range(examples(60)):
        data = rng.integers(0, 256, int(rng.integers(17, 2500)), np.uint8)
        if number % 3:  # runs of zeros, with few other bytes between them
            data[rng.random(data.size) < rng.choice([0.9, 0.99, 1])] = 0
        top = int(rng.integers(0, 128))
        places = [
            at for at in range(data.size - 17)
            if data[at] < 128 and data[at + 8] <= top and data[at + 16] <= 2
            and (data[at + 8 : at + 11].any() or data[at + 11] >= 14)
        ]  # fmt: skip
        found, at = [], 0
        while (at := first_candidate(data, at, top, level)) < data.size - 17:
            found.append(at)
            at += 1
        assert found == places


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_large_batches_are_found_whatever_their_codec(compression):
    values = np.random.default_rng(1).bytes(2**21)
    table = {"value": [values[: 2**20], values[2**20 :]], "timestamp": [1, 2]}
    batch = encode(table, compression=compression)
    data = b"lost" * 1000 + bytes(batch) + b"lost"
    assert len(batch) > 2**20
    assert [(int(part.start[0]), int(part.end[0])) for part in find_batches(BufferSource(data))] == [
        (4000, 4000 + len(batch))
    ]


def test_records_that_seem_to_hold_batches_and_thousands_of_headers_cost_no_more():
    """Each of many intact batches seems to be in a record with the same headers, of which only the last is wrong."""
    one = builder.batch_v2([builder.record_v2()], base_offset=1)
    n, size = 4000, len(one) + 12
    headers = builder.varint(100_000) + b"\x02k\x01" * 99_999 + b"\xff\xff\xff\xff\x0e"
    units = []
    for number in range(n):
        left = (n - number) * size - 12  # from the batch to the headers
        fields = b"\0\0\0\1" + builder.varint(left)
        head = builder.varint(len(fields) + left + len(headers)) + fields
        units.append(b"\xff" * (12 - len(head)) + head + one)
    data = b"\xff" * 20 + b"".join(units) + headers
    before = time.process_time()
    assert sum(len(part) for part in find_batches(BufferSource(data))) == n
    assert time.process_time() - before < 1


def test_the_heaviest_rising_rows_are_those_of_brute_force():
    rng = np.random.default_rng(3)
    for _ in range(examples(300)):
        n = int(rng.integers(1, 9))
        first = rng.integers(0, 30, n)
        last = first + rng.integers(0, 5, n)
        weight = rng.integers(1, 9, n)
        best = 0
        for chosen in range(1 << n):
            rows = [row for row in range(n) if chosen >> row & 1]
            if all(first[b] > last[a] for a, b in itertools.pairwise(rows)):
                best = max(best, int(weight[rows].sum()))
        keep = np.flatnonzero(heaviest_rising(first, last, weight))
        assert (first[keep][1:] > last[keep][:-1]).all()
        assert int(weight[keep].sum()) == best


LARGEST = 2**63 - 1
LONE = [
    *(builder.batch_v2([builder.record_v2(value=b"v")], codec=codec) for codec in Codec),
    builder.batch_v2(last_offset_delta=0),
    builder.batch_v2([builder.record_v2()], base_offset=LARGEST - 5, last_offset_delta=5),
    *(builder.message(0, key, value, magic=m) for m in (0, 1) for key in (None, b"", b"k") for value in (None, b"v")),
]


def test_a_lone_batch_of_any_kind_is_found_between_bytes_that_are_none():
    for batch in LONE:
        data = b"\xff" * 40 + batch + b"\xff" * 40
        for limit, expected in ((len(batch), [(40, 40 + len(batch))]), (len(batch) - 1, [])):
            found = IntactRuns.concatenate(list(find_batches(BufferSource(data), limits=Limits(max_batch_bytes=limit))))
            assert list(zip(found.start.tolist(), found.end.tolist(), strict=True)) == expected, batch


def test_the_smallest_batches_in_a_value_are_seen_to_be_inside():
    for batch in (builder.batch_v2(last_offset_delta=0), builder.message(0, magic=0), builder.message(0, magic=1)):
        record = builder.record_v2(value=batch)  # as short as a record around it can be
        data = b"\xff" * 40 + record + b"\xff" * 40
        found = IntactRuns.concatenate(list(find_batches(BufferSource(data))))
        at = 40 + record.index(batch)
        assert list(zip(found.start.tolist(), found.kind.tolist(), strict=True)) == [(at, KINDS["INSIDE"])]
