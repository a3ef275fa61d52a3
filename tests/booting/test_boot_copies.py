"""Boot from several copies, damaged or not: what is intact on any disk is served, in the history that leads."""

import contextlib
import random
import shutil

import builder
import pytest
from effort import trials
from merges import batch, replica
from salvages import output_of

import kafkalog
from kafkalog.cli.app import main

LOG = [(1, offset) for offset in range(24)]
BASES = (0, 6, 12, 18)
KNOWN = ["--set", "t:cleanup.policy=delete"]


def disks(tmp_path, *damaged, log=LOG, bases=BASES):
    """Log dirs of three brokers with copies of a partition; of each, the offsets whose batches have a wrong byte."""
    found = []
    for number, bad in enumerate(damaged, 1):
        folder = tmp_path / f"disk-{number}"
        replica(folder, log, bases=bases, damaged=bad)
        (folder / "meta.properties").write_text(f"version=1\ncluster.id=abc\nnode.id={number}\n")
        found.append(folder)
    return found


def offsets(root):
    return kafkalog.read_table(root, columns=["offset"]).column("offset").to_pylist()


def served(sources, out, **options):
    """What a boot serves, and what it says is lost."""
    report = kafkalog.boot(sources, out, **options)
    losses = sorted(
        (one.base_offset, one.last_offset) for one in report.findings.rows if one.damage and one.n_records != 0
    )
    return output_of(out / "data" / "t-0"), losses


def test_a_flipped_bit_on_one_of_three_disks_costs_nothing(tmp_path):
    one, two, three = disks(tmp_path, {7}, (), ())
    report = kafkalog.boot([one, two, three], tmp_path / "out")
    assert report.ok
    assert offsets(tmp_path / "out" / "data") == [*range(24)]
    assert main(["boot", str(one), str(two), "-o", str(tmp_path / "b"), "-q", "--best", *KNOWN]) == 0
    report = kafkalog.boot([one, two, three], tmp_path / "all", nodes=3)
    assert report.ok
    copies = [output_of(tmp_path / "all" / f"node-{number}" / "data" / "t-0") for number in (1, 2, 3)]
    assert copies[0] == copies[1] == copies[2]
    assert len(copies[0]) == 24


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
@pytest.mark.parametrize("nodes", [1, 3])
def test_a_salvaged_copy_with_a_hole_does_not_win(tmp_path, order, nodes):
    sources = disks(tmp_path, {7}, (), ())
    kafkalog.salvage(sources[0], tmp_path / "saved")
    sources[0] = tmp_path / "saved"
    report = kafkalog.boot([sources[number] for number in order], tmp_path / "out", nodes=nodes)
    assert report.ok
    for path in tmp_path.glob("out/**/t-0"):
        assert len(output_of(path)) == 24


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_missing_middle_segment_comes_from_another_disk(tmp_path, missing):
    sources = disks(tmp_path, (), (), ())
    (sources[missing] / "t-0" / f"{6:020}.log").unlink()
    report = kafkalog.boot(sources, tmp_path / "out")
    assert report.ok
    assert offsets(tmp_path / "out" / "data") == [*range(24)]


def test_a_single_damaged_copy_gives_its_intact_batches_and_the_loss_is_named(tmp_path, capsys):
    (source,) = disks(tmp_path, {7, 8})
    assert main(["boot", str(source), "-o", str(tmp_path / "out"), "-q"]) == 1
    assert offsets(tmp_path / "out" / "data") == [*range(7), *range(9, 24)]
    assert "no copy has offsets 7..9" in capsys.readouterr().out
    dry = kafkalog.boot(source, tmp_path / "dry", dry_run=True)
    wet = kafkalog.boot(source, tmp_path / "wet")
    assert dry.as_dict()["partitions"] == wet.as_dict()["partitions"]
    assert dry.as_dict()["findings"] == wet.as_dict()["findings"]
    (loss,) = [one for one in wet.findings.rows if one.damage]
    assert (loss.base_offset, loss.last_offset, loss.n_records) == (7, 8, 2)
    kafkalog.salvage(source, tmp_path / "saved")
    again = kafkalog.boot(tmp_path / "saved", tmp_path / "again")
    assert [(one.base_offset, one.last_offset) for one in again.findings.rows if one.damage] == [(7, 8)]


def test_the_longer_copy_leads_and_its_hole_is_filled_after_a_salvage_too(tmp_path):
    one, two = disks(tmp_path, {3, 13}, {20})
    for base in (18,):
        (two / "t-0" / f"{base:020}.log").unlink()
    kafkalog.salvage(one, tmp_path / "saved")
    for first, out in ((one, "a"), (tmp_path / "saved", "b")):
        assert kafkalog.boot([two, first], tmp_path / out).ok
        assert offsets(tmp_path / out / "data") == [*range(24)]


def damage(rng, folder):
    """Do what disks do to a copy."""
    logs = sorted((folder / "t-0").glob("*.log"))
    path = rng.choice(logs)
    kind = rng.randrange(3)
    if kind == 0:
        data = bytearray(path.read_bytes())
        # not in a header, whose offsets and epochs have no checksum
        with contextlib.suppress(ValueError, IndexError):
            start, _ = rng.choice([*builder.batch_positions(bytes(data))])
            data[start + 30] ^= 1
        path.write_bytes(data)
    elif kind == 1 and path != logs[-1] and len(logs) > 1:
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[: rng.randrange(path.stat().st_size + 1)])


@pytest.mark.parametrize("seed", range(trials(2, 15)))
def test_neither_the_order_of_disks_nor_a_salvage_before_changes_what_is_served(tmp_path, seed):
    rng = random.Random(seed)
    sources = disks(tmp_path, (), (), ())
    for source in sources:
        for _ in range(rng.choice((0, 1, 1, 2))):
            damage(rng, source)
    data = b"".join(path.read_bytes() for source in sources for path in source.glob("t-0/*.log"))
    intact = {offset for offset in range(24) if batch(offset, LOG[offset]) in data}
    first, losses = served(sources, tmp_path / "out")
    assert first == [batch(offset, LOG[offset]) for offset in sorted(intact)]
    lacking = {offset for begin, last in losses for offset in range(begin, (last or begin) + 1)}
    assert {*range(max(intact, default=0))} - intact <= lacking
    assert not lacking & intact
    rng.shuffle(sources)
    assert served(sources, tmp_path / "shuffled") == (first, losses)
    for number, source in enumerate(sources):
        if rng.random() < 0.6:
            saved = tmp_path / f"saved-{number}"
            kafkalog.salvage(source, saved)
            sources[number] = saved
    again, losses_again = served(sources, tmp_path / "again")
    assert again == first
    if not losses:
        assert losses_again == []


@pytest.mark.parametrize("nodes", ["3", "1@a:9092:9093,2@b:9092:9093,3@c:9092:9093"])
def test_the_command_makes_several_nodes(tmp_path, nodes):
    sources = disks(tmp_path, {7}, (), ())
    assert main(["boot", *map(str, sources), "-o", str(tmp_path / "out"), "-q", "--nodes", nodes, *KNOWN]) == 0
    copies = [output_of(tmp_path / "out" / f"node-{number}" / "data" / "t-0") for number in (1, 2, 3)]
    assert copies[0] == copies[1] == copies[2]


@pytest.mark.parametrize("node", ["3000000000@h:1", "a b:9092", "h\n:9092", "a,b:9092"])
def test_a_node_that_no_broker_takes_is_refused(tmp_path, node):
    sources = disks(tmp_path, (), (), ())
    with pytest.raises(ValueError, match="node"):
        kafkalog.boot(sources, tmp_path / "out", nodes=[node])


def test_strict_takes_copies_that_begin_at_other_offsets(tmp_path):
    sources = disks(tmp_path, (), (), ())
    first, *_ = sorted((sources[1] / "t-0").glob("*.log"))
    for path in first.parent.glob(f"{first.stem}.*"):
        path.unlink()
    assert main(["boot", *map(str, sources), "--dry-run", "-q", "--strict", *KNOWN]) == 0


def test_strict_names_the_damage_of_a_copy_and_not_that_copies_differ(tmp_path, capsys):
    sources = disks(tmp_path, (), {7}, ())
    assert main(["boot", *map(str, sources), "--dry-run", "-q", "--strict"]) == 1
    error = capsys.readouterr().err
    assert str(sources[1] / "t-0") in error
    assert "partition_twice" not in error
    assert "the partition is damaged" in error
    (sources[0] / "t-0" / f"{0:020}.log").unlink()
    assert main(["boot", str(sources[1]), "--dry-run", "-q", "--strict"]) == 1


@pytest.mark.parametrize(("options", "code"), [([], 1), (KNOWN, 0), (["--set", "t:cleanup.policy=compact"], 0)])
def test_unknown_settings_are_a_reason_for_exit_code_1_that_one_line_names(tmp_path, capsys, options, code):
    sources = disks(tmp_path, ())
    assert main(["boot", *map(str, sources), "--dry-run", *options]) == code
    printed = capsys.readouterr()
    (line,) = [line for line in printed.out.splitlines() if "exit code is 1" in line or "Nothing is lost" in line]
    assert ("the settings of 1 topic are unknown (t)" in line) is bool(code)
    assert (line in printed.err) is bool(code)
    report = kafkalog.boot(sources, tmp_path / "out", dry_run=True)
    assert report.ok
    assert len(report.doubts) == 1


def test_a_guessed_setting_is_a_reason_for_exit_code_1(tmp_path, capsys):
    (source,) = disks(tmp_path, ())
    (source / "cleaner-offset-checkpoint").write_text("0\n1\nt 0 6\n")
    assert main(["boot", str(source), "--dry-run", "-q", "--set", "t:max.message.bytes=9"]) == 1
    assert "guessed: cleanup.policy of t" in capsys.readouterr().out


def test_settings_of_a_topic_that_is_not_there_are_an_error_that_names_a_near_one(tmp_path, capsys):
    (source,) = disks(tmp_path, (), log=LOG)
    source.joinpath("t-0").rename(source / "orders-0")
    assert main(["boot", str(source), "--dry-run", "-q", "--set", "ordres:retention.ms=5"]) == 2
    assert "did you mean 'orders'?" in capsys.readouterr().err
    assert main(["boot", str(source), "--dry-run", "-q", "--set", "pay*:retention.ms=5"]) == 2
    assert main(["boot", str(source), "--dry-run", "-q", "--set", "ord*:retention.ms=5"]) == 0


def test_copies_that_are_left_out_for_equal_ones_are_one_line_for_each_disk(tmp_path):
    sources = disks(tmp_path, (), (), ())
    for number in range(1, 12):
        for disk in sources:
            shutil.copytree(disk / "t-0", disk / f"t-{number}")
    text = kafkalog.boot(sources, tmp_path / "out", dry_run=True).text()
    lines = [line for line in text.splitlines() if "better or equal" in line]
    assert len(lines) == 2
    assert all("12 copies are left out" in line and "t-0, t-1" in line and "and 4 more" in line for line in lines)


@pytest.mark.parametrize("n", [24, 20])
def test_a_segment_that_salvage_named_after_a_wrong_offset_is_no_end_of_the_log(tmp_path, n):
    # the copy with the wrong offset has lost its first segment, and others have as much at the end, or less
    sources = disks(tmp_path, (), ())
    shutil.rmtree(sources[1] / "t-0")
    replica(sources[1], LOG[: n + 1])
    log = sources[0] / "t-0" / f"{18:020}.log"
    data = bytearray(log.read_bytes())
    start, _ = builder.batch_positions(bytes(data))[-1 if n == 24 else n - 18]
    data[start : start + 8] = (2**61).to_bytes(8, "big")
    log.write_bytes(data[: start + len(batch(23, LOG[23]))])
    (sources[0] / "t-0" / f"{0:020}.log").write_bytes(b"")
    kafkalog.salvage(sources[0], tmp_path / "saved")
    settings = {"t": {"cleanup.policy": "compact"}}
    wanted = served(sources, tmp_path / "first", settings=settings)
    assert len(wanted[0]) == min(n + 1, 24)
    assert served([tmp_path / "saved", sources[1]], tmp_path / "out", settings=settings) == wanted


def test_what_salvage_has_put_into_quarantine_is_no_loss_of_its_output(tmp_path, capsys):
    (source,) = disks(tmp_path, ())
    log = source / "t-0" / f"{18:020}.log"
    log.write_bytes(log.read_bytes() + batch(23, LOG[23]))
    kafkalog.salvage(source, tmp_path / "saved")
    assert (tmp_path / "saved" / "t-0.quarantine").exists()
    assert kafkalog.boot(tmp_path / "saved", tmp_path / "out", settings={"t": {"cleanup.policy": "delete"}}).ok
    main(["report", str(tmp_path / "saved")])
    assert "undelete" not in capsys.readouterr().out
