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


DAY = 24 * 3_600_000


def _classic_member(*topics):
    """A member of a classic group that has subscribed to topics."""
    names = b"".join(struct.pack(">h", len(topic)) + topic.encode() for topic in topics)
    subscription = struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)
    texts = dict.fromkeys(("memberId", "clientId", "clientHost"), "m")
    times = dict.fromkeys(("rebalanceTimeout", "sessionTimeout"), 45_000)
    return {**texts, **times, "groupInstanceId": None, "subscription": subscription, "assignment": b""}


def expiring_groups(now, topics="abcde"):
    """Records of groups and commits, and of which topics the commits expire now, by group, after three days.

    The last topic is one that members consume.
    """
    old, new = now - 5 * DAY, now - DAY
    member = _classic_member(topics[4])
    cases = {
        # the record of the group; commits as (topic, commit time, time of expiry); numbers of the topics that go
        "connect": (("connect", old, [member]), [(0, old, None)], ()),
        "consuming": (("consumer", old, [member]), [(4, old, old), (0, old, None), (1, new, None)], (0,)),
        "left": (("consumer", new, []), [(0, old, None), (2, old, new)], (2,)),
        "left long ago": (("consumer", old, []), [(0, new, None)], (0,)),
        "old record": (("consumer", -1, []), [(0, old, None), (1, new, None)], (0,)),
        "simple": (None, [(0, old, None), (1, new, None), (2, new, new), (3, old, now + DAY)], (0, 2)),
    }
    pairs, gone = [], {}
    for name, (group, commits, which) in cases.items():
        if group is not None:
            names = ("protocolType", "currentStateTimestamp", "members")
            value = {"generation": 1, "protocol": "range", "leader": None, **dict(zip(names, group, strict=True))}
            pairs.append(encode_keyed_record("GroupMetadata", 3, {"group": name}, value))
        for number, time, expiry in commits:
            key = {"group": name, "topic": topics[number], "partition": 0}
            value = {"offset": 5, "metadata": "", "commitTimestamp": time}
            value |= {} if expiry is None else {"expireTimestamp": expiry}
            pairs.append(encode_keyed_record("OffsetCommit", 3 if expiry is None else 1, key, value))
        gone[name] = "".join(topics[number] for number in which)
    return pairs, gone
