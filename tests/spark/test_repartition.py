"""A frame that is prepared: the records of a partition in one task, in order."""

import pytest
from sink_rows import frame, hidden, plain, rows, save

import kafkalog
import kafkalog.spark
from kafkalog.records.partitioner import murmur2

pytestmark = pytest.mark.spark


@pytest.mark.slow
def test_a_prepared_frame_is_written_by_key_and_time_and_a_second_one_behind_it(session, tmp_path):
    log = tmp_path / "log"
    options = {"compression__type": "zstd", "segment__bytes": 2**20, "batch.size": 1000}
    for first in (0, 300):
        ready = kafkalog.spark.prepare(frame(session, 300, first), topic="t", num_partitions=4)
        save(ready, log, **options)
    found = rows(log)
    expected = {row[3]: row for row in plain(frame(session, 600))}
    assert len(found) == len(expected) == 600
    by_partition = {}
    for row in found:
        headers = [(header["key"], header["value"]) for header in row["headers"]]
        assert (row["key"], row["value"], headers, row["timestamp"]) == expected[row["timestamp"]]
        if row["key"] is not None:
            assert row["partition"] == (murmur2(row["key"]) & 0x7FFFFFFF) % 4
        by_partition.setdefault(row["partition"], []).append(row["timestamp"])
    assert sorted(by_partition) == [0, 1, 2, 3]
    for stamps in by_partition.values():
        assert stamps == sorted(stamps)
    assert {row["partition"] for row in found if row["key"] is None} == {0, 1, 2, 3}
    assert hidden(tmp_path) == []
    assert len(list(log.glob("t-0/*.log"))) == 2


def test_keys_that_are_not_bytes_are_refused_on_the_driver(session):
    frame = session.createDataFrame([(1, b"v")], "key bigint, value binary")
    with pytest.raises(ValueError, match="key is bigint"):
        kafkalog.spark.prepare(frame, topic="t", partitions=2)
    text = session.createDataFrame([("a", b"v")], "KEY string, value binary")
    found = kafkalog.spark.prepare(text, topic="t", partitions=2).collect()
    assert found == kafkalog.spark.prepare(text, topic="t", num_partitions=2).collect()
