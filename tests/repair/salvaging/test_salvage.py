"""Salvage keeps every undamaged batch, nothing else, in order; and what it says about the rest adds up."""

import json
import os
import shutil
from pathlib import Path

import builder
import numpy as np
import pytest
import salvage_trials
from effort import thinned, trials
from files import broker_on
from refusals import fails_with
from salvages import batch, dense, hashes, log_of, named, output_of, written
from writing import sound

import kafkalog
from kafkalog.cli.app import main
from kafkalog.errors import FileChangedError, OutputExistsError, Reason, UnsafePathError, UnsupportedError
from kafkalog.repair.salvaging import plan
from kafkalog.repair.salvaging.salvaged_partitions import SalvagedPartition


def test_a_healthy_log_dir_comes_out_as_it_was(tmp_path, log_dir):
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


@pytest.mark.parametrize("hit", thinned(["flip", "zeros", "length"], 3))
def test_the_210_intact_batches_of_a_4_mb_segment_with_one_hit(tmp_path, hit):
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
    assert hole.certainty == "exact"  # the neighbours agree, also where the size field is hit


def test_random_damage_loses_no_undamaged_batch_and_invents_none():
    # the soak below makes many more; TRIALS.md says what those have shown
    n_trials = trials(20, 150)
    tally = salvage_trials.run(5, range(n_trials))
    assert tally.wrong == []
    assert (tally.n_missed, tally.n_invented, tally.n_disordered) == (0, 0, 0)
    assert tally.n_undamaged > 5 * n_trials
    # what nothing can decide is rare
    assert tally.n_disputed + tally.n_unseen <= tally.n_undamaged // 200


@pytest.mark.soak
def test_ten_thousand_trials():
    tally = salvage_trials.run(20261122, range(10_000))
    print(tally)
    print("\n".join(tally.wrong))
    assert (tally.n_missed, tally.n_invented, tally.n_disordered) == (0, 0, 0)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_batches_in_values_are_never_taken_for_the_logs_own(tmp_path, magic):
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
    for trial in range(trials(4, 100)):
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
            written(tmp_path, bytes(data)) if 0 not in hit else named(tmp_path, data), output=tmp_path / "out"
        )
        kept = output_of(tmp_path / "out" / "t-0")
        assert kept == [one for number, one in enumerate(outer) if number not in hit], (trial, sorted(hit))
        assert report.total("n_bytes_kept") == sum(map(len, kept))


def test_bad_sectors_are_stepped_over(tmp_path):
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


def test_the_source_and_what_is_there_are_never_touched(tmp_path, log_dir_copy):
    with pytest.raises(UnsafePathError):
        kafkalog.salvage(log_dir_copy, output=log_dir_copy / "out")
    (tmp_path / "there").mkdir()
    (tmp_path / "there/kept").touch()
    with pytest.raises(OutputExistsError):
        kafkalog.salvage(log_dir_copy, output=tmp_path / "there")
    with pytest.raises(ValueError, match="output="):
        kafkalog.salvage(log_dir_copy)
    with pytest.raises(ValueError, match="threads"):
        kafkalog.salvage(log_dir_copy, dry_run=True, threads=0)


def test_a_log_dir_with_a_running_broker_is_refused(tmp_path, log_dir_copy):
    with broker_on(log_dir_copy), fails_with("unsafe_path"):
        kafkalog.salvage(log_dir_copy, output=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_source_that_is_written_to_is_an_error(tmp_path, monkeypatch):
    partition = named(tmp_path, log_of(*dense(30)))
    log = next(partition.glob("*.log"))

    def progress(n_bytes):
        os.utime(log, ns=(0, 0))
        with log.open("ab") as file:
            file.write(b"x")
        os.truncate(log, 100)

    with pytest.raises(FileChangedError):
        kafkalog.salvage(partition, output=tmp_path / "out", progress=progress)
    assert not (tmp_path / "out").exists()


def test_the_command_prints_the_report_and_ends_with_1_if_something_is_lost(tmp_path, capsys):
    data = bytearray(log_of(*dense(30)))
    partition = named(tmp_path, data)
    assert main(["salvage", str(partition), "--dry-run"]) == 0
    assert "30 batches" in capsys.readouterr().out
    data[500] ^= 1
    next(partition.glob("*.log")).write_bytes(data)
    assert main(["salvage", str(partition), "-o", str(tmp_path / "out"), "--json"]) == 1
    captured = capsys.readouterr()
    said = json.loads(captured.out)
    (step,) = said.pop("next")
    assert step["command"][:3] == ["kafkalog", "boot", str(tmp_path / "out")]
    assert said == json.loads((tmp_path / "out" / "salvage.json").read_text())
    assert said["partitions"][0]["lost"][0]["reason"] == "crc_mismatch"
    assert "crc_mismatch" in captured.err
    assert main(["salvage", str(partition), "-o", str(tmp_path / "out")]) == 6
    assert main(["salvage", str(partition)]) == 2


def lose_log(tmp_path):
    """A partition whose second of three segments lost its `.log`; its index is left."""
    batches = dense(30)
    partition = written(tmp_path, *(log_of(*batches[at : at + 10]) for at in (0, 10, 20)))
    kafkalog.reindex(partition, in_place=True)
    (partition / f"{30:020d}.log").unlink()
    return partition


def test_a_segment_that_an_index_proves_is_a_loss_and_the_index_is_kept(tmp_path):
    partition = lose_log(tmp_path)
    index = partition / f"{30:020d}.timeindex"
    proof = index.read_bytes()
    assert proof
    report = kafkalog.salvage(partition, output=tmp_path / "out")
    [row] = report.partitions
    assert not report.ok
    assert [(one.first_offset, one.end_offset, one.n_records) for one in row.losses] == [(30, 60, 30)]
    quarantine = Path(row.quarantine or "").read_bytes()
    files = {one.name: one for one in row.evidence}
    at = files[index.name].quarantine_position
    assert quarantine[at : at + files[index.name].size_in_bytes] == proof
    assert main(["salvage", str(partition), "--dry-run"]) == 1


def test_generated_names_fit_however_long_a_topic_is(tmp_path):
    topic = "n" * 249
    data = bytearray(log_of(*dense(9)))
    data[300] ^= 255
    logs = tmp_path / "logs"
    logs.mkdir()
    for name in (f"{topic}-0", f"{topic}-12", "orders-0"):
        written(logs, bytes(data), name=name)
    report = kafkalog.salvage(logs, output=tmp_path / "out")
    assert len({one.quarantine for one in report.partitions}) == 3
    for one in report.partitions:
        assert one.error is None
        assert one.total("n_batches_kept") == 8
        assert Path(one.quarantine or "").stat().st_size > 0


def test_a_partition_that_cannot_be_saved_does_not_stop_the_others(tmp_path, monkeypatch):
    logs = tmp_path / "logs"
    logs.mkdir()
    for name in ("a-0", "b-0"):
        written(logs, log_of(*dense(9)), name=name)

    def fail(segment, *arguments):
        if segment.path.parent.name == "a-0":
            raise UnsupportedError(Reason.UNKNOWN_CODEC, "no such codec", path=segment.path)
        return real(segment, *arguments)

    real = plan.plan_segment
    monkeypatch.setattr("kafkalog.repair.salvaging.partition.plan_segment", fail)
    for options in ({"dry_run": True}, {"output": tmp_path / "out"}):
        report = kafkalog.salvage(logs, **options)
        assert [one.error is None for one in report.partitions] == [False, True]
        assert not report.ok
    assert output_of(tmp_path / "out" / "b-0") == dense(9)
    assert not (tmp_path / "out" / "a-0").exists()
    with pytest.raises(UnsupportedError):
        kafkalog.salvage(logs / "a-0", dry_run=True)


def test_the_metadata_of_a_cluster_is_left_out_unless_it_is_named(tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    for name in ("__cluster_metadata-0", "orders-0"):
        written(logs, log_of(*dense(3)), name=name)
    (logs / "orders-0" / "partition.metadata").write_text("version: 0\ntopic_id: e4rNbTcjT_elpYRxU0Jgtw")
    for number, copy in enumerate((kafkalog.salvage, lambda path, **options: kafkalog.merge([path], **options))):
        report = copy(logs, output=tmp_path / str(number))
        assert [Path(one.output).name for one in report.partitions] == ["orders-0"]
        assert [(one.reason, one.damage) for one in report.findings.rows] == [(Reason.UNSAFE_PATH, False)]
        for options in ({"topics": "__cluster_metadata"}, {"topics": ["orders", "__cluster_metadata"]}):
            with pytest.raises(UnsafePathError):
                copy(logs, dry_run=True, **options)


def test_a_single_partition_is_the_output_if_that_is_named_like_one(tmp_path):
    data = bytearray(log_of(*dense(9)))
    data[300] ^= 255
    partition = written(tmp_path, bytes(data))
    for output, place in (("plain", "plain/t-0"), ("copy-0", "copy-0")):
        for number, copy in enumerate((kafkalog.salvage, lambda path, **options: kafkalog.merge([path], **options))):
            target = tmp_path / str(number) / output
            target.parent.mkdir(exist_ok=True)
            [row] = copy(partition, output=target).partitions
            assert row.output == str(tmp_path / str(number) / place)
            assert len(output_of(Path(row.output))) == 8
            if isinstance(row, SalvagedPartition):
                assert Path(row.quarantine or "").parent == target


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("offset", [11, 12, 13, 100, 2**40])
def test_a_batch_with_an_offset_of_another_segment_is_left_where_it_is(tmp_path, number, offset):
    """No checksum covers a base offset: the others are kept, wherever such a batch stands."""
    batches = dense(8)
    wrong = batches[number][8:]
    damaged = [*batches[:number], offset.to_bytes(8, "big") + wrong, *batches[number + 1 : 4]]
    if number == 0:
        damaged = [batches[0], *damaged]  # a segment is named after its first batch
    report = kafkalog.salvage(written(tmp_path, log_of(*damaged), log_of(*batches[4:])), output=tmp_path / "out")
    assert output_of(tmp_path / "out" / "t-0") == (batches if number == 0 else batches[:number] + batches[number + 1 :])
    assert number == 0 or not report.ok
