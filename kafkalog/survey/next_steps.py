"""What to do next: commands as argument vectors, each with the reason. Text, JSON and pages show the same."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from kafkalog import format as kf
from kafkalog.calls import leading_names
from kafkalog.errors import Finding, Reason
from kafkalog.log.log_dir import LogDir, is_log_dir, log_dir_of
from kafkalog.log.partition import Partition
from kafkalog.log.ranges import PartitionRanges
from kafkalog.log.same_clusters import same_clusters
from kafkalog.log.searching.missing import copied_segments
from kafkalog.log.segment import Segment
from kafkalog.log.set_apart import only_copies, packed_partitions
from kafkalog.state.checkpoints import known_properties
from kafkalog.state.cluster_metadata import cluster_metadata
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import Place, is_url, place_of
from kafkalog.survey.startup_files import is_segment, unnamed_partitions, unnamed_segments
from kafkalog.text import first_names


@leading_names
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
            root = log_dir_of(place_of(directory))
            is_around = str(root) != directory and not is_log_dir(root)
            has_no_name = kf.parse_partition_directory(os.path.basename(directory)) is None
            found[directory if is_around and has_no_name else str(root)] = None
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


class _Disk:
    """A log dir, or what log dirs lie in, with its partition directories; each directory is listed once."""

    def __init__(self, path: Place) -> None:
        self.path, self.listing = path, Listing.or_empty(path)
        self.partitions: dict[Place, Listing] = {}
        """Those that a broker has renamed, too; also of log dirs in here, if they are of the same cluster."""
        self._add(self.listing, 3)
        self.nested = self._log_dirs_inside()
        """The log dirs in a log dir, as of a copy into a directory that was there: `boot` reads its own alone."""

    def _add(self, listing: Listing, depth: int) -> None:
        for name in listing.directories:
            one = Listing.or_empty(listing.path / name) if depth or kf.parse_partition_directory(name) else None
            if one is not None and kf.parse_partition_directory(name) is not None:
                self.partitions[one.path] = one
            elif one is not None:
                self._add(one, depth - 1)

    def _log_dirs_inside(self) -> list[str]:
        """See `nested`. Those that are hidden, as in a trash, or of another cluster count no more."""
        inside = dict.fromkeys(path.parent for path in self.partitions)
        if kf.META_PROPERTIES not in self.listing.names and self.path not in inside:
            return []
        nested = [path for path in inside if path != self.path and "/." not in str(path)[len(str(self.path)) :]]
        own = known_properties(self.path).get("cluster.id")
        nested = [path for path in nested if own in (None, known_properties(path).get("cluster.id", own))]
        self.partitions = {path: one for path, one in self.partitions.items() if path.parent in (self.path, *nested)}
        return [*map(str, nested)]

    @property
    def linked(self) -> list[str]:
        """The partition directories elsewhere to which links in the log dir lead: `boot` does not follow these."""
        links = [path for path in self.partitions if path.parent == self.path and self._is_link(path.name)]
        targets = [Path(os.path.realpath(path)) for path in links]
        return [str(one) for one in targets if not one.is_relative_to(os.path.realpath(self.path))]

    def _is_link(self, name: str) -> bool:
        return name in self.listing.entries and self.listing.entries[name].is_symlink()

    @property
    def unnamed(self) -> list[str]:
        """Where segments have lost their name, as fsck puts them into lost+found: here, or in directories in here."""
        inside = [(self.path / name, self.partitions.get(self.path / name)) for name in self.listing.directories]
        some = ((self.path, self.listing), *inside)
        return [str(path) for path, listing in some if unnamed_segments(path, listing)]

    def restored_first(self) -> tuple[list[str], list[str], list[str]]:
        """Files that a boot would not find: compressed segments, archives, directories that fsck has moved."""
        files = list[str]()
        for path, listing in self.partitions.items():
            if path.parent == self.path:
                files += [f"{path.name}/{name}" for name in copied_segments(listing.names)]
                # as rsync has a directory for parts
                inside = [one for name in listing.directories for one in unnamed_partitions(path / name)]
                files += [f"{path.name}/{name}" for name in inside]
        others = [name for name in self.listing.directories if kf.parse_partition_directory(name) is None]
        moved = [*itertools.chain.from_iterable(unnamed_partitions(self.path / name) for name in others)]
        # this may be one itself, and no log dir
        moved = moved or [self.path.name] * (not self.partitions and any(map(is_segment, self.listing.names)))
        # those with a name are in log dirs of their own
        unnamed = [one for one in moved if kf.parse_partition_directory(os.path.basename(one)) is None]
        return files, [*packed_partitions({*self.listing.names})], unnamed


def boot_steps(
    log_dirs: Iterable[str], release: str | None = None, *, metadata: str | None = None, tiered: str | None = None
) -> list[NextStep]:
    """`boot_step`; before it what brings back segments that have lost their name, as fsck puts them into lost+found."""
    disks = {path: _Disk(place_of(path)) for path in log_dirs}
    unnamed = [one for disk in disks.values() for one in disk.unnamed]
    # a boot takes one cluster at a time
    clusters = same_clusters(map(place_of, disks))
    steps = [
        _boot_step([disks[str(path)] for path in some], release, metadata=metadata, tiered=tiered) for some in clusters
    ]
    if unnamed:
        given = itertools.chain.from_iterable(("--log-dir", path) for path in disks)
        output = free_name(f"{next(iter(disks)).rstrip('/')}-undeleted")
        why = "brings back the segments that a file system check has found, and names the boot of them and all others"
        steps.insert(0, NextStep(("kafkalog", "undelete", *unnamed, *given, "-o", output), why))
        others = [". ".join(filter(None, [step.after, "If undelete brings nothing back"])) for step in steps[1:]]
        steps[1:] = [replace(step, after=after) for step, after in zip(steps[1:], others, strict=True)]
    return steps


def boot_step(log_dirs: Iterable[str], *, tiered: str | None = None, unnamed: Sequence[str] = ()) -> NextStep:
    """Serve what is intact on damaged log dirs from a new directory, on which a release of Kafka starts.

    `tiered` is the remote storage of tiered topics, if it is known; `unnamed` are partition directories that lost their
    name, and have one of our own.
    """
    return _boot_step([_Disk(place_of(path)) for path in log_dirs], None, tiered=tiered, unnamed=unnamed)


def _boot_step(
    disks: Sequence[_Disk],
    release: str | None,
    *,
    metadata: str | None = None,
    tiered: str | None = None,
    unnamed: Sequence[str] = (),
) -> NextStep:
    """See `boot_step`; `metadata` is a log dir with the cluster's metadata log, if these have none."""
    why = (
        "makes a directory on which a broker serves every intact batch, and names what is lost. Stop the brokers, and"
        " add the log dirs of the others: what one lost comes from them"
    )
    options = [*(() if release is None else ("--release", release))]
    options += [] if metadata is None else ["--metadata", metadata]
    options += [] if tiered is None else ["--tiered", tiered]
    linked = [one for disk in disks for one in (*disk.nested, *disk.linked)]
    named, has_strays = _set_apart(disks)
    if named:
        which = first_names([os.path.basename(path) for path in named])
        why += f". A broker has renamed {which}: no other directory has the partition, and its topic exists"
    if has_strays:
        options.append("--include-unknown")
        why += ". A broker serves no directory that ends in -stray: --include-unknown takes these, too"
    if unnamed:
        options += ["--include-unknown"] * ("--include-unknown" not in options)
        why += f". Better, first give {first_names(unnamed)} the name of its partition (TOPIC-N), if you know it"
    if tiered is None and (needed := _tiered(disks, metadata)):
        why += f". {needed}: add --tiered URL, the root of that storage, and what is only there is restored"
    output, larger = _booted_name(disks)
    command = ("kafkalog", "boot", *(str(disk.path) for disk in disks), *linked, *named, *options, "-o", output)
    before = [*_restored_first(disks), *([larger] if larger else [])]
    return NextStep(command, why, after=f"first {' and '.join(before)}" if before else "")


def _set_apart(disks: Sequence[_Disk]) -> tuple[list[str], bool]:
    """The renamed directories to name: those of topics that exist, without another copy; whether others are strays.

    `boot` takes the copies that a broker was making unasked, and a deleted topic does not come back by advice.
    """
    parsed = {path: kf.parse_partition_directory(path.name) for disk in disks for path in disk.partitions}
    apart = {path: one.kind for path, one in parsed.items() if one is not None and one.kind not in (None, "future")}
    keys = {one.topic_partition for one in parsed.values() if one is not None and one.kind in (None, "future")}
    only = only_copies(apart, keys, [disk.path for disk in disks])
    named = [one.path for one in only if one.exists and not one.is_moved]
    return [*map(str, named)], any(kind == "stray" and path not in named for path, kind in apart.items())


def _booted_name(disks: Sequence[_Disk]) -> tuple[str, str]:
    """A new directory next to one of these log dirs, on a disk with room for a boot of all; what to do if none has."""
    from kafkalog.storage.room import lacking_room, logs_in, unwritable  # which uses functions of Linux

    copies: dict[str, list[list[tuple[Place, int]]]] = {}
    for path, listing in (pair for disk in disks for pair in disk.partitions.items()):
        copies.setdefault(path.name, []).append(logs_in(listing))
    # of each partition, the largest copy
    logs = [log for some in copies.values() for log in max(some, key=lambda one: sum(size for _, size in one))]
    outputs = (free_name(f"{str(disk.path).rstrip('/')}-booted") for disk in disks)
    lacking = {output: unwritable(Path(output)) or lacking_room(Path(output), logs) for output in outputs}
    for output, detail in lacking.items():
        if not detail:
            return output, ""
    first = next(iter(lacking))
    kind = "another" if unwritable(Path(first)) else "a larger"
    return "DIR", f"choose a new DIR on {kind} disk: of {first}, {lacking[first]}"


def _restored_first(disks: Iterable[_Disk]) -> list[str]:
    """What to do before a boot with what it does not find under its name."""
    found = [disk.restored_first() for disk in disks]
    files, archives, moved = (list(itertools.chain.from_iterable(some)) for some in zip(*found, strict=True))
    parts = [f"restore the .log files of {first_names(files)}"] if files else []
    parts += [f"unpack {first_names(archives)}"] if archives else []
    parts += [f"give {first_names(moved)} the name of its partition (TOPIC-N)"] if moved else []
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


def _tiered(disks: Sequence[_Disk], metadata: str | None) -> str:
    """What says that a broker has segments in remote storage: settings of topics, or the metadata of such segments."""
    names_of = {disk.path: disk.listing.names for disk in disks}
    if metadata is not None:
        names_of.setdefault(place_of(metadata), Listing.or_empty(place_of(metadata)).names)
    known = [found for root in names_of if (found := cluster_metadata(root)) is not None]
    topics = sorted({name for found in known for name in found.tiered_topics})
    if topics:
        return f"{first_names(topics)} {'are' if topics[1:] else 'is'} tiered"
    has_remote = any(name.startswith(f"{kf.REMOTE_LOG_METADATA}-") for names in names_of.values() for name in names)
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


def are_set_apart(paths: Iterable[str | os.PathLike[str]]) -> bool:
    """Whether partitions are set apart, and none of a topic is served: a broker has the metadata of another cluster.

    Next to topics that are served, such a directory is of a deleted topic, or of a replica that was moved.
    """
    names = (kf.parse_partition_directory(os.path.basename(os.path.abspath(path))) for path in paths)
    parsed = [one for one in names if one is not None and one.topic_partition.topic not in kf.INTERNAL_TOPICS]
    return bool(parsed) and all(one.kind == "stray" for one in parsed)
