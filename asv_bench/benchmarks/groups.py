"""Groups out of 1 GiB of `__consumer_offsets`, against a checksum pass over them, and against their decoding."""

from __future__ import annotations

import random
import shutil
import struct

import shapes
from peers import Side, compare, consume, timed
from peers.searches import checksums

import kafkalog
from kafkalog.system_topics.reading import COLUMNS

from .common import CpuTimed

N_GROUPS = [200, 20_000]
N_PARTITIONS = 12
N_COMMITS = 1_200_000


class Groups(CpuTimed):
    """Commits of twelve partitions at a time."""

    params = (N_GROUPS,)
    param_names = ("groups",)

    def setup_cache(self) -> dict[int, str]:
        return {n_groups: make_log(n_groups) for n_groups in N_GROUPS}

    setup_cache.timeout = 900

    def time_groups(self, log_dirs: dict[int, str], n_groups: int) -> None:
        kafkalog.groups(log_dirs[n_groups]).to_arrow()

    def peakmem_groups(self, log_dirs: dict[int, str], n_groups: int) -> None:
        kafkalog.groups(log_dirs[n_groups])

    def track_crc_passes(self, log_dirs: dict[int, str], n_groups: int) -> float:
        """CPU time of the groups' table in passes that read the same files and check the checksums of batches."""
        seconds = compare(sides(log_dirs[n_groups], n_groups), rounds=3)
        return seconds["table"] / seconds["CRC pass"]

    track_crc_passes.unit = "groups / CRC pass, CPU time"

    def track_crc_passes_beyond_decoding(self, log_dirs: dict[int, str], n_groups: int) -> float:
        """The same without the time in which the columns that groups need are decoded."""
        seconds = compare(sides(log_dirs[n_groups], n_groups), rounds=3)
        return (seconds["table"] - seconds["decoding"]) / seconds["CRC pass"]

    track_crc_passes_beyond_decoding.unit = "groups / CRC pass, CPU time"


def sides(log_dir: str, n_groups: int) -> dict[str, Side]:
    """Groups as a table and as objects, a scan of the columns that they need, and a pass over the checksums."""
    n_records = N_COMMITS * N_PARTITIONS

    def counted(found: int) -> tuple[int, int]:
        return n_records if found == n_groups * N_PARTITIONS else found, -1

    def table() -> tuple[int, int]:
        return counted(kafkalog.groups(log_dir).to_arrow().num_rows)

    def objects() -> tuple[int, int]:
        return counted(sum(len(group.offsets) for group in kafkalog.groups(log_dir)))

    def decoding() -> tuple[int, int]:
        return consume(
            kafkalog.scan(log_dir, columns=list(COLUMNS), internal=True, threads=1, memory_map=False).to_reader()
        )[0], -1

    paths = [segment.path for segment in kafkalog.open_log_dir(log_dir)[KEY].segments]
    crcs = checksums(paths, n_records)
    return {"table": timed(table), "objects": timed(objects), "decoding": timed(decoding), "CRC pass": crcs}


def make_log(n_groups: int) -> str:
    """A log dir with 1 GiB of commits."""
    log_dir = shapes.cache_dir() / f"groups-{n_groups}-{N_COMMITS}"
    if not log_dir.exists():
        staged = log_dir.with_suffix(".tmp")
        shutil.rmtree(staged, ignore_errors=True)
        staged.mkdir(parents=True)
        _write(str(staged / str(KEY)), n_groups)
        staged.rename(log_dir)
    return str(log_dir)


KEY = kafkalog.TopicPartition("__consumer_offsets", 7)


def _write(path: str, n_groups: int) -> None:
    rng = random.Random(18)
    keys = [
        [_key(f"group-{group:05d}", f"topic-of-orders-{group % 50}", number) for number in range(N_PARTITIONS)]
        for group in range(n_groups)
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
