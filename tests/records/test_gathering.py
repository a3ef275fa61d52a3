"""Records that kernels append to the columns of others, in place of a part."""

import warnings

import builder
import numpy as np
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.records.byte_columns import BinaryColumn, HeadersColumn
from kafkalog.records.columns import ALL_COLUMNS
from kafkalog.records.readers import record_reader

WANTED = ["offset", "timestamp", "timestamp_type", "key", "value", "headers"]


@pytest.fixture
def appends_all(monkeypatch):
    """Records of small files are appended, too, and the number of windows is counted."""
    monkeypatch.setattr(record_reader, "_LEAST_APPENDED", 1)
    monkeypatch.setattr("kafkalog.scanning.execution._ALONE_BYTES", 2000)
    monkeypatch.setattr("kafkalog.scanning.execution._TOGETHER_BYTES", 4000)
    monkeypatch.setattr("kafkalog.scanning.execution._MIN_WINDOW_BYTES", 1000)
    appended = []
    original = record_reader.RecordReader._append

    def append(self, *args):
        appended.append(original(self, *args))
        return appended[-1]

    monkeypatch.setattr(record_reader.RecordReader, "_append", append)
    return appended


def as_lists(columns):
    return {
        name: column.tolist() if isinstance(column, np.ndarray) else column.to_pylist()
        for name, column in columns.items()
    }


def written(directory, batches, base=0):
    directory.mkdir(exist_ok=True)
    (directory / f"{base:020d}.log").write_bytes(b"".join(batches))
    return directory


fields = st.one_of(st.none(), st.binary(max_size=20), st.binary(min_size=90, max_size=300))
headers = st.lists(st.tuples(st.binary(max_size=9), fields), max_size=3)
records = st.lists(st.tuples(fields, fields, st.one_of(st.just([]), headers)), min_size=1, max_size=12)
kinds = st.sampled_from(["v2", "v2", "v2", "append time", "gzip", "lz4", "control", "v1", "damaged"])


def batch_of(kind, rows, offset):
    if kind == "v1":
        messages = [
            builder.message(offset + i, key=key, value=value, magic=1, timestamp=5 + i)
            for i, (key, value, _) in enumerate(rows)
        ]
        return b"".join(messages), len(rows)
    if kind == "control":
        return builder.control_batch(builder.COMMIT, base_offset=offset, producer_id=3), 1
    encoded = [
        builder.record_v2(i, key=key, value=value, headers=heads, timestamp_delta=i)
        for i, (key, value, heads) in enumerate(rows)
    ]
    codec = {"gzip": builder.GZIP, "lz4": builder.LZ4}.get(kind, 0)
    batch = builder.batch_v2(encoded, base_offset=offset, codec=codec, log_append_time=kind == "append time")
    if kind == "damaged":
        batch = batch[:-1] + bytes([batch[-1] ^ 1])
    return batch, len(rows)


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.tuples(kinds, records), min_size=1, max_size=12), st.integers(1, 3), st.booleans())
def test_records_that_are_appended_are_those_of_parts(tmp_path_factory, parts, threads, has_two_segments):
    directory = tmp_path_factory.mktemp("log") / "t-0"
    batches, offset, starts = [], 0, []
    for kind, rows in parts:
        batch, n = batch_of(kind, rows, offset)
        starts.append(offset)
        offset += n
        batches.append(batch)
    half = len(batches) // 2 if has_two_segments else 0
    if half:
        written(directory, batches[:half])
    written(directory, batches[half:], starts[half])
    with pytest.MonkeyPatch.context() as patch, warnings.catch_warnings():
        warnings.simplefilter("ignore", kafkalog.CorruptionWarning)
        patch.setattr(record_reader.RecordReader, "_can_append", lambda *_: False)
        scan = kafkalog.scan(directory, columns=WANTED, threads=threads, on_corruption="skip")
        expected, findings = as_lists(scan.to_numpy()), scan.findings
        patch.setattr(record_reader.RecordReader, "_can_append", lambda *_: True)
        patch.setattr("kafkalog.scanning.execution._ALONE_BYTES", 700)
        patch.setattr("kafkalog.scanning.execution._TOGETHER_BYTES", 2100)
        patch.setattr("kafkalog.scanning.execution._MIN_WINDOW_BYTES", 700)
        again = kafkalog.scan(directory, columns=WANTED, threads=threads, on_corruption="skip")
        assert as_lists(again.to_numpy()) == expected
        assert [(one.reason, one.position, one.base_offset) for one in again.findings] == [
            (one.reason, one.position, one.base_offset) for one in findings
        ]


@pytest.mark.parametrize("threads", [1, 4])
def test_headers_and_nulls_may_begin_late(tmp_path, appends_all, threads):
    rows = [(b"k%d" % i, b"v" * 300, []) for i in range(60)]
    rows[40] = (None, None, [(b"a", b"1"), (b"b", None)])
    batches = [batch_of("v2", rows[i : i + 3], i)[0] for i in range(0, 60, 3)]
    directory = written(tmp_path / "t-0", batches)
    columns = kafkalog.read_numpy(directory, columns=WANTED, threads=threads)
    assert columns.headers.to_pylist() == [row[2] for row in rows]
    assert columns.key.to_pylist() == [row[0] for row in rows]
    assert columns.key.null_count == 1
    assert columns.offset.tolist() == list(range(60))
    n_appended = sum(window is not None for window in appends_all)
    assert n_appended > 3


def test_a_single_window_is_not_copied(tmp_path, monkeypatch):
    directory = written(tmp_path / "t-0", [batch_of("v2", [(b"k", b"v", [])] * 5, 0)[0]])
    windows = []
    original = record_reader.RecordReader._read

    def read(self, *args):
        windows.append(original(self, *args))
        return windows[-1]

    monkeypatch.setattr(record_reader.RecordReader, "_read", read)
    columns = kafkalog.read_numpy(directory, columns=ALL_COLUMNS)
    (window,) = (window for window in windows if window is not None)
    block = np.frombuffer(window.block, np.uint8)
    assert np.shares_memory(columns.value.data, block)
    assert all(column.flags.writeable for column in columns.values() if isinstance(column, np.ndarray))
    assert isinstance(columns.value, BinaryColumn)
    assert isinstance(columns.headers, HeadersColumn)


def test_damage_that_stops_a_partition_ends_what_is_appended(tmp_path, appends_all):
    good = [batch_of("v2", [(b"k", b"v" * 200, [])] * 3, 3 * i)[0] for i in range(12)]
    good[6] = good[6][:70] + bytes([good[6][70] ^ 1]) + good[6][71:]
    directory = written(tmp_path / "t-0", good)
    for threads in (1, 3):
        with pytest.warns(kafkalog.CorruptionWarning):
            columns = kafkalog.read_numpy(directory, on_corruption="stop", threads=threads)
        assert columns.offset.tolist() == list(range(18))
        assert {len(column) for column in columns.values()} == {18}
    assert any(window is not None for window in appends_all)
