"""Header fields: what contradicts itself, the records or the neighbouring batches is refused; sequences continue."""

import random

import numpy as np
import pytest
from encoding import (
    columns_of,
    encoded,
    encoded_alone,
    some_batches,
    twin_of,
)
from reading import read

from kafkalog.errors import KafkalogError, UnwritableError
from kafkalog.format import Codec
from kafkalog.records.batch_spec import BatchSpec
from kafkalog.records.codecs import Compression
from kafkalog.records.columns import RecordColumns
from kafkalog.records.encode import encode_batches

CODECS = [Compression(codec) for codec in Codec]


def test_a_sequence_goes_on_from_batch_to_batch_and_wraps():
    columns = columns_of([(offset, 5, b"k", None, []) for offset in (0, 1, 2, 3, 10, 11)])
    spec = BatchSpec(producer_id=1, producer_epoch=0, base_sequence=2**31 - 3)
    window = encode_batches(columns, np.array([0, 2, 4, 5, 6]), spec)
    # 2^31 - 3 and - 2; then - 1 and 0; an offset left out takes no number from the next batch
    assert window.batches.base_sequence.tolist() == [2**31 - 3, 2**31 - 1, 1, 2]
    gap = encode_batches(columns, np.array([0, 5, 6]), spec)
    assert gap.batches.base_sequence.tolist() == [2**31 - 3, 8]
    assert read(gap.data.tobytes()).columns.sequence.tolist() == [2**31 - 3, 2**31 - 2, 2**31 - 1, 0, 7, 8]
    given_each = BatchSpec(producer_id=1, producer_epoch=0, base_sequence=np.array([7, 7]))
    assert encode_batches(columns, np.array([0, 5, 6]), given_each).batches.base_sequence.tolist() == [7, 7]


def test_sequences_over_huge_spans_do_not_overflow():
    offsets = np.array([0, 2**31 - 1, 2**31, 2**32 - 1, 2**32], np.int64)
    spec = BatchSpec(producer_id=1, producer_epoch=0, base_sequence=5)
    window = encode_batches(RecordColumns(5, {"offset": offsets}), np.array([0, 2, 4, 5]), spec)
    assert window.batches.base_sequence.tolist() == [5, 5, 5]


TWO = RecordColumns(2, {"offset": np.array([10, 20]), "timestamp": np.array([1, 2])})


@pytest.mark.parametrize(
    ("spec", "boundaries", "problem"),
    [
        ({}, [], "a place more"),
        ({}, [[0, 2]], "a place more"),
        ({}, [0, 3], "do not rise within 0 to 2"),
        ({}, [-1, 2], "do not rise within 0 to 2"),
        ({}, [0, 2, 1], "do not rise within 0 to 2"),
        ({}, [0, 2, 2], "batch 1 has no records"),
        ({"leader_epoch": [1, 2]}, [0, 2], "leader_epoch has 2 values for 1"),
        ({"leader_epoch": 2**31}, [0, 2], "leader_epoch does not fit 32 bits"),
        ({"compression": CODECS}, [0, 2], "compression has 5 values for 1"),
        ({"last_offset": [19]}, [0, 2], "last_offset of batch 0 is below"),
        ({"last_offset": [5]}, [0, 2], "last_offset of batch 0 is below"),
        ({"producer_id": [1], "producer_epoch": [2**15]}, [0, 2], "producer_epoch does not fit 16 bits"),
        ({"base_sequence": 2**31, "producer_id": 1, "producer_epoch": 1}, [0, 2], "more than 31 bits"),
    ],
)
def test_what_does_not_fit_together_is_a_value_error(spec, boundaries, problem):
    with pytest.raises(ValueError, match=problem) as caught:
        encode_batches(TWO, np.array(boundaries, np.int64), BatchSpec(**spec))
    assert not isinstance(caught.value, KafkalogError)


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"timestamp_type": 2}, "CREATE_TIME or LOG_APPEND_TIME"),
        ({"timestamp_type": -1}, "CREATE_TIME or LOG_APPEND_TIME"),
        ({"timestamp_type": 1}, "need log_append_time"),
        ({"is_transactional": True}, "transactional batches need a producer_id"),
        ({"producer_epoch": 0}, "needs a producer_id"),
        ({"base_sequence": 0}, "needs a producer_id"),
        ({"producer_id": 0}, "needs a producer_epoch"),
        ({"producer_id": 0, "producer_epoch": 0}, "needs a base_sequence"),
    ],
)
def test_a_spec_that_kafkas_builder_refuses_is_refused(spec, problem):
    with pytest.raises(ValueError, match=problem):
        BatchSpec(**spec)


@pytest.mark.parametrize("spec", [{"max_timestamp": -1}, {"timestamp_type": 1, "log_append_time": -1}])
def test_a_largest_timestamp_of_minus_one_is_written(spec):
    assert encode_batches(TWO, np.array([0, 2]), BatchSpec(**spec)).batches.max_timestamp.tolist() == [-1]


def test_a_base_offset_of_minus_one_is_refused():
    with pytest.raises(UnwritableError, match="offset -1 is negative"):
        encode_batches(TWO, np.array([0, 2]), BatchSpec(base_offset=-1))


def test_one_batch_and_its_spec_as_numbers_is_the_same_as_arrays():
    for batch in some_batches(random.Random(9), 60, 2**32):
        assert encoded_alone(batch).data.tobytes() == encoded([batch]).data.tobytes() == twin_of(batch)
