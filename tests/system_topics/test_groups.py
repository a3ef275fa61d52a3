"""Groups of consumers, share groups included, in the log dirs that real brokers wrote."""

import json
import pickle
import random
import struct
from dataclasses import asdict

import pytest
from builder import batch_v2, control_batch, record_v2
from coordinator_records import DAY, empty, expiring_groups
from golden_sets import unpacked

import kafkalog
from kafkalog import PartitionWriter
from kafkalog.cli import main
from kafkalog.protocol.definitions import messages
from kafkalog.protocol.encoder import encode_keyed_record
from kafkalog.system_topics.share_state import _combined
from kafkalog.types import Delivery


@pytest.fixture(scope="module")
def groups():
    return kafkalog.groups(unpacked("k44"))


def test_offsets_and_lags_of_every_type_of_group(groups):
    assert not groups.findings
    assert [(group.name, group.type, group.state, group.lag) for group in groups] == [
        ("p-g-848", "consumer", "Empty", 24),
        ("p-g-848b", "consumer", "Empty", 500),
        ("p-g-classic", "classic", "Empty", 24),
        ("p-g-classic2", "classic", "Empty", 150),
        ("p-g-otx", "classic", "Empty", 288),
        ("p-g-share", "share", "Empty", 91),
    ]
    table = groups.to_arrow().to_pylist()
    (otx,) = [row for row in table if row["group"] == "p-g-otx"]
    assert (otx["offset"], otx["metadata"]) == (12, "otx2"), "committed in transactions, one of them aborted"
    assert [row["offset"] for row in table if row["group"] == "p-g-share"] == [24, 0, 1]


def test_members_and_assignments_as_of_a_time():
    records = kafkalog.read_table(unpacked("k44"), topics="__consumer_offsets", columns=["timestamp", "key"])
    times = {row["timestamp"] for row in records.to_pylist() if b"p-g-classic" in row["key"]}
    seen = {}
    for time in sorted(times):
        for group in kafkalog.groups(unpacked("k44"), groups="p-g-classic", end_timestamp=time):
            for member in group.members:
                seen[group.epoch] = (group.state, member.client_id, member.subscribed, member.assigned)
    assert len(seen) == 1
    ((state, client, subscribed, assigned),) = seen.values()
    assert (state, client, subscribed) == ("Stable", "consumer-p-g-classic-1", ["p-multi"])
    assert set(assigned) == {"p-multi"}


def test_old_brokers_groups():
    groups = kafkalog.groups(unpacked("k28"))
    assert groups
    assert not groups.findings
    assert all(one.offset >= 0 for group in groups for one in group.offsets)


def test_records_that_are_none_are_findings(tmp_path):
    with PartitionWriter(tmp_path / "__consumer_offsets-0") as writer:
        keys = [b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\x63", b"\0\2\0\1h", b"\0\2\0\1i"]
        values = [b"\0\0" + bytes(8) + b"\0\0" + bytes(8), b"\0\0", b"\0\x09", b"\0"]
        writer.append({"key": keys, "value": values})
    groups = kafkalog.groups(tmp_path)
    assert [(group.name, group.offsets[0].offset) for group in groups] == [("g", 0)]
    assert [finding.reason for finding in groups.findings] == ["internal_record"] * 3
    assert [finding.base_offset for finding in groups.findings] == [1, 2, 3]
    assert not any(finding.damage for finding in groups.findings)


def test_the_command_says_the_same(capsys, groups):
    path = str(unpacked("k44"))
    assert main(["groups", path, "--json"]) == 0
    assert [json.loads(line) for line in capsys.readouterr().out.splitlines()] == [one.as_dict() for one in groups]
    assert main(["groups", path, "-g", "p-g-848", "--members"]) == 0
    first, _, row, *_ = capsys.readouterr().out.splitlines()
    assert first == "p-g-848: consumer, Empty, epoch 3, 0 members, lag 24"
    assert row.split()[:5] == ["p-multi", "0", "119", "125", "6"]
    assert main(["groups", path, "-g", "p-g-84"]) == 2
    assert "no group 'p-g-84' here; did you mean 'p-g-848'?" in capsys.readouterr().err
    assert main(["groups", path, "-g", "p-g-84", "--end-offset", "0"]) == 0, "it may come later"
    assert "no groups" in capsys.readouterr().err


def record(kind, key, **given):
    """Key and value in the newest version, with these fields and defaults for the others."""
    return encode_keyed_record(kind, messages()[f"{kind}Value"].versions.last, key, given)


def states(path, *records):
    with PartitionWriter(path / "__consumer_offsets-0") as writer:
        writer.append({"key": [key for key, _ in records], "value": [value for _, value in records]})
    return {group.name: (group.state, group.protocol) for group in kafkalog.groups(path)}


@pytest.mark.parametrize(("kind", "stable"), [("Consumer", 0), ("Streams", 1)])
def test_states_of_members_and_groups(tmp_path, kind, stable):
    def member(number, epoch, state, assignor):
        key = {"groupId": "g", "memberId": number}
        name = {} if kind == "Streams" else {"serverAssignor": assignor}
        return [
            record(f"{kind}GroupMemberMetadata", key, **name),
            record(f"{kind}GroupCurrentMemberAssignment", key, memberEpoch=epoch, state=state),
        ]

    group = [
        record(f"{kind}GroupMetadata", {"groupId": "g"}, epoch=5, **({"validatedTopologyEpoch": 2} if stable else {})),
        record(f"{kind}GroupTargetAssignmentMetadata", {"groupId": "g"}, assignmentEpoch=5),
    ]
    topology = [record("StreamsGroupTopology", {"groupId": "g"}, epoch=2)] if kind == "Streams" else []
    both = member("a", 5, stable, "range") + member("b", 5, stable, None)
    assigned = None if kind == "Streams" else "range"
    assert states(tmp_path, *group, *topology) == {"g": ("Empty", None)}
    assert states(tmp_path, *both) == {"g": ("Stable", assigned)}
    assert states(tmp_path, *member("b", 4, stable, None)) == {"g": ("Reconciling", assigned)}, "an epoch behind"
    assert states(tmp_path, *member("b", 5, stable + 1, None)) == {"g": ("Reconciling", assigned)}
    later = record(
        f"{kind}GroupMetadata", {"groupId": "g"}, epoch=6, **({"validatedTopologyEpoch": 2} if stable else {})
    )
    assert states(tmp_path, *both, later) == {"g": ("Assigning", assigned)}
    if kind == "Streams":
        newer = record("StreamsGroupTopology", {"groupId": "g"}, epoch=3)
        assert states(tmp_path, newer) == {"g": ("NotReady", None)}


def test_a_group_whose_only_offsets_are_in_an_open_transaction(tmp_path, capsys):
    key, value = record("OffsetCommit", {"group": "g", "topic": "t", "partition": 0}, offset=7)
    directory = tmp_path / "__consumer_offsets-0"
    directory.mkdir()
    opened = batch_v2([record_v2(0, 0, key=key, value=value)], transactional=True, producer_id=4, producer_epoch=0)
    (directory / f"{0:020d}.log").write_bytes(opened)
    (group,) = kafkalog.groups(tmp_path)
    assert (group.name, group.offsets) == ("g", [])
    assert [(one.topic, one.partition, one.offset) for one in group.pending] == [("t", 0, 7)]
    assert main(["groups", str(tmp_path)]) == 0
    assert "t-0: offset 7 was committed in an open transaction" in capsys.readouterr().out


def test_rows_of_offsets_are_made_when_they_are_asked_for_and_are_those_of_the_table(tmp_path):
    rng = random.Random(19)
    with PartitionWriter(tmp_path / "t-1") as log:
        log.append({"value": [b"v"] * 40})
    expected = {}
    keys, values = [], []
    for offset in range(400):
        name, topic, number = rng.choice(["b", "a", "\u00e9", "c" * 300]), rng.choice("tu"), rng.randrange(3)
        metadata = rng.choice(["", "m", "\u00fc"])
        key, _ = record("OffsetCommit", {"group": name, "topic": topic, "partition": number}, offset=offset)
        value = struct.pack(">hqih", 3, offset, 1, len(metadata.encode())) + metadata.encode() + bytes(8)
        keys.append(key)
        values.append(value)
        lag = 40 - offset if (topic, number) == ("t", 1) else None
        expected[name, topic, number] = offset, metadata, lag
    # its text is long, so it is decoded alone
    odd = record("OffsetCommit", {"group": "a", "topic": "o" * 200, "partition": 0}, offset=9, metadata="x" * 200)
    with PartitionWriter(tmp_path / "__consumer_offsets-0") as writer:
        writer.append({"key": [*keys, odd[0]], "value": [*values, odd[1]]})

    def told(rows):
        names = ("group", "topic", "partition"), ("offset", "metadata", "lag")
        return {tuple(row[key] for key in names[0]): tuple(row[key] for key in names[1]) for row in rows}

    found, same = kafkalog.groups(tmp_path), kafkalog.groups(tmp_path)
    expected["a", "o" * 200, 0] = 9, "x" * 200, None
    assert told(found.to_arrow().to_pylist()) == expected
    lags = [group.lag for group in found]
    assert found[1].offsets[0].partition in (0, 1, 2)
    found.append(found.pop(0))
    assert told(found.to_arrow().to_pylist()) == expected, "some rows were made, in another order of groups"
    del found[1].offsets[0]
    assert found.to_arrow().num_rows == len(expected) - 1, "what is changed counts"
    assert told([{"group": one.name, **asdict(row)} for one in same for row in one.offsets]) == expected
    again = kafkalog.groups(tmp_path)
    assert pickle.loads(pickle.dumps([*again])) == [*same]
    assert again == same
    assert [group.lag for group in same] == lags
    with pytest.raises(AttributeError):
        same[0].offset  # noqa: B018


@pytest.mark.parametrize("topic", ["orders", "o" * 200], ids=["in columns", "alone"])
@pytest.mark.parametrize(
    ("committed", "lag", "out_of_range"), [(25, -15, "past_end"), (10, 0, None), (4, 6, None), (3, 7, "before_start")]
)
def test_a_commit_outside_of_the_log(tmp_path, capsys, committed, lag, out_of_range, topic):
    with PartitionWriter(tmp_path / f"{topic}-0") as log:
        log.append({"value": [b"v"] * 10})
    (tmp_path / "log-start-offset-checkpoint").write_text(f"0\n1\n{topic} 0 4\n")
    key, value = record(
        "OffsetCommit", {"group": "g", "topic": topic, "partition": 0}, offset=committed, metadata="x" * len(topic)
    )
    with PartitionWriter(tmp_path / "__consumer_offsets-0") as writer:
        writer.append({"key": [key], "value": [value]})
    found = kafkalog.groups(tmp_path)
    (row,) = found.to_arrow().to_pylist()
    (one,) = found[0].offsets
    assert (found[0].lag, one.lag, one.out_of_range) == (lag, lag, out_of_range)
    assert (row["lag"], row["out_of_range"]) == (lag, out_of_range)
    assert [*row] == ["group", "type", *asdict(one)]
    assert main(["groups", str(tmp_path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["offsets"][0]["out_of_range"] == out_of_range
    assert main(["groups", str(tmp_path)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.split()[4] == str(lag)
    assert ("of the log" in last) == (out_of_range is not None)


def commit(version, partition, offset, topic="orders"):
    """A commit under a version of the key; a tombstone without an offset."""
    name = topic.encode()
    key = struct.pack(">hh1sh", version, 1, b"g", len(name)) + name + struct.pack(">i", partition)
    return key, None if offset is None else struct.pack(">hqhq", 0, offset, 0, 1000)


@pytest.mark.parametrize("topic", ["o", "orders"], ids=["a short key", "a long key"])
def test_commits_under_the_old_and_the_new_key_replace_each_other(tmp_path, topic):
    written = [(0, 0, 5), (1, 0, 9), (1, 1, 7), (0, 1, 8), (0, 2, 7), (1, 2, None), (1, 3, 7), (0, 3, None), (0, 4, 3)]
    for name, sizes in {"a part": [len(written)], "parts": [1] * len(written)}.items():
        left = [commit(*one, topic) for one in written]
        (tmp_path / name).mkdir()
        with PartitionWriter(tmp_path / name / "__consumer_offsets-0") as writer:
            for size in sizes:
                keys, values = zip(*left[:size], strict=True)
                writer.append({"key": [*keys], "value": [*values]})
                del left[:size]
        (group,) = kafkalog.groups(tmp_path / name)
        assert [(one.topic, one.partition, one.offset) for one in group.offsets] == [
            (topic, 0, 9),
            (topic, 1, 8),
            (topic, 4, 3),
        ]


def test_a_commit_under_the_old_key_in_a_transaction_counts_once_it_ends(tmp_path):
    for is_commit, expected in ((True, 9), (False, 5)):
        directory = tmp_path / str(is_commit) / "__consumer_offsets-0"
        directory.mkdir(parents=True)
        (old, new) = commit(0, 0, 9), commit(1, 0, 5)
        first = batch_v2([record_v2(0, 0, key=new[0], value=new[1])])
        opened = batch_v2(
            [record_v2(0, 0, key=old[0], value=old[1])],
            base_offset=1,
            transactional=True,
            producer_id=4,
            producer_epoch=0,
        )
        marker = control_batch(int(is_commit), base_offset=2, producer_id=4, producer_epoch=0)
        (directory / f"{0:020d}.log").write_bytes(first + opened + marker)
        (group,) = kafkalog.groups(tmp_path / str(is_commit))
        assert [one.offset for one in group.offsets] == [expected]


def test_groups_up_to_an_offset_in_the_middle_of_a_batch(tmp_path):
    parts = [record("OffsetCommit", {"group": "g", "topic": "t", "partition": 0}, offset=n) for n in range(10)]
    with PartitionWriter(tmp_path / "__consumer_offsets-0", max_records_per_batch=5) as writer:
        writer.append({"key": [key for key, _ in parts], "value": [value for _, value in parts]})
    for end in range(1, 11):
        (group,) = kafkalog.groups(tmp_path, end_offset=end)
        assert [one.offset for one in group.offsets] == [end - 1]
    assert kafkalog.groups(tmp_path, end_offset=0) == []


TOPIC_ID = "RxLbS2aoRLmJ9xc1exUYuQ"


def record_share_state(kind, start, *batches):
    names = ("firstOffset", "lastOffset", "deliveryState", "deliveryCount")
    value = {
        "startOffset": start,
        "leaderEpoch": -1,
        "stateBatches": [dict(zip(names, one, strict=True)) for one in batches],
    }
    return encode_keyed_record(kind, 0, {"groupId": "g", "topicId": TOPIC_ID, "partition": 3}, value)


def state(tmp_path, *records):
    tmp_path.mkdir(exist_ok=True)
    with PartitionWriter(tmp_path / "__share_group_state-0") as writer:
        for key, value in records:
            writer.append({"key": [key], "value": [value]})
    found = kafkalog.groups(tmp_path)
    assert not found.findings
    return found[0].offsets if found else []


def test_updates_add_to_the_snapshot_before_them(tmp_path):
    (one,) = state(
        tmp_path,
        record_share_state("ShareSnapshot", 5, (5, 9, 2, 1)),
        record_share_state("ShareUpdate", 10, (10, 14, 0, 1)),
        record_share_state("ShareUpdate", -1, (15, 19, 2, 2), (20, 20, 4, 5), (21, 21, 3, 5)),
    )
    assert (one.topic, one.partition, one.offset) == (TOPIC_ID, 3, 10), "the last update leaves the start as it was"
    assert one.deliveries == [
        Delivery(10, 14, "available", 1),
        Delivery(15, 19, "acknowledged", 2),
        Delivery(20, 20, "archived", 5),
        Delivery(21, 21, "archiving", 5),
    ]


def test_a_snapshot_replaces_and_a_tombstone_removes(tmp_path):
    first = record_share_state("ShareSnapshot", 5, (5, 9, 2, 1))
    (one,) = state(tmp_path / "a", first, record_share_state("ShareSnapshot", 7, (8, 8, 0, 1)))
    assert (one.offset, one.deliveries) == (7, [Delivery(8, 8, "available", 1)])
    assert state(tmp_path / "b", first, (first[0], None)) == []


def test_overlaps_against_a_map_of_each_offset():
    rng = random.Random(18)
    ranks = ["available", "acquired", "acknowledged", "archiving", "archived"]
    for _ in range(300):
        start = rng.randint(-1, 15)
        given = []
        for _ in range(rng.randint(0, 6)):
            first = rng.randint(0, 25)
            given.append(Delivery(first, first + rng.randint(0, 8), rng.choice(ranks), rng.randint(1, 3)))
        expected = {}
        for one in given:
            for offset in range(max(one.first_offset, start), one.last_offset + 1):
                rank = one.delivery_count, ranks.index(one.state)
                expected[offset] = max(expected.get(offset, (0, 0)), rank)
        found = _combined(given, start)
        told = {
            offset: (one.delivery_count, ranks.index(one.state))
            for one in found
            for offset in range(one.first_offset, one.last_offset + 1)
        }
        assert told == expected
        assert sum(one.last_offset - one.first_offset + 1 for one in found) == len(expected), "without overlaps"


@pytest.mark.parametrize(("start", "n_done", "lag"), [(7, 20, 3), (0, 30, 0), (0, 0, 30), (7, -1, None), (-1, 0, None)])
@pytest.mark.parametrize("is_named", [True, False])
def test_the_lag_of_a_share_group_leaves_out_what_is_done(tmp_path, start, n_done, lag, is_named):
    kafkalog.write_table({"value": [b""] * 30}, tmp_path, topic="sc", topic_id=TOPIC_ID if is_named else None)
    fields = {"snapshotEpoch": 0, "stateEpoch": 0, "leaderEpoch": 0, "startOffset": start, "stateBatches": []}
    fields |= {"createTimestamp": 0, "writeTimestamp": 0, "deliveryCompleteCount": n_done}
    key = {"groupId": "g", "topicId": TOPIC_ID, "partition": 0}
    record = encode_keyed_record("ShareSnapshot", 0, key, fields)
    with PartitionWriter(tmp_path / "__share_group_state-0") as writer:
        writer.append({"key": [record[0]], "value": [record[1]]})
    (group,) = kafkalog.groups(tmp_path)
    assert group.offsets[0].topic == ("sc" if is_named else TOPIC_ID)
    assert group.lag == (lag if is_named else None)
    (row,) = kafkalog.groups(tmp_path).to_arrow().to_pylist()
    assert (row["lag"], row["n_done"]) == (group.lag, group.offsets[0].n_done)


def test_commits_with_a_time_of_expiry_show_it(tmp_path):
    value = {"offset": 5, "metadata": "", "commitTimestamp": 1000, "expireTimestamp": 2000}
    pairs = [
        encode_keyed_record("OffsetCommit", 1, {"group": name, "topic": "t", "partition": 0}, {**value, **more})
        for name, more in (("a", {}), ("b", {"expireTimestamp": -1}))
    ]
    with PartitionWriter(tmp_path / "__consumer_offsets-0") as writer:
        writer.append({"key": [key for key, _ in pairs], "value": [one for _, one in pairs]})
    groups = kafkalog.groups(tmp_path)
    assert [row["expire_timestamp"] for row in groups.to_arrow().to_pylist()][1] is None
    assert [group.offsets[0].expire_timestamp for group in groups] == [2000, None]


def test_the_history_of_some_groups(tmp_path, capsys):
    main(["groups", str(unpacked("k44")), "--history"])
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    main(["groups", str(unpacked("k44")), "--history", "-g", "p-g-cl*"])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    names = [(row["key"] or {}).get("group", (row["key"] or {}).get("groupId", "")) for row in rows]
    assert found == [row for row, name in zip(rows, names, strict=True) if name.startswith("p-g-cl")]
    assert 0 < len(found) < len(rows)


def test_members_of_streams_groups_show_topics_and_partitions(tmp_path):
    def value(kind, **fields):
        return empty(messages()[f"StreamsGroup{kind}Value"].fields, 0) | fields

    parts = {"partitions": 2, "replicationFactor": 1, "topicConfigs": []}
    sources = {"sourceTopics": ["in", "side"], "repartitionSourceTopics": [{"name": "again", **parts}]}
    names = ("sourceTopicRegex", "stateChangelogTopics", "repartitionSinkTopics", "copartitionGroups")
    rest = {name: [] for name in names}
    tasks = [{"subtopologyId": "0", "partitions": [1, 0]}, {"subtopologyId": "9", "partitions": [3]}]
    pairs = [
        ("Topology", {}, value("Topology", epoch=1, subtopologies=[{"subtopologyId": "0", **sources, **rest}])),
        (
            "CurrentMemberAssignment",
            {"memberId": "m"},
            value("CurrentMemberAssignment", memberEpoch=1, activeTasks=tasks),
        ),
    ]
    records = [encode_keyed_record(f"StreamsGroup{kind}", 0, {"groupId": "s", **key}, one) for kind, key, one in pairs]
    with PartitionWriter(tmp_path / "__consumer_offsets-0") as writer:
        writer.append({"key": [key for key, _ in records], "value": [one for _, one in records]})
    (group,) = kafkalog.groups(tmp_path)
    assert group.members[0].tasks == {"0": [1, 0], "9": [3]}
    assert group.members[0].assigned == {"in": [0, 1], "side": [0, 1], "again": [0, 1], "9": [3]}


def test_which_commits_a_broker_deletes_at_its_next_look(tmp_path):
    """After a time of their own, or the retention: of groups without members since these left, if that is known."""
    now = 5 * DAY
    pairs, gone = expiring_groups(now)
    with PartitionWriter(tmp_path / "__consumer_offsets-0") as writer:
        writer.append({"key": [key for key, _ in pairs], "value": [value for _, value in pairs]})
    for is_read in (False, True):  # the offsets of a group are made when they are asked for
        found = kafkalog.groups(tmp_path)
        assert {group.name for group in found} == gone.keys()
        for group in found:
            own = {one.topic for one in group.offsets if one.expire_timestamp is not None} if is_read else set("abc")
            expired = [one.topic for one in group.expired(now, 3 * DAY)]
            assert "".join(expired) == gone[group.name], group.name
            if is_read:
                assert {one.topic for one in group.expired(now)} == {*expired} & own, group.name
    (tmp_path / "server.properties").write_text("offsets.retention.minutes=4320\n")
    [plan] = kafkalog.preflight(tmp_path, config=tmp_path / "server.properties", now=now, clean=True).partitions
    assert plan.expiring_commits == {name: len(topics) for name, topics in gone.items() if topics}
    assert any("committed offsets of 5 groups" in line for line in plan.lines())
    [plan] = kafkalog.preflight(tmp_path, now=now, clean=True).partitions
    assert plan.expiring_commits == {"left": 1, "simple": 1}
