"""Hostile bytes under each reader by itself: codecs, the search for intact batches, indexes, snapshots, checkpoints.

Whatever the bytes are, nothing but a `KafkalogError` comes of them, soon. Batches themselves are under
`test_fuzz_records.py`, whole log dirs under `test_surfaces.py`.
"""

from collections import Counter

import builder
import golden_sets
import numpy as np
import pytest
import salvage_trials
from effort import counted
from fuzzing import LIMITS, N_INPUTS, SEED
from guard import guarded
from mutants import mutants, packed

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, KafkalogError, Reason
from kafkalog.indexes.index_files import OffsetIndex, TimeIndex, TransactionIndex
from kafkalog.log.searching.damaged_sizes import with_skipped_batches
from kafkalog.log.searching.resync import IntactRuns, find_batches
from kafkalog.records.codecs import Arena, decompress_into
from kafkalog.repair.salvaging.plan import choose
from kafkalog.state.checkpoints import read_leader_epochs, read_offset_checkpoint, read_topic_id
from kafkalog.state.producers import read_snapshot
from kafkalog.state.properties import read_properties
from kafkalog.storage.source import BufferSource


def codecs(data, number, folder):
    arena = Arena()
    codec = data[0] % 5 if data else 0
    n = decompress_into(arena, codec, guarded(data[1:]), magic=(0, 1, 2)[number % 3], limits=LIMITS)
    assert n == arena.used <= LIMITS.max_decompressed_bytes


def search(data, number, folder):
    source = BufferSource(guarded(data))
    found = IntactRuns.concatenate([part.joined() for part in find_batches(source)])
    found = with_skipped_batches(source, found, base_offset=0, limits=DEFAULT_LIMITS)
    choice = choose(source, found, base_offset=0, end_offset=2**31, epochs=[(0, 0)])
    assert (choice.kept.first_offset[1:] > choice.kept.last_offset[:-1]).all()
    assert (choice.kept.start[1:] >= choice.kept.end[:-1]).all()
    for start, end in zip(choice.kept.start.tolist(), choice.kept.end.tolist(), strict=True):
        assert builder.batch_positions(data[start:end])[-1][1] == end - start


def indexes(data, number, folder):
    content = guarded(data[: len(data) // 8 * 8])
    OffsetIndex(content, 100).lookup([0, 105, 2**40])
    TimeIndex(guarded(data[: len(data) // 12 * 12]), 100).lookup([0, 105, 2**40])
    TransactionIndex(guarded(data[: len(data) // 34 * 34]), 100)


def snapshot(data, number, folder):
    path = folder / "00000000000000000010.snapshot"
    path.write_bytes(data)
    assert len(read_snapshot(path).entries) <= len(data)


def checkpoints(data, number, folder):
    names = (kf.LEADER_EPOCH_CHECKPOINT, kf.RECOVERY_POINT_CHECKPOINT, kf.META_PROPERTIES, kf.PARTITION_METADATA)
    name = names[number % 4]
    (folder / name).write_bytes(data)
    if name == kf.LEADER_EPOCH_CHECKPOINT:
        read_leader_epochs(folder / name)
    elif name == kf.RECOVERY_POINT_CHECKPOINT:
        read_offset_checkpoint(folder / name)
    elif name == kf.META_PROPERTIES:
        read_properties(folder / name)
    else:
        read_topic_id(folder)


def golden(pattern):
    found = [path.read_bytes() for path in sorted(golden_sets.unpacked("k44").rglob(pattern))]
    return [data for data in found if 0 < len(data) <= 4096][:20]


TEXT = b"the quick brown fox jumps over the lazy dog, " * 20
TARGETS = {
    "codecs": (
        codecs,
        lambda: [bytes([codec]) + packed(codec, TEXT, magic) for codec in (1, 2, 3, 4) for magic in (1, 2)],
        0.5,
    ),
    "search": (search, lambda: [salvage_trials.made(seed, 12).data for seed in range(8)], 0.1),
    "indexes": (indexes, lambda: golden("*.*index"), 0.1),
    "snapshot": (snapshot, lambda: golden("*.snapshot"), 0.03),
    "checkpoints": (checkpoints, lambda: golden("*-checkpoint") + golden("partition.metadata"), 0.03),
}


@pytest.mark.parametrize("name", TARGETS)
def test_hostile_bytes_give_a_kafkalog_error_or_something_to_use(name, tmp_path):
    target, seeds, share = TARGETS[name]
    rng, sources = np.random.default_rng((SEED, sum(name.encode()))), seeds()
    assert len(sources) >= 4
    reasons = Counter()
    n = max(int(N_INPUTS * share) // len(sources), 20)
    for number, data in enumerate(counted(one for source in sources for one in mutants(rng, source, n))):
        try:
            target(data, number, tmp_path)
        except KafkalogError as error:
            reasons[error.reason] += 1
        except Exception as error:
            raise AssertionError(f"seed {SEED}, input {number} of {name}: {error!r} of {data.hex()}") from error
    assert all(isinstance(reason, Reason) for reason in reasons)
    assert reasons or name in ("search", "indexes")
