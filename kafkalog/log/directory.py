"""A partition's directory by one listing: which of its names are segments, `.swap` files, snapshots, and neither."""

from __future__ import annotations

import bisect
import os
from collections.abc import Sequence
from typing import Final

from kafkalog import format as kf
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import Place

_SWAP_SUFFIX: Final = kf.LOG_SUFFIX + kf.SWAP_SUFFIX


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
