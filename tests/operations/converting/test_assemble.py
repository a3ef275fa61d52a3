"""Empty batches are those that the log cleaner writes."""

from __future__ import annotations

import golden_sets
import numpy as np

from kafkalog.log.partition import Partition
from kafkalog.operations.converting.assemble import empty_batches


def test_an_empty_batch_is_what_the_log_cleaner_writes() -> None:
    found = 0
    for name, partition in golden_sets.partitions("k44_extra").items():
        for batches in (segment.batches for segment in Partition(partition).segments):
            empty = batches[(batches.records_count == 0) & (batches.magic == 2)]
            if len(empty):
                made = empty_batches(empty)
                for name in ("base_offset", "last_offset", "attributes", "base_timestamp", "crc", "base_sequence"):
                    assert np.array_equal(getattr(made.batches, name), getattr(empty, name)), name
                found += len(empty)
    assert found > 3
