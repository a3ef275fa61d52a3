"""What a command has reported as lost is known to those that read its output."""

import shutil

from merges import replica

import kafkalog
from kafkalog.cli.app import main
from kafkalog.errors import Reason
from kafkalog.log.searching.missing import offsets_finding
from kafkalog.survey.losses import Lost
from kafkalog.survey.origins import as_known, encode_origin

LOG = [(1, offset) for offset in range(24)]


def damaged(tmp_path, *, damaged=(), missing=None):
    folder = tmp_path / "disk"
    replica(folder, LOG, bases=(0, 6, 12, 18), damaged=damaged)
    if missing is not None:
        (folder / "t-0" / f"{missing:020}.log").unlink()
    return folder


def notes(path):
    found = kafkalog.verify(path)
    assert found.ok
    return [(one.base_offset, one.last_offset) for one in found.findings if "This loss is known" in one.detail]


def test_verify_repeats_the_losses_that_salvage_reported_as_known(tmp_path):
    source = damaged(tmp_path, damaged={1, 22, 23}, missing=6)
    kafkalog.salvage(source, tmp_path / "saved")
    assert main(["verify", str(tmp_path / "saved"), "-q"]) == 0
    assert sorted(notes(tmp_path / "saved")) == [(1, 1), (6, 11), (22, 23)]
    (tmp_path / "moved").mkdir()
    (tmp_path / "saved").rename(tmp_path / "moved" / "saved")
    assert sorted(notes(tmp_path / "moved" / "saved" / "t-0")) == [(1, 1), (6, 11), (22, 23)]
    kafkalog.salvage(source / "t-0", tmp_path / "t-0")
    assert sorted(notes(tmp_path / "t-0")) == [(1, 1), (6, 11), (22, 23)]


def test_a_loss_after_the_salvage_is_damage(tmp_path):
    kafkalog.salvage(damaged(tmp_path, missing=6), tmp_path / "saved")
    assert notes(tmp_path / "saved") == [(6, 11)]
    (tmp_path / "saved" / "t-0" / f"{12:020}.log").unlink()
    assert not kafkalog.verify(tmp_path / "saved").ok


def test_what_no_copy_of_a_merge_had_is_known(tmp_path):
    kafkalog.merge([damaged(tmp_path, damaged={3}, missing=12)], tmp_path / "merged")
    assert sorted(notes(tmp_path / "merged")) == [(3, 3), (12, 17)]


def test_a_merge_of_salvaged_copies_fills_the_holes_that_they_report(tmp_path):
    source = damaged(tmp_path, damaged={7})
    kafkalog.salvage(source, tmp_path / "saved")
    whole = tmp_path / "whole"
    # shorter, so that the copy with the hole leads
    replica(whole, LOG[:20])
    report = kafkalog.merge([tmp_path / "saved", whole], tmp_path / "merged")
    assert report.ok
    assert kafkalog.read_table(tmp_path / "merged", columns=["offset"]).num_rows == 24
    shutil.rmtree(whole)
    report = kafkalog.merge([tmp_path / "saved"], dry_run=True)
    assert [(one.start_offset, one.end_offset) for one in report.partitions[0].missing] == [(7, 8)]


def test_a_gap_that_reaches_past_a_reported_loss_is_damage(tmp_path):
    lost = Lost("t-0", 6, 12, 6, "exact", 0, Reason.OFFSET_GAP)
    (tmp_path / "origin.json").write_bytes(encode_origin("recover", [], losses={"t-0": [lost]}))
    for first, end, is_damage in ((6, 12, False), (7, 11, False), (6, 13, True), (5, 12, True)):
        gap = offsets_finding(Reason.OFFSET_GAP, "gap", str(tmp_path / "t-0"), first, end)
        assert as_known(tmp_path / "t-0", [gap])[0].damage is is_damage, (first, end)
