"""Messages of internal topics: bytes to fields and back, and errors for bad bytes."""

import base64
import random

import pytest
from effort import counted, fuzz_inputs
from golden_sets import partitions
from message_bytes import made_up

import kafkalog
from kafkalog.protocol.decoder import MAX_ITEMS, MessageError, UnknownVersionError, decode_message
from kafkalog.protocol.definitions import messages
from kafkalog.protocol.encoder import encode_keyed_record, encode_message, encode_metadata_record, uvarint
from kafkalog.protocol.framing import decode_record
from kafkalog.protocol.json_form import ASSIGNMENT, SUBSCRIPTION, decode_member, java_json, json_form, with_members


def test_an_offset_commit_of_each_version():
    head, meta, stamp = b"\0\0\0\0\0\0\0\x07", b"\0\x02hi", b"\0\0\0\0\0\0\0\x05"
    old = decode_message("OffsetCommitValue", 0, head + meta + stamp)
    assert (old["offset"], old["leaderEpoch"], old["metadata"], old["commitTimestamp"]) == (7, -1, "hi", 5)
    assert decode_message("OffsetCommitValue", 1, head + meta + stamp + stamp)["expireTimestamp"] == 5
    assert decode_message("OffsetCommitValue", 3, head + b"\0\0\0\x03" + meta + stamp)["leaderEpoch"] == 3
    new = decode_message("OffsetCommitValue", 4, head + b"\0\0\0\x03" + b"\x03hi" + stamp + b"\x01\0\x10" + bytes(16))
    assert (new["metadata"], new["topicId"]) == ("hi", "A" * 22)
    assert "expireTimestamp" not in json_form("OffsetCommitValue", 4, new)
    assert "topicId" not in json_form("OffsetCommitValue", 4, new), "its default is not shown"


def test_unknown_tags_are_passed_over():
    head = bytes(8) + bytes(4) + b"\x01" + bytes(8)
    assert decode_message("OffsetCommitValue", 4, head + b"\x01\x63\x02ab")["offset"] == 0


def test_null_structs_and_those_that_are_there():
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
def test_what_is_no_message_is_an_error(name, version, data, message):
    with pytest.raises(MessageError, match=message) as caught:
        decode_message(name, version, data)
    assert isinstance(caught.value, UnknownVersionError) == ("known are" in str(caught.value))


def test_the_items_of_a_message_are_bounded():
    n = MAX_ITEMS + 1
    data = b"\0\0\x01\x01" + uvarint(n + 1) + b"\x01" * n  # topic names that are empty
    with pytest.raises(MessageError):
        decode_message("ConsumerGroupMemberMetadataValue", 0, data)


def test_mutated_messages_end_in_fields_or_in_an_error_of_ours():
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


@pytest.mark.parametrize("name", messages())
def test_what_is_encoded_is_decoded(name):
    message, rng = messages()[name], random.Random(name)
    for version in range(message.versions.first, message.versions.last + 1):
        for _ in range(20):
            wanted = made_up(message.fields, version, rng)
            assert plain(decode_message(name, version, encode_message(name, version, wanted))) == plain(wanted)


def plain(found):
    """Lists in place of the tuples of defaults, and dicts in place of their mappings."""
    if isinstance(found, (list, tuple)):
        return [plain(one) for one in found]
    return {name: plain(one) for name, one in found.items()} if hasattr(found, "items") else found


def test_records_of_a_broker_are_encoded_to_the_same_bytes():
    n = 0
    path = partitions("k44")["__cluster_metadata-0"]
    for record in kafkalog.read_table(path, columns=["value"], include_control=False)["value"].to_pylist():
        decoded = decode_record("__cluster_metadata", None, record)
        assert decoded.version is not None
        fields = decoded.value or {}
        assert encode_metadata_record(decoded.type, decoded.version, **fields) == record
        n += 1
    assert n > 50


def test_a_commit_of_a_broker_is_encoded_to_the_same_bytes():
    n = 0
    for name, path in partitions("k44").items():
        if not name.startswith("__consumer_offsets-"):
            continue
        table = kafkalog.read_table(path, columns=["key", "value"])
        for key, data in zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True):
            if data is None:
                continue
            decoded = decode_record("__consumer_offsets", key, data)
            assert decoded.version is not None
            pair = encode_keyed_record(decoded.type, decoded.version, decoded.key or {}, decoded.value or {})
            assert pair == (key, data)
            n += 1
    assert n > 20


def test_wrong_fields_and_versions_raise():
    with pytest.raises(ValueError):
        encode_message("TopicRecord", 0, {"nme": "x"})
    with pytest.raises(ValueError):
        encode_message("TopicRecord", 99, {})
    with pytest.raises(ValueError, match="name may not be null"):
        encode_message("TopicRecord", 0, {"name": None})
    with pytest.raises(ValueError, match="leader may not be null"):  # among numbers that are written together
        encode_message("PartitionRecord", 1, {"partitionId": 1, "leader": None})
    with pytest.raises(ValueError, match="replicas may not be null"):
        encode_message("PartitionRecord", 1, {"replicas": None})


ONE = b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\7\xff\xff\xff\xff"  # partition 7 of t, no user data


def test_an_assignment_names_partitions():
    fields = decode_member(ASSIGNMENT, b"\0\1" + ONE)
    assert fields == {"assignedPartitions": [{"topic": "t", "partitions": [7]}], "userData": None}


def test_a_newer_version_is_read_as_far_as_it_is_known():
    assert decode_member(ASSIGNMENT, b"\0\x09" + ONE + b"more") == decode_member(ASSIGNMENT, b"\0\3" + ONE)


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\0\0\0\0\5"])
def test_other_bytes_are_an_error(data):
    with pytest.raises(MessageError):
        decode_member(SUBSCRIPTION, data)


def test_what_cannot_be_decoded_stays_as_it_is_printed():
    member = {"memberId": "m", "subscription": "AA==", "assignment": base64.b64encode(b"\0\0" + ONE).decode()}
    shown = with_members({"protocolType": "consumer", "members": [member]})["members"][0]
    assert (shown["memberId"], shown["subscription"]) == ("m", "AA==")
    assert shown["assignment"]["assignedPartitions"] == [{"topic": "t", "partitions": [7]}]
    assert with_members({"protocolType": "connect", "members": [member]})["members"] == [member]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({"a": [1, None, True, -(2**63)], "b": {}}, '{"a":[1,null,true,-9223372036854775808],"b":{}}'),
        ('q"\\/\b\t\n\x01\x1f', r'"q\"\\/\b\t\n\u0001\u001F"'),
        (r"\u001f", r'"\\u001f"'),
        ("\x7f\x80\u2028\u00e9\u20ac\U0001f600", '"\x7f\x80\u2028\u00e9\u20ac\U0001f600"'),
    ],
)
def test_text_is_compact_and_escaped_as_jackson_does(value, text):
    assert java_json(value) == text


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (1.0, "1.0"),
        (9999999.0, "9999999.0"),
        (1e7, "1.0E7"),
        (-123456789.125, "-1.23456789125E8"),
        (1e-3, "0.001"),
        (9.99e-4, "9.99E-4"),
        (1.5e300, "1.5E300"),
        (1 / 3, "0.3333333333333333"),
        (float("inf"), '"Infinity"'),
        (float("-inf"), '"-Infinity"'),
        (float("nan"), '"NaN"'),
    ],
)
def test_numbers_are_as_java_prints_them(number, text):
    assert java_json(number) == text
