"""Facts about partitions: one that cannot be read keeps nothing from the others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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


def test_looking_up_writes_nothing(run: Any, log_dir_copy: Path) -> None:
    def state() -> list[tuple[str, int, int]]:
        found = [(str(path), path.stat()) for path in sorted(log_dir_copy.rglob("*"))]
        return [(path, status.st_size, status.st_mtime_ns) for path, status in found]

    before = state()
    run("lookup", log_dir_copy, "--timestamp", "max-timestamp", "--timestamp", 0, "--offset", 100)
    assert state() == before
