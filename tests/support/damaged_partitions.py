"""Partitions with any of their files damaged, and the files of the log dir around them; made from a number.

A mutation knows what it hits: fields of batch headers, records under a checksum that is made right again, entries of
indexes and snapshots, numbers in text files, and which files there are.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import struct
import sys
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import builder
import golden_sets
import numpy as np
from mutants import I32, I64, LEVELS, golden_batches, make_seed, repaired

import kafkalog
from kafkalog._kernels import crc as crc_kernels

MAX_LOG_BYTES = 100_000
KEPT_SIDECAR_BYTES = 4096
"""Of preallocated indexes: what is used of them, and some zeros."""

HEADER_FIELDS = ((0, 8), (8, 4), (12, 4), (16, 1), (17, 4), (21, 2), (23, 4), (27, 8), (35, 8), (43, 8), (51, 2))
HEADER_FIELDS += ((53, 4), (57, 4))
_ENTRY_FIELDS = {
    ".index": (4, 4),
    ".timeindex": (8, 4),
    ".txnindex": (2, 8, 8, 8, 8),
    ".snapshot": (8, 2, 4, 8, 4, 8, 4, 8),
}
_SNAPSHOT_HEADER = 10
_NUMBERS = (
    *("-1", "0", "1", "-9223372036854775808", "9223372036854775807", "9223372036854775808", "99999999999999999999999"),
    *("2147483647", "2147483648", "-2147483649", "1.5", "0x10", "+5", "1_000", "\u0661\u0662", "", "abc", "\u2028"),
    *("nan", "\x00", "\ud7ff", "\U0001f600", " ", "9" * 5000),
)
_MOST_DIGITS = 4300  # Python makes no number of a longer text
_NAMES = ("x", "", "..", "a/b", "\u00e9", "a b", "0", "p-multi", "a" * 300, "\x00", "__consumer_offsets")


@dataclass
class Damaged:
    """A log dir in which something is wrong."""

    root: Path
    partition: Path
    what: list[str] = field(default_factory=list)


@functools.cache
def sources():
    """Partitions that brokers wrote, clean and unclean, small ones."""
    found = []
    for name in golden_sets.SETS:
        for archive in ("clean", "unclean"):
            if not (golden_sets.GOLDEN / name / f"{archive}.tar.xz").is_file():
                continue
            for path in golden_sets.partitions(name, archive).values():
                if sum(log.stat().st_size for log in path.glob("*.log")) <= MAX_LOG_BYTES:
                    found.append(path)
    return tuple(found)


def _integer(rng, width, old):
    """A number such as programs stumble over, or one near what was there."""
    pick = int(rng.integers(0, 4))
    if pick == 0:
        value = old + int(rng.choice([-1, 1, 2, -2, 7, 1000, -1000]))
    elif pick == 1:
        value = int(rng.choice(np.array(I32)))
    elif pick == 2:
        value = int(rng.choice(np.array(I64)))
    else:
        value = int.from_bytes(rng.bytes(width), "big")
    return (value & (1 << 8 * width) - 1).to_bytes(width, "big")


def changed_field(rng, data, at, width):
    """The data with another number in a field."""
    old = int.from_bytes(data[at : at + width], "big", signed=True)
    return data[:at] + _integer(rng, width, old) + data[at + width :]


def changed_bytes(rng, data):
    """Any file: bits, noise, zeros, cuts, insertions, repetitions."""
    size = len(data)
    at = int(rng.integers(0, size + 1))
    n = int(rng.choice([1, 2, 7, 61, 512, 4096]))
    pick = int(rng.integers(0, 9))
    if pick == 0 and at < size:
        return data[:at] + bytes((data[at] ^ 1 << int(rng.integers(0, 8)),)) + data[at + 1 :]
    if pick == 1:
        return data[:at] + rng.bytes(min(n, size - at)) + data[at + n :]
    if pick == 2:
        return data[:at] + bytes(min(n, size - at)) + data[at + n :]
    if pick == 3:
        return data[:at] + b"\xff" * min(n, size - at) + data[at + n :]
    if pick == 4:
        return data[:at]
    if pick == 5:
        return data[:at] + rng.bytes(n) + data[at:]
    if pick == 6:
        return data[:at] + data[at + n :]
    if pick == 7:
        return data[: at + n] + data[at:]
    return data + (bytes(n) if rng.random() < 0.5 else rng.bytes(n))


def _batch_changed(rng, batch):
    """One batch: a field of its header, or what is under the checksum and the compression."""
    pick = int(rng.integers(0, 6))
    if pick < 3:
        fields = [(at, width) for at, width in HEADER_FIELDS if at + width <= len(batch)]
        for _ in range(int(rng.integers(1, 3))):
            batch = changed_field(rng, batch, *fields[int(rng.integers(0, len(fields)))])
        if rng.random() < 0.6:
            size = batch[8:12]
            batch = repaired(batch)
            if rng.random() < 0.2:  # the size stays wrong, the checksum is not that of these bytes
                batch = batch[:8] + size + batch[12:]
        return batch
    if pick == 3:
        fields = [(at, width) for at, width in ((18, 8), (26, 8), (34, 4)) if at + width <= len(batch)]
        return repaired(changed_field(rng, batch, *fields[int(rng.integers(0, len(fields)))]) if fields else batch)
    level = [*LEVELS][int(rng.integers(0, len(LEVELS)))]
    try:
        seed = make_seed(batch)
    except Exception:  # it was changed before
        return repaired(batch)
    (changed,) = LEVELS[level][0](rng, seed, 1)
    return batch[:8] + changed[8:]


def _log_changed(rng, data):
    """A `.log`: one or several batches, or where batches stand."""
    bounds = [(start, stop) for start, stop in builder.batch_positions(data) if stop - start >= 26]
    if not bounds or rng.random() < 0.2:
        return changed_bytes(rng, data)
    row = int(rng.integers(0, len(bounds)))
    start, stop = bounds[row]
    pick = int(rng.integers(0, 14))
    if pick < 9:
        return data[:start] + _batch_changed(rng, data[start:stop]) + data[stop:]
    if pick == 9:  # a base offset that reaches beyond what follows
        moved = int.from_bytes(data[start : start + 8], "big", signed=True) + int(rng.choice([-100, 1, 50, 300, 10**6]))
        return data[:start] + struct.pack(">Q", moved & 2**64 - 1) + data[start + 8 :]
    if pick == 10:
        return data[:stop] + data[start:]
    if pick == 11:
        return data[:start] + data[stop:]
    if pick == 12:
        other_start, other_stop = sorted((bounds[int(rng.integers(0, len(bounds)))], (start, stop)))
        if other_start[1] <= other_stop[0]:
            (a, b), (c, d) = other_start, other_stop
            return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]
    kinds = [*golden_batches().values()]
    kind = kinds[int(rng.integers(0, len(kinds)))]
    alien = kind[int(rng.integers(0, min(len(kind), 5)))]
    if rng.random() < 0.7:
        offset = int.from_bytes(data[start : start + 8], "big", signed=True)
        alien = struct.pack(">q", offset) + alien[8:]
    return data[:start] + alien + data[start if rng.random() < 0.5 else stop :]


def _entries_changed(rng, data, suffix):
    """An index or a snapshot: fields, order and number of its entries."""
    widths = _ENTRY_FIELDS[suffix]
    size, head = sum(widths), _SNAPSHOT_HEADER if suffix == ".snapshot" else 0
    n = (len(data) - head) // size
    if n < 1 or rng.random() < 0.2:
        data = changed_bytes(rng, data)
    else:
        entry = head + size * int(rng.integers(0, n))
        pick = int(rng.integers(0, 5))
        if pick < 3:
            number = int(rng.integers(0, len(widths)))
            data = changed_field(rng, data, entry + sum(widths[:number]), widths[number])
        elif pick == 3:
            data = data[: entry + size] + data[entry:]
        else:
            data = data[:entry] + data[entry + size :]
    if suffix == ".snapshot" and len(data) >= _SNAPSHOT_HEADER and rng.random() < 0.8:
        n = (len(data) - head) // size
        if rng.random() < 0.8:
            data = data[:6] + struct.pack(">i", n) + data[10:]
        covered = np.frombuffer(data[6:], np.uint8)
        data = data[:2] + struct.pack(">I", crc_kernels.checksum_crc32c(covered)) + data[6:]
    return data


def _text_changed(rng, data):
    """A checkpoint or properties file: a number, a name, a line."""
    if rng.random() < 0.25:
        return changed_bytes(rng, data)
    text = data.decode(errors="replace")
    numbers = [*re.finditer(r"-?\d+", text)]
    pick = int(rng.integers(0, 6))
    if pick < 3 and numbers:
        hit = numbers[int(rng.integers(0, len(numbers)))]
        new = _NUMBERS[int(rng.integers(0, len(_NUMBERS)))]
        if rng.random() < 0.4:
            by = int(rng.choice([-1, 1, 10, -10, 10**6]))
            new = str(int(hit[0]) + by) if len(hit[0]) < _MOST_DIGITS else hit[0]
        text = text[: hit.start()] + new + text[hit.end() :]
        return text.encode(errors="surrogatepass")
    lines = text.split("\n")
    at = int(rng.integers(0, len(lines)))
    if pick == 3:
        lines.insert(at, lines[int(rng.integers(0, len(lines)))])
    elif pick == 4:
        del lines[at]
    else:
        words = lines[at].split(" ")
        words[int(rng.integers(0, len(words)))] = _NAMES[int(rng.integers(0, len(_NAMES)))]
        lines[at] = " ".join(words)
    if len(lines) > 2 and lines[1].isdigit() and rng.random() < 0.7:
        lines[1] = str(sum(bool(line) for line in lines[2:]))
    return ("\r\n" if rng.random() < 0.1 else "\n").join(lines).encode(errors="surrogatepass")


def _changed(rng, path):
    """Change a file by what it is."""
    data = path.read_bytes()
    if path.suffix == ".log":
        new = _log_changed(rng, data)
    elif path.suffix in _ENTRY_FIELDS:
        new = _entries_changed(rng, data, path.suffix)
    else:
        new = _text_changed(rng, data)
    path.write_bytes(new)
    return f"{path.name} changed ({len(data)} -> {len(new)} bytes)"


def _refiled(rng, path):
    """Which files there are, and what they are called."""
    pick = int(rng.integers(0, 9))
    if pick == 0:
        path.unlink()
        return f"{path.name} deleted"
    if pick == 1:
        path.write_bytes(b"")
        return f"{path.name} emptied"
    if pick == 2:
        path.unlink()
        path.mkdir()
        return f"{path.name} a directory"
    if pick == 3:
        suffix = str(rng.choice([".deleted", ".cleaned", ".swap", ".kafkalog-backup", "~"]))
        path.rename(path.with_name(path.name + suffix))
        return f"{path.name} renamed to {suffix}"
    if pick == 4 and path.suffix in (*_ENTRY_FIELDS, ".log"):
        offset = int(rng.choice([0, 1, 50, 10**6, 2**31, 2**63 - 1, 2**63, 10**20 - 1]))
        path.rename(path.with_name(f"{offset:020d}{path.suffix}"))
        return f"{path.name} renamed to {offset}"
    if pick == 5:
        other = path.with_name(f"{int(rng.integers(0, 2000)):020d}{path.suffix}")
        shutil.copy(path, other) if other != path else None
        return f"{path.name} copied to {other.name}"
    if pick == 6:
        path.unlink()
        path.symlink_to(path.name if rng.random() < 0.5 else "nowhere")
        return f"{path.name} a link to nowhere"
    siblings = sorted(one for one in path.parent.iterdir() if one.is_file())
    other = siblings[int(rng.integers(0, len(siblings)))]
    shutil.copyfile(other, path) if other != path else None
    return f"{path.name} with the bytes of {other.name}"


def _repaired_log(path):
    """All checksums of a log right again, as far as its batches can be walked."""
    data = path.read_bytes()
    pieces, at = [], 0
    for start, stop in builder.batch_positions(data):
        if stop - start < 26 or stop > len(data):
            break
        batch = data[start:stop]
        if batch[16] < 2 or (batch[16] == 2 and len(batch) >= 61):
            batch = repaired(batch)
        pieces.append(data[at:start] + batch)
        at = stop
    path.write_bytes(b"".join(pieces) + data[at:])


def _copied(source, target):
    target.mkdir()
    for path in source.iterdir():
        if path.is_file():
            is_index = path.suffix in (".index", ".timeindex")
            with path.open("rb") as file:
                (target / path.name).write_bytes(file.read(KEPT_SIDECAR_BYTES if is_index else -1))


def _header_changed(rng, batch):
    for _ in range(int(rng.integers(1, 3))):
        fields = [(at, width) for at, width in HEADER_FIELDS if at + width <= len(batch)]
        batch = changed_field(rng, batch, *fields[int(rng.integers(0, len(fields)))])
    return batch


@contextmanager
def without_right_checksums():
    """Damage as by disks: batches have one or two wrong fields, and checksums are not made right again."""
    damage = {"_batch_changed": _header_changed, "_repaired_log": lambda path: None}
    with mock.patch.multiple(sys.modules[__name__], **damage):
        yield


def damaged(seed, number, root):
    """A log dir of one or two partitions with one to four things wrong in it; always the same for the same number."""
    rng = np.random.default_rng([seed, number])
    every = sources()
    source = every[int(rng.integers(0, len(every)))]
    root.mkdir()
    target = root / source.name.split(".")[0]
    _copied(source, target)
    case = Damaged(root, target, [f"{source.parent.name}/{source.name}"])
    if rng.random() < 0.2:
        other = every[int(rng.integers(0, len(every)))]
        if not (root / other.name).exists():
            _copied(other, root / other.name)
    names = [path.name for path in root.iterdir()]
    for checkpoint in ("log-start-offset", "recovery-point-offset", "replication-offset", "cleaner-offset"):
        if rng.random() < 0.6:
            offset = int(rng.choice([0, 1, 10, 100, 300, 10**6]))
            lines = [f"{name.rpartition('-')[0]} {name.rpartition('-')[2]} {offset}" for name in names]
            (root / f"{checkpoint}-checkpoint").write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    if rng.random() < 0.6:
        (root / "meta.properties").write_text(
            "#\n#Sat Nov 21\nnode.id=1\ndirectory.id=pVtd5q9fv17AmQxDD_e9Gw\nversion=1\n"
        )
    for _ in range(int(rng.integers(1, 5))):
        files = sorted(path for path in target.iterdir() if path.is_file() and not path.is_symlink())
        around = sorted(path for path in root.iterdir() if path.is_file() and not path.is_symlink())
        logs = [path for path in files if path.suffix == ".log"]
        share = rng.random()
        pool = logs if share < 0.55 and logs else around if share > 0.88 and around else files
        if not pool:
            break
        path = pool[int(rng.integers(0, len(pool)))]
        change = _refiled if rng.random() < 0.12 else _changed
        try:
            case.what.append(change(rng, path))
        except IsADirectoryError:
            continue  # an earlier change made one of the file that this one would have written
    if rng.random() < 0.3:
        for path in target.glob("*.log"):
            if path.is_file() and path.stat().st_size < 2**22:
                _repaired_log(path)
    if rng.random() < 0.5:
        os.utime(target, (1_790_000_000, 1_790_000_000))
    return case


def damaged_partition(log_dir_copy):
    path = log_dir_copy / "p-zstd-java-0" / "00000000000000000000.log"
    segment = kafkalog.open(path)
    return path, segment.batches


def reasons(path, **options):
    """What is found to be damaged, by file name."""
    found = {}
    for finding in kafkalog.verify(path, **options).findings:
        if finding.damage:
            found.setdefault(Path(finding.path or "").name, set()).add(finding.reason.value)
    return found


def change(path, edit):
    data = bytearray(path.read_bytes())
    edit(data)
    path.write_bytes(data)


def put(position, new):
    def edit(data):
        data[position : position + len(new)] = new

    return edit


def second(partition, suffix):
    """The second file of a kind."""
    return sorted(partition.glob(f"*{suffix}"))[1]


def move_entry(partition):
    """Let an entry of an offset index point into the middle of a batch."""
    path = second(partition, ".index")
    (position,) = struct.unpack_from(">i", path.read_bytes(), 5 * 8 + 4)
    change(path, put(5 * 8 + 4, struct.pack(">i", position + 1)))
