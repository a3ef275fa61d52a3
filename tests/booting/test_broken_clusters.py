"""Three brokers' disks with random damage become a cluster that serves what is intact on any of them."""

import builder
import pytest
from broken_clusters import COMPACTED, TOPICS, Cluster, said
from effort import seeds, trials
from merges import batch, replica
from metadata_logs import topic_id
from salvages import output_of

import kafkalog
from kafkalog.errors import CorruptionError, NotKafkaError


def served(data):
    """The batches of each topic."""
    return {topic: output_of(data / f"{topic}-0") for topic in TOPICS if (data / f"{topic}-0").is_dir()}


def check(cluster, report, data):
    """What is served and said is the truth."""
    batches, is_lost = served(data), False
    for topic in TOPICS:
        histories = cluster.truth(topic)
        if histories is None:
            is_lost = True
            continue
        wanted = [[one.data for one in history] for history in histories]
        if any("not merged" in one.detail for one in report.findings.rows if f"/{topic}-0" in (one.path or "")):
            # gaps of a compacted copy may be its cleaner's: what others have there is named, and not taken
            assert topic in COMPACTED
            assert {*batches[topic]} <= {*wanted[0]}
            continue
        assert batches.get(topic, []) in wanted, (topic, "served")
        history = histories[wanted.index(batches.get(topic, []))]
        kept = {offset for one in history for offset in range(one.first, one.last + 1)}
        branch = next(some for some in cluster.branches[topic] if {*history} <= {*some})
        known = {offset for one in branch for offset in range(one.first, one.last + 1)}
        # what a log has lost at its start looks like retention, and at its end as if it had not been written
        begin = min(kept | {int(path.stem) for disk in cluster.disks for path in disk.glob(f"{topic}-0/*.log")})
        inner = {offset for offset in known - kept if kept and begin <= offset < max(kept)}
        lost, _ = said(report, f"{topic}-0")
        assert not lost & kept, (topic, "said to be lost, and served")
        assert inner <= lost, (topic, "lost, and not said", sorted(inner - lost))
        is_lost |= any(one.damage for one in report.findings.rows if f"/{topic}-0" in (one.path or ""))
    if is_lost:
        assert not report.ok
    elif not any(any(said(report, f"{topic}-0")) for topic in TOPICS):
        assert [one.detail for one in report.findings.rows if one.damage] == []


@pytest.mark.parametrize("seed", seeds(trials(1, 15)))
def test_what_is_intact_on_any_disk_is_served_and_the_rest_is_named(tmp_path, seed):
    cluster = Cluster(tmp_path, seed)
    cluster.damage(cluster.rng.choice((1, 2, 3, 5, 8)))
    report = kafkalog.boot(cluster.disks, tmp_path / "out")
    check(cluster, report, tmp_path / "out" / "data")
    first = served(tmp_path / "out" / "data")
    sources = list(cluster.disks)
    cluster.rng.shuffle(sources)
    if seed % 3 == 0:
        nodes = kafkalog.boot(sources, tmp_path / "nodes", nodes=3)
        assert nodes.ok == report.ok
        # of a partition that no disk has, an empty one is made
        for topic, batches in ((topic, some) for topic, some in first.items() if some):
            (leader,) = [one for one in nodes.leaders if one.topic == topic]
            assert output_of(tmp_path / "nodes" / f"node-{leader.node_id}" / "data" / f"{topic}-0") == batches
        return
    if seed % 3 == 1:
        for number, disk in enumerate(sources):
            if cluster.rng.random() < 0.5 and any(disk.glob("*-0")):
                kafkalog.salvage(disk, tmp_path / f"saved-{number}")
                sources[number] = tmp_path / f"saved-{number}"
    again = kafkalog.boot(sources, tmp_path / "again")
    assert served(tmp_path / "again" / "data") == first
    assert again.ok == report.ok


def test_damage_that_a_broker_does_not_notice_is_named_and_not_served(tmp_path):
    disk = tmp_path / "disk"
    partition = replica(disk, [(1, n) for n in range(12)], bases=(0, 6))
    (log, _) = sorted(partition.glob("*.log"))
    data = bytearray(log.read_bytes())
    start, _ = builder.batch_positions(bytes(data))[2]
    data[start + 16] = 3
    log.write_bytes(data)
    report = kafkalog.boot(disk, tmp_path / "out")
    assert [(one.base_offset, one.last_offset) for one in report.findings.rows if one.damage] == [(2, 2)]
    assert output_of(tmp_path / "out" / "data" / "t-0") == [batch(n, (1, n)) for n in range(12) if n != 2]
    with pytest.raises(CorruptionError, match="magic"):
        kafkalog.boot(disk, tmp_path / "strict", strict=True)


def test_a_file_of_a_topic_id_that_cannot_be_read_is_named(tmp_path):
    for number in (1, 2):
        partition = replica(tmp_path / f"disk-{number}", [(1, n) for n in range(6)])
        (partition / "partition.metadata").write_text("" if number == 1 else f"version: 0\ntopic_id: {topic_id(4)}")
    report = kafkalog.boot([tmp_path / "disk-1", tmp_path / "disk-2"], tmp_path / "out")
    assert report.ok
    assert [one.topic_id for one in report.topics if one.name == "t"] == [topic_id(4)]
    assert any("disk-1/t-0/partition.metadata" in (one.path or "") for one in report.findings.rows)


def test_zeros_at_the_end_of_a_copy_do_not_depend_on_the_order_of_disks(tmp_path):
    disks = [tmp_path / f"disk-{number}" for number in (1, 2)]
    for disk in disks:
        partition = replica(disk, [(1, n) for n in range(6)])
    with (partition / f"{0:020}.log").open("ab") as file:
        file.write(bytes(4096))
    for number, sources in enumerate((disks, disks[::-1])):
        assert kafkalog.boot(sources, tmp_path / f"out-{number}").ok


def test_an_empty_disk_that_is_called_like_a_partition_is_no_topic(tmp_path):
    disks = [tmp_path / f"disk-{number}" for number in (1, 2, 3)]
    replica(disks[0], [(1, n) for n in range(6)])
    disks[1].mkdir()
    (disks[2] / "lost+found").mkdir(parents=True)
    report = kafkalog.boot(disks, tmp_path / "out")
    assert report.ok
    assert [one.name for one in report.topics if not one.is_internal] == ["t"]
    empty = [one.path for one in report.findings.rows if one.detail.startswith("no Kafka files here")]
    assert empty == [str(disk) for disk in disks[1:]]
    for disk in disks[1:]:
        with pytest.raises(NotKafkaError):
            kafkalog.boot(disk, dry_run=True)


def test_a_high_watermark_that_cannot_be_read_is_no_loss(tmp_path):
    disk = tmp_path / "disk"
    replica(disk, [(1, n) for n in range(6)])
    (disk / "replication-offset-checkpoint").write_bytes(bytes(30))
    report = kafkalog.boot(disk, tmp_path / "out")
    assert report.ok
    (found,) = [one for one in report.findings.rows if (one.path or "").endswith("replication-offset-checkpoint")]
    assert not found.damage
