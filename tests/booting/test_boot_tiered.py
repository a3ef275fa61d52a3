"""Boot of tiered topics: with the remote storage, the new cluster has the whole log; without it, that is a loss."""

import shutil
from pathlib import Path

import pytest
from conftest import GOLDEN
from metadata_logs import TOPIC, write_metadata
from tiered_sets import TieredSet

import kafkalog
from kafkalog.cli.app import main
from kafkalog.storage import room

LOG_DIR = GOLDEN / "log_dir"
TOPICS = ("p-txn", "p-multi")
MOVED = {"p-txn-0": 2, "p-multi-0": 1}


@pytest.fixture
def tiered(tmp_path):
    """A log dir of two topics of which segments are in remote storage, with a metadata log."""
    data = tmp_path / "data"
    for key in MOVED:
        shutil.copytree(LOG_DIR / key, data / key)
    found = TieredSet(data, tmp_path / "remote")
    for key, n_local in MOVED.items():
        found.move(key, n_local)
    found.finish()
    ids = {topic: found.topic_id(f"{topic}-0") for topic in TOPICS}
    ids["__remote_log_metadata"] = kafkalog.open(data)["__remote_log_metadata-0"].topic_id or "AAAAAAAAAAAAAAAAAAAACQ"
    write_metadata(data, ids, {(TOPIC, topic): {"remote.storage.enable": "true"} for topic in TOPICS}, epoch=99)
    return found


def content(root, topic):
    """The records of the topic's first partition."""
    columns = ["partition", "offset", "timestamp", "key", "value", "leader_epoch", "producer_id"]
    return kafkalog.read_table(root / f"{topic}-0", columns=columns, include_control=True)


def boot(tiered, out, *options):
    return main(["boot", str(tiered.log_dir), *options, "-o", str(out), "-q", "--tiered", str(tiered.remote)])


def test_the_remote_part_is_restored_and_the_topic_is_local_then(tiered, tmp_path, capsys):
    assert main(["boot", str(tiered.log_dir), "-o", str(tmp_path / "local"), "-q"]) == 1
    assert "are only in the remote storage. Name the root of that storage with --tiered URL" in capsys.readouterr().out
    assert boot(tiered, tmp_path / "out") == 0
    text = capsys.readouterr().out
    assert "p-txn was tiered" in text
    for topic in TOPICS:
        assert content(tmp_path / "out" / "data", topic).equals(content(LOG_DIR, topic))
    assert kafkalog.preflight(tmp_path / "out" / "data").verdict == "starts"
    assert [path.name for path in tmp_path.iterdir() if "kafkalog" in path.name] == []
    place = kafkalog.tiered_location(tiered.log_dir, tiered.remote)
    report = kafkalog.boot(place, tmp_path / "dry", dry_run=True)
    assert {one.source for one in report.partitions} == {
        str(tiered.log_dir / key) for key in (*MOVED, "__remote_log_metadata-0")
    }
    assert "remote.storage.enable" not in {name for topic in report.topics for name in topic.settings}
    assert report.ok
    assert "kafkalog-staged" not in report.text()


def test_what_is_restored_has_to_fit_twice(tiered, tmp_path, monkeypatch):
    place = kafkalog.tiered_location(tiered.log_dir, tiered.remote)
    logs = [LOG_DIR / key / path.name for key in MOVED for path in (LOG_DIR / key).glob("*.log")]
    n_bytes = sum(path.stat().st_size for path in logs)
    monkeypatch.setattr(room, "free_bytes", lambda output: 2 * n_bytes - 1)
    monkeypatch.setattr(room, "_mount", lambda path: ("ext4", "/dev/sda1"))
    before = sorted(tmp_path.iterdir())
    with pytest.raises(kafkalog.WriteError, match=r"this needs .* and the disk has .* free"):
        kafkalog.boot(place, tmp_path / "out")
    assert sorted(tmp_path.iterdir()) == before
    kafkalog.boot(place, tmp_path / "out", dry_run=True)  # once is enough


def test_what_remote_storage_lacks_is_a_loss(tiered, tmp_path, capsys):
    _, main_path = tiered.copies["p-txn-0"][0]
    Path(f"{main_path}.log").unlink()
    assert boot(tiered, tmp_path / "out") == 1
    text = capsys.readouterr().out
    assert "remote storage lacks objects of the copy" in text
    assert content(tmp_path / "out" / "data", "p-multi").equals(content(LOG_DIR, "p-multi"))
    lost = content(LOG_DIR, "p-txn").num_rows - content(tmp_path / "out" / "data", "p-txn").num_rows
    assert lost > 0


def test_verify_of_remote_storage_leads_to_a_boot_or_to_a_restoration(tiered, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    log_dir, remote = str(tiered.log_dir), str(tiered.remote)
    assert kafkalog.verify_tiered(remote, log_dir).next == []
    _, main_path = tiered.copies["p-txn-0"][1]
    Path(f"{main_path}.log").unlink()
    assert main(["tiered", "verify", remote, "--log-dir", log_dir]) == 1
    line = f"kafkalog boot {log_dir} --tiered {remote} -o {log_dir}-booted"
    assert f"next: {line} (" in capsys.readouterr().err
    assert [str(step) for step in kafkalog.verify_tiered(remote, log_dir).next] == [line]
    assert main([*line.split()[1:], "-q"]) == 1
    assert content(Path(f"{log_dir}-booted") / "data", "p-multi").equals(content(LOG_DIR, "p-multi"))
    (step,) = kafkalog.verify_tiered(remote).next
    assert [*step.command] == ["kafkalog", "tiered", "restore", remote, "-o", "remote-restored"]
    assert main([*step.command[1:]]) == 1
    restored = tmp_path / "remote-restored"
    assert f"next: kafkalog boot {restored} -o {restored}-booted (" in capsys.readouterr().err


def test_a_partition_of_which_no_disk_has_a_copy_comes_from_remote_storage_alone(tiered, tmp_path, capsys):
    shutil.rmtree(tiered.log_dir / "p-multi-0")
    assert boot(tiered, tmp_path / "out") == 1
    assert "segments that were not copied yet are missing" in capsys.readouterr().out
    whole, served = content(LOG_DIR, "p-multi"), content(tmp_path / "out" / "data", "p-multi")
    assert 0 < served.num_rows < whole.num_rows
    assert served.equals(whole.slice(0, served.num_rows))
    # topics that the metadata do not have were deleted
    assert boot(tiered, tmp_path / "one", "-t", "p-txn") == 0
    shutil.rmtree(tiered.log_dir / "__cluster_metadata-0")
    write_metadata(tiered.log_dir, {"p-txn": tiered.topic_id("p-txn-0")}, {}, epoch=99)
    boot(tiered, tmp_path / "known", "-t", "p-txn")
    assert not (tmp_path / "known" / "data" / "p-multi-0").exists()


def test_all_replicas_have_the_remote_part(tiered, tmp_path):
    second = tmp_path / "second"
    shutil.copytree(tiered.log_dir, second)
    for number, root in enumerate((tiered.log_dir, second), 1):
        (root / "meta.properties").write_text(f"version=1\ncluster.id=abc\nnode.id={number}\n")
    assert boot(tiered, tmp_path / "out", str(second), "--nodes", "2") == 0
    for node in ("node-1", "node-2"):
        for topic in TOPICS:
            assert content(tmp_path / "out" / node / "data", topic).equals(content(LOG_DIR, topic))


def test_the_directories_above_the_output_are_made(tiered, tmp_path):
    assert boot(tiered, tmp_path / "deep" / "er" / "out") == 0
    assert not [*tmp_path.glob(".*")]


def test_a_restored_log_dir_leads_to_all_of_the_broker(tiered, tmp_path, capsys):
    """`tiered restore`, and then `boot` of what it made."""
    shutil.copytree(LOG_DIR / "p-multi-0", tiered.log_dir / "local-0")
    (tiered.log_dir / "local-0" / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAEQ")
    restored = tmp_path / "restored"
    command = ["tiered", "restore", str(tiered.remote), "--log-dir", str(tiered.log_dir), "-o", str(restored)]
    assert main(command) == 0
    capsys.readouterr()
    alone = kafkalog.boot(restored, tmp_path / "alone")
    assert {one.topic for one in alone.partitions} >= {*TOPICS}
    # settings come from the broker's metadata log
    assert alone.metadata == str(tiered.log_dir)
    report = kafkalog.boot([restored, tiered.log_dir], tmp_path / "out", include_unknown=True)
    assert {one.topic for one in report.partitions} >= {*TOPICS, "local"}
    for topic in TOPICS:
        for out in ("alone", "out"):
            assert content(tmp_path / out / "data", topic).equals(content(LOG_DIR, topic))


def test_the_end_that_was_never_in_remote_storage_is_a_loss_with_its_offsets(tiered, tmp_path):
    end = kafkalog.open(tiered.log_dir)["p-multi-0"].log_end_offset
    (tiered.log_dir / "replication-offset-checkpoint").write_text(f"0\n1\np-multi 0 {end}\n")
    shutil.rmtree(tiered.log_dir / "p-multi-0")
    report = kafkalog.boot(kafkalog.tiered_location(tiered.log_dir, tiered.remote), tmp_path / "out")
    (copied,) = [one.log_end_offset for one in report.partitions if one.topic == "p-multi"]
    assert 0 < copied < end
    assert [(one.base_offset, one.last_offset) for one in report.findings.rows if "p-multi-0" in one.detail] == [
        (copied, end - 1)
    ]
