"""The index interval is found in the cluster's metadata, or by the entries of existing indexes."""

from __future__ import annotations

import shutil
from pathlib import Path

import golden_sets
import pytest

import kafkalog
from kafkalog.indexes.index_files import OffsetIndex
from kafkalog.operations.rebuilding.index_interval import _roundest, interval_bounds
from kafkalog.state.cluster_image import TOPIC
from kafkalog.state.cluster_metadata import read_cluster_metadata


def test_what_is_not_there_to_go_by_is_found_out(tmp_path: Path) -> None:
    configs = read_cluster_metadata(golden_sets.unpacked("k44"))
    assert configs is not None
    assert configs.findings == []
    assert configs.settings[TOPIC, "p-mixcodec"]["index.interval.bytes"] == "2048"
    report = kafkalog.reindex(golden_sets.unpacked("k44"), dry_run=True)
    assert report.intervals["p-mixcodec-0"] == (2048, "cluster metadata")
    assert report.intervals["p-dense-0"] == (0, "cluster metadata")
    alone = kafkalog.reindex(golden_sets.unpacked("k44_extra"), dry_run=True)
    assert {origin for _, origin in alone.intervals.values()} == {"existing indexes"}
    assert alone.intervals["p-idem-now-0"].n_bytes == 1024
    shutil.copytree(golden_sets.unpacked("k44_extra") / "p-idem-now-0", tmp_path / "p-idem-now-0")
    for path in tmp_path.rglob("*.index"):
        path.unlink()
    assert kafkalog.reindex(tmp_path, dry_run=True).intervals["p-idem-now-0"] == (4096, "default")
    assert kafkalog.reindex(tmp_path, dry_run=True, index_interval_bytes=7).intervals["p-idem-now-0"][1] == ("given")


def test_the_bounds_of_an_interval_are_those_that_give_the_same_index() -> None:
    n_bounded = 0
    for path in golden_sets.partitions("k44").values():
        for segment in kafkalog.Partition(path).segments:
            bounds = interval_bounds(segment)
            if bounds is None or segment.offset_index is None:
                continue
            n_bounded += 1
            least, most = bounds

            def entries(interval: int, segment: kafkalog.Segment = segment) -> bytes:
                built = OffsetIndex.build(segment.batches, segment.base_offset, index_interval_bytes=interval)
                return built.entries.tobytes()

            right = segment.offset_index.entries.tobytes()
            assert entries(least) == entries(most) == right
            assert least == 0 or entries(least - 1) != right
            assert entries(most + 1) != right
    assert n_bounded > 30


@pytest.mark.parametrize(("least", "most", "found"), [(9592, 10_800, 10_000), (19_300, 20_400, 20_000), (7, 7, 7)])
def test_of_many_intervals_the_roundest_is_taken(least: int, most: int, found: int) -> None:
    assert _roundest(least, most) == found
