"""Groups out of a large `__consumer_offsets`, against one checksum pass over the same bytes."""

from __future__ import annotations

import random
import struct

import numpy as np
import shapes
from peers import compare, timed

import kafkalog
from kafkalog._kernels.crc import checksum_crc32c

from .common import CpuTimed

N_GROUPS, N_PARTITIONS = 200, 12
N_COMMITS = 120_000


class Groups(CpuTimed):
    """Commits of twelve partitions at a time by 200 groups."""

    def setup_cache(self) -> str:
        log_dir = shapes.cache_dir() / f"groups-{N_COMMITS}"
        if not log_dir.exists():
            log_dir.mkdir(parents=True)
            _write(str(log_dir / "__consumer_offsets-7"))
        return str(log_dir)

    def time_groups(self, log_dir: str) -> None:
        kafkalog.groups(log_dir)

    def peakmem_groups(self, log_dir: str) -> None:
        kafkalog.groups(log_dir)

    def track_crc_passes(self, log_dir: str) -> float:
        """CPU time of the groups in passes that read the same files and checksum their bytes."""
        paths = [str(segment.path) for segment in kafkalog.open_log_dir(log_dir)[KEY].segments]

        def groups() -> tuple[int, int]:
            return sum(len(group.offsets) for group in kafkalog.groups(log_dir)), -1

        def crc() -> tuple[int, int]:
            for path in paths:
                checksum_crc32c(np.fromfile(path, np.uint8))
            return N_GROUPS * N_PARTITIONS, -1

        seconds = compare({"groups": timed(groups), "crc": timed(crc)}, rounds=5)
        return seconds["groups"] / seconds["crc"]


KEY = kafkalog.TopicPartition("__consumer_offsets", 7)


def _write(path: str) -> None:
    rng = random.Random(18)
    keys = [
        [_key(f"group-{group:04d}", f"topic-of-orders-{group % 50}", number) for number in range(N_PARTITIONS)]
        for group in range(N_GROUPS)
    ]
    columns: dict[str, list[object]] = {"key": [], "value": [], "timestamp": []}
    with kafkalog.PartitionWriter(path, max_records_per_batch=N_PARTITIONS) as writer:
        for commit in range(N_COMMITS):
            time = 1_700_000_000_000 + 5 * commit
            columns["key"] += rng.choice(keys)
            columns["value"] += [b"\0\x03" + struct.pack(">qihq", commit, 5, 0, time)] * N_PARTITIONS
            columns["timestamp"] += [time] * N_PARTITIONS
            if len(columns["key"]) >= 100_000 or commit == N_COMMITS - 1:
                writer.append(columns)
                columns = {name: [] for name in columns}


def _key(group: str, topic: str, partition: int) -> bytes:
    texts = b"".join(struct.pack(">h", len(text)) + text.encode() for text in (group, topic))
    return b"\0\x01" + texts + struct.pack(">i", partition)
