"""A partition with very many gaps between segments: its directory is not listed for each."""

import builder
import pytest

import kafkalog
from kafkalog import format as kf
from kafkalog.storage import listing

N = 40


@pytest.fixture
def log_dir(tmp_path):
    """A compacted partition: each segment has one record of ten."""
    partition = tmp_path / "data" / "orders-0"
    partition.mkdir(parents=True)
    for base in range(0, 10 * N, 10):
        batch = builder.batch_v2([builder.record_v2(0, 0, b"k%d" % base, b"v")], base_offset=base)
        (partition / kf.segment_file_name(base)).write_bytes(batch)
    (partition.parent / kf.CLEANER_OFFSET_CHECKPOINT).write_text(f"0\n1\norders 0 {10 * N}\n")
    return partition.parent


@pytest.mark.parametrize(
    "walk",
    [
        lambda path: len(kafkalog.scan(path, columns=["offset"]).to_table()),
        lambda path: kafkalog.ls(path)[0].n_records,
        lambda path: kafkalog.scan(path, columns=["offset"], on_corruption="skip", check_crcs=False).count_rows(),
    ],
    ids=["scan", "ls", "skip"],
)
def test_the_directory_is_listed_few_times(walk, log_dir, monkeypatch):
    listed, list_directory = [], listing.list_directory
    monkeypatch.setattr(listing, "list_directory", lambda path: listed.append(path) or list_directory(path))
    assert walk(log_dir) == N
    assert len(listed) < N / 2
    partition = kafkalog.open(log_dir)["orders", 0]
    assert all(partition.gap_between(at + 1, at + 10) is None for at in range(0, 10 * N - 10, 10))
