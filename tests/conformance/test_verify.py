"""What a real broker leaves behind, or is writing right now, is verified without a finding of damage."""

import time

import pytest

import kafkalog

pytestmark = [pytest.mark.broker, pytest.mark.slow]

FACTS = {
    "live": {"partial_tail", "zero_fill"},
    "clean": set(),
    # the kill may fall between the making of a snapshot and its writing
    "crashed": {"partial_tail", "zero_fill", "snapshot_size"},
}


@pytest.mark.parametrize("deep", [True, False])
@pytest.mark.parametrize("name", ["live", "clean", "crashed"])
def test_nothing_is_said_about_a_healthy_log_dir(history, name, deep):
    stage = getattr(history, name)
    result = kafkalog.verify(stage.log_dir, deep=deep)
    found = list(result.findings)
    assert [str(finding) for finding in found if finding.damage] == []
    assert {finding.reason.value for finding in found} <= FACTS[name]
    segments = [segment for partition in result.partitions for segment in partition.segments]
    assert len(segments) > 60
    assert any(segment.has_aborted for segment in segments)


def test_nothing_is_said_about_files_that_grow_while_they_are_read(history):
    history.client.ask("flood", topic="growing", partitions=2, seed=11)
    try:
        n_batches = []
        # each round has more segments to read: on a busy machine the flood runs away from 25 of them
        enough = time.monotonic() + 30
        while (
            len(n_batches) < 3 or n_batches[-1] <= n_batches[0] or (len(n_batches) < 25 and time.monotonic() < enough)
        ):
            result = kafkalog.verify(history.live.log_dir, topics="growing")
            assert [str(finding) for finding in result.findings if finding.damage] == []
            n_batches.append(sum(segment.n_batches for one in result.partitions for segment in one.segments))
    finally:
        history.client.ask("dry")
