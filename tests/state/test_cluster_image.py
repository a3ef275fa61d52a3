"""Records of the cluster's metadata, one behind the other, add up to the state that they describe."""

import json
import random

import pytest
from builder import batch_v2, record_v2
from effort import counted, fuzz_inputs
from message_bytes import made_up

import kafkalog
from kafkalog.errors import Reason
from kafkalog.protocol.definitions import messages
from kafkalog.protocol.encoder import encode_message, encode_metadata_record, uvarint
from kafkalog.state.cluster_image import ClusterMetadata

ID, OTHER_ID = "RxLbS2aoRLmJ9xc1exUYuQ", "SxLbS2aoRLmJ9xc1exUYuQ"
NAMES = {message.name for message in messages().values() if message.topic == "__cluster_metadata"}


def record(kind, **given):
    """The value of a record in its newest version, with these fields and defaults for the others."""
    return encode_metadata_record(kind, messages()[f"{kind}Record"].versions.last, **given)


def log_of(tmp_path, *values):
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir(parents=True, exist_ok=True)
    records = [record_v2(delta, delta, value=value) for delta, value in enumerate(values)]
    (directory / f"{0:020d}.log").write_bytes(
        batch_v2(records, base_timestamp=1000, max_timestamp=1000 + len(values) - 1)
    )
    return tmp_path


def test_all_that_is_not_of_topics(tmp_path):
    acl = {"id": "A" * 21 + "Q", "resourceType": 2, "resourceName": "t", "patternType": 3}
    more = {"principal": "User:ann", "host": "*", "operation": 3, "permissionType": 3}
    entity = [{"entityType": "user", "entityName": None}]
    path = log_of(
        tmp_path,
        record("AccessControlEntry", **acl, **more),
        record("ClientQuota", entity=entity, key="producer_byte_rate", value=5.0),
        record("ClientQuota", entity=entity, key="gone", value=5.0),
        record("ClientQuota", entity=entity, key="gone", remove=True),
        record(
            "UserScramCredential", name="ann", mechanism=2, salt=b"s", storedKey=b"k", serverKey=b"v", iterations=8192
        ),
        record("UserScramCredential", name="bob", mechanism=1, iterations=4096),
        record("RemoveUserScramCredential", name="bob", mechanism=1),
        record("Config", resourceType=4, resourceName="", name="ssl.keystore.password", value="x"),
        record("Config", resourceType=4, resourceName="1", name="log.cleaner.threads", value="2"),
        record(
            *("DelegationToken",),
            owner="User:ann",
            tokenId="t1",
            renewers=["User:bob"],
            issueTimestamp=5,
            maxTimestamp=99,
            expirationTimestamp=77,
        ),
        record("FeatureLevel", name="f", featureLevel=1),
        record("FeatureLevel", name="f", featureLevel=0),
        record("ProducerIds", nextProducerId=3000),
        record("BeginTransaction"),
        record("FeatureLevel", name="half", featureLevel=1),
        record("AbortTransaction"),
        record("BeginTransaction"),
        record("FeatureLevel", name="whole", featureLevel=1),
        record("EndTransaction"),
        record("BeginTransaction"),
        record("FeatureLevel", name="open", featureLevel=1),
    )
    found = kafkalog.metadata(path)
    assert not found.findings
    assert [(one["resource_type"], one["operation"], one["permission"]) for one in found.acls] == [
        ("topic", "read", "allow")
    ]
    assert found.quotas == [{"entity": {"user": None}, "key": "producer_byte_rate", "value": 5.0}]
    assert found.scram == [{"user": "ann", "mechanism": "SCRAM-SHA-512", "iterations": 8192}]
    assert [(one["resource_name"], one["value"]) for one in found.configs] == [("", "[hidden]"), ("1", "2")]
    ((token, owner, requester, renewers, *times),) = (list(one.values()) for one in found.tokens)
    assert (token, owner, requester, renewers, times) == ("t1", "User:ann", "", ["User:bob"], [5, 99, 77])
    assert [(one["name"], one["level"]) for one in found.features] == [("whole", 1)]
    assert found.to_arrow("quotas").num_rows == 1
    json.dumps(found.as_dict())
    with pytest.raises(ValueError):
        found.to_arrow("secrets")


def test_the_quorum_is_what_its_last_control_records_say(tmp_path):
    path = log_of(tmp_path, record("FeatureLevel", name="metadata.version", featureLevel=30))
    log = path / "__cluster_metadata-0" / f"{0:020d}.log"
    for offset, (kind, value) in enumerate([(5, KRAFT_1), (6, voters(1)), (6, voters(2, 1)), (6, b"\0")], 1):
        key = b"\0\0\0" + bytes([kind])
        control = record_v2(0, 0, key=key, value=value)
        log.write_bytes(log.read_bytes() + batch_v2([control], base_offset=offset, attributes=0x20))
    found = kafkalog.metadata(path)
    assert [(one.base_offset, one.reason) for one in found.findings] == [(4, "internal_record")]
    assert [(one["name"], one["level"]) for one in found.features] == [("kraft.version", 1), ("metadata.version", 30)]
    assert [one["id"] for one in found.voters] == [1, 2]
    assert found.voters[0]["endpoints"] == ["CONTROLLER://localhost:9093"]
    assert [one["id"] for one in kafkalog.metadata(path, end_offset=3).voters] == [1]
    assert found.to_arrow("voters").num_rows == 2
    assert (found.end_offset, kafkalog.metadata(path, end_offset=1).voters) == (1, [])


KRAFT_1 = b"\0\0\0\1\0"


def voters(*ids):
    endpoint = b"\x0bCONTROLLER\x0alocalhost" + (9093).to_bytes(2, "big") + b"\0"
    each = [
        number.to_bytes(4, "big") + bytes([number] * 16) + b"\x02" + endpoint + b"\0\0\0\1\0" + b"\0" for number in ids
    ]
    return b"\0\0" + bytes([len(ids) + 1]) + b"".join(each) + b"\0"


def test_partitions_brokers_and_topics_change(tmp_path):
    topic, other = "RxLbS2aoRLmJ9xc1exUYuQ", "SxLbS2aoRLmJ9xc1exUYuQ"
    directories = [topic, other]
    path = log_of(
        tmp_path,
        record(
            "RegisterBroker", brokerId=1, incarnationId=topic, rack="r", logDirs=directories, cordonedLogDirs=[topic]
        ),
        record("RegisterBroker", brokerId=2, incarnationId=topic),
        record("BrokerRegistrationChange", brokerId=1, fenced=-1, inControlledShutdown=1),
        record("BrokerRegistrationChange", brokerId=1, cordonedLogDirs=[other]),
        record("UnregisterBroker", brokerId=2),
        record("Topic", name="t", topicId=topic),
        record("Topic", name="u", topicId=other),
        record(
            *("Partition",),
            partitionId=0,
            topicId=topic,
            replicas=[1, 2],
            isr=[1, 2],
            leader=1,
            leaderEpoch=0,
            partitionEpoch=0,
            directories=directories,
            eligibleLeaderReplicas=[2],
        ),
        record("PartitionChange", partitionId=0, topicId=topic, isr=[2], leader=2, leaderRecoveryState=1),
        record("PartitionChange", partitionId=0, topicId=topic, isr=[2, 1]),
        record("ClearElr", topicName=""),
        record("Config", resourceType=2, resourceName="u", name="a", value="b"),
        record("RemoveTopic", topicId=other),
    )
    found = kafkalog.metadata(path)
    assert not found.findings
    (broker,) = found.brokers
    assert (broker["is_fenced"], broker["in_controlled_shutdown"], broker["rack"]) == (False, True, "r")
    assert (broker["log_dirs"], broker["cordoned_log_dirs"]) == (directories, [other])
    (one,) = found.partitions
    assert (one["leader"], one["leader_epoch"], one["partition_epoch"]) == (2, 1, 2)
    assert (one["isr"], one["elr"], one["directories"]) == ([2, 1], [], directories)
    assert [row["topic"] for row in found.topics] == ["t"]
    assert found.configs == []
    assert found.topic_id("t") == topic


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("PartitionChange", {"partitionId": 9, "topicId": ID}),
        ("PartitionChange", {"partitionId": 0, "topicId": OTHER_ID}),
        ("Partition", {"partitionId": 0, "topicId": OTHER_ID, "replicas": [1], "isr": [1]}),
        ("RemoveTopic", {"topicId": OTHER_ID}),
        ("ClearElr", {"topicName": "u"}),
        ("FenceBroker", {"id": 2}),
        ("UnfenceBroker", {"id": 2}),
        ("BrokerRegistrationChange", {"brokerId": 2}),
        ("UnregisterBroker", {"brokerId": 2}),
        ("RemoveAccessControlEntry", {"id": OTHER_ID}),
        # an earlier registration of the broker, and a topic that was not removed before
        ("FenceBroker", {"id": 1, "epoch": 4}),
        ("UnfenceBroker", {"id": 1, "epoch": 4}),
        ("BrokerRegistrationChange", {"brokerId": 1, "brokerEpoch": 4}),
        ("UnregisterBroker", {"brokerId": 1, "brokerEpoch": 4}),
        ("Topic", {"name": "t", "topicId": OTHER_ID}),
        ("Topic", {"name": "t", "topicId": ID}),
    ],
)
def test_a_record_that_no_record_before_it_allows(tmp_path, kind, fields):
    first = (
        record("RegisterBroker", brokerId=1, brokerEpoch=5, incarnationId=ID),
        record("Topic", name="t", topicId=ID),
        record("Partition", partitionId=0, topicId=ID, replicas=[1], isr=[1]),
        record("AccessControlEntry", id=ID),
    )
    found = kafkalog.metadata(log_of(tmp_path, *first, record(kind, **fields), record(kind, **fields)))
    assert [(one.reason, one.base_offset, one.damage) for one in found.findings] == [
        (Reason.METADATA_INCOMPLETE, 4, True)
    ]
    assert not found.is_complete
    (problem,) = (one for one in kafkalog.preflight(tmp_path).problems if one.reason is Reason.METADATA_INCOMPLETE)
    assert problem.effect == "does not start"
    known = {"topicId": ID, "partitionId": 0, "topicName": "t", "id": 1, "brokerId": 1}
    known = {name: known.get(name, value) for name, value in fields.items()}
    epochs = {"id": "epoch", "brokerId": "brokerEpoch"}
    known |= {epochs[name]: 5 for name in fields if name in epochs and kind != "RemoveAccessControlEntry"}
    known |= {"name": "u", "topicId": OTHER_ID} if kind == "Topic" else {}
    known |= {"id": ID} if kind == "RemoveAccessControlEntry" else {}
    assert kafkalog.metadata(log_of(tmp_path / "known", *first, record(kind, **known))).is_complete


@pytest.mark.parametrize("name", sorted(NAMES))
def test_every_published_version_of_a_record_is_applied_and_a_newer_one_is_named(name):
    message, rng = messages()[name], random.Random(43)
    assert message.key is not None
    for version in range(message.versions.first, message.versions.last + 1):
        image = ClusterMetadata()
        image.apply(record("Topic", name="t", topicId=NEEDED["topicId"]))
        front = b"\x01" + uvarint(message.key) + uvarint(version)
        fields = {field.name: NEEDED.get(field.name, field.default) for field in message.fields}
        for values in (fields, made_up(message.fields, version, rng)):
            image.apply(front + encode_message(name, version, values))
        if name == "PartitionRecord":
            partition = image.partitions("t")[fields["partitionId"]]
            assert (partition.replicas, partition.isr) == ([1, 2], [1])
        if name == "RegisterBrokerRecord":
            assert image.brokers[0]["incarnationId"] == fields["incarnationId"]
    newer = b"\x01" + uvarint(message.key) + uvarint(message.versions.last + 1)
    with pytest.raises(ValueError, match=f"version {message.versions.last + 1}"):
        ClusterMetadata().apply(newer + bytes(40))


NEEDED = {"topicId": "RxLbS2aoRLmJ9xc1exUYuQ", "name": "t", "topicName": "t", "replicas": [1, 2], "isr": [1]}


def test_made_up_records_are_applied_or_refused():
    rng = random.Random(182)
    image = ClusterMetadata()
    names = sorted(NAMES)
    n_refused = 0
    for _ in counted(range(fuzz_inputs(6))):
        message = messages()[rng.choice(names)]
        version = rng.randint(message.versions.first, message.versions.last)
        fields = made_up(message.fields, version, rng)
        data = bytearray(encode_message(message.name, version, fields))
        if data and rng.random() < 0.5:
            data[rng.randrange(len(data))] = rng.randrange(256)
        try:
            image.apply(b"\x01" + uvarint(message.key or 0) + uvarint(version) + data)
        except ValueError:
            n_refused += 1
    assert n_refused
    assert image.acls
    assert image.brokers
