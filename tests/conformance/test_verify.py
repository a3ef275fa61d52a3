"""What a real broker leaves behind, or is writing right now, is verified without a finding of damage."""

from __future__ import annotations

import pytest
from conformance.history import History, Stage

import kafkalog

pytestmark = pytest.mark.broker

FACTS = {"partial_tail", "zero_fill"}


@pytest.mark.parametrize("name", ["clean", "crashed", "live"])
@pytest.mark.parametrize("deep", [False, True])
def test_nothing_is_said_about_a_healthy_log_dir(history: History, name: str, deep: bool) -> None:
    stage: Stage = getattr(history, name)
    result = kafkalog.verify(stage.log_dir, deep=deep)
    found = list(result.all_findings())
    assert [str(finding) for finding in found if finding.damage] == []
    assert {finding.reason.value for finding in found} <= (FACTS if name != "clean" else set())
    segments = [segment for partition in result.partitions for segment in partition.segments]
    assert len(segments) > 60
    assert any(segment.has_aborted for segment in segments)


def test_nothing_is_said_about_files_that_grow_while_they_are_read(history: History) -> None:
    history.client.ask("flood", topic="growing", partitions=2, seed=11)
    try:
        n_batches = []
        for _ in range(25):
            result = kafkalog.verify(history.live.log_dir, topics="growing")
            assert [str(finding) for finding in result.all_findings() if finding.damage] == []
            n_batches.append(sum(segment.n_batches for one in result.partitions for segment in one.segments))
    finally:
        history.client.ask("dry")
    assert n_batches[-1] > n_batches[0]
