"""The public codec: batches in memory are decoded and encoded as those of files."""

import random

import builder
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from effort import examples
from encoding import columns_of, some_rows
from guard import Guard
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog import codec
from kafkalog._kernels.crc import joined_crc32c
from kafkalog.column_names import EXTRA_COLUMNS, OWN_COLUMNS
from kafkalog.errors import CorruptionError, KafkalogError, LimitExceededError, Limits, UnwritableError
from kafkalog.records.byte_columns import BinaryColumn, as_views
from kafkalog.records.columns import RecordColumns
from kafkalog.records.partitioner import PARTITIONERS, Partitioner, murmur2

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
OF_RECORDS = (*OWN_COLUMNS, *(name for name in EXTRA_COLUMNS if name != "segment"))


def as_lists(columns):
    return {
        name: column.tolist() if isinstance(column, np.ndarray) else column.to_pylist()
        for name, column in columns.items()
    }


@pytest.mark.parametrize("include_control", [False, True])
def test_segments_are_decoded_as_from_files(log_dir, include_control):
    n = 0
    for path in sorted(log_dir.glob("p-*/*.log")):
        options = {"columns": OF_RECORDS, "include_control": include_control}
        expected = kafkalog.read_numpy(path, include_deleted=True, **options)
        decoded = codec.decode(path.read_bytes(), **options)
        assert as_lists(decoded) == as_lists(expected), path
        headers = codec.decode_headers(memoryview(path.read_bytes()))
        assert headers.to_arrow() == kafkalog.open(path).batches.to_arrow()
        n += decoded.n_records
    assert n > 1000


def test_what_is_encoded_is_decoded_again():
    source = random.Random(3)
    for n in range(examples(60)):
        rows = some_rows(source, source.choice((0, 5, 2**40)), source.choice((1, 3, 40)))
        columns, compression = columns_of(rows), CODECS[n % 5]
        size = source.choice((None, 0, 500, 16384))
        data = codec.encode(columns, compression=compression, batch_size=size, leader_epoch=7)
        decoded = codec.decode(data, columns=(*columns, "leader_epoch", "compression"))
        assert as_lists(decoded) == as_lists(columns) | {
            "leader_epoch": [7] * len(rows),
            "compression": [CODECS.index(compression)] * len(rows),
        }
        headers = codec.decode_headers(data)
        assert len(headers) == 1 if size is None else len(headers) >= 1
        start = 21
        assert codec.crc32c(data[start : int(headers.size_in_bytes[0])]) == int(headers.crc[0])


def test_offsets_of_a_produce_request_begin_at_zero():
    records = RecordColumns(2, {"value": BinaryColumn.of([b"a", b"b"])})
    data = codec.encode(records, producer_id=4, producer_epoch=1, base_sequence=9, is_transactional=True)
    decoded = codec.decode(data, columns=["offset", "sequence", "producer_id", "is_transactional"])
    assert as_lists(decoded) == {
        "offset": [0, 1], "sequence": [9, 10], "producer_id": [4, 4], "is_transactional": [True, True],
    }  # fmt: skip
    assert codec.encode(records[:0]) == b""


PRICES = np.array([(1, 2.5), (3, -1.0)], [("id", ">i8"), ("price", "<f4")])
TIMES = ["2024-01-01T00:00:00.005", "NaT"]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (PRICES, [PRICES[0].tobytes(), PRICES[1].tobytes()]),
        (PRICES["id"], [bytes(7) + b"\1", bytes(7) + b"\3"]),
        (np.array([[1, 2, 3], [4, 5, 6]], np.uint8), [b"\1\2\3", b"\4\5\6"]),
        (np.array([[1, 2, 3], [4, 5, 6]], np.uint8)[:, ::2], [b"\1\3", b"\4\6"]),
        (np.empty((2, 0), np.uint8), [b"", b""]),
        (np.array([b"ab", b"c"]), [b"ab", b"c"]),
        (np.array([b"a\0", None], object), [b"a\0", None]),
        (np.array(["a", "\u00e9"]), [b"a", b"\xc3\xa9"]),
        (["a", None], [b"a", None]),
        (pa.array([b"a", None]), [b"a", None]),
        (as_views(BinaryColumn.of([b"a", None])), [b"a", None]),
    ],
    ids=str,
)
def test_arrays_are_encoded(values, expected, tmp_path):
    data = codec.encode({"key": values, "timestamp": np.array(TIMES, "M8[ms]")})
    decoded = codec.decode(data)
    assert decoded.key.to_pylist() == expected
    assert decoded.timestamp.tolist() == [1704067200005, -1]
    assert decoded.value.to_pylist() == [None, None]
    kafkalog.write_table({"value": values}, tmp_path / "log", topic="t", partitions=1)
    assert kafkalog.read_numpy(tmp_path / "log").value.to_pylist() == expected


@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (np.array(TIMES, "M8[us]"), [1704067200005, -1]),
        (np.array(["2024-01-01", "2024-01-02"], "M8[D]"), [1704067200000, 1704153600000]),
        ([np.datetime64("2024-01-01"), np.datetime64("2024-01-01T01")], [1704067200000, 1704070800000]),
        (np.array([1, 2], ">i8"), [1, 2]),
        (np.array([1, 2], np.int32), [1, 2]),
        (np.array([1, 2], np.uint64), [1, 2]),
        ([7, None], [7, -1]),
        (pd.Series(pd.to_datetime([7, None], unit="ms", utc=True)), [7, -1]),
    ],
    ids=str,
)
def test_times_of_numpy_and_pandas_are_encoded(times, expected):
    data = codec.encode({"timestamp": times, "value": [b"a", b"b"]})
    assert codec.decode(data).timestamp.tolist() == expected


def test_what_is_not_bytes_is_refused():
    with pytest.raises(UnwritableError, match=r"not int64; .*as from astype\('>i8'\)"):
        codec.encode({"key": np.arange(3), "value": np.arange(3)})
    with pytest.raises(UnwritableError, match="has no time zone"):
        codec.encode({"timestamp": pd.Series(pd.to_datetime([7], unit="ms")), "value": [b"a"]})


def test_tables_are_encoded(log_dir):
    table = kafkalog.read_table(log_dir, topics="p-headers")
    records = kafkalog.read_numpy(log_dir, topics="p-headers")
    expected = codec.encode(records)
    for made in (table, records.to_arrow(), kafkalog.scan(log_dir, topics="p-headers")):
        assert codec.encode(made) == expected
    views = kafkalog.read_numpy(log_dir, topics="p-headers", binary_type=pa.binary_view())
    assert codec.encode(views) == expected
    assert codec.encode(table[:0]) == b""


def test_records_are_lists_too():
    lists = {"timestamp": [5, 6], "key": [b"k", None], "value": [None, b""], "headers": [[(b"a", None)], []]}
    data = codec.encode(lists, compression="zstd")
    assert as_lists(codec.decode(data, columns=[*lists])) == lists
    assert codec.encode({}) == b""
    with pytest.raises(ValueError, match="column 'value' has 1 rows, not 2"):
        codec.encode({"key": [b"a", b"b"], "value": [b"a"]})
    with pytest.raises(TypeError, match=r"records are a table .* or a dict of arrays, not list"):
        codec.encode([(b"a", b"b")])


def test_columns_by_name_are_those_of_a_dict():
    columns = {"key": [b"k", None], "timestamp": [5, 6], "headers": [[("h", b"1")], []]}
    data = codec.encode(columns, compression="zstd", producer_id=7, producer_epoch=0, base_sequence=3)
    assert data == codec.encode(**columns, compression="zstd", producer_id=7, producer_epoch=0, base_sequence=3)
    assert codec.decode(data).headers["h"].to_pylist() == [b"1", None]
    for call, meant in (
        (lambda: codec.encode(compression="lz4"), "columns by name"),
        (lambda: codec.encode(columns, value=[b"v"] * 2), "columns by name"),
        (lambda: codec.encode(columns, level=3), "no option 'level'; use compression_level="),
        (lambda: codec.encode(columns, codec="lz4"), "no option 'codec'; use compression="),
        (lambda: codec.encode(keys=[b"a"]), "no option 'keys'; did you mean key="),
    ):
        with pytest.raises(TypeError, match=meant):
            call()
    with pytest.raises(AttributeError, match="there are check_crcs, crc32c, decode"):
        codec.archive  # noqa: B018


@pytest.mark.parametrize("dtype", ["u1", ">i8", "f4", "M8[ms]", "S3", "?"])
def test_a_checksum_of_an_array_is_that_of_its_bytes(dtype):
    numbers = np.arange(12).astype(dtype).reshape(3, 4)
    for array in (numbers, numbers[::2], numbers.T, numbers[:0]):
        assert codec.crc32c(array) == codec.crc32c(array.tobytes())


def test_a_partial_batch_at_the_end_is_left_out():
    batches = [codec.encode(columns_of([(n, 5, None, b"v" * 40, [])])) for n in range(3)]
    data = b"".join(batches)
    for cut in range(len(data)):
        n_whole = cut // len(batches[0])
        assert codec.decode(data[:cut]).offset.tolist() == list(range(n_whole))
        assert len(codec.decode_headers(data[:cut])) == n_whole
    assert codec.decode(b"").n_records == 0


def test_errors_say_where_in_the_buffer():
    data = bytearray(b"".join(builder.batch_v2([builder.record_v2(0, value=b"v")], base_offset=n) for n in range(3)))
    size = len(data) // 3
    data[2 * size - 2] ^= 1
    with pytest.raises(CorruptionError) as caught:
        codec.decode(data)
    assert (caught.value.position, caught.value.reason) == (size, kafkalog.Reason.CRC_MISMATCH)
    assert codec.decode(data, check_crcs=False).n_records == 3
    with pytest.raises(LimitExceededError):
        codec.decode(data, limits=Limits(max_batch_bytes=60))
    with pytest.raises(ValueError, match="no column 'topic'"):
        codec.decode(data, columns=["topic"])


def outcome(call):
    try:
        return as_lists(call())
    except KafkalogError as error:
        return error.reason, error.position


@settings(max_examples=examples(150), deadline=None)
@given(st.randoms(use_true_random=False))
def test_hostile_bytes_are_as_safe_as_files(tmp_path_factory, source):
    rows = some_rows(source, 0, source.choice((1, 3, 12)))
    data = bytearray(codec.encode(columns_of(rows), compression=source.choice(CODECS), batch_size=200))
    for _ in range(source.choice((1, 1, 3))):
        at = source.randrange(len(data))
        kind = source.random()
        if kind < 0.5:
            data[at] ^= 1 << source.randrange(8)
        elif kind < 0.7:
            data[at : at + 4] = source.choice((b"\xff" * 4, bytes(4), b"\x7f\xff\xff\xff"))
        elif kind < 0.85:
            del data[at : at + source.randrange(1, 9)]
        else:
            data[at:at] = source.randbytes(source.randrange(1, 9))
    path = tmp_path_factory.mktemp("hostile") / "00000000000000000000.log"
    path.write_bytes(data)
    check = source.random() < 0.5
    names = list(OWN_COLUMNS)
    decoded = outcome(lambda: codec.decode(data, check_crcs=check))
    read = outcome(lambda: kafkalog.read_numpy(path, columns=names, check_crcs=check))
    if isinstance(decoded, tuple):
        assert 0 <= decoded[1] <= len(data)
    # a segment has more rules about offsets than a buffer
    if isinstance(decoded, dict) and isinstance(read, tuple):
        assert "offset" in read[0].value
    else:
        assert isinstance(read, tuple) == isinstance(decoded, tuple)
        assert isinstance(read, tuple) or read == decoded


integers = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(st.one_of(integers, st.integers(-200, 200)), max_size=30))
def test_varints_there_and_back(values):
    data = codec.encode_varints(values)
    assert data == b"".join(map(builder.varint, values))
    assert codec.decode_varints(data).tolist() == values
    unsigned = [value & (2**64 - 1) for value in values]
    data = codec.encode_varints(np.array(unsigned, np.uint64), zigzag=False)
    assert codec.decode_varints(data, zigzag=False).tolist() == unsigned


@pytest.mark.parametrize(
    ("data", "reason", "position"),
    [
        (b"\0\x80", "varint_truncated", 1),
        (b"\x80", "varint_truncated", 0),
        (b"\0" + b"\x80" * 10 + b"\0", "varint_overlong", 1),
        (b"\xff" * 9 + b"\x02", "varint_overlong", 0),
    ],
)
def test_wrong_varints_are_refused(data, reason, position):
    with pytest.raises(CorruptionError) as caught:
        codec.decode_varints(data)
    assert (caught.value.reason.value, caught.value.position) == (reason, position)


@given(st.binary(max_size=40), st.booleans())
def test_any_bytes_are_varints_or_refused_at_the_first_that_is_none(data, zigzag):
    numbers, at = [], 0
    while at < len(data):
        end = next((n + 1 for n in range(at, len(data)) if data[n] < 0x80), None)
        value = None if end is None else sum((byte & 0x7F) << 7 * n for n, byte in enumerate(data[at:end]))
        if value is None or end - at > 10 or value >= 2**64:
            break
        numbers.append((value >> 1) ^ -(value & 1) if zigzag else value)
        at = end
    if at == len(data):
        assert codec.decode_varints(Guard().ending(data), zigzag=zigzag).tolist() == numbers
    else:
        with pytest.raises(CorruptionError) as caught:
            codec.decode_varints(Guard().ending(data), zigzag=zigzag)
        assert caught.value.position == at


@pytest.mark.parametrize(
    ("values", "zigzag", "error"),
    [
        ([0.5], True, TypeError),
        ([-1], False, ValueError),
        ([[1]], True, ValueError),
        (np.array([2**63], np.uint64), True, ValueError),
    ],
)
def test_what_is_no_varint_is_refused(values, zigzag, error):
    with pytest.raises(error):
        codec.encode_varints(values, zigzag=zigzag)


def test_keys_go_to_the_partitions_that_load_chooses():
    keys = [b"ann", b"", None, b"foobar", b"\0" * 9]
    columns = RecordColumns(len(keys), {"key": keys})
    for name in PARTITIONERS:
        chosen = codec.partitions(keys, 7, partitioner=name)
        assert chosen.dtype == np.int32
        loaded = Partitioner(7, name=name, sticky_bytes=1).assign(columns)
        assert np.array_equal(chosen[chosen >= 0], loaded[chosen >= 0])
        assert (chosen[2] == -1) == name.endswith(("random", "kafka", "sarama"))
        assert chosen[[0, 3, 4]].min() >= 0
        assert np.array_equal(codec.partitions(as_views(columns.key), 7, partitioner=name), chosen)
    numbers = np.arange(50, dtype=">i8")
    expected = [(murmur2(number.to_bytes(8, "big")) & 0x7FFFFFFF) % 12 for number in range(50)]
    assert codec.partitions(numbers, 12).tolist() == expected
    assert codec.partitions(["ann"], 12).tolist() == codec.partitions(pa.array([b"ann"]), 12).tolist() == [2]
    assert codec.partitions([], 12).size == 0
    for call, meant in (
        (lambda: codec.partitions(b"ann", 12), r"key=\[b'ann'\]"),
        (lambda: codec.partitions(columns, 12), r"partitions\(records.key"),
        (lambda: codec.partitions(keys, 12, name="kafka"), "there are keys, n_partitions, partitioner"),
    ):
        with pytest.raises(TypeError, match=meant):
            call()
    with pytest.raises(ValueError, match="partitioner must be 'kafka'"):
        codec.partitions(keys, 12, partitioner="murmur")


def test_checksums_of_batches_are_compared_at_once(log_dir):
    n = 0
    for path in sorted(log_dir.glob("p-*/*.log")):
        data = bytearray(path.read_bytes())
        headers = codec.decode_headers(data)
        assert codec.check_crcs(data).all()
        for row in range(0, len(headers), 3):
            data[headers.position[row] + headers.size_in_bytes[row] - 1] ^= 0x10
        assert np.flatnonzero(~codec.check_crcs(data)).tolist() == list(range(0, len(headers), 3)), path
        assert codec.check_crcs(memoryview(data)[:-1]).size == max(len(headers) - 1, 0)
        n += len(headers)
    assert n > 100
    assert codec.check_crcs(b"").tolist() == []
    with pytest.raises(CorruptionError):
        codec.check_crcs(bytes(100))


@given(st.binary(max_size=300), st.integers(0, 300))
def test_a_checksum_goes_on_from_that_of_the_bytes_before(data, at):
    assert codec.crc32c(data[at:], codec.crc32c(data[:at])) == codec.crc32c(data)


def test_checksums_join_over_more_than_four_gibibytes():
    # of 2^32 + 5 zeros, in two steps and in many
    zeros = bytes(2**16)
    many = codec.crc32c(b"x")
    for _ in range(2**16):
        many = joined_crc32c(many, codec.crc32c(zeros), len(zeros))
    many = joined_crc32c(many, codec.crc32c(bytes(5)), 5)
    half = codec.crc32c(zeros)
    for power in range(16, 32):
        half = joined_crc32c(half, half, 2**power)
    whole = joined_crc32c(half, codec.crc32c(bytes(5)), 5)
    assert joined_crc32c(codec.crc32c(b"x"), whole, 2**32 + 5) == many


def test_misuse_of_the_codec_names_what_is_meant():
    data = codec.encode(value=[b"a"])
    for call, meant in (
        (lambda: codec.encode(value=[b"a"], offset=10), r"offset=np.arange\(10, 10 \+ n\), not 10"),
        (lambda: codec.encode(value=b"a"), r"value=\[b'a'\], not b'a'"),
        (lambda: codec.decode(data, cols=["offset"]), "decode has no option 'cols'; use columns="),
        (lambda: codec.decode(data, ["offset"]), "decode takes buffer by position.*columns="),
        (lambda: codec.decode_varints(), "decode_varints needs buffer="),
    ):
        with pytest.raises(TypeError, match=meant):
            call()
    for name, meant in {"murmur2": "use kafkalog.codec.partitions", "varints": "kafkalog.codec.decode_varints"}.items():
        with pytest.raises(AttributeError, match=meant):
            getattr(codec, name)
    assert [name for name in dir(codec) if name[0] != "_"] == sorted(codec.__all__)


def test_structured_arrays_and_dicts_of_headers_are_written():
    rows = np.array([(b"a", b"1", 5), (b"b", b"2", 6)], [("key", "S1"), ("value", "S1"), ("timestamp", "i8")])
    records = codec.decode(codec.encode(rows))
    assert records.value.to_pylist() == [b"1", b"2"]
    assert records.timestamp.tolist() == [5, 6]
    headers = [{"trace-id": b"1", b"n": None}, {}]
    decoded = codec.decode(codec.encode(value=[b"a", b"b"], headers=headers))
    assert decoded.headers.to_pylist() == [[(b"trace-id", b"1"), (b"n", None)], []]
    assert decoded.headers["trace-id"].to_pylist() == [b"1", None]


def test_what_is_no_buffer_is_named(log_dir):
    path = min(log_dir.glob("p-multi-0/*.log"))
    assert codec.decode(path.read_bytes(), columns="offset").offset[0] == 0
    with path.open("rb") as file, pytest.raises(TypeError, match=r"not BufferedReader: read\(\)"):
        codec.decode(file)
    with pytest.raises(ValueError, match=r"no column 'headers.a': .*records.headers\['a'\]"):
        codec.decode(path.read_bytes(), columns=["headers.a"])
