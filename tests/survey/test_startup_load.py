"""Which segments a broker recovers when it starts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from startups import asked, logs

import kafkalog
from kafkalog import format as kf
from kafkalog.state.producers import encode_snapshot
from kafkalog.survey.startup_load import LoadPlan, RootOffsets


def test_damage_is_cut_only_where_a_broker_looks(partition: Path) -> None:
    middle = logs(partition)[1]
    data = bytearray(middle.read_bytes())
    data[len(data) // 2] ^= 1
    middle.write_bytes(data)
    assert asked(partition).n_bytes_lost == 0
    assert asked(partition, clean=True).verdict == "starts"
    (partition.parent / "recovery-point-offset-checkpoint").unlink()
    row = asked(partition)
    assert row.verdict == "loses"
    assert [one.action for one in row.segments] == ["recovered", "cut", "deleted"]
    assert row.n_bytes_lost == sum(path.stat().st_size for path in logs(partition)) - sum(
        one.n_bytes for one in row.segments
    )
    assert row.loss.n_records == 305 - row.log_end_offset
    # without its index it is recovered in a first pass, which deletes nothing
    middle.with_suffix(".index").unlink()
    assert [one.action for one in asked(partition).segments] == ["recovered", "cut", "recovered"]


def test_the_marker_says_how_it_was_shut_down(partition: Path) -> None:
    assert not kafkalog.preflight(partition.parent).is_clean
    (partition.parent / ".kafka_cleanshutdown").write_bytes(b"")
    result = kafkalog.preflight(partition.parent)
    assert result.is_clean
    assert repr(result) == "Preflight(1 partition, clean start: starts)"
    assert kafkalog.preflight(partition.parent, clean=False).n_bytes_needed == 2 * 10_485_760


def test_what_is_no_regular_file_is_passed_over(partition: Path) -> None:
    middle = logs(partition)[1]
    middle.unlink()
    middle.mkdir()
    (partition / "00000000000000000001.log").symlink_to("nowhere")
    (partition.parent / "cleaner-offset-checkpoint").symlink_to("cleaner-offset-checkpoint")
    row = kafkalog.preflight(partition.parent).partitions[0]
    assert len(row.segments) == 2
    assert kafkalog.recover(partition.parent, dry_run=True).is_clean


def test_an_index_that_alone_ends_in_swap_is_renamed_before_the_segment_is_loaded(partition: Path) -> None:
    index = logs(partition)[1].with_suffix(".index")
    index.rename(f"{index}.swap")
    row = asked(partition, clean=True)
    assert [one.action for one in row.segments] == ["kept"] * 3
    assert row.renamed == {f"{index.name}.swap": index.name}


def test_a_transaction_index_is_read_to_its_end(partition: Path) -> None:
    middle = logs(partition)[1]
    middle.write_bytes(middle.read_bytes()[:100])  # room for no entry
    index = middle.with_suffix(".txnindex")
    index.write_bytes(index.read_bytes() + bytes(34))
    assert asked(partition, clean=True).segments[1].action == "cut"


def test_snapshots_are_those_that_are_there_once_swaps_are_renamed(partition: Path) -> None:
    first, second, third = (log.with_suffix(".snapshot") for log in logs(partition))
    entries = np.zeros(1, kf.PRODUCER_SNAPSHOT_DTYPE)
    Path(f"{second}.swap").write_bytes(encode_snapshot(entries))
    second.write_bytes(encode_snapshot(entries[:0]))
    third.write_bytes(b"no snapshot")
    first.unlink(missing_ok=True)
    bad: list[str] = []
    found = LoadPlan(partition, RootOffsets()).snapshots(lambda name, error: bad.append(name))
    assert bad == [third.name]
    assert found[int(third.stem)] is None
    assert found[int(second.stem)] is not None
    assert len(found[int(second.stem)]) == 1  # type: ignore[arg-type]


def test_a_negative_log_start_offset_counts_where_there_is_no_segment(partition: Path) -> None:
    checkpoint = partition.parent / kf.LOG_START_OFFSET_CHECKPOINT
    name = partition.name.rpartition("-")[0]
    checkpoint.write_text(f"0\n1\n{name} {partition.name.rpartition('-')[2]} -7\n")
    assert asked(partition).log_start_offset == 0
    for log in logs(partition):
        log.unlink()
    assert "correct the checkpoint" in (asked(partition).error or "")
    recovered = kafkalog.recover(partition.parent, dry_run=True).partitions[0]
    assert recovered.error is not None
