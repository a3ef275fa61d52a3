"""Rewritten windows: other codecs, leader epochs of legacy messages, what cannot be encoded again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import builder
import golden_sets
import pytest
from conversions import (
    batches_of,
    logs,
    raw_batches,
    rows,
    stands,
    write_partition,
)

import kafkalog
from kafkalog import format as kf
from kafkalog.errors import CorruptionError


def test_log_append_time_stays_what_it_is(tmp_path: Path) -> None:
    messages = [
        builder.message(offset, b"k", b"v", timestamp=stamp, log_append_time=True)
        for offset, stamp in enumerate([5, 5, 6, 6, 6])
    ]
    source = write_partition(tmp_path / "t-0", [(0, b"".join(messages))])
    kafkalog.convert(source, tmp_path / "u-0")
    assert [(batch.max_timestamp, len(batch.records)) for batch in batches_of(tmp_path / "u-0")] == [(5, 2), (6, 3)]
    assert [row[1:3] for row in rows(tmp_path / "u-0")] == [(5, 1), (5, 1), (6, 1), (6, 1), (6, 1)]


def test_legacy_messages_get_the_leader_epoch_before_them(tmp_path: Path) -> None:
    record = builder.record_v2(0, 0, b"k", b"v")
    parts = [
        builder.message(0, b"k", b"v"),
        builder.batch_v2([record], base_offset=1, leader_epoch=4),
        builder.message(2, b"k", b"v"),
        builder.batch_v2([record], base_offset=3, leader_epoch=6),
    ]
    source = write_partition(tmp_path / "t-0", [(0, b"".join(parts))])
    kafkalog.convert(source, tmp_path / "u-0")
    epochs = kafkalog.open(tmp_path / "u-0").segments[0].batches.partition_leader_epoch  # type: ignore[union-attr]
    assert epochs.tolist() == [0, 4, 4, 6]


def test_a_leader_epoch_that_falls_is_noted_once(tmp_path: Path) -> None:
    record = builder.record_v2(0, 0, b"k", b"v")
    for name, epochs, noted in (("t-0", [3, 3, 9, 3, 9, 3], [3]), ("t-1", [-1, -1, 0, 1], []), ("t-2", [5, 5, 4], [2])):
        batches = [builder.batch_v2([record], base_offset=at, leader_epoch=one) for at, one in enumerate(epochs)]
        source = write_partition(tmp_path / name, [(0, b"".join(batches[:3])), (3, b"".join(batches[3:]))])
        report = kafkalog.convert(source, tmp_path / f"u{name[1:]}")
        found = [one for one in report.findings.rows if one.reason is kafkalog.Reason.EPOCH_ORDER]
        assert [(one.base_offset, one.damage, one.n_records) for one in found] == [(at, False, 0) for at in noted]


@pytest.mark.parametrize("codec", kf.CODEC_NAMES[:5])
def test_another_codec_changes_the_batches_that_have_not_got_it(codec: str, tmp_path: Path) -> None:
    source = golden_sets.partitions("k44")["p-mixcodec-0"]
    kafkalog.convert(source, tmp_path / "t-0", compression=codec)
    assert rows(tmp_path / "t-0") == rows(source)
    after = batches_of(tmp_path / "t-0")
    assert {batch.attributes & kf.CODEC_MASK for batch in after} == {kf.CODEC_NAMES.index(codec)}
    n_same = 0
    for data in raw_batches(source):
        if data[22] & kf.CODEC_MASK == kf.CODEC_NAMES.index(codec):
            n_same += 1
            assert data in raw_batches(tmp_path / "t-0")
    assert n_same
    assert stands(tmp_path / "t-0") == stands(source)


def test_records_out_of_order_cannot_be_rewritten(tmp_path: Path) -> None:
    records = [builder.record_v2(delta, 0, b"k", b"v") for delta in (0, 2, 1)]
    good = builder.batch_v2([records[0]], base_offset=3)
    source = write_partition(tmp_path / "t-0", [(0, builder.batch_v2(records) + good)])
    kafkalog.convert(source, tmp_path / "same-0")
    assert logs(tmp_path / "same-0") == logs(source)
    with pytest.raises(CorruptionError, match="do not increase"):
        kafkalog.convert(source, tmp_path / "u-0", compression="zstd")
    with pytest.warns(kafkalog.CorruptionWarning, match="do not increase"):
        kafkalog.convert(source, tmp_path / "u-0", compression="zstd", on_corruption="skip")
    assert [row[0] for row in rows(tmp_path / "u-0")] == [3]


@pytest.mark.parametrize("options", [{}, {"compression": "lz4"}, {"drop": "offset == 1"}])
def test_a_negative_record_count_is_damage_and_no_batch_to_copy(options: dict[str, Any], tmp_path: Path) -> None:
    bad = builder.batch_v2([builder.record_v2(0, 0, b"k")], base_offset=3, records_count=-1)
    source = write_partition(tmp_path / "t-0", [(0, builder.batch_v2([builder.record_v2()]) + bad)])
    with pytest.raises(CorruptionError, match="record_count") as raised:
        kafkalog.convert(source, tmp_path / "u-0", **options)
    assert raised.value.base_offset == 3
