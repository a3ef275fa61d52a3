"""Facts about partitions: one that cannot be read keeps nothing from the others."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import kafkalog

LOG = "00000000000000000000.log"


def test_damage_in_one_partition_leaves_the_others_to_be_looked_up(run: Any, log_dir_copy: Path) -> None:
    path = log_dir_copy / "p-multi-1" / LOG
    data = bytearray(path.read_bytes())
    data[100] ^= 0x10
    path.write_bytes(data)
    code, out, err = run("lookup", log_dir_copy, "-t", "p-multi", "--timestamp", 0)
    assert code == 1
    assert "crc_mismatch" in err
    assert [line.partition(":")[0] for line in out.splitlines() if not line.startswith(" ")] == [
        "p-multi-0",
        "p-multi-2",
    ]


def test_times_before_the_latest_timestamp_are_those_of_a_scan(run: Any, log_dir: Path) -> None:
    latest = max(
        kafkalog.read_table(log_dir, topics="p-multi", columns=["timestamp"]).column(0).cast("int64").to_pylist()
    )
    for text, time in (("end", latest), ("end-1m", latest - 60_000)):
        # the latest timestamp of all three partitions, not of each
        found, same = (
            [trace.offset for trace in kafkalog.lookup(log_dir, topics="p-multi", timestamp=one)]
            for one in (text, time)
        )
        assert found == same != [-1, -1, -1]
        code, out, _ = run("lookup", log_dir, "-t", "p-multi", "--timestamp", text, "--json")
        assert code == 0
        assert [json.loads(line)["offset"] for line in out.splitlines()] == found
        by_filter = kafkalog.scan(log_dir, topics="p-multi", filters=f"timestamp >= {text}").count_rows()
        assert by_filter == kafkalog.scan(log_dir, topics="p-multi", start_timestamp=time).count_rows() > 0
    partition = kafkalog.open(log_dir / "p-multi-0")
    own = max(partition.to_table(columns=["timestamp"]).column(0).cast("int64").to_pylist())
    assert (
        partition.offset_for_timestamp(["end-1m", 5]).tolist()
        == partition.offset_for_timestamp([own - 60_000, 5]).tolist()
    )


@pytest.mark.parametrize(("call", "name"), [(kafkalog.trim, "before_timestamp"), (kafkalog.truncate, "to_timestamp")])
def test_logs_are_cut_at_times_before_their_latest(log_dir: Path, call: Any, name: str) -> None:
    partition = log_dir / "p-multi-0"
    latest = max(kafkalog.read_table(partition, columns=["timestamp"]).column(0).cast("int64").to_pylist())
    found, same = (call(partition, **{name: one}, dry_run=True).partitions[0] for one in ("end-1m", latest - 60_000))
    ends = [(one.log_start_offset, one.log_end_offset) for one in (found, same)]
    whole = kafkalog.open(partition)
    assert ends[0] == ends[1] != (whole.log_start_offset, whole.log_end_offset)
