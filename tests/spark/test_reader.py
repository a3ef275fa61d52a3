"""Tasks on executors: how many there are, and what happens to their files."""

import shutil
import tarfile
from pathlib import Path

import builder
import pytest

import kafkalog
from kafkalog import format as kf
from kafkalog.errors import CorruptionError
from kafkalog.scanning.planning import plan
from kafkalog.spark.data_source import KafkaLogSource

pytestmark = pytest.mark.spark


def test_the_number_of_tasks_follows_bytes_and_what_is_asked_for(source, log):
    n_bytes = plan(log).n_bytes
    assert source(log).rdd.getNumPartitions() == 1
    assert source(log, minPartitions=7).rdd.getNumPartitions() >= 7
    assert source(log, maxRecordsPerPartition=600).rdd.getNumPartitions() == 8
    assert source(log, taskBytes=n_bytes // 4).rdd.getNumPartitions() in (4, 5, 6, 7, 8)
    largest = source(log, "partition int", maxRecordsPerPartition=600).selectExpr("spark_partition_id() p").groupBy("p")
    assert max(row["count"] for row in largest.count().collect()) <= 600
    assert source(log, maxRecordsPerPartition=600).count() == 4000


def test_a_segment_that_goes_after_planning_is_data_loss_unless_that_is_allowed(source, log, tmp_path):
    root = Path(shutil.copytree(log, tmp_path / "log"))
    strict, lax = source(root), source(root, failOnDataLoss=False)
    assert (strict.count(), lax.count()) == (4000, 4000)
    gone = root / "t-1" / kf.segment_file_name(0)
    gone.unlink()
    with pytest.raises(Exception, match=str(gone)):
        strict.count()
    assert lax.count() == 3500


@pytest.mark.slow
def test_damage_in_one_segment_names_it_and_leaves_the_others_alone(source, log, tmp_path):
    root = Path(shutil.copytree(log, tmp_path / "log"))
    path = root / "t-2" / kf.segment_file_name(500)
    data = bytearray(path.read_bytes())
    position, _ = builder.batch_positions(bytes(data))[30]
    data[position + 70] ^= 1
    path.write_bytes(data)
    with pytest.raises(Exception, match=f"{path}@{position} base_offset=800: crc_mismatch"):
        source(root).count()
    skipped = source(root, onCorruption="skip", taskBytes="64k")
    assert skipped.count() == 3990
    assert skipped.filter("partition = 2 and offset between 790 and 820").count() == 21
    counts = source(root, onCorruption="stop").groupBy("partition").count().collect()
    assert {row["partition"]: row["count"] for row in counts} == {0: 1000, 1: 1000, 2: 800, 3: 1000}
    assert source(root, filters="partition != 2").count() == 3000


def test_with_use_time_index_a_task_begins_where_the_index_says(log, tmp_path):
    root = Path(shutil.copytree(log, tmp_path / "log"))
    kafkalog.reindex(root, in_place=True)
    path = root / "t-2" / kf.segment_file_name(500)
    data = bytearray(path.read_bytes())
    position, _ = builder.batch_positions(bytes(data))[3]
    data[position + 16] = 9  # no such magic: headers cannot be walked
    path.write_bytes(data)
    options = {
        "path": str(root),
        "filters": f'["partition == 2", "timestamp >= {10**12 + 900_000}"]',
        "columns": "offset",
    }

    def offsets(**more):
        source = KafkaLogSource({**options, **more})
        reader = source.reader(source.schema())
        return [
            offset for task in reader.partitions() for batch in reader.read(task) for offset in batch[0].to_pylist()
        ]

    assert offsets(useTimeIndex="true") == list(range(900, 1000))
    with pytest.raises(CorruptionError, match=str(path)):
        offsets()


@pytest.mark.slow
def test_executors_read_urls(source, log, tmp_path):
    import fsspec  # noqa: F401 - without it the test is skipped

    with tarfile.open(tmp_path / "log.tar", "w") as tar:
        tar.add(log, "log")
    url = f"tar://log::{tmp_path / 'log.tar'}"
    rows = source(url, minPartitions=5).groupBy("partition").count().collect()
    assert {row["partition"]: row["count"] for row in rows} == dict.fromkeys(range(4), 1000)
    last = source(url, subscribe="t").agg({"offset": "max"}).collect()
    assert last[0][0] == 999
    with pytest.raises(Exception, match="credential"):
        source(url, **{"storage.secret_access_key": "hush"}).count()
    replaced = source(url)
    assert replaced.count() == 4000
    with tarfile.open(tmp_path / "log.tar", "w") as tar:
        (tmp_path / "empty").mkdir()
        tar.add(tmp_path / "empty", "log")
    with pytest.raises(Exception, match=r"file_unreadable|file_changed"):
        replaced.count()
