"""Every partition that real brokers wrote reads as real consumers read it."""

from itertools import product
from pathlib import Path

import golden_sets
import pytest
import reference
from effort import thinned
from reading import read, without_magic

import kafkalog
from kafkalog.column_names import ALL_COLUMNS

CASES = [
    (name, archive, topic)
    for name in golden_sets.SETS
    for archive in ("clean", "unclean")
    for topic in (golden_sets.truth_topics(name, archive) if (name, archive) != ("k44_extra", "unclean") else ())
]


@pytest.mark.parametrize(
    ("name", "archive", "topic", "isolation", "threads"),
    thinned([(*case, *way) for case in CASES for way in product(("read_uncommitted", "read_committed"), (2, 1))], 3),
)
def test_reading_equals_what_a_consumer_read(name, archive, topic, isolation, threads):
    expected = golden_sets.truth(name, topic, isolation, archive)
    opened = kafkalog.open(golden_sets.unpacked(name, archive))
    assert isinstance(opened, kafkalog.LogDir)
    scan = kafkalog.scan(opened, topics=topic, columns=ALL_COLUMNS, threads=threads, isolation_level=isolation)
    table = scan.to_table()
    table.validate(full=True)
    assert all(not finding.damage for finding in scan.findings)
    rows = table.to_pylist()
    assert len(rows) == len(expected)
    for row, wanted in zip(rows, expected, strict=True):
        assert shown_as_a_consumer_shows_it(row, wanted) == wanted


def shown_as_a_consumer_shows_it(row, wanted):
    timestamp = None if row["timestamp"] is None else round(row["timestamp"].timestamp() * 1000)
    kind = row["timestamp_type"]
    if wanted["timestamp_type"] == -1:
        # a client shows 0 and NONE for no timestamp at all (v0), and for a v1 timestamp of 0
        assert (timestamp, kind) in ((None, -1), (0, 0))
        timestamp, kind = 0, -1
    return {
        "partition": row["partition"],
        "offset": row["offset"],
        "timestamp": timestamp,
        "timestamp_type": kind,
        "leader_epoch": row["leader_epoch"],
        "key": row["key"],
        "value": row["value"],
        "headers": [(header["key"].encode(), header["value"]) for header in row["headers"]],
    }


@pytest.mark.parametrize("name", golden_sets.SETS)
def test_every_segment_equals_the_twin_control_records_and_all(name):
    n_segments = 0
    for partition in golden_sets.partitions(name).values():
        for path in golden_sets.log_files(partition):
            data = Path(path).read_bytes()
            expected = reference.read_segment(data)
            reading = read(data)
            assert expected.problem is None
            assert reading.error is None, path
            assert reading.records() == without_magic(expected.records), path
            n_segments += 1
    assert n_segments > 10


@pytest.mark.parametrize("name", golden_sets.SETS)
def test_the_batch_table_equals_the_twins_headers(name):
    for partition in golden_sets.partitions(name).values():
        for path in golden_sets.log_files(partition):
            expected = list(reference.iter_batches(Path(path).read_bytes()))
            table = kafkalog.Segment(path).batches
            names = ("position", "size_in_bytes", "last_offset", "magic", "crc", "codec", "timestamp_type")
            for name in (*names, "producer_id", "is_control"):
                assert getattr(table, name).tolist() == [getattr(batch, name) for batch in expected], name
            assert table.max_timestamp.tolist() == [batch.max_timestamp for batch in expected] or 1 in table.magic
            horizons = [-1 if batch.delete_horizon is None else batch.delete_horizon for batch in expected]
            assert table.delete_horizon_ms.tolist() == horizons


def test_offsets_of_a_partition_agree_with_its_checkpoints():
    for name in golden_sets.SETS:
        root = golden_sets.unpacked(name)
        opened = kafkalog.open(root)
        assert isinstance(opened, kafkalog.LogDir)
        watermarks = golden_sets.checkpoint(root / "replication-offset-checkpoint")
        starts = golden_sets.log_start_offsets(name)
        for key, partition in opened.items():
            # these brokers stopped cleanly with one replica: everything was committed
            if str(key) in watermarks and partition.segments:
                assert partition.log_end_offset == watermarks[str(key)], key
            assert partition.log_start_offset == max(starts.get(str(key), 0), partition.segments[0].base_offset)
            assert partition.leader_epochs.size or name == "k28"


def test_raft_control_records_and_the_directory_set_apart_are_there():
    opened = kafkalog.open(golden_sets.unpacked("k44"))
    assert isinstance(opened, kafkalog.LogDir)
    metadata = kafkalog.read_table(opened["__cluster_metadata", 0], include_control=True, columns=["is_control", "key"])
    control = metadata.filter(metadata.column("is_control")).column("key").to_pylist()
    assert {int.from_bytes(key[2:4], "big") for key in control} >= {2}
    assert len(opened.set_apart["delete"]) == 1
    assert opened.findings == []
