"""Confluent's frames: ids and GUIDs before values and in headers, message indexes, and what is none."""

from __future__ import annotations

import uuid

import pyarrow as pa

from kafkalog.values.frames import HEADER_NAMES, read_frames, strip_frames
from kafkalog.values.payloads import Payloads

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
GUID = uuid.UUID("0b7d6f0e-8a3d-4f3e-9a5e-0123456789ab")
ZEROS = uuid.UUID("0b7d6f0e-8a3d-4f3e-9a5e-012345670000")


def groups(
    values: list[bytes | None], headers: pa.Array | None = None, *, has_indexes: bool = False
) -> tuple[dict, dict]:
    payloads = Payloads.of(pa.array(values, pa.binary()))
    found, failures = read_frames(payloads, headers, HEADER_NAMES["value"], has_indexes=has_indexes)
    rows = {
        (group.key, group.indexes): {row: group.payloads.bytes(i) for i, row in enumerate(group.rows.tolist())}
        for group in found
    }
    return rows, failures


def test_values_are_grouped_by_the_schema_in_front_of_them() -> None:
    values = [b"\0\0\0\0\7a", None, b"\1" + GUID.bytes + b"b", b"\0\0\0\0\7", b"\0\xff\0\0\0c", b"\1" + ZEROS.bytes]
    rows, failures = groups(values)
    assert not failures
    assert rows == {
        (7, ()): {0: b"a", 3: b""},
        (0xFF000000, ()): {4: b"c"},
        (str(GUID), ()): {2: b"b"},
        (str(ZEROS), ()): {5: b""},
    }


def test_what_has_no_frame_says_why() -> None:
    _, failures = groups([b"", b"\0\0\0", b"\1short", b"\2\0\0\0\0\0", b'{"a": 1}'])
    no_frame = "no frame: the first byte is not 0 or 1"
    inside = "the bytes end inside the frame"
    assert failures == {0: "empty, so there is no frame", 1: inside, 2: inside, 3: no_frame, 4: no_frame}


def test_the_first_header_of_the_name_stands_for_a_frame() -> None:
    name = HEADER_NAMES["value"]
    frame = {"key": name, "value": b"\1" + GUID.bytes}
    other = {"key": "trace", "value": b"x"}
    again = {"key": name, "value": b"\0\0\0\0\1"}
    headers = pa.array(
        [[other], [other, frame, again], [], [{"key": name, "value": b"?"}], [{"key": name, "value": None}], [frame]],
        HEADERS,
    )
    values = [b"\0\0\0\0\7a", b"whole", b"\0\0\0\0\7b", b"c", b"\0\0\0\0\7d", None]
    rows, failures = groups(values, headers)
    assert rows == {(7, ()): {0: b"a", 2: b"b", 4: b"d"}, (str(GUID), ()): {1: b"whole"}}
    assert failures == {3: "the header holds no schema id"}
    rows, _ = groups(values[1:3], headers[1:3])
    assert rows == {(7, ()): {1: b"b"}, (str(GUID), ()): {0: b"whole"}}


def test_message_indexes_stand_behind_the_id() -> None:
    # zigzag varints: a count and as many numbers; no count for the first message
    values = [
        b"\0\0\0\0\7\0a",
        b"\0\0\0\0\7\2\4b",
        b"\0\0\0\0\7\4\0\2",
        b"\0\0\0\0\7",
        b"\0\0\0\0\7\xff\xff\xff\xff\x0f",
    ]
    rows, failures = groups(values, has_indexes=True)
    assert rows == {(7, (0,)): {0: b"a"}, (7, (2,)): {1: b"b"}, (7, (0, 1)): {2: b""}}
    assert failures == dict.fromkeys((3, 4), "the message indexes are damaged")


def test_frames_are_stripped_whatever_they_name() -> None:
    payloads, failures = strip_frames(
        Payloads.of(pa.array([b"\0\0\0\0\7a", b"?", b"\0\0\0\0\1bc"], pa.binary())), None, HEADER_NAMES["key"]
    )
    assert [payloads.bytes(row) for row in range(3)] == [b"a", None, b"bc"]
    assert [*failures] == [1]
