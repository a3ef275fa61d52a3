"""Scans of what a running broker appends: one of what is there, then one for each time that there is more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Unpack, cast

from kafkalog import format as kf
from kafkalog.log import live
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import Paths
from kafkalog.log.open import open as open_path
from kafkalog.log.segment import Segment
from kafkalog.log.tail import PAUSE_SECONDS, LogTail
from kafkalog.parsing import TopicPatterns, some
from kafkalog.scanning.options import ENDS, ScanOptions
from kafkalog.scanning.query import offset_of
from kafkalog.scanning.scan import Scan


def follow(path: Paths, *, pause: float = PAUSE_SECONDS, **options: Unpack[ScanOptions]) -> Iterator[Scan]:
    """Scans that together have each record once; waits for more, forever, and looks at the files every `pause` seconds.

    The path is of log dirs or partition directories. Each scan ends after the last complete batch, or at the last
    stable offset with `read_committed`. Segments that a broker rolls, new partitions, and topics that are deleted and
    made again are followed too. Raises ValueError if an option sets an end, or `path` is a file.
    """
    for name in ENDS:
        if options.get(name) is not None:
            raise ValueError(f"{name} does not work with following, which has no end")
    whole = Scan(path, **options)  # checks the options
    if isinstance(whole.target, Segment):
        raise ValueError(f"{path}: name the partition directory or the log dir: a segment ends when the broker rolls")
    query = whole._query
    patterns = TopicPatterns(query.topics, internal=query.internal or not isinstance(whole.target, LogDir))
    paths = whole.target.paths if isinstance(whole.target, LogDir) else [whole.target.path]  # type: ignore[union-attr]
    if not all(isinstance(one, Path) for one in paths):
        raise ValueError(f"{some(paths)}: following works with local files only")
    tail = LogTail(
        lambda: LogDir(paths, limits=query.limits),
        lambda key: patterns.wants(key.topic) and (query.partitions is None or key.partition in query.partitions),
        isolation_level=query.isolation_level,
        on_corruption="skip",
        check_crcs=query.check_crcs,
        limits=query.limits,
    )
    seen: dict[kf.TopicPartition, int] = {}
    for ends in live.polled(tail.ends, pause):
        for key in tail.take_replaced():
            seen.pop(key, None)
        for key, end in ends.items():
            if key not in seen:
                seen[key] = offset_of(query.start_offset, key) or 0
            # after a change of leader, the log may be cut, and continue with other records
            elif end < seen[key]:
                seen[key] = end
        if any(seen[key] < end for key, end in ends.items()):
            opened = open_path(path, limits=query.limits)
            there = set(opened) if isinstance(opened, LogDir) else {cast(Any, opened).key}
            starts = {key: seen[key] for key in ends if key in there}
            new: dict[str, Any] = {name: one for name, one in options.items() if name not in ("limits", "memory_map")}
            yield Scan(opened, **{**new, "start_offset": starts, "end_offset": {key: ends[key] for key in starts}})
            seen |= {key: max(seen[key], ends[key]) for key in starts}
