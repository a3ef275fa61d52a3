"""However records are cut into pieces, the same batches come of them; what no reader could read is refused."""

import itertools
import warnings

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from refusals import fails_with
from writing import Record, columns_of, draw

import kafkalog
from kafkalog import ConfigWarning, LogConfig, PartitionWriter
from kafkalog.errors import (
    Limits,
    UnwritableError,
)
from kafkalog.records.columns import RecordColumns
from kafkalog.records.encode import cut_batches, encode_batches
from kafkalog.writing.batch_builder import RecordAccumulator


def numbered(records, step=1):
    return columns_of([record._replace(offset=step * row) for row, record in enumerate(records)])


def fill(accumulator, columns, cuts):
    """All that comes out when records come in pieces."""
    ends = sorted({0, *cuts, columns.n_records})
    given_out = [accumulator.add(columns.slice(start, stop)) for start, stop in itertools.pairwise(ends)]
    return [filled for filled in (*given_out, accumulator.finish()) if filled is not None]


def written(filled):
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
def test_batches_are_the_same_however_records_were_cut(records, cuts, batch_size, max_records, step):
    columns = numbered(records, step)
    boundaries = cut_batches(columns, batch_size=batch_size, max_records=max_records)
    accumulator = RecordAccumulator(batch_size=batch_size, max_records=max_records)
    filled = fill(accumulator, columns, [cut for cut in cuts if cut < len(records)])
    sizes = np.concatenate([np.diff(bounds) for _, bounds in filled])
    assert sizes.tolist() == np.diff(boundaries).tolist()
    assert written(filled) == encode_batches(columns, boundaries).data.tobytes()
    assert accumulator.last_offset is None
    assert accumulator.finish() is None


def test_what_waits_is_not_much_more_than_a_batch():
    accumulator = RecordAccumulator(batch_size=20_000)
    columns = numbered([Record(value=bytes(size)) for size in [100] * 500 + [50_000, 10] * 5 + [1] * 3000])
    most = n_out = 0
    for row in range(columns.n_records):
        filled = accumulator.add(columns.slice(row, row + 1))
        n_out += filled is not None
        most = max(most, sum(accumulator._sizes))
    assert n_out > 5
    assert most < 2 * 50_100


def test_a_record_that_cannot_be_written_is_named_by_its_row_in_the_whole():
    records = draw(300)
    offsets = [*range(250), 100, *range(251, 300)]
    columns = columns_of([record._replace(offset=offset) for record, offset in zip(records, offsets, strict=True)])
    for size in (300, 40, 7):
        accumulator = RecordAccumulator(batch_size=500)
        with fails_with("offset_order") as caught:
            fill(accumulator, columns, list(range(0, 300, size)))
        assert caught.value.row == 250


def test_a_record_larger_than_a_broker_takes_is_warned_of_once(path):
    topic = LogConfig(max_message_bytes=2000)
    big = Record(value=np.random.default_rng(0).bytes(2000))
    writer = PartitionWriter(path, config=topic)
    with pytest.warns(ConfigWarning, match="offset 40") as caught:
        writer.append(columns_of([*draw(40), big, big]))
    writer.append(columns_of([big]))
    writer.close()
    assert "max.message.bytes is 2000" in str(caught[0].message)
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert kafkalog.scan(path).count_rows() == 43
    with warnings.catch_warnings():  # what counts is the batch as it is written
        warnings.simplefilter("error")
        with PartitionWriter(path.with_name("orders-1"), config=topic, compression="zstd") as writer:
            writer.append(columns_of([Record(value=bytes(100_000))]))


def test_a_compacted_topic_takes_no_record_without_a_key(tmp_path):
    compacted = LogConfig(cleanup_policy=("compact",))
    for columns in ({"value": [b"1"]}, {"key": [b"k", None], "value": [b"1", b"2"]}):
        with (
            fails_with("column_value"),
            PartitionWriter(tmp_path / "t-0", config=compacted) as writer,
        ):
            writer.append(columns)
        assert not (tmp_path / "t-0").exists()
    with PartitionWriter(tmp_path / "t-0", config=compacted) as writer:
        assert writer.append({"key": [b"k"], "value": [None]}).last_offset == 0


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_what_could_not_be_read_again_is_not_written(compression, tmp_path):
    limits = Limits(max_batch_bytes=10_000, max_decompressed_bytes=20_000, max_headers_per_record=100)
    noise = np.random.default_rng(1).bytes(10_000)
    cases = [
        ({"value": [noise]}, "max_batch_bytes"),
        ({"value": [b"small"], "headers": [[("h", b"")] * 101]}, "max_headers_per_record"),
    ]
    if compression == "zstd":
        cases.append(({"value": [bytes(20_001)]}, "max_decompressed_bytes"))
    for columns, name in cases:
        with (
            pytest.raises(UnwritableError, match=name),
            PartitionWriter(tmp_path / "t-0", compression=compression, limits=limits) as writer,
        ):
            writer.append(columns)
        assert not (tmp_path / "t-0").exists()
    with PartitionWriter(tmp_path / "t-0", compression=compression, limits=limits) as writer:
        writer.append({"value": [noise[:9000]], "headers": [[("h", b"")] * 100]})
    assert kafkalog.scan(tmp_path / "t-0", limits=limits).count_rows() == 1


@pytest.mark.parametrize(
    ("offset", "error"), [(-1, ValueError), (2**63, ValueError), (2**63 - 1, ValueError), (1.5, TypeError)]
)
def test_an_offset_that_cannot_be_one_is_refused_with_its_name(offset, error, tmp_path):
    with pytest.raises(error, match="start_offset"):
        PartitionWriter(tmp_path / "t-0", start_offset=offset)
    with pytest.raises(error, match="base_offset"), PartitionWriter(tmp_path / "t-0") as writer:
        writer.roll(offset)
    assert not (tmp_path / "t-0").exists()


LAST = 2**63 - 2


def test_the_last_offset_is_written_and_none_behind_it(path):
    with PartitionWriter(path, start_offset=LAST - 1) as writer:
        writer.append({"value": [b"a"]})
        assert writer.append({"value": [b"b"], "offset": [LAST]}).last_offset == LAST
    assert kafkalog.read_table(path, columns=["offset"]).column(0).to_pylist() == [LAST - 1, LAST]
    numbers = RecordColumns(2, {**columns_of(draw(2)), "offset": np.array([5, 2**63 - 1])})
    for data, row, what in (
        ({"value": [b"a", b"b"], "offset": [5, 2**63 - 1]}, 1, "row 1 is 2\\^63 - 1, the largest offset"),
        ({"value": [b"a", b"b"], "offset": pa.array([5, 2**63], pa.uint64())}, 1, "row 1 is beyond 2\\^63 - 1"),
        (numbers, 1, "row 1 is beyond 2\\^63 - 2"),
        ({"value": [b"a"] * 4}, 2, f"row 2 would exceed offset {LAST}"),
    ):
        with (
            pytest.raises(UnwritableError, match=what) as caught,
            PartitionWriter(path.with_name("orders-1"), start_offset=None if "offset" in data else LAST - 1) as other,
        ):
            other.append(data)
        assert caught.value.row == row
    full = PartitionWriter(path.with_name("orders-1"), start_offset=LAST, producer=(1, 0))
    full.append({"value": [b"a"]}, transactional=True)
    with pytest.raises(ValueError, match="9223372036854775807"):
        full.commit_transaction()
    full.abort()


@pytest.mark.parametrize("timestamp_type", ["CreateTime", None])
def test_records_have_times_before_1970(path, timestamp_type):
    times = [-1, 0, -5000, -(2**63), 2**63 - 1, -7000, -7000]
    data = {"value": [b""] * len(times), "timestamp": times, "timestamp_type": [0, 0, 0, 0, 0, 1, 1]}
    with PartitionWriter(path, timestamp_type=timestamp_type, max_records_per_batch=3) as writer:
        writer.append(data)
    got = kafkalog.read_numpy(path)
    assert got.timestamp.tolist() == times
    assert got.timestamp_type.tolist() == ([0] * 7 if timestamp_type else data["timestamp_type"])
    assert kafkalog.verify(path, deep=True).ok
