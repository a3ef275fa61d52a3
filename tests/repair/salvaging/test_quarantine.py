"""Quarantine files: intact batches of any order are listed and read, whatever lies between them."""

from __future__ import annotations

import json
from pathlib import Path

import builder
import pytest
from golden_sets import shared_log_dir
from salvages import written

import kafkalog
from kafkalog.cli import main
from kafkalog.errors import NotKafkaError

JUNK = (b"", b"\1" * 50, bytes(300), b"\xff" * 61)


def batches_of(name: str) -> list[bytes]:
    data = min((shared_log_dir() / name).glob("*.log")).read_bytes()
    return [data[start:stop] for start, stop in builder.batch_positions(data)]


@pytest.mark.parametrize("name", ["p-zstd-java-0", "p-multi-0", "p-v0v1v2-mixed-0"])
@pytest.mark.parametrize("junk", JUNK, ids=len)
@pytest.mark.parametrize("order", [(8, 2, 5), (8, 2, 2, 5, 1), (9, 8, 7), (1, 2, 8, 3, 9, 4), ()], ids=str)
def test_intact_batches_are_found_whatever_their_offsets(
    name: str, junk: bytes, order: tuple[int, ...], tmp_path: Path
) -> None:
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


def test_what_salvage_sets_aside_is_listed_and_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_other_files_are_no_quarantine(tmp_path: Path) -> None:
    with pytest.raises(NotKafkaError):
        next(kafkalog.open_quarantine(tmp_path / "t-0.log"))
