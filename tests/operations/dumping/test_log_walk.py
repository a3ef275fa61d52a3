"""The walk believes what Kafka's tool believes, in windows of any size, and reports what is damaged."""

import struct

import builder
import pytest
import strategies
from dumping_support import ONE, OPTIONS, dumped, write_log
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.errors import CorruptionError, Limits, Reason
from kafkalog.operations.dumping.decoders import describe


def test_a_batch_with_a_wrong_checksum_is_shown_with_its_records_and_is_a_finding(tmp_path):
    good, bad = builder.batch_v2([ONE]), builder.batch_v2([ONE], base_offset=1, crc=7)
    dump = kafkalog.dump(write_log(tmp_path, good + bad), print_data_log=True)
    lines = list(dump)
    assert [line.endswith("isvalid: true") for line in lines[2::2]] == [True, False]
    assert lines[-1].startswith("| offset: 1 ")
    assert [(finding.reason, finding.position, finding.base_offset) for finding in dump.findings] == [
        (Reason.CRC_MISMATCH, len(good), 1)
    ]
    assert dump.n_damage == 1


@pytest.mark.parametrize("followed", [False, True])
def test_a_torn_tail_is_damage_only_where_another_segment_follows(tmp_path, followed):
    batch = builder.batch_v2([ONE])
    path = write_log(tmp_path, batch + batch[:40])
    if followed:
        write_log(tmp_path, b"", 5)
    dump = kafkalog.dump(path)
    assert list(dump)[-1] == f"Found 40 invalid bytes at the end of {'0' * 20}.log"
    assert [finding.reason for finding in dump.findings] == [Reason.PARTIAL_TAIL]
    assert dump.n_damage == followed


def test_a_size_that_hides_intact_batches_is_damage(log):
    batches = [builder.batch_v2([ONE], base_offset=n) for n in range(3)]
    wrong = batches[1][:8] + struct.pack(">i", 10_000) + batches[1][12:]
    assert "size_exceeds_file" in log(batches[0] + wrong + batches[2])[-1]


def test_max_bytes_ends_the_log_and_hides_what_is_behind(log):
    batch = builder.batch_v2([ONE])
    data = b"".join(builder.batch_v2([ONE], base_offset=n) for n in range(3)) + b"torn"
    assert len(log(data, max_bytes=2 * len(batch) + 5)) == 2
    assert len(log(data)) == 4


@pytest.mark.parametrize("limits", [Limits(max_batch_bytes=100), Limits(max_decompressed_bytes=1000)])
def test_limits_hold(log, limits):
    batch = builder.batch_v2([builder.record_v2(0, 0, None, b"x" * 5000)], codec=builder.GZIP)
    big = batch[:8] + struct.pack(">i", 2**21) + batch[12:] + bytes(2**21)
    data = big if limits.max_batch_bytes == 100 else batch
    assert "too_large" in log(data, print_data_log=True, limits=limits)[-1]


def test_as_many_headers_as_the_limit_allows_are_shown(log):
    data = builder.batch_v2([builder.record_v2(0, 0, None, b"v", [(b"h", None)] * 3)])
    for most, is_shown in ((3, True), (2, False)):
        last = log(data, deep_iteration=True, limits=Limits(max_headers_per_record=most))[-1]
        assert last.endswith("headerKeys: [h,h,h]") == is_shown
        assert ("too_many_headers" in last) != is_shown


def test_a_batch_without_records_stands_between_others(log):
    two = [builder.record_v2(n) for n in range(2)]
    data = builder.batch_v2(two) + builder.batch_v2([], base_offset=2, last_offset_delta=1)
    kinds = [line.partition(":")[0] for line in log(data, deep_iteration=True)]
    assert kinds == ["baseOffset", "| offset", "| offset", "baseOffset"]


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(segment=strategies.segments(min_batches=1), options=st.sampled_from(OPTIONS), data=st.data())
def test_damage_gives_our_errors(segment, options, data, tmp_path):
    broken = data.draw(strategies.damaged(segment)).data
    path = write_log(tmp_path, broken)
    for _ in kafkalog.dump(path, keep_going=True, limits=Limits(max_decompressed_bytes=2**22), **options).rows():
        pass
    assert dumped(path, limits=Limits(max_decompressed_bytes=2**22), **options)


def key(kind):
    return struct.pack(">hh", 0, kind)


def test_a_type_that_is_not_known_is_named_by_its_number():
    assert describe(key(9), b"x") == " controlType: UNKNOWN(9)"
    assert describe(key(2), b"x", is_2_8=True) == " controlType: LEADER_CHANGE(2)"


@pytest.mark.parametrize("kind", range(7))
def test_a_value_that_ends_early_is_damage(kind):
    for value in (None, b"", b"\0"):
        with pytest.raises(CorruptionError) as caught:
            describe(key(kind), value)
        assert caught.value.reason is Reason.CONTROL_RECORD


@pytest.mark.parametrize("damaged", [None, b"", b"\0\0\0", b"\xff\0\0\1"])
def test_a_key_that_names_no_type_is_damage(damaged):
    with pytest.raises(CorruptionError) as caught:
        describe(damaged, b"")
    assert caught.value.reason is Reason.CONTROL_RECORD
