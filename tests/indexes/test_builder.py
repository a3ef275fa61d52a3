"""Where entries of the indexes begin, at the boundary of the interval."""

from __future__ import annotations

from kafkalog.indexes.builder import IndexBuilder
from kafkalog.records.batch_table import BatchTable


def test_an_entry_comes_where_more_bytes_than_the_interval_lie_behind_the_last_one() -> None:
    for interval, positions in ((99, [100, 200, 300]), (100, [200]), (199, [200]), (200, [300])):
        table = BatchTable.empty(4)
        table.base_offset[:] = table.last_offset[:] = range(4)
        table.max_timestamp[:] = [5, 5, 6, 6]
        table.size_in_bytes[:] = 100
        table.position[:] = range(0, 400, 100)
        builder = IndexBuilder(0, interval)
        assert builder.feed(table) == (4, None)
        assert builder.offset_entries()["position"].tolist() == positions
        # and a time entry with it where a larger timestamp has come
        expected = {99: [5, 6], 100: [6], 199: [6], 200: [6]}[interval]
        assert builder.time_entries()["timestamp"].tolist() == expected
