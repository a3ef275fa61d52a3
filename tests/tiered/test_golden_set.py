"""What a consumer read through a broker with remote storage, kafkalog reads from the files."""

import golden_sets
import pytest

import kafkalog

COLUMNS = ("topic", "partition", "offset", "timestamp", "key", "value")


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_all_records_are_what_a_consumer_read(level):
    log_dir, remote = golden_sets.tiered()
    table = kafkalog.open(log_dir, tiered=remote).to_table(columns=COLUMNS, isolation_level=level)
    table = table.set_column(3, "timestamp", table["timestamp"].cast("int64"))
    assert sorted(zip(*(column.to_pylist() for column in table.columns), strict=True)) == golden_sets.tiered_truth(
        level
    )
