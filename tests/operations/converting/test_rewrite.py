"""Rewritten batches: other codecs and batch sizes, leader epochs of legacy messages, records that cannot be encoded."""

import builder
import golden_sets
import pytest
from conversions import (
    batches_of,
    idempotent,
    logs,
    raw_batches,
    rows,
    stands,
    write_partition,
)
from effort import thinned
from refusals import fails_with

import kafkalog
from kafkalog import format as kf


def test_legacy_messages_get_the_leader_epoch_before_them(tmp_path):
    record = builder.record_v2(0, 0, b"k", b"v")
    parts = [
        builder.message(0, b"k", b"v"),
        builder.batch_v2([record], base_offset=1, leader_epoch=4),
        builder.message(2, b"k", b"v"),
        builder.batch_v2([record], base_offset=3, leader_epoch=6),
    ]
    source = write_partition(tmp_path / "t-0", [(0, b"".join(parts))])
    kafkalog.convert(source, tmp_path / "u-0")
    epochs = kafkalog.open(tmp_path / "u-0").segments[0].batches.partition_leader_epoch
    assert epochs.tolist() == [0, 4, 4, 6]


def test_a_leader_epoch_that_falls_is_noted_once(tmp_path):
    record = builder.record_v2(0, 0, b"k", b"v")
    for name, epochs, noted in (("t-0", [3, 3, 9, 3, 9, 3], [3]), ("t-1", [-1, -1, 0, 1], []), ("t-2", [5, 5, 4], [2])):
        batches = [builder.batch_v2([record], base_offset=at, leader_epoch=one) for at, one in enumerate(epochs)]
        source = write_partition(tmp_path / name, [(0, b"".join(batches[:3])), (3, b"".join(batches[3:]))])
        report = kafkalog.convert(source, tmp_path / f"u{name[1:]}")
        found = [one for one in report.findings.rows if one.reason is kafkalog.Reason.EPOCH_ORDER]
        assert [(one.base_offset, one.damage, one.n_records) for one in found] == [(at, False, 0) for at in noted]


@pytest.mark.parametrize("codec", kf.CODEC_NAMES[:5])
def test_another_codec_changes_the_batches_that_have_not_got_it(codec, tmp_path):
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


def test_records_out_of_order_cannot_be_rewritten(tmp_path):
    records = [builder.record_v2(delta, 0, b"k", b"v") for delta in (0, 2, 1)]
    good = builder.batch_v2([records[0]], base_offset=3)
    source = write_partition(tmp_path / "t-0", [(0, builder.batch_v2(records) + good)])
    kafkalog.convert(source, tmp_path / "same-0")
    assert logs(tmp_path / "same-0") == logs(source)
    with fails_with("offset_order"):
        kafkalog.convert(source, tmp_path / "u-0", compression="zstd")
    with pytest.warns(kafkalog.CorruptionWarning):
        kafkalog.convert(source, tmp_path / "u-0", compression="zstd", on_corruption="skip")
    assert [row[0] for row in rows(tmp_path / "u-0")] == [3]


@pytest.mark.parametrize("options", [{}, {"compression": "lz4"}, {"drop": "offset == 1"}])
def test_a_negative_record_count_is_damage_and_no_batch_to_copy(options, tmp_path):
    bad = builder.batch_v2([builder.record_v2(0, 0, b"k")], base_offset=3, records_count=-1)
    source = write_partition(tmp_path / "t-0", [(0, builder.batch_v2([builder.record_v2()]) + bad)])
    with fails_with("record_count") as raised:
        kafkalog.convert(source, tmp_path / "u-0", **options)
    assert raised.value.base_offset == 3


def test_single_messages_are_put_together_and_a_wrapper_stays_one_batch(tmp_path):
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


def test_a_batch_that_begins_below_the_log_start_offset_keeps_its_sequence_numbers(tmp_path):
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
def test_another_batch_size_keeps_records_sequences_and_producers(name, tmp_path):
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
