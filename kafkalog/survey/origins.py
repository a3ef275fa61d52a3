"""Where an output comes from, and what it is known to lack.

Commands that make partitions from others write `origin.json` next to them: the log dirs that they read. `salvage` and
`merge` also write a report with the offsets that they lost. So a later command finds the cluster's metadata log and
checkpoints of the sources, and knows a hole as a loss that was reported.
"""

from __future__ import annotations

import json
import os
import typing
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from kafkalog.errors import Certainty, KafkalogError, Reason
from kafkalog.storage.source import read_file
from kafkalog.survey.losses import Lost

ORIGIN_NAME: Final = "origin.json"
_REPORTS: Final = ("salvage.json", "merge.json")
_MAX_BYTES: Final = 2**28


def encode_origin(command: str, log_dirs: Iterable[str | os.PathLike[str]]) -> bytes:
    """The content of `origin.json`: the command that made the output, and the log dirs that it read."""
    paths = list(dict.fromkeys(os.path.realpath(path) for path in log_dirs))
    return (json.dumps({"version": 1, "command": command, "log_dirs": paths}, indent=1) + "\n").encode()


def source_log_dirs(root: Path) -> list[Path]:
    """The log dirs from which the partitions in a directory were made, also over several steps; those that exist."""
    found: dict[Path, None] = {}
    waiting = [root]
    while waiting:
        known = _read(waiting.pop() / ORIGIN_NAME).get("log_dirs")
        for text in known if isinstance(known, list) else ():
            path = Path(str(text))
            if path not in found and path != root and path.is_dir():
                found[path] = None
                waiting.append(path)
    return list(found)


def known_losses(partition: Path) -> list[Lost]:
    """What the command that made a partition directory has reported as lost; `Lost.path` is the directory."""
    path = partition.absolute()
    found: list[Lost] = []
    for folder in (path, path.parent):
        for name in _REPORTS:
            rows = _read(folder / name).get("partitions")
            for row in rows if isinstance(rows, list) else ():
                # an output that was moved still has the name of its directory; a single one may have any
                if isinstance(row, dict) and (folder == path or Path(str(row.get("output"))).name == path.name):
                    found += _lost(row, str(partition))
    return found


def _lost(row: Mapping[str, Any], path: str) -> Iterator[Lost]:
    gaps = [one for one in row.get("ranges") or () if isinstance(one, dict) and one.get("source") is None]
    for one in [*(row.get("losses") or ()), *gaps]:
        if not isinstance(one, dict):
            continue
        first, end, n_records = (
            one.get("first_offset", one.get("start_offset")),
            one.get("end_offset"),
            one.get("n_records"),
        )
        if not isinstance(first, int) or not (end is None or (isinstance(end, int) and end > first)):
            continue
        is_counted = isinstance(n_records, int) and one.get("certainty") in typing.get_args(Certainty)
        most = None if end is None else end - first
        certainty: Certainty | None = one["certainty"] if is_counted else "at_most" if most else None
        yield Lost(path, first, end, n_records if is_counted else most, certainty, 0, Reason.OFFSET_GAP)


def _read(path: Path) -> Mapping[str, Any]:
    try:
        found = json.loads(read_file(path, max_bytes=_MAX_BYTES))
    except (KafkalogError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
