"""Each bit of 64 batches of real brokers flipped: verify sees all flips but those of the table in docs/testing.md."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

import bit_flips
import pytest

PAGE = Path(__file__).parents[3] / "docs" / "testing.md"


def test_there_are_batches_of_all_kinds() -> None:
    kinds = {one.kind for one in bit_flips.batches()}
    assert len(bit_flips.batches()) == 64
    assert {"v2 control", "v2 empty, compacted", "v2 zstd", "v1 snappy", "v0 lz4", "v0 none, compacted"} <= kinds
    assert len(kinds) == 23


def test_no_flip_in_a_batch_of_a_log_without_gaps_is_unseen(tmp_path: Path) -> None:
    one = next(one for one in bit_flips.batches() if one.kind == "v2 none")
    n_bits, unseen = bit_flips.unseen(one, tmp_path)
    assert (n_bits, unseen) == (8 * one.size, Counter())


@pytest.mark.slow
def test_what_is_unseen_is_an_offset_where_a_log_has_gaps(tmp_path: Path) -> None:
    for one in bit_flips.batches()[:23:2]:  # of each second kind
        _, unseen = bit_flips.unseen(one, tmp_path)
        assert set(unseen) <= {"offset", "base offset"}, one
        assert not unseen or "compacted" in one.kind or one.magic < 2, one


@pytest.mark.soak
@pytest.mark.timeout(0)
def test_the_flips_that_nothing_sees_are_those_of_the_documents(tmp_path: Path) -> None:
    rows: dict[str, Counter[str]] = {}
    for one in bit_flips.batches():
        n_bits, unseen = bit_flips.unseen(one, tmp_path)
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


def _group(kind: str) -> str:
    """Format, whether it is compressed, and whether the log was compacted."""
    magic, _, what = kind.partition(" ")
    codec, _, cleaned = what.partition(", ")
    form = codec if codec in ("none", "control", "empty") else "compressed"
    return f"{magic} {form.replace('none', 'not compressed')}{', compacted' if cleaned else ''}"
