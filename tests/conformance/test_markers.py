"""Wrong transaction markers under a right checksum: what preflight and recover say, and what Kafka does."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

import builder
import pytest
from conformance import loads

import kafkalog
from kafkalog import format as kf
from kafkalog.repair.startup.preflight import BrokerVersion
from kafkalog.state.producers import ProducerState, encode_snapshot

pytestmark = [pytest.mark.broker, pytest.mark.slow]

PRODUCER = 7
TIME = 4_102_444_800_000
"""In the future, so that no producer expires."""
KEY, VALUE = struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 8)
GOOD = builder.record_v2(0, 0, KEY, VALUE)


def _control(records: list[bytes], **fields: int | bytes) -> Callable[[int], bytes]:
    return lambda base: builder.batch_v2(
        records,
        base_offset=base,
        control=True,
        transactional=True,
        producer_id=PRODUCER,
        producer_epoch=0,
        base_timestamp=TIME,
        **fields,  # type: ignore[arg-type]
    )


def _record(key: bytes | None = KEY, value: bytes | None = VALUE, **fields: int) -> Callable[[int], bytes]:
    return _control([builder.record_v2(0, 0, key, value, **fields)])  # type: ignore[arg-type]


MARKERS = {
    "good": _record(),
    "a short value": _record(value=b"\0\0\0"),
    "a value of a negative version": _record(value=b"\x80" + bytes(5)),
    "a long value": _record(value=bytes(9)),
    "no value": _record(value=None),
    "a short key": _record(key=b"\0\0\0"),
    "a type that ends no transaction": _record(key=struct.pack(">hh", 0, 2)),
    "no key": _record(key=None),
    "a header too many": _record(headers_count=1),
    "a wrong size": _record(body_length=15),
    "bytes behind": _control([], payload=GOOD + b"xx", records_count=1, last_offset_delta=0),
    "one record of two": _control([], payload=GOOD, records_count=2, last_offset_delta=0),
    "no record": _control([], payload=GOOD, records_count=0, last_offset_delta=0),
    "fewer records than none": _control([], payload=GOOD, records_count=-1, last_offset_delta=0),
    "no gzip": _control([], payload=b"no gzip", codec=1, records_count=1, last_offset_delta=0),
}
WHERE = ("in the middle", "at the end", "at the end of the first segment", "below the recovery point, without an index")


def _data(base: int) -> bytes:
    record = builder.record_v2(0, 0, b"k", b"v")
    fields = {"producer_id": PRODUCER, "producer_epoch": 0, "base_sequence": base, "base_timestamp": TIME}
    return builder.batch_v2([record], base_offset=base, transactional=True, **fields)  # type: ignore[arg-type]


def _make(root: Path, marker: Callable[[int], bytes], where: str) -> None:
    partition = root / "t-0"
    partition.mkdir(parents=True)
    first = _data(0) + marker(1)
    if where == "at the end":
        segments = {0: first}
    elif where == "at the end of the first segment":
        segments = {0: first, 2: _data(2)}
    else:
        segments = {0: first + _data(2), 3: _data(3)}
    is_lone = where == WHERE[-1]
    for base, data in segments.items():
        (partition / kf.segment_file_name(base, kf.LOG_SUFFIX)).write_bytes(data)
        if base or not is_lone:
            (partition / kf.segment_file_name(base, kf.INDEX_SUFFIX)).write_bytes(b"")
            (partition / kf.segment_file_name(base, kf.TIME_INDEX_SUFFIX)).write_bytes(b"")
    if is_lone:
        # a snapshot that forgets the producer: Kafka makes it anew
        none = ProducerState().entries()
        (partition / kf.segment_file_name(3, kf.PRODUCER_SNAPSHOT_SUFFIX)).write_bytes(encode_snapshot(none))
        (root / kf.RECOVERY_POINT_CHECKPOINT).write_text("0\n1\nt 0 4\n")


@pytest.mark.parametrize("version", [*loads.VERSIONS])
def test_markers_are_read_as_by_a_broker(version: BrokerVersion, tmp_path: Path) -> None:
    wrong, n_died = [], 0
    with loads.loader(version, tmp_path) as loader:
        for where in WHERE:
            for name, marker in MARKERS.items():
                root, ours = tmp_path / "data", tmp_path / "ours"
                for old in (root, ours):
                    shutil.rmtree(old, ignore_errors=True)
                _make(root, marker, where)
                (row,) = kafkalog.preflight(root, broker=version, clean=False, threads=1).partitions
                (done,) = kafkalog.recover(root, output=ours, threads=1, now=0).partitions
                answer = loader.load(root, clean=False)["t-0"]
                problems = [*loads.disagreements(row, root / "t-0", answer)]
                n_died += answer[0] == "died"
                if version == "4.3" and (done.error is None) != (answer[0] == "loaded"):
                    problems.append(f"recover says {done.error}")
                elif version == "4.3" and done.error is None:
                    problems += loads.differences(ours / "t-0", root / "t-0", with_epochs=True)
                wrong += [f"{name} {where}: {one}" for one in problems]
    assert wrong == []
    assert n_died >= 40
