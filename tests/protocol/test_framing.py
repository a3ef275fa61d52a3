"""Records of internal topics, against what Kafka's own decoders printed of them."""

import json
import re

import pytest
from golden_sets import unpacked

import kafkalog
from kafkalog.format import CONSUMER_OFFSETS, METADATA_TOPIC, REMOTE_LOG_METADATA
from kafkalog.protocol.decoder import MessageError, UnknownVersionError
from kafkalog.protocol.framing import InternalRecord, decode_record
from kafkalog.protocol.printed import shown_record

_LINE = re.compile(r"\| offset: (\d+) .*? headerKeys: \[\] (?:key: (\{.*?\}) )?payload: (.*)")
DUMPS = [("k44", "dumps"), ("k28", "dumps43")]


def dumped():
    """Partition, its directory, and what Kafka 4.3.1 printed of it with the topic's decoder."""
    return [
        (path.parent.name, unpacked(name) / path.parent.name, path)
        for name, archive in DUMPS
        for path in sorted((unpacked(name, "dumps") / archive).glob("*/log.decoder.txt"))
    ]


@pytest.mark.parametrize(("partition", "directory", "dump"), dumped(), ids=lambda value: getattr(value, "name", value))
def test_every_record_is_what_kafkas_decoder_prints(partition, directory, dump):
    topic = partition.rpartition("-")[0]
    records = kafkalog.read_table(directory, columns=["offset", "key", "value"]).to_pylist()
    by_offset = {record["offset"]: record for record in records}
    n_compared = 0
    for offset, key_text, value_text in _LINE.findall(dump.read_text()):
        if not value_text.startswith(("{", "<DELETE>")):
            continue
        record = by_offset[int(offset)]
        key, value = shown_record(topic, record["key"], record["value"])
        expected = re.match(r".*? key: (\{.*\}) payload: ", f" key: {key_text} payload: ")
        if key is not None:
            assert expected is not None
            assert key == json.loads(expected[1])
        assert value == (None if value_text.startswith("<DELETE>") else json.loads(value_text)), offset
        n_compared += 1
    assert n_compared == len(records)


def test_there_are_records_of_every_kind_of_topic():
    seen = {partition.rpartition("-")[0] for partition, _, dump in dumped() if "| offset: 1 " in dump.read_text()}
    assert len(seen) == 4


@pytest.mark.parametrize(
    ("topic", "key", "value", "error", "message"),
    [
        (CONSUMER_OFFSETS, None, b"", MessageError, "no key"),
        (CONSUMER_OFFSETS, b"\0", b"", MessageError, "key of 1 bytes"),
        (CONSUMER_OFFSETS, b"\0\x63", b"", UnknownVersionError, "record type 99 is not known in __consumer_offsets"),
        (CONSUMER_OFFSETS, b"\0\x02\0\x01g", b"\0\x09", UnknownVersionError, "version 9; known are 0 to 4"),
        (CONSUMER_OFFSETS, b"\0\x02\0\x01g", b"", MessageError, "value of 0 bytes"),
        (METADATA_TOPIC, None, None, MessageError, "no value"),
        (METADATA_TOPIC, None, b"\x02\0\0", UnknownVersionError, "frame version 2"),
        (METADATA_TOPIC, None, b"\x01\x7f\0", UnknownVersionError, "record type 127"),
        (REMOTE_LOG_METADATA, None, b"\0\0", UnknownVersionError, "frame version 0"),
    ],
)
def test_what_cannot_be_decoded_says_why(topic, key, value, error, message):
    with pytest.raises(error, match=message):
        decode_record(topic, key, value)


def test_a_tombstone_has_a_key_alone():
    record = decode_record(CONSUMER_OFFSETS, b"\0\x02\0\x01g", None)
    assert record == InternalRecord("GroupMetadata", None, {"group": "g"}, None)


def test_bytes_behind_a_message_with_a_key_are_passed_over():
    record = decode_record(CONSUMER_OFFSETS, b"\0\x02\0\x01gmore", None)
    assert record.key == {"group": "g"}
