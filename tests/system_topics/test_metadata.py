"""What the metadata log of a cluster adds up to, in log dirs that real brokers wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from golden_sets import LOG_DIR, partitions, unpacked

import kafkalog
from kafkalog.cli import main
from kafkalog.errors import NotKafkaError
from kafkalog.system_topics.metadata import TABLES


def test_topics_and_their_ids_are_those_of_the_partitions_beside_it() -> None:
    found = kafkalog.metadata(unpacked("k44"))
    assert not found.findings
    on_disk = {name: kafkalog.open_partition(path).topic_id for name, path in partitions("k44").items()}
    listed = {f"{row['topic']}-{row['partition']}": row["topic_id"] for row in found.partitions}
    for name, topic_id in on_disk.items():
        if not name.startswith("__cluster_metadata") and not name.endswith(("-delete", "-stray", "-future")):
            assert listed[name] == topic_id, name
    assert [row["level"] for row in found.features if row["name"] == "metadata.version"] == [33]
    assert {(row["id"], row["role"]) for row in found.brokers} == {(1, "broker"), (1, "controller")}
    configs = {(row["resource_name"], row["name"]): row["value"] for row in found.configs}
    assert configs["p-mixcodec", "index.interval.bytes"] == "2048"
    assert [row["topic"] for row in kafkalog.metadata(unpacked("k44"), topics="p-mix*").topics] == ["p-mixcodec"]
    for name in TABLES:
        assert found.to_arrow(name).num_rows == len(getattr(found, name))


@pytest.mark.parametrize("name", ["k30", "k32"])
def test_brokers_of_3_0_and_3_2_say_the_same_of_their_topics(name: str) -> None:
    path = unpacked(name, "metadata")
    found = kafkalog.metadata(path)
    assert not found.findings
    described = json.loads((path / "topics.json").read_text())
    assert {row["topic"]: {key: row[key] for key in described["orders"]} for row in found.topics} == described
    assert [(row["entity"], row["value"]) for row in found.quotas] == [({"user": "alice"}, 1024)]
    (log,) = path.glob("__cluster_metadata-0/*.log")
    lines = "".join(map(bytes.decode, kafkalog.dump(log, topic_decoder="cluster-metadata").chunks())).splitlines()
    payloads = [payload for _, found, payload in (line.partition(" payload: ") for line in lines) if found]
    assert payloads == (path / "payloads.txt").read_text().splitlines()


@pytest.mark.parametrize(("name", "archive"), [("k44", "clean"), ("k30", "metadata"), ("k32", "metadata")])
def test_each_snapshot_is_what_the_log_before_it_adds_up_to(name: str, archive: str, tmp_path: Path) -> None:
    source = unpacked(name, archive) / "__cluster_metadata-0"
    shutil.copytree(source, tmp_path / source.name, ignore=shutil.ignore_patterns("*.checkpoint"))
    offsets = sorted(int(path.name[:20]) for path in source.glob("*.checkpoint"))
    assert len(offsets) > 3
    for offset in offsets[1:]:
        snapshot = kafkalog.metadata(source.parent, end_offset=offset).as_dict()
        replayed = kafkalog.metadata(tmp_path, end_offset=offset).as_dict()
        for one in (snapshot, replayed):
            # the log may end with control records and with no-ops, which change nothing
            del one["path"], one["timestamp"], one["end_offset"]
        assert snapshot == replayed, offset


def test_as_of_a_time_is_as_of_its_offset(tmp_path: Path) -> None:
    path = unpacked("k44")
    created = [one for one in kafkalog.history(path, "__cluster_metadata") if one.type == "Topic"]
    assert len(created) > 20
    log = kafkalog.read_table(path, topics="__cluster_metadata", columns=["timestamp"])
    latest = max(log[0].cast("int64").to_pylist())
    for one in (created[3], created[20]):
        assert one.value is not None
        before = kafkalog.metadata(path, end_timestamp=one.timestamp)
        assert one.value["name"] not in {row["topic"] for row in before.topics}
        assert kafkalog.metadata(path, end_timestamp=f"end-{latest - one.timestamp}ms").topics == before.topics
        after = kafkalog.metadata(path, end_offset=one.offset + 1)
        assert one.value["name"] in {row["topic"] for row in after.topics}


def test_a_damaged_snapshot_makes_way_for_the_one_before_it(tmp_path: Path) -> None:
    shutil.copytree(unpacked("k44") / "__cluster_metadata-0", tmp_path / "__cluster_metadata-0")
    newest = max((tmp_path / "__cluster_metadata-0").glob("*.checkpoint"))
    data = bytearray(newest.read_bytes())
    data[len(data) // 2] ^= 0xFF
    newest.write_bytes(data)
    found = kafkalog.metadata(tmp_path)
    assert [finding.path for finding in found.findings] == [str(newest)]
    assert found.topics == kafkalog.metadata(unpacked("k44")).topics


def test_no_metadata_log_and_a_state_that_is_not_in_the_files_any_more(tmp_path: Path) -> None:
    with pytest.raises(NotKafkaError, match="no __cluster_metadata-0"):
        kafkalog.metadata(LOG_DIR)
    shutil.copytree(unpacked("k44") / "__cluster_metadata-0", tmp_path / "__cluster_metadata-0")
    log = tmp_path / "__cluster_metadata-0" / f"{0:020d}.log"
    log.rename(log.with_name(f"{500:020d}.log"))
    for path in (tmp_path / "__cluster_metadata-0").glob("*.checkpoint"):
        if int(path.name[:20]) < 500:
            path.unlink()
    with pytest.raises(ValueError, match="has no snapshot from before then, and its log begins at offset 500"):
        kafkalog.metadata(tmp_path, end_offset=450)


def test_the_command_says_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(unpacked("k44"))
    found = kafkalog.metadata(path)
    assert main(["metadata", path, "--json"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [{"kind": name, **row} for name in TABLES for row in getattr(found, name)]
    assert main(["metadata", path, "-t", "p-multi"]) == 0
    out = capsys.readouterr().out
    assert f"{path}: up to offset {found.end_offset}, " in out
    assert "\ntopics: 1\n" in out
    assert main(["metadata", path, "-t", "p-mult"]) == 2
    assert "did you mean 'p-multi'?" in capsys.readouterr().err
    assert main(["metadata", path, "--show", "acls"]) == 0
    assert "acls: none" in capsys.readouterr().out
    assert main(["metadata", str(LOG_DIR)]) != 0
    assert main(["metadata", path, "--history", "--end-offset", "2"]) == 0
    assert all(json.loads(line)["offset"] < 2 for line in capsys.readouterr().out.splitlines())
