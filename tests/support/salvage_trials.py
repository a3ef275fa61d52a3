"""Random damage to segments, and what a salvage must make of it: every undamaged batch, nothing else, in order.

The oracle follows every byte: `origin` says for each byte of the damaged file which byte of the original it is, -1 for
a byte that was changed or that is new. A batch is undamaged if its bytes still stand together, and were not moved.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import json
import os
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import builder
import golden_sets
import numpy as np

import kafkalog
from kafkalog import format as kf

SECTOR = 512
KINDS = ("flip", "zero", "cut", "insert", "swap", "length", "garbage", "sector")


@dataclass(frozen=True)
class Source:
    """A segment to damage."""

    name: str
    base_offset: int
    data: bytes
    places: tuple[tuple[int, int], ...]

    @property
    def batches(self):
        """The bytes of each batch."""
        return [self.data[start:end] for start, end in self.places]


@dataclass
class Damaged:
    """A damaged segment."""

    data: bytes
    intact: dict[int, int]
    """Numbers of the undamaged batches, and where they stand."""
    unreadable: list[tuple[int, int]]
    kinds: list[str]

    @property
    def readable(self):
        """The bytes, with zeros where sectors are bad."""
        data = bytearray(self.data)
        for start, end in self.unreadable:
            data[start:end] = bytes(end - start)
        return bytes(data)


@dataclass
class Tally:
    """Results of some trials."""

    n_trials: int = 0
    n_damages: int = 0
    n_undamaged: int = 0
    n_kept: int = 0
    n_missed: int = 0
    n_invented: int = 0
    n_disordered: int = 0
    n_unseen: int = 0
    """Batches whose records are right, with an offset or an epoch that is wrong, and that nothing contradicts."""
    n_disputed: int = 0
    """Undamaged batches that an intact batch in a wrong place contradicts, and nothing decides between the two."""
    wrong: list[str] = field(default_factory=list)

    def __str__(self):
        return (
            f"{self.n_trials:,} trials, {self.n_damages:,} damages: {self.n_undamaged:,} undamaged batches,"
            f" {self.n_missed} missed, {self.n_invented} invented, {self.n_disordered} out of order;"
            f" {self.n_disputed} contradicted by an intact batch that was moved,"
            f" {self.n_unseen} with a wrong offset or epoch that nothing contradicts"
        )


def made(seed, n_batches=60):
    """A dense v2 log, in all codecs, of batches of many sizes."""
    rng = np.random.default_rng(seed)
    offset, batches = 0, []
    for number in range(n_batches):
        n = int(rng.integers(1, 12))
        records = [
            builder.record_v2(
                i, i, None if rng.integers(4) == 0 else b"key-%d" % (offset + i), rng.bytes(int(rng.integers(0, 90)))
            )
            for i in range(n)
        ]
        codec = int(rng.choice([0, 0, 0, 1, 3, 4]))
        batches.append(
            builder.batch_v2(
                records,
                base_offset=offset,
                codec=codec,
                leader_epoch=number // 25,
                base_timestamp=10**12 + 1000 * number,
            )
        )
        offset += n
    data = b"".join(batches)
    return Source(f"made-{seed}", 0, data, tuple(builder.batch_positions(data)))


@functools.cache
def sources():
    """Segments of real brokers in all formats, compacted and transactional ones among them; and some made ones."""
    found = [made(seed) for seed in range(4)]
    root = golden_sets.GOLDEN / "log_dir"
    for path in sorted(root.glob("*/*.log")):
        data = path.read_bytes()
        places = tuple(builder.batch_positions(data))
        if len(places) >= 5:
            found.append(Source(f"{path.parent.name}/{path.name}", int(path.stem), data, places))
    return tuple(found)


def damage(rng, source, n, kinds=KINDS):
    """Damage a segment `n` times."""
    data = np.frombuffer(source.data, np.uint8).copy()
    origin = np.arange(data.size)
    unreadable = []
    kinds = [str(kind) for kind in rng.choice(kinds, n)]
    kinds.sort(key=lambda kind: kind == "sector")  # places on the disk: nothing moves any more
    for kind in kinds:
        if data.size < 200:
            break
        at = int(rng.integers(0, data.size - 1))
        size = int(min(rng.choice([1, 2, 8, 60, 512, 4096]), data.size - at, max(data.size // 8, 1)))
        if kind == "flip":
            data[at] ^= 1 << int(rng.integers(8))
            origin[at] = -1
        elif kind in ("zero", "garbage"):
            new = np.zeros(size, np.uint8) if kind == "zero" else rng.integers(0, 256, size, dtype=np.uint8)
            origin[at : at + size][data[at : at + size] != new] = -1
            data[at : at + size] = new
        elif kind == "cut":
            data, origin = np.delete(data, slice(at, at + size)), np.delete(origin, slice(at, at + size))
        elif kind == "insert":
            new = rng.integers(0, 256, size, dtype=np.uint8)
            if rng.integers(2) and at + size <= data.size:
                new = data[at : at + size].copy()  # a piece of the file once more
            data, origin = np.insert(data, at, new), np.insert(origin, at, np.full(new.size, -1))
        elif kind == "swap":
            width = int(rng.choice([64, SECTOR]))
            a, b = (int(x) * width for x in rng.integers(0, max(data.size // width, 1), 2))
            if abs(a - b) < width or max(a, b) + width > data.size:
                continue
            first, second = data[a : a + width].copy(), data[b : b + width].copy()
            data[a : a + width], data[b : b + width] = second, first
            origin[a : a + width] = origin[b : b + width] = -1
        elif kind == "length":
            start = int(rng.choice([start for start, _ in source.places])) + 8
            places = np.flatnonzero(origin == start)
            if places.size and places[0] + 4 <= data.size:
                value = int(rng.choice([0, 1, -1, 49, 0x7FFFFF00, 2**31 - 1, int(rng.integers(0, 5000))]))
                new = np.frombuffer(value.to_bytes(4, "big", signed=True), np.uint8)
                there = slice(places[0], places[0] + 4)
                origin[there][data[there] != new] = -1
                data[there] = new
        elif kind == "sector":
            start = at // SECTOR * SECTOR
            end = min(start + SECTOR, data.size)
            origin[start:end] = -1
            unreadable.append((start, end))
    intact = {}
    for number, (start, end) in enumerate(source.places):
        for a in np.flatnonzero(origin == start).tolist():
            if np.array_equal(origin[a : a + end - start], np.arange(start, end)):
                intact[number] = a
    return Damaged(data.tobytes(), intact, unreadable, kinds)


@contextlib.contextmanager
def bad_sectors(path, ranges):
    """Reads of these ranges of a file fail with EIO, as those of a bad disk do."""
    inode, read = os.stat(path).st_ino, os.preadv

    def preadv(descriptor, buffers, position):
        size = sum(len(buffer) for buffer in buffers)
        if os.fstat(descriptor).st_ino == inode and any(a < position + size and position < b for a, b in ranges):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return read(descriptor, buffers, position)

    with mock.patch("kafkalog.storage.source.os.preadv", preadv):
        yield


def trial(rng, source, n_damages, tally, root):
    """Damage a segment, salvage it, and judge the result."""
    damaged = damage(rng, source, n_damages)
    partition, output = root / "t-0", root / "out"
    for old in (partition, output):
        shutil.rmtree(old, ignore_errors=True)
    partition.mkdir()
    log = partition / kf.segment_file_name(source.base_offset)
    log.write_bytes(damaged.data)
    with bad_sectors(log, damaged.unreadable):
        report = kafkalog.salvage(partition, output=output)
    tally.n_trials += 1
    tally.n_damages += n_damages
    tally.n_undamaged += len(damaged.intact)
    judge(source, damaged, output / "t-0", report.partitions[0], tally)
    assert log.read_bytes() == damaged.data
    assert json.loads((output / "salvage.json").read_text())["partitions"][0]["path"] == str(partition)


def judge(source, damaged, written, said, tally):
    """Compare what was written with the undamaged batches, and with the report."""
    original = source.batches
    number_of = {batch: number for number, batch in reversed(list(enumerate(original)))}
    number_of_protected = {protected(batch): number for number, batch in reversed(list(enumerate(original)))}
    kept, last, unseen = set(), -1, set()
    for path in sorted(written.glob("*.log")):
        data = path.read_bytes()
        places = builder.batch_positions(data)
        assert (places[-1][1] if places else 0) == len(data)
        for start, end in places:
            batch = data[start:end]
            tally.n_kept += 1
            first, end_offset = _offsets(batch)
            tally.n_disordered += end_offset <= last
            last = end_offset
            number = number_of.get(batch)
            if number is not None:
                tally.n_invented += number in kept
                kept.add(number)
            elif protected(batch) in number_of_protected:
                tally.n_unseen += 1
                unseen.add(number_of_protected[protected(batch)])
            else:
                tally.n_invented += 1
                tally.wrong.append(f"{source.name}: invented at {first}, {damaged.kinds}")
    # a cut that took the last byte of a batch may leave it whole: the next one begins with the same byte, and lacks it
    missed = {one for one in damaged.intact if one not in kept and not (kept - set(damaged.intact)) & {one - 1}}
    moved = [(one, damaged.readable.find(original[one])) for one in kept - set(damaged.intact)]
    disputed = {one for one in missed if any((other < one) != (there < damaged.intact[one]) for other, there in moved)}
    tally.n_disputed += len(disputed)
    missed -= disputed
    if missed:
        tally.n_missed += len(missed)
        tally.wrong.append(f"{source.name}: missed {sorted(missed)}, {damaged.kinds}")
    segment = said.segments[0]
    assert segment.size_in_bytes == len(damaged.data)
    total = segment.n_bytes_kept + segment.n_bytes_lost + segment.n_bytes_padding + segment.n_bytes_suspect
    assert total == len(damaged.data), (total, len(damaged.data))
    assert segment.n_bytes_kept == sum(path.stat().st_size for path in written.glob("*.log"))
    holes = sum(piece.end - piece.start for one in said.lost for piece in one.pieces)
    if not said.n_more_lost and all(len(one.pieces) < 64 for one in said.lost):
        assert holes == segment.n_bytes_lost + segment.n_bytes_suspect
    quarantine = 0 if said.quarantine is None else os.path.getsize(said.quarantine)
    assert quarantine == segment.n_bytes_lost + segment.n_bytes_suspect
    if unseen:
        return  # with a wrong offset in the log, the offsets of the holes are wrong as well
    for number in set(range(len(original))) - kept:
        first, last = _offsets(original[number])
        known = any(one.first_offset <= last and (one.end_offset is None or last < one.end_offset) for one in said.lost)
        # what was cut out left no byte: then only the gap in the offsets tells
        if not known and "cut" not in damaged.kinds and "swap" not in damaged.kinds:
            tally.wrong.append(f"{source.name}: the loss of offset {last} is not reported, {damaged.kinds}")


def run(seed, numbers, most_damages=50):
    """Make the trials with these numbers; each is the same every time."""
    tally = Tally()
    with tempfile.TemporaryDirectory() as folder:
        for number in numbers:
            rng = np.random.default_rng((seed, number))
            source = sources()[int(rng.integers(len(sources())))]
            n_damages = int(rng.integers(1, most_damages + 1)) if rng.integers(2) else int(rng.integers(1, 6))
            before = len(tally.wrong)
            trial(rng, source, n_damages, tally, Path(folder))
            tally.wrong[before:] = [f"trial {number}: {one}" for one in tally.wrong[before:]]
    return tally


def protected(batch):
    """What the checksum covers."""
    return batch[16:] if batch[16] < 2 else batch[21:]


def _offsets(batch):
    base = int.from_bytes(batch[:8], "big", signed=True)
    return base, base + (int.from_bytes(batch[23:27], "big") if batch[16] == 2 else 0)
