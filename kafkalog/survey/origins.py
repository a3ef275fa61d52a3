"""Where an output comes from, and what it is known to lack.

Commands that make partitions from others write `origin.json` next to them: the log dirs that they read. `salvage` and
`merge` also write a report with the offsets that they lost. So a later command finds the cluster's metadata log and
checkpoints of the sources, and knows a hole as a loss that was reported.
"""

from __future__ import annotations

import functools
import json
import os
import typing
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from kafkalog.errors import MISSING, Certainty, Finding, KafkalogError, Reason
from kafkalog.storage.files import read_file, stamp_of
from kafkalog.storage.location import Place, is_url, parent_of
from kafkalog.storage.own_names import MERGE_REPORT, ORIGIN_NAME, SALVAGE_REPORT
from kafkalog.survey.losses import Lost

_REPORTS: Final = (SALVAGE_REPORT, MERGE_REPORT, ORIGIN_NAME)
_KNOWN: Final = "This loss is known: the command that made this output has reported it"
_MAX_BYTES: Final = 2**28


class Origin(NamedTuple):
    """The content of `origin.json`."""

    command: str
    """The command that made the output."""
    log_dirs: tuple[Place, ...]
    """The log dirs that it read."""
    is_whole: bool
    """Whether all of their partitions were asked for."""


def encode_origin(
    command: str,
    log_dirs: Iterable[str | os.PathLike[str]],
    *,
    is_whole: bool = False,
    losses: Mapping[str, Sequence[Lost]] | None = None,
) -> bytes:
    """The content of `origin.json`; see `Origin`. `losses` are those of output partitions without another report."""
    paths = list(dict.fromkeys(str(path) if is_url(path) else os.path.realpath(path) for path in log_dirs))
    fields: dict[str, Any] = {"version": 1, "command": command, "log_dirs": paths, "is_whole": is_whole}
    if losses:
        rows = [{"output": name, "losses": [one.as_dict() for one in some]} for name, some in losses.items()]
        fields["partitions"] = rows
    return (json.dumps(fields, indent=1) + "\n").encode()


def read_origin(directory: Place) -> Origin | None:
    """Return where an output comes from; None without such a file, or if it cannot be read."""
    row = _read(directory / ORIGIN_NAME)
    known = row.get("log_dirs")
    if not isinstance(known, list):
        return None
    return Origin(str(row.get("command")), tuple(Path(str(path)) for path in known), row.get("is_whole") is True)


def origins_of(directory: Place) -> list[Place]:
    """The log dirs from which an output was made, also over several steps; those that are not at hand, too."""
    found: dict[Place, None] = {}
    waiting = [directory]
    while waiting:
        origin = read_origin(waiting.pop())
        for path in () if origin is None else origin.log_dirs:
            if path not in found and path != directory:
                found[path] = None
                waiting.append(path)
    return list(found)


def source_copies(partition: Place) -> list[Place]:
    """The directories from which a partition directory was made, over several steps, as far as they have its name.

    They may not be at hand.
    """
    if is_url(partition):
        return []
    roots = dict.fromkeys([*origins_of(partition), *origins_of(parent_of(partition))])
    return [root / partition.name for root in roots if read_origin(root) is None]


def known_losses(partition: Place) -> list[Lost]:
    """What the command that made a partition directory has reported as lost; `Lost.path` is the directory."""
    found: list[Lost] = []
    # those commands write to the local disk, and an object store bills each question
    for folder in () if is_url(partition) else (partition, parent_of(partition)):
        for path in [folder / name for name in _REPORTS]:
            stamp = stamp_of(path)
            if stamp is None:
                continue
            rows = _rows(path, *stamp)
            # an output that was moved still has the name of its directory; a single one may have any
            named = rows.get(partition.name, []) if folder is not partition else [*chain(*rows.values())]
            found += [lost for row in named for lost in _lost(row, str(partition))]
    return found


def as_known(partition: Place, findings: Iterable[Finding]) -> list[Finding]:
    """The findings about a partition, in which losses that the command which made it has reported are no damage."""
    found: list[Finding] = []
    losses = known_losses(partition)
    for finding in findings:
        is_gap = finding.damage and finding.length is None and finding.reason in MISSING
        if is_gap and any(_covers(lost, finding) for lost in losses):
            finding = replace(finding, detail=f"{finding.detail}. {_KNOWN}", damage=False)
        found.append(finding)
    said = [(one.base_offset, one.last_offset) for one in found if one.reason in MISSING]
    for lost in losses:
        note = lost.to_finding("the source of this output lacks offsets")
        if (note.base_offset, note.last_offset) not in said:
            found.append(replace(note, detail=f"{note.detail}. {_KNOWN}", damage=False))
    return found


def _covers(lost: Lost, finding: Finding) -> bool:
    first, last = finding.base_offset, finding.last_offset
    if first is None or last is None or lost.first_offset is None:
        return False
    return lost.first_offset <= first and (lost.end_offset is None or last < lost.end_offset)


@functools.lru_cache(maxsize=4)
def _rows(path: Place, *stamps: object) -> dict[str, list[Mapping[str, Any]]]:
    # `stamps` are only part of the cache's key, so that a changed report is read again
    found: dict[str, list[Mapping[str, Any]]] = {}
    rows = _read(path).get("partitions")
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict):
            found.setdefault(os.path.basename(str(row.get("output"))), []).append(row)
    return found


def _lost(row: Mapping[str, Any], path: str) -> Iterator[Lost]:
    for (first, end), one in _extents(row).items():
        n_records, n_markers = one.get("n_records"), one.get("n_markers")
        is_counted = isinstance(n_records, int) and one.get("certainty") in typing.get_args(Certainty)
        n_markers = n_markers if isinstance(n_markers, int) and n_markers > 0 else 0
        most = None if end is None else end - first
        certainty: Certainty | None = one["certainty"] if is_counted else "at_most" if most else None
        yield Lost(path, first, end, n_records if is_counted else most, certainty, 0, Reason.OFFSET_GAP, n_markers)


def _extents(row: Mapping[str, Any]) -> dict[tuple[int, int | None], Mapping[str, Any]]:
    """The lost offsets in a report on an output, each range once."""
    plan = row.get("plan")
    holes = plan.get("holes") if isinstance(plan, dict) else None
    gaps = [one for one in row.get("ranges") or () if isinstance(one, dict) and one.get("source") is None]
    found: dict[tuple[int, int | None], Mapping[str, Any]] = {}
    # a hole of a plan is a range without a source, and tells more
    for one in [*(row.get("losses") or ()), *(holes or ()), *gaps]:
        extent = _extent(one) if isinstance(one, dict) else None
        if extent is not None:
            found.setdefault(extent, one)
    return found


def _extent(row: Mapping[str, Any]) -> tuple[int, int | None] | None:
    """The offsets of a loss or a gap, whose end may be open; None if they are no offsets."""
    first, end = row.get("first_offset", row.get("start_offset")), row.get("end_offset")
    is_valid = isinstance(first, int) and (end is None or (isinstance(end, int) and end > first))
    return (first, end) if is_valid else None


def _read(path: Place) -> Mapping[str, Any]:
    try:
        found = json.loads(read_file(path, max_bytes=_MAX_BYTES))
    except (KafkalogError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
