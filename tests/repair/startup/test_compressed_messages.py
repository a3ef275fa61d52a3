"""The base offset of a compressed v0 or v1 message, and what a broker dies of where there is none."""

from __future__ import annotations

import gzip
import random
import shutil
from pathlib import Path

import builder
import golden_sets
import pytest
from startups import asked, logs

import kafkalog
from kafkalog import Segment
from kafkalog.repair.startup.compressed_messages import base_offset
from kafkalog.repair.startup.forecast import LoadFailure


def messages(name: str) -> list[bytes]:
    """The messages of a segment of a real broker."""
    log = logs(golden_sets.partitions("k28")[name])[0]
    data, batches = log.read_bytes(), Segment(log).batches
    return [data[a:b] for a, b in zip(batches.position, batches.next_position, strict=True)]


@pytest.mark.parametrize(
    "name", ["p-v0-gzip-0", "p-v0-lz4-0", "p-v0-snappy-0", "p-v1-gzip-0", "p-v1-lz4-0", "p-v1-none-0"]
)
def test_it_is_the_offset_of_the_first_message_inside(name: str) -> None:
    batches = Segment(logs(golden_sets.partitions("k28")[name])[0]).batches
    bases = [base_offset(message, 0) for message in messages(name)]
    assert bases[0] == 0
    assert bases[1:] == (batches.last_offset[:-1] + 1).tolist()


@pytest.mark.parametrize(
    ("at", "value", "name"),
    [
        (17, 5, "IllegalArgumentException"),
        (17, 4, "InvalidRecordException"),
        (16, 200, "InvalidRecordException"),
        (18, 0x40, "IndexOutOfBoundsException"),
        (22, 0x40, "IllegalArgumentException"),
        (22, 0xFF, "InvalidRecordException"),
        (26, 0, "KafkaException"),
    ],
)
def test_what_is_wrong_is_what_a_broker_dies_of(at: int, value: int, name: str) -> None:
    message = bytearray(messages("p-v0-gzip-0")[0])
    message[at] = value
    with pytest.raises(LoadFailure) as raised:
        base_offset(bytes(message), 77)
    assert raised.value.java_name == name
    assert "at 77" in str(raised.value)


def test_a_v1_message_ends_at_its_own_offset_unless_that_is_0(partition: Path) -> None:
    message = messages("p-v1-gzip-0")[1]
    n_inside = int.from_bytes(message[:8], "big") - base_offset(message, 0)
    assert n_inside > 0
    assert base_offset(bytes(8) + message[8:], 0) == 0
    with pytest.raises(LoadFailure) as raised:
        base_offset((n_inside - 1).to_bytes(8, "big") + message[8:], 77)
    assert raised.value.java_name == "InvalidRecordException"


def test_a_magic_byte_makes_a_broker_look_inside_and_die(partition: Path) -> None:
    last = logs(partition)[-1]
    data = bytearray(last.read_bytes())
    at = int(Segment(last).batches.position[-1])
    data[at + 16 : at + 18] = b"\x01\x05"
    last.write_bytes(data)
    row = asked(partition, clean=True)
    assert (row.verdict, row.exceptions[0].name) == ("does not start", "IllegalArgumentException")
    assert "codec 5" in row.exceptions[0].detail


def test_the_log_ends_at_the_last_segments_base_where_no_message_holds_the_last_indexed_offset(tmp_path: Path) -> None:
    partition = tmp_path / "p-v1-rdk-0"
    shutil.copytree(golden_sets.partitions("k28")[partition.name], partition)
    (log,) = (one for one in logs(partition) if one.stem.endswith("100"))
    data = log.read_bytes()
    (start, _), (_, end) = builder.batch_positions(data)[4:6]
    moved = int.from_bytes(data[start : start + 8], "big") + 300  # a checksum of v1 does not cover it
    log.write_bytes(data[:start] + moved.to_bytes(8, "big") + data[start + 8 : end])
    for path in partition.glob("*.*"):
        if int(path.stem) > 100:
            path.unlink()
    interval = start - 1  # the last entry is that of this message
    (row,) = kafkalog.preflight(partition, clean=False, index_interval_bytes=interval).partitions
    (done,) = kafkalog.recover(partition, dry_run=True, index_interval_bytes=interval).partitions
    assert (row.exceptions, done.error) == ([], None)
    assert row.log_end_offset == done.log_end_offset == 100


def compressed(content: bytes) -> bytes:
    """A v0 message with this in a gzip stream."""
    return builder.message(0, None, gzip.compress(content), magic=0, attributes=1)


@pytest.mark.parametrize(("codec", "name"), [(1, "InvalidRecordException"), (6, "IllegalArgumentException")])
def test_the_first_message_inside_may_not_be_compressed(codec: int, name: str) -> None:
    plain = builder.message(7, None, b"value", magic=0)
    assert base_offset(compressed(plain * 2), 0) == 7
    other = bytearray(plain)
    other[17] |= codec
    assert base_offset(compressed(plain + bytes(other)), 0) == 7
    with pytest.raises(LoadFailure) as raised:
        base_offset(compressed(bytes(other) + plain), 0)
    assert raised.value.java_name == name


def test_of_a_gzip_stream_that_is_cut_what_is_there_counts() -> None:
    """A broker decompresses as it reads: it dies of a message that is too small before it sees that the stream ends."""
    whole = bytes(8) + (5).to_bytes(4, "big") + random.Random(1).randbytes(2000)
    for value, name in (
        (gzip.compress(whole)[:-900], "CorruptRecordException"),
        (gzip.compress(whole)[:12], "KafkaException"),
    ):
        with pytest.raises(LoadFailure) as raised:
            base_offset(builder.message(0, None, value, magic=0, attributes=1), 0)
        assert raised.value.java_name == name


@pytest.mark.parametrize(("after", "name"), [(1000, "KafkaException"), (9000, "CorruptRecordException")])
def test_of_a_damaged_gzip_stream_the_parts_of_8_kib_before_the_damage_count(after: int, name: str) -> None:
    too_small = bytes(8) + (5).to_bytes(4, "big")
    first = gzip.compress(too_small + random.Random(1).randbytes(after), 0)[:-8]  # one block that is stored
    damaged = first[:10] + bytes([first[10] & 0xFE]) + first[11:] + b"\x07"  # not the last; a block of no kind
    with pytest.raises(LoadFailure) as raised:
        base_offset(builder.message(0, None, damaged, magic=0, attributes=1), 0)
    assert raised.value.java_name == name


@pytest.mark.parametrize("flags", [2, 4, 8, 16])
def test_the_header_of_a_gzip_stream_may_have_more_fields(flags: int) -> None:
    """All but a checksum of the header, which is wrong here."""
    more = {2: b"\0\0", 4: b"\3\0abc", 8: b"name\0", 16: b"comment\0"}[flags]
    cut = gzip.compress(bytes(8) + (5).to_bytes(4, "big") + random.Random(1).randbytes(2000))[:-900]
    value = cut[:3] + bytes([flags]) + cut[4:10] + more + cut[10:]
    with pytest.raises(LoadFailure) as raised:
        base_offset(builder.message(0, None, value, magic=0, attributes=1), 0)
    assert raised.value.java_name == ("KafkaException" if flags == 2 else "CorruptRecordException")
