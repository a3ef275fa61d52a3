"""Rebuilt files are, byte for byte, those that brokers rebuilt; damage stops where a broker's recovery stops."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import golden_sets
import numpy as np
import pytest
from effort import thinned
from files import broker_on
from rebuilds import EPOCHS, clock_of, files_in
from refusals import fails_with

import kafkalog
from kafkalog.cli.app import main
from kafkalog.errors import KafkalogError, Reason
from kafkalog.indexes.index_files import OffsetIndex, TimeIndex
from kafkalog.operations.rebuilding.rebuilder import KINDS


def interval_of(set_name, directory):
    """What the topics of a set were made with; None where the cluster's metadata says it."""
    if set_name == "k28":
        return 4096 if directory.startswith("__") or "-vintage-" in directory or "-big-" in directory else 1024
    if set_name == "k44_extra":
        return 512 if "-compact-" in directory else 1024
    return None


def hostile(rng, data):
    """A derived file, damaged."""
    kind = int(rng.integers(5))
    if kind == 0:
        return data[: int(rng.integers(len(data) + 1))]
    if kind == 1:
        return rng.bytes(int(rng.integers(200)))
    if kind == 2:
        return data + bytes(int(rng.integers(1, 5000)))
    if kind == 3:
        return b"\xff" * len(data)
    changed = bytearray(data or b"\0")
    for at in rng.integers(len(changed), size=3).tolist():
        changed[at] = int(rng.integers(256))
    return bytes(changed)


def derived(partition):
    yield from (path for path in sorted(partition.iterdir()) if path.suffix not in (".log", ".metadata"))


def rebuilt(set_name, tmp_path, **options):
    """What we make of a set's `.log` files, and what the broker made."""
    expected = files_in(golden_sets.unpacked(set_name, "rebuilt"))
    names = sorted({name.partition("/")[0] for name in expected})
    log_dir = tmp_path / "logs"
    shutil.copytree(golden_sets.unpacked(set_name), log_dir)
    for path in log_dir.rglob("*"):  # out of the .log files alone
        if path.suffix in (".index", ".timeindex", ".txnindex", ".snapshot"):
            path.unlink()
    ours = {}
    for name in names:
        out = tmp_path / "out" / name
        out.parent.mkdir(exist_ok=True)
        report = kafkalog.reindex(
            log_dir / name,
            kinds=KINDS,
            output=out,
            index_interval_bytes=interval_of(set_name, name),
            now=clock_of(set_name),
            **options,
        )
        assert not report.findings.n_damage
        ours |= files_in(out)
    return ours, expected


def but_for_the_reboot(content, log_end_offset):
    """Epochs that begin before the end of the log: elections without a batch, such as the reboot's, come and go."""
    _, _, *lines = content.decode().splitlines()
    return [entry for line in lines if (entry := [int(word) for word in line.split()])[1] < log_end_offset]


@pytest.mark.parametrize(
    ("set_name", "n_files"),
    thinned([("k44_extra", 53), ("k44", 343), ("k28", 302)], 3),
)
def test_every_file_that_a_broker_rebuilt_is_reproduced(set_name, n_files, tmp_path):
    """Byte for byte, but for one kind of file: `leader-epoch-checkpoint` has the epoch of the broker's reboot."""
    ours, expected = rebuilt(set_name, tmp_path, threads=2)
    assert len(expected) >= n_files
    n_epochs = 0
    for name in sorted(expected):
        if not name.endswith(EPOCHS):
            assert ours[name] == expected[name], name
            continue
        end = kafkalog.Partition(golden_sets.unpacked(set_name) / name.partition("/")[0]).log_end_offset
        assert but_for_the_reboot(ours.get(name, b"0\n0\n"), end) == but_for_the_reboot(expected[name], end), name
        n_epochs += 1
    assert n_epochs > 3
    assert not [name for name in ours if name not in expected and not name.endswith(EPOCHS)]


def test_a_built_index_finds_what_is_there():
    (segment, *_) = kafkalog.Partition(golden_sets.unpacked("k44") / "p-none-java-0").segments
    index = OffsetIndex.build(segment.batches, segment.base_offset)
    times = TimeIndex.build(segment.batches, segment.base_offset)
    assert len(index) == 7
    assert len(times) == len(index)
    assert times.timestamp[-1] == segment.batches.max_timestamp.max()
    with pytest.raises(ValueError, match="offset_outside_segment"):
        OffsetIndex.build(segment.batches, segment.base_offset + 10_000)
    with pytest.raises(ValueError, match="index_interval_bytes"):
        OffsetIndex.build(segment.batches, 0, index_interval_bytes=-1)


def test_a_running_broker_is_not_disturbed(partition, capsys):
    with broker_on(partition.parent):
        with fails_with("unsafe_path"):
            kafkalog.reindex(partition, in_place=True)
        assert main(["reindex", str(partition), "--in-place"]) == 6
    assert "a broker holds the lock" in capsys.readouterr().err
    assert main(["reindex", "-q", str(partition), "--in-place"]) == 0


@pytest.mark.slow
def test_damaged_derived_files_never_matter_to_a_rebuild(partition):
    rng = np.random.default_rng(5)
    options = {"kinds": KINDS, "index_interval_bytes": 1024, "now": clock_of("k44_extra")}
    kafkalog.reindex(partition, in_place=True, backup=False, **options)
    right = files_in(partition)
    segments = kafkalog.Partition(partition).segments
    for number in range(120):
        for path in derived(partition):
            path.write_bytes(hostile(rng, right[path.name]))
        try:
            kafkalog.reindex(segments[number % 4].path, kinds=KINDS, dry_run=True)
            report = kafkalog.reindex(partition, kinds=KINDS, dry_run=True)
        except KafkalogError as error:
            pytest.fail(f"{error} in round {number}")
        assert {finding.reason for finding in report.findings.rows} <= {Reason.CHECKPOINT_SYNTAX}
        (partition / EPOCHS).unlink()
        kafkalog.reindex(partition, in_place=True, backup=False, **options)
        assert {**files_in(partition), EPOCHS: b""} == {**right, EPOCHS: b""}


def test_options_that_make_no_sense_are_refused(partition):
    for options in (
        {},
        {"in_place": True, "output": "x"},
        {"dry_run": True, "backup": True},
        {"dry_run": True, "threads": 0},
    ):
        with pytest.raises(ValueError, match=r"output|backup|threads"):
            kafkalog.reindex(partition, **options)
    with pytest.raises(ValueError):
        kafkalog.reindex(partition, dry_run=True, kinds=["all"])


def test_who_reads_the_output_may_go_before_the_work_is_done(partition):
    names = files_in(partition).keys()
    for path in partition.glob("*index"):
        path.unlink()
    program = "import sys; from kafkalog.cli.app import main; sys.exit(main(sys.argv[1:]))"
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-c", program, "reindex", "--in-place", str(partition)]
    done = subprocess.run(command, stdout=write, stderr=subprocess.PIPE, check=False)
    os.close(write)
    assert done.returncode not in (0, 70), done.stderr
    assert files_in(partition).keys() == names
    assert kafkalog.verify(partition).ok


def test_indexes_of_an_unfinished_swap_are_its_own(log_dir, tmp_path):
    directory = shutil.copytree(log_dir / "p-multi-0", tmp_path / "p-multi-0")
    for path in directory.glob(f"{120:020d}.*"):
        if path.suffix in (".log", ".index", ".timeindex", ".txnindex"):
            shutil.copy(path, path.with_name(path.name + ".swap"))
    whole = files_in(directory)
    (directory / f"{120:020d}.index.swap").write_bytes(bytes(13))
    (partition,) = kafkalog.verify(directory).partitions
    findings = [finding for segment in partition.segments for finding in segment.findings]
    assert {Path(one.path or "").name for one in findings if one.damage} == {f"{120:020d}.index.swap"}
    kafkalog.reindex(directory, in_place=True, backup=False)
    assert files_in(directory) == whole
