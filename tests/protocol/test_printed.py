"""What is printed of records that no golden dump has: Kafka 4.3.1's lines, less the reasons of errors."""

import struct

import pytest
from refusals import fails_with

from kafkalog.errors import CorruptionError, Reason
from kafkalog.format import CONSUMER_OFFSETS, METADATA_TOPIC, REMOTE_LOG_METADATA, SHARE_GROUP_STATE, TRANSACTION_STATE
from kafkalog.protocol.printed import printed_record, shown_record

UUID = bytes(range(16))
PARTITION = b"\2t" + UUID + struct.pack(">i", 3) + b"\0"
SEGMENT_ID = PARTITION + UUID[::-1] + b"\0"
IN_TEXT = (
    "remoteLogSegmentId=RemoteLogSegmentId{topicIdPartition=AAECAwQFBgcICQoLDA0ODw:t-3, id=Dw4NDAsKCQgHBgUEAwIBAA}"
)
NUMBERS = struct.pack(">qqiqq", 10, 20, 1, 30, 40)
GROUP_KEY = b"\0\2\0\1g"


def segment(epochs, custom=b"\0", state=0, tags=b"\0"):
    listed = b"".join(struct.pack(">iq", *item) + b"\0" for item in epochs.items())
    size = struct.pack(">i", 555)
    return b"\1\0\0" + SEGMENT_ID + NUMBERS + bytes([len(epochs) + 1]) + listed + size + custom + bytes([state]) + tags


def update(custom, state):
    return b"\1\1\0" + SEGMENT_ID + struct.pack(">iq", 1, 50) + custom + bytes([state, 0])


def deletion(state):
    return b"\1\2\0" + PARTITION + struct.pack(">iq", 1, 50) + bytes([state, 0])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (
            segment({7: 11, 2: 4}, tags=b"\1\0\1\1", state=3),
            (
                f"RemoteLogSegmentMetadata{{{IN_TEXT}, startOffset=10, endOffset=20, brokerId=1, maxTimestampMs=30,"
                " eventTimestampMs=40, segmentLeaderEpochs={2=4, 7=11}, segmentSizeInBytes=555,"
                " customMetadata=Optional.empty, state=DELETE_SEGMENT_FINISHED, txnIdxEmpty=true}"
            ),
        ),
        (
            segment({7: 11}, b"\3\1\2"),
            (
                f"RemoteLogSegmentMetadata{{{IN_TEXT}, startOffset=10, endOffset=20, brokerId=1, maxTimestampMs=30,"
                " eventTimestampMs=40, segmentLeaderEpochs={7=11}, segmentSizeInBytes=555,"
                " customMetadata=Optional[CustomMetadata{2 bytes}], state=COPY_SEGMENT_STARTED, txnIdxEmpty=false}"
            ),
        ),
        (
            update(b"\3\1\2", 1),
            (
                f"RemoteLogSegmentMetadataUpdate{{{IN_TEXT}, customMetadata=Optional[CustomMetadata{{2 bytes}}],"
                " state=COPY_SEGMENT_FINISHED, eventTimestampMs=50, brokerId=1}"
            ),
        ),
        (
            update(b"\0", 0),
            (
                f"RemoteLogSegmentMetadataUpdate{{{IN_TEXT}, customMetadata=Optional.empty, state=COPY_SEGMENT_STARTED,"
                " eventTimestampMs=50, brokerId=1}"
            ),
        ),
        (
            deletion(0),
            (
                "RemotePartitionDeleteMetadata{topicPartition=AAECAwQFBgcICQoLDA0ODw:t-3,"
                " state=DELETE_PARTITION_MARKED, eventTimestampMs=50, brokerId=1}"
            ),
        ),
        (segment({}), "Error at offset 9, skipping. segmentLeaderEpochs is empty"),
        (update(b"\0", 4), "Error at offset 9, skipping. there is no state 4"),
        (deletion(3), "Error at offset 9, skipping. there is no state 3"),
        (None, "Error at offset 9, skipping. has no value"),
    ],
)
def test_remote_log_metadata_is_text(value, text):
    assert printed_record(REMOTE_LOG_METADATA, 9, b"of no use", value) == (None, text)


@pytest.mark.parametrize(
    ("topic", "key", "value", "printed"),
    [
        (CONSUMER_OFFSETS, GROUP_KEY, None, ('{"type":"2","data":{"group":"g"}}', "<DELETE>")),
        (CONSUMER_OFFSETS, b"\0\x63", b"", ("Unknown record type 99 at offset 9, skipping.", None)),
        (CONSUMER_OFFSETS, b"\xff\xff", b"", ("Unknown record type -1 at offset 9, skipping.", None)),
        (SHARE_GROUP_STATE, b"\0\5", b"", ("Unknown record type 5 at offset 9, skipping.", None)),
        (TRANSACTION_STATE, b"\0", b"", ("Error at offset 9, skipping. key of 1 bytes has no version", None)),
        (CONSUMER_OFFSETS, GROUP_KEY, b"\0", ("Error at offset 9, skipping. value of 1 bytes has no version", None)),
        (METADATA_TOPIC, None, None, (None, "Error at 9, skipping. has no value")),
        (METADATA_TOPIC, None, b"\2", (None, "Error at 9, skipping. frame version 2; known is 1")),
    ],
)
def test_a_tombstone_and_what_cannot_be_decoded(topic, key, value, printed):
    assert printed_record(topic, 9, key, value) == printed


@pytest.mark.parametrize("topic", [CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE])
def test_a_record_without_the_key_that_it_needs_is_an_error(topic):
    for call in (lambda: shown_record(topic, None, b""), lambda: printed_record(topic, 9, None, b"")):
        with pytest.raises(CorruptionError) as caught:
            call()
        assert caught.value.reason == Reason.INTERNAL_RECORD


def group_value(protocol, assignment):
    member = b"\0\1m" + b"\0\1c\0\1h" + bytes(8) + bytes(4) + struct.pack(">i", len(assignment)) + assignment
    return (
        b"\0\1"
        + struct.pack(">h", len(protocol))
        + protocol
        + struct.pack(">i", 5)
        + b"\xff" * 4
        + b"\0\0\0\1"
        + member
    )


ASSIGNED = b"\0\0\0\0\0\1\0\1t\0\0\0\2\0\0\0\0\0\0\0\7"


@pytest.mark.parametrize(
    ("key", "value", "printed"),
    [
        (
            b"\0\1\0\1g\0\1t\0\0\0\3",
            b"\0\0" + struct.pack(">q", 7) + b"\0\1m" + bytes(8),
            ("offset_commit::group=g,partition=t-3", "offset=7,metadata=m"),
        ),
        (GROUP_KEY, None, ("group_metadata::group=g", "<DELETE>")),
        (
            GROUP_KEY,
            group_value(b"consumer", ASSIGNED + b"\0\0\0\2\xab\xcd"),
            (
                "group_metadata::group=g",
                '{"protocolType":"consumer","protocol":null,"generationId":5,"assignment":"{m=[t-0, t-7]:abcd}"}',
            ),
        ),
        (
            GROUP_KEY,
            group_value(b"connect", b"\1\xff"),
            (
                "group_metadata::group=g",
                '{"protocolType":"connect","protocol":null,"generationId":5,"assignment":"{m=01ff}"}',
            ),
        ),
    ],
)
def test_the_form_of_2_8(key, value, printed):
    assert printed_record(CONSUMER_OFFSETS, 9, key, value, is_2_8=True) == printed


@pytest.mark.parametrize(
    ("key", "value"),
    [(b"\0\3\0\1g", None), (b"\0\x63", None), (None, b""), (GROUP_KEY, group_value(b"consumer", b"\0"))],
)
def test_2_8_throws_where_it_cannot_decode(key, value):
    with fails_with("internal_record"):
        printed_record(CONSUMER_OFFSETS, 9, key, value, is_2_8=True)


def test_the_partitions_of_a_transaction_and_the_members_of_a_group_in_2_8s_order():
    """As 2.8.2's tool printed them."""
    topics = {
        "x.y": [1329, 106, 1845, 321],
        "t81644": [761, 960],
        "t33481": [779, 1113, 208, 1175],
        "Zoë": [26, 1497, 443, 835],
        "orders": [372, 1876, 1776, 1568, 797],
        "bills": [1560, 1632, 147],
    }
    listed = b"".join(
        struct.pack(">h", len(name.encode())) + name.encode() + struct.pack(f">{len(ids) + 1}i", len(ids), *ids)
        for name, ids in topics.items()
    )
    value = struct.pack(">hqhibi", 0, 3, 0, 60000, 1, len(topics)) + listed + struct.pack(">qq", 1000, 1000)
    _, text = printed_record(TRANSACTION_STATE, 0, b"\0\0\0\4tx-3", value, is_2_8=True)
    assert text == (
        "producerId:3,producerEpoch:0,state=Ongoing,partitions=[x.y-321,bills-1560,orders-1568,bills-147,orders-372,"
        "x.y-1845,t81644-761,x.y-1329,orders-1876,t33481-208,t81644-960,Zoë-835,orders-797,orders-1776,t33481-779,"
        "t33481-1113,t33481-1175,bills-1632,x.y-106,Zoë-26,Zoë-1497,Zoë-443],txnLastUpdateTimestamp=1000,"
        "txnTimeoutMs=60000"
    )
    has_not_begun = value[:16] + b"\0" + value[17:]
    assert "partitions=[]," in str(printed_record(TRANSACTION_STATE, 0, b"\0\0\0\1x", has_not_begun, is_2_8=True))


def test_the_members_of_a_group_in_2_8s_order():
    """As 2.8.2's tool printed them."""
    members = b"".join(
        struct.pack(">h", len(name)) + name + b"\0\1c\0\1h" + bytes(16)
        for name in (b"member-%d" % number for number in range(14))
    )
    value = b"\0\1\0\7connect" + struct.pack(">i", 5) + b"\xff" * 4 + struct.pack(">i", 14) + members
    _, text = printed_record(CONSUMER_OFFSETS, 0, GROUP_KEY, value, is_2_8=True)
    expected = ",".join(f"member-{number}=" for number in (5, 6, 3, 13, 4, 12, 9, 11, 10, 7, 8, 1, 2, 0))
    assert f'"assignment":"{{{expected}}}"' in str(text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (b"\0\7\0" + struct.pack(">iq", 3, 9), '{"type":"FENCE_BROKER_RECORD","version":0,"data":{"id":3,"epoch":9}}'),
        (b"\0\7\1" + struct.pack(">iq", 3, 9), '"version":1,"data":{"id":3,"epoch":9}}'),
        (b"\0\7\xff\xff\3" + struct.pack(">iq", 3, 9), '"version":-1,"data":{"id":3,"epoch":9}}'),
        (b"\0\x0e\1\0\0\0\1\0\0\0\0\0\0" + bytes(9), "Error at 5, skipping. Can't read version 1 of EntityData"),
        (
            b"\0\x0e\1\0\0\0\0" + bytes(17),
            '"QUOTA_RECORD","version":1,"data":{"entity":[],"key":"","value":0.0,"remove":false}}',
        ),
        # the same number has other fields by now
        (b"\0\x0c\0\0\1f\0\1\0\5", '"name":"f","minFeatureLevel":1,"maxFeatureLevel":5}}'),
        (b"\1\x0c\0", "unknown frame version 1(only frame version 0 is supported)"),
        (b"\0\x0d\0", "Error at 5, skipping. Unknown metadata id 13"),
        (None, "Error at 5, skipping. has no value"),
    ],
)
def test_what_2_8_prints_of_its_preview_of_kraft(value, text):
    key, shown = printed_record(METADATA_TOPIC, 5, None, value, is_2_8=True)
    assert key is None
    assert shown is not None
    assert shown.endswith(text)
