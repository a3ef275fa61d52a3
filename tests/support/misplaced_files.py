"""Files that are in the wrong place: sound in themselves, of another segment, partition, topic, or time."""

import os
import shutil
import struct

import builder
import damaged_partitions
import numpy as np

from kafkalog._kernels import crc as crc_kernels

_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")


def _some(rng, paths):
    return paths[int(rng.integers(len(paths)))]


def _files(partition, *suffixes):
    return sorted(path for path in partition.iterdir() if path.suffix in suffixes and path.is_file())


def _other(rng, suffix):
    """A file of another partition."""
    found = _files(_some(rng, list(damaged_partitions.sources())), suffix)
    return _some(rng, found) if found else None


def swapped_segments(rng, partition):
    """The contents of two segments change places, with or without their indexes."""
    logs = _files(partition, ".log")
    if len(logs) < 2:
        return ""
    first, second = (logs[int(one)] for one in rng.choice(len(logs), 2, replace=False))
    for suffix in _SUFFIXES[:4] if rng.random() < 0.5 else (".log",):
        paths = [first.with_suffix(suffix), second.with_suffix(suffix)]
        if all(path.is_file() for path in paths):
            contents = [path.read_bytes() for path in paths]
            paths[0].write_bytes(contents[1])
            paths[1].write_bytes(contents[0])
    return f"{first.name} and {second.name} exchanged"


def foreign_index(rng, partition):
    suffix = str(rng.choice([".index", ".timeindex", ".txnindex", ".snapshot"]))
    here, other = _files(partition, suffix), _other(rng, suffix)
    if other is None or not here:
        return ""
    target = _some(rng, here)
    with other.open("rb") as file:
        target.write_bytes(file.read(damaged_partitions.KEPT_SIDECAR_BYTES))
    return f"{target.name} of {other.parent.name}"


def future_snapshot(rng, partition):
    """A producer snapshot of an offset or a time that the log has not come to."""
    here = _files(partition, ".snapshot")
    if not here:
        return ""
    path = _some(rng, here)
    data = path.read_bytes()
    entries = [bytearray(data[at : at + 46]) for at in range(10, len(data) - 45, 46)]
    for entry in entries:
        entry[22:30] = struct.pack(">q", 4_000_000_000_000)
        if rng.random() < 0.5:
            entry[14:22] = struct.pack(">q", 10**6)
    body = struct.pack(">i", len(entries)) + b"".join(entries)
    crc = crc_kernels.checksum_crc32c(np.frombuffer(body, np.uint8))
    offset = int(rng.choice([int(path.stem), int(path.stem) + 1, 10**6, 10**12]))
    path.with_name(f"{offset:020d}.snapshot").write_bytes(data[:2] + struct.pack(">I", crc) + body)
    return f"{path.name} from the future at {offset}"


def half_of_another(rng, partition):
    """The second half of a segment is that of another partition, cut at batches or anywhere."""
    here, other = _files(partition, ".log"), _other(rng, ".log")
    if not here or other is None:
        return ""
    path = _some(rng, here)
    data, alien = path.read_bytes(), other.read_bytes()
    ends = [end for _, end in builder.batch_positions(data)] or [0]
    starts = [start for start, _ in builder.batch_positions(alien)] or [0]
    at, start = ends[len(ends) // 2], starts[len(starts) // 2]
    if rng.random() < 0.3:
        at, start = len(data) // 2, len(alien) // 2
    path.write_bytes(data[:at] + alien[start:])
    return f"{path.name} from {at} on of {other.parent.name}"


def sparse(rng, partition):
    """A file with a hole, in it or behind it."""
    here = _files(partition, ".log", ".index", ".timeindex")
    if not here:
        return ""
    path = _some(rng, here)
    size = path.stat().st_size
    if rng.random() < 0.5:
        os.truncate(path, size + int(rng.choice([1, 4096, 2**20])))
        return f"{path.name} with a hole behind it"
    data = bytearray(path.read_bytes())
    start = int(rng.integers(0, size + 1)) // 512 * 512
    data[start : start + 4096] = bytes(len(data[start : start + 4096]))
    path.write_bytes(data)
    return f"{path.name} with a hole at {start}"


def renamed_segment(rng, partition):
    """A segment with its indexes under another offset."""
    here = _files(partition, ".log")
    if not here:
        return ""
    path = _some(rng, here)
    base = max(int(path.stem) + int(rng.choice([-1000, -50, -1, 1, 50, 1000, 10**6])), 0)
    if (partition / f"{base:020d}.log").exists():
        return ""
    for suffix in _SUFFIXES[:4]:
        one = path.with_suffix(suffix)
        if one.is_file():
            one.rename(one.with_name(f"{base:020d}{suffix}"))
    return f"{path.name} renamed to {base}"


def epochs_go_back(rng, partition):
    """A leader epoch file whose offsets, epochs, or both do not rise."""
    n = int(rng.integers(1, 6))
    epochs, offsets = rng.integers(0, 12, n).tolist(), rng.integers(0, 400, n).tolist()
    if rng.random() < 0.5:
        epochs.sort()
    lines = [f"{epoch} {offset}" for epoch, offset in zip(epochs, offsets, strict=True)]
    path = partition / "leader-epoch-checkpoint"
    if path.is_dir() or path.is_symlink():
        return ""
    path.write_text("\n".join(["0", str(n), *lines, ""]))
    return f"leader epochs {lines}"


def cut_checkpoint(rng, partition):
    """A text file that ends too early."""
    here = [path for folder in (partition, partition.parent) for path in folder.glob("*checkpoint") if path.is_file()]
    if not here:
        return ""
    path = _some(rng, sorted(here))
    data = path.read_bytes()
    path.write_bytes(data[: int(rng.integers(0, len(data) + 1))])
    return f"{path.name} cut"


def other_topic_id(rng, partition):
    path = partition / "partition.metadata"
    if path.is_dir() or path.is_symlink():
        return ""
    path.write_text("version: 0\ntopic_id: pVtd5q9fv17AmQxDD_e9Gw\n")
    return "another topic id"


def left_over(rng, partition):
    """A segment and its indexes as a cleaning, a deletion or a split that did not finish left them."""
    here = _files(partition, ".log")
    if not here:
        return ""
    path, suffix = _some(rng, here), str(rng.choice([".deleted", ".cleaned", ".swap"]))
    is_copy = rng.random() < 0.5
    for kind in _SUFFIXES[: int(rng.integers(1, 5))]:
        one = path.with_suffix(kind)
        if one.is_file():
            (shutil.copyfile if is_copy else shutil.move)(one, f"{one}{suffix}")
    return f"{path.name} {'copied' if is_copy else 'renamed'} to {suffix}"


def duplicate_tail(rng, partition):
    """The end of a segment once more as a segment of its own, as after a roll that went wrong."""
    here = _files(partition, ".log")
    if not here:
        return ""
    path = here[-1] if rng.random() < 0.6 else _some(rng, here)
    data = path.read_bytes()
    places = builder.batch_positions(data)
    if not places:
        return ""
    start, _ = places[int(rng.integers(len(places)))]
    base = int.from_bytes(data[start : start + 8], "big")
    target = path.with_name(f"{base:020d}.log")
    if base >= 2**62 or target.exists():
        return ""
    target.write_bytes(data[start:])
    return f"{path.name} from {start} on once more as {target.name}"


KINDS = (
    *(swapped_segments, foreign_index, future_snapshot, half_of_another, sparse, renamed_segment, epochs_go_back),
    *(cut_checkpoint, other_topic_id, left_over, duplicate_tail),
)


def misplace(rng, partition):
    """Do one of these to a partition; returns what was done, "" if nothing."""
    try:
        return KINDS[int(rng.integers(len(KINDS)))](rng, partition)
    except OSError:  # of a link to itself
        return ""
