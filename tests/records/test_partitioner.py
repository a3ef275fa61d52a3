"""Records go to the partitions that Kafka's producers choose."""

import ctypes
import itertools
import math
import random
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkalog._kernels import columns as columns_kernel
from kafkalog._kernels import partitioner as kernels
from kafkalog.interchange.arrow_input import record_slices
from kafkalog.records.byte_columns import BinaryColumn
from kafkalog.records.columns import RecordColumns
from kafkalog.records.partitioner import Partitioner, hash_keys, murmur2

pytestmark = pytest.mark.kernels

# of Kafka's own test of its hash
VECTORS = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def twin(key):
    """The same hash, written down once more and slowly."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = 0x9747B28C ^ len(key)
    whole = len(key) // 4 * 4
    for (word,) in struct.iter_unpack("<I", key[:whole]):
        k = word * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if rest := key[whole:]:
        h = (h ^ int.from_bytes(rest, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    h ^= h >> 15
    return h - (h >> 31 << 32)


# of librdkafka's unit test of rd_fnv1a, which are Go's; an absolute value, as Sarama's is
FNV1A = {
    b"kafka": 0xD33C4E1,
    b"giberish123456789": 0x77A58295,
    b"1234": 0x23BDD03,
    b"234": 0x2DEA3CD2,
    b"34": 0x740FA83E,
    b"4": 0x310CA263,
    b"PreAmbleWillBeRemoved,ThePrePartThatIs": 0x65CBD69C,
    b"reAmbleWillBeRemoved,ThePrePartThatIs": 0x6E49C79A,
    b"eAmbleWillBeRemoved,ThePrePartThatIs": 0x69EED356,
    b"AmbleWillBeRemoved,ThePrePartThatIs": 0x6ABCC023,
    b"": 0x7EE3623B,
}


def columns_of(keys, values=None):
    (columns,) = record_slices({"key": keys, "value": [b""] * len(keys) if values is None else values})
    return columns


def test_hashes_are_kafkas():
    assert {key: murmur2(key) for key in VECTORS} == VECTORS
    assert {key: twin(key) for key in VECTORS} == VECTORS


@given(st.lists(st.binary(max_size=40)))
def test_hashing_a_column_is_hashing_each_key(keys):
    data = np.frombuffer(b"".join(keys), np.uint8)
    column = BinaryColumn(np.cumsum([0, *map(len, keys)], dtype=np.int64), data)
    assert hash_keys(column).tolist() == [twin(key) for key in keys]
    assert hash_keys(column.slice(len(keys) // 2, len(keys))).tolist() == [twin(k) for k in keys[len(keys) // 2 :]]


@given(st.lists(st.binary(max_size=40)))
def test_the_crc_is_that_of_zlib(keys):
    data = np.frombuffer(b"".join(keys), np.uint8)
    column = BinaryColumn(np.cumsum([0, *map(len, keys)], dtype=np.int64), data)
    assert hash_keys(column, "crc32").view(np.uint32).tolist() == list(map(zlib.crc32, keys))


def test_partitions_are_those_of_librdkafka_and_sarama():
    keys = list(FNV1A)
    for name in ("fnv1a", "fnv1a_random", "sarama"):
        assert Partitioner(17, name=name).assign(columns_of(keys)).tolist() == [FNV1A[key] % 17 for key in keys]
    for name in ("consistent", "consistent_random"):
        got = Partitioner(17, name=name).assign(columns_of(keys[:-1])).tolist()
        assert got == [zlib.crc32(key) % 17 for key in keys[:-1]]
    for name in ("kafka", "murmur2", "murmur2_random"):
        got = Partitioner(17, name=name).assign(columns_of(keys)).tolist()
        assert got == [(twin(key) & 0x7FFFFFFF) % 17 for key in keys]


# Go's int32: the remainder first, then the sign; a key whose hash is -2^31 has no absolute value
@given(st.binary(max_size=12), st.integers(1, 1000))
def test_the_absolute_value_is_saramas(key, n):
    h = 0x811C9DC5
    for byte in key:
        h = (h ^ byte) * 0x01000193 & 0xFFFFFFFF
    h -= h >> 31 << 32
    assert Partitioner(n, name="sarama").assign(columns_of([key])).tolist() == [abs(int(math.fmod(h, n)))]


@pytest.mark.parametrize(
    ("name", "partitions"),
    [
        # an empty key, none, none
        ("kafka", [(twin(b"") & 0x7FFFFFFF) % 17, 0, 1]),
        ("murmur2_random", [(twin(b"") & 0x7FFFFFFF) % 17, 0, 1]),
        ("murmur2", [(twin(b"") & 0x7FFFFFFF) % 17] * 3),
        ("consistent", [0, 0, 0]),
        ("consistent_random", [0, 1, 2]),
        ("fnv1a", [0x7EE3623B % 17] * 3),
        ("fnv1a_random", [0x7EE3623B % 17, 0, 1]),
        ("sarama", [0x7EE3623B % 17, 0, 1]),
    ],
)
def test_records_without_a_key_go_where_the_client_sends_them(name, partitions):
    assert Partitioner(17, sticky_bytes=1, name=name).assign(columns_of([b"", None, None])).tolist() == partitions
    no_keys = RecordColumns(2, {"offset": np.arange(2)})
    expected = partitions[1:] if name != "consistent_random" else [0, 1]
    assert Partitioner(17, sticky_bytes=1, name=name).assign(no_keys).tolist() == expected


def test_librdkafka_itself_chooses_the_same_partitions():
    confluent_kafka = pytest.importorskip("confluent_kafka")
    beside = Path(confluent_kafka.__file__).parent.parent / "confluent_kafka.libs"
    libraries = [*beside.glob("librdkafka*.so*")]
    if not libraries:
        pytest.skip("no librdkafka to load")
    library = ctypes.CDLL(str(libraries[0]))
    rng = random.Random(5)
    keys = [rng.randbytes(rng.randrange(1, 50)) for _ in range(2000)]
    for name in ("consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random"):
        choose = getattr(library, f"rd_kafka_msg_partitioner_{name}")
        choose.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t, ctypes.c_int32, *[ctypes.c_void_p] * 2]
        expected = [choose(None, key, len(key), 12, None, None) for key in keys]
        assert Partitioner(12, name=name).assign(columns_of(keys)).tolist() == expected


def test_records_without_a_key_fill_a_partition_before_the_next_has_its_turn():
    columns = columns_of([None] * 7, [b"v" * 93] * 7)  # 100 bytes each
    assert Partitioner(3, sticky_bytes=200).assign(columns).tolist() == [0, 0, 1, 1, 2, 2, 0]
    assert Partitioner(3, sticky_bytes=201).assign(columns).tolist() == [0, 0, 0, 1, 1, 1, 2]
    assert Partitioner(3, sticky_bytes=1).assign(columns).tolist() == [0, 1, 2, 0, 1, 2, 0]
    mixed = columns_of([None, b"foobar", None, None], [b"v" * 93] * 4)
    assert Partitioner(3, sticky_bytes=200).assign(mixed).tolist() == [0, (murmur2(b"foobar") & 0x7FFFFFFF) % 3, 0, 1]


def test_a_table_without_keys_takes_turns_as_well():
    columns = RecordColumns(3, {"offset": np.arange(3)})
    assert Partitioner(2, sticky_bytes=7).assign(columns).tolist() == [0, 1, 0]


@given(st.lists(st.tuples(st.none() | st.binary(max_size=3), st.integers(0, 60)), min_size=1), st.integers(1, 9))
def test_it_does_not_matter_how_records_are_sliced(records, n_slices):
    columns = columns_of([key for key, _ in records], [b"v" * size for _, size in records])
    whole = Partitioner(4, sticky_bytes=100).assign(columns)
    sliced = Partitioner(4, sticky_bytes=100)
    edges = np.linspace(0, len(records), n_slices + 1).astype(int)
    parts = [sliced.assign(columns.slice(int(a), int(b))) for a, b in itertools.pairwise(edges)]
    assert np.concatenate(parts).tolist() == whole.tolist()


def test_a_column_whose_offsets_lead_out_of_its_bytes_is_refused():
    for offsets in ([0, 4], [-1, 2], [2, 1]):
        with pytest.raises(ValueError):
            hash_keys(BinaryColumn(np.array(offsets, np.int64), np.zeros(3, np.uint8)))
    with pytest.raises(ValueError):
        kernels.hash_keys(np.zeros(3, np.int64), np.zeros(0, np.uint8), np.zeros(1, np.int32))


def test_gathering_takes_no_byte_from_outside_of_its_column():
    data = np.frombuffer(b"abcdef", np.uint8)
    good = np.array([0, 1, 3, 6], np.int64)
    column = BinaryColumn(good, data, np.array([True, False, True]))
    assert column.take(np.array([2, 0, -1])).to_pylist() == [b"def", b"a", b"def"]
    to, places = np.zeros(4, np.uint8), np.array([0, 3, 4], np.int64)
    assert columns_kernel.gather(good, data, np.array([2, 0]), places, to) == 2
    assert to.tobytes() == b"defa"
    for bad in ([3], [-1]):
        assert columns_kernel.gather(good, data, np.array(bad), np.array([0, 3]), to) == 0
    # behind the offsets in memory is one more
    more = np.array([0, 1, 3, 6, 6], np.int64)
    assert columns_kernel.gather(more[:4], data, np.array([3]), np.array([0, 0]), to) == 0
    for offsets in ([0, 7], [-1, 2], [2, 1]):
        assert columns_kernel.gather(np.array(offsets), data, np.array([0]), np.array([0, 3]), to) == 0
    for new in ([2, 5], [-1, 2], [0, 2]):
        assert columns_kernel.gather(good, data, np.array([2]), np.array(new), to) == 0
    with pytest.raises(ValueError):
        columns_kernel.gather(good, data, np.array([0]), np.array([0]), to)


@pytest.mark.parametrize(("n", "sticky"), [(0, 1), (-1, 1), (2**31, 1), (1, 0)])
def test_impossible_numbers_are_refused(n, sticky):
    with pytest.raises(ValueError, match=r"n_partitions|sticky_bytes"):
        Partitioner(n, sticky_bytes=sticky)
