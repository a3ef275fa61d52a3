"""Time indexes are compared with the log in one walk, however hostile they are."""

from __future__ import annotations

import struct
from pathlib import Path

import builder
from dumping_support import ONE, dumped, findings, write_log

from kafkalog.errors import Reason


def test_a_wrong_timestamp_is_damage_an_offset_inside_a_batch_is_not(indexed: Path) -> None:
    index = indexed.with_suffix(".timeindex")
    index.write_bytes(struct.pack(">qi", 999, 1))
    assert findings(index) == [(Reason.INDEX_ENTRY, True)]
    index.write_bytes(struct.pack(">qi", 101, 9))
    assert findings(index) == [(Reason.INDEX_ENTRY, True)]
    indexed.write_bytes(builder.batch_v2([ONE, ONE, ONE], base_offset=0))
    indexed.with_suffix(".index").write_bytes(b"")
    index.write_bytes(struct.pack(">qi", 0, 1))
    assert findings(index) == []


def test_hostile_time_indexes_end_soon(tmp_path: Path) -> None:
    # every byte of the log is the start of a chain that leads far
    path = Path(write_log(tmp_path, struct.pack(">qi", 0, 26) * 20_000))
    path.with_suffix(".index").write_bytes(b"".join(struct.pack(">ii", n, 12 * n + n % 12) for n in range(1, 15_000)))
    path.with_suffix(".timeindex").write_bytes(b"".join(struct.pack(">qi", n, n) for n in range(1, 15_000)))
    assert dumped(str(path.with_suffix(".timeindex")))


def test_a_time_index_without_its_offset_index_takes_one_walk(tmp_path: Path) -> None:
    n = 2_000
    batch = builder.message(0, None, b"x", timestamp=7)
    path = Path(write_log(tmp_path, b"".join(struct.pack(">q", number) + batch[8:] for number in range(n))))
    path.with_suffix(".index").write_bytes(b"")
    entries = [struct.pack(">qi", 7, number) for number in range(n)]
    index = path.with_suffix(".timeindex")
    index.write_bytes(b"".join(entries))
    assert len(dumped(str(index))) == n + 1
