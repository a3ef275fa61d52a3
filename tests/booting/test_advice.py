"""The advice of all commands after damage is executed until there is none left: no advice loses a record."""

import gzip
import json
import os
import shlex
import shutil
from pathlib import Path

import builder
import pytest
from broken_clusters import KINDS, OTHER_KINDS, TOPICS, Cluster, do_damage
from effort import fuzz_inputs, thinned
from merges import batch, replica
from metadata_logs import TOPIC, topic_id, write_metadata
from salvages import output_of

import kafkalog
from kafkalog.cli.app import main
from kafkalog.state.properties import read_settings
from kafkalog.survey.next_steps import boot_steps

LOG = [(1, offset) for offset in range(24)]


def nothing(partition):
    pass


def flip(partition):
    path = partition / f"{6:020}.log"
    data = bytearray(path.read_bytes())
    start, _ = builder.batch_positions(bytes(data))[1]
    data[start + 30] ^= 1
    path.write_bytes(data)


def lose_a_segment(partition):
    (partition / f"{6:020}.log").unlink()


def cut(partition):
    path = partition / f"{12:020}.log"
    path.write_bytes(path.read_bytes()[:100])


def advice(command, capsys):
    """The commands of kafkalog that one of its commands advises, from its JSON."""
    main([*command[1:], "--json"])
    objects = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line.startswith("{")]
    steps = [step for one in objects for step in one.get("next", ())]
    assert all(step["why"] for step in steps)
    return [step["command"] for step in steps]


@pytest.mark.parametrize("first", ["verify", "preflight", "report"])
@pytest.mark.parametrize("damage", [nothing, flip, lose_a_segment, cut])
def test_advice_leads_to_all_that_is_intact(tmp_path, capsys, first, damage):
    disk = tmp_path / "disk"
    partition = replica(disk, LOG, bases=(0, 6, 12, 18))
    damage(partition)
    data = b"".join(path.read_bytes() for path in sorted(partition.glob("*.log")))
    intact = [batch(offset, LOG[offset]) for offset in range(24) if batch(offset, LOG[offset]) in data]
    waiting, done = [["kafkalog", first, str(disk)]], []
    while waiting:
        command = waiting.pop(0)
        assert command not in done, "advice leads in a circle"
        done.append(command)
        if command[0] == "kafkalog":
            waiting += advice(command, capsys)
    if damage is nothing:
        assert len(done) == 1
        return
    assert done[1][:2] == ["kafkalog", "boot"]
    assert done[2] == ["kafka-server-start.sh", f"{disk}-booted/server.properties"]
    booted = tmp_path / "disk-booted" / "data"
    assert output_of(booted / "t-0") == intact
    assert kafkalog.preflight(booted).next == []


def test_recovery_and_comparison_lead_to_what_they_did_not_read(tmp_path, capsys):
    good, disk = tmp_path / "good", tmp_path / "disk"
    replica(good, LOG, bases=(0, 6, 12, 18))
    replica(tmp_path / "killed", LOG, bases=(0, 6, 12, 18))
    kafkalog.recover(tmp_path / "killed", disk)
    flip(disk / "t-0")
    check = ["kafkalog", "verify", str(disk)]
    assert [[*step.command] for step in kafkalog.recover(disk, dry_run=True).next] == [check]
    assert advice(["kafkalog", "diff", "--content", str(good), str(disk)], capsys) == [check]
    assert main(["diff", "--content", str(good), str(disk)]) == 1
    assert "a: t-0 offsets 7..8: 1 record only here" in capsys.readouterr().out
    assert [step[:2] for step in advice(check, capsys)] == [["kafkalog", "boot"]]


def test_preflight_says_that_it_did_not_read_what_a_broker_does_not_read(tmp_path, capsys):
    replica(tmp_path / "disk", LOG, bases=(0, 6, 12, 18))
    (tmp_path / "disk" / "recovery-point-offset-checkpoint").write_text("0\n1\nt 0 24\n")
    kafkalog.recover(tmp_path / "disk", tmp_path / "out", all_segments=True)
    flip(tmp_path / "out" / "t-0")
    main(["preflight", str(tmp_path / "out"), "--clean"])
    assert "crc_mismatch" not in (text := "".join(capsys.readouterr()))
    assert "kafkalog verify finds damage there" in text


def test_a_hole_that_salvage_has_reported_is_no_work_of_the_log_cleaner(tmp_path, capsys):
    good, disk = tmp_path / "good", tmp_path / "disk"
    replica(good, LOG, bases=(0, 6, 12, 18))
    flip(replica(disk, LOG, bases=(0, 6, 12, 18)))
    kafkalog.salvage(disk, tmp_path / "saved")
    found = kafkalog.diff(good / "t-0", tmp_path / "saved" / "t-0")
    assert (found.offset, found.lost_in, found.is_compacted) == (7, "b", False)
    assert kafkalog.diff(tmp_path / "saved" / "t-0", good / "t-0").lost_in == "a"
    main(["diff", str(good / "t-0"), str(tmp_path / "saved" / "t-0")])
    text = capsys.readouterr().out
    assert "the command that made it has reported them as lost" in text
    assert "compacted" not in text


# a disk may be called as a partition is
@pytest.mark.parametrize("name", ["disk", "disk-1"])
def test_advice_is_the_same_as_text(tmp_path, capsys, name):
    disk = tmp_path / name
    flip(replica(disk, LOG, bases=(0, 6, 12, 18)))
    line = f"kafkalog boot {disk} -o {disk}-booted"
    for command in ("verify", "preflight"):
        main([command, str(disk)])
        assert f"next: {line}" in "".join(capsys.readouterr())
    report = kafkalog.report(disk)
    assert [row["line"] for row in report.as_dict()["next"]] == [line]
    assert line.replace(str(disk), "") in report.to_html().replace(str(disk), "")
    assert "Next steps" in report.to_markdown()
    # of a partition, or a file, the log dir is booted
    for path in (disk / "t-0", disk / "t-0" / f"{6:020}.log"):
        main(["verify", str(path)])
        assert f"next: {line}" in "".join(capsys.readouterr())


def test_advice_names_an_empty_disk_and_not_what_is_around_it(tmp_path, capsys):
    disks = [tmp_path / "disk-1", tmp_path / "disk-2"]
    flip(replica(disks[0], LOG, bases=(0, 6, 12, 18)))
    disks[1].mkdir()
    line = f"kafkalog boot {disks[0]} {disks[1]} -o {disks[0]}-booted"
    main(["preflight", *map(str, disks)])
    assert f"next: {line}" in "".join(capsys.readouterr())
    assert [row["line"] for row in kafkalog.report(disks).as_dict()["next"]] == [line]
    main([*line.split()[1:], "-q"])
    assert (tmp_path / "disk-1-booted" / "data" / "t-0").is_dir()


@pytest.mark.parametrize("name", ["disk-2", "other"])
def test_an_empty_disk_among_whole_ones_leads_to_a_boot_of_all(tmp_path, capsys, name):
    disks = [tmp_path / "disk-1", tmp_path / name]
    replica(disks[0], LOG, bases=(0, 6, 12, 18))
    (disks[1] / "lost+found").mkdir(parents=True)
    line = f"kafkalog boot {disks[0]} {disks[1]} -o {disks[0]}-booted"
    for command in ("preflight", "report"):
        main([command, *map(str, disks)])
        text = "".join(capsys.readouterr())
        assert line in text
        assert "a disk that is empty, or not mounted" in text.replace("\\", "")
    assert kafkalog.preflight(disks[0]).next == []
    assert main(["verify", *map(str, disks)]) == 0
    assert "a disk that is empty, or not mounted" in "".join(capsys.readouterr())


def test_advice_takes_what_a_broker_of_another_cluster_has_set_apart(tmp_path, capsys):
    disk = tmp_path / "disk-1"
    partition = replica(disk, LOG, bases=(0, 6, 12, 18))
    partition.rename(disk / f"t-0.{'0123456789abcdef' * 2}-stray")
    line = f"kafkalog boot {disk} --include-unknown -o {disk}-booted"
    main(["preflight", str(disk)])
    assert f"next: {line}" in "".join(capsys.readouterr())
    (row,) = kafkalog.report(disk).as_dict()["next"]
    assert row["line"] == line
    assert main([*line.split()[1:], "-q"]) == 1  # no metadata log has its settings
    assert output_of(tmp_path / "disk-1-booted" / "data" / "t-0") == [
        batch(offset, LOG[offset]) for offset in range(24)
    ]
    assert kafkalog.preflight(tmp_path / "disk-1-booted" / "data").next == []


def test_every_report_advises_the_same_boot_where_strays_are_damaged(tmp_path, capsys):
    disk = tmp_path / "disk"
    replica(disk, LOG, bases=(0, 6, 12, 18))
    flip(replica(tmp_path / "other", LOG, bases=(0, 6, 12, 18)))
    (tmp_path / "other" / "t-0").rename(disk / f"u-0.{'0123456789abcdef' * 2}-stray")
    firsts = [advice(["kafkalog", command, str(disk)], capsys) for command in ("verify", "preflight", "report")]
    assert firsts == [[["kafkalog", "boot", str(disk), "--include-unknown", "-o", f"{disk}-booted"]]] * 3


@pytest.mark.parametrize("command", ["verify", "preflight", "report"])
def test_a_file_that_is_whole_and_cannot_be_read_needs_no_boot(tmp_path, capsys, command):
    disk = tmp_path / "disk"
    path = replica(disk, LOG, bases=(0, 6, 12, 18)) / f"{6:020}.log"
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert advice(["kafkalog", command, str(disk)], capsys) == []


READERS = {
    "cat": "--on-corruption skip",
    "convert": "--on-corruption skip --dry-run -o copy",
    "export": "--on-corruption skip --dry-run",
    "groups": "",
    "transactions": "",
    "truncate": "--to-offset 20 --dry-run",
    "reindex": "--dry-run",
}


@pytest.mark.parametrize("command", READERS)
def test_every_command_that_meets_damage_names_the_boot(tmp_path, capsys, command, monkeypatch):
    monkeypatch.chdir(tmp_path)
    disk, findings = tmp_path / "disk", tmp_path / "findings.json"
    partition = replica(disk, LOG, bases=(0, 6, 12, 18))
    name = {"groups": "__consumer_offsets-0", "transactions": "__transaction_state-0"}.get(command, "t-0")
    partition = partition.rename(disk / name)
    options = [*READERS[command].split(), *(["--report", str(findings)] if command in ("cat", "convert") else [])]
    assert main([command, str(disk), *options]) in (0, 1)
    assert "next:" not in capsys.readouterr().err
    flip(partition)
    assert main([command, str(disk), *options]) == 1
    line = f"kafkalog boot {disk} -o {disk}-booted"
    assert f"next: {line} (" in capsys.readouterr().err
    if findings.exists():
        (step,) = json.loads(findings.read_text())["next"]
        assert shlex.join(step["command"]) == line
    main([command, str(disk), *options, "-q"])
    assert "next:" not in capsys.readouterr().err


@pytest.mark.parametrize("command", ["verify", "recover --dry-run", "salvage --dry-run", "merge --dry-run"])
def test_the_report_file_has_the_steps_that_a_command_prints(tmp_path, capsys, command):
    disk, findings = tmp_path / "disk", tmp_path / "findings.json"
    flip(replica(disk, LOG, bases=(0, 6, 12, 18)))
    name, *options = command.split()
    main([name, str(disk), *options, "--report", str(findings)])
    printed = [line.partition("next: ")[2] for line in capsys.readouterr().err.splitlines() if "next: " in line]
    steps = json.loads(findings.read_text())["next"]
    assert printed
    assert [f"{shlex.join(one['command'])} ({one['why']})" for one in steps] == printed


def test_results_in_python_name_the_same_boot(tmp_path):
    disk = tmp_path / "disk"
    flip(replica(disk, LOG, bases=(0, 6, 12, 18)).rename(disk / "__consumer_offsets-0"))
    scan = kafkalog.scan(disk, internal=True, on_corruption="skip")
    how = {"internal": True, "on_corruption": "skip", "dry_run": True}
    with pytest.warns(kafkalog.CorruptionWarning):
        scan.count_rows()
    results = [scan, kafkalog.verify(disk), kafkalog.groups(disk)]
    with pytest.warns(kafkalog.CorruptionWarning):
        results.append(kafkalog.convert(disk, tmp_path / "copy", **how))
    with pytest.warns(kafkalog.CorruptionWarning):
        results.append(kafkalog.export(disk, None, **how))
    lines = [str(step) for result in results for step in result.next]
    assert lines == [f"kafkalog boot {disk} -o {disk}-booted"] * 5


def sums(root):
    return {str(path): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def followed(command, capsys):
    """Run a command and all that its advice leads to; the vectors, in order, with the exit code of each of ours."""
    waiting, done = [command], {}
    while waiting:
        vector = tuple(waiting.pop(0))
        assert vector not in done, "advice leads in a circle"
        if vector[0] != "kafkalog":
            done[vector] = None
            continue
        codes = [] if "-o" in vector else [main([*vector[1:]])]
        text = "".join(capsys.readouterr())
        codes.append(main([*vector[1:], "--json"]))
        output, notes = capsys.readouterr()
        objects = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
        steps = [step for one in objects for step in one.get("next", ())]
        if "-o" in vector:
            # boot prints its report, and the others their notes
            text = (Path(vector[-1]) / "report.txt").read_text() if vector[1] == "boot" else notes
        done[vector] = codes[0]
        assert len({*codes}) == 1
        for step in steps:
            # people and programs get the same
            line = shlex.join(step["command"])
            assert line in text.replace("\\", ""), text
            waiting.append(step["command"])
    return done


def follow_all(cluster, command, disks, capsys):
    """Follow all advice of a command on some disks of a cluster: it ends at a broker that serves all that is intact."""
    before = sums(cluster.root)
    done = followed(command, capsys)
    assert 2 not in done.values()
    assert 70 not in done.values()
    assert before.items() <= sums(cluster.root).items()
    ours = [vector for vector in done if vector[0] == "kafkalog"]
    if len(ours) == 1:
        assert done[ours[0]] == 0
        return
    assert ours[-1][1] == "boot"
    out = Path(ours[-1][-1])
    starts = [vector for vector in done if vector[0] == "kafka-server-start.sh"]
    assert starts == [("kafka-server-start.sh", str(out / "server.properties"))]
    assert read_settings(out / "server.properties")["log.dirs"] == str(out / "data")
    assert main(["preflight", str(out / "data")]) == 0
    assert "next:" not in "".join(capsys.readouterr())
    for topic in TOPICS:
        some = [cluster.intact(disk / f"{topic}-0", topic) for disk in disks]
        folder = out / "data" / f"{topic}-0"
        served = {without_epoch(one) for one in output_of(folder)} if folder.is_dir() else set()
        histories = cluster.truth(topic) if len(disks) == 3 else None
        wanted = [{*some[0]}] if len(disks) == 1 else [{*history} for history in histories or [[]]]
        assert any({without_epoch(one.data) for one in history} <= served for history in wanted), topic


def without_epoch(data):
    """A batch without its leader epoch: salvage takes that of a wrong file, which no checksum contradicts."""
    return data[:12] + data[16:]


FIRST = ("verify", "preflight", "report", "recover", "salvage", "merge")


def first_command(first, disks, output):
    made = ["-o", str(output)]
    options = {"recover": ["--dry-run"], "salvage": made, "merge": made}
    return ["kafkalog", first, *map(str, disks), *options.get(first, ())]


@pytest.mark.parametrize("first", FIRST)
@pytest.mark.parametrize("seed", thinned(range(max(fuzz_inputs() // 1500, 12)), 12))
def test_all_advice_runs_literally_and_loses_no_record(tmp_path, capsys, first, seed):
    cluster = Cluster(tmp_path / "it's here", 1000 + seed)
    cluster.damage(cluster.rng.choice((1, 2, 5)), (*KINDS, *OTHER_KINDS, *OTHER_KINDS))
    disks = cluster.disks
    if first in ("recover", "salvage") or (first != "merge" and seed % 2 == 0):
        disks = [max(cluster.disks, key=lambda one: len(list(one.iterdir())))]
    follow_all(cluster, first_command(first, disks, tmp_path / "made"), disks, capsys)


def test_a_topic_of_which_the_metadata_log_has_lost_all_partitions_is_made_again(tmp_path, capsys):
    test_all_advice_runs_literally_and_loses_no_record(tmp_path, capsys, "recover", 93)
    assert "single-c: 1 partition, 0 offsets" in next(tmp_path.rglob("report.txt")).read_text()


DAMAGES = {
    "a wrong file of leader epochs": "wrong_epochs",
    "no file of leader epochs": "lose_epochs",
    "a wrong index": "garble_an_index",
    "no topic id": "lose_partition_metadata",
    "the last segment cut": "cut_anywhere",
    "a middle segment gone": "lose_a_middle_segment",
    "a damaged metadata log": "flip_metadata",
    "the metadata log cut": "cut_metadata",
    "a bit": "flip",
}


@pytest.mark.parametrize(("damage", "first"), thinned([(one, first) for one in DAMAGES for first in FIRST], 17))
def test_advice_after_each_kind_of_damage_runs_literally(tmp_path, capsys, damage, first):
    cluster = Cluster(tmp_path, 77)
    (kind,) = [one for one in (*KINDS, *OTHER_KINDS) if one.__name__ == DAMAGES[damage]]
    do_damage(cluster, kind, 0, "orders-0")
    assert cluster.done
    # an output that exists is not replaced
    (tmp_path / "disk-1-booted").mkdir()
    disks = cluster.disks if first == "merge" else cluster.disks[:1]
    follow_all(cluster, first_command(first, disks, tmp_path / "made"), disks, capsys)


def test_advice_lists_each_directory_once(tmp_path, monkeypatch):
    disk, listed, scandir = tmp_path / "disk", [], os.scandir
    for number in range(3):
        replica(disk, LOG, bases=(0, 6)).rename(disk / f"u-{number}")
    monkeypatch.setattr(os, "scandir", lambda path: listed.append(str(path)) or scandir(path))
    boot_steps([str(disk)])
    partitions = [path for path in listed if path.startswith(f"{disk}/u-")]
    assert len(partitions) == len({*partitions}) == 3


def test_an_output_is_named_that_boot_takes(tmp_path):
    disk = tmp_path / "disk-1,2"
    flip(replica(disk, LOG, bases=(0, 6, 12, 18)))
    outputs = []
    for _ in range(3):
        (row,) = kafkalog.report(disk).as_dict()["next"]
        outputs.append(row["command"][-1])
        assert main([*row["command"][1:], "-q"]) == 1
    assert outputs == [f"{tmp_path}/disk-1-2-booted{suffix}" for suffix in ("", "-2", "-3")]


@pytest.mark.parametrize("known_by", ["settings", "metadata of segments", ""])
def test_advice_names_the_remote_storage_of_tiered_topics(tmp_path, capsys, known_by):
    disk = tmp_path / "disk"
    flip(replica(disk, LOG, bases=(0, 6, 12, 18)))
    if known_by == "settings":
        write_metadata(disk, {"t": topic_id(0)}, {(TOPIC, "t"): {"remote.storage.enable": "true"}}, epoch=1)
    elif known_by:
        replica(tmp_path / "other", LOG[:6]).rename(disk / "__remote_log_metadata-0")
    for result in (kafkalog.preflight(disk), kafkalog.report(disk)):
        (step,) = result.as_dict()["next"]
        assert ("add --tiered URL" in step["why"]) is bool(known_by)
    main(["verify", str(disk)])
    assert ("add --tiered URL" in "".join(capsys.readouterr())) is bool(known_by)
    report = kafkalog.boot(disk, tmp_path / "out", dry_run=True)
    assert ("--tiered URL" in report.text()) is (known_by == "metadata of segments")


@pytest.mark.parametrize("name", ["saved", "t-0"])
def test_salvage_and_merge_name_the_boot_of_their_output(tmp_path, capsys, name):
    partition = replica(tmp_path / "disk", LOG, bases=(0, 6, 12, 18), damaged=(7,))
    sources = [str(partition if name == "t-0" else partition.parent)]
    for command in ("salvage", "merge"):
        (tmp_path / command).mkdir()
        out = tmp_path / command / name
        assert main([command, *sources, "-o", str(out)]) == 1
        line = f"kafkalog boot {out} -o {out}-booted"
        assert f"next: {line} (" in capsys.readouterr().err
        assert main([*line.split()[1:], "-q"]) == 1
        assert len(output_of(Path(f"{out}-booted") / "data" / "t-0")) == 23
        assert main([command, *sources, "--dry-run"]) == 1
        assert f"next: kafkalog boot {tmp_path}/disk -o {tmp_path}/disk-booted (" in capsys.readouterr().err


def test_a_boot_comes_after_the_restoration_of_what_has_lost_its_name(tmp_path, capsys):
    disk = tmp_path / "disk"
    partition = replica(disk, LOG, bases=(0, 6, 12, 18))
    segment = partition / f"{6:020}.log"
    (partition / f"{segment.name}.gz").write_bytes(gzip.compress(segment.read_bytes()))
    segment.unlink()
    # fsck has found a partition, and not its name
    found = replica(tmp_path / "other", LOG).rename(tmp_path / "#131073")
    (disk / "lost+found").mkdir()
    found.rename(disk / "lost+found" / found.name)
    waits = (
        f"# first restore the .log files of t-0/{segment.name}.gz and give lost+found/#131073 the name of its partition"
    )
    for command in ("preflight", "report"):
        main([command, str(disk)])
        assert f"{waits} (TOPIC-N): kafkalog boot {disk} -o" in "".join(capsys.readouterr()).replace("\\", "")
    segment.write_bytes(gzip.decompress((partition / f"{segment.name}.gz").read_bytes()))
    (disk / "lost+found" / found.name).rename(disk / "u-0")
    (step,) = kafkalog.preflight(disk).next
    assert step.after == ""
    assert main([*step.command[1:], "-q"]) == 1  # no metadata log has the settings
    assert [len(output_of(tmp_path / "disk-booted" / "data" / name)) for name in ("t-0", "u-0")] == [24, 24]


@pytest.mark.parametrize("bases", [(0, 6, 12, 18), (0,)])
def test_segments_in_lost_and_found_come_back_by_advice(tmp_path, capsys, bases):
    disk = tmp_path / "disk"
    partition = replica(disk, LOG, bases=bases)
    (replica(tmp_path / "other", [(1, offset + 1000) for offset in range(9)])).rename(disk / "u-0")
    write_metadata(disk, ["t", "u"], {}, epoch=1)
    (disk / "lost+found").mkdir()
    (disk / "lost+found" / "#7").write_text("no segment")
    for number, path in enumerate(sorted(partition.glob("*.log"))):
        path.rename(disk / "lost+found" / f"#{12345 + number}")
    shutil.rmtree(partition)
    line = f"kafkalog undelete {disk}/lost+found --log-dir {disk} -o {disk}-undeleted"
    for command in ("preflight", "report"):
        main([command, str(disk)])
        assert line in "".join(capsys.readouterr()).replace("\\", "")
    step, *others = kafkalog.report(disk).as_dict()["next"]
    (line,) = [one["line"] for one in others]
    assert line == f"# If undelete brings nothing back: kafkalog boot {disk} -o {disk}-booted"
    (boot,) = advice(step["command"], capsys)
    assert boot[:2] == ["kafkalog", "boot"]
    assert main([*boot[1:], "-q"]) == 1  # nothing tells that it is t-0
    data = tmp_path / "disk-booted" / "data"
    assert output_of(data / "unknown-0001-0") == [batch(offset, LOG[offset]) for offset in range(24)]
    assert len(output_of(data / "u-0")) == 9


def test_boot_names_packed_segments_of_a_partition_without_any_log(tmp_path, capsys):
    disk = tmp_path / "disk"
    partition = replica(disk, LOG, bases=(0, 6))
    replica(tmp_path / "other", LOG).rename(disk / "u-0")
    for path in [*partition.glob("*.log")]:
        (partition / f"{path.name}.zst").write_bytes(b"packed")
        path.unlink()
    report = kafkalog.boot(disk, tmp_path / "out")
    (lost,) = [one for one in report.findings.rows if one.damage]
    assert lost.detail.endswith(f"{0:020}.log.zst, {6:020}.log.zst may have them: restore the .log from it first")


def rsync_was_stopped(cluster):
    segment = cluster.logs(cluster.disks[0] / "single-a-0")[-1]
    segment.rename(segment.with_name(f".{segment.name}.aB3x9Z"))
    return "single-a"


def another_cluster_id(cluster):
    (cluster.disks[1] / "meta.properties").write_text("version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAw\nnode.id=7\n")


def another_topic_under_a_name(cluster):
    shutil.copytree(cluster.disks[0] / "single-a-0", cluster.disks[0] / "single-b-0")


def a_topic_id_of_none(cluster):
    for name in ("single-a-0", "orders-0"):
        (cluster.disks[0] / name / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id(77)}")


def a_segment_next_to_the_partitions(cluster):
    segment = cluster.logs(cluster.disks[0] / "single-a-0")[0]
    segment.rename(cluster.disks[0] / segment.name)


def segments_in_two_places(cluster):
    other = cluster.root / "disk-1b"
    (other / "single-a-0").mkdir(parents=True)
    for segment in cluster.logs(cluster.disks[0] / "single-a-0")[::2]:
        segment.rename(other / "single-a-0" / segment.name)
    cluster.disks.append(other)


def a_link_to_another_disk(cluster):
    (cluster.root / "elsewhere").mkdir()
    partition = cluster.disks[0] / "single-a-0"
    partition.symlink_to(partition.rename(cluster.root / "elsewhere" / "single-a-0"))
    (cluster.disks[0] / "meta.properties").unlink()


def a_copy_into_the_log_dir(cluster):
    inner = cluster.disks[0] / "restored"
    cluster.disks[0].rename(cluster.root / "other")
    cluster.disks[0].mkdir()
    (cluster.root / "other").rename(inner)
    (cluster.disks[0] / "meta.properties").write_bytes((inner / "meta.properties").read_bytes())


def a_topic_renamed(cluster):
    (cluster.disks[0] / "single-a-0").rename(cluster.disks[0] / "single-a-old-0")
    return "single-a"


def a_copy_by_windows(cluster):
    partition = cluster.disks[0] / "single-a-0"
    for path in [*partition.iterdir()]:
        path.rename(path.with_name(path.name.upper()))
    partition.rename(cluster.disks[0] / "SINGLE-A-0")
    return "single-a"


def parts_of_rsync(cluster):
    partition = cluster.disks[0] / "single-a-0"
    (partition / ".rsync-partial").mkdir()
    segment = cluster.logs(partition)[0]
    segment.rename(partition / ".rsync-partial" / segment.name)
    return "single-a"


def names_swapped(cluster):
    one, other = (cluster.disks[0] / name for name in ("single-a-0", "orders-0"))
    one.rename(cluster.root / "aside")
    other.rename(one)
    (cluster.root / "aside").rename(other)
    return "single-a"


def a_copy_by_a_file_manager(cluster):
    segment = cluster.logs(cluster.disks[0] / "single-a-0")[1]
    segment.rename(segment.with_name(f"{segment.stem} (1).log"))
    return "single-a"


def a_link_to_nowhere(cluster):
    partition = cluster.disks[0] / "single-a-0"
    shutil.rmtree(partition)
    partition.symlink_to(cluster.root / "not-mounted")
    segment = cluster.logs(cluster.disks[0] / "orders-0")[0]
    segment.write_bytes(segment.read_bytes()[:-9])
    return "single-a"


def a_disk_in_an_archive(cluster):
    shutil.copytree(cluster.disks[0], cluster.root / "other")
    shutil.rmtree(cluster.disks[0])
    cluster.disks[0].mkdir()
    (cluster.disks[0] / "disk-1.tar.gz").write_bytes(b"")
    cluster.disks.append(cluster.root / "other")


def a_partition_without_its_directory(cluster):
    (cluster.disks[0] / "single-a-0").rename(cluster.root / "single")
    cluster.disks.append(cluster.root / "single")
    return "single-a"


SAID = {
    "names_swapped": "orders-0: left out: it is single-a-0, by the metadata log in",
    "a_copy_by_a_file_manager": " (1).log may have them: restore the .log from it first",
    "a_link_to_nowhere": "not-mounted, which is not there",
    "a_disk_in_an_archive": "disk-1.tar.gz is not read: unpack it first",
    "a_partition_without_its_directory": "first give single the name of its partition",
    "a_topic_renamed": "it is single-a-0, by the metadata log in",
    "a_copy_by_windows": f"first restore the .log files of SINGLE-A-0/{0:020}.LOG",
    "parts_of_rsync": "first restore the .log files of single-a-0/.rsync-partial",
}
OPERATORS = [
    *(a_link_to_another_disk, a_copy_into_the_log_dir, a_topic_renamed, a_copy_by_windows, parts_of_rsync),
    *(rsync_was_stopped, another_cluster_id, another_topic_under_a_name, a_topic_id_of_none),
    *(a_segment_next_to_the_partitions, segments_in_two_places, names_swapped, a_copy_by_a_file_manager),
    *(a_link_to_nowhere, a_disk_in_an_archive, a_partition_without_its_directory),
]


@pytest.mark.parametrize("mistake", thinned(OPERATORS, 3))
def test_three_commands_lead_from_a_mistake_to_all_that_is_intact(tmp_path, capsys, mistake):
    cluster = Cluster(tmp_path, 5)
    lacking = mistake(cluster)
    command, n_commands = ["kafkalog", "report", *map(str, cluster.disks)], 0
    main(command[1:])
    text = "".join(capsys.readouterr()).replace("\\", "")
    while command[0] == "kafkalog":
        command, n_commands = advice(command, capsys)[0], n_commands + 1
    assert n_commands <= 3
    assert command == ["kafka-server-start.sh", f"{cluster.disks[0]}-booted/server.properties"]
    assert SAID.get(mistake.__name__, "") in text + (tmp_path / "disk-1-booted" / "report.txt").read_text()
    data = tmp_path / "disk-1-booted" / "data"
    for topic in TOPICS:
        served = {without_epoch(one) for one in output_of(data / f"{topic}-0")}
        wanted = [[without_epoch(one.data) for one in branch] for branch in cluster.branches[topic]]
        assert any({*branch} <= served for branch in wanted) is not (lacking == topic), topic
