"""Reports of salvage: losses, open transactions, batches that cannot be decoded."""

import os

import builder
import numpy as np
import pytest
from salvages import batch, dense, hashes, log_of, named

import kafkalog


def test_transactions_that_may_have_lost_their_marker_are_named(tmp_path):
    data = log_of(
        batch(0, transactional=True, producer_id=7, producer_epoch=0, base_sequence=0),
        batch(3, transactional=True, producer_id=8, producer_epoch=0, base_sequence=0),
        builder.control_batch(1, base_offset=6, producer_id=8, producer_epoch=0),
        builder.control_batch(0, base_offset=7, producer_id=7, producer_epoch=0),
        batch(8),
    )
    hit = bytearray(data)
    hit[len(data) - len(batch(8)) - 20] ^= 1  # the marker of producer 7
    report = kafkalog.salvage(named(tmp_path, hit), output=tmp_path / "out")
    [partition] = report.partitions
    assert partition.transactions_without_marker == [(7, 0)] == partition.open_transactions
    assert any("producer 7" in line and "marker" in line for line in report.lines())


def test_markers_are_no_records_that_are_kept(tmp_path):
    data = log_of(
        batch(0, transactional=True, producer_id=7, producer_epoch=0, base_sequence=0),
        builder.control_batch(1, base_offset=3, producer_id=7, producer_epoch=0),
        batch(4),
    )
    [partition] = kafkalog.salvage(named(tmp_path, data), output=tmp_path / "out").partitions
    [segment] = partition.segments
    n_records = kafkalog.read_table(tmp_path / "out" / "t-0").num_rows
    assert (segment.n_batches_kept, segment.n_records_kept) == (3, n_records) == (3, 6)


def test_a_copy_of_a_batch_of_a_transaction_loses_no_marker(tmp_path):
    begun = batch(0, transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    marker = builder.control_batch(1, base_offset=3, producer_id=7, producer_epoch=0)
    for number, data in enumerate((log_of(begun, begun, marker, batch(4)), log_of(begun, batch(3), begun, batch(6)))):
        (tmp_path / str(number)).mkdir()
        place = named(tmp_path / str(number), data)
        [partition] = kafkalog.salvage(place, output=tmp_path / f"out{number}").partitions
        [lost] = partition.lost
        assert (lost.n_records, lost.certainty, lost.open_transactions) == (0, "exact", ())
        assert partition.transactions_without_marker == []


def test_a_marker_that_seems_to_have_no_room_may_be_lost(tmp_path):
    begun = batch(0, transactional=True, producer_id=7, producer_epoch=0, base_sequence=0)
    marker = bytearray(builder.control_batch(1, base_offset=3, producer_id=7, producer_epoch=0))
    marker[20] ^= 1
    moved = (1).to_bytes(8, "big") + begun[8:]  # no checksum covers the offset
    [partition] = kafkalog.salvage(named(tmp_path, log_of(moved, marker, batch(4))), output=tmp_path / "out").partitions
    assert partition.transactions_without_marker == [(7, 1)]


def test_the_report_does_not_depend_on_when_or_how_it_was_made(tmp_path):
    data = bytearray(log_of(*dense(300)))
    for at in range(1000, len(data), 5000):
        data[at] ^= 4
    first = kafkalog.salvage(named(tmp_path, data), output=tmp_path / "a")
    again = kafkalog.salvage(tmp_path / "t-0", output=tmp_path / "b", threads=4)
    text = (tmp_path / "a" / "salvage.json").read_text()
    assert text == (tmp_path / "b" / "salvage.json").read_text().replace(str(tmp_path / "b"), str(tmp_path / "a"))
    assert hashes(tmp_path / "a" / "t-0") == hashes(tmp_path / "b" / "t-0")
    assert len(first.partitions[0].lost) == len(again.partitions[0].lost) > 3


def test_holes_beyond_the_most_are_counted(tmp_path):
    batches = dense(2500, 1, 0)
    size = len(batches[1])
    data = bytearray(log_of(*batches))
    starts = np.cumsum([0, *map(len, batches)])
    for number in range(1, 2500, 2):
        data[starts[number] + 66] ^= 1
    assert size > 66
    report = kafkalog.salvage(named(tmp_path, data), output=tmp_path / "out")
    [partition] = report.partitions
    assert len(partition.lost) == 1000
    assert partition.n_more_lost == 250
    assert partition.total("n_batches_kept") == 1250
    assert partition.total("n_bytes_lost") == sum(len(batches[number]) for number in range(1, 2500, 2))
    assert os.path.getsize(tmp_path / "out" / "t-0.quarantine") == partition.total("n_bytes_lost")


def test_a_dry_run_names_what_it_would_write(tmp_path):
    partition = tmp_path / "logs" / "orders-0"
    (tmp_path / "logs").mkdir()
    with kafkalog.PartitionWriter(partition) as writer:
        writer.append({"value": [b"x" * 100] * 200})
    [log] = partition.glob("*.log")
    log.write_bytes(log.read_bytes() + b"damage" * 20)
    for output in (None, tmp_path / "saved"):
        [row] = kafkalog.salvage(tmp_path / "logs", output=output, dry_run=True).partitions
        place = "" if output is None else f"{output}/"
        assert (row.output, row.quarantine) == (f"{place}orders-0", f"{place}orders-0.quarantine")
    assert not (tmp_path / "saved").exists()


def good(offset):
    return builder.batch_v2([builder.record_v2(0, 0, None, b"v%d" % offset)], base_offset=offset)


BAD = {
    "a record that is none": ("varint_overlong", {"payload": b"\xff" * 30, "records_count": 1}),
    "a stream that is none": ("codec_stream", {"payload": b"nothing of gzip", "codec": 1, "records_count": 1}),
    "a codec that is none": ("unknown_codec", {"payload": b"\0" * 30, "attributes": 7, "records_count": 1}),
}


def partition_with(root, **bad):
    """A partition whose third batch is bad; and its position. The second one has a wrong checksum."""
    damaged = good(1)[:-1] + b"?"
    before = good(0) + damaged
    data = before + builder.batch_v2(base_offset=2, last_offset_delta=0, **bad) + good(3)
    partition = root / "t-0"
    partition.mkdir(parents=True)
    (partition / f"{0:020d}.log").write_bytes(data)
    return partition, len(before)


@pytest.mark.parametrize("case", [one for one in BAD if one != "a stream that is none"])
def test_salvage_keeps_what_cannot_be_decoded_and_names_it(tmp_path, case):
    reason, bad = BAD[case]
    source, position = partition_with(tmp_path / "source", **bad)
    for output in (None, tmp_path / "to"):
        report = kafkalog.salvage(source, output=output, dry_run=output is None)
        assert not report.ok
        assert (report.total("n_batches_kept"), report.total("n_batches_undecodable")) == (3, 1)
        found = [finding for finding in report.findings.rows if finding.position == position]
        assert [(one.reason, one.base_offset, one.damage, one.n_records) for one in found] == [(reason, 2, True, 0)]
        assert "the batch is kept as it is" in found[0].detail
        assert any("1 batch of them cannot be decoded" in line for line in report.lines())
    kept = (tmp_path / "to" / "t-0" / f"{0:020d}.log").read_bytes()
    data = (source / f"{0:020d}.log").read_bytes()
    assert kept == good(0) + data[position:]


def test_compressed_batches_are_kept_without_a_look_into_them(tmp_path):
    source, _ = partition_with(tmp_path / "source", **BAD["a stream that is none"][1])
    report = kafkalog.salvage(source, dry_run=True)
    assert report.total("n_batches_undecodable") == 0
    found = kafkalog.verify(source, deep=True).findings
    assert any(finding.reason == "codec_stream" for finding in found)


def test_merge_names_them_with_their_copy_in_a_dry_run_too(tmp_path):
    reason, bad = BAD["a record that is none"]
    one, position = partition_with(tmp_path / "one", **bad)
    other, _ = partition_with(tmp_path / "other", **bad)
    for output in (None, tmp_path / "to"):
        report = kafkalog.merge([one, other], output=output, dry_run=output is None)
        assert [replica.n_batches_undecodable for replica in report.partitions[0].replicas] == [1, 0]
        found = [finding for finding in report.findings.rows if finding.reason == reason]
        path = str(one / f"{0:020d}.log")
        assert [(one.path, one.position, one.base_offset) for one in found] == [(path, position, 2)]
        assert any("1 batch merged that cannot be decoded" in line for line in report.lines())


def test_a_batch_beyond_the_limits_is_told_of_and_is_no_damage(tmp_path):
    partition = tmp_path / "t-0"
    partition.mkdir()
    (partition / f"{0:020d}.log").write_bytes(
        builder.batch_v2([builder.record_v2(n, 0, None, b"v") for n in range(3)], base_offset=0) + good(3)
    )
    report = kafkalog.salvage(partition, dry_run=True, limits=kafkalog.Limits(max_records_per_batch=2))
    assert report.ok
    assert report.total("n_batches_undecodable") == 1
    assert {finding.reason for finding in report.findings.rows} == {"too_many_records"}
