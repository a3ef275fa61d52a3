"""The index interval is found in the cluster's metadata, or by the entries of existing indexes."""

import shutil
from pathlib import Path

import golden_sets
import pytest
from rebuilds import batches_of, clock_of, files_in
from refusals import fails_with

import kafkalog
from kafkalog.errors import OutputExistsError, Reason, UnsafePathError
from kafkalog.indexes.index_files import OffsetIndex
from kafkalog.operations.rebuilding.index_interval import interval_bounds
from kafkalog.operations.rebuilding.rebuilder import KINDS
from kafkalog.state.cluster_image import TOPIC
from kafkalog.state.cluster_metadata import read_cluster_metadata


def test_what_is_not_there_to_go_by_is_found_out(tmp_path):
    configs = read_cluster_metadata(golden_sets.unpacked("k44"))
    assert configs is not None
    assert configs.findings == []
    assert configs.settings[TOPIC, "p-mixcodec"]["index.interval.bytes"] == "2048"
    report = kafkalog.reindex(golden_sets.unpacked("k44"), dry_run=True)
    assert report.intervals["p-mixcodec-0"] == (2048, "cluster metadata")
    assert report.intervals["p-dense-0"] == (0, "cluster metadata")
    alone = kafkalog.reindex(golden_sets.unpacked("k44_extra"), dry_run=True)
    assert {origin for _, origin in alone.intervals.values()} == {"existing indexes"}
    assert alone.intervals["p-idem-now-0"].n_bytes == 1024
    shutil.copytree(golden_sets.unpacked("k44_extra") / "p-idem-now-0", tmp_path / "p-idem-now-0")
    for path in tmp_path.rglob("*.index"):
        path.unlink()
    assert kafkalog.reindex(tmp_path, dry_run=True).intervals["p-idem-now-0"] == (4096, "default")
    assert kafkalog.reindex(tmp_path, dry_run=True, index_interval_bytes=7).intervals["p-idem-now-0"][1] == ("given")


def test_the_bounds_of_an_interval_are_those_that_give_the_same_index():
    n_bounded = 0
    for path in golden_sets.partitions("k44").values():
        for segment in kafkalog.Partition(path).segments:
            bounds = interval_bounds(segment)
            if bounds is None or segment.offset_index is None:
                continue
            n_bounded += 1
            least, most = bounds

            def entries(interval, segment=segment):
                built = OffsetIndex.build(segment.batches, segment.base_offset, index_interval_bytes=interval)
                return built.entries.tobytes()

            right = segment.offset_index.entries.tobytes()
            assert entries(least) == entries(most) == right
            assert least == 0 or entries(least - 1) != right
            assert entries(most + 1) != right
    assert n_bounded > 30


def test_a_segment_alone_says_what_it_cannot_tell(partition, tmp_path):
    path, _ = batches_of(partition, 2)
    shutil.copy(path, tmp_path)
    report = kafkalog.reindex(tmp_path / path.name, kinds=KINDS, dry_run=True)
    assert {file.kind for file in report.files} == {"offset", "time"}
    assert {skipped.kind for skipped in report.skipped} == {"txn", "snapshot", "epochs"}
    inside = kafkalog.reindex(path, kinds=KINDS[:4], dry_run=True, now=clock_of("k44_extra"))
    assert inside.skipped == []
    assert {file.change for file in inside.files} == {"same"}
    assert {file.kind for file in inside.files} == {"offset", "time", "snapshot"}


def test_output_into_the_log_dir_is_refused(partition, tmp_path):
    (partition.parent / "meta.properties").touch()  # what makes it a broker's
    for out in (partition / "new", partition.parent / "new"):
        with pytest.raises(UnsafePathError):
            kafkalog.reindex(partition, output=out)
    (tmp_path / "there" / "old").mkdir(parents=True)
    with pytest.raises(OutputExistsError):
        kafkalog.reindex(partition, output=tmp_path / "there")


def test_segments_that_are_named_are_no_partition_of_their_own(log_dir, tmp_path):
    directory = shutil.copytree(log_dir / "p-txn-0", tmp_path / "p-txn-0")
    kafkalog.reindex(directory, in_place=True, backup=False, kinds=KINDS, now=1_700_000_100_000)
    whole = files_in(directory)
    named = [directory / f"{offset:020d}.log" for offset in (164, 300)]
    mine = {f"{offset:020d}.{suffix}" for offset in (164, 300) for suffix in ("index", "timeindex", "txnindex")}
    mine |= {f"{offset:020d}.snapshot" for offset in (300, 304)}  # that of 164 is what the replay begins with
    for path in directory.iterdir():
        if path.name in mine and path.suffix != ".snapshot":
            path.write_bytes(b"")
    for kinds in (("offset", "time"), KINDS):
        report = kafkalog.reindex(named, in_place=True, backup=False, kinds=kinds, now=1_700_000_100_000)
        assert {Path(file.path).name for file in report.files} <= mine
    assert {Path(file.path).name for file in report.files} == mine & whole.keys()
    assert [skipped.kind for skipped in report.skipped] == ["epochs"]
    assert files_in(directory) == whole


def test_what_is_odd_about_a_log_dir_is_said(log_dir, tmp_path):
    twice = [shutil.copytree(log_dir / "p-multi-0", tmp_path / name / "p-multi-0") for name in ("a", "b")]
    report = kafkalog.reindex(twice, dry_run=True)
    assert [finding.reason for finding in report.findings.rows] == [Reason.PARTITION_TWICE]


def test_a_segment_that_lies_anywhere_can_be_rebuilt_beside_it(log_dir, tmp_path):
    alone = shutil.copy(log_dir / "p-multi-0" / f"{0:020d}.log", tmp_path)
    report = kafkalog.reindex(alone, output=tmp_path / "out", kinds=("offset", "time"))
    assert len(report.files) == len([path for path in (tmp_path / "out").rglob("*index") if path.is_file()]) == 2
    beside = shutil.copytree(log_dir / "p-multi-0", tmp_path / "p-multi-0")
    kafkalog.reindex(beside, output=tmp_path / "more")
    with pytest.raises(UnsafePathError):
        kafkalog.reindex(beside, output=beside / "inside")
    with pytest.raises(UnsafePathError):
        kafkalog.reindex(kafkalog.LogDir([tmp_path]), output=tmp_path / "inside")
    report = kafkalog.reindex(kafkalog.LogDir([tmp_path]), topics="!*", output=tmp_path / "none")
    assert not report.files
    assert not (tmp_path / "none").exists()


def test_a_second_file_of_an_offset_is_named_and_cannot_be_chosen(log_dir, tmp_path):
    directory = shutil.copytree(log_dir / "p-multi-0", tmp_path / "p-multi-0")
    second = shutil.copy(directory / f"{0:020d}.log", directory / "0.log")
    for report in (kafkalog.reindex(directory, dry_run=True), kafkalog.salvage(tmp_path, dry_run=True)):
        assert [(one.path, one.reason) for one in report.findings.rows if one.damage] == [(str(second), "unknown_file")]
    with fails_with("not_kafka"):
        kafkalog.salvage(second, dry_run=True)
