"""Messages of internal topics: bytes to fields, and bad bytes to errors."""

from __future__ import annotations

import random

import pytest
from effort import counted, fuzz_inputs
from message_bytes import made_up

from kafkalog.protocol.decoder import MAX_ITEMS, MessageError, UnknownVersionError, decode_message
from kafkalog.protocol.definitions import messages
from kafkalog.protocol.encoder import encode_message, uvarint
from kafkalog.protocol.json_form import json_form


def test_an_offset_commit_of_each_version() -> None:
    head, meta, stamp = b"\0\0\0\0\0\0\0\x07", b"\0\x02hi", b"\0\0\0\0\0\0\0\x05"
    old = decode_message("OffsetCommitValue", 0, head + meta + stamp)
    assert (old["offset"], old["leaderEpoch"], old["metadata"], old["commitTimestamp"]) == (7, -1, "hi", 5)
    assert decode_message("OffsetCommitValue", 1, head + meta + stamp + stamp)["expireTimestamp"] == 5
    assert decode_message("OffsetCommitValue", 3, head + b"\0\0\0\x03" + meta + stamp)["leaderEpoch"] == 3
    new = decode_message("OffsetCommitValue", 4, head + b"\0\0\0\x03" + b"\x03hi" + stamp + b"\x01\0\x10" + bytes(16))
    assert (new["metadata"], new["topicId"]) == ("hi", "A" * 22)
    assert "expireTimestamp" not in json_form("OffsetCommitValue", 4, new)
    assert "topicId" not in json_form("OffsetCommitValue", 4, new), "its default is not shown"


def test_unknown_tags_are_passed_over() -> None:
    head = bytes(8) + bytes(4) + b"\x01" + bytes(8)
    assert decode_message("OffsetCommitValue", 4, head + b"\x01\x63\x02ab")["offset"] == 0


def test_null_structs_and_those_that_are_there() -> None:
    name, start = "ConsumerGroupMemberMetadataValue", b"\0\0\x02c\x02h\x01\0\0\0\0\x01\0"
    assert decode_message(name, 0, start + b"\x01\0\x01\0")["classicMemberMetadata"] is None
    classic = b"\x01\0\0\0\x09\x01\0"
    fields = decode_message(name, 0, start + b"\x01\0\x07" + classic)
    assert fields["classicMemberMetadata"] == {"sessionTimeoutMs": 9, "supportedProtocols": []}


@pytest.mark.parametrize(
    ("name", "version", "data", "message"),
    [
        ("OffsetCommitValue", 5, b"", "version 5; known are 0 to 4"),
        ("OffsetCommitValue", -1, b"", "version -1"),
        ("OffsetCommitKey", 0, b"\0\x05ab", "ends early: 5 bytes wanted at 2 of 4"),
        ("OffsetCommitKey", 0, b"\xff\xff", "group has a length of -1"),
        ("OffsetCommitKey", 0, b"\0\x01\xff\0\0\0\0\0\0", "group is not UTF-8"),
        ("GroupMetadataKey", 0, b"\0\x01a!", "1 bytes after the end of GroupMetadataKey"),
        ("TransactionLogValue", 1, bytes(15) + b"\xff\xff\xff\xff\x0f", "claims 4294967294 items in 0 bytes"),
        ("TransactionLogValue", 1, bytes(15) + b"\x80\x80\x80\x80\x80\x01", "overlong"),
        ("TopicRecord", 0, b"\x02a" + bytes(16) + b"\x01\0\x05a", "ends early"),
    ],
)
def test_what_is_no_message_is_an_error(name: str, version: int, data: bytes, message: str) -> None:
    with pytest.raises(MessageError, match=message) as caught:
        decode_message(name, version, data)
    assert isinstance(caught.value, UnknownVersionError) == ("known are" in str(caught.value))


def test_the_items_of_a_message_are_bounded() -> None:
    n = MAX_ITEMS + 1
    data = b"\0\0\x01\x01" + uvarint(n + 1) + b"\x01" * n  # topic names that are empty
    with pytest.raises(MessageError, match=f"more than {MAX_ITEMS} items"):
        decode_message("ConsumerGroupMemberMetadataValue", 0, data)


def test_mutated_messages_end_in_fields_or_in_an_error_of_ours() -> None:
    rng = random.Random(180)
    names = sorted(messages())
    n_refused = n_read = 0
    for _ in counted(range(fuzz_inputs(3))):
        message = messages()[rng.choice(names)]
        version = rng.randint(message.versions.first, message.versions.last)
        values = made_up(message.fields, version, rng)
        data = bytearray(encode_message(message.name, version, values))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data) + 1)
            change = rng.random()
            if change < 0.5 and at < len(data):
                data[at] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
            elif change < 0.75:
                del data[at : at + rng.randint(1, 8)]
            else:
                data[at:at] = rng.randbytes(rng.randint(1, 8))
        try:
            decode_message(message.name, version, bytes(data))
            n_read += 1
        except MessageError:
            n_refused += 1
    assert n_read
    assert n_refused
