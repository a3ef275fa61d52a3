"""Encoding: the bytes of the twin, what decoding gives back, and what cannot be written is refused by its row."""

import pickle
import random

import builder
import numpy as np
import pytest
import reference
from encoding import (
    Wanted,
    binary,
    columns_of,
    encoded,
    some_batches,
    some_rows,
    twin_of,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from reading import read, without_magic
from refusals import fails_with
from strategies import BLOBS, TIMESTAMPS, VALUES

from kafkalog.errors import KafkalogError, Reason, UnwritableError
from kafkalog.format import Codec
from kafkalog.records.batch_spec import BatchSpec
from kafkalog.records.batch_table import COLUMNS
from kafkalog.records.byte_columns import BinaryColumn, HeadersColumn
from kafkalog.records.codecs import Compression
from kafkalog.records.columns import RecordColumns
from kafkalog.records.encode import cut_batches, encode_batches, encode_marker
from kafkalog.records.header_walk import walk
from kafkalog.storage.source import BufferSource

CODECS = [Compression(codec) for codec in Codec]
NAMES = st.one_of(st.sampled_from([b"", b"n", b"trace-id", "é".encode()]), st.text(max_size=5).map(str.encode))
HEADERS = st.lists(st.tuples(NAMES, BLOBS), max_size=4)
BIG = 2**62


@st.composite
def wanted(draw, base_offset, *, compression=None):
    """Any batch that the format can hold, whether or not Kafka's builder would make it."""
    offset = base_offset + draw(st.sampled_from([0, 0, 1, 2**31 - 1 - 2**24]))
    rows = []
    for _ in range(draw(st.sampled_from([0, 1, 1, 2, 3, 8]))):
        rows.append((offset, draw(TIMESTAMPS), draw(BLOBS), draw(VALUES), draw(HEADERS)))
        offset += draw(st.sampled_from([1, 1, 1, 2, 2**20]))
    last = rows[-1][0] if rows else base_offset
    return Wanted(
        rows,
        base_offset,
        last + draw(st.sampled_from([0, 0, 5])),
        log_append_time=draw(st.one_of(st.none(), TIMESTAMPS)),
        leader_epoch=draw(st.integers(-1, 2**31 - 1)),
        producer_id=draw(st.sampled_from([-1, 0, 2**63 - 1])),
        producer_epoch=draw(st.integers(-1, 2**15 - 1)),
        base_sequence=draw(st.sampled_from([-1, 0, 2**31 - 1])),
        is_transactional=draw(st.booleans()),
        is_control=draw(st.booleans()),
        delete_horizon_ms=draw(st.sampled_from([-1, -1, 0, 2**63 - 1])),
        max_timestamp=None if rows else draw(TIMESTAMPS),
        compression=draw(st.sampled_from(CODECS)) if compression is None else compression,
    )


@st.composite
def wanted_logs(draw, compression=None):
    offset = draw(st.sampled_from([0, 1, 2**31, 2**40, BIG]))
    batches = []
    for _ in range(draw(st.integers(1, 4))):
        batches.append(draw(wanted(offset, compression=compression)))
        offset = batches[-1].last_offset + draw(st.sampled_from([1, 1, 100]))
    return batches


def same_table(table, other):
    for name, dtype in COLUMNS.items():
        column = getattr(table, name)
        assert column.dtype == dtype
        assert column.tolist() == getattr(other, name).tolist(), name


# --- the bytes ---------------------------------------------------------------------------------------------


@given(wanted_logs(CODECS[0]))
def test_uncompressed_bytes_are_the_twins(batches):
    window = encoded(batches)
    assert window.start == 0
    assert window.data.tobytes() == b"".join(map(twin_of, batches))
    (walked,) = walk(BufferSource(window.data))
    same_table(window.batches, walked.batches)


@given(wanted_logs())
def test_what_was_encoded_decodes_to_what_it_was(batches):
    window = encoded(batches)
    data = window.data.tobytes()
    (walked,) = walk(BufferSource(data))
    same_table(window.batches, walked.batches)
    assert window.batches.codec.tolist() == [batch.compression.codec if batch.rows else 0 for batch in batches]
    reading = read(data)
    assert reading.error is None
    got = [(row.offset, row.timestamp, row.key, row.value, row.headers) for row in reading.records()]
    assert got == [
        (offset, batch.log_append_time if batch.log_append_time is not None else timestamp, key, value, headers)
        for batch in batches
        for offset, timestamp, key, value, headers in batch.rows
    ]
    twin = reference.read_segment(data)
    assert twin.problem is None
    assert without_magic(twin.records) == without_magic(reading.records())


def test_columns_of_decoding_go_in_as_they_come_out():
    batches = some_batches(random.Random(1), 50, 2**33)
    data = encoded(batches).data.tobytes()
    columns = read(data).columns
    boundaries = np.cumsum([0, *(len(batch.rows) for batch in batches)])
    spec = BatchSpec(leader_epoch=5, timestamp_type=1, log_append_time=2**40)
    whole = encode_batches(columns, boundaries, spec)
    for first, stop in ((0, 50), (0, 7), (7, 30), (30, 50), (9, 9)):
        # some of the batches, by some of the boundaries, and from a slice that shares the memory
        some = encode_batches(columns, boundaries[first : stop + 1], spec)
        rows = columns.slice(int(boundaries[first]), int(boundaries[stop]))
        sliced = encode_batches(rows, boundaries[first : stop + 1] - boundaries[first], spec)
        if first == stop:
            assert some.data.size == sliced.data.size == len(some.batches) == 0
            continue
        end = whole.batches.next_position[stop - 1]
        expected = whole.data[whole.batches.position[first] : end].tobytes()
        assert some.data.tobytes() == sliced.data.tobytes() == expected


def test_a_control_batch_says_its_type_in_the_table():
    window = encode_marker(
        BIG, producer_id=7, producer_epoch=1, coordinator_epoch=3, is_commit=True, timestamp=5, leader_epoch=2
    )
    assert window.data.size == 78
    assert window.batches.control_type.tolist() == [1]
    assert window.batches.is_control.all()
    assert window.batches.is_transactional.all()
    commit = builder.control_batch(
        builder.COMMIT,
        base_offset=BIG,
        producer_id=7,
        producer_epoch=1,
        coordinator_epoch=3,
        timestamp=5,
        leader_epoch=2,
    )
    assert window.data.tobytes() == commit
    with pytest.raises(ValueError, match="producer_id"):
        encode_marker(0, producer_id=-1, producer_epoch=1, coordinator_epoch=3, is_commit=True, timestamp=5)


def test_columns_that_are_not_there_are_null():
    window = encode_batches(RecordColumns(2, {"offset": np.array([3, 4])}), np.array([0, 2]))
    assert [tuple(row)[:6] for row in read(window.data.tobytes()).records()] == [
        (3, -1, 0, None, None, []),
        (4, -1, 0, None, None, []),
    ]
    assert window.data.size == 61 + 2 * 7
    assert window.batches.max_timestamp.tolist() == [-1]


def test_a_null_timestamp_is_written_as_minus_one():
    stamps = np.ma.MaskedArray([5, 6, 7], [False, True, False])
    window = encode_batches(RecordColumns(3, {"offset": np.arange(3), "timestamp": stamps}), np.array([0, 3]))
    assert read(window.data.tobytes()).columns.timestamp.tolist() == [5, -1, 7]


def test_a_null_value_hides_the_bytes_behind_it():
    column = BinaryColumn(np.array([0, 3, 6]), np.frombuffer(b"abcdef", np.uint8), np.array([False, True]))
    window = encode_batches(RecordColumns(2, {"offset": np.arange(2), "value": column}), np.array([0, 2]))
    assert read(window.data.tobytes()).columns.value.to_pylist() == [None, b"def"]


def test_no_records_at_all_are_no_batches():
    empty = RecordColumns.empty(["offset", "timestamp", "key", "value", "headers"])
    assert cut_batches(empty, batch_size=100).tolist() == [0]
    window = encode_batches(empty, np.array([0]))
    assert window.data.size == len(window.batches) == 0
    window = encode_batches(empty, np.array([0, 0]), BatchSpec(base_offset=[BIG], last_offset=[BIG + 9]))
    assert window.data.size == 61
    assert window.batches.last_offset.tolist() == [BIG + 9]
    assert window.batches.records_count.tolist() == [0]


# --- what cannot be written ----------------------------------------------------------------------------------


def refused(rows, boundaries=None, **spec):
    columns = columns_of(rows) if isinstance(rows, list) else rows
    bounds = np.array([0, columns.n_records] if boundaries is None else boundaries)
    with pytest.raises(UnwritableError) as caught:
        encode_batches(columns, bounds, BatchSpec(**spec))
    error = caught.value
    assert isinstance(error, KafkalogError)
    assert isinstance(error, ValueError)
    assert f"row {error.row}:" in str(error)
    copy = pickle.loads(pickle.dumps(error))
    assert (str(copy), copy.row, copy.reason) == (str(error), error.row, error.reason)
    return error


@given(st.binary(max_size=6) | st.text(max_size=3).map(str.encode))
def test_header_keys_are_judged_as_python_judges_utf8(name):
    try:
        name.decode()
    except UnicodeDecodeError:
        assert refused([(0, 0, None, None, [(name, None)])]).reason == Reason.HEADER_KEY_UTF8
    else:
        window = encode_batches(columns_of([(0, 0, None, None, [(name, None)])]), np.array([0, 1]))
        assert read(window.data.tobytes()).columns.headers.to_pylist() == [[(name, None)]]


def test_header_keys_of_any_bytes_are_written_for_who_asks():
    rows = [(i, 0, None, None, [(b"\xff\xfe", b"v"), (b"", None)]) for i in range(3)]
    boundaries = cut_batches(columns_of(rows), batch_size=1, any_header_keys=True)
    window = encode_batches(columns_of(rows), boundaries, BatchSpec(any_header_keys=True))
    assert read(window.data.tobytes()).columns.headers.to_pylist() == [row[4] for row in rows]


def test_a_header_without_a_key_is_refused_by_its_row():
    headers = HeadersColumn(np.array([0, 1, 2]), binary([b"k", None]), binary([None, b"v"]))
    columns = RecordColumns(2, {"offset": np.arange(2), "headers": headers})
    for spec in ({}, {"any_header_keys": True}):
        error = refused(columns, **spec)
        assert (error.row, error.reason) == (1, Reason.HEADER_KEY_NULL)


@pytest.mark.parametrize(
    ("offsets", "boundaries", "row"),
    [
        ([0, 1, 1], [0, 3], 2),
        ([5, 4], [0, 2], 1),
        ([-1, 0], [0, 2], 0),
        ([0, 3, 2], [0, 2, 3], 2),
        ([7, 7], [0, 1, 2], 1),
    ],
)
def test_offsets_have_to_rise(offsets, boundaries, row):
    columns = RecordColumns(len(offsets), {"offset": np.array(offsets)})
    error = refused(columns, boundaries)
    assert (error.row, error.reason) == (row, Reason.OFFSET_ORDER)
    with pytest.raises(UnwritableError) as caught:
        cut_batches(columns, batch_size=100)
    assert caught.value.row == row


def test_an_offset_too_far_from_its_base_is_refused():
    columns = RecordColumns(2, {"offset": np.array([7, 7 + 2**31])})
    assert refused(columns).row == 1
    assert refused(columns.slice(0, 1), last_offset=[7 + 2**31]).row == 0
    assert refused(columns.slice(0, 1), base_offset=[0], last_offset=[2**31]).reason == Reason.HEADER_INCONSISTENT
    near = encode_batches(RecordColumns(2, {"offset": np.array([7, 6 + 2**31])}), np.array([0, 2]))
    assert read(near.data.tobytes()).columns.offset.tolist() == [7, 6 + 2**31]


def untouched(sizes):
    """Values of gigabytes that take no memory as long as nobody looks at them."""
    offsets = np.cumsum([0, *sizes], dtype=np.int64)
    return BinaryColumn(offsets, np.zeros(int(offsets[-1]), np.uint8))


def test_more_than_a_size_field_can_say_is_refused_by_the_row():
    whole = RecordColumns(1, {"offset": np.arange(1), "value": untouched([2**31 - 61])})
    assert refused(whole).reason == Reason.BATCH_TOO_LARGE
    with fails_with("batch_too_large"):
        cut_batches(whole, batch_size=2**31 - 1)
    parts = RecordColumns(5, {"offset": np.arange(5), "key": untouched([2**29] * 5)})
    assert refused(parts).row == 3
    assert cut_batches(parts, batch_size=2**31 - 1).tolist() == [0, 3, 5]
    assert cut_batches(parts, batch_size=1).tolist() == [0, 1, 2, 3, 4, 5]
    both = RecordColumns(1, {"offset": np.arange(1), "key": untouched([2**31]), "value": untouched([2**32])})
    assert refused(both).row == 0
    header = HeadersColumn(np.array([0, 0, 1]), binary([b"k"]), untouched([2**31]))
    assert refused(RecordColumns(2, {"offset": np.arange(2), "headers": header})).row == 1


@pytest.mark.parametrize(
    "column",
    [
        BinaryColumn(np.array([0, 2, 1]), np.zeros(9, np.uint8)),
        BinaryColumn(np.array([0, 1, 10]), np.zeros(9, np.uint8)),
        BinaryColumn(np.array([-1, 1, 2]), np.zeros(9, np.uint8)),
        BinaryColumn(np.array([0, 2**62, 2**63 - 1]), np.zeros(9, np.uint8)),
    ],
)
def test_columns_whose_offsets_lead_astray_are_refused(column):
    for name in ("key", "value"):
        columns = RecordColumns(2, {"offset": np.arange(2), name: column})
        with pytest.raises(ValueError, match=r"row [01]"):
            encode_batches(columns, np.array([0, 2]))
        with pytest.raises(ValueError, match=r"row [01]"):
            cut_batches(columns, batch_size=100)
    two = binary([b"a", b"b"])
    for headers in (
        HeadersColumn(np.array([0, 1, 2]), column, two),
        HeadersColumn(np.array([0, 1, 2]), two, column),
        HeadersColumn(np.array([0, 1, 3]), two, two),
        HeadersColumn(np.array([0, 2, 1]), two, two),
        HeadersColumn(np.array([-1, 1, 2]), two, two),
    ):
        with pytest.raises(ValueError, match=r"row [01]"):
            encode_batches(RecordColumns(2, {"offset": np.arange(2), "headers": headers}), np.array([0, 2]))


TWO = RecordColumns(2, {"offset": np.array([10, 20]), "timestamp": np.array([1, 2])})


def test_without_offsets_nothing_is_written():
    with pytest.raises(ValueError, match="'offset'"):
        encode_batches(RecordColumns(1, {"timestamp": np.arange(1)}), np.array([0, 1]))


# --- where batches end ---------------------------------------------------------------------------------------


def cut_by_hand(rows, batch_size, max_records):
    """As `ProducerBatch.tryAppend` and `RecordAccumulator.append`, record by record."""
    boundaries = [0]
    used = limit = 0
    for i, (offset, stamp, *rest) in enumerate(rows):
        first_offset, first_stamp = rows[boundaries[-1]][:2]
        delta = offset - first_offset
        size = len(builder.record_v2(delta, builder.wrap64(stamp - first_stamp), *rest))
        full = used >= limit or used + size > limit or i - boundaries[-1] == max_records or delta >= 2**31
        if i > boundaries[-1] and full:
            boundaries.append(i)
        if i == boundaries[-1]:
            content = len(builder.record_v2(0, 0, *rest, body_length=0)) - 4
            limit = max(batch_size, 61 + 21 + content)
            used, size = 61, len(builder.record_v2(0, 0, *rest))
        used += size
    return [*boundaries, len(rows)]


@given(st.integers(0, 10**6), st.sampled_from([0, 61, 90, 150, 400, 5000, 10**6]), st.sampled_from([None, None, 1, 3]))
def test_batches_end_where_they_do_by_hand(seed, batch_size, max_records):
    source = random.Random(seed)
    rows = some_rows(source, source.choice((0, 2**40)), source.choice((1, 5, 40)))
    if source.random() < 0.2:
        rows = [(offset + 2**31 * (i // 3), *rest) for i, (offset, *rest) in enumerate(rows)]
    columns = columns_of(rows)
    boundaries = cut_batches(columns, batch_size=batch_size, max_records=max_records)
    assert boundaries.tolist() == cut_by_hand(rows, batch_size, max_records)
    table = encode_batches(columns, boundaries).batches
    assert table.records_count.sum() == len(rows)
    several = table.records_count > 1
    # beyond a batch's size goes only what fits behind a large first record
    assert (table.size_in_bytes[several] <= max(batch_size, 21 + int(table.size_in_bytes.max()))).all()


def test_cutting_takes_sizes_that_make_sense():
    for batch_size in (-1, 2**31):
        with pytest.raises(ValueError, match="batch_size"):
            cut_batches(TWO, batch_size=batch_size)
    with pytest.raises(ValueError, match="max_records"):
        cut_batches(TWO, batch_size=1, max_records=0)


# --- sizes of batches ----------------------------------------------------------------------------------------


@settings(max_examples=10)
@given(st.sampled_from(CODECS), st.integers(1, 400), st.integers(0, 100_000))
def test_many_batches_and_large_records_of_every_codec(compression, n, size):
    unit = random.Random(n).randbytes(100)
    rows = [(i, i, b"k", unit * (i % 7), []) for i in range(n)]
    rows.append((n, 0, None, (unit * 1000)[:size], []))
    window = encode_batches(columns_of(rows), np.array([*range(0, n, 5), n, n + 1]), BatchSpec(compression=compression))
    assert read(window.data.tobytes()).columns.value.to_pylist() == [row[3] for row in rows]
