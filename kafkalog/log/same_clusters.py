"""Which log dirs are of one cluster: by the cluster id, or by topics of one id, which no two clusters have."""

from __future__ import annotations

from collections.abc import Iterable

from kafkalog import format as kf
from kafkalog.state.checkpoints import known_properties, known_topic_id
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import Place


def same_clusters(log_dirs: Iterable[Place]) -> list[list[Place]]:
    """Group log dirs by cluster; those whose cluster is not known are in the first group."""
    by_id: dict[str, list[Place]] = {}
    unknown, given = [], [*log_dirs]
    for path in given:
        cluster = known_properties(path).get("cluster.id")
        if cluster is None:
            unknown.append(path)
        else:
            by_id.setdefault(cluster, []).append(path)
    groups = [*by_id.values()]
    if len(groups) > 1:
        groups = _united(groups)
    groups = [[*groups[0], *unknown], *groups[1:]] if groups else [unknown]
    return [sorted(paths, key=given.index) for paths in groups]


def _united(groups: list[list[Place]]) -> list[list[Place]]:
    """Unite groups with a topic of the same id: a disk that was formatted again, or has the file of another."""
    found: list[tuple[set[str], list[Place]]] = []
    for paths in groups:
        ids = {topic_id for path in paths for topic_id in _topic_ids(path)}
        first, *others = [one for one in found if one[0] & ids] or [(set(), [])]
        for more_ids, more in (*others, (ids, paths)):
            first[0].update(more_ids)
            first[1].extend(more)
        found = [one for one in found if one not in others]
        if first not in found:
            found.append(first)
    return [paths for _, paths in found]


def _topic_ids(log_dir: Place) -> Iterable[str]:
    for name in Listing.or_empty(log_dir).directories:
        parsed = kf.parse_partition_directory(name)
        # some internal topics have the same id in all clusters
        is_own = parsed is not None and parsed.topic_partition.topic not in kf.INTERNAL_TOPICS
        if is_own and (topic_id := known_topic_id(log_dir / name)) is not None:
            yield topic_id
