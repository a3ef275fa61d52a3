"""Damaged logs: a broker that recovers them cuts where we say, and leaves the files that we make."""

from __future__ import annotations

import random
import shutil
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

import pytest
from conformance.jars import class_path, java
from conformance.kafka import Broker
from conformance.test_rebuild import QUIET, bare_copy, derived_files, epochs_below

import kafkalog
from kafkalog.errors import Reason
from kafkalog.operations.rebuilding.rebuilder import KINDS

pytestmark = [pytest.mark.broker, pytest.mark.slow]

"""Changes the bytes of a segment; told where its batches begin, and where the last one ends."""


def flip(data, at, rng):
    """A bit somewhere under a checksum."""
    data[rng.randrange(at[len(at) // 2 - 1] + 21, at[len(at) // 2])] ^= 1 << rng.randrange(8)


def flip_in_the_last(data, at, rng):
    data[rng.randrange(at[-2] + 21, at[-1])] ^= 1 << rng.randrange(8)


def flip_in_the_first(data, at, rng):
    data[rng.randrange(at[0] + 21, at[1])] ^= 1 << rng.randrange(8)


def cut_in_a_batch(data, at, rng):
    del data[rng.randrange(at[-2] + 61, at[-1]) :]


def cut_in_a_header(data, at, rng):
    del data[at[len(at) // 2] - rng.randrange(1, 4) :]
    data += bytes(data[:20])


def cut_in_a_size(data, at, rng):
    del data[at[-2] + 5 :]


def cut_between(data, at, rng):
    """Not to be noticed."""
    del data[at[-2] :]


def zero_tail(data, at, rng):
    data += bytes(rng.choice([12, 17, 18, 400]))


def zero_hole(data, at, rng):
    place = at[len(at) // 2 - 1]
    data[place : place + 64] = bytes(64)


def garbage_tail(data, at, rng):
    data += rng.randbytes(500)


def swap(data, at, rng):
    """Two neighbours change places, with their checksums; what is last in the file has not the last offset."""
    first, second, end = at[-3:] if len(at) > 3 else at[:3]
    data[first:end] = data[second:end] + data[first:second]


def swap_in_the_middle(data, at, rng):
    first, second, end = at[len(at) // 2 - 1 :][:3] if len(at) > 4 else at[:3]
    data[first:end] = data[second:end] + data[first:second]


def repeat(data, at, rng):
    data += data[at[-2] : at[-1]]


def leave_out(data, at, rng):
    """A gap is not noticed."""
    del data[at[len(at) // 2 - 1] : at[len(at) // 2]]


def size_too_large(data, at, rng):
    data[at[len(at) // 2 - 1] + 8] = 0x3F


def size_too_small(data, at, rng):
    data[at[len(at) // 2 - 1] + 8 : at[len(at) // 2 - 1] + 12] = (13).to_bytes(4, "big")


def magic_3(data, at, rng):
    """Outside the checksum, and not noticed."""
    data[at[len(at) // 2 - 1] + 16] = 3


DAMAGES = (
    *(flip, flip_in_the_last, flip_in_the_first, cut_in_a_batch, cut_in_a_header, cut_in_a_size, cut_between),
    *(zero_tail, zero_hole, garbage_tail, swap, swap_in_the_middle, repeat, leave_out),
    *(size_too_large, size_too_small, magic_3),
)


class Damaged(NamedTuple):
    """A partition that was damaged: how, where, and its segments before recovery."""

    what: str
    logs: dict[str, bytes]


def damage_partitions(log_dir, but):
    """Each kind of damage to a middle and to the last segment of some partition."""
    rng = random.Random(5)
    damaged = {}
    todo = [(damage, place) for place in ("last", "middle") for damage in DAMAGES]
    for directory in sorted(path for path in log_dir.iterdir() if path.is_dir()):
        # of a log start above the end a broker makes an empty log
        if directory.name.startswith(("__", "trimmed", "held-back")) or directory.name in but or not todo:
            continue
        segments = [one for one in kafkalog.Partition(directory).segments if len(one.batches) > 2]
        todo.sort(key=lambda one: (one[1] == "middle") != (len(segments) > 2))
        if not segments or (todo[0][1] == "middle" and len(segments) < 3):
            continue
        damage, place = todo.pop(0)
        segment = segments[len(segments) // 2] if place == "middle" else segments[-1]
        data = bytearray(segment.path.read_bytes())
        damage(data, [*segment.batches.position.tolist(), len(data)], rng)
        segment.path.write_bytes(data)
        logs = {path.name: path.read_bytes() for path in directory.glob("*.log")}
        damaged[directory.name] = Damaged(f"{damage.__name__} in {place} {segment.path.name}", logs)
    return damaged


def test_a_broker_cuts_where_we_say_and_leaves_the_same_files(history):
    folder = history.folder / "recovered"
    folder.mkdir()
    program = java()
    broker = Broker(program, class_path(program), folder, **QUIET)
    shutil.rmtree(broker.log_dir)
    subprocess.run(["cp", "-a", str(history.clean.log_dir), str(broker.log_dir)], check=True)
    far, far_offset = put_far_away(broker.log_dir)
    damaged = damage_partitions(broker.log_dir, {far})
    assert len(damaged) >= 25, damaged
    ours = folder / "ours"
    bare_copy(broker.log_dir, ours)
    # where indexes are there a broker survives that one cannot be made; old snapshots would tell it of what is gone,
    # and a transaction index that is there stays as an empty file
    for path in broker.log_dir.rglob("*"):
        if path.suffix in (".snapshot", ".txnindex"):
            path.unlink()
    for name in (".kafka_cleanshutdown", "recovery-point-offset-checkpoint"):
        (broker.log_dir / name).unlink()

    now = int(time.time() * 1000)
    before = history.client.server
    try:
        broker.start()
        history.client.server = broker.address
        history.client.ask("ready")
        listed = {
            f"{row['topic']}-{row['partition']}": row["latest"]
            for row in history.client.ask("offsets", times={})["partitions"]
        }
        # while it runs, what was recovered in vain still lies in what is allocated ahead
        broker.stop()
    finally:
        history.client.server = before
        if broker.is_running:
            broker.kill()

    n_cut = 0
    for name, one in damaged.items():
        report = kafkalog.reindex(ours / name, kinds=KINDS, in_place=True, backup=False, damaged="cut", now=now)
        n_cut += compare(ours / name, broker.log_dir / name, one, report, listed[name])
    assert 12 <= n_cut < len(damaged)

    # offsets too far apart for one index: the broker splits the segment, which of ours only a conversion does
    report = kafkalog.reindex(ours / far, dry_run=True)
    assert [(one.reason, one.base_offset) for one in report.findings.rows] == [
        (Reason.OFFSET_OUTSIDE_SEGMENT, far_offset)
    ]
    kafkalog.convert(ours / far, folder / far)
    split, whole = (
        {path.name: path.read_bytes() for path in directory.glob("*.log")}
        for directory in (folder / far, broker.log_dir / far)
    )
    assert split == whole
    assert max(split) == f"{far_offset:020d}.log"
    assert listed[far] == kafkalog.Partition(ours / far).log_end_offset > far_offset


def put_far_away(log_dir):
    """Give the last batch of some partition, again, an offset that no index entry of its segment can tell."""
    for directory in sorted(path for path in log_dir.iterdir() if path.is_dir()):
        if directory.name.startswith(("__", "trimmed", "held-back")):
            continue
        segment = kafkalog.Partition(directory).segments[-1]
        last = segment.batches[-1:]
        if len(last) and last.magic[0] == 2 and last.producer_id[0] < 0:
            offset = segment.base_offset + 2**31 + 10
            data = segment.path.read_bytes()
            batch = data[int(last.position[0]) : int(last.next_position[0])]
            segment.path.write_bytes(data + offset.to_bytes(8, "big") + batch[8:])
            return directory.name, offset
    raise AssertionError("no partition is left")


def compare(ours, theirs, damaged, report, log_end_offset):
    """All that is left has to be the same; whether the broker cut anything off."""
    what = f"{theirs.name}: {damaged.what}"
    left = {path.name: path.read_bytes() for path in theirs.glob("*.log")}
    bases = sorted(left)
    assert bases == sorted(damaged.logs)[: len(bases)], what
    for base, data in left.items():
        assert damaged.logs[base].startswith(data), what
    is_cut = left != damaged.logs
    assert is_cut == bool(report.findings.rows), what
    assert sum(map(len, left.values())) == report.n_bytes_read, what
    if is_cut:
        finding = report.findings.rows[0]
        assert Path(finding.path or "").name == bases[-1], what
        # an index entry that cannot be made costs the whole segment
        assert len(left[bases[-1]]) == (0 if finding.reason is Reason.OFFSET_ORDER else finding.position), what

    expected, found = derived_files(theirs), derived_files(ours)
    assert sorted(found) == sorted(expected), what
    for name, data in expected.items():
        assert data == found[name], f"{what}: {name}"
    assert not log_end_offset or f"{log_end_offset:020d}.snapshot" in found, what
    assert epochs_below(ours, log_end_offset) == epochs_below(theirs, log_end_offset), what
    return is_cut
