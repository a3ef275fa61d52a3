"""What to do next: commands as argument vectors, each with the reason. Text, JSON and pages show the same."""

from __future__ import annotations

import itertools
import os
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kafkalog import format as kf
from kafkalog.errors import Finding
from kafkalog.log.log_dir import log_dir_of
from kafkalog.log.searching.missing import copied_segments
from kafkalog.state.cluster_metadata import cluster_metadata
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import Place, is_url, place_of
from kafkalog.survey.startup_files import unnamed_partitions
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
    """The log dirs of partition directories, of `.log` files in them, and log dirs themselves, in order."""
    found: dict[str, None] = {}
    for path in map(os.path.abspath, paths):
        directory = os.path.dirname(path) if path.endswith(kf.LOG_SUFFIX) else path
        is_known = os.path.dirname(directory) in found
        if not (is_known and kf.parse_partition_directory(os.path.basename(directory))):
            # the name alone does not tell: a log dir may be called disk-1
            found[str(log_dir_of(place_of(directory)))] = None
    return list(found)


def boot_step(
    log_dirs: Iterable[str], release: str | None = None, *, metadata: str | None = None, has_strays: bool = False
) -> NextStep:
    """Serve what is intact on damaged log dirs from a new directory, on which a release of Kafka starts.

    `metadata` is a log dir with the cluster's metadata log, if these have none. With `has_strays`, also what a broker
    with the metadata of another cluster has set apart.
    """
    paths = list(log_dirs)
    why = (
        "makes a directory on which a broker serves every intact batch, and names what is lost. Stop the brokers, and"
        " add the log dirs of the others: what one lost comes from them"
    )
    options = [*(() if release is None else ("--release", release))]
    options += [] if metadata is None else ["--metadata", metadata]
    if has_strays:
        options.append("--include-unknown")
        why += ". A broker serves no directory that ends in -stray: --include-unknown takes these, too"
    if tiered := _tiered([place_of(path) for path in (*paths, *(() if metadata is None else (metadata,)))]):
        why += f". {tiered}: add --tiered URL, the root of that storage, and what is only there is restored"
    command = ("kafkalog", "boot", *paths, *options, "-o", free_name(f"{paths[0].rstrip('/')}-booted"))
    return NextStep(command, why, after=_restored_first([place_of(path) for path in paths]))


def _restored_first(log_dirs: Iterable[Place]) -> str:
    """What a boot does not find under its name: segments that are compressed, partitions that fsck has moved."""
    files, directories = list[str](), list[str]()
    for root in log_dirs:
        for name in Listing.or_empty(root).directories:
            if kf.parse_partition_directory(name) is None:
                directories += unnamed_partitions(root / name)
                continue
            names = Listing.or_empty(root / name).names
            copied = copied_segments(names).items()
            files += [f"{name}/{one}" for one, base in copied if kf.segment_file_name(base) not in names]
    parts = [f"restore the .log files of {first_names(files)}"] if files else []
    parts += [f"give {first_names(directories)} the name of its partition (TOPIC-N)"] if directories else []
    return f"first {' and '.join(parts)}" if parts else ""


def steps_after_damage(n_damage: int, paths: Sequence[str | os.PathLike[str]], *, has_strays: bool) -> list[NextStep]:
    """Return the boot that serves what is intact in paths; nothing for object stores.

    `n_damage` counts the findings that `needs_boot` is true of.
    """
    is_local = bool(paths) and not any(map(is_url, paths))
    return [boot_step(log_dirs_of(paths), has_strays=has_strays)] if n_damage and is_local else []


def needs_boot(finding: Finding) -> bool:
    """Return whether a boot helps against a finding: not against files that are whole but cannot be read."""
    return finding.damage and not finding.is_unreadable


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


def is_stray(path: str | os.PathLike[str]) -> bool:
    """Whether a directory is a partition that a broker has set apart, because its metadata did not know it."""
    parsed = kf.parse_partition_directory(os.path.basename(os.path.abspath(path)))
    return parsed is not None and parsed.kind == "stray"


def are_set_apart(paths: Iterable[str | os.PathLike[str]]) -> bool:
    """Whether partitions are set apart, and none of a topic is served: a broker has the metadata of another cluster.

    Next to topics that are served, such a directory is of a deleted topic, or of a replica that was moved.
    """
    names = (kf.parse_partition_directory(os.path.basename(os.path.abspath(path))) for path in paths)
    parsed = [one for one in names if one is not None and one.topic_partition.topic not in kf.INTERNAL_TOPICS]
    return bool(parsed) and all(one.kind == "stray" for one in parsed)
