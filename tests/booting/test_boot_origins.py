"""Outputs of other commands know where they come from, so that boot finds what belongs to them."""

import json
import shutil

import pytest
from golden_sets import unpacked
from metadata_logs import TOPIC, topic_id, write_meta_properties, write_metadata

import kafkalog
from kafkalog.state.cluster_metadata import read_cluster_metadata
from kafkalog.survey.origins import encode_origin, known_losses, origins_of
from kafkalog.writing.partition_writer import PartitionWriter


def log_dir(root):
    write_meta_properties(root)
    for number, topic in enumerate(("orders", "__consumer_offsets")):
        with PartitionWriter(root / f"{topic}-0", topic_id=topic_id(number)) as writer:
            writer.append({"value": [b"1", b"2", b"3"]} if topic == "orders" else {"key": [b"k"], "value": [b"v"]})
    write_metadata(root, ["orders", "__consumer_offsets", "gone"], {(TOPIC, "orders"): {"retention.ms": "5000"}})
    (root / "log-start-offset-checkpoint").write_text("0\n1\norders 0 1\n")
    return root


def made_from(root, out):
    """Each way to make an output from a log dir, or from one of its partitions."""
    kafkalog.salvage(root, out / "salvaged")
    kafkalog.merge([root], out / "merged")
    kafkalog.salvage(root / "orders-0", out / "alone" / "orders-0")
    kafkalog.salvage(out / "salvaged", out / "twice")
    kafkalog.recover(root / "orders-0", out / "recovered")
    return [path for name in ("salvaged", "merged", "alone", "twice", "recovered") for path in (out / name,)]


def test_settings_and_checkpoints_come_from_the_log_dir_that_an_output_was_made_from(tmp_path):
    root = log_dir(tmp_path / "log")
    (tmp_path / "made" / "alone").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    for path in made_from(root, tmp_path / "made"):
        source = path / "orders-0" if path.name == "alone" else path
        report = kafkalog.boot(source, tmp_path / "out" / path.name)
        assert report.metadata == str(root)
        metadata = read_cluster_metadata(tmp_path / "out" / path.name / "data")
        assert metadata is not None
        assert metadata.topic_ids["orders"] == topic_id(0)
        (plan,) = [one for one in report.topics if one.name == "orders"]
        assert plan.replaced == {"retention.ms": "5000"}
        assert [one.log_start_offset for one in report.partitions if one.topic == "orders"] == [1]
        # a topic of which the disk has nothing is named, if all of the disk was asked for
        is_whole = path.name in ("salvaged", "merged", "twice")
        assert any(one.name == "gone" for one in report.topics) is is_whole
        behind = [one.detail for one in report.findings.rows if "groups of" in one.detail]
        assert [one.partition(": ")[2] for one in behind] == (
            [] if is_whole else [f"kafkalog boot {source} {root} -o {source}-booted"]
        )


def test_a_source_that_is_not_at_hand_is_named(tmp_path):
    root = log_dir(tmp_path / "log")
    kafkalog.salvage(root, tmp_path / "saved")
    root.rename(tmp_path / "elsewhere")
    report = kafkalog.boot(tmp_path / "saved", tmp_path / "out")
    assert report.metadata is None
    (said,) = [one.detail for one in report.findings.rows if "--metadata DIR" in one.detail]
    assert str(root) in said
    report = kafkalog.boot(tmp_path / "saved", tmp_path / "again", metadata=tmp_path / "elsewhere")
    assert report.metadata == str(tmp_path / "elsewhere")


@pytest.mark.slow
def test_a_salvage_before_changes_nothing_of_a_whole_log_dir(tmp_path):
    source = unpacked("k44")
    kafkalog.salvage(source, tmp_path / "saved")
    one, other = (kafkalog.boot(path, tmp_path / "out", dry_run=True) for path in (source, tmp_path / "saved"))
    assert [(row.name, row.topic_id, row.settings, row.missing) for row in one.topics] == [
        (row.name, row.topic_id, row.settings, row.missing) for row in other.topics
    ]
    ranges = [
        [(row.topic, row.partition, row.log_start_offset, row.log_end_offset) for row in report.partitions]
        for report in (one, other)
    ]
    assert ranges[0] == ranges[1]
    assert (one.n_groups, one.n_commits, one.carried) == (other.n_groups, other.n_commits, other.carried)


def test_files_that_are_no_origin_or_report_are_none(tmp_path):
    for text in ("", "[]", "{}", '{"log_dirs": 5}', '{"partitions": 5}', '{"partitions": [5, {"losses": [5]}]}'):
        for name in ("origin.json", "salvage.json"):
            (tmp_path / name).write_text(text)
        assert (origins_of(tmp_path), known_losses(tmp_path / "t-0")) == ([], [])
    # two that name each other end
    (tmp_path / "b").mkdir()
    (tmp_path / "origin.json").write_bytes(encode_origin("x", [tmp_path / "b"]))
    (tmp_path / "b" / "origin.json").write_bytes(encode_origin("x", [tmp_path]))
    assert origins_of(tmp_path) == [tmp_path / "b"]
    assert json.loads((tmp_path / "origin.json").read_text())["is_whole"] is False
    shutil.rmtree(tmp_path / "b")
