"""Records are cut into batches again: single messages are collected, other batch sizes keep sequences and producers."""

from __future__ import annotations

from pathlib import Path

import builder
import golden_sets
import pytest
from conversions import (
    batches_of,
    idempotent,
    logs,
    stands,
    write_partition,
)
from effort import thinned

import kafkalog
from kafkalog import format as kf


def test_single_messages_are_put_together_and_a_wrapper_stays_one_batch(tmp_path: Path) -> None:
    single = b"".join(builder.message(offset, b"k", b"v" * 100, timestamp=offset) for offset in range(1000))
    inner = [builder.message(i, b"k", b"w", timestamp=7) for i in (0, 2)]
    wrapped = builder.wrapper(inner, offset=1002, codec=builder.LZ4, timestamp=7)
    source = write_partition(tmp_path / "t-0", [(0, single + wrapped)])
    kafkalog.convert(source, tmp_path / "u-3")
    after = batches_of(tmp_path / "u-3")
    assert 5 <= len(after) < 15
    assert all(batch.size_in_bytes <= 16384 for batch in after)
    last = after[-1]
    assert (last.base_offset, last.last_offset, [record.offset for record in last.records]) == (
        1000,
        1002,
        [1000, 1002],
    )
    assert last.records[0].codec == builder.LZ4


def test_a_batch_that_begins_below_the_log_start_offset_keeps_its_sequence_numbers(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    source = write_partition(tmp_path / "log" / "t-0", [(0, idempotent(0, 2**31 - 2, n=5))])
    (tmp_path / "log" / kf.LOG_START_OFFSET_CHECKPOINT).write_text("0\n1\nt 0 3\n")
    kafkalog.convert(source, tmp_path / "u-0")
    (batch,) = batches_of(tmp_path / "u-0")
    assert (batch.base_offset, batch.base_sequence, [record.sequence for record in batch.records]) == (3, 1, [1, 2])
    assert list(logs(tmp_path / "u-0")) == [kf.segment_file_name(3)]


@pytest.mark.parametrize(
    "name", thinned(["p-txn-0", "p-idem-0", "p-compact-idem-0", "p-logappend-0", "p-headers-0"], 2)
)
def test_another_batch_size_keeps_records_sequences_and_producers(name: str, tmp_path: Path) -> None:
    source = golden_sets.partitions("k44")[name]
    expected = [record for batch in batches_of(source) for record in batch.records]
    n_after = []
    for batch_size in (200, 3000, 10**6):
        target = tmp_path / str(batch_size) / name
        target.parent.mkdir()
        report = kafkalog.convert(source, target, batch_size=batch_size, compression="zstd", compression_level=5)
        found = [record for batch in batches_of(target) for record in batch.records]
        neutral = {"codec": 0, "batch_base_offset": 0, "batch_position": 0}
        assert [r._replace(**neutral) for r in found] == [r._replace(**neutral) for r in expected]
        assert stands(target) == stands(source)
        n_after.append(report.partitions[0].n_batches_after)
    assert n_after[0] >= n_after[1] >= n_after[2]
    assert name != "p-headers-0" or n_after[0] > 3 * n_after[1] > 9 * n_after[2] > 9, n_after
