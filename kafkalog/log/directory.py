"""A partition's directory by one listing: which of its names are segments, `.swap` files, snapshots, and neither."""

from __future__ import annotations

import bisect
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kafkalog import format as kf
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import Place

_SWAP_SUFFIX: Final = kf.LOG_SUFFIX + kf.SWAP_SUFFIX


REPLACED: Final = "replaced by a .swap"
BETWEEN_SWAPS: Final = "between two .swap files, which a broker takes for one range"


def replaced_names(names: Iterable[str], swap_ends: Mapping[str, int]) -> dict[str, str]:
    """Which files a broker deletes or overwrites when it completes the swaps of a crash, and why.

    `swap_ends` has the offset after the last record of each `.log.swap`. All of them are one range, from the first
    base offset to the last end. Source: LogLoader.load, Kafka 4.3.
    """
    ranges = [(kf.parse_base_offset(name) or 0, end) for name, end in swap_ends.items()]
    start, stop = min(ranges, default=(0, 0))[0], max((end for _, end in ranges), default=0)
    renamed = {final_name(name) for name in swap_ends}
    replaced = {}
    for name in names:
        offset = kf.parse_base_offset(name)
        if offset is None or name.endswith(kf.SWAP_SUFFIX):
            continue
        if name in renamed or start <= offset < stop:
            is_covered = name in renamed or any(base <= offset < end for base, end in ranges)
            replaced[name] = REPLACED if is_covered else BETWEEN_SWAPS
    return replaced


def final_name(name: str) -> str:
    """The name of a file once a `.swap` is complete."""
    return name.removesuffix(kf.SWAP_SUFFIX)


class Directory(Listing):
    """What the names in a partition's directory mean; raises ReadError if it cannot be listed.

    Attributes
    ----------
    logs, swaps, snapshots : dict of str to int
        Names of the `.log` files, of the `.log.swap` files and of the producer snapshots, with their offsets.
    bases : list of int
        Base offsets of the `.log` files, in order.
    unfinished : int
        The lowest offset of `.cleaned` files, whose work is unfinished like later `.swap` files; 2**63 without one.
    strays : list of str
        Names that do not begin with an offset.
    """

    def __init__(self, path: Place, entries: Sequence[os.DirEntry[str]] | None = None) -> None:
        super().__init__(path, entries)
        self.logs: dict[str, int] = {}
        self.swaps: dict[str, int] = {}
        self.snapshots: dict[str, int] = {}
        self.unfinished = 2**63
        self.strays: list[str] = []
        for name in self.names:
            offset = kf.parse_base_offset(name)
            if offset is None:
                self.strays.append(name)
            elif name.endswith(kf.LOG_SUFFIX):
                self.logs[name] = offset
            elif name.endswith(_SWAP_SUFFIX):
                self.swaps[name] = offset
            elif name.endswith(kf.PRODUCER_SNAPSHOT_SUFFIX):
                self.snapshots[name] = offset
            elif name.endswith(kf.CLEANED_SUFFIX) and name in self.files:
                self.unfinished = min(self.unfinished, offset)
        self.bases = sorted(self.logs.values())

    def base_after(self, offset: int) -> int | None:
        """The first base offset of a segment that is above an offset; None if there is none."""
        following = bisect.bisect_right(self.bases, offset)
        return self.bases[following] if following < len(self.bases) else None
