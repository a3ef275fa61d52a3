"""Hypothesis strategies for whole segments, their expected records, and damaged copies of them.

Built on ``builder`` alone: the expected records come from what was drawn, not from reading the bytes back, so that
``reference.read_segment`` and the library can both be held against them.
"""

import functools
import struct
from dataclasses import dataclass
from typing import NamedTuple

import builder
import mutants
import numpy as np
from hypothesis import strategies as st
from reference import Record

I16 = st.integers(-(1 << 15), (1 << 15) - 1)
I32 = st.integers(-(1 << 31), (1 << 31) - 1)
I64 = st.integers(-(1 << 63), (1 << 63) - 1)

TIMESTAMPS = st.one_of(
    st.integers(1_699_999_999_000, 1_700_000_001_000),
    st.sampled_from([-1, 0, 1, -(1 << 63), (1 << 63) - 1, 1 << 32, -86_400_000]),
    I64,
)
_LARGE = st.builds(lambda unit, n: unit * n, st.binary(min_size=1, max_size=7), st.integers(100, 20_000))
BLOBS = st.one_of(st.none(), st.binary(max_size=12), st.sampled_from([b"", b"\0", b"tech", b"for good", b"\xff" * 70]))
VALUES = st.integers(0, 19).flatmap(lambda pick: _LARGE if pick == 0 else BLOBS)
HEADER_NAMES = st.one_of(st.sampled_from([b"", b"n", b"trace-id", b"\xff\xfe", "é".encode()]), st.binary(max_size=5))
HEADERS = st.lists(st.tuples(HEADER_NAMES, BLOBS), max_size=4)


class Draft(NamedTuple):
    """The producer's part of a record."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: list[tuple[bytes, bytes | None]]


@dataclass(frozen=True)
class Built:
    """The bytes of one batch, message or wrapper and the records that they hold."""

    data: bytes
    records: list[Record]
    last_offset: int
    """No later record may have this offset or a lower one."""


@dataclass(frozen=True)
class Segment:
    """A healthy segment: ``data`` is the whole ``.log`` file, ``batches`` the (start, end) of each batch in it."""

    data: bytes
    records: list[Record]
    batches: list[tuple[int, int]]
    base_offset: int


@dataclass(frozen=True)
class Damaged:
    """A segment after an accident."""

    data: bytes


def records(*, headers=True):
    """What one record of a producer can hold; without headers as in v0 and v1."""
    return st.builds(
        Draft,
        TIMESTAMPS,
        BLOBS,
        VALUES,
        HEADERS if headers else st.just([]),  # a list of its own is never changed
    )


@st.composite
def _offset_deltas(draw, n):
    """Increasing deltas, with holes as compaction leaves them, and a last offset delta."""
    dense = draw(st.booleans())
    gaps = st.just(0) if dense else st.one_of(st.integers(0, 3), st.integers(0, 10_000_000))
    deltas = []
    following = 0
    for _ in range(n):
        following += draw(gaps)
        deltas.append(following)
        following += 1
    last = deltas[-1] if n else 0
    return deltas, last + draw(gaps)


@st.composite
def _v2_batches(draw, codec, base_offset, position):
    n = draw(st.sampled_from([0, 1, 1, 2, 3, 5, 8]))
    drafts = [draw(records()) for _ in range(n)]
    deltas, last_offset_delta = draw(_offset_deltas(n))
    log_append_time = draw(st.sampled_from([False, False, False, True]))
    delete_horizon = n > 0 and draw(st.sampled_from([False, False, False, True]))
    base_timestamp = draw(TIMESTAMPS) if delete_horizon or not n else drafts[0].timestamp
    if log_append_time or not n:
        max_timestamp = draw(TIMESTAMPS)
    else:
        max_timestamp = max(draft.timestamp for draft in drafts)
    transactional = draw(st.booleans())
    base_sequence = draw(st.one_of(st.just(-1), st.integers(0, 9), st.integers((1 << 31) - 9, (1 << 31) - 1)))
    common = {
        "leader_epoch": draw(st.one_of(st.integers(-1, 9), I32)),
        "producer_id": draw(st.one_of(st.just(-1), st.integers(0, 9), I64)),
        "producer_epoch": draw(I16),
    }
    payload = b"".join(
        builder.record_v2(
            delta, builder.wrap64(draft.timestamp - base_timestamp), draft.key, draft.value, draft.headers
        )
        for delta, draft in zip(deltas, drafts, strict=True)
    )
    if n:
        payload = builder.compress_variant(codec, payload, 2, draw(st.integers(0, builder.N_VARIANTS[codec] - 1)))
    data = builder.batch_v2(
        base_offset=base_offset,
        codec=codec,
        log_append_time=log_append_time,
        transactional=transactional,
        delete_horizon=delete_horizon,
        last_offset_delta=last_offset_delta,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        base_sequence=base_sequence,
        records_count=n,
        payload=payload,
        **common,
    )
    expected = [
        Record(
            base_offset + delta,
            max_timestamp if log_append_time else draft.timestamp,
            int(log_append_time),
            *draft[1:],
            sequence=-1 if base_sequence == -1 else (base_sequence + delta) % (1 << 31),
            is_transactional=transactional,
            codec=codec,
            batch_base_offset=base_offset,
            batch_position=position,
            **common,
        )
        for delta, draft in zip(deltas, drafts, strict=True)
    ]
    return Built(data, expected, base_offset + last_offset_delta)


@st.composite
def _control_batches(draw, base_offset, position):
    control_type = draw(st.sampled_from([builder.ABORT, builder.COMMIT]))
    coordinator_epoch, timestamp = draw(I32), draw(TIMESTAMPS)
    common = {"producer_id": draw(st.integers(0, 9)), "producer_epoch": draw(st.integers(0, 9))}
    data = builder.control_batch(
        control_type, base_offset=base_offset, coordinator_epoch=coordinator_epoch, timestamp=timestamp, **common
    )
    record = Record(
        base_offset,
        timestamp,
        0,
        struct.pack(">hh", 0, control_type),
        struct.pack(">hi", 0, coordinator_epoch),
        [],
        leader_epoch=0,
        is_transactional=True,
        is_control=True,
        batch_base_offset=base_offset,
        batch_position=position,
        **common,
    )
    return Built(data, [record], base_offset)


def _legacy_record(offset, draft, timestamp, timestamp_type, codec, base, position, magic):
    place = {"batch_base_offset": base, "batch_position": position}
    return Record(offset, timestamp, timestamp_type, draft.key, draft.value, [], codec=codec, magic=magic, **place)


@st.composite
def _messages(draw, magic, base_offset, position):
    draft = draw(records(headers=False))
    log_append_time = magic == 1 and draw(st.booleans())
    data = builder.message(
        base_offset, draft.key, draft.value, magic=magic, timestamp=draft.timestamp, log_append_time=log_append_time
    )
    timestamp, timestamp_type = (None, -1) if magic == 0 else (draft.timestamp, int(log_append_time))
    record = _legacy_record(base_offset, draft, timestamp, timestamp_type, 0, base_offset, position, magic)
    return Built(data, [record], base_offset)


@st.composite
def _wrappers(draw, magic, codec, base_offset, position, as_brokers_write):
    drafts = draw(st.lists(records(headers=False), min_size=1, max_size=5))
    deltas, _ = draw(_offset_deltas(len(drafts)))
    inner_magic = draw(st.sampled_from([magic, magic, magic, 1 - magic]))
    log_append_time = magic == 1 and draw(st.booleans())
    wrapper_timestamp = draw(TIMESTAMPS)
    if as_brokers_write and not log_append_time:
        wrapper_timestamp = max(draft.timestamp for draft in drafts)
    wrapper_offset = base_offset + deltas[-1]
    inner_offsets = [base_offset + delta for delta in deltas]
    if magic == 1:
        if base_offset == 0 and position == 0 and draw(st.booleans()):
            wrapper_offset = 0  # as librdkafka sends it: the inner offsets stand as they are
        elif draw(st.sampled_from([True, True, False])):
            first = draw(st.integers(0, min(3, base_offset)))  # messages before it were compacted away
            inner_offsets = [first + delta for delta in deltas]
    messages = b"".join(
        builder.message(
            offset,
            draft.key,
            draft.value,
            magic=inner_magic,
            timestamp=draft.timestamp,
            crc=draw(st.sampled_from([None, 1])),  # inner CRCs are not checked
        )
        for offset, draft in zip(inner_offsets, drafts, strict=True)
    )
    if draw(st.sampled_from([False, False, False, True])):
        messages += builder.message(1, b"cut", b"off")[: draw(st.integers(1, 30))]  # silently dropped
    variant = draw(st.integers(0, builder.N_VARIANTS[codec] - 1))
    data = builder.wrapper(
        [],
        offset=wrapper_offset,
        magic=magic,
        codec=codec,
        timestamp=wrapper_timestamp,
        log_append_time=log_append_time,
        payload=builder.compress_variant(codec, messages, magic, variant),
    )
    expected = []
    for delta, draft in zip(deltas, drafts, strict=True):
        timestamp, timestamp_type = (None, -1)
        if inner_magic == 1:
            timestamp = wrapper_timestamp if log_append_time else draft.timestamp
            timestamp_type = -1 if magic == 0 else int(log_append_time)
        expected.append(
            _legacy_record(
                base_offset + delta,
                draft,
                timestamp,
                timestamp_type,
                codec,
                base_offset + deltas[0],
                position,
                inner_magic,
            )
        )
    return Built(data, expected, base_offset + deltas[-1])


@st.composite
def batches(draw, magic=None, codec=None, base_offset=0, position=0, as_brokers_write=False):
    """One v2 batch (with records, without, or a transaction marker), message or wrapper.

    ``magic`` and ``codec`` are drawn where None is given; ``position`` is where it will stand in the file. With
    ``as_brokers_write`` a wrapper says the largest timestamp inside.
    """
    if magic is None:
        magic = draw(st.sampled_from([2, 2, 1, 0]))
    if codec is None:
        codec = draw(st.integers(0, 4 if magic == 2 else 3))
        if magic == 2 and codec == 0 and draw(st.sampled_from([False, False, True])):
            return draw(_control_batches(base_offset, position))
    if magic == 2:
        return draw(_v2_batches(codec, base_offset, position))
    if codec == 0:
        return draw(_messages(magic, base_offset, position))
    return draw(_wrappers(magic, codec, base_offset, position, as_brokers_write))


@st.composite
def segments(draw, magic=None, codec=None, min_batches=0, max_batches=6, as_brokers_write=False):
    """A healthy segment; ``magic`` and ``codec`` are mixed where None is given; see `batches`."""
    base_offset = draw(st.one_of(st.just(0), st.integers(0, 1000), st.integers(0, 1 << 40), st.integers(0, 1 << 62)))
    gaps = st.one_of(st.just(0), st.integers(0, 5), st.integers(0, 1 << 33))
    offset = base_offset
    data = b""
    expected = []
    positions = []
    for i in range(draw(st.integers(min_batches, max_batches))):
        offset += draw(gaps) if i else 0
        built = draw(batches(magic, codec, offset, len(data), as_brokers_write))
        positions.append((len(data), len(data) + len(built.data)))
        data += built.data
        expected += built.records
        offset = built.last_offset + 1
    return Segment(data, expected, positions, base_offset)


# ------------------------------------------------------------------------------------------------- transactions


@dataclass(frozen=True)
class TransactionLog:
    """A partition that transactional producers wrote to: (base offset, content) of each segment."""

    segments: list[tuple[int, bytes]]
    end_offset: int


@st.composite
def _transactional_batches(draw, offset, ids):
    """Bytes and last offset of a batch; `ids` has the epoch of each producer."""
    kind = draw(
        st.sampled_from([*["data"] * 6, *["marker"] * 5, "idempotent", "plain", "old", "empty", "emptied", "raft"])
    )
    producer_id = draw(st.sampled_from([0, 1, 2, 2**40]))
    if draw(st.integers(0, 5)) == 0:
        ids[producer_id] = ids.get(producer_id, 0) + 1
    common = {
        "base_offset": offset,
        "producer_id": producer_id,
        "producer_epoch": ids.get(producer_id, 0),
    }
    control_type = draw(st.sampled_from([builder.ABORT, builder.COMMIT]))
    if kind == "marker":
        codec = draw(st.sampled_from([0, 0, 0, 0, builder.GZIP, builder.ZSTD]))
        record = builder.record_v2(
            0, draw(st.sampled_from([0, -(2**40)])), struct.pack(">hh", 0, control_type), bytes(6)
        )
        transactional = draw(st.sampled_from([True, True, True, False]))
        return builder.batch_v2([record], codec=codec, transactional=transactional, control=True, **common), offset
    if kind == "raft":
        record = builder.record_v2(0, 0, struct.pack(">hh", 0, 2), b"")
        return builder.batch_v2([record], base_offset=offset, control=True), offset
    n = draw(st.integers(1, 3))
    last = offset + n - 1 + draw(st.sampled_from([0, 0, 0, 2]))
    if kind == "old":
        magic = draw(st.sampled_from([0, 1]))
        value = b"old %d" % offset
        if draw(st.booleans()):
            return builder.message(offset, b"k", value, magic=magic), offset
        inner = offset if magic == 0 else 0
        return builder.wrapper(
            [builder.message(inner, b"k", value, magic=magic)], offset=offset, magic=magic, codec=1
        ), offset
    if kind in ("empty", "emptied"):
        return builder.batch_v2(
            transactional=True, control=kind == "emptied", last_offset_delta=last - offset, **common
        ), last
    if kind == "plain":
        common = {"base_offset": offset}
    records_of = [
        builder.record_v2(i, 0, b"k", b"%d %d" % (offset + i, i) * draw(st.sampled_from([1, 20]))) for i in range(n)
    ]
    codec = draw(st.sampled_from([0, 0, builder.LZ4]))
    return builder.batch_v2(
        records_of, codec=codec, transactional=kind == "data", last_offset_delta=last - offset, **common
    ), last


@st.composite
def transaction_logs(draw, max_batches=30):
    """Interleaved transactions of a few producers, with all that a log may hold between them.

    Ids are used again, with later epochs too; markers lie in later segments, twice, or nowhere; compaction left holes
    and empty batches; some transactions are open at the end.
    """
    offset = draw(st.sampled_from([0, 0, 7, 2**33]))
    ids = {}
    parts = [(offset, b"")]
    for _ in range(draw(st.integers(0, max_batches))):
        offset += draw(st.sampled_from([0, 0, 0, 0, 0, 1, 5]))
        if draw(st.integers(0, 7)) == 0 and offset > parts[-1][0]:
            parts.append((offset, b""))
        data, last = draw(_transactional_batches(offset, ids))
        parts[-1] = (parts[-1][0], parts[-1][1] + data)
        offset = last + 1
    return TransactionLog(parts, offset)


# ------------------------------------------------------------------------------------------------------- damage


def _damaged(segment, repair, seed):
    rng = np.random.default_rng(seed)
    if not segment.data:
        return Damaged(rng.bytes(int(rng.integers(0, 80))))
    repair = rng.random() < 0.5 if repair is None else repair
    if not repair:
        return Damaged(next(mutants.mutants(rng, segment.data, 1)))
    start, end = segment.batches[int(rng.integers(0, len(segment.batches)))]
    batch = segment.data[start:end]
    make, _ = mutants.LEVELS[str(rng.choice(["repaired", "recompressed"]))]
    (changed,) = make(rng, mutants.make_seed(batch), 1)
    return Damaged(segment.data[:start] + batch[:8] + changed[8:] + segment.data[end:])


def damaged(segment, *, repair=None):
    """A damaged copy of a segment.

    With ``repair`` one batch's header field, body or decompressed payload is changed and its size and CRC are mostly
    made right again, so that the decoders see it; without, the file is changed anywhere and nothing is repaired (the
    CRC should tell). None draws either.
    """
    return st.builds(functools.partial(_damaged, segment, repair), st.integers(0, 2**63))
