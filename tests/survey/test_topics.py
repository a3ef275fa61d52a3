"""The settings of topics: which place wins, where they are looked for, and when they are unknown."""

import itertools
import random
import shutil

import pytest
from effort import thinned
from metadata_logs import BROKER, TOPIC, topic_id, write_meta_properties, write_metadata, write_server_properties

import kafkalog
from kafkalog import LogConfig, NotKafkaError, Partition, PartitionWriter
from kafkalog.survey.topics import TopicSettings

NAMES = {
    "retention.ms": ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    "retention.bytes": ("log.retention.bytes",),
    "cleanup.policy": ("log.cleanup.policy",),
    "index.interval.bytes": ("log.index.interval.bytes",),
    "min.compaction.lag.ms": ("log.cleaner.min.compaction.lag.ms",),
    "segment.ms": ("log.roll.ms", "log.roll.hours"),
}
FACTORS = {"log.retention.minutes": 60_000, "log.retention.hours": 3_600_000, "log.roll.hours": 3_600_000}
DEFAULTS = LogConfig().to_properties()


def drawn(rng, name):
    """A valid value of a setting."""
    if name.endswith("cleanup.policy"):
        return rng.choice(["compact", "delete", "compact,delete"])
    return str(rng.randrange(1, 100))


def draw_level(rng, names):
    return {name: drawn(rng, name) for name in names if rng.random() < 0.4}


def expected(levels, name):
    """The value that counts, and its place: level by level, a finer unit before a coarser one."""
    for place, settings in levels.items():
        for candidate in (name,) if place == "topic" else NAMES[name]:
            if candidate in settings:
                factor = FACTORS.get(candidate)
                return str(int(settings[candidate]) * factor) if factor else settings[candidate], place
    return DEFAULTS[name], "default"


def write_topic(root, name, number, times=(10**12,)):
    with PartitionWriter(root / f"{name}-0", topic_id=topic_id(number)) as writer:
        for time in times:
            writer.append({"value": [b"v"], "timestamp": [time]})
            writer.roll()
    return Partition(root / f"{name}-0")


@pytest.mark.parametrize("seed", thinned(range(60), 12))
def test_a_value_is_that_of_topic_broker_cluster_file_and_kafka_in_this_order(tmp_path, seed):
    """Random settings at all four places; the metadata log on this disk, another one, elsewhere, or nowhere."""
    rng = random.Random(seed)
    broker_names = list(itertools.chain.from_iterable(NAMES.values()))
    dynamic = [names[0] for names in NAMES.values()]  # brokers take no other unit at run time
    levels = {
        "topic": draw_level(rng, NAMES),
        "broker 1": draw_level(rng, dynamic),
        "all brokers": draw_level(rng, dynamic),
        "server.properties": draw_level(rng, broker_names),
    }
    other = draw_level(rng, dynamic)
    disks = [tmp_path / "d1", tmp_path / "d2"]
    for number, disk in enumerate(disks):
        write_meta_properties(disk, disk=number)
    partition = write_topic(disks[1], "t", 0)
    settings = {(TOPIC, "t"): levels["topic"], (BROKER, "1"): levels["broker 1"], (BROKER, ""): levels["all brokers"]}
    metadata_at = rng.choice([disks[0], disks[1], tmp_path / "elsewhere", None])
    if metadata_at is not None:
        write_metadata(metadata_at, ["t"], settings | {(BROKER, "2"): other, (TOPIC, "u"): other})
    config = None
    if rng.random() < 0.7:
        # a topic's name in the file of a broker has no effect
        given = levels["server.properties"] | {"retention.ms": "7"}
        config = write_server_properties(tmp_path / "server.properties", disks, **given)
    metadata = metadata_at if metadata_at == tmp_path / "elsewhere" and rng.random() < 0.7 else None
    known = TopicSettings.of([disks[1]], config=config, metadata=metadata).config(partition)
    has_metadata = metadata_at == disks[1] or metadata is not None or (metadata_at == disks[0] and config is not None)
    if not has_metadata:
        levels |= {"topic": {}, "broker 1": {}, "all brokers": {}}
    if config is None:
        levels["server.properties"] = {}
    found = known.config.to_properties()
    for name in NAMES:
        value, place = expected(levels, name)
        assert (found[name], known.origins[name]) == (value, place), name
        lacks_file = config is None and place == "default" and name != "cleanup.policy"
        assert known.is_known(name) == (has_metadata and not lacks_file), name
    assert known.is_tiered is (False if has_metadata else None)


@pytest.fixture
def root(tmp_path):
    """A disk with the topic t, its metadata log, and a clean state."""
    root = tmp_path / "data"
    write_meta_properties(root)
    write_topic(root, "t", 0, [10**12, 10**12 + 1, 10**12 + 2])
    write_metadata(root, ["t"], {(TOPIC, "t"): {"retention.ms": "-1"}})
    return root


def damaged(root, how):
    """Damage the metadata log, or take it away."""
    directory = root / "__cluster_metadata-0"
    [log] = directory.glob("*.log")
    data = bytearray(log.read_bytes())
    if how == "absent":
        shutil.rmtree(directory)
    elif how == "empty":
        log.write_bytes(b"")
    elif how == "flipped":
        data[-2] ^= 1
        log.write_bytes(data)
    elif how == "torn":
        log.write_bytes(data[:-3])
    elif how == "hole":
        [*batches] = kafkalog.batches(log).to_table()["position"].to_pylist()
        log.write_bytes(data[: batches[1]] + data[batches[2] :])
    elif how == "other topic":
        (root / "t-0" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id(5)}")
    elif how == "no such topic":
        shutil.rmtree(directory)
        write_metadata(root, ["u"], {})
    elif how == "zookeeper":
        shutil.rmtree(directory)
        (root / "meta.properties").write_text("version=0\nbroker.id=1\ncluster.id=kafkalogSampleBroker01A\n")


DAMAGE = ("absent", "empty", "flipped", "torn", "hole", "other topic", "no such topic", "zookeeper")


@pytest.mark.parametrize("how", DAMAGE)
def test_nothing_is_deleted_where_settings_are_unknown(root, tmp_path, how):
    config = write_server_properties(tmp_path / "server.properties", [root], log_retention_ms=1)
    options = {"retention": True, "config": config, "dry_run": True}
    [row] = kafkalog.trim(root, **options).partitions
    assert row.count("deleted") == 0  # retention.ms=-1
    damaged(root, how)
    for path in (root, root / "t-0"):
        with pytest.raises(kafkalog.UnsafePathError, match=r"cleanup\.policy .* of t: .*--metadata|kafkalog recover"):
            kafkalog.trim(path, **options)
    with pytest.raises(kafkalog.UnsafePathError, match=r"of t: "):
        kafkalog.trim(root, retention_ms=1, config=config, dry_run=True)
    freed = kafkalog.trim(root, free=1, config=config, dry_run=True)
    assert [row.count("deleted") for row in freed.partitions] == [0]
    assert any("of t: " in finding.detail for finding in freed.findings.rows)
    plans = kafkalog.preflight(root, config=config)
    assert not any(one.expires for row in plans.partitions for one in row.segments)
    [ahead] = kafkalog.report(root, config=config).tables["outlook"].objects()
    assert (ahead["settings"], ahead["policy"], ahead["n_segments_expired"]) == ("unknown", [], 0)
    assert "of t: " in ahead["reasons"][0]
    # who names the topic and the limit, decides
    [row] = kafkalog.trim(root, retention_ms=1, topics="t", config=config, dry_run=True).partitions
    assert row.count("deleted") == 3
    compacted = kafkalog.compact(root, config=config, dry_run=True)
    assert not compacted.partitions
    assert "of t: " in compacted.findings.rows[-1].detail


def test_the_metadata_log_may_be_elsewhere(root, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(root / "__cluster_metadata-0", copy / "__cluster_metadata-0")
    shutil.rmtree(root / "__cluster_metadata-0")
    for place in (copy, copy / "__cluster_metadata-0"):
        known = TopicSettings.of([root], metadata=place).config(Partition(root / "t-0"))
        assert known.config.retention_ms == -1
        assert known.is_known("retention.ms")
    with pytest.raises(NotKafkaError, match="metadata"):
        TopicSettings.of([root], metadata=tmp_path)


def test_an_unknown_broker_has_no_settings_of_its_own(root):
    shutil.rmtree(root / "__cluster_metadata-0")
    write_metadata(root, ["t"], {(BROKER, "1"): {"log.retention.ms": "5"}, (BROKER, ""): {"log.retention.ms": "6"}})
    partition = Partition(root / "t-0")
    known = TopicSettings.of([root]).config(partition)
    assert (known.config.retention_ms, known.origins["retention.ms"]) == (5, "broker 1")
    (root / "meta.properties").unlink()
    known = TopicSettings.of([root]).config(partition)
    assert (known.config.retention_ms, known.is_known("retention.ms")) == (6, False)
    assert known.is_known("cleanup.policy")
    assert "--config" in known.why_unknown("retention.ms")


def test_a_topic_without_its_own_limits_needs_server_properties(root, tmp_path):
    shutil.rmtree(root / "__cluster_metadata-0")
    write_metadata(root, ["t"], {})
    with pytest.raises(kafkalog.UnsafePathError, match=r"retention\.ms and retention\.bytes of t: .*--config"):
        kafkalog.trim(root, retention=True, dry_run=True)
    config = write_server_properties(tmp_path / "server.properties", [root], log_retention_hours=1)
    [row] = kafkalog.trim(root, retention=True, config=config, dry_run=True).partitions
    assert row.count("deleted") == 3
    [row] = kafkalog.trim(root, free=1, dry_run=True).partitions
    assert row.count("deleted") == 1


def test_the_interval_of_indexes_is_that_of_the_broker(root, tmp_path):
    shutil.rmtree(root / "__cluster_metadata-0")
    write_metadata(root, ["t"], {(BROKER, "1"): {"log.index.interval.bytes": "77"}})
    [interval] = kafkalog.reindex(root / "t-0", dry_run=True).intervals.values()
    assert (interval.n_bytes, interval.origin) == (77, "cluster metadata")
