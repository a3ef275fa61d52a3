"""Bytes of a segment that are kept, lost, suspect or set aside."""

import json
import shutil

import builder
import pytest
from effort import THOROUGH, thinned
from golden_sets import shared_log_dir
from salvages import dense, log_of, named, output_of, written

import kafkalog
from kafkalog.cli import main
from kafkalog.errors import NotKafkaError


def test_a_batch_with_a_wrong_offset_is_a_suspect_and_a_wrong_epoch_is_replaced(tmp_path):
    batches = dense(20)
    expected = [one for number, one in enumerate(batches) if number != 4]
    for number, (at, value) in {4: (0, 1 << 40), 9: (8 + 4, 77 << 16)}.items():
        width = 8 if at == 0 else 4
        changed = bytearray(batches[number])
        changed[at : at + width] = value.to_bytes(width, "big")
        batches[number] = bytes(changed)
    report = kafkalog.salvage(written(tmp_path, log_of(*batches)), output=tmp_path / "out")
    assert output_of(tmp_path / "out" / "t-0") == expected
    assert report.total("n_batches_suspect") == 1
    assert [(hole.first_offset, hole.end_offset) for hole in report.partitions[0].lost] == [(12, 15)]
    findings = [(one.reason.value, one.base_offset, one.n_records) for one in report.findings.rows]
    assert ("epoch_order", 27, 0) in findings


def test_a_batch_of_the_largest_offset_is_a_suspect(tmp_path):
    base = 2**63 - 10
    batches = [
        builder.batch_v2([builder.record_v2(i, 0, None, b"v") for i in range(5)], base_offset=offset)
        for offset in (base, base + 5)
    ]
    partition = tmp_path / "t-0"
    partition.mkdir()
    (partition / f"{base:020}.log").write_bytes(b"".join(batches))
    report = kafkalog.salvage(partition, output=tmp_path / "out")
    assert (tmp_path / "out" / "t-0" / f"{base:020}.log").read_bytes() == batches[0]
    [hole] = report.partitions[0].lost
    assert hole.first_offset == base + 5
    assert report.total("n_batches_suspect") == 1


def test_each_bit_of_a_batch(tmp_path):
    """A flipped bit costs that batch at most, and gives none that was not there; all bits of a batch between others."""
    batches = dense(5, 2, 3)
    where = sum(map(len, batches[:2]))
    bits = range(0, 8 * len(batches[2]), 1 if THOROUGH else 7)
    for bit in bits:
        data = bytearray(log_of(*batches))
        data[where + bit // 8] ^= 1 << bit % 8
        shutil.rmtree(tmp_path / "t-0", ignore_errors=True)
        report = kafkalog.salvage(named(tmp_path, data), dry_run=True)
        assert not report.ok
        if bit // 8 in range(12, 16):  # the leader epoch
            assert report.total("n_batches_kept") == 5, bit
            continue
        assert report.total("n_batches_kept") == 4, bit
        assert report.total("n_bytes_kept") == sum(map(len, batches)) - len(batches[2])
        assert [(hole.first_offset, hole.end_offset) for hole in report.partitions[0].lost] == [(4, 6)]


def test_kept_lost_padding_and_suspect_bytes_add_up(tmp_path):
    batches = dense(20)
    data = log_of(*batches[:10], batches[3], b"\xff" * 100, *batches[10:], bytes(5000))
    report = kafkalog.salvage(written(tmp_path, data), output=tmp_path / "out")
    [segment] = report.partitions[0].segments
    assert output_of(tmp_path / "out" / "t-0") == batches
    assert segment.n_bytes_kept == sum(map(len, batches))
    assert (segment.n_bytes_lost, segment.n_bytes_padding, segment.n_bytes_suspect) == (100, 5000, len(batches[3]))
    assert segment.size_in_bytes == len(data)


JUNK = (b"", b"\1" * 50, bytes(300), b"\xff" * 61)


def batches_of(name):
    data = min((shared_log_dir() / name).glob("*.log")).read_bytes()
    return [data[start:stop] for start, stop in builder.batch_positions(data)]


@pytest.mark.parametrize("name", thinned(["p-zstd-java-0", "p-multi-0", "p-v0v1v2-mixed-0"], 2))
@pytest.mark.parametrize("junk", JUNK, ids=len)
@pytest.mark.parametrize("order", [(8, 2, 5), (8, 2, 2, 5, 1), (9, 8, 7), (1, 2, 8, 3, 9, 4), ()], ids=str)
def test_intact_batches_are_found_whatever_their_offsets(name, junk, order, tmp_path):
    batches = batches_of(name)
    path = tmp_path / f"{name}.quarantine"
    torn = batches[6][:70]
    path.write_bytes(junk + (junk + torn * bool(junk)).join(batches[row] for row in order) + junk)
    found = [(run, run.batches) for run in kafkalog.open_quarantine(path)]
    data = path.read_bytes()
    got = [
        data[position : position + size]
        for _, table in found
        for position, size in zip(table.position.tolist(), table.size_in_bytes.tolist(), strict=True)
    ]
    assert got == [batches[row] for row in order]
    assert all(run.segment.topic_partition == (name[:-2], 0) for run, _ in found)
    n = sum(kafkalog.scan(run.segment, columns=["offset"]).count_rows() for run, _ in found)
    assert n == sum(kafkalog.scan(kafkalog.open_buffer(batches[row])).count_rows() for row in order)


def test_what_salvage_sets_aside_is_listed_and_printed(tmp_path, capsys):
    batches = batches_of("p-zstd-java-0")
    damaged = batches[3][:70] + bytes((batches[3][70] ^ 1,)) + batches[3][71:]
    log = b"".join([*batches[:3], damaged, *batches[4:9], batches[2], *batches[9:12]])
    source = written(tmp_path, log, name="t-0")
    report = kafkalog.salvage(source, output=tmp_path / "saved")
    quarantine = report.partitions[0].quarantine
    assert quarantine is not None
    assert main(["batches", quarantine, "--json"]) == 0
    (row,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (row["topic"], row["base_offset"], row["position"]) == ("t", 5, len(damaged))
    assert main(["cat", quarantine, "--json"]) == 0
    offsets = [json.loads(line)["offset"] for line in capsys.readouterr().out.splitlines()]
    assert offsets == [5, 6, 7, 8, 9, 10, 11, 12, 13]
    assert main(["cat", quarantine, "-n", "2"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert main(["cat", quarantine, str(source)]) == 2
    assert main(["batches", quarantine]) == 0
    assert "t-0.quarantine" in capsys.readouterr().out


def test_other_files_are_no_quarantine(tmp_path):
    with pytest.raises(NotKafkaError):
        next(kafkalog.open_quarantine(tmp_path / "t-0.log"))
