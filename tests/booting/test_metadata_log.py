"""The snapshot of a new metadata log, and the settings that a release takes."""

import pytest

from kafkalog.booting.metadata_log import NewCluster, Node, control, control_batch, encode_snapshot, snapshot_name
from kafkalog.booting.staging import highest_producer_id
from kafkalog.booting.topics import TopicPlan, new_id
from kafkalog.format import ControlRecordType
from kafkalog.protocol.encoder import encode_metadata_record
from kafkalog.repair.recovering.targets import TARGETS
from kafkalog.state.cluster_image import _APPLY, TOPIC, ClusterMetadata
from kafkalog.state.cluster_metadata import read_metadata_file
from kafkalog.survey.startup_root import root_problems

VOTER = Node(1, "", "127.0.0.1", 9092, 9093, "abcdefghijklmnopqrstuw").voter()


def test_the_first_batch_is_as_long_as_that_of_kafkas_format_command():
    kinds = ControlRecordType
    records = [
        control(kinds.SNAPSHOT_HEADER, "SnapshotHeaderRecord", lastContainedLogTimestamp=1),
        control(kinds.KRAFT_VERSION, "KRaftVersionRecord", kRaftVersion=1),
        control(kinds.KRAFT_VOTERS, "VotersRecord", voters=[VOTER]),
    ]
    assert len(control_batch(0, records, 1, 0)) == 166


def test_a_snapshot_is_read_as_it_was_written(tmp_path):
    records = [encode_metadata_record("FeatureLevel", 0, name="metadata.version", featureLevel=30)]
    for number in range(3000):
        records.append(encode_metadata_record("Topic", 0, name=f"topic-{number}", topicId=new_id()))
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    path = directory / snapshot_name(len(records))
    path.write_bytes(encode_snapshot(records, 5000, [VOTER]))
    found = ClusterMetadata()
    assert read_metadata_file(found, path) == (ControlRecordType.SNAPSHOT_HEADER, ControlRecordType.SNAPSHOT_FOOTER)
    assert found.findings == []
    assert len(found.topic_ids) == 3000
    assert found.features == {"metadata.version": 30, "kraft.version": 1}
    assert found.voters == [VOTER]
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
    assert root_problems([tmp_path]) == []


def test_the_offset_of_a_snapshot_is_never_0():
    # one at 0 is not replayed, and all topics would be strays
    assert snapshot_name(0) == "00000000000000000001-0000000001.checkpoint"


def test_credentials_quotas_and_acls_are_carried_with_all_of_their_fields(tmp_path):
    old = ClusterMetadata(with_credentials=True)
    scram = {"salt": b"salt", "storedKey": b"key", "serverKey": b"other", "iterations": 4096}
    acl = {"id": new_id(), "resourceType": 2, "resourceName": "orders", "patternType": 3, "principal": "User:alice"}
    entity = [{"entityType": "user", "entityName": None}]
    for value in (
        encode_metadata_record("UserScramCredential", 0, name="alice", mechanism=1, **scram),
        encode_metadata_record("UserScramCredential", 0, name="bob", mechanism=2, **scram),
        encode_metadata_record("RemoveUserScramCredential", 0, name="bob", mechanism=2),
        encode_metadata_record("AccessControlEntry", 0, **acl, host="*", operation=3, permissionType=3),
        encode_metadata_record("ClientQuota", 0, entity=entity, key="producer_byte_rate", value=1024.5, remove=False),
        encode_metadata_record("Config", 0, resourceType=32, resourceName="billing", name="a.b", value="1"),
        encode_metadata_record("Config", 0, resourceType=4, resourceName="9", name="log.cleaner.threads", value="2"),
    ):
        old.apply(value)
    node = Node(1, "", "127.0.0.1", 9092, 9093, new_id())
    notes = []
    plan = TopicPlan("orders", new_id(), 2, "new", "default", settings={"retention.ms": "-1"})
    cluster = NewCluster([node], TARGETS["4.3"], [plan], {}, old, notes.append, next_producer_id=3000)
    path = tmp_path / "new.checkpoint"
    path.write_bytes(encode_snapshot(cluster.records(), 1, [node.voter()]))
    new = ClusterMetadata(with_credentials=True)
    read_metadata_file(new, path)
    assert new.credentials == old.credentials != {}
    assert new.acls == old.acls != {}
    assert new.quotas == old.quotas == {(("user", None),): {"producer_byte_rate": 1024.5}}
    assert new.settings == {(32, "billing"): {"a.b": "1"}, (TOPIC, "orders"): {"retention.ms": "-1"}}
    assert new.next_producer_id == 3000
    assert not any(finding.damage for finding in notes)
    said = [finding.detail for finding in notes]
    lines = ("StandardAuthorizer", "sasl.enabled.mechanisms", "levels of features change", "settings of single brokers")
    assert [sum(line in one for one in said) for line in lines] == [1, 1, 1, 1]
    assert cluster.carried["SCRAM credentials"] == 1


@pytest.mark.parametrize("release", TARGETS)
def test_settings_are_checked_for_the_release(release):
    target = TARGETS[release]
    assert target.setting_problem("message.format.version", "0.9.0") == ""
    assert target.setting_problem("internal.segment.bytes", "1000") == ""
    # the brokers of 4.0 still take less than a MiB
    assert (target.setting_problem("segment.bytes", "1000") == "") == (release in ("3.9", "4.0"))
    assert target.setting_problem("min.cleanable.dirty.ratio", "2")


def test_a_partition_without_snapshots_has_no_producers(tmp_path):
    (tmp_path / "00000000000000000000.snapshot").write_bytes(b"torn")
    assert highest_producer_id(tmp_path) == -1


def test_each_kind_of_the_clusters_metadata_is_kept_or_made_anew():
    # a kind that is added to the state has to be given to a new cluster, too, or named here with a reason
    kept = {
        "Config",
        "Topic",
        "Partition",
        "AccessControlEntry",
        "UserScramCredential",
        "ClientQuota",
        "DelegationToken",
        "FeatureLevel",
        "ProducerIds",
    }
    registered_at_the_start = {"RegisterBroker", "RegisterController", "FenceBroker", "UnfenceBroker"}
    changes = {"PartitionChange", "ClearElr", "BrokerRegistrationChange", "UnregisterBroker", "RemoveTopic"}
    changes |= {f"Remove{name}" for name in ("AccessControlEntry", "UserScramCredential", "DelegationToken")}
    assert kept | registered_at_the_start | changes == {*_APPLY}
