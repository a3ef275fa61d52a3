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
from typing import Any, Final, NamedTuple

from kafkalog.errors import Certainty, KafkalogError, Reason
from kafkalog.storage.location import is_url
from kafkalog.storage.source import read_file
from kafkalog.survey.losses import Lost

ORIGIN_NAME: Final = "origin.json"
_REPORTS: Final = ("salvage.json", "merge.json")
_MAX_BYTES: Final = 2**28


class Origin(NamedTuple):
    """The content of `origin.json`."""

    command: str
    """The command that made the output."""
    log_dirs: tuple[Path, ...]
    """The log dirs that it read."""
    is_whole: bool
    """Whether all of their partitions were asked for."""


def encode_origin(command: str, log_dirs: Iterable[str | os.PathLike[str]], *, is_whole: bool = False) -> bytes:
    """The content of `origin.json`; see `Origin`."""
    paths = list(dict.fromkeys(str(path) if is_url(path) else os.path.realpath(path) for path in log_dirs))
    fields = {"version": 1, "command": command, "log_dirs": paths, "is_whole": is_whole}
    return (json.dumps(fields, indent=1) + "\n").encode()


def read_origin(directory: Path) -> Origin | None:
    """Return where an output comes from; None if it does not say so, or if the file cannot be read."""
    row = _read(directory / ORIGIN_NAME)
    known = row.get("log_dirs")
    if not isinstance(known, list):
        return None
    return Origin(str(row.get("command")), tuple(Path(str(path)) for path in known), row.get("is_whole") is True)


def origins_of(directory: Path) -> list[Path]:
    """The log dirs from which an output was made, also over several steps; those that are not at hand, too."""
    found: dict[Path, None] = {}
    waiting = [directory]
    while waiting:
        origin = read_origin(waiting.pop())
        for path in () if origin is None else origin.log_dirs:
            if path not in found and path != directory:
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
