"""What to do next: commands as argument vectors, each with the reason. Text, JSON and pages show the same."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kafkalog import format as kf
from kafkalog.errors import Finding, Reason
from kafkalog.log.log_dir import LogDir, log_dir_of
from kafkalog.log.partition import Partition
from kafkalog.log.ranges import PartitionRanges
from kafkalog.log.searching.missing import copied_segments
from kafkalog.log.segment import Segment
from kafkalog.state.cluster_metadata import cluster_metadata
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import Place, is_url, place_of
from kafkalog.survey.same_clusters import same_clusters
from kafkalog.survey.startup_files import unnamed_partitions, unnamed_segments
from kafkalog.text import first_names


@dataclass(frozen=True, slots=True)
class NextStep:
    """A command to run next."""

    command: tuple[str, ...]
    """The program and its arguments."""
    why: str
    """A sentence for people."""
    after: str = ""
    """What has to be so before; empty if the command may run at once."""

    def __str__(self) -> str:
        """The command line, as a shell takes it; a comment if something has to be so before."""
        line = shlex.join(self.command)
        return f"# {self.after}: {line}" if self.after else line

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return {"command": list(self.command), "why": self.why, "after": self.after}


def log_dirs_of(paths: Iterable[str | os.PathLike[str]]) -> list[str]:
    """The log dirs of partition directories, of `.log` files in them, and log dirs themselves, in order.

    Empty if any is in an object store.
    """
    found: dict[str, None] = {}
    paths = [*paths]
    for path in map(os.path.abspath, () if any(map(is_url, paths)) else paths):
        directory = os.path.dirname(path) if path.endswith(kf.LOG_SUFFIX) else path
        is_known = os.path.dirname(directory) in found
        if not (is_known and kf.parse_partition_directory(os.path.basename(directory))):
            # the name alone does not tell: a log dir may be called disk-1
            found[str(log_dir_of(place_of(directory)))] = None
    return list(found)


class Advised:
    """A result with findings about what was read, and the next step after damage."""

    __slots__ = ()
    findings: Any
    """A list of them, or `Findings`."""
    log_dirs: list[str]
    """What was read: log dirs, and partitions or segments in them."""

    @property
    def next(self) -> list[NextStep]:
        """What serves the intact batches after damage; empty without it."""
        return steps_after_damage(getattr(self.findings, "rows", self.findings), log_dirs_of(self.log_dirs))


def paths_read(opened: LogDir | Partition | Segment | PartitionRanges) -> list[str]:
    """The paths of what was opened, for `Advised.log_dirs`."""
    paths = opened.paths if isinstance(opened, (LogDir, PartitionRanges)) else [opened.path]
    return [*map(str, paths)]


def boot_steps(
    log_dirs: Iterable[str], release: str | None = None, *, metadata: str | None = None, tiered: str | None = None
) -> list[NextStep]:
    """`boot_step`; before it what brings back segments that have lost their name, as fsck puts them into lost+found."""
    paths = list(log_dirs)
    found = [(path, name) for path in paths for name in Listing.or_empty(place_of(path)).directories]
    unnamed = [path for path in paths if unnamed_segments(place_of(path))]
    unnamed += [one for one in itertools.starmap(os.path.join, found) if unnamed_segments(place_of(one))]
    # a boot takes one cluster at a time
    clusters = same_clusters(map(place_of, paths))
    steps = [boot_step(map(str, some), release, metadata=metadata, tiered=tiered) for some in clusters]
    if unnamed:
        given = itertools.chain.from_iterable(("--log-dir", path) for path in paths)
        output = free_name(f"{paths[0].rstrip('/')}-undeleted")
        why = "brings back the segments that a file system check has found, and names the boot of them and all others"
        steps.insert(0, NextStep(("kafkalog", "undelete", *unnamed, *given, "-o", output), why))
        others = [". ".join(filter(None, [step.after, "If undelete brings nothing back"])) for step in steps[1:]]
        steps[1:] = [replace(step, after=after) for step, after in zip(steps[1:], others, strict=True)]
    return steps


def boot_step(
    log_dirs: Iterable[str],
    release: str | None = None,
    *,
    metadata: str | None = None,
    tiered: str | None = None,
    unnamed: Sequence[str] = (),
) -> NextStep:
    """Serve what is intact on damaged log dirs from a new directory, on which a release of Kafka starts.

    `metadata` is a log dir with the cluster's metadata log, if these have none; `tiered` is the remote storage of
    tiered topics, if it is known; `unnamed` are partition directories that lost their name, and have one of our own.
    """
    paths = list(log_dirs)
    why = (
        "makes a directory on which a broker serves every intact batch, and names what is lost. Stop the brokers, and"
        " add the log dirs of the others: what one lost comes from them"
    )
    options = [*(() if release is None else ("--release", release))]
    options += [] if metadata is None else ["--metadata", metadata]
    options += [] if tiered is None else ["--tiered", tiered]
    if any(_has_strays(place_of(path)) for path in paths):
        options.append("--include-unknown")
        why += ". A broker serves no directory that ends in -stray: --include-unknown takes these, too"
    if unnamed:
        options += ["--include-unknown"] * ("--include-unknown" not in options)
        why += f". Better, first give {first_names(unnamed)} the name of its partition (TOPIC-N), if you know it"
    sources = [place_of(path) for path in (*paths, *(() if metadata is None else (metadata,)))]
    if tiered is None and (needed := _tiered(sources)):
        why += f". {needed}: add --tiered URL, the root of that storage, and what is only there is restored"
    output, larger = _booted_name(paths)
    command = ("kafkalog", "boot", *paths, *options, "-o", output)
    before = [*_restored_first([place_of(path) for path in paths]), *([larger] if larger else [])]
    return NextStep(command, why, after=f"first {' and '.join(before)}" if before else "")


def _booted_name(log_dirs: Sequence[str]) -> tuple[str, str]:
    """A new directory next to one of these log dirs, on a disk with room for a boot of all; what to do if none has."""
    from kafkalog.storage.room import lacking_room, n_log_bytes  # what it asks is Linux's

    copies: dict[str, dict[Place, int]] = {}
    for directory in itertools.chain.from_iterable(_partition_directories(place_of(path)) for path in log_dirs):
        copies.setdefault(directory.name, {})[directory] = n_log_bytes([directory])
    # of each partition, the largest copy
    logs = [max(sizes, key=lambda one, sizes=sizes: sizes[one]) for sizes in copies.values()]  # type: ignore[misc]
    outputs = (free_name(f"{path.rstrip('/')}-booted") for path in log_dirs)
    lacking = {output: lacking_room(Path(output), logs) for output in outputs}
    for output, detail in lacking.items():
        if not detail:
            return output, ""
    first = next(iter(lacking))
    return "DIR", f"choose a new DIR on a larger disk: of {first}, {lacking[first]}"


def _partition_directories(directory: Place, depth: int = 3) -> Iterator[Place]:
    """Yield the partition directories here, or in log dirs in here, those that a broker has set apart among them."""
    for name in Listing.or_empty(directory).directories:
        if kf.parse_partition_directory(name) is not None:
            yield directory / name
        elif depth:
            yield from _partition_directories(directory / name, depth - 1)


def _restored_first(log_dirs: Iterable[Place]) -> list[str]:
    """What a boot does not find under its name: segments that are compressed, partitions that fsck has moved."""
    files, directories = list[str](), list[str]()
    for root in log_dirs:
        for name in Listing.or_empty(root).directories:
            if kf.parse_partition_directory(name) is None:
                directories += unnamed_partitions(root / name)
                continue
            names = Listing.or_empty(root / name).names
            files += [f"{name}/{one}" for one in copied_segments(names)]
    parts = [f"restore the .log files of {first_names(files)}"] if files else []
    parts += [f"give {first_names(directories)} the name of its partition (TOPIC-N)"] if directories else []
    return parts


def steps_after_damage(
    findings: Iterable[Finding], log_dirs: Sequence[str], *, tiered: str | None = None
) -> list[NextStep]:
    """Return the boot that serves what is intact in log dirs, if a finding needs it; nothing for object stores.

    `tiered` is the remote storage of tiered topics, if it is known.
    """
    if not log_dirs or any(map(is_url, log_dirs)) or not any(map(needs_boot, findings)):
        return []
    return boot_steps(log_dirs, tiered=tiered)


def needs_boot(finding: Finding) -> bool:
    """Return whether a boot helps against a finding: not against files that are whole but cannot be read.

    Nor against values that do not decode, functions of users that fail, or an output that cannot be written.
    """
    return finding.damage and not finding.is_unreadable and finding.reason not in _NOT_OF_THE_LOG


_NOT_OF_THE_LOG: Final = frozenset(
    {
        *(Reason.VALUE_UNDECODED, Reason.FUNCTION_ERROR, Reason.UNPROVEN, Reason.CONTENT_DIFFERS),
        *(Reason.WRITE_FAILED, Reason.FILE_CHANGED),
    }
)


def _tiered(log_dirs: Sequence[Place]) -> str:
    """What says that a broker has segments in remote storage: settings of topics, or the metadata of such segments."""
    known = [metadata for root in log_dirs if (metadata := cluster_metadata(root)) is not None]
    names = sorted({name for metadata in known for name in metadata.tiered_topics})
    if names:
        return f"{first_names(names)} {'are' if names[1:] else 'is'} tiered"
    inside = (name for root in log_dirs for name in Listing.or_empty(root).names)
    has_remote = any(name.startswith(f"{kf.REMOTE_LOG_METADATA}-") for name in inside)
    return f"{kf.REMOTE_LOG_METADATA} is here, so topics have segments in remote storage" if has_remote else ""


def free_name(path: str) -> str:
    """A path of which nothing is there yet: with a number at its end, if need be.

    It has no comma in its last part: the log dir of a broker must not have one.
    """
    folder, name = os.path.split(path)
    name = name.replace(",", "-")
    taken = Listing.or_empty(Path(folder)).names
    numbered = (f"{name}-{number}" for number in itertools.count(2))
    return os.path.join(folder, next(one for one in itertools.chain([name], numbered) if one not in taken))


def _has_strays(directory: Place) -> bool:
    """Whether partitions are here, or in a log dir in here, that a broker has set apart: its metadata lacked them."""
    parsed = (kf.parse_partition_directory(one.name) for one in _partition_directories(directory))
    return any(one is not None and one.kind == "stray" for one in parsed)


def are_set_apart(paths: Iterable[str | os.PathLike[str]]) -> bool:
    """Whether partitions are set apart, and none of a topic is served: a broker has the metadata of another cluster.

    Next to topics that are served, such a directory is of a deleted topic, or of a replica that was moved.
    """
    names = (kf.parse_partition_directory(os.path.basename(os.path.abspath(path))) for path in paths)
    parsed = [one for one in names if one is not None and one.topic_partition.topic not in kf.INTERNAL_TOPICS]
    return bool(parsed) and all(one.kind == "stray" for one in parsed)
