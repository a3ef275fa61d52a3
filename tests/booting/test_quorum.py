"""One survivor of a quorum of controllers becomes the only voter."""

import hashlib
import json
from pathlib import Path

import pytest
from golden_sets import unpacked
from metadata_logs import survivor
from refusals import fails_with

import kafkalog
from kafkalog.booting.quorum import rescue_quorum
from kafkalog.cli.app import main
from kafkalog.errors import OutputExistsError, UnsafePathError
from kafkalog.state.cluster_metadata import read_cluster_metadata
from kafkalog.storage.broker_lock import hold_locks


def sums(root):
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in root.rglob("*")
        if path.is_file()
    }


@pytest.mark.parametrize("tail", [b"", b"\0" * 40])
def test_a_batch_names_it_the_only_voter(tmp_path, tail):
    data = survivor(tmp_path, tail)
    before = sums(data)
    told = rescue_quorum(data, dry_run=True)
    assert sums(data) == before
    assert (told.is_dynamic, told.node_id, told.voters, told.leader_epoch) == (True, 2, [1, 2, 3], 4)
    assert told.orphaned == {"orders": [0]}
    with pytest.raises(ValueError, match="backup"):
        rescue_quorum(data)
    found = rescue_quorum(data, backup=tmp_path / "backup")
    assert found.is_written
    (kept,) = (tmp_path / "backup").iterdir()
    old, new = kept.read_bytes(), (data / "__cluster_metadata-0" / kept.name).read_bytes()
    assert hashlib.sha256(old).hexdigest() == before[f"__cluster_metadata-0/{kept.name}"]
    assert new.startswith(old[: len(old) - len(tail)])
    assert len(new) - len(old) + len(tail) == 128
    after = sums(data)
    assert {name for name in after if after[name] != before.get(name)} <= {f"__cluster_metadata-0/{kept.name}", ".lock"}
    metadata = read_cluster_metadata(data)
    assert metadata is not None
    assert [one["voterId"] for one in metadata.voters] == [2]
    last = kafkalog.read_table(kafkalog.open(data / "__cluster_metadata-0"), include_control=True, columns=["offset"])
    assert last["offset"].to_pylist()[-1] == told.end_offset
    assert kafkalog.verify(data / "__cluster_metadata-0").ok


def test_a_static_quorum_needs_another_setting_only():
    before = sums(unpacked("k44"))
    found = rescue_quorum(unpacked("k44"))
    assert not found.is_dynamic
    assert not found.is_written
    assert any("controller.quorum.voters=1@" in step for step in found.next_steps())
    assert sums(unpacked("k44")) == before


def test_what_cannot_be_rescued_says_what_to_do(tmp_path):
    data = survivor(tmp_path)
    with fails_with("not_kafka"):
        rescue_quorum(tmp_path / "log", dry_run=True)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    with pytest.raises(OutputExistsError):
        rescue_quorum(data, backup=tmp_path / "there")
    (data / ".lock").touch()
    properties = data / "meta.properties"
    text = properties.read_text()
    properties.write_text(text.replace("node.id=2", "node.id=9"))
    with fails_with("unsafe_path"):
        rescue_quorum(data, backup=tmp_path / "backup")
    properties.write_text(text)
    (log,) = (data / "__cluster_metadata-0").glob("*.log")
    log.write_bytes(b"")
    log.rename(log.with_name(f"{0:020d}.log"))
    with fails_with("log_end_missing"):
        rescue_quorum(data, backup=tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_what_else_stops_the_start_is_a_step(tmp_path):
    data = survivor(tmp_path)
    assert rescue_quorum(data, dry_run=True).problems == []
    (data / "__cluster_metadata-0" / "quorum-state").write_bytes(bytes(100))
    (data / "replication-offset-checkpoint").write_bytes(bytes(9))
    found = rescue_quorum(data, dry_run=True)
    steps = [step for step in found.next_steps() if "what stops the start" in step]
    assert [(step.split()[0], Path(step.split(": ")[1]).name) for step in steps] == [
        ("repair", "replication-offset-checkpoint"),
        ("move", "quorum-state"),
    ]


def test_a_running_node_is_left_alone(tmp_path):
    data = survivor(tmp_path)
    (data / ".lock").touch()
    before = sums(data)
    with hold_locks([data]), pytest.raises(UnsafePathError):
        rescue_quorum(data, backup=tmp_path / "backup")
    assert sums(data) == before


def test_the_command_says_what_is_lost_and_what_is_next(tmp_path, capsys):
    data = survivor(tmp_path)
    assert main(["boot", str(data), "--rescue-quorum", "--dry-run", "-q"]) == 0
    printed = capsys.readouterr().out
    assert "Records that the other voters committed later are lost." in printed
    assert "No replica on this node: orders, partitions 0" in printed
    arguments = ["boot", str(data), "--rescue-quorum", "-q", "--json"]
    assert main(arguments) == 2
    assert main([*arguments, "--backup", str(tmp_path / "backup")]) == 0
    assert json.loads(capsys.readouterr().out)["is_written"] is True
    assert main(["boot", str(data), "-q"]) == 2
    assert main(["boot", str(data), "--dry-run", "--backup", "x", "-q"]) == 2
