"""Segments in remote storage: copied, finished, deleted."""

import random

from effort import counted, fuzz_inputs
from message_bytes import made_up

import kafkalog
from kafkalog import PartitionWriter, TopicPartition
from kafkalog.protocol.definitions import messages
from kafkalog.protocol.encoder import encode_message, encode_metadata_record, uvarint

IDS = ["RxLbS2aoRLmJ9xc1exUYuQ", "SxLbS2aoRLmJ9xc1exUYuQ", "TxLbS2aoRLmJ9xc1exUYuQ"]
OF = {"name": "orders", "id": IDS[0], "partition": 2}


def record(kind, **given):
    return encode_metadata_record(kind, 0, **given)


def copied(segment, start):
    epochs = [{"leaderEpoch": 4, "offset": start}]
    offsets = {"startOffset": start, "endOffset": start + 9, "segmentSizeInBytes": 1000}
    return record(
        "RemoteLogSegmentMetadata",
        remoteLogSegmentId={"topicIdPartition": OF, "id": segment},
        brokerId=1,
        maxTimestampMs=5,
        **{"eventTimestampMs": 6, "segmentLeaderEpochs": epochs, "remoteLogSegmentState": 0, **offsets},
    )


def changed(segment, state, custom=None):
    return record(
        "RemoteLogSegmentMetadataUpdate",
        remoteLogSegmentId={"topicIdPartition": OF, "id": segment},
        brokerId=3,
        eventTimestampMs=7,
        customMetadata=custom,
        remoteLogSegmentState=state,
    )


def written(path, *values):
    path.mkdir(exist_ok=True)
    with PartitionWriter(path / "__remote_log_metadata-1") as writer:
        writer.append({"value": list(values)})
    return path


def test_segments_and_what_became_of_them(tmp_path):
    path = written(
        tmp_path,
        copied(IDS[1], 10),
        copied(IDS[0], 0),
        changed(IDS[0], 1, b"at"),
        copied(IDS[2], 20),
        changed(IDS[2], 2),
        changed(IDS[2], 3),
        changed("A" * 22, 1),
    )
    found = kafkalog.remote_log(path)
    assert not found.findings
    assert [(one.start_offset, one.end_offset, one.state, one.broker_id, one.custom_metadata) for one in found] == [
        (0, 9, "COPY_SEGMENT_FINISHED", 3, "YXQ="),
        (10, 19, "COPY_SEGMENT_STARTED", 1, None),
    ]
    assert found[0].leader_epochs == {4: 0}
    assert found.to_arrow().column("leader_epochs").to_pylist() == [[(4, 0)], [(4, 10)]]
    assert len(kafkalog.remote_log(path, end_offset=5)) == 3
    assert kafkalog.remote_log(path, topics="bills") == []


def test_partitions_that_are_deleted(tmp_path):
    def deleted(state):
        return record("RemotePartitionDeleteMetadata", topicIdPartition=OF, remotePartitionDeleteState=state)

    found = kafkalog.remote_log(written(tmp_path / "a", copied(IDS[0], 0), deleted(0), deleted(1)))
    assert len(found) == 1
    assert found.deleting == {TopicPartition("orders", 2): "DELETE_PARTITION_STARTED"}
    found = kafkalog.remote_log(written(tmp_path / "b", copied(IDS[0], 0), deleted(0), deleted(2)))
    assert (list(found), found.deleting) == ([], {})


def test_made_up_records_are_segments_or_findings(tmp_path):
    rng = random.Random(18)
    known = [one for one in messages().values() if one.topic == "__remote_log_metadata"]
    values = []
    for _ in counted(range(fuzz_inputs(12))):
        message = rng.choice(known)
        data = bytearray(encode_message(message.name, 0, made_up(message.fields, 0, rng)))
        if rng.random() < 0.5:
            data[rng.randrange(len(data))] = rng.randrange(256)
        values.append(b"\x01" + uvarint(message.key or 0) + b"\0" + bytes(data))
    found = kafkalog.remote_log(written(tmp_path, *values))
    assert found.findings
    assert found
    assert found.to_arrow().num_rows == len(found)
