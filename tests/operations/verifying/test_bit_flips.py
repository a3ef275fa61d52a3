"""Each bit of 64 batches of real brokers flipped: verify sees all flips but those of the table in docs/testing.md."""

from __future__ import annotations

import functools
import re
import shutil
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import golden_sets
import numpy as np
import pytest
from effort import THOROUGH, spared

import kafkalog
from kafkalog import format as kf
from kafkalog.records.batch_table import Window, valid_crcs, whole_batches

MOST_BYTES = 1000
FIELDS = {
    2: (("base offset", 0, 8), ("size", 8, 12), ("leader epoch", 12, 16), ("magic", 16, 17)),
    1: (("offset", 0, 8), ("size", 8, 12)),
    0: (("offset", 0, 8), ("size", 8, 12)),
}
"""Fields that a batch's checksum does not cover, by magic: name, first byte, byte after the last."""


@dataclass(frozen=True)
class Golden:
    """A batch of a partition of a real broker."""

    partition: Path
    log: Path
    position: int
    size: int
    magic: int
    kind: str


@functools.cache
def batches():
    """64 of them: all formats, codecs, control batches and empty ones, of logs that were compacted and of others."""
    by_kind = {}
    for which in ("k44", "k44_extra", "k28"):
        for name, partition in sorted(golden_sets.partitions(which).items()):
            if not name.startswith("p-"):
                continue
            is_compacted = "compact" in name or "tombstone" in name
            for log in sorted(partition.glob("*.log")):
                table = kafkalog.Segment(log).batches
                for row in range(len(table)):
                    what = kf.Codec(int(table.attributes[row]) & kf.CODEC_MASK).name.lower()
                    what = "control" if table.is_control[row] else "empty" if table.records_count[row] == 0 else what
                    magic = int(table.magic[row])
                    kind = f"v{magic} {what}{', compacted' if is_compacted else ''}"
                    one = Golden(partition, log, int(table.position[row]), int(table.size_in_bytes[row]), magic, kind)
                    if one.size <= MOST_BYTES:
                        by_kind.setdefault(kind, []).append(one)
    rng = np.random.default_rng(64)
    for found in by_kind.values():
        rng.shuffle(found)
    chosen = []
    while len(chosen) < 64:
        chosen += [found.pop() for _, found in sorted(by_kind.items()) if found][: 64 - len(chosen)]
    return tuple(chosen)


def unseen_flips(one, folder, step=1):
    """The number of bits of a batch, and those whose flip no check sees, by field."""
    partition = Path(shutil.copytree(one.partition, folder / one.partition.name))
    log = partition / one.log.name
    whole = np.fromfile(log, np.uint8)
    data = whole[one.position : one.position + one.size].copy()
    found = Counter()
    outside = set()
    for name, start, end in FIELDS[one.magic]:
        outside |= {*range(8 * start, 8 * end)}
        for bit in range(8 * start, 8 * end, step):
            whole[one.position + bit // 8] ^= 1 << bit % 8
            log.write_bytes(whole.tobytes())
            found[name] += kafkalog.verify(partition).ok
            whole[one.position + bit // 8] ^= 1 << bit % 8
    for bit in range(8 * one.size):
        if bit not in outside:
            data[bit // 8] ^= 1 << bit % 8
            table = whole_batches(data, 0)
            found["others"] += len(table) == 1 and int(valid_crcs(Window(data, 0, table))[0])
            data[bit // 8] ^= 1 << bit % 8
    shutil.rmtree(partition)
    return 8 * one.size, +found


# --- tests -----------------------------------------------------------------------------------------------------------


PAGE = Path(__file__).parents[3] / "docs" / "testing.md"


def test_there_are_batches_of_all_kinds():
    kinds = {one.kind for one in batches()}
    assert len(batches()) == 64
    assert {"v2 control", "v2 empty, compacted", "v2 zstd", "v1 snappy", "v0 lz4", "v0 none, compacted"} <= kinds
    assert len(kinds) == 23


def test_no_flip_in_a_batch_of_a_log_without_gaps_is_unseen(tmp_path):
    one = next(one for one in batches() if one.kind == "v2 none")
    n_bits, unseen = unseen_flips(one, tmp_path, 1 if THOROUGH else 7)
    assert (n_bits, unseen) == (8 * one.size, Counter())


@pytest.mark.slow
def test_what_is_unseen_is_an_offset_where_a_log_has_gaps(tmp_path):
    for one in spared(batches()[:23], 4):  # one of each kind
        _, unseen = unseen_flips(one, tmp_path)
        assert set(unseen) <= {"offset", "base offset"}, one
        assert not unseen or "compacted" in one.kind or one.magic < 2, one


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_the_flips_that_nothing_sees_are_those_of_the_documents(tmp_path):
    rows = {}
    for one in batches():
        n_bits, unseen = unseen_flips(one, tmp_path)
        found = rows.setdefault(_group(one.kind), Counter())
        found += Counter({"batches": 1, "bits": n_bits})
        found += unseen
    said = {}
    for line in PAGE.read_text().splitlines():
        if match := re.fullmatch(r"\| (v\d[^|]*) \| (\d+) \| ([\d,]+) \| (\d+) \| (\d+) \| (\d+) \|", line):
            name, *numbers = match.groups()
            said[name] = [int(number.replace(",", "")) for number in numbers]
    assert said == {
        name: [found["batches"], found["bits"], found["base offset"] + found["offset"], found["leader epoch"],
               found["others"] + found["size"] + found["magic"]]
        for name, found in rows.items()
    }  # fmt: skip


def _group(kind):
    """Format, whether it is compressed, and whether the log was compacted."""
    magic, _, what = kind.partition(" ")
    codec, _, cleaned = what.partition(", ")
    form = codec if codec in ("none", "control", "empty") else "compressed"
    return f"{magic} {form.replace('none', 'not compressed')}{', compacted' if cleaned else ''}"
