"""A partition without `partition.metadata`: a KRaft broker sets it aside, so commands write the file, or report it."""

import shutil

import golden_sets
import pytest

import kafkalog
from kafkalog.cli import main
from kafkalog.errors import KafkalogError, Reason
from kafkalog.state.checkpoints import read_topic_id

NAMES = ("p-multi-0", "p-txn-0")


@pytest.fixture
def disk(tmp_path):
    """A log dir without a metadata log, of which one partition lost its topic id."""
    source, log_dir = golden_sets.unpacked("k44"), tmp_path / "disk"
    log_dir.mkdir()
    for name in NAMES:
        shutil.copytree(source / name, log_dir / name)
    shutil.copy(source / "meta.properties", log_dir)
    (log_dir / NAMES[0] / "partition.metadata").unlink()
    return log_dir


def with_metadata(disk, place):
    place.mkdir(exist_ok=True)
    shutil.copytree(golden_sets.unpacked("k44") / "__cluster_metadata-0", place / "__cluster_metadata-0")
    shutil.copy(golden_sets.unpacked("k44") / "meta.properties", place / "meta.properties")
    return place


@pytest.fixture(scope="module")
def topic_id():
    return read_topic_id(golden_sets.unpacked("k44") / NAMES[0])


def test_without_a_known_id_all_records_count_as_lost_in_every_report(disk, tmp_path, capsys):
    partition = disk / NAMES[0]
    n_records = len(kafkalog.read_table(partition, columns=["offset"]))
    n_bytes = sum(path.stat().st_size for path in partition.glob("*.log"))
    start = kafkalog.preflight(disk, clean=True)
    done = kafkalog.recover(disk, dry_run=True)
    report = kafkalog.report(disk)
    for found in (start, done):
        row = next(one for one in found.partitions if one.path == str(partition))
        assert (row.verdict, row.n_bytes_lost, row.loss.n_records) == ("loses", n_bytes, n_records)
        assert {one.certainty for one in row.losses} == {"exact"}
        assert "--metadata" in (row.stray or "")
        assert not found.ok
        [finding] = [one for one in found.findings.rows if one.reason is Reason.TOPIC_ID_MISSING]
        assert (finding.n_records, finding.certainty) == (n_records, "exact")
    assert report.summary["n_bytes_lost"] == n_bytes
    assert (report.summary["n_records_lost"], report.ok) == (n_records, False)
    for command in (["preflight", "--clean"], ["recover", "--dry-run"], ["report"]):
        assert main([command[0], str(disk), *command[1:]]) == 1
        assert f"{n_records} records" in "".join(capsys.readouterr())
    kafkalog.salvage(disk, tmp_path / "saved")
    assert read_topic_id(tmp_path / "saved" / NAMES[0]) is None
    again = kafkalog.preflight(tmp_path / "saved", clean=True)
    assert again.partitions[0].loss.n_records == n_records
    with pytest.raises(KafkalogError, match="__cluster_metadata-0"):
        kafkalog.recover(disk, dry_run=True, metadata=disk)


@pytest.mark.parametrize("where", ["same disk", "other disk", "other partition"])
def test_recover_and_salvage_write_the_known_id(disk, tmp_path, topic_id, where, capsys):
    metadata = [] if where != "other disk" else ["--metadata", str(with_metadata(disk, tmp_path / "other"))]
    if where == "same disk":
        with_metadata(disk, disk)
    elif where == "other partition":
        shutil.copytree(golden_sets.unpacked("k44") / NAMES[1], disk / "p-multi-9")
        (disk / "p-multi-9" / "partition.metadata").write_text(f"version: 0\ntopic_id: {topic_id}")
    if where != "other disk":
        [row] = [one for one in kafkalog.preflight(disk).partitions if one.path == str(disk / NAMES[0])]
        assert f"kafkalog recover writes it, {topic_id}" in (row.stray or "")
    assert main(["recover", str(disk), "-o", str(tmp_path / "out"), *metadata]) == 0
    assert main(["salvage", str(disk), "-o", str(tmp_path / "saved"), *metadata]) == 0
    for made in ("out", "saved"):
        assert read_topic_id(tmp_path / made / NAMES[0]) == topic_id
        rows = kafkalog.preflight(tmp_path / made, clean=True).partitions
        assert [one.stray for one in rows if one.path.endswith(NAMES[0])] == [None]
    main(["recover", str(disk), "--in-place", "--backup", str(tmp_path / "backup"), *metadata])
    assert (disk / NAMES[0] / "partition.metadata").read_bytes() == (
        golden_sets.unpacked("k44") / NAMES[0] / "partition.metadata"
    ).read_bytes()


def test_a_broker_with_zookeeper_needs_no_id(disk):
    (disk / "meta.properties").write_text("version=0\nbroker.id=1\n")
    assert kafkalog.recover(disk, dry_run=True).ok
    assert kafkalog.preflight(disk).verdict != "loses"


def test_the_metadata_log_needs_none(disk):
    with_metadata(disk, disk)
    for row in kafkalog.recover(disk, dry_run=True).partitions:
        assert row.stray is None
        assert not any("metadata-0/partition.metadata" in one.path for one in row.files)
