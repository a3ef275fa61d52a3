"""`ls`, `cat` and facts about partitions: one that cannot be read hides no other."""

import json
import shutil

import pytest
from files import flip
from golden_sets import LOG_DIR, unpacked

import kafkalog
from kafkalog.operations.cat import Record, cat

LOG = "00000000000000000000.log"


def test_damage_in_one_partition_leaves_the_others_to_be_looked_up(run, log_dir_copy):
    path = log_dir_copy / "p-multi-1" / LOG
    data = bytearray(path.read_bytes())
    data[100] ^= 0x10
    path.write_bytes(data)
    code, out, err = run("lookup", log_dir_copy, "-t", "p-multi", "--timestamp", 0)
    assert code == 1
    assert "crc_mismatch" in err
    assert [line.partition(":")[0] for line in out.splitlines() if not line.startswith(" ")] == [
        "p-multi-0",
        "p-multi-2",
    ]


def test_times_before_the_latest_timestamp_are_those_of_a_scan(run, log_dir):
    latest = max(
        kafkalog.read_table(log_dir, topics="p-multi", columns=["timestamp"]).column(0).cast("int64").to_pylist()
    )
    for text, time in (("end", latest), ("end-1m", latest - 60_000)):
        # the latest timestamp of all three partitions, not of each
        found, same = (
            [trace.offset for trace in kafkalog.lookup(log_dir, topics="p-multi", timestamp=one)]
            for one in (text, time)
        )
        assert found == same != [-1, -1, -1]
        code, out, _ = run("lookup", log_dir, "-t", "p-multi", "--timestamp", text, "--json")
        assert code == 0
        assert [json.loads(line)["offset"] for line in out.splitlines()] == found
        by_filter = kafkalog.scan(log_dir, topics="p-multi", filters=f"timestamp >= {text}").count_rows()
        assert by_filter == kafkalog.scan(log_dir, topics="p-multi", start_timestamp=time).count_rows() > 0
    partition = kafkalog.open(log_dir / "p-multi-0")
    own = max(partition.to_table(columns=["timestamp"]).column(0).cast("int64").to_pylist())
    assert (
        partition.offset_for_timestamp(["end-1m", 5]).tolist()
        == partition.offset_for_timestamp([own - 60_000, 5]).tolist()
    )


@pytest.mark.parametrize(("call", "name"), [(kafkalog.trim, "before_timestamp"), (kafkalog.truncate, "to_timestamp")])
def test_logs_are_cut_at_times_before_their_latest(log_dir, call, name):
    partition = log_dir / "p-multi-0"
    latest = max(kafkalog.read_table(partition, columns=["timestamp"]).column(0).cast("int64").to_pylist())
    found, same = (call(partition, **{name: one}, dry_run=True).partitions[0] for one in ("end-1m", latest - 60_000))
    ends = [(one.log_start_offset, one.log_end_offset) for one in (found, same)]
    whole = kafkalog.open(partition)
    assert ends[0] == ends[1] != (whole.log_start_offset, whole.log_end_offset)


def test_records_are_those_of_a_scan(log_dir):
    columns = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    rows = kafkalog.read_table(log_dir, topics=["p-multi", "p-headers"], columns=columns).to_pylist()
    records = list(cat(log_dir, topics=["p-multi", "p-headers"]))
    assert len(records) == len(rows) > 100
    for record, row in zip(records, rows, strict=True):
        stamp = row.pop("timestamp")
        headers = tuple((one["key"], one["value"]) for one in row.pop("headers"))
        assert record == Record(
            **row, timestamp=None if stamp is None else round(stamp.timestamp() * 1000), headers=headers
        )
    assert any(record.headers for record in records)


def test_the_last_of_each_partition(log_dir):
    found = [(record.partition, record.offset) for record in cat(log_dir, topics="p-multi", tail=2)]
    everything = [(record.partition, record.offset) for record in cat(log_dir, topics="p-multi")]
    assert found == [one for n in range(3) for one in [each for each in everything if each[0] == n][-2:]]


def test_the_list_has_what_the_command_prints_of_the_metadata_log_and_the_log_dirs(tmp_path, run):
    """Python dropped both."""
    for name in ("__cluster_metadata-0", "p-empty-0", "p-txn-0"):
        shutil.copytree(unpacked("k44") / name, tmp_path / name)
    log = min((tmp_path / "__cluster_metadata-0").glob("*.log"))
    flip(log, log.stat().st_size // 2)
    (tmp_path / "other").mkdir()
    shutil.copytree(tmp_path / "p-empty-0", tmp_path / "other" / "p-empty-0")
    paths = [tmp_path, tmp_path / "other"]
    found = kafkalog.ls(paths)
    assert {one.reason.value for one in found.findings} > {"partition_twice", "metadata_incomplete"}
    every = [*found.findings, *(finding for one in found for finding in one.findings)]
    _, _, err = run("ls", *map(str, paths))
    assert all(str(one) in err for one in every)


def test_settings_and_strays_are_known_from_the_metadata_log_beside_it(tmp_path):
    source = unpacked("k44")
    names = ("__cluster_metadata-0", "p-empty-0", "p-delrec-0", "p-txn-0")
    for path in source.iterdir():
        if path.is_file() or path.name in names:
            (shutil.copytree if path.is_dir() else shutil.copy2)(path, tmp_path / path.name)
    shutil.copytree(tmp_path / "p-txn-0", tmp_path / "unknown-0")
    metadata = tmp_path / "p-delrec-0" / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    shutil.move(tmp_path / "p-empty-0", tmp_path / "p-empty-7")
    found = {summary.name: summary for summary in kafkalog.ls(tmp_path)}
    strays = {name: summary.stray for name, summary in found.items() if summary.stray}
    assert set(strays) == {"p-delrec-0", "p-empty-7", "unknown-0"}
    assert strays["unknown-0"] == "the cluster has no such topic"
    assert "its topic id is AAAAAAAAAAAAAAAAAAAAAQ" in strays["p-delrec-0"]
    assert strays["p-empty-7"] == "the broker is not one of its replicas"
    configs = found["p-txn-0"].configs
    assert configs is not None
    assert configs["retention.ms"] == "-1"
    assert found["p-txn-0"].as_dict()["configs"] == configs
    assert kafkalog.ls(LOG_DIR)[0].configs is None
