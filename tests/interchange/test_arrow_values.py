"""Keys, values, headers and numbers of every Arrow type that can hold them become record columns."""

import itertools

import numpy as np
import pyarrow as pa
import pytest
from arrow_records import refusal, rows, values

from kafkalog.errors import Reason, UnwritableError
from kafkalog.interchange import arrow_input
from kafkalog.interchange.arrow_input import record_slices

PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])
PAIR_TYPES = [(pa.string(), pa.binary()), (pa.binary(), pa.binary_view()), (pa.string_view(), pa.string())]
TEXTS = [b"a", None, b"", "ü".encode(), b"x" * 40, None, b"last"]


def _text(kind):
    return pa.array([None if text is None else text.decode() for text in TEXTS], kind)


@pytest.mark.parametrize(
    "array",
    [
        pa.array(TEXTS, pa.binary()),
        pa.array(TEXTS, pa.large_binary()),
        pa.array(TEXTS, pa.binary_view()),
        _text(pa.string()),
        _text(pa.large_string()),
        _text(pa.string_view()),
        _text(pa.string()).dictionary_encode(),
        pa.array(TEXTS, pa.binary()).dictionary_encode(),
        pa.ExtensionArray.from_storage(pa.json_(), _text(pa.string())),
    ],
    ids=lambda array: str(array.type)[:40],
)
def test_keys_and_values_of_any_type_of_bytes_are_taken(array):
    assert values({"value": array}) == TEXTS
    assert [row[1] for row in rows(record_slices({"value": array, "key": array}))] == TEXTS
    for start, stop in itertools.combinations(range(len(TEXTS) + 1), 2):
        assert values({"value": array.slice(start, stop - start)}) == TEXTS[start:stop]


def test_bytes_of_a_fixed_size_and_nulls_alone_are_taken():
    fixed = pa.array([b"ab", None, b"cd"], pa.binary(2))
    assert values({"value": fixed}) == [b"ab", None, b"cd"]
    assert values({"value": fixed.slice(2)}) == [b"cd"]
    assert values({"value": pa.array([b"ab", b"cd", b"ef"], pa.binary(2)).slice(1)}) == [b"cd", b"ef"]
    assert values({"value": pa.array([b"", None], pa.binary(0))}) == [b"", None]
    assert values({"value": pa.nulls(3)}) == [None] * 3


def test_bytes_below_a_null_are_no_part_of_a_record():
    data = pa.py_buffer(b"abc")
    array = pa.Array.from_buffers(
        pa.binary(), 3, [pa.py_buffer(b"\x05"), pa.py_buffer(np.array([0, 1, 2, 3], np.int32)), data]
    )
    (part,) = record_slices({"value": array})
    assert part.value.to_pylist() == [b"a", None, b"c"]
    assert part.value.offsets.tolist() == [0, 1, 1, 2]


def test_bytes_are_shared_where_they_can_be():
    array = pa.array([b"abc", b"defg"])
    (part,) = record_slices({"value": array})
    assert part.value.data.__array_interface__["data"][0] == array.buffers()[2].address


@pytest.mark.parametrize(
    "kind",
    [
        *(make(pa.struct([("key", key), ("value", value)])) for make in (pa.list_, pa.large_list, pa.list_view)
          for key, value in PAIR_TYPES),
        pa.large_list_view(pa.struct([("value", pa.large_binary()), ("key", pa.large_string())])),
        pa.map_(pa.string(), pa.binary()),
        pa.map_(pa.binary(), pa.large_string()),
    ],
    ids=str,
)  # fmt: skip
def test_headers_of_any_shape_are_taken(kind):
    pairs = [[("a", "1"), ("a", None)], None, [], [("", ""), ("é", "2"), ("b", "3")], [("z", None)]]
    expected = [[(k.encode(), None if v is None else v.encode()) for k, v in each or []] for each in pairs]
    field = kind.value_type.field("value") if not pa.types.is_map(kind) else kind.item_field
    is_text = pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
    given_pairs = [
        None if each is None else [(k, v if is_text or v is None else v.encode()) for k, v in each] for each in pairs
    ]
    if not pa.types.is_map(kind):
        given_pairs = [each and [{"key": k, "value": v} for k, v in each] for each in given_pairs]
    array = pa.array(given_pairs, kind)
    for start, stop in itertools.combinations(range(len(pairs) + 1), 2):
        got = rows(record_slices({"value": pa.nulls(stop - start), "headers": array.slice(start, stop - start)}))
        assert [row[3] for row in got] == expected[start:stop]


def test_lists_of_one_size_and_lists_of_nothing_are_headers_too():
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    fixed = pa.array([[{"key": "a", "value": b"1"}], None, [{"key": "b", "value": None}]], pa.list_(pair, 1))
    got = rows(record_slices({"value": pa.nulls(3), "headers": fixed}))
    assert [row[3] for row in got] == [[(b"a", b"1")], [], [(b"b", None)]]
    for nothing in (pa.nulls(2), pa.array([[], []]), pa.array([[], None], pa.list_(pair))):
        assert [row[3] for row in rows(record_slices({"value": pa.nulls(2), "headers": nothing}))] == [[], []]


def test_headers_in_python_are_pairs_or_dicts():
    for headers in ([[("a", b"1"), ("a", None)], []], [[{"key": "a", "value": b"1"}, {"key": "a", "value": None}], []]):
        got = rows(record_slices({"value": [b"x", b"y"], "headers": headers}))
        assert [row[3] for row in got] == [[(b"a", b"1"), (b"a", None)], []]


@pytest.mark.parametrize(
    ("headers", "what"),
    [
        (pa.array([[], [("a", b""), (b"\xff\xfe", b"")]], pa.map_(pa.binary(), pa.binary())), "header 1 .* not UTF-8"),
        (pa.array([[], [{"key": None, "value": b""}]]), "header 0 has no key"),
        (pa.array([[], [None]], pa.list_(PAIR)), "header 0 is null"),
        (pa.array([[], [None]]), "header 0 is null"),
    ],
)  # fmt: skip
def test_a_header_that_is_none_is_refused_with_its_place(headers, what):
    error = refusal({"value": [b"x", b"y"], "headers": headers})
    assert (error.reason, error.row) == (Reason.COLUMN_VALUE, 1)
    with pytest.raises(UnwritableError, match=what):
        list(record_slices({"value": [b"x", b"y"], "headers": headers}))


def test_text_that_is_not_utf_8_is_refused():
    bad = pa.Array.from_buffers(pa.string(), 1, [None, pa.py_buffer(np.array([0, 1], np.int32)), pa.py_buffer(b"\xff")])
    assert refusal({"value": bad}).reason is Reason.COLUMN_VALUE
    pairs = pa.StructArray.from_arrays([bad, pa.array([b""])], names=["key", "value"])
    assert refusal({"value": [b""], "headers": pa.ListArray.from_arrays([0, 1], pairs)}).reason is Reason.COLUMN_VALUE


def test_an_array_whose_offsets_lead_out_of_its_bytes_is_refused():
    for offsets in ([0, 100, 3], [0, 3, 2, 3], [0, -1, 3]):
        places = pa.py_buffer(np.array(offsets, np.int32))
        array = pa.Array.from_buffers(pa.binary(), len(offsets) - 1, [None, places, pa.py_buffer(b"abc")])
        assert refusal(pa.RecordBatch.from_arrays([array], names=["value"])).reason is Reason.COLUMN_VALUE


@pytest.mark.parametrize("text", [pa.string(), pa.string_view(), pa.binary_view(), pa.large_binary()])
def test_dictionaries_of_any_bytes_are_taken_by_their_decoded_size(text, monkeypatch):
    monkeypatch.setattr(arrow_input, "DECODED_BYTES", 600)
    is_bytes = text in (pa.binary_view(), pa.large_binary())
    texts = pa.array([b"x" * 100, None, b"y" * 250] if is_bytes else ["x" * 100, None, "y" * 250], text)
    array = pa.DictionaryArray.from_arrays(pa.array([0, 2, 1, None, 0, 2], pa.int32()), texts)
    for first in (0, 1):
        batch = pa.record_batch({"value": array}).slice(first)
        assert [part.num_rows for part in arrow_input.slices(batch)] == [2, 2, 2 - first]
        expected = [b"x" * 100, b"y" * 250, None, None, b"x" * 100, b"y" * 250][first:]
        assert values(pa.Table.from_batches([batch])) == expected


def test_a_categorical_of_polars_is_taken_as_a_key():
    polars = pytest.importorskip("polars")
    frame = polars.DataFrame({"key": ["a", None, "a", "b"], "value": ["v"] * 4})
    frame = frame.with_columns(polars.col("key").cast(polars.Categorical))
    assert [row[1] for row in rows(record_slices(frame))] == [b"a", None, b"a", b"b"]
