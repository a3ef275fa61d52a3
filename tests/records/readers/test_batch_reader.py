"""`walk_checked` says what `walk` and a look at every checksum say, whatever the pieces it reads in."""

import contextlib

import numpy as np
import pytest
import strategies
from builder import batch_v2
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkalog.errors import FileChangedError, KafkalogError, Limits, Reason
from kafkalog.records import batch_table
from kafkalog.records.batch_table import COLUMNS, BatchTable, valid_crcs
from kafkalog.records.header_walk import walk
from kafkalog.records.readers import batch_reader
from kafkalog.records.readers.batch_reader import walk_checked
from kafkalog.storage.files import open_source
from kafkalog.storage.source import BufferSource, FileSource


def outcome(windows):
    """Rows, checksums, and what was raised."""
    tables, valid, error = [BatchTable.empty()], [np.empty(0, np.bool_)], None
    try:
        for window in windows:
            tables.append(window.batches)
            valid.append(valid_crcs(window) if window.valid is None else window.valid)
            assert len(valid[-1]) == len(window.batches)
            assert window.data.size or valid[-1].all()
    except KafkalogError as raised:
        error = (type(raised), raised.reason, raised.position, raised.base_offset, raised.detail)
    table = BatchTable.concatenate(tables)
    return (
        list(zip(*(getattr(table, name).tolist() for name in COLUMNS), strict=True)),
        np.concatenate(valid).tolist(),
        error,
    )


@pytest.fixture
def in_small_pieces(monkeypatch):
    monkeypatch.setattr(batch_reader, "_ROOM_BYTES", 100)
    monkeypatch.setattr(batch_reader, "RUN_BYTES", 700)
    monkeypatch.setattr(batch_reader, "_CHECKED_ROWS", 3)
    return monkeypatch


@given(
    st.data(), st.sampled_from([100, 128, 1000, 2**16]), st.sampled_from([64, 700, 2**20]), st.sampled_from([1, 3, 50])
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None)
def test_the_same_as_walk_on_damaged_files(in_small_pieces, tmp_path, data, room, run, rows):
    for name, value in (("_ROOM_BYTES", room), ("RUN_BYTES", run)):
        in_small_pieces.setattr(batch_reader, name, value)
    in_small_pieces.setattr(batch_table, "_ROWS", rows)
    segment = data.draw(strategies.segments())
    is_damaged = data.draw(st.booleans())
    content = data.draw(strategies.damaged(segment)).data if is_damaged else segment.data
    # of a batch that is too large and wrong as well, either is said
    limits = Limits(max_batch_bytes=2**20 if is_damaged else data.draw(st.sampled_from([500, 2**20])))
    path = tmp_path / "0.log"
    path.write_bytes(content)
    window_bytes = data.draw(st.sampled_from([64, 1000, 2**22]))
    with open_source(path, memory_map=False) as source:
        for needs_control_bytes in (False, True):
            found = list_until_error(
                walk_checked(source, window_bytes=window_bytes, limits=limits, needs_control_bytes=needs_control_bytes)
            )
            for window in found:
                end = window.batches.end_position
                following = int.from_bytes(content[end : end + 8], "big", signed=True)
                assert window.next_offset is None or window.next_offset == following
            if needs_control_bytes:
                assert all(window.data.size for window in found if window.batches.is_control.any())
        expected = outcome(walk(source, window_bytes=window_bytes, limits=limits))
        assert outcome(walk_checked(source, window_bytes=window_bytes, limits=limits)) == expected
        small = walk_checked(source, window_bytes=window_bytes, first_window_bytes=64, limits=limits)
        assert outcome(small) == expected
    assert outcome(walk_checked(BufferSource(content, path=str(path)), limits=limits))[:2] == expected[:2]


def list_until_error(windows):
    found = []
    with contextlib.suppress(KafkalogError):
        found.extend(windows)
    return found


def test_a_file_where_all_is_well_is_read_without_windows(in_small_pieces, tmp_path):
    path = tmp_path / "0.log"
    sizes = [3, 500, 2, 90, 4000, 1]  # some do not fit the room
    path.write_bytes(
        b"".join(batch_v2(payload=b"x" * size, base_offset=n, last_offset_delta=0) for n, size in enumerate(sizes))
    )
    in_small_pieces.setattr(batch_reader, "RUN_BYTES", 10_000)
    with open_source(path, memory_map=False) as source:
        windows = list(walk_checked(source))
    assert [window.data.size for window in windows] == [0] * len(windows)
    assert np.concatenate([window.batches.base_offset for window in windows]).tolist() == list(range(len(sizes)))
    following = [window.next_offset for window in windows]
    assert following[-1] is None
    known = {offset for offset in following if offset is not None}
    assert known <= {window.batches.base_offset[0] for window in windows[1:]}
    assert known


def test_a_file_that_changes_is_an_error(in_small_pieces, tmp_path):
    path = tmp_path / "0.log"
    content = b"".join(batch_v2(payload=b"x" * 50, base_offset=n, last_offset_delta=0) for n in range(40))
    path.write_bytes(content)
    with open_source(path, memory_map=False) as source:
        windows = walk_checked(source)
        next(windows)
        path.write_bytes(content[:900])
        with pytest.raises(FileChangedError):
            list(windows)


def test_rare_damage_costs_few_windows(in_small_pieces, tmp_path):
    path = tmp_path / "0.log"
    good = [batch_v2(payload=b"x" * 50, base_offset=n, last_offset_delta=0) for n in range(300)]
    good[150] = good[150][:-1] + b"y"
    path.write_bytes(b"".join(good))
    in_small_pieces.setattr(batch_reader, "RUN_BYTES", 10_000)
    in_small_pieces.setattr(batch_reader, "_CHECKED_ROWS", 50)
    read = []
    window_of = FileSource.window

    def window(source, start, stop):
        read.append(stop - start)
        return window_of(source, start, stop)

    in_small_pieces.setattr(FileSource, "window", window)
    with open_source(path, memory_map=False) as source:
        windows = list(walk_checked(source, window_bytes=500))
    assert 500 <= sum(read) <= 3000
    assert [bool(window.valid.all()) for window in windows if window.valid is not None].count(False) == 1
    assert sum(len(window.batches) for window in windows) == 300


def reason_for(data):
    """Why walking these bytes ended before their end."""
    error = outcome(walk(BufferSource(data)))[2]
    return None if error is None else error[1]


def test_17_bytes_or_fewer_are_a_torn_batch_whatever_they_hold():
    good = batch_v2(payload=b"x", last_offset_delta=0)
    for tail in (b"\xff" * 17, bytes(16) + b"\x07", batch_v2(base_offset=1)[:17]):
        assert reason_for(good + tail) is Reason.PARTIAL_TAIL
    assert reason_for(good + b"\xff" * 18) is Reason.SIZE_NEGATIVE


def test_a_batch_may_end_at_the_largest_offset_and_not_beyond():
    assert reason_for(batch_v2(payload=b"x", base_offset=2**63 - 6, last_offset_delta=5)) is None
    beyond = batch_v2(payload=b"x", base_offset=2**63 - 6, last_offset_delta=6)
    assert reason_for(beyond) is Reason.HEADER_INCONSISTENT
