"""What is said of offsets that a log lacks."""

from __future__ import annotations

from pathlib import Path

from files import broker_on

import kafkalog
from kafkalog.log.searching.missing import END_CHECKPOINTS, end_finding, missing_end
from kafkalog.state.checkpoints import encode_offset_checkpoint

KEY = kafkalog.TopicPartition("t", 0)


def test_the_end_that_checkpoints_know_of_is_told_unless_a_broker_runs(tmp_path: Path) -> None:
    partition = tmp_path / "t-0"
    partition.mkdir()
    assert missing_end(partition, KEY, 5) is None
    for name, offset in zip(END_CHECKPOINTS, (4, 9), strict=True):
        (tmp_path / name).write_bytes(encode_offset_checkpoint({KEY: offset}))
    finding = missing_end(partition, KEY, 5)
    assert finding == end_finding(str(partition), 5, {END_CHECKPOINTS[1]: 9}, damage=False)
    assert finding is not None
    assert (finding.base_offset, finding.last_offset, finding.n_records) == (5, 8, 4)
    assert missing_end(partition, KEY, 9) is missing_end(partition, None, 5) is None
    with broker_on(tmp_path):
        assert missing_end(partition, KEY, 5) is None
