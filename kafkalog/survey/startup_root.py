"""Checks the files that a broker reads when it starts, outside of its partitions: which of them end the start.

These are `meta.properties`, `bootstrap.checkpoint`, the four offset checkpoints of a log dir, and in the metadata log
`quorum-state` and the snapshots. Partition directories are compared by their names only. Nothing is written.

Mirrors `MetaPropertiesEnsemble`, `KafkaRaftServer.initializeLogDirs`, `CheckpointFile`,
`QuorumStateDataJsonConverter`, `BootstrapDirectory` and `KafkaMetadataLog.recoverSnapshots`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, CorruptionError, Finding, KafkalogError, Limits, Reason, is_forbidden
from kafkalog.html import JsonFields
from kafkalog.log.directory import Directory
from kafkalog.log.log_dir import log_dir_of
from kafkalog.protocol.releases import is_since
from kafkalog.state.checkpoints import (
    MAX_CHECKPOINT_BYTES,
    checkpoint_lines,
    java_number,
    known_properties,
    node_id_of,
    parse_topic_id,
    read_checkpoint,
)
from kafkalog.state.cluster_image import ClusterMetadata
from kafkalog.state.cluster_metadata import cluster_metadata, read_metadata_file
from kafkalog.state.properties import MAX_PROPERTIES_BYTES, parse_properties, read_properties
from kafkalog.storage.files import is_absent, read_file, read_if_there
from kafkalog.storage.location import Place, kind_of
from kafkalog.storage.removals import is_gone
from kafkalog.survey.startup_config import NO_CONFIG, BrokerConfig
from kafkalog.survey.startup_files import partition_directories

_REFUSES_EMPTY_ENTRIES: Final = "4.2"
"""The first release that does not start with an empty entry in `log.dirs`."""

Effect = Literal["does not start", "log dir offline", "loses metadata", "no coordinator", "ignores", "unreadable"]


@dataclass(frozen=True, slots=True)
class StartProblem(JsonFields):
    """A file with which a broker does not start, or not with everything."""

    reason: Reason
    path: str
    detail: str
    position: int | None = None
    """Of the batch that it is about, where one batch is the cause."""
    effect: Effect = "does not start"
    """"log dir offline": the broker goes on without this log dir. "loses metadata": it starts, without records of the
    cluster's metadata, as if topics had been deleted. "no coordinator": it starts, and does not load a partition of
    groups, transactions, share groups or remote storage. "ignores": it does not read the file. "unreadable": what a
    broker does is not known."""
    is_configured: bool = False
    """Whether the broker's configuration alone is at fault; the files are not."""

    def to_finding(self) -> Finding:
        """The failure as damage, for reports of files."""
        if self.effect == "unreadable":
            return Finding(self.reason, self.detail, path=self.path, position=self.position)
        consequence = {
            "loses metadata": "loses metadata",
            "log dir offline": "takes the log dir offline",
            "no coordinator": "does not load it",
            "ignores": "does not read them",
        }
        detail = f"{self.detail}; a broker {consequence.get(self.effect, self.effect)}"
        return Finding(self.reason, detail, path=self.path, position=self.position, n_records=0)


def root_problems(
    roots: Sequence[Place],
    *,
    config: BrokerConfig = NO_CONFIG,
    directories: Callable[[Place], Iterable[Place | Finding]] = partition_directories,
    limits: Limits = DEFAULT_LIMITS,
) -> list[StartProblem]:
    """Return why a broker does not start on its log dirs, in the order of its reads, partitions left out.

    `directories` lists a log dir.
    """
    found = [*_identity_problems(roots, config), *_metadata_dir_problems(roots, config)]
    for root in roots:
        found += _attempt(root / kf.BOOTSTRAP_CHECKPOINT, lambda path: _bootstrap_problem(path, limits))
        for name in kf.OFFSET_CHECKPOINTS if config.roles != {"controller"} else ():
            found += _attempt(root / name, _offset_checkpoint_problem, "log dir offline")
        found += _metadata_log_problems(root / kf.METADATA_DIRECTORY, limits)
    listed = [one for root in roots for one in _listed(root, directories)]
    found += _unnamed(listed, roots)
    found += _duplicates(listed)
    # a broker stops without its only log dir, or without the one that has its metadata log
    with_metadata = [root for root in roots if has_metadata_log(root)]
    failed = {Path(one.path).parent for one in found if one.effect == "log dir offline"}
    is_last = not set(roots) - failed and not (_is_second_disk(roots) and not config.log_dirs)
    return [
        replace(one, effect="does not start")
        if one.effect == "log dir offline" and (is_last or Path(one.path).parent in with_metadata)
        else one
        for one in found
    ]


def has_metadata_log(root: Place) -> bool:
    return kind_of(root / kf.METADATA_DIRECTORY) == "directory"


def _has_metadata(root: Place) -> bool:
    """Whether the metadata log of a log dir has records, or a snapshot of them."""
    directory = root / kf.METADATA_DIRECTORY
    listing = Directory.or_empty(directory)
    return bool(kf.raft_snapshots(listing.names)) or any(listing.status(name).st_size for name in listing.logs)


def is_kraft(root: Place) -> bool:
    """Whether a log dir is that of a broker without ZooKeeper."""
    return has_metadata_log(root) or known_properties(root).get("version") == "1"


def is_zookeeper(root: Place) -> bool:
    """Whether a log dir is that of a broker with ZooKeeper. A copy without `meta.properties` may be of either."""
    return not has_metadata_log(root) and known_properties(root).get("version") == "0"


def _is_second_disk(roots: Sequence[Place]) -> bool:
    """Whether these cannot be all log dirs of their broker, whose metadata log is on another."""
    return not any(map(has_metadata_log, roots)) and any(map(is_kraft, roots))


def _unnamed(listed: Iterable[Place | Finding], roots: Sequence[Place]) -> Iterator[StartProblem]:
    """Yield a problem for each directory without a partition's name, and for segments next to the partitions."""
    for one in listed:
        if isinstance(one, Finding) and one.reason is Reason.UNKNOWN_FILE:
            # a broker reads no segments there
            effect: Effect = "ignores" if Path(one.path or "") in roots else "does not start"
            yield StartProblem(one.reason, one.path or "", one.detail, effect=effect)


def _attempt(path: Place, problem: Callable[[Place], str], effect: Effect = "does not start") -> Iterator[StartProblem]:
    """Yield the problem of a file, if it is there."""
    try:
        detail = problem(path)
    except KafkalogError as error:
        if not is_absent(error):
            effect = "unreadable" if is_forbidden(error) else effect
            yield StartProblem(error.reason, str(path), error.detail, error.position, effect)
        return
    if detail:
        yield StartProblem(Reason.CHECKPOINT_SYNTAX, str(path), detail, effect=effect)


def _listed(root: Place, directories: Callable[[Place], Iterable[Place | Finding]]) -> list[Place | Finding]:
    try:
        return [*directories(root)]
    except KafkalogError:
        return []  # one that cannot be listed is an error of the partitions


def _metadata_dir_problems(roots: Sequence[Place], config: BrokerConfig) -> Iterator[StartProblem]:
    """Check where the metadata log is, and which start it allows.

    Source: KafkaRaftServer.initializeLogDirs, KafkaRaftClient.initialize, Kafka 4.3.
    """
    where = config.metadata_log_dir
    if where is None or not any(map(config.holds_metadata_log, roots)):
        return
    for root in roots:
        if has_metadata_log(root) and not config.holds_metadata_log(root):
            detail = f"a metadata log outside of the metadata log dir {where} (metadata.log.dir, or first of log.dirs)"
            yield StartProblem(Reason.UNKNOWN_FILE, str(root / kf.METADATA_DIRECTORY), detail)
    if not config.is_controller or is_gone(where / kf.META_PROPERTIES) or _has_metadata(where):
        return
    path = str(where / kf.METADATA_DIRECTORY)
    if config.is_dynamic:
        detail = "it has no records, so no voters of the dynamic quorum: the start hangs; copy it from a controller"
        yield StartProblem(Reason.METADATA_INCOMPLETE, path, detail)
    elif [*map(str, config.voters)] == [config.node_id]:
        detail = "it has no records, and no other voter has them: the broker renames all partitions to -stray"
        yield StartProblem(Reason.METADATA_INCOMPLETE, path, detail, effect="loses metadata")


def voter_problem(
    roots: Sequence[Place], voters: Iterable[Mapping[str, object]], node_id: int | None
) -> StartProblem | None:
    """The lone voter of a dynamic quorum has another directory id: nobody is elected, and the start hangs.

    Source: KafkaRaftClient.initialize, VoterSet.isVoter, Kafka 4.3.
    """
    ids = {one["voterId"]: one.get("voterDirectoryId") for one in voters}
    root = next(filter(has_metadata_log, roots), None)
    if root is None or [*ids] != [node_id]:
        return None
    path = root / kf.META_PROPERTIES
    try:
        mine = (read_properties(path) or {}).get("directory.id", "")
    except KafkalogError:
        return None
    if mine == str(ids[node_id]):
        return None
    detail = (
        f"directory.id is {mine!r}, but {ids[node_id]!r} for the only voter in the metadata log: the start hangs;"
        " restore the old id"
    )
    return StartProblem(Reason.META_PROPERTIES, str(path), detail)


def log_dirs_problems(config: BrokerConfig, release: str | None) -> Iterator[StartProblem]:
    """Check the setting `log.dirs`, for a release or the newest ones.

    Source: ServerLogConfigs, Kafka 4.2; earlier ones pass over empty entries.
    """
    if config.has_empty_dir and (release is None or is_since(release, _REFUSES_EMPTY_ENTRIES)):
        detail = f"log.dirs has an empty entry. Kafka {_REFUSES_EMPTY_ENTRIES} and later do not start: remove the comma"
        yield StartProblem(Reason.META_PROPERTIES, config.path, detail, is_configured=True)


def _roots_with(roots: Sequence[Place], properties: Mapping[str, str]) -> Iterator[Place]:
    """The log dirs of the broker that some `meta.properties` are of."""
    for root in roots:
        with contextlib.suppress(KafkalogError):
            data = read_if_there(root / kf.META_PROPERTIES, max_bytes=MAX_PROPERTIES_BYTES)
            own = {} if data is None else parse_properties(data)
            is_same = own.get("cluster.id") == properties.get("cluster.id")
            if data is not None and is_same and node_id_of(own) == node_id_of(properties):
                yield root


def by_broker(named: Sequence[Path]) -> list[list[Path]]:
    """The log dirs, or partition directories in them, of each broker, in order.

    Those without an id in `meta.properties` go with the others if these are of one broker, and else are alone.
    """
    found: dict[str | Place, list[Path]] = {}
    for path in named:
        root = log_dir_of(path)
        properties: Mapping[str, str] = {}
        with contextlib.suppress(KafkalogError):
            properties = read_properties(root / kf.META_PROPERTIES) or {}
        found.setdefault(node_id_of(properties) or root, []).append(path)
    n_known = sum(isinstance(name, str) for name in found)
    return [*found.values()] if n_known > 1 else [list(named)]


def _identity_problems(roots: Sequence[Place], config: BrokerConfig) -> Iterator[StartProblem]:
    """Check `meta.properties` of each log dir, and that they belong together.

    Source: MetaProperties.Builder, MetaPropertiesEnsemble.verify, KafkaRaftServer.initializeLogDirs, Kafka 4.3.
    """
    node_id = config.node_id
    first: dict[str, tuple[str, Place]] = {}
    directory_ids: dict[str, Place] = {}
    has_kraft = bool(config.roles) or any(map(is_kraft, roots))
    for root in roots:
        path = root / kf.META_PROPERTIES
        try:
            data = read_if_there(path, max_bytes=MAX_PROPERTIES_BYTES)
        except KafkalogError as error:
            effect: Effect = "unreadable" if is_forbidden(error) else "does not start"
            yield StartProblem(error.reason, str(path), error.detail, effect=effect)
            continue
        if data is None:
            # a broker with ZooKeeper formats it
            if has_metadata_log(root):
                detail = f"{kf.METADATA_DIRECTORY} exists, but this file is missing"
                yield StartProblem(Reason.META_PROPERTIES, str(path), detail)
            elif has_kraft:
                detail = "this file is missing: mount the disk of this log dir, or format it with kafka-storage.sh"
                yield StartProblem(Reason.META_PROPERTIES, str(path), detail)
            continue
        properties, has_bad_escape = parse_properties(data), _BAD_ESCAPE.search(data) is not None
        problem = "a \\u without four hexadecimal digits" if has_bad_escape else meta_properties_problem(properties)
        if problem:
            yield StartProblem(Reason.META_PROPERTIES, str(path), problem)
            continue
        ids = {"cluster.id": properties.get("cluster.id", ""), "node id": node_id_of(properties)}
        for name, value in ids.items():
            known, other = first.setdefault(name, (value, path))
            if value and known and value != known:
                same = shlex.join(map(str, _roots_with(roots, properties)))
                detail = f"{name} is {value!r}, but {known!r} in {other}. Name the log dirs of one broker at a time,"
                detail += f" for this one {same}"
                yield StartProblem(Reason.META_PROPERTIES, str(path), detail)
        if node_id is not None and java_number(node_id, 31) != java_number(ids["node id"], 31):
            detail = f"node id is {ids['node id']!r}, and {node_id!r} in the broker's configuration"
            detail += "; correct node.id there, or mount its own disk"
            yield StartProblem(Reason.META_PROPERTIES, str(path), detail, is_configured=True)
        directory_id = properties.get("directory.id")
        if directory_id is not None:
            other = directory_ids.setdefault(directory_id, path)
            if other != path:
                detail = f"directory.id {directory_id} is also that of {other}"
                yield StartProblem(Reason.META_PROPERTIES, str(path), detail)


def meta_properties_problem(properties: Mapping[str, str]) -> str:
    """Return what is wrong with the content of a `meta.properties`; "" if nothing is.

    Source: MetaProperties.Builder, MetaPropertiesVersion, Kafka 4.3.
    """
    version = java_number(properties.get("version", "0"), 31)
    if version not in (0, 1):
        return f"version {properties['version'][:40]!r} where 0 or 1 is expected"
    name = "node.id" if version else "broker.id"
    node_id = java_number(properties.get(name, ""), 31)
    if name not in properties:
        return f"{name} is missing"
    if node_id is None or node_id < 0:
        return f"{name} is {properties[name][:40]!r}, not an id"
    if version and "cluster.id" not in properties:
        return "cluster.id is missing"
    if "directory.id" in properties:
        try:
            parse_topic_id(properties["directory.id"])
        except ValueError:
            return f"directory.id {properties['directory.id'][:40]!r} is not a directory id"
    return ""


def _offset_checkpoint_problem(path: Place) -> str:
    # numbers are not parsed: a broker that fails at one goes on without the file
    if not (path.name in kf.LOADED_CHECKPOINTS and _has_negative_count(path)):
        read_checkpoint(path, 3)
    return ""


def _has_negative_count(path: Place) -> bool:
    """Whether a checkpoint claims less than no entries, for which a broker makes no list, and reads nothing."""
    lines = checkpoint_lines(path)
    n_entries = java_number(lines[1], 31) if len(lines) > 1 else None
    return n_entries is not None and n_entries < 0 and java_number(lines[0], 31) == 0


def _bootstrap_problem(path: Place, limits: Limits) -> str:
    """A broker reads this file without checksums, and up to a batch that is cut off.

    Source: BootstrapDirectory.readFromBinaryFile, BootstrapMetadata.fromRecords, Kafka 4.3.
    """
    metadata = ClusterMetadata()
    try:
        read_metadata_file(metadata, path, limits=limits)
    except CorruptionError as error:
        if error.reason is Reason.CRC_MISMATCH:
            return ""
        if error.reason not in _CUT_OFF:
            raise
    if metadata.findings:
        return metadata.findings[0].detail
    return "" if "metadata.version" in metadata.features else "no record with metadata.version"


def _metadata_log_problems(directory: Place, limits: Limits) -> Iterator[StartProblem]:
    """Check the files of raft in the metadata log's directory."""
    yield from _attempt(directory / kf.QUORUM_STATE, quorum_state_problem)
    listing = Directory.or_empty(directory)
    start = listing.bases[0] if listing.bases else 0
    snapshots = [(one.end_offset, name) for name, one in kf.raft_snapshots(listing.names).items()]
    newest = max(snapshots, default=None)
    if newest is None or newest[0] < start:
        if start:
            which = "no snapshot exists" if newest is None else f"the newest snapshot is {newest[1]}"
            detail = f"the metadata log begins at offset {start}, but {which}: the records before {start} are missing"
            yield StartProblem(Reason.SEGMENT_MISSING, str(directory), detail)
        return
    with contextlib.suppress(KafkalogError, OSError):
        # whoever asks for the problems asks for the settings, too: they are read once
        metadata = cluster_metadata(directory.parent, limits=limits)
        if metadata is not None and metadata.sound_snapshot == newest[1]:
            return
    # the first one has what `kafka-storage.sh format` wrote; the log has it again, and a broker takes less for it
    is_first = newest[1] == kf.raft_snapshot_name(0, 0)
    for problem in _snapshot_problems(directory / newest[1], limits):
        if not (is_first and problem.reason in (*_CUT_OFF, Reason.INTERNAL_RECORD) and start == 0):
            yield problem


def _snapshot_problems(path: Place, limits: Limits) -> Iterator[StartProblem]:
    """A broker takes a snapshot that is cut off for a whole one.

    Source: RecordsSnapshotReader, KRaftControlRecordStateMachine.maybeLoadSnapshot, Kafka 4.3.
    """
    metadata = ClusterMetadata()
    first = last = None
    detail = ""
    try:
        first, last = read_metadata_file(metadata, path, limits=limits)
    except KafkalogError as error:
        if error.reason not in _CUT_OFF or not metadata.end_offset:
            yield StartProblem(error.reason, str(path), error.detail, error.position)
            return
    else:
        if first != kf.ControlRecordType.SNAPSHOT_HEADER:
            detail = "it does not begin with the header of a snapshot"
        elif metadata.findings:
            detail = metadata.findings[0].detail
    if detail:
        yield StartProblem(Reason.INTERNAL_RECORD, str(path), detail)
    elif last != kf.ControlRecordType.SNAPSHOT_FOOTER:
        detail = "the snapshot is cut off: it has no footer"
        yield StartProblem(Reason.PARTIAL_TAIL, str(path), detail, effect="loses metadata")


def quorum_state_problem(path: Place) -> str:
    """Return what is wrong with a `quorum-state`; "" if nothing is. A broker reads its first line only.

    Source: FileQuorumStateStore.readStateFromFile, QuorumStateDataJsonConverter, Kafka 4.3.
    """
    line = _LINE_END.split(read_file(path, max_bytes=MAX_CHECKPOINT_BYTES), maxsplit=1)[0]
    try:
        # what follows the object on its line is not read, as by Jackson
        state, _ = json.JSONDecoder().raw_decode(line.decode(errors="replace").lstrip(" \t"))
    except (ValueError, RecursionError):
        return "no JSON object on its first line" if line else "its first line is empty"
    if not isinstance(state, dict):
        return "its first line is not a JSON object"
    if "data_version" not in state:
        return "data_version is missing"
    version = state["data_version"]
    # Jackson reads any other value as 0
    number = int(version) if isinstance(version, (int, float)) and not isinstance(version, bool) else 0
    if number not in _QUORUM_FIELDS:
        return f"data_version {number} where 0 or 1 is expected"
    for name, kind in _QUORUM_FIELDS[number].items():
        if name not in state:
            return f"{name} is missing"
        if not _is_right(state[name], kind):
            return f"{name} is {str(state[name])[:40]!r}"
    return ""


def _is_right(value: object, kind: type | int) -> bool:
    """Whether a value is a text, a list of voters, or a number of so many bits without its sign."""
    if kind is list and isinstance(value, list):
        return all(isinstance(one, dict) and _is_right(one.get("voterId"), 31) for one in value)
    if isinstance(kind, type):
        return isinstance(value, kind)
    return isinstance(value, int) and not isinstance(value, bool) and -(2**kind) <= value < 2**kind


_ANY_QUORUM: Final = {"leaderId": 31, "leaderEpoch": 31, "votedId": 31}
_QUORUM_FIELDS: Final[dict[int, dict[str, type | int]]] = {
    0: {"clusterId": str, **_ANY_QUORUM, "appliedOffset": 63, "currentVoters": list},
    1: {**_ANY_QUORUM, "votedDirectoryId": str},
}
"""The fields of each version, all mandatory."""


def _duplicates(listed: Iterable[Place | Finding]) -> Iterator[StartProblem]:
    """Directories that cannot both be there: two of one partition, or one and its future one on the same disk.

    A future directory in another log dir is a replica that is being moved there.
    Source: LogManager.loadLog, LogManager.recoverAbandonedFutureLogs, Kafka 4.3.
    """
    seen: dict[tuple[kf.TopicPartition, str | None], Place] = {}
    # a link that is not followed is there; what else has a finding is no partition
    links = (Path(one.path or "") for one in listed if isinstance(one, Finding) and one.reason is Reason.LINK_OUTSIDE)
    for path in itertools.chain((one for one in listed if not isinstance(one, Finding)), links):
        parsed = kf.parse_partition_directory(path.name)
        if parsed is None or parsed.kind not in (None, "future"):
            continue
        key = parsed.topic_partition
        current = seen.get((key, None))
        other = seen.setdefault((key, parsed.kind), path)
        if parsed.kind == "future" and current is not None and current.parent == path.parent:
            other = current
        if other != path:
            yield StartProblem(Reason.PARTITION_TWICE, str(path), f"{other} holds the same partition")


_CUT_OFF: Final = (Reason.PARTIAL_TAIL, Reason.SIZE_EXCEEDS_FILE)
_BAD_ESCAPE: Final = re.compile(rb"^(?![ \t\f]*[#!]).*(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})", re.MULTILINE)
_LINE_END: Final = re.compile(rb"\r\n|\r|\n")
