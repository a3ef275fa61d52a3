"""What retention deletes by the settings that are known."""

from dataclasses import replace

from writing import TOPIC_ID

import kafkalog
from kafkalog import LogConfig, Partition
from kafkalog.cli import main
from kafkalog.state.cluster_image import TOPIC, ClusterMetadata
from kafkalog.survey.retention import expiring, first_dirty
from kafkalog.survey.topics import TopicSettings


def test_server_properties_foretell_retention_and_full_indexes(tmp_path, log_dir_copy, capsys):
    config = tmp_path / "server.properties"
    config.write_text(f"log.dirs=/elsewhere,{log_dir_copy}\nlog.retention.hours=1\n")
    partition = log_dir_copy / "p-txn-0"
    newest = int(kafkalog.read_numpy(partition, columns=["timestamp"], include_control=True).timestamp.max())

    def expired(now, *lines):
        config.write_text("\n".join([f"log.dirs={log_dir_copy}", *lines]))
        [row] = kafkalog.preflight(partition, config=config, now=now, clean=True).partitions
        assert row.verdict == "starts"
        return [one.expires for one in row.segments]

    n = len(list(partition.glob("*.log")))
    assert expired(newest + 3_600_001, "log.retention.hours=1") == ["retention.ms"] * n
    assert None in expired(newest + 3_600_000, "log.retention.hours=1")
    assert expired(newest, "log.retention.ms=-1") == [None] * n
    assert expired(newest + 10**9, "log.retention.hours=1", "log.cleanup.policy=compact") == [None] * n
    sizes = [path.stat().st_size for path in sorted(partition.glob("*.log"))]
    keep = sum(sizes[2:])
    by_size = expired(newest, "log.retention.ms=-1", f"log.retention.bytes={keep}")
    assert by_size == ["retention.bytes"] * 2 + [None] * (n - 2)
    assert expired(newest, "log.retention.ms=-1", f"log.retention.bytes={keep + 1}")[1] is None
    # an index that recovery fills beyond its size
    config.write_text("log.index.size.max.bytes=12\nlog.index.interval.bytes=1\n")
    found = kafkalog.preflight(partition, config=config, clean=False)
    assert found.verdict == "does not start"
    assert found.partitions[0].problem.reason is kafkalog.Reason.INDEX_SIZE
    config.write_text(f"log.dirs={log_dir_copy}\nlog.retention.hours=1\n")
    assert main(["preflight", str(partition), "--config", str(config)]) == 0
    assert "deleted by retention.ms after the start" in capsys.readouterr().out


def test_retention_goes_on_while_either_rule_applies():
    config = LogConfig(retention_ms=10, retention_bytes=250)
    sizes = [100, 100, 100, 100]
    # the first by size; then the second, which is old; then the third stays
    assert expiring(sizes, [995, 900, 995, 900], config, 1000) == ["retention.bytes", "retention.ms"]
    assert expiring(sizes, [995] * 4, config, 1000) == ["retention.bytes"]
    assert expiring(sizes, [900, 995, 900, 995], config, 1000) == ["retention.ms"]
    assert expiring(sizes, [900] * 4, replace(config, cleanup_policy=("compact",)), 1000) == []


def test_a_topic_whose_policy_is_lost_counts_as_compacted_if_the_cleaner_was_there(tmp_path):
    (tmp_path / "cleaner-offset-checkpoint").write_text("0\n1\ncleaned 1 0\n")
    partitions = {}
    for name in ("cleaned-0", "other-0", "__consumer_offsets-0"):
        (tmp_path / name).mkdir()
        partitions[name] = Partition(tmp_path / name)

    def policies(cluster):
        return [cluster.config(one).config.cleanup_policy for one in partitions.values()]

    assert policies(TopicSettings(None, None)) == [("compact",), ("delete",), ("compact",)]
    # what the topic's own settings were is not in the broker's
    assert policies(TopicSettings(None, None, {"log.cleanup.policy": "delete"})) == [
        ("compact",),
        ("delete",),
        ("compact",),
    ]
    both = ("compact", "delete")
    found = policies(TopicSettings(None, None, {"log.cleanup.policy": "compact,delete"}))
    assert [tuple(sorted(one)) for one in found] == [both, both, ("compact",)]
    metadata = ClusterMetadata()
    metadata.topic_ids |= {"cleaned": TOPIC_ID, "other": TOPIC_ID}
    metadata.settings[TOPIC, "cleaned"] = {"cleanup.policy": "delete"}
    assert policies(TopicSettings(metadata, None)) == [("delete",), ("delete",), ("compact",)]


def test_a_checkpoint_of_the_cleaner_outside_of_the_log_is_not_trusted(tmp_path):
    with kafkalog.PartitionWriter(tmp_path / "t-0") as writer:
        writer.append({"value": [b"v"] * 10})
    for known, first in ((0, 0), (4, 4), (10, 10), (11, 0), (2**62, 0)):
        (tmp_path / "cleaner-offset-checkpoint").write_text(f"0\n1\nt 0 {known}\n")
        assert first_dirty(Partition(tmp_path / "t-0")) == first
