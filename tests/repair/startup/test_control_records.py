"""The marker of a control batch as a broker reads it."""

from __future__ import annotations

import struct

import builder
import pytest

from kafkalog.repair.startup.control_records import Marker, marker
from kafkalog.repair.startup.forecast import LoadFailure
from kafkalog.repair.startup.segment_reading import BatchHeader


def read(content: bytes, broker: str = "4.3") -> Marker | None:
    return marker(BatchHeader(7, len(content), content[:61]), content, broker)


def test_a_marker_is_read() -> None:
    assert read(builder.control_batch(0, coordinator_epoch=5, timestamp=99)) == Marker(True, 5, 99)
    assert read(builder.control_batch(1, coordinator_epoch=-3)) == Marker(False, -3, 0)
    record = builder.record_v2(0, 2, struct.pack(">hh", 0, 1), struct.pack(">hi", 0, 8), [(b"name", b"value")])
    zipped = builder.batch_v2([record], codec=1, base_timestamp=40, control=True)
    assert read(zipped) == Marker(False, 8, 42)
    appended = builder.batch_v2([record], log_append_time=True, max_timestamp=77, control=True)
    assert read(appended) == Marker(False, 8, 77)
    assert read(builder.batch_v2([], control=True)) is None


@pytest.mark.parametrize(
    ("content", "name", "old_name"),
    [
        (builder.control_batch(0)[:60], "IndexOutOfBoundsException", ""),
        (builder.control_batch(0, key=b"\0\0\0"), "InvalidRecordException", ""),
        (builder.control_batch(0, key=b"\x80\0\0\0"), "InvalidRecordException", ""),
        (builder.control_batch(6), "IllegalArgumentException", ""),
        (builder.control_batch(0, value=b"\0\0\0"), "BufferUnderflowException", "InvalidRecordException"),
        (builder.control_batch(0, value=b"\x80" + bytes(5)), "InvalidRecordException", ""),
        (builder.batch_v2([builder.record_v2(0, 0, None, b"")], control=True), "NullPointerException", ""),
        (builder.batch_v2([b"\x02\x00"], control=True), "InvalidRecordException", ""),
        (builder.batch_v2([b"\x00"] * 2, control=True), "InvalidRecordException", ""),
        (builder.batch_v2([b"\x20" + bytes(15)], control=True), "InvalidRecordException", ""),
        (builder.batch_v2([b"\x20"], control=True), "InvalidRecordException", "NullPointerException"),
        (builder.batch_v2([b"\x20" + bytes(15), b""], control=True), "InvalidRecordException", "NullPointerException"),
        (builder.batch_v2(payload=b"no gzip", codec=1, records_count=1, control=True), "KafkaException", ""),
    ],
)
def test_what_is_wrong_is_what_a_broker_dies_of(content: bytes, name: str, old_name: str) -> None:
    for broker, wanted in (("4.3", name), ("2.8", old_name or name)):
        with pytest.raises(LoadFailure, match="7") as raised:
            read(content, broker)
        assert raised.value.java_name == wanted
