"""The files of a partition: those of a real broker, out of its batches alone; offsets must increase."""

import golden_sets
import pytest

import kafkalog
from kafkalog.records.batch_table import Window
from kafkalog.state.cluster_image import TOPIC
from kafkalog.state.cluster_metadata import read_cluster_metadata
from kafkalog.state.log_config import LogConfig
from kafkalog.state.producers import ProducerState
from kafkalog.storage.staging import staged_directory
from kafkalog.writing.partition_files import PartitionFiles

pytestmark = pytest.mark.kernels


RESTARTED = {"p-epochs-0", "p-delrec-0"}
"""Their broker was restarted, which begins the spacing of index entries anew."""


def test_what_brokers_appended_comes_out_the_same_file_by_file(tmp_path):
    """Segment boundaries, indexes, transaction indexes and snapshots of a real broker, out of its batches alone."""
    configs = read_cluster_metadata(golden_sets.unpacked("k44"))
    assert configs is not None
    n_segments = 0
    for name, path in golden_sets.partitions("k44").items():
        partition = kafkalog.Partition(path)
        settings = configs.settings.get((TOPIC, name.rpartition("-")[0]), {})
        if partition.kind or name.startswith("__") or "compact" in settings.get("cleanup.policy", ""):
            continue  # cleaned segments were put together by other rules
        conditions = LogConfig(
            segment_bytes=int(settings.get("internal.segment.bytes", settings.get("segment.bytes", 2**30))),
            segment_ms=int(settings.get("segment.ms", LogConfig().segment_ms)),
            segment_index_bytes=int(settings.get("segment.index.bytes", 10485760)),
            index_interval_bytes=int(settings.get("index.interval.bytes", 4096)),
        )
        with staged_directory(tmp_path / name) as staged:
            first = partition.segments[0].base_offset
            files = PartitionFiles(staged, conditions, next_offset=first, producers=ProducerState())
            for segment in partition.segments:
                with segment.open() as source:
                    for window in segment.iter_windows(source):
                        half = len(window.batches) // 2
                        files.append(Window(window.data, window.start, window.batches[:half]))
                        files.append(Window(window.data, window.start, window.batches[half:]))
            files.close()
        ours = {file.name: file.read_bytes() for file in (tmp_path / name).iterdir()}
        theirs = {
            file.name: file.read_bytes()
            for file in path.iterdir()
            if kafkalog.format.parse_base_offset(file.name) is not None
        }
        assert sorted(ours) == sorted(theirs), name
        for file in theirs:
            if not (name in RESTARTED and file.endswith("index")):
                assert ours[file] == theirs[file], f"{name}/{file}"
        n_segments += len(partition.segments)
    assert n_segments > 60
