"""Where a broker finds the end of a segment that it does not recover."""

from __future__ import annotations

from pathlib import Path

import golden_sets
import pytest

import kafkalog
from kafkalog.errors import CorruptionError
from kafkalog.survey.startup_end import end_as_loaded, last_intact_end


@pytest.mark.parametrize("set_name", ["k44", "k28"])
def test_it_is_that_of_the_reader_where_all_is_well(set_name: str) -> None:
    for path in golden_sets.partitions(set_name).values():
        segment = kafkalog.Partition(path).segments[-1]
        assert end_as_loaded(segment) == segment.next_offset == last_intact_end(segment), path.name


def test_an_index_that_leads_past_the_end_moves_the_log_end(partition: Path) -> None:
    last = max(partition.glob("*.log"))
    last.with_suffix(".index").write_bytes((5).to_bytes(4, "big") + (2**30).to_bytes(4, "big"))
    segment = kafkalog.Segment(last)
    assert (end_as_loaded(segment), last_intact_end(segment)) == (int(last.stem), 305)
    [row] = kafkalog.preflight(partition, clean=True).partitions
    assert (row.log_end_offset, row.verdict) == (int(last.stem), "loses")


def test_a_size_below_the_smallest_is_corrupt(tmp_path: Path) -> None:
    path = tmp_path / f"{5:020d}.log"
    path.write_bytes(bytes(40))
    with pytest.raises(CorruptionError):
        end_as_loaded(kafkalog.Segment(path))
    assert last_intact_end(kafkalog.Segment(path)) == 5
    path.write_bytes(bytes(17))  # too short for a header
    assert end_as_loaded(kafkalog.Segment(path)) == 5
