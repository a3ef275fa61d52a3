from __future__ import annotations

import shutil
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import golden_sets
import pytest
from root_damage import BOOTSTRAP, CASES, CHECKPOINTS, META, QUORUM, newest_snapshot

import kafkalog
from kafkalog.errors import Reason
from kafkalog.survey.startup_root import root_problems

PARTITION = "p-default-0"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A log dir with the metadata log and one partition."""
    source = golden_sets.unpacked("k44")
    target = tmp_path / "data"
    for name in ("__cluster_metadata-0", PARTITION):
        shutil.copytree(source / name, target / name)
    for name in (META, ".kafka_cleanshutdown", *CHECKPOINTS):
        shutil.copy(source / name, target / name)
    shutil.copy(min((target / "__cluster_metadata-0").glob("*.checkpoint")), target / BOOTSTRAP)
    return target


@pytest.mark.parametrize("name", CASES)
def test_preflight_and_verify_name_the_file(name: str, root: Path, run: Any) -> None:
    change, file = CASES[name]
    change(root, PARTITION)
    preflight = kafkalog.preflight(root)
    paths = [Path(one.path).relative_to(root).as_posix() for one in preflight.problems]
    if not file:
        assert paths == []
        assert preflight.verdict in ("starts", "recovers")
        return
    assert any(fnmatch(path, file) for path in paths), paths
    assert preflight.verdict == "does not start"
    assert not any(row.stray for row in preflight.partitions)
    if file != "lost+found":
        findings = kafkalog.verify(root).findings
        assert any(one.damage and fnmatch(str(Path(one.path or "").relative_to(root)), file) for one in findings)
    code, _, err = run("preflight", root)
    assert code == 1
    assert "does not start" in err
    assert any(path in err for path in paths)


def test_a_snapshot_that_is_cut_off_loses_metadata(root: Path) -> None:
    path = newest_snapshot(root)
    path.write_bytes(path.read_bytes()[:-30])
    [problem] = root_problems([root])
    assert (problem.effect, problem.reason, problem.path) == ("loses metadata", Reason.PARTIAL_TAIL, str(path))
    preflight = kafkalog.preflight(root)
    assert preflight.verdict == "loses"
    assert not any(row.stray for row in preflight.partitions)


def test_the_log_dirs_of_a_broker_belong_together(root: Path, tmp_path: Path, run: Any) -> None:
    second = tmp_path / "second"
    second.mkdir()
    shutil.copytree(root / PARTITION, second / "other-0")
    meta = (root / META).read_text()
    good = meta.replace("directory.id=", "directory.id=A")[:-1]
    good = "\n".join(f"{line[:35]}" if line.startswith("directory.id") else line for line in good.splitlines())

    def problems(text: str) -> list[str]:
        (second / META).write_text(text)
        return [Path(one.path).relative_to(tmp_path).as_posix() for one in root_problems([root, second])]

    assert problems(good) == []
    assert problems(meta) == [f"second/{META}"]  # one directory.id for two
    assert problems(good.replace("cluster.id=", "cluster.id=x")) == [f"second/{META}"]
    assert problems(good.replace("node.id=1", "node.id=2")) == [f"second/{META}"]
    (second / META).unlink()  # a broker formats it
    assert root_problems([root, second]) == []
    (second / CHECKPOINTS[0]).write_bytes(bytes(9))
    assert [one.effect for one in root_problems([root, second])] == ["log dir offline"]
    (second / CHECKPOINTS[0]).unlink()
    shutil.copytree(root / PARTITION, second / f"{PARTITION}.{'a' * 32}-future")  # it is being moved
    assert root_problems([root, second]) == []
    shutil.copytree(root / PARTITION, second / PARTITION)
    reasons = {one.reason for one in root_problems([root, second])}
    assert reasons == {Reason.PARTITION_TWICE}
    code, out, _ = run("preflight", root, second, "-t", "p-default", "--json")
    assert code == 1
    assert '"verdict": "does not start"' in out.replace('":"', '": "')


def test_a_quorum_state_of_a_dynamic_quorum(root: Path) -> None:
    (root / QUORUM).write_text(
        '{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )
    assert root_problems([root]) == []
    (root / QUORUM).write_text('{"leaderId":1,"leaderEpoch":1,"votedId":-1,"data_version":1}')
    [problem] = root_problems([root])
    assert (problem.path, problem.detail) == (str(root / QUORUM), "votedDirectoryId is missing")


def test_recover_writes_checkpoints_and_names_the_rest(root: Path, tmp_path: Path) -> None:
    for name in CHECKPOINTS:
        (root / name).write_bytes(bytes(9))
    (root / QUORUM).write_bytes(b"")
    report = kafkalog.recover(root, output=tmp_path / "out")
    assert [Path(one.path).name for one in report.problems] == ["quorum-state"]
    (tmp_path / "out" / QUORUM).unlink()
    assert root_problems([tmp_path / "out"]) == []


def test_retention_takes_zeros_at_the_end_of_a_time_index_for_the_year_1970(tmp_path: Path) -> None:
    partition = tmp_path / "data" / PARTITION
    shutil.copytree(golden_sets.partitions("k44")["p-segms-0"], partition)
    logs = sorted(partition.glob("*.log"))
    newest = max(int(kafkalog.Segment(log).batches.max_timestamp.max()) for log in logs)
    now = newest + 3_600_000

    def asked(clean: bool = True) -> Any:
        [row] = kafkalog.preflight(tmp_path / "data", clean=clean, now=now).partitions
        return row

    assert asked().verdict == "starts"
    for log in logs[:2]:
        path = log.with_suffix(".timeindex")
        path.write_bytes(path.read_bytes() + bytes(1200))
    end = int(logs[2].stem)
    checkpoint = tmp_path / "data" / CHECKPOINTS[0]
    checkpoint.write_text(f"0\n1\np-default 0 {int(logs[-1].stem)}\n")
    for clean in (True, False):
        row = asked(clean)
        assert (row.verdict, row.n_records_lost) == ("loses", end - int(logs[0].stem))
        assert [one.is_expired_early for one in row.segments] == [True, True] + [False] * (len(logs) - 2)
    report = kafkalog.recover(tmp_path / "data", output=tmp_path / "out", now=now)
    assert not report.n_bytes_lost
    assert [one.expires for one in kafkalog.preflight(tmp_path / "out", now=now).partitions[0].segments] == [
        None
    ] * len(logs)
