"""Lines of batches and records show bytes and numbers as Java shows them."""

import re
import struct

import builder
import pytest
from dumping_support import ONE, dumped, write_log
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import kafkalog
from kafkalog.errors import KafkalogError
from kafkalog.interchange.arrow_output import java_string


def contents(line):
    return line.partition("headerKeys: [] ")[2]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"plain", "plain"),
        ("é€𐍈".encode(), "é€𐍈"),
        (b"a\xffb\xc3", "a�b�"),
        (b"\xe2\x82", "�"),
        (b"\xf0\x90\x8d", "�"),
        (b"\xf0\x80\x80\x80", "����"),
        (b"\xed\xa0\x80x", "�x"),
        (b"\xed\xa0", "�"),
        (b"\xc0\xaf", "��"),
        (b"\xf5\x80", "��"),
        (b"x" * 31 + "é".encode() + b"y" * 40, "x" * 31 + "é" + "y" * 40),
        (b"x" * 100 + b"\x80", "x" * 100 + "�"),
        (b"", ""),
    ],
)
def test_bytes_are_shown_as_java_shows_them(log, value, shown):
    data = builder.batch_v2([builder.record_v2(0, 0, value, value)])
    assert contents(log(data, print_data_log=True)[1]) == f"key: {shown} payload: {shown}"


UTF8_PARTS = [b"a" * 9, b"\x80", b"\xc3\xa9", b"\xe2\x82", b"\xed\xa0", b"\xbf", b"\xf0\x9f", b"\xff"]


@settings(max_examples=examples(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(parts=st.lists(st.sampled_from(UTF8_PARTS)))
def test_any_bytes_are_shown_as_java_shows_them(parts, tmp_path):
    value = b"".join(parts)
    path = write_log(tmp_path, builder.batch_v2([builder.record_v2(0, 0, None, value)]))
    assert dumped(path, print_data_log=True)[3].split("payload: ")[1] == java_string(value)


@pytest.mark.parametrize(
    ("decoder", "shown"),
    [
        ("integer", "key: -2 payload: 1"),
        ("org.apache.kafka.tools.api.IntegerDecoder", "key: -2 payload: 1"),
        ("long", "key: -8589934589 payload: 4294967298"),
        ("string", "key: \ufffd\ufffd\ufffd\ufffe\0\0\0\3 payload: \0\0\0\1\0\0\0\2"),
    ],
)
def test_a_decoder_reads_numbers_and_implies_printing(log, decoder, shown):
    data = builder.batch_v2([builder.record_v2(0, 0, struct.pack(">ii", -2, 3), struct.pack(">ii", 1, 2))])
    line = contents(log(data, key_decoder=decoder, value_decoder=decoder)[1])
    assert line == shown.replace("\ufffe", "\ufffd")


def test_what_is_too_short_for_its_decoder_is_misuse_not_damage(log):
    data = builder.batch_v2([builder.record_v2(0, 0, b"abc", None)])
    with pytest.raises(ValueError) as caught:
        log(data, key_decoder="integer")
    assert not isinstance(caught.value, KafkalogError)


def test_numbers_are_printed_to_their_last_digit(log):
    numbers = [0, 9, 10, 99, 100, 99_999_999, 10**8, 10**16 - 1, 10**16, 2**63 - 1, -1, -(10**16), -(2**63)]
    data = b"".join(
        builder.batch_v2([ONE], base_offset=n, max_timestamp=number, producer_id=number)
        for n, number in enumerate(numbers)
    )
    lines = log(data)
    assert [int(re.search(r" CreateTime: (\S+)", line)[1]) for line in lines] == numbers
    assert [int(re.search(r" producerId: (\S+)", line)[1]) for line in lines] == numbers


@pytest.mark.parametrize("base_sequence", [2**31 - 3, 2**31 - 2, 2**31 - 1])
def test_sequences_go_on_at_0(log, base_sequence):
    records = [builder.record_v2(n, 0, None, b"v") for n in range(2)]
    batch, *lines = log(builder.batch_v2(records, base_sequence=base_sequence), deep_iteration=True)
    expected = [base_sequence, (base_sequence + 1) % 2**31]
    assert f" lastSequence: {expected[1]} " in batch
    assert [int(re.search(r" sequence: (\S+)", line)[1]) for line in lines] == expected


def test_without_its_metadata_a_record_begins_with_its_key_or_its_value(log):
    pairs = [(None, b"v"), (b"k", b"v"), (b"k", None), (None, None)]
    data = builder.batch_v2([builder.record_v2(n, 0, key, value) for n, (key, value) in enumerate(pairs)])
    options = {"print_data_log": True, "skip_record_metadata": True}
    assert log(data, **options)[1:] == ["| payload: v", "| key: k payload: v", "| key: k", ""]
    # 2.8 does not set off a value
    assert log(data, dialect="2.8", **options)[1:] == [" payload: v", "| key: k payload: v", "| key: k", ""]


@pytest.mark.parametrize(
    ("damaged", "reason"),
    [
        (builder.control_batch(builder.ABORT, base_offset=1, value=b"\0"), "control_record"),
        (builder.batch_v2([ONE], base_offset=1, attributes=6), "unknown_codec"),
        (builder.batch_v2([ONE], base_offset=1, magic=3), "bad_magic"),
        (builder.batch_v2([ONE], base_offset=1, records_count=2), "record_count"),
        (builder.batch_v2([ONE]), "offset_order"),
        (bytes(50), "size_too_small"),
    ],
)
def test_damage_ends_the_dump_after_the_lines_of_the_batches_before(tmp_path, damaged, reason):
    good = builder.batch_v2([ONE])
    lines = dumped(write_log(tmp_path, good), deep_iteration=True)
    path = write_log(tmp_path, good + damaged + builder.batch_v2([ONE], base_offset=9))
    *before, error = dumped(path, deep_iteration=True)
    assert before == lines
    assert f"{path}@{len(good)}" in error
    assert reason in error
    rows = []
    with pytest.raises(KafkalogError) as caught:
        rows.extend(kafkalog.dump(path, deep_iteration=True).rows())
    assert str(caught.value) == error.removeprefix("EXCEPTION ")


def test_a_record_larger_than_any_buffer_is_printed_whole(log):
    value = b"ab" * 2**20
    for codec in (builder.NONE, builder.ZSTD):
        line = log(builder.batch_v2([builder.record_v2(0, 0, None, value)], codec=codec), print_data_log=True)[1]
        assert line.endswith("payload: " + value.decode())


def test_records_of_an_internal_topic_are_decoded(log):
    data = builder.batch_v2([builder.record_v2(0, 0, b"\0\2\0\1g", None), builder.record_v2(1, 0, b"\0\x63", b"")])
    shown = [
        'key: {"type":"2","data":{"group":"g"}} payload: <DELETE>',
        "key: Unknown record type 99 at offset 1, skipping.",
    ]
    lines = log(data, topic_decoder="offsets")[1:]
    assert [contents(line) for line in lines] == shown
    assert lines[0].startswith("| offset: 0 CreateTime: ")
    lines = log(data, topic_decoder="offsets", skip_record_metadata=True)[1:]
    assert lines == [f"| {text}" for text in shown]


def test_a_record_without_the_key_that_a_decoder_needs_ends_the_dump(log):
    data = builder.batch_v2([builder.record_v2(0, 0, b"\0\2\0\1g", None), builder.record_v2(1, 0, None, b"")])
    *lines, error = log(data, topic_decoder="offsets")
    assert not lines
    assert re.fullmatch("EXCEPTION .*00.log@0 base_offset=0: internal_record: .* has no key", error)


def test_control_records_are_not_decoded(log):
    lines = log(builder.control_batch(1), topic_decoder="transaction-log")
    assert "endTxnMarker: COMMIT" in lines[1]
