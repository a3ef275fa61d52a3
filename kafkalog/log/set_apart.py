"""Finds partitions under other names in a log dir: directories that a broker has renamed, and archives.

A renamed directory (`-delete`, `-future`, `-stray`) may hold the only copy of a partition. Whether its topic still
exists is known by the topic id, which no two topics share: a deleted topic must not come back unasked.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kafkalog import format as kf
from kafkalog.errors import Finding, Reason
from kafkalog.log.same_clusters import same_clusters
from kafkalog.state.checkpoints import known_topic_id, node_number_of
from kafkalog.state.cluster_image import ClusterMetadata
from kafkalog.state.cluster_metadata import cluster_metadata, leading_metadata
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import Place, parent_of
from kafkalog.text import first_names

ARCHIVES: Final = (".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz")
"""Suffixes of compressed archives."""
PACKED: Final = (*ARCHIVES, ".tar", ".zip")
"""Suffixes of archives, compressed or not."""
_WHY_RENAMED: Final = {
    "delete": "a broker renamed this directory to delete it: its topic was deleted, or its replica moved",
    "future": "a broker was making this copy to move the replica to this disk",
    "stray": "a broker renamed this directory to delete it: the cluster's metadata do not have it here",
}
_MOST_NAMED: Final = 8


def why_renamed(directory: str) -> str:
    """Why a broker has renamed a partition directory, by its name; "" if it has not."""
    parsed = kf.parse_partition_directory(directory)
    return _WHY_RENAMED.get(parsed.kind or "", "") if parsed is not None else ""


class OnlyCopy(NamedTuple):
    """A directory that a broker has renamed, of a partition that has no other."""

    path: Place
    key: kf.TopicPartition
    kind: str
    exists: bool
    """Whether its topic exists, by its id: the metadata have it, or without them another partition."""
    is_moved: bool
    """Whether the metadata have its partition on other nodes alone: this is what a move leaves."""


def only_copies(
    apart: Iterable[Place], present: Collection[kf.TopicPartition], log_dirs: Iterable[Place]
) -> list[OnlyCopy]:
    """The renamed directories of partitions that are not `present` under their own name in these log dirs."""
    named = [(path, kf.parse_partition_directory(path.name)) for path in apart]
    lone = [
        (path, one.topic_partition, one.kind)
        for path, one in named
        if one is not None and one.kind is not None and one.topic_partition not in present
    ]
    if not lone:
        return []
    roots = list(dict.fromkeys([*log_dirs, *(parent_of(path) for path, *_ in lone)]))
    known = _metadata_that_lead(roots)
    topics = {key.topic for _, key, _ in lone}
    ids = _known_ids(known) if known else _ids_of([key for key in present if key.topic in topics], roots)
    nodes = {root: node_number_of(root) for root in {parent_of(path) for path, *_ in lone}}
    found = [OnlyCopy(path, key, kind, (key.topic, known_topic_id(path)) in ids, False) for path, key, kind in lone]
    return [
        one._replace(is_moved=one.exists and _is_elsewhere(one.key, nodes[parent_of(one.path)], known)) for one in found
    ]


def _known_ids(known: Sequence[ClusterMetadata]) -> set[tuple[str, str]]:
    """The topics of metadata logs, with their ids, without those that any of them deletes."""
    removed = {one for metadata in known for one in metadata.removed_topic_ids}
    return {pair for metadata in known for pair in metadata.topic_ids.items() if pair[1] not in removed}


def _is_elsewhere(key: kf.TopicPartition, node: int | None, known: Iterable[ClusterMetadata]) -> bool:
    """Whether metadata have a partition on other nodes than this one, which is known."""
    assigned = [partition.replicas for metadata in known if (partition := metadata.partition(key)) is not None]
    return node is not None and bool(assigned) and not any(node in nodes for nodes in assigned)


def _metadata_that_lead(roots: Iterable[Place]) -> list[ClusterMetadata]:
    """Of each cluster, the metadata of the log dir that has most: others may be older, and have deleted topics."""
    found = []
    for log_dirs in same_clusters(roots):
        every = ((root, cluster_metadata(root)) for root in log_dirs)
        known = [(root, metadata) for root, metadata in every if metadata is not None and metadata.end_offset]
        found += [leading_metadata(known)[1]] if known else []
    return found


def _ids_of(partitions: Iterable[kf.TopicPartition], roots: Iterable[Place]) -> set[tuple[str, str]]:
    """Topics of partitions in these log dirs with an id of each; of thousands of partitions, the first one tells."""
    listed = [(root, {*Listing.or_empty(root).names}) for root in roots]
    found = dict[str, str]()
    for key in partitions:
        for root, names in listed if key.topic not in found else ():
            if str(key) in names and (topic_id := known_topic_id(root / str(key))) is not None:
                found[key.topic] = topic_id
                break
    return {*found.items()}


def about_only_copies(copies: Sequence[OnlyCopy]) -> str:
    """The end of a note about such directories of one log dir, kind and state of topics: the command that serves them.

    `boot` takes a copy that a broker was making unasked.
    """
    kind, exists, root = copies[0].kind, copies[0].exists, parent_of(copies[0].path)
    names = first_names(list(dict.fromkeys(one.key for one in copies)))
    how = [] if kind == "future" else [str(one.path) for one in copies[:_MOST_NAMED]]
    here = f"No other directory here has {names}"
    if not isinstance(root, Path):
        which = f" of it and {first_names([one.path.name for one in copies])}" if how else ""
        return f"{here}. Copy the log dir to a local directory, then kafkalog boot{which} serves it"
    more = " ..." if how and copies[_MOST_NAMED:] else ""
    if more and kind == "stray":
        how, more = ["--include-unknown"], ""
    command = f"{shlex.join(['kafkalog', 'boot', str(root), *how])}{more} -o DIR"
    serves = (exists and not copies[0].is_moved) or kind == "future"
    return f"{here}: {command} serves it" if serves else f"{here}. To bring it back: {command}"


def packed_partitions(names: Collection[str]) -> dict[str, kf.TopicPartition]:
    """The archives such as ``orders-0.tar.gz`` for which no partition directory is there, by name."""
    found = {}
    for name in names:
        suffix = next((one for one in PACKED if name.endswith(one)), None)
        parsed = None if suffix is None else kf.parse_partition_directory(name.removesuffix(suffix))
        if parsed is not None and parsed.kind is None and str(parsed.topic_partition) not in names:
            found[name] = parsed.topic_partition
    return found


def packed_note(root: Place, names: Collection[str]) -> Finding | None:
    """The note about archives of partitions in a log dir; None if there are none."""
    packed = packed_partitions(names)
    if not packed:
        return None
    detail = f"not read: {first_names([*packed])} has the name of a partition: unpack it here first"
    path = str(root / next(iter(packed))) if len(packed) == 1 else str(root)
    return Finding(Reason.UNKNOWN_FILE, detail, path=path, damage=False)
