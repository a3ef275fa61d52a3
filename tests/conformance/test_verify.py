"""What a real broker leaves behind, or is writing right now, is verified without a finding of damage."""

import shutil
import time

import golden_sets
import pytest
from conformance.kafka import Broker

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
    found = list(result.all_findings())
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
            assert [str(finding) for finding in result.all_findings() if finding.damage] == []
            n_batches.append(sum(segment.n_batches for one in result.partitions for segment in one.segments))
    finally:
        history.client.ask("dry")


@pytest.fixture
def broker(tmp_path):
    """A broker that has not been started, with a partition to load."""
    with Broker(tmp_path) as broker:
        shutil.copytree(golden_sets.LOG_DIR / "p-txn-0", broker.log_dir / "p-txn-0")
        yield broker


@pytest.mark.parametrize("suffix", [".log", ".log.swap"])
def test_a_broker_does_not_start_with_a_file_that_is_named_after_no_offset(broker, suffix):
    stray = broker.log_dir / "p-txn-0" / f"foo{suffix}"
    stray.write_bytes(b"")
    (finding,) = kafkalog.verify(stray.parent).all_findings()
    assert (finding.path, finding.damage) == (str(stray), True)
    with pytest.raises(RuntimeError):
        broker.start()
    assert 'NumberFormatException: For input string: "foo"' in broker.log.read_text()


def test_a_broker_starts_with_what_is_named_like_such_files_but_is_none(broker):
    partition = broker.log_dir / "p-txn-0"
    (partition / "foo.log").mkdir()
    (partition / "bar.index").symlink_to("/nonexistent")
    for name in ("foo.log.deleted", "foo.txt", f"{14:020d}.index.kafkalog-backup"):
        (partition / name).write_bytes(b"")
    assert kafkalog.verify(partition).ok
    broker.start()
