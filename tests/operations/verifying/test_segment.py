"""What is wrong within a segment and its indexes is found where it is."""

import struct
from pathlib import Path

import builder
import numpy as np
import pytest
from damaged_partitions import change, move_entry, put, reasons, second
from effort import thinned

import kafkalog
from kafkalog.indexes.index_files import OffsetIndex
from kafkalog.operations.verifying.segment import open_index


def test_records_that_cannot_be_read_under_a_right_checksum_are_found_by_looking_deep(partition):
    from kafkalog._kernels.crc import checksum_crc32c

    log = sorted(partition.glob("*.log"))[1]
    table = kafkalog.Segment(log).batches
    row = int(np.flatnonzero((table.codec == 0) & ~table.is_control)[0])
    start, end = int(table.position[row]), int(table.next_position[row])

    def edit(data):
        data[start + 61] ^= 0x7F  # the length of the first record
        data[start + 17 : start + 21] = struct.pack(
            ">I", checksum_crc32c(np.frombuffer(data, np.uint8)[start + 21 : end])
        )

    change(log, edit)
    assert reasons(partition) == {}
    found = reasons(partition, deep=True)
    assert list(found) == [log.name]
    assert found[log.name] & {"record_length", "varint_truncated", "record_trailing_bytes"}


@pytest.mark.parametrize(
    ("deltas", "options", "reason", "said"),
    [
        ([(0, 0), (9, 5)], {"last_offset_delta": 1}, "header_inconsistent", "a record has offset 19"),
        ([(5, 0), (1, 5)], {"last_offset_delta": 5}, "offset_order", "a record with offset 11 follows one with 15"),
        ([(0, 0), (1, 500)], {"max_timestamp": 1005}, "header_inconsistent", "a record has timestamp 1970-01-01T00"),
        ([(0, 0), (1, 500)], {"max_timestamp": 1500}, None, ""),
        ([(0, 0), (4, 500)], {"last_offset_delta": 9, "max_timestamp": 1600}, None, ""),
        ([(0, 7), (1, 500)], {"log_append_time": True, "max_timestamp": 1005}, None, ""),
    ],
)
def test_a_header_that_hides_records_is_found_by_decoding(tmp_path, deltas, options, reason, said):
    directory = tmp_path / "t-0"
    directory.mkdir()
    records = [builder.record_v2(offset, time, b"k", b"v") for offset, time in deltas]
    options = {"max_timestamp": 1600, **options}
    batch = builder.batch_v2(records, base_offset=10, base_timestamp=1000, **options)
    plain = builder.batch_v2(
        [builder.record_v2(0, 0, b"k", b"v")], base_offset=0, base_timestamp=1000, max_timestamp=1000
    )
    (directory / "00000000000000000000.log").write_bytes(plain + batch)
    assert kafkalog.verify(directory).ok
    findings = [one for one in kafkalog.verify(directory, deep=True).findings if one.damage]
    if reason is None:
        assert findings == []
        return
    (finding,) = findings
    assert finding.reason.value == reason
    assert finding.detail.startswith(said)
    assert (finding.position, finding.base_offset) == (len(plain), 10)


def append(suffix, data):
    return lambda partition: change(second(partition, suffix), lambda old: old.extend(data))


def replace(suffix, data):
    return lambda partition: second(partition, suffix).write_bytes(data)


INDEX_DAMAGE = {
    "a wrong position": (move_entry, ".index", "index_position"),
    "zeros behind": (append(".index", bytes(80)), ".index", "index_padding"),
    "an odd size": (append(".timeindex", b"\1"), ".timeindex", "index_size"),
    "a time index of zeros": (replace(".timeindex", bytes(10_485_756)), ".timeindex", "index_padding"),
    "an empty time index": (replace(".timeindex", b""), ".timeindex", "index_sparse"),
    "no time index": (lambda path: second(path, ".timeindex").unlink(), ".timeindex", "index_missing"),
    "no transaction index": (lambda path: second(path, ".txnindex").unlink(), ".txnindex", "index_transaction"),
    "an empty transaction index": (replace(".txnindex", b""), ".txnindex", "index_transaction"),
    "a transaction index of garbage": (replace(".txnindex", b"\x7f" * 68), ".txnindex", "index_transaction"),
    "an overfull index": (replace(".index", b"\1" * 80_000), ".index", "index_size"),
}


@pytest.mark.parametrize(
    ("kind", "only"), thinned([(kind, n % 2 == m) for n, kind in enumerate(INDEX_DAMAGE) for m in (1, 0)], 2)
)
def test_damage_to_an_index_is_found_where_it_is(partition, kind, only):
    damage, suffix, reason = INDEX_DAMAGE[kind]
    damage(partition)
    found = reasons(partition, indexes_only=only)
    assert [Path(name).suffix for name in found] == [suffix]
    assert reason in next(iter(found.values()))


def test_an_offset_index_that_is_gone_is_a_fact_as_a_broker_makes_a_new_one(partition):
    sorted(partition.glob("*.index"))[1].unlink()
    (finding,) = kafkalog.verify(partition).findings
    assert (finding.reason.value, finding.damage) == ("index_missing", False)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_cannot_be_read_is_not_said_to_be_missing(partition, suffix):
    path = second(partition, suffix)
    path.unlink()
    path.mkdir()
    found = [finding for finding in kafkalog.verify(partition).findings if finding.path == str(path)]
    assert [finding.reason.value for finding in found] == ["not_a_file"]


def test_entries_that_point_into_damage_are_not_blamed(partition):
    log = sorted(partition.glob("*.log"))[1]
    change(log, put(6000, bytes(2000)))
    found = reasons(partition)
    assert list(found) == [log.name]


def test_an_index_that_grew_with_its_log_since_the_segment_was_opened_is_not_overfull(partition):
    log = max(partition.glob("*.log"), key=lambda path: path.with_suffix(".index").stat().st_size)
    assert log.with_suffix(".index").stat().st_size > 3 * 8
    written = log.read_bytes()
    log.write_bytes(b"")
    segment = kafkalog.Segment(log)
    log.write_bytes(written)
    found = []
    assert open_index(OffsetIndex, segment, found.append) is not None
    assert found == []
    log.write_bytes(b"")
    assert open_index(OffsetIndex, segment, found.append) is not None
    assert [finding.reason for finding in found] == ["index_size"]
