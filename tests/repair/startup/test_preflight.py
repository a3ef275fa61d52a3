"""What a broker would do on its next start; `conformance/test_preflight.py` asks real brokers."""

from __future__ import annotations

import shutil
from pathlib import Path

import golden_sets
import pytest

import kafkalog
from kafkalog.cli import main
from kafkalog.repair.startup.forecast import PartitionForecast
from kafkalog.repair.startup.log_end import CorruptRecord, next_offset

Capture = pytest.CaptureFixture[str]


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """Three segments, in a log dir with recovery points that name the last."""
    target = tmp_path / "data" / "p-txn-now-0"
    shutil.copytree(golden_sets.partitions("k44_extra")["p-txn-now-0"], target)
    (target.parent / "recovery-point-offset-checkpoint").write_text("0\n1\np-txn-now 0 300\n")
    return target


def logs(partition: Path) -> list[Path]:
    return sorted(partition.glob("*.log"))


def content(directory: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def asked(partition: Path, *, clean: bool = False, broker: str = "4.3") -> PartitionForecast:
    before = content(partition.parent)
    (row,) = kafkalog.preflight(partition, clean=clean, broker=broker).partitions  # type: ignore[arg-type]
    assert content(partition.parent) == before
    return row


def test_a_healthy_partition_just_starts_or_is_recovered_behind_the_recovery_point(partition: Path) -> None:
    assert asked(partition, clean=True).verdict == "starts"
    row = asked(partition)
    assert row.verdict == "recovers"
    assert [one.action for one in row.segments] == ["kept", "kept", "recovered"]
    assert row.n_bytes_read == logs(partition)[-1].stat().st_size


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
    assert row.n_records_lost == 305 - row.log_end_offset
    # without its index it is recovered in a first pass, which deletes nothing
    middle.with_suffix(".index").unlink()
    assert [one.action for one in asked(partition).segments] == ["recovered", "cut", "recovered"]


@pytest.mark.parametrize("tail", [bytes(100), b"\x00" * 8 + b"\xff" * 50])
def test_a_bad_tail_kills_after_a_clean_shutdown_and_is_cut_after_another(partition: Path, tail: bytes) -> None:
    last = logs(partition)[-1]
    size = last.stat().st_size
    last.write_bytes(last.read_bytes() + tail)
    row = asked(partition, clean=True)
    assert (row.verdict, row.exceptions[0].name) == ("dies", "CorruptRecordException")
    cut = asked(partition)
    assert (cut.segments[-1].action, cut.segments[-1].n_bytes) == ("cut", size)
    assert cut.log_end_offset == 305


def test_a_torn_batch_is_no_loss(partition: Path) -> None:
    last = logs(partition)[-1]
    last.write_bytes(last.read_bytes()[:-5])
    row = asked(partition)
    assert (row.segments[-1].action, row.n_bytes_lost, row.verdict) == ("cut", 0, "recovers")
    assert asked(partition, clean=True).log_end_offset == row.log_end_offset


def test_an_index_that_leads_behind_the_end_moves_the_log_end(partition: Path) -> None:
    last = logs(partition)[-1]
    last.with_suffix(".index").write_bytes((5).to_bytes(4, "big") + (2**30).to_bytes(4, "big"))
    row = asked(partition, clean=True)
    assert (row.log_end_offset, row.verdict) == (272, "loses")


def test_names_and_ids_that_stop_or_displace(partition: Path) -> None:
    (partition / "broker.log").write_text("text")
    assert asked(partition).exceptions[0].name == "NumberFormatException"
    (partition / "broker.log").unlink()
    (partition / "leader-epoch-checkpoint").write_text("0\n9\n")
    assert asked(partition).exceptions[0].is_offline
    assert not asked(partition, broker="2.8").exceptions[0].is_offline
    (partition / "leader-epoch-checkpoint").write_text("0\n0\n")
    (partition.parent / "backup").mkdir()
    (partition / "partition.metadata").unlink()
    result = kafkalog.preflight(partition.parent)
    assert [one.name for one in result.exceptions] == ["KafkaException"]
    assert "no topic id" in (result.partitions[0].stray or "")
    old = kafkalog.preflight(partition.parent, broker="2.8")
    assert old.partitions[0].stray is None
    assert result.verdict == "dies"
    assert result.as_dict()["partitions"][0]["verdict"] == "loses"


def test_the_marker_says_how_it_was_shut_down(partition: Path) -> None:
    assert not kafkalog.preflight(partition.parent).is_clean
    (partition.parent / ".kafka_cleanshutdown").write_bytes(b"")
    result = kafkalog.preflight(partition.parent)
    assert result.is_clean
    assert repr(result) == "Preflight(1 partition, clean start of 4.3: starts)"
    assert kafkalog.preflight(partition.parent, clean=False).n_bytes_needed == 2 * 10_485_760


def test_it_agrees_with_recover(partition: Path) -> None:
    """The plan of one is the deed of the other."""
    data = bytearray(logs(partition)[-1].read_bytes())
    data[len(data) // 2] ^= 1
    logs(partition)[-1].write_bytes(data)
    row = asked(partition)
    (done,) = kafkalog.recover(partition, dry_run=True).partitions
    assert [(one.action, one.n_bytes) for one in row.segments] == [(one.action, one.n_bytes) for one in done.segments]
    assert row.log_end_offset == done.log_end_offset


@pytest.mark.parametrize("set_name", ["k44", "k28"])
def test_the_log_end_is_that_of_the_reader_where_all_is_well(set_name: str) -> None:
    for path in golden_sets.partitions(set_name).values():
        segment = kafkalog.Partition(path).segments[-1]
        assert next_offset(segment) == segment.next_offset, path.name


def test_a_size_below_the_smallest_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / "00000000000000000005.log"
    path.write_bytes(bytes(40))
    with pytest.raises(CorruptRecord, match="record size 0"):
        next_offset(kafkalog.Segment(path))


def test_the_command_says_it_and_ends_with_1_where_something_is_lost(partition: Path, capsys: Capture) -> None:
    assert main(["preflight", str(partition), "--clean"]) == 0
    assert capsys.readouterr().out == ""
    last = logs(partition)[-1]
    last.write_bytes(last.read_bytes() + bytes(50))
    assert main(["preflight", str(partition), "--clean"]) == 1
    printed = capsys.readouterr()
    assert "dies     " in printed.out
    assert "CorruptRecordException" in printed.out
    assert main(["preflight", str(partition), "--unclean", "--json", "--broker", "2.8"]) == 0
    assert '"action": "cut"' in capsys.readouterr().out
    assert main(["preflight", str(partition), "--broker", "1.0"]) == 2
    with pytest.raises(ValueError, match="no broker"):
        kafkalog.preflight(partition, broker="1.0")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="threads"):
        kafkalog.preflight(partition, threads=0)


def test_server_properties_foretell_retention_and_full_indexes(
    tmp_path: Path, log_dir_copy: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs=/elsewhere,{log_dir_copy}\nlog.retention.hours=1\n")
    partition = log_dir_copy / "p-txn-0"
    newest = int(kafkalog.read_numpy(partition, columns=["timestamp"], include_control=True).timestamp.max())

    def expired(now: int, *lines: str) -> list[str | None]:
        config.write_text("\n".join([f"log.dirs={log_dir_copy}", *lines]))
        [row] = kafkalog.preflight(partition, config=config, now=now, clean=True).partitions
        assert row.verdict == "starts"
        return [one.expires for one in row.segments]

    n = len(list(partition.glob("*.log")))
    assert expired(newest + 3_600_001, "log.retention.hours=1") == ["retention.ms"] * n
    assert None in expired(newest + 3_600_000, "log.retention.hours=1")
    assert expired(newest, "log.retention.ms=-1") == [None] * n
    assert expired(newest + 10**9, "log.retention.hours=1", "log.cleanup.policy=compact") == [None] * n
    sizes = [path.stat().st_size for path in sorted(partition.glob("*.log"))]
    keep = sum(sizes[2:])
    by_size = expired(newest, "log.retention.ms=-1", f"log.retention.bytes={keep}")
    assert by_size == ["retention.bytes"] * 2 + [None] * (n - 2)
    assert expired(newest, "log.retention.ms=-1", f"log.retention.bytes={keep + 1}")[1] is None
    # an index that recovery fills beyond its size
    config.write_text("log.index.size.max.bytes=12\nlog.index.interval.bytes=1\n")
    found = kafkalog.preflight(partition, config=config, clean=False)
    assert found.verdict == "dies"
    assert found.partitions[0].exceptions[0].name == "IllegalArgumentException"
    assert [finding.damage for finding in found.findings.rows if "log.dirs" in finding.detail] == [False]
    config.write_text(f"log.dirs={log_dir_copy}\nlog.retention.hours=1\n")
    assert main(["preflight", str(partition), "--config", str(config)]) == 0
    assert "deleted by retention.ms after the start" in capsys.readouterr().out
