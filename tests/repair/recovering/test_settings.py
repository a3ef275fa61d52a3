"""What retention deletes by the settings that are known."""

from __future__ import annotations

from pathlib import Path

import pytest

import kafkalog
from kafkalog.cli import main


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
    assert found.verdict == "does not start"
    assert found.partitions[0].problem.reason is kafkalog.Reason.INDEX_SIZE
    assert [finding.damage for finding in found.findings.rows if "log.dirs" in finding.detail] == [False]
    config.write_text(f"log.dirs={log_dir_copy}\nlog.retention.hours=1\n")
    assert main(["preflight", str(partition), "--config", str(config)]) == 0
    assert "deleted by retention.ms after the start" in capsys.readouterr().out
