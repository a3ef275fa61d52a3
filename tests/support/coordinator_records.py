"""Records of `__consumer_offsets` as a coordinator may find them: some of them cannot follow one another."""

import struct

from kafkalog.protocol.definitions import messages
from kafkalog.protocol.encoder import encode_keyed_record

TOPIC_ID = "AQIDBAUGBwgJCgsMDQ4PAQ"
VALUES = {
    "OffsetCommit": {"offset": 5, "leaderEpoch": -1, "metadata": "", "commitTimestamp": 1000},
    "GroupMetadata": {"protocolType": "consumer", "generation": 1, "protocol": None, "leader": None, "members": []},
    "ConsumerGroupMemberMetadata": {"clientId": "c", "clientHost": "h", "subscribedTopicNames": ["orders"]},
    "ConsumerGroupMetadata": {"epoch": 2},
    "ConsumerGroupTargetAssignmentMetadata": {"assignmentEpoch": 2},
    "ConsumerGroupTargetAssignmentMember": {"topicPartitions": []},
    "ConsumerGroupCurrentMemberAssignment": {"memberEpoch": 2, "previousMemberEpoch": 1, "state": 0},
    "ShareGroupMemberMetadata": {"clientId": "c", "clientHost": "h", "subscribedTopicNames": ["orders"]},
    "ShareGroupMetadata": {"epoch": 2},
    "ShareGroupTargetAssignmentMetadata": {"assignmentEpoch": 2},
    "ShareGroupTargetAssignmentMember": {"topicPartitions": []},
    "ShareGroupCurrentMemberAssignment": {"memberEpoch": 2, "previousMemberEpoch": 1, "state": 0},
    "StreamsGroupMetadata": {"epoch": 2},
    "StreamsGroupTargetAssignmentMetadata": {"assignmentEpoch": 2},
}
"""The types of records, and fields of their values."""


def record(kind, group, member="m1", *, value=True, **fields):
    """Key and value of a record; `value` is False for a tombstone."""
    definition = messages()[f"{kind}Key"]
    named = {"group": group, "groupId": group, "topic": "orders", "partition": 0, "memberId": member}
    key = {one.name: named[one.name] for one in definition.fields}
    version = {"OffsetCommit": 3, "GroupMetadata": 3}.get(kind, 0)
    content = empty(messages()[f"{kind}Value"].fields, version) | VALUES[kind] | fields
    if kind == "GroupMetadata":
        content |= {"currentStateTimestamp": 1000}
    if kind == "ConsumerGroupCurrentMemberAssignment":
        owned = [{"topicId": TOPIC_ID, "partitions": content.pop("owned", [])}]
        content |= {"assignedPartitions": owned if owned[0]["partitions"] else []}
    encoded = encode_keyed_record(kind, version, key, content)
    return encoded[0], encoded[1] if value else None


def empty(fields, version):
    """A value of each field that a version must have."""
    by_type = {"string": "", "bytes": b"", "bool": False, "uuid": "A" * 22, "float64": 0.0}
    of_version = [one for one in fields if version in one.versions and version not in one.tagged]
    return {one.name: [] if one.type.startswith("[]") else by_type.get(one.type, 0) for one in of_version}


def torn(kind, group):
    """A record whose value ends early."""
    key, value = record(kind, group)
    return key, value[:5]


def of_unknown_type():
    """A record of a type that only a newer Kafka knows."""
    return struct.pack(">h", 99) + b"\0\1g", b"\0\0"


def drawn(rng, n):
    """Some records, in any order."""
    found = []
    for _ in range(n):
        kind = rng.choice([*VALUES])
        fields = {}
        if kind == "ConsumerGroupCurrentMemberAssignment":
            fields = {"memberEpoch": rng.randrange(1, 4), "owned": rng.sample(range(3), rng.randrange(3))}
        elif kind == "GroupMetadata" and rng.random() < 0.3:
            fields = {"protocolType": ""}
        group, member = rng.choice(["g1", "g2"]), rng.choice(["m1", "m2"])
        found.append(record(kind, group, member, value=rng.random() < 0.6, **fields))
    if rng.random() < 0.1:
        found.insert(rng.randrange(n + 1), torn(rng.choice([*VALUES]), "g3"))
    if rng.random() < 0.2:
        found.insert(rng.randrange(n + 1), of_unknown_type())
    return found
