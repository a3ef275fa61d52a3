from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from fnmatch import fnmatch
from pathlib import Path
from typing import NamedTuple

import golden_sets
import pytest
from effort import thinned

import kafkalog
from kafkalog.errors import Reason
from kafkalog.survey.startup_root import root_problems, voter_problem

META, QUORUM, BOOTSTRAP = "meta.properties", "__cluster_metadata-0/quorum-state", "bootstrap.checkpoint"
CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


class RootDamage(NamedTuple):
    """A change to a log dir whose partition `PARTITION` is intact."""

    change: Callable[[Path, str], object]
    """Takes the log dir and the name of a partition in it."""
    file: str
    """The file that a report names; "" if the broker starts."""


def put(file, data, *, starts=False):
    return RootDamage(lambda root, partition: (root / file).write_bytes(data), "" if starts else file)


def removed(file, *, starts=False):
    return RootDamage(lambda root, partition: (root / file).unlink(missing_ok=True), "" if starts else file)


def edited(file, pattern, replacement, *, starts=False):
    def change(root, partition):
        data, n = re.subn(pattern, replacement, (root / file).read_bytes(), count=1)
        assert n, f"{pattern!r} is not in {file}"
        (root / file).write_bytes(data)

    return RootDamage(change, "" if starts else file)


def entry(text):
    """An offset checkpoint's content, with the name of the partition for TP."""
    return lambda root, partition: text.replace(b"TP", partition.rpartition("-")[0].encode() + b" 0")


def checkpoint(name, text, *, starts=False):
    return RootDamage(
        lambda root, partition: (root / name).write_bytes(entry(text)(root, partition)), "" if starts else name
    )


def newest_snapshot(root):
    return max((root / "__cluster_metadata-0").glob("*.checkpoint"))


def snapshot(change):
    def apply(root, partition):
        path = newest_snapshot(root)
        path.write_bytes(change(path.read_bytes()))

    return RootDamage(apply, "__cluster_metadata-0/*.checkpoint")


def future(*letters):
    def change(root, partition):
        for letter in letters:
            shutil.copytree(root / partition, root / f"{partition}.{letter * 32}-future")

    return change


def late_log(root, partition):
    """The metadata log begins after 0, and no snapshot is there."""
    directory = root / "__cluster_metadata-0"
    log = min(directory.glob("*.log"))
    data, positions = log.read_bytes(), [0]
    while positions[-1] + 61 < len(data) and len(positions) < 8:
        positions.append(positions[-1] + 12 + int.from_bytes(data[positions[-1] + 8 : positions[-1] + 12], "big"))
    for path in directory.iterdir():
        if path.suffix in (".log", ".index", ".timeindex", ".snapshot", ".checkpoint"):
            path.unlink()
    base = int.from_bytes(data[positions[-1] : positions[-1] + 8], "big")
    (directory / f"{base:020d}.log").write_bytes(data[positions[-1] :])


HARMLESS = ("empty", "only_version", "crlf", "text_for_offset")
IGNORED = {("negative_count", name) for name in CHECKPOINTS[:2]}
"""A broker warns, and goes on without the file."""
NO_CONTENT = {"empty": b"", "zeros": bytes(80), "newline": b"\n"}

CASES = {
    "good": RootDamage(lambda root, partition: None, ""),
    **{f"meta_{name}": put(META, data) for name, data in NO_CONTENT.items()},
    "meta_missing": removed(META),
    "meta_no_node": edited(META, rb"node.id=\d+\r?\n", b""),
    "meta_negative_node": edited(META, rb"node.id=\d+", b"node.id=-1"),
    "meta_text_for_node": edited(META, rb"node.id=\d+", b"node.id=one"),
    "meta_space_after_node": edited(META, rb"node.id=(\d+)", rb"node.id=\1 "),
    "meta_version_2": edited(META, rb"version=1", b"version=2"),
    "meta_version_0": edited(META, rb"version=1", b"version=0"),
    "meta_no_version": edited(META, rb"version=1\r?\n", b""),
    "meta_text_for_version": edited(META, rb"version=1", b"version=x"),
    "meta_no_cluster": edited(META, rb"cluster.id=.*\n", b""),
    "meta_bad_directory": edited(META, rb"directory.id=.*", b"directory.id=xyz"),
    "meta_zero_directory": edited(META, rb"directory.id=.*", b"directory.id=AAAAAAAAAAAAAAAAAAAAAA"),
    "meta_no_directory": edited(META, rb"directory.id=.*\n", b"", starts=True),
    "meta_bad_escape": edited(META, rb"$", rb"x=\\uZZZZ"),
    "meta_other_bytes": edited(META, rb"$", b"\xff\xfe=1\n\0\1more", starts=True),
    "meta_crlf": edited(META, rb"\n", b"\r\n", starts=True),
    **{f"quorum_{name}": put(QUORUM, data) for name, data in NO_CONTENT.items()},
    "quorum_missing": removed(QUORUM, starts=True),
    "quorum_cut": edited(QUORUM, rb".{20}$", b""),
    **{f"quorum_{word}": put(QUORUM, word.encode()) for word in ("[]", "{}", "null", "{")},
    "quorum_version_2": edited(QUORUM, rb'"data_version":\d', b'"data_version":2'),
    "quorum_text_for_version": edited(QUORUM, rb'"data_version":0', b'"data_version":"0"', starts=True),
    "quorum_text_for_leader": edited(QUORUM, rb'"leaderId":(-?\d+)', rb'"leaderId":"\1"'),
    "quorum_fraction_for_leader": edited(QUORUM, rb'"leaderId":-?\d+', rb'"leaderId":1.5'),
    "quorum_large_leader": edited(QUORUM, rb'"leaderId":-?\d+', rb'"leaderId":99999999999'),
    "quorum_no_epoch": edited(QUORUM, rb'"leaderEpoch":\d+,', b""),
    "quorum_no_voters": edited(QUORUM, rb'"currentVoters":\[[^]]*\],', b""),
    "quorum_bad_voters": edited(QUORUM, rb'"currentVoters":\[[^]]*\]', b'"currentVoters":[1]'),
    "quorum_null_cluster": edited(QUORUM, rb'"clusterId":"[^"]*"', b'"clusterId":null'),
    "quorum_more_fields": edited(QUORUM, rb"^{", b'{"more":1,', starts=True),
    "quorum_garbage_after": edited(QUORUM, rb"$", b"garbage\n\0\0", starts=True),
    **{
        f"{name}_{what}": checkpoint(name, text, starts=what in HARMLESS or (what, name) in IGNORED)
        for name in CHECKPOINTS
        for what, text in {
            **NO_CONTENT,
            "only_version": b"0\n",
            "crlf": b"0\r\n1\r\nTP 0\r\n",
            "text_for_offset": b"0\n1\nTP x\n",
            "too_few": b"0\n2\nTP 0\n",
            "too_many": b"0\n0\nTP 0\n",
            "version_1": b"1\n1\nTP 0\n",
            "two_fields": b"0\n1\norders 0\n",
            "blank_line": b"0\n1\nTP 0\n\n",
            "garbage_after": b"0\n1\nTP 0\ngarbage",
            "not_utf8": b"0\n1\n\xffTP 0\n",
            "negative_count": b"0\n-2\nTP 0\n",
            "zeros_after": b"0\n1\nTP 0\n" + bytes(10),
        }.items()
    },
    **{f"{name}_missing": removed(name, starts=True) for name in CHECKPOINTS},
    "bootstrap_missing": removed(BOOTSTRAP, starts=True),
    **{f"bootstrap_{name}": put(BOOTSTRAP, data) for name, data in NO_CONTENT.items()},
    "bootstrap_text": put(BOOTSTRAP, b"text, and no batch of any format at all"),
    "bootstrap_zeros_after": edited(BOOTSTRAP, rb"$", bytes(40)),
    "bootstrap_cut": RootDamage(
        lambda root, partition: (root / BOOTSTRAP).write_bytes((root / BOOTSTRAP).read_bytes()[:-10]), ""
    ),
    "snapshot_empty": snapshot(lambda data: b""),
    "snapshot_zeros": snapshot(lambda data: bytes(len(data))),
    "snapshot_flip": snapshot(
        lambda data: data[: len(data) // 2] + bytes([data[len(data) // 2] ^ 1]) + data[len(data) // 2 + 1 :]
    ),
    "snapshot_garbage_after": snapshot(lambda data: data + b"garbage " * 5),
    "snapshot_no_header": snapshot(lambda data: data[12 + int.from_bytes(data[8:12], "big") :]),
    "metadata_late": RootDamage(late_log, "__cluster_metadata-0"),
    "future_next_to_it": RootDamage(future("a"), "*-future"),
    "two_futures": RootDamage(future("a", "b"), "*-future"),
    "other_directory": RootDamage(lambda root, partition: (root / "lost+found").mkdir(), "lost+found"),
}


# --- tests -----------------------------------------------------------------------------------------------------------


PARTITION = "p-default-0"


@pytest.fixture
def root(tmp_path):
    """A log dir with the metadata log and one partition; the checkpoints name no other one, which would be lost."""
    source = golden_sets.unpacked("k44")
    target = tmp_path / "data"
    for name in ("__cluster_metadata-0", PARTITION):
        shutil.copytree(source / name, target / name)
    for name in (META, ".kafka_cleanshutdown"):
        shutil.copy(source / name, target / name)
    for name in CHECKPOINTS:
        topic = PARTITION.removesuffix("-0")
        lines = [line for line in (source / name).read_text().splitlines() if line.startswith(f"{topic} 0 ")]
        (target / name).write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    shutil.copy(min((target / "__cluster_metadata-0").glob("*.checkpoint")), target / BOOTSTRAP)
    return target


@pytest.mark.parametrize("name", thinned(CASES, 9))
def test_preflight_and_verify_name_the_file(name, root, run):
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
    findings = kafkalog.verify(root).findings
    assert any(one.damage and fnmatch(str(Path(one.path or "").relative_to(root)), file) for one in findings)
    code, _, err = run("preflight", root)
    assert code == 1
    assert "does not start" in err
    assert any(path in err for path in paths)


def test_the_configuration_is_that_of_another_broker(root, tmp_path, run):
    config = tmp_path / "server.properties"
    for text, code in (("node.id=1", 0), ("broker.id=1", 0), ("", 0), ("node.id=1001", 1), ("broker.id=2", 1)):
        config.write_text(f"{text}\nlog.dirs={root}\nlog.retention.ms=-1\n")
        assert run("preflight", root, "--config", config)[0] == code, text
    [problem] = kafkalog.preflight(root, config=config).problems
    assert (problem.path, problem.effect) == (str(root / META), "does not start")


@pytest.mark.parametrize(
    ("dirs", "is_good"), [("{}", True), (" {} ", True), ("{}/", True), ("{},", False), (",{}", False)]
)
def test_an_empty_entry_of_log_dirs_stops_a_broker(root, tmp_path, run, dirs, is_good):
    config = tmp_path / "server.properties"
    config.write_text(f"node.id=1\nlog.dirs={dirs.format(root)}\nlog.retention.ms=-1\n")
    code, out, err = run("preflight", root, "--config", config)
    assert code == (not is_good)
    assert (f"{config}: log.dirs has an empty entry" in out + err) == (not is_good)


@pytest.mark.parametrize(("release", "starts"), [("3.9", True), ("4.1", True), ("4.2", False), ("4.4", False)])
def test_releases_before_4_2_pass_over_an_empty_entry_of_log_dirs(root, tmp_path, release, starts):
    config = tmp_path / "server.properties"
    config.write_text(f"node.id=1\nlog.dirs={root},\n")
    found = kafkalog.preflight(root, config=config, release=release).problems
    assert any("empty entry" in one.detail for one in found) != starts


def test_a_directory_marked_for_deletion_is_no_loss(root, run):
    shutil.copytree(root / PARTITION, root / f"gone-0.{'a' * 32}-delete")
    for args in (["preflight", root], ["preflight", root, "--unclean"], ["recover", root, "--dry-run"]):
        assert run(*args)[0] == 0


def test_a_folder_of_partitions_may_have_others_next_to_them(root):
    (root / "notes").mkdir()
    assert not kafkalog.verify(root).ok
    (root / META).unlink()
    shutil.rmtree(root / "__cluster_metadata-0")
    assert kafkalog.verify(root).ok


def test_a_snapshot_that_is_cut_off_loses_metadata(root):
    path = newest_snapshot(root)
    path.write_bytes(path.read_bytes()[:-30])
    [problem] = root_problems([root])
    assert (problem.effect, problem.reason, problem.path) == ("loses metadata", Reason.PARTIAL_TAIL, str(path))
    preflight = kafkalog.preflight(root)
    assert preflight.verdict == "loses"
    assert not any(row.stray for row in preflight.partitions)


def test_the_log_dirs_of_a_broker_belong_together(root, tmp_path, run):
    second = tmp_path / "second"
    second.mkdir()
    shutil.copytree(root / PARTITION, second / "other-0")
    meta = (root / META).read_text()
    good = meta.replace("directory.id=", "directory.id=A")[:-1]
    good = "\n".join(f"{line[:35]}" if line.startswith("directory.id") else line for line in good.splitlines())

    def problems_of(*roots):
        return [Path(one.path).relative_to(tmp_path).as_posix() for one in root_problems(roots)]

    def problems(text):
        (second / META).write_text(text)
        return problems_of(root, second)

    assert problems(good) == []
    assert problems(meta) == [f"second/{META}"]  # one directory.id for two
    assert problems(good.replace("cluster.id=", "cluster.id=x")) == [f"second/{META}"]
    assert problems(good.replace("node.id=1", "node.id=2")) == [f"second/{META}"]
    (second / META).unlink()
    assert problems_of(root, second) == [f"second/{META}"]
    (second / META).write_text(good)
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


def test_a_quorum_state_of_a_dynamic_quorum(root):
    (root / QUORUM).write_text(
        '{"leaderId":1,"leaderEpoch":1,"votedId":-1,"votedDirectoryId":"AAAAAAAAAAAAAAAAAAAAAA","data_version":1}'
    )
    assert root_problems([root]) == []
    (root / QUORUM).write_text('{"leaderId":1,"leaderEpoch":1,"votedId":-1,"data_version":1}')
    [problem] = root_problems([root])
    assert (problem.path, problem.detail) == (str(root / QUORUM), "votedDirectoryId is missing")


def test_recover_writes_checkpoints_and_names_the_rest(root, tmp_path):
    for name in CHECKPOINTS:
        (root / name).write_bytes(bytes(9))
    (root / QUORUM).write_bytes(b"")
    report = kafkalog.recover(root, output=tmp_path / "out")
    assert [Path(one.path).name for one in report.problems] == ["quorum-state"]
    (tmp_path / "out" / QUORUM).unlink()
    assert root_problems([tmp_path / "out"]) == []


def test_retention_takes_zeros_at_the_end_of_a_time_index_for_the_year_1970(tmp_path):
    partition = tmp_path / "data" / PARTITION
    shutil.copytree(golden_sets.partitions("k44")["p-segms-0"], partition)
    logs = sorted(partition.glob("*.log"))
    newest = max(int(kafkalog.Segment(log).batches.max_timestamp.max()) for log in logs)
    now = newest + 3_600_000

    def asked(clean=True):
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
        assert row.verdict == "loses"
        assert row.loss.n_records == end - int(logs[0].stem)
        assert [one.is_expired_early for one in row.segments] == [True, True] + [False] * (len(logs) - 2)
    report = kafkalog.recover(tmp_path / "data", output=tmp_path / "out", now=now)
    assert not report.n_bytes_lost
    assert [one.expires for one in kafkalog.preflight(tmp_path / "out", now=now).partitions[0].segments] == [
        None
    ] * len(logs)


def test_log_dirs_of_two_nodes_are_told_apart(tmp_path):
    """A mount point has the volumes of a broker with two disks and of a controller: each is named on its own."""
    for name, node in (("data-0-broker-1", 1), ("data-0-controller-0", 0), ("data-1-broker-1", 1)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "meta.properties").write_text(f"version=1\ncluster.id=abc\nnode.id={node}\n")
    problems = root_problems(
        [tmp_path / name for name in ("data-0-controller-0", "data-0-broker-1", "data-1-broker-1")]
    )
    own = f"for this one {tmp_path / 'data-0-broker-1'} {tmp_path / 'data-1-broker-1'}"
    assert [one.detail.endswith(own) for one in problems] == [True, True]


def test_a_voter_with_another_directory_id_starts_where_others_elect(tmp_path):
    (tmp_path / "__cluster_metadata-0").mkdir()
    (tmp_path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=c\ndirectory.id=mine\n")
    voters = [{"voterId": number, "voterDirectoryId": "another"} for number in (1, 2)]
    assert voter_problem([tmp_path], voters, 1) is None
    problem = voter_problem([tmp_path], voters[:1], 1)
    assert problem is not None
    assert "the start hangs" in problem.detail
    assert voter_problem([tmp_path], [{"voterId": 1, "voterDirectoryId": "mine"}], 1) is None
