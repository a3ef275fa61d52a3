"""Salvage keeps every undamaged batch, nothing else, in order; and what it says about the rest adds up."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import signal
from pathlib import Path

import builder
import golden_sets
import numpy as np
import pytest
import salvage_trials
from effort import examples
from faults import Faulty
from writing import sound

import kafkalog
from kafkalog import format as kf
from kafkalog.cli.app import main
from kafkalog.errors import FileChangedError, OutputExistsError, Reason, UnsafePathError, WriteError


def written(folder: Path, *segments: bytes, name: str = "t-0") -> Path:
    """A partition of these segments, each named after its first offset."""
    partition = folder / name
    partition.mkdir()
    for data in segments:
        base = int.from_bytes(data[:8], "big")
        (partition / kf.segment_file_name(base)).write_bytes(data)
    return partition


def batch(base: int, n: int = 3, size: int = 30, **options: object) -> bytes:
    records = [builder.record_v2(i, i, b"k%d" % (base + i), b"v" * size) for i in range(n)]
    return builder.batch_v2(records, base_offset=base, base_timestamp=10**12 + base, **options)  # type: ignore[arg-type]


def log_of(*batches: bytes) -> bytes:
    return b"".join(batches)


def dense(n: int, n_records: int = 3, size: int = 30) -> list[bytes]:
    return [batch(n_records * number, n_records, size) for number in range(n)]


def hashes(root: Path) -> dict[str, str]:
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file()
    }


def output_of(path: Path) -> list[bytes]:
    found = []
    for log in sorted(path.glob("*.log")):
        data = log.read_bytes()
        found += [data[start:end] for start, end in builder.batch_positions(data)]
    return found


def test_a_healthy_log_dir_comes_out_as_it_was(tmp_path: Path, log_dir: Path) -> None:
    before = hashes(log_dir)
    report = kafkalog.salvage(log_dir, output=tmp_path / "out")
    assert report.ok
    assert report.total("n_bytes_lost") == 0 == report.total("n_bytes_suspect")
    after = hashes(tmp_path / "out")
    for name, digest in before.items():
        if name.endswith((".log", ".txnindex", "partition.metadata", "meta.properties")):
            assert after[name] == digest, name
    assert hashes(log_dir) == before
    assert [found for path in (tmp_path / "out").glob("p-*") for found in sound(path)] == []
    assert not list((tmp_path / "out").glob("*.quarantine"))


@pytest.mark.parametrize("hit", ["flip", "zeros", "length"])
def test_the_210_intact_batches_of_a_4_mb_segment_with_one_hit(tmp_path: Path, hit: str) -> None:
    rng = np.random.default_rng(1)
    batches = [
        builder.batch_v2(
            [builder.record_v2(i, 0, None, rng.bytes(2000)) for i in range(9)], base_offset=9 * n, base_timestamp=n
        )
        for n in range(211)
    ]
    data = bytearray(log_of(*batches))
    start = sum(map(len, batches[:105]))
    if hit == "flip":
        data[start + 5000] ^= 1
    elif hit == "zeros":
        data[start + 100 : start + 4196] = bytes(4096)
    else:
        data[start + 8 : start + 12] = (0x7FFFFF00).to_bytes(4, "big")
    report = kafkalog.salvage(written(tmp_path, bytes(data)), output=tmp_path / "out")
    assert output_of(tmp_path / "out" / "t-0") == batches[:105] + batches[106:]
    [hole] = report.partitions[0].lost
    assert (hole.first_offset, hole.end_offset, hole.n_records) == (945, 954, 9)
    assert hole.size_in_bytes == len(batches[105])
    assert (hole.timestamp_before, hole.timestamp_after) == (104, 106)
    assert (tmp_path / "out" / "t-0.quarantine").read_bytes() == bytes(data[start : start + len(batches[105])])
    assert hole.certainty == ("at_most" if hit == "length" else "exact")


def test_random_damage_loses_no_undamaged_batch_and_invents_none() -> None:
    # the soak below makes many more; TRIALS.md says what those have shown
    tally = salvage_trials.run(5, range(200))
    assert tally.wrong == []
    assert (tally.n_missed, tally.n_invented, tally.n_disordered) == (0, 0, 0)
    assert tally.n_undamaged > 1000
    # what nothing can decide is rare
    assert tally.n_disputed + tally.n_unseen <= tally.n_undamaged // 200


@pytest.mark.soak
def test_ten_thousand_trials() -> None:
    tally = salvage_trials.run(20261122, range(10_000))
    print(tally)
    print("\n".join(tally.wrong))
    assert (tally.n_missed, tally.n_invented, tally.n_disordered) == (0, 0, 0)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_batches_in_values_are_never_taken_for_the_logs_own(tmp_path: Path, magic: int) -> None:
    """A topic of dumped segments; the inner offsets fit the holes that damage leaves."""
    inner = [batch(number, n=1, size=200) for number in range(120)]
    outer, at = [], 0
    for number in range(40):
        if magic == 2:
            records = [builder.record_v2(i, 0, None, log_of(*inner[at + i : at + i + 2])) for i in range(3)]
            outer.append(builder.batch_v2(records, base_offset=at, base_timestamp=number))
            at += 3
        else:
            outer.append(builder.message(at, None, log_of(*inner[at : at + 3]), magic=magic, timestamp=number))
            at += 1
    rng = np.random.default_rng(magic)
    for trial in range(examples(300)):
        data = bytearray(log_of(*outer))
        places = builder.batch_positions(bytes(data))
        hit = set()
        for number in rng.choice(len(outer) // 2, int(rng.integers(1, 6)), replace=False).tolist():
            number = 2 * number
            start, end = places[number]
            hit.add(number)
            what = int(rng.integers(4))
            if what == 0:  # the header
                data[start : start + 20] = rng.bytes(20)
            elif what == 1:
                data[int(rng.integers(start + 21, end))] ^= 0x10
            elif what == 2:
                data[start + 8 : start + 12] = (0x7FFFFF00).to_bytes(4, "big")
            else:
                data[start : start + 40] = bytes(40)
        shutil.rmtree(tmp_path, ignore_errors=True)
        tmp_path.mkdir()
        report = kafkalog.salvage(
            written(tmp_path, bytes(data)) if 0 not in hit else _named(tmp_path, data), output=tmp_path / "out"
        )
        kept = output_of(tmp_path / "out" / "t-0")
        assert kept == [one for number, one in enumerate(outer) if number not in hit], (trial, sorted(hit))
        assert report.total("n_bytes_kept") == sum(map(len, kept))


def _named(folder: Path, data: bytes | bytearray) -> Path:
    partition = folder / "t-0"
    partition.mkdir()
    (partition / kf.segment_file_name(0)).write_bytes(bytes(data))
    return partition


def test_bad_sectors_are_stepped_over(tmp_path: Path) -> None:
    batches = dense(400)
    partition = written(tmp_path, log_of(*batches))
    log = next(partition.glob("*.log"))
    with salvage_trials.bad_sectors(log, [(1024, 1536), (20_480, 21_504)]):
        report = kafkalog.salvage(partition, output=tmp_path / "out")
    kept = output_of(tmp_path / "out" / "t-0")
    places = builder.batch_positions(log_of(*batches))
    bad = ((1024, 1536), (20_480, 21_504))
    intact = [
        one
        for one, (start, end) in zip(batches, places, strict=True)
        if not any(start < stop and begin < end for begin, stop in bad)
    ]
    assert kept == intact
    assert [hole.is_unreadable for hole in report.partitions[0].lost] == [True, True]
    assert all(hole.reason is Reason.FILE_UNREADABLE for hole in report.partitions[0].lost)


def test_kept_lost_padding_and_suspect_bytes_add_up(tmp_path: Path) -> None:
    batches = dense(20)
    data = log_of(*batches[:10], batches[3], b"\xff" * 100, *batches[10:], bytes(5000))
    report = kafkalog.salvage(written(tmp_path, data), output=tmp_path / "out")
    [segment] = report.partitions[0].segments
    assert output_of(tmp_path / "out" / "t-0") == batches
    assert segment.n_bytes_kept == sum(map(len, batches))
    assert (segment.n_bytes_lost, segment.n_bytes_padding, segment.n_bytes_suspect) == (100, 5000, len(batches[3]))
    assert segment.size_in_bytes == len(data)


def test_a_batch_with_a_wrong_offset_or_epoch_is_a_suspect(tmp_path: Path) -> None:
    batches = dense(20)
    for number, (at, value) in {4: (0, 1 << 40), 9: (8 + 4, 77 << 16)}.items():
        width = 8 if at == 0 else 4
        changed = bytearray(batches[number])
        changed[at : at + width] = value.to_bytes(width, "big")
        batches[number] = bytes(changed)
    report = kafkalog.salvage(written(tmp_path, log_of(*batches)), output=tmp_path / "out")
    assert output_of(tmp_path / "out" / "t-0") == [one for number, one in enumerate(batches) if number not in (4, 9)]
    assert report.total("n_batches_suspect") == 2
    assert [(hole.first_offset, hole.end_offset) for hole in report.partitions[0].lost] == [(12, 15), (27, 30)]


def test_each_bit_of_a_batch(tmp_path: Path) -> None:
    """A flipped bit costs that batch at most, and gives none that was not there; all bits of a batch between others."""
    batches = dense(5, 2, 3)
    where = sum(map(len, batches[:2]))
    bits = range(0, 8 * len(batches[2]), 1 if examples(5) == 5 else 7)
    for bit in bits:
        data = bytearray(log_of(*batches))
        data[where + bit // 8] ^= 1 << bit % 8
        shutil.rmtree(tmp_path / "t-0", ignore_errors=True)
        report = kafkalog.salvage(_named(tmp_path, data), dry_run=True)
        assert report.total("n_batches_kept") == 4, bit
        assert report.total("n_bytes_kept") == sum(map(len, batches)) - len(batches[2])
        assert [(hole.first_offset, hole.end_offset) for hole in report.partitions[0].lost] == [(4, 6)]


def test_transactions_that_may_have_lost_their_marker_are_named(tmp_path: Path) -> None:
    data = log_of(
        batch(0, transactional=True, producer_id=7, producer_epoch=0, base_sequence=0),
        batch(3, transactional=True, producer_id=8, producer_epoch=0, base_sequence=0),
        builder.control_batch(1, base_offset=6, producer_id=8, producer_epoch=0),
        builder.control_batch(0, base_offset=7, producer_id=7, producer_epoch=0),
        batch(8),
    )
    hit = bytearray(data)
    hit[len(data) - len(batch(8)) - 20] ^= 1  # the marker of producer 7
    report = kafkalog.salvage(_named(tmp_path, hit), output=tmp_path / "out")
    [partition] = report.partitions
    assert partition.transactions_without_marker == [(7, 0)] == partition.open_transactions
    assert partition.lost[0].producer_ids == (7,)
    assert any("producer 7" in line and "marker" in line for line in report.lines())


def test_single_records_of_a_damaged_batch_are_marked_unverified(tmp_path: Path) -> None:
    batches = [batch(10 * number, n=10) for number in range(3)]
    hit = bytearray(log_of(*batches))
    at = len(batches[0]) + 61 + 4 * 37  # in the fifth record
    hit[at : at + 10] = b"\xee" * 10
    report = kafkalog.salvage(_named(tmp_path, hit), output=tmp_path / "out", records=True)
    [partition] = report.partitions
    assert partition.unverified_records is not None
    rows = [json.loads(line) for line in Path(partition.unverified_records).read_text().splitlines()]
    assert len(rows) == partition.n_unverified_records
    assert {row["offset"] for row in rows} >= {10, 11, 12, 16, 17, 18, 19}
    assert not any(row["is_verified"] for row in rows)
    assert output_of(tmp_path / "out" / "t-0") == [batches[0], batches[2]]


def test_the_source_and_what_is_there_are_never_touched(tmp_path: Path, log_dir_copy: Path) -> None:
    with pytest.raises(UnsafePathError):
        kafkalog.salvage(log_dir_copy, output=log_dir_copy / "out")
    (tmp_path / "there").mkdir()
    with pytest.raises(OutputExistsError):
        kafkalog.salvage(log_dir_copy, output=tmp_path / "there")
    with pytest.raises(ValueError, match="say where to"):
        kafkalog.salvage(log_dir_copy)
    with pytest.raises(ValueError, match="threads"):
        kafkalog.salvage(log_dir_copy, dry_run=True, threads=0)


def test_a_log_dir_with_a_running_broker_is_refused(tmp_path: Path, log_dir_copy: Path) -> None:
    (log_dir_copy / ".lock").touch()
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        descriptor = os.open(log_dir_copy / ".lock", os.O_RDWR)
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        os.write(writing, b"x")
        signal.pause()
    os.read(reading, 1)
    try:
        with pytest.raises(UnsafePathError, match="a broker holds the lock"):
            kafkalog.salvage(log_dir_copy, output=tmp_path / "out")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        os.close(reading)
        os.close(writing)
    assert not (tmp_path / "out").exists()


def test_a_failed_write_leaves_no_output(tmp_path: Path) -> None:
    batches = dense(30)
    data = bytearray(log_of(*batches))
    data[500] ^= 1
    partition = _named(tmp_path, data)
    for n in range(1, 400, 4):
        code = errno.ENOSPC if n % 8 == 1 else errno.EIO

        def fail(name: str, code: int = code) -> None:
            raise OSError(code, os.strerror(code))

        faulty = Faulty(n, fail)
        try:
            with faulty.installed():
                kafkalog.salvage(partition, output=tmp_path / "out")
        except WriteError:
            assert {path.name for path in tmp_path.iterdir()} == {"t-0"}
        else:
            assert (tmp_path / "out" / "salvage.json").exists()
            shutil.rmtree(tmp_path / "out")
        if faulty.n_calls < n:
            break
    else:
        raise AssertionError("it never came to an end")
    assert next(partition.glob("*.log")).read_bytes() == bytes(data)


def test_a_kill_leaves_no_output_or_all_of_it(tmp_path: Path) -> None:
    data = bytearray(log_of(*dense(30)))
    data[500] ^= 1
    partition = _named(tmp_path, data)
    n_killed = 0
    for n in range(1, 400, 5):
        child = os.fork()
        if not child:
            with Faulty(n, lambda name: os.kill(os.getpid(), signal.SIGKILL)).installed():
                kafkalog.salvage(partition, output=tmp_path / "out")
            os._exit(0)
        _, status = os.waitpid(child, 0)
        n_killed += os.WIFSIGNALED(status)
        if (tmp_path / "out").exists():
            said = json.loads((tmp_path / "out" / "salvage.json").read_text())
            assert said["partitions"][0]["segments"][0]["n_batches_kept"] == 29
            assert len(output_of(tmp_path / "out" / "t-0")) == 29
            shutil.rmtree(tmp_path / "out")
        if not os.WIFSIGNALED(status):
            break
    else:
        raise AssertionError("it never came to an end")
    assert n_killed > 5
    assert next(partition.glob("*.log")).read_bytes() == bytes(data)


def test_a_source_that_is_written_to_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = _named(tmp_path, log_of(*dense(30)))
    log = next(partition.glob("*.log"))

    def progress(n_bytes: int) -> None:
        os.utime(log, ns=(0, 0))
        with log.open("ab") as file:
            file.write(b"x")
        os.truncate(log, 100)

    with pytest.raises(FileChangedError):
        kafkalog.salvage(partition, output=tmp_path / "out", progress=progress)
    assert not (tmp_path / "out").exists()


def test_the_report_does_not_depend_on_when_or_how_it_was_made(tmp_path: Path) -> None:
    data = bytearray(log_of(*dense(300)))
    for at in range(1000, len(data), 5000):
        data[at] ^= 4
    first = kafkalog.salvage(_named(tmp_path, data), output=tmp_path / "a")
    again = kafkalog.salvage(tmp_path / "t-0", output=tmp_path / "b", threads=4)
    text = (tmp_path / "a" / "salvage.json").read_text()
    assert text == (tmp_path / "b" / "salvage.json").read_text().replace(str(tmp_path / "b"), str(tmp_path / "a"))
    assert hashes(tmp_path / "a" / "t-0") == hashes(tmp_path / "b" / "t-0")
    assert len(first.partitions[0].lost) == len(again.partitions[0].lost) > 3


def test_holes_beyond_the_most_are_counted(tmp_path: Path) -> None:
    batches = dense(2500, 1, 0)
    size = len(batches[1])
    data = bytearray(log_of(*batches))
    starts = np.cumsum([0, *map(len, batches)])
    for number in range(1, 2500, 2):
        data[starts[number] + 66] ^= 1
    assert size > 66
    report = kafkalog.salvage(_named(tmp_path, data), output=tmp_path / "out")
    [partition] = report.partitions
    assert len(partition.lost) == 1000
    assert partition.n_more_lost == 250
    assert partition.total("n_batches_kept") == 1250
    assert partition.total("n_bytes_lost") == sum(len(batches[number]) for number in range(1, 2500, 2))
    assert os.path.getsize(tmp_path / "out" / "t-0.quarantine") == partition.total("n_bytes_lost")


def test_the_command_prints_the_report_and_ends_with_1_if_something_is_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = bytearray(log_of(*dense(30)))
    partition = _named(tmp_path, data)
    assert main(["salvage", str(partition), "--dry-run"]) == 0
    assert "30 batches" in capsys.readouterr().out
    data[500] ^= 1
    next(partition.glob("*.log")).write_bytes(data)
    assert main(["salvage", str(partition), "-o", str(tmp_path / "out"), "--json"]) == 1
    captured = capsys.readouterr()
    said = json.loads(captured.out)
    assert said == json.loads((tmp_path / "out" / "salvage.json").read_text())
    assert said["partitions"][0]["lost"][0]["reason"] == "crc_mismatch"
    assert "crc_mismatch" in captured.err
    assert main(["salvage", str(partition), "-o", str(tmp_path / "out")]) == 6
    assert main(["salvage", str(partition)]) == 2


def test_a_gap_that_one_bit_explains_is_no_sign_in_a_log_that_the_cleaner_has_been_at(tmp_path: Path) -> None:
    def cleaned(base: int, n: int, last: int) -> bytes:
        return batch(base, n, last_offset_delta=last - base)

    whole = [batch(3 * number) for number in range(6)]
    for first in (cleaned(24, 2, 28), batch(24, 5)):
        # 24..28 is alone between damage and 31, and 26..30 would leave no gap
        source = written(tmp_path, log_of(*whole, b"\xff" * 90, first, batch(31), batch(34), batch(37)))
        report = kafkalog.salvage(source, dry_run=True)
        assert report.total("n_batches_kept") == (10 if first[57:61] == b"\0\0\0\x02" else 9)
        shutil.rmtree(source)


def test_one_flipped_bit_of_an_offset_costs_none_of_the_messages_before(tmp_path: Path) -> None:
    data = (golden_sets.partitions("k28")["p-v0v1v2-mixed-0"] / kf.segment_file_name(0)).read_bytes()
    messages = [data[start:end] for start, end in builder.batch_positions(data)]
    lost, flipped = 19, 33
    messages[lost] = b"\xff" * len(messages[lost])
    offset = int.from_bytes(messages[flipped][:8], "big")
    messages[flipped] = (offset ^ 2**46).to_bytes(8, "big") + messages[flipped][8:]
    report = kafkalog.salvage(written(tmp_path, log_of(*messages)), dry_run=True)
    assert report.total("n_batches_suspect") == 1
    assert report.total("n_batches_kept") == len(messages) - 2


def test_offsets_that_no_segment_has_are_noted(tmp_path: Path) -> None:
    partition = tmp_path / "logs" / "orders-0"
    (tmp_path / "logs").mkdir()
    with kafkalog.PartitionWriter(partition, config=kafkalog.LogConfig(segment_bytes=2**12), batch_size=1024) as writer:
        writer.append({"value": [b"x" * 100] * 200})
    bases = sorted(int(path.stem) for path in partition.glob("*.log"))
    for path in partition.glob(f"{bases[1]:020d}.*"):
        path.unlink()
    report = kafkalog.salvage(tmp_path / "logs", output=tmp_path / "saved")
    gap = [(one.reason, one.base_offset, one.last_offset, one.damage) for one in report.findings.rows]
    assert gap == [(Reason.OFFSET_GAP, bases[1], bases[2] - 1, False)]
