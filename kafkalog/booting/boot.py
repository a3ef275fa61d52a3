"""Boot: builds a directory on which a stock broker starts and serves the partitions of a lost cluster.

The steps: survey the sources; verify and stage one copy of each partition, and rebuild its derived files; write topics,
settings and ids to a snapshot of the metadata log; check the result with a preflight. All of it appears in one step.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Final

from kafkalog import format as kf
from kafkalog.booting.coordinators import CoordinatorState, append_commits, by_partition, share_groups, write_commits
from kafkalog.booting.images import CLUSTER, IMAGES, LOOPBACK, MANIFESTS
from kafkalog.booting.known_topics import KnownTopics
from kafkalog.booting.metadata_log import NewCluster, Node, encode_snapshot, quorum_state, snapshot_name
from kafkalog.booting.report import BETTER, BootNode, BootPartition, BootReport, BootTransaction
from kafkalog.booting.sources import Copy, RemotePart, SourceRoot, Sources, local_part, store_of
from kafkalog.booting.staging import (
    PlannedCopies,
    StagedPartition,
    damage_error,
    highest_producer_id,
    judged,
    offsets_past_retention,
    stage,
    with_futures,
)
from kafkalog.booting.topics import (
    RESTORES,
    Evidence,
    Settings,
    TopicOptions,
    TopicPlan,
    new_id,
    plan_topics,
    read_topics_file,
)
from kafkalog.errors import (
    DEFAULT_LIMITS,
    ConfigWarning,
    CorruptionError,
    Finding,
    Findings,
    Limits,
    NotKafkaError,
    Reason,
    UnsafePathError,
)
from kafkalog.log.searching.missing import offsets_finding
from kafkalog.parsing import TopicPatterns, integer, one_of
from kafkalog.protocol.releases import DEFAULT_RELEASE, level_name
from kafkalog.repair.recovering.preflight import preflight
from kafkalog.repair.recovering.targets import TARGETS, release_of
from kafkalog.state.checkpoints import (
    encode_checkpoint,
    encode_offset_checkpoint,
    encode_partition_metadata,
)
from kafkalog.state.cluster_image import BROKER, ClusterMetadata
from kafkalog.state.properties import encode_properties
from kafkalog.storage.atomic import closest_parent
from kafkalog.storage.output_paths import check_outside, copy_ownership, give_ownership
from kafkalog.storage.own_names import ORIGIN_NAME
from kafkalog.storage.room import check_room
from kafkalog.storage.staging import StagedDirectory, scratch_directory, staged_directory
from kafkalog.survey.losses import Lost
from kafkalog.survey.origins import encode_origin, known_losses
from kafkalog.system_topics.commits import is_expired
from kafkalog.system_topics.commits_file import Commit, read_commits_file
from kafkalog.system_topics.coordinator_load import with_load_failures
from kafkalog.system_topics.strimzi_manifests import cluster_manifests
from kafkalog.system_topics.transactions import abort_command
from kafkalog.text import counted, offset_range

_PRODUCER_ID_BLOCK: Final = 1000
_FIRST_PORT: Final = 9092
_MOST_NODES: Final = 1000
_NODE: Final = re.compile(r"(?:(\d+)@)?(?:([^:@,\s]+)(?::(\d+))(?::(\d+))?)?")
KEEP_CLUSTER_ID: Final = "keep"
"""The value of `cluster_id` that takes the id of the sources."""
_TAKEN_OVER: Final = ("keep", "as-was")
"""Values of `groups` that take `__consumer_offsets` over."""


def boot(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    output: str | os.PathLike[str] | None = None,
    *,
    release: str | None = None,
    image: str | None = None,
    topics: str | Sequence[str] | None = None,
    nodes: int | str | Sequence[str] = 1,
    cluster_id: str | None = None,
    metadata: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    settings: Settings | None = None,
    groups: str | os.PathLike[str] = "keep",
    strict: bool = False,
    include_unknown: bool = False,
    dry_run: bool = False,
    progress: Callable[[int], object] = lambda n_bytes: None,
    limits: Limits = DEFAULT_LIMITS,
) -> BootReport:
    """Build a directory on which a stock broker starts, from partition directories whose cluster is gone.

    Parameters
    ----------
    sources : path-like or sequence of path-like
        Log dirs of one or more brokers, single partition directories, or outputs of `load`, `convert`, `salvage`,
        `merge` and `restore_tiered`. They are only read. With `kafkalog.tiered_location` of a log dir, the segments of
        tiered topics in remote storage are restored as well.
    output : path-like
        Directory to create: `data/`, `server.properties`, `report.json` and `report.txt`. With several nodes, each has
        its own `node-N/` with the first two.
    release : str, optional
        The release of Kafka that starts on it, 3.9 to 4.4. Default: that of the old cluster's metadata log if it is
        3.9 to 4.3; else 4.3.
    image : {"strimzi", "apache", "bitnami", "confluent"}, optional
        The image of the containers that run it: the name of the log dir, `log.dirs`, the owner, and the next commands
        are for it. The quorum is static then, as the entry points of these images need it. Several nodes need a host
        each, except for Strimzi, whose operator makes the addresses: its output also has `strimzi.yaml`, the resources.
    topics : str or sequence of str, optional
        Names or globs of topics; a leading ``!`` excludes.
    nodes : int, str or sequence of str
        Number of nodes, each a broker and a controller; or ``ID@HOST:PORT:CONTROLLER_PORT`` of each. The id and the
        controller's port may be left out. Default: node 1 at 127.0.0.1:9092. With more than one, each broker among the
        sources keeps its copies, and the best copy of each partition leads.
    cluster_id : str, optional
        Default: a new one, so that no node of the old cluster can join by accident. If you name it, the sources may
        have different cluster ids. "keep" takes that of the sources.
    metadata : path-like or sequence of path-like, optional
        What the sources lack: a log dir with a copy of `__cluster_metadata-0`; or, if no metadata log survives, a file
        with the topics as they were: JSON lines of ``kafkalog metadata --show topics --json``, or one JSON object with
        settings by topic or glob. `settings` come before those of a file.
    settings : mapping, optional
        Settings of topics, by name or glob; None removes one: ``{"orders": {"cleanup.policy": "compact"}}``. Two more
        names are known. ``"retention": "as-was"`` keeps the old retention of topics: a broker then deletes old records
        soon after its start. For `__consumer_offsets`, committed offsets of groups without members expire again.
        ``"topic.id"`` is the id of a topic, for all of its directories.
    groups : {"keep", "as-was", "none"} or path-like
        "keep" takes `__consumer_offsets` over. Commits with a time of expiry of their own, as brokers before 2.1 and
        some clients write them, are written again without it; "as-was" leaves them alone. A file of
        committed offsets, as `kafkalog groups -o` writes it, replaces it.
    strict : bool
        Refuse damaged partitions, copies of one that differ, and missing partitions.
    include_unknown : bool
        Whether to bring topics back that the metadata log does not have, as if they had not been deleted, and the
        directories ``TOPIC-N.ID-stray``. A broker that starts with the metadata of another cluster renames all its
        partitions so.
    dry_run : bool
        Verify and report; write nothing.
    progress : callable
        Called with the number of bytes verified since the last call.
    limits : Limits

    Returns
    -------
    BootReport

    Raises
    ------
    NotKafkaError
        There are no partitions in the sources.
    UnsafePathError
        A broker runs on a source, topic ids differ, a setting stops a broker of the release; or, with `strict`, a
        partition is missing, or copies differ.
    CorruptionError
        A partition is damaged, with `strict`.
    OutputExistsError
        The output exists.

    Notes
    -----
    Of several copies of a partition, the one with the latest leader epoch leads and, of those, the longest. If it is
    damaged, or lacks offsets, they come from the other copies, as with `merge`. A single damaged copy gives its intact
    batches, as with `salvage`. `BootReport.findings` has what is lost. The order of the sources changes nothing.

    `boot` rebuilds indexes, producer snapshots and leader epochs, and writes the clean-shutdown marker: the first start
    reads nothing and cuts nothing. The next producer id is above all known ones. With an old id, a broker would
    acknowledge records of a new idempotent producer without writing them. After a crash, the output is absent or
    complete.

    Tiered topics become local ones: with their remote storage, the new cluster has the whole log on its disks, and
    without it, the offsets that only the remote storage has are a loss. The restored part needs its size once more next
    to the output while `boot` runs.

    Examples
    --------
    >>> kafkalog.boot("tests/golden/log_dir", "never-written", dry_run=True)
    BootReport(8 topics, 10 partitions, 1 node, nothing lost)
    """
    if release not in (None, *TARGETS):
        raise ValueError(f"release is one of {', '.join(TARGETS)}, not {release!r}")
    one_of("image", image or "apache", [*IMAGES])
    others = [metadata] if isinstance(metadata, (str, os.PathLike)) else list(metadata or ())
    listed = [topic for path in others if not os.path.isdir(path) for topic in read_topics_file(path)]
    options = TopicOptions(TARGETS[DEFAULT_RELEASE], settings or {}, strict, limits.max_directories, listed)
    given = [sources] if isinstance(sources, (str, os.PathLike)) or store_of(sources) else list(sources)
    stores = [store for one in given if (store := store_of(one)) is not None]
    paths = [path for path in map(local_part, given) if path is not None]
    if not paths:
        raise ValueError("no source is named")
    target = _target(output, paths, dry_run=dry_run)
    commits = None if groups in (*_TAKEN_OVER, "none") else read_commits_file(groups)
    layout = _layout(nodes, image)
    found = Sources.find(paths, limits, include_stray=include_unknown)
    keeps_id = cluster_id == KEEP_CLUSTER_ID
    new_cluster = found.cluster_id() if keeps_id else cluster_id or new_id()
    report = BootReport(str(target), DEFAULT_RELEASE, new_cluster, image=image, is_written=not dry_run)
    report.findings = Findings(limits.max_findings)
    report.nodes = [_placed(node, target, image) for node in layout]
    run = _Boot(layout, options, report, limits)
    run.release = release
    log_dirs = [Path(path) for path in others if os.path.isdir(path)]
    with contextlib.ExitStack() as stack:
        if stores:
            # the other directories above are made with the output
            place = stack.enter_context(scratch_directory(closest_parent(target), target.name))
            is_each = len(layout) > 1
            run.remote = RemotePart(found, stores[0], place, target, limits, is_each=is_each, is_copied=not dry_run)
        run.survey(
            found,
            topics,
            log_dirs,
            groups,
            commits,
            is_one_cluster=not (cluster_id is None or keeps_id),
            includes_unknown=include_unknown,
        )
        check_room(output, run.copied, report.findings.add, dry_run=dry_run)
        if dry_run:
            run.stage(None, progress)
            return report
        with staged_directory(target) as staged:
            run.stage(staged, progress)
            run.write(staged)
            run.check(staged, target)
            staged.put("report.json", json.dumps(report.as_dict(), indent=1) + "\n")
            staged.put("report.txt", report.text())
            run.give_away(staged.path, target)
    return report


def _placed(node: Node, target: Path, image: str | None) -> BootNode:
    """Set where the log dir of a node is when it runs. Returns the node as reports show it."""
    directory = target / node.folder
    node.log_dirs = IMAGES[image].log_dirs.format(node.node_id) if image else str(directory / node.log_dirs)
    return BootNode.of(node, str(directory))


def _target(output: str | os.PathLike[str] | None, paths: Sequence[str | os.PathLike[str]], *, dry_run: bool) -> Path:
    """The directory to make; raises if it is not named, or unsafe."""
    if output is None:
        if not dry_run:
            raise ValueError("output names the directory to make; or use dry_run=True")
        output = "kafkalog-boot"
    check_outside(output, paths, is_new=True)
    target = Path(os.path.realpath(output))
    if "," in str(target):
        detail = "a comma in the path of the output would end the entry in log.dirs: choose another path"
        raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=target)
    return target


def _layout(nodes: int | str | Sequence[str], image: str | None) -> list[Node]:
    given = [nodes] if isinstance(nodes, str) else nodes
    texts = [""] * integer("nodes", given, 1, _MOST_NODES) if isinstance(given, int) else list(given)
    found: list[Node] = []
    for number, text in enumerate(texts):
        following = found[-1].node_id + 1 if found else 1
        found.append(_node(text, following, _FIRST_PORT + 2 * number, has_folder=len(texts) > 1))
    if len({node.node_id for node in found}) < max(len(found), 1):
        raise ValueError("nodes has no node, or two with one id")
    if image is not None:
        IMAGES[image].check_hosts([node.host for node in found])
    return found


def _node(text: str, node_id: int, port: int, *, has_folder: bool) -> Node:
    """The node of a text; `node_id` and `port` are for one that has none."""
    match = _NODE.fullmatch(text)
    if match is None:
        raise ValueError(f"a node is HOST:PORT or ID@HOST:PORT:CONTROLLER_PORT, not {text!r}")
    node_id, port = int(match[1] or node_id), int(match[3] or port)
    if node_id >= 2**31:
        raise ValueError(f"a node's id is a number below {2**31}, not as in {text!r}")
    controller = int(match[4] or port + 1)
    if not (0 < port < 2**16 and 0 < controller < 2**16):
        raise ValueError(f"a port is a number below 65536, not as in {text!r}")
    return Node(node_id, f"node-{node_id}/" if has_folder else "", match[2] or LOOPBACK, port, controller, new_id())


class _Boot:
    """The state of one boot; `placed` are the copies that were staged."""

    def __init__(self, nodes: list[Node], options: TopicOptions, report: BootReport, limits: Limits) -> None:
        self._nodes, self._options, self._report, self._limits = nodes, options, report, limits
        self._by_id = {node.node_id: node for node in nodes}
        self._now = time.time_ns() // 10**6
        self.placed: list[StagedPartition] = []
        self._metadata: ClusterMetadata | None = None
        self._commits: Sequence[Commit] | None = None
        self._keeps_expiry = False
        self._left_out: list[Copy] = []
        self._wanted: list[tuple[Copy, int]] = []
        self._node_of: dict[Path, int] = {}
        self._plans: dict[kf.TopicPartition, tuple[PlannedCopies, set[int]]] = {}
        self._orders: dict[kf.TopicPartition, list[int]] = {}
        self._leaders: list[Copy] = []
        self._copies: dict[kf.TopicPartition, list[Copy]] = {}
        self._topics: list[TopicPlan] = []
        self.remote: RemotePart | None = None
        self.release: str | None = None
        """The one that the caller named."""

    def survey(
        self,
        sources: Sources,
        topics: str | Sequence[str] | None,
        others: Sequence[Path],
        groups: str | os.PathLike[str],
        commits: Sequence[Commit] | None,
        *,
        is_one_cluster: bool,
        includes_unknown: bool,
    ) -> None:
        """Find the partitions, choose copies, and plan the topics."""
        self._sources, report = sources, self._report
        where = self._read_metadata(others, is_one_cluster=is_one_cluster)
        patterns = TopicPatterns(topics)
        sources.refuse_forbidden_ids(patterns.wants)
        if self.remote is not None:
            self.remote.restore(patterns.wants, self._metadata, report.findings.add)
        known = self._compare_topics(where, includes_unknown=includes_unknown)
        nameless = sources.leave_out_nameless()
        sources.left_out += nameless
        report.add_notes(nameless)
        names = dict.fromkeys(key.topic for key in sources.copies)
        # the other topics of a log dir of which only partitions were named are not missing
        if self._metadata is not None and (where in others or sources.is_whole(where)):
            names |= dict.fromkeys(self._metadata.topic_ids)
        patterns.check([*names])
        takes_groups = groups in _TAKEN_OVER

        def is_wanted(topic: str) -> bool:
            return topic in names and patterns.wants(topic) and (takes_groups or topic != kf.CONSUMER_OFFSETS)

        bare = self._choose_copies(is_wanted)
        self._state = self._read_state()
        self._keeps_expiry = groups == "as-was"
        self._take_commits(commits, takes_groups=takes_groups)
        self._plan_topics(bare, is_wanted)
        self._note_sources(known)

    def _note_sources(self, known: KnownTopics | None) -> None:
        """Report topics without settings, and what the log dirs and the metadata log lack."""
        report = self._report
        if known is not None:
            unset = [topic.name for topic in report.topics if not (topic.is_internal or topic.is_set)]
            report.add_notes([finding for name in unset if (finding := known.without_settings(name)) is not None])
        for root in self._sources.roots:
            report.add_notes(root.findings)
        if self._metadata is not None:
            report.add_notes([replace(one, damage=False) for one in self._metadata.findings])
        elif self.remote is None and any(key.topic == kf.REMOTE_LOG_METADATA for key in self._sources.copies):
            detail = f"{kf.REMOTE_LOG_METADATA} is here, so topics have segments in remote storage. {RESTORES}"
            report.findings.add(Finding(Reason.METADATA_INCOMPLETE, detail, damage=False))

    def _read_metadata(self, others: Sequence[Path], *, is_one_cluster: bool) -> Path | None:
        """Read the metadata log that leads, which also decides the release. Returns the log dir where it is."""
        report = self._report
        self._metadata, where, report.metadata_doubt = self._sources.metadata(
            others, self._limits, is_one_cluster=is_one_cluster
        )
        self._sources.note_origins(has_metadata=where is not None)
        report.add_notes(self._sources.left_out)
        report.metadata = None if where is None else str(where)
        report.release = self.release or release_of(self._metadata)
        self._options = replace(self._options, target=TARGETS[report.release])
        return where

    def _compare_topics(self, where: Path | None, *, includes_unknown: bool) -> KnownTopics | None:
        """Compare the topics of the sources with those of the metadata log, and leave out those that it has not."""
        if self._metadata is None:
            return None
        known = KnownTopics.of(self._metadata, str(where), self._sources.copies, self._report.metadata_doubt)
        if not includes_unknown:
            self._report.add_notes(known.leave_out(self._sources.copies))
        if not self._options.is_strict:
            accepts = lambda name: self._options.topic_id(name) is not None  # noqa: E731
            self._report.add_notes(known.leave_out_others(self._sources.copies, accepts))
        self._left_out, self._report.metadata_doubt = known.left_out, known.doubt
        return known

    def _choose_copies(self, is_wanted: Callable[[str], bool]) -> dict[kf.TopicPartition, list[Copy]]:
        """Choose the copies of the wanted partitions. Returns those that are directories without a segment."""
        sources = self._sources
        copies = {key: some for key, some in sorted(sources.copies.items()) if is_wanted(key.topic)}
        if not copies and self._metadata is None:
            detail = "no partitions here: name log dirs (values of log.dirs), or directories such as orders-0"
            detail += "".join(f". {one.path}: {one.detail}" for one in sources.left_out[:1])
            raise NotKafkaError(Reason.NOT_KAFKA, detail, path=sources.roots[0].path)
        for one in chain(*copies.values()):
            one.refuse_forbidden()
        full = {key: [one for one in some if not one.is_bare] for key, some in copies.items()}
        self._copies = {key: some for key, some in full.items() if some}
        self._choose(self._copies)
        chosen = {one.path for one, _ in self._wanted}
        every = chain(*sources.copies.values(), self._left_out)
        self._others = [one.path for one in every if one.path not in chosen]
        return {key: copies[key] for key, some in full.items() if not some}

    def _take_commits(self, commits: Sequence[Commit] | None, *, takes_groups: bool) -> None:
        """Let commits of a file replace those of the sources, and report what groups lose."""
        report, state = self._report, self._state
        if commits is not None:
            self._commits = state.commits = list(commits)
        notes = [replace(one, damage=False) for one in state.findings]
        report.add_notes(with_load_failures(notes, state.unloaded))
        self._note_expiring(state)
        if not takes_groups:
            self._note_share_groups(self._sources)
        report.n_groups, report.n_commits = len({one.group for one in state.commits}), len(state.commits)

    def _plan_topics(self, bare: dict[kf.TopicPartition, list[Copy]], is_wanted: Callable[[str], bool]) -> None:
        """Plan the topics, also for partitions without a segment, and for commits of a file."""
        sources, report = self._sources, self._report
        evidence = Evidence(
            self._metadata,
            self._state,
            sources.offsets(*kf.END_CHECKPOINTS, kf.LOG_START_OFFSET_CHECKPOINT),
            sources.offsets(kf.CLEANER_OFFSET_CHECKPOINT),
            report.findings.add,
            report.metadata_doubt,
            {root.properties.get("directory.id") for root in sources.roots},
            sources.elsewhere,
        )
        self._cleaned = evidence.cleaned
        self._topics = report.topics = plan_topics(bare | self._copies, evidence, self._options, is_wanted)
        if self._commits is not None:
            # the offsets go into new partitions, of which a broker makes those without groups
            plan = self._commits_topic = next(one for one in self._topics if one.name == kf.CONSUMER_OFFSETS)
            parts = by_partition(self._commits, plan.n_partitions)
            plan.committed = {at: len(some) for at, some in parts.items()}

    def _choose(self, copies: dict[kf.TopicPartition, list[Copy]]) -> None:
        """Plan the partitions with several copies; copies that have all of their plan go to the nodes as they are."""
        for node, of_broker in zip(self._nodes, self._by_broker(copies), strict=False):
            self._node_of |= {one.path: node.node_id for one in of_broker}
        if self._options.is_strict:
            _refuse_differing(self._plan(some) for some in copies.values() if len(some) > 1)
        else:
            self._add_futures(copies)
        for key, some in copies.items():
            if len(some) == 1:
                self._wanted.append((some[0], self._node_of[some[0].path]))
                self._leaders.append(some[0])
                continue
            planned = self._plan(some)
            self._orders[key] = planned.nodes(self._node_of)
            kept = planned.as_they_are(self._node_of)
            rest = {self._node_of[one.path] for one in some} - {*kept}
            self._wanted += [(one, node_id) for node_id, one in kept.items()]
            first = kept.get(self._node_of[planned.leader.path])
            self._leaders += [] if first is None else [first]
            if rest:
                self._plans[key] = planned, rest
            else:
                self._add_notes(planned, is_joined=False)
            for one in planned.copies:
                if (taken := kept.get(self._node_of[one.path], one)) is not one:
                    detail = f"left out: {taken.path} {BETTER}"
                    self._report.findings.add(Finding(Reason.PARTITION_TWICE, detail, path=str(one.path), damage=False))

    def _add_futures(self, copies: dict[kf.TopicPartition, list[Copy]]) -> None:
        """Let copies that a broker was making, to move a replica, fill what the others lost, on the node of that."""
        ids = {} if self._metadata is None else self._metadata.topic_ids
        for key in self._sources.futures.keys() & copies.keys():
            some = copies[key]
            copies[key] = with_futures(some, self._sources.futures[key], ids.get(key.topic), self._plan)
            if not (used := copies[key][len(some) :]):
                continue
            for one in used:
                near = next((other for other in some if other.root.node_id == one.root.node_id), some[0])
                self._node_of[one.path] = self._node_of[near.path]
            rows, paths = self._report.findings.rows, {str(one.path) for one in used}
            self._report.findings.exchange(
                [one for one in rows if one.reason is not Reason.LEFT_OUT or one.path not in paths]
            )

    def _plan(self, copies: Sequence[Copy]) -> PlannedCopies:
        return PlannedCopies.of(copies, self._limits, is_compacted=self._is_compacted(copies[0].key.topic))

    def _is_compacted(self, topic: str) -> bool | None:
        """Whether a topic is compacted; None if that is not known."""
        return self._options.is_compacted(topic, self._metadata)

    def _add_notes(self, planned: PlannedCopies, *, is_joined: bool) -> None:
        """Add what is noted of copies; what a copy lacks that is served as it is, its verification reports."""
        path = str(planned.leader.path)
        for note in dict.fromkeys(planned.notes):
            is_repeated = not is_joined and note.path == path and note.n_records is not None
            # the plan knows whether the topic is compacted, so a hole that it reports is a loss
            is_hole = note.damage and bool(note.n_records)
            if not is_repeated:
                is_tiered = self._is_tiered(planned.leader)
                self._report.findings.add(note if is_hole else judged(planned.leader, note, is_tiered=is_tiered))

    def _is_tiered(self, copy: Copy) -> bool:
        """Whether segments of a copy are in remote storage: that part has findings of its own."""
        return copy.is_restored or (self._metadata is not None and self._metadata.is_tiered(copy.key.topic))

    def _by_broker(self, copies: Mapping[kf.TopicPartition, Sequence[Copy]]) -> list[list[Copy]]:
        """The copies of each old broker; all together if there is a single node. Raises if there are too few nodes."""
        brokers: dict[Path | int, list[Copy]] = {}
        for some in copies.values():
            for one in some:
                # a log dir without an id is a broker of its own
                name: Path | int = one.root.path if one.root.node_id is None else one.root.node_id
                brokers.setdefault(name if len(self._nodes) > 1 else 0, []).append(one)
        if len(brokers) > len(self._nodes):
            detail = f"the sources are of {len(brokers)} brokers: use --nodes {len(brokers)}, or --nodes 1"
            raise UnsafePathError(Reason.PARTITION_TWICE, detail)
        return [brokers[name] for name in sorted(brokers, key=str)]

    def _read_state(self) -> CoordinatorState:
        """Read the state of coordinators, also from partitions that are made of several copies."""
        with tempfile.TemporaryDirectory(prefix="kafkalog-boot-") as folder:
            copies = [*self._leaders]
            known = {one.key for one in copies}
            for key, (planned, _) in self._plans.items():
                if key.topic in kf.INTERNAL_TOPICS and key not in known:
                    path = Path(folder) / str(key)
                    planned.write(path, None, 0, self._limits)
                    copies.append(Copy(key, path, SourceRoot(Path(folder)), self._limits))
            return CoordinatorState.read(copies, self._limits)

    @property
    def copied(self) -> list[Path]:
        """The directories that are copied, each as often as it is."""
        return [one.path for one, _ in self._wanted]

    def stage(self, staged: StagedDirectory | None, progress: Callable[[int], object]) -> None:
        """Verify the partitions, and stage them."""
        ids = {plan.name: plan.topic_id for plan in self._topics}
        wanted = [(one, node_id, f"{self._by_id[node_id].data}/", ids[one.key.topic]) for one, node_id in self._wanted]
        self.placed, damaged = stage(
            wanted,
            staged,
            limits=self._limits,
            findings=self._report.findings,
            strict=self._options.is_strict,
            progress=progress,
            is_compacted=self._is_compacted,
            is_tiered=self._is_tiered,
        )
        for one, node_id in self._wanted:
            if one.path in damaged:
                planned, nodes = self._plans.get(one.key) or (self._plan(self._copies[one.key]), set[int]())
                self._plans[one.key] = planned, {*nodes, node_id}
        for key, (planned, nodes) in sorted(self._plans.items()):
            self._place_joined(key, planned, nodes, ids[key.topic], staged)
        self._note_known_losses()
        self._note_restored_ends()
        self._rule_starts()
        by_key: dict[kf.TopicPartition, list[StagedPartition]] = {}
        for copy in self.placed:
            by_key.setdefault(copy.copy.key, []).append(copy)
        for key, order in self._orders.items():
            by_key[key].sort(key=lambda copy, order=order: order.index(copy.node_id))  # type: ignore[misc]
        report = self._report
        target, note = self._options.target, report.findings.add
        self._cluster = NewCluster(self._nodes, target, self._topics, by_key, self._metadata, note, report.carried)
        report.partitions = [self._row(one) for one in self.placed]
        report.next_producer_id = self._cluster.next_producer_id = self._next_producer_id()
        self._records = self._cluster.records()
        self._note_transactions()
        self._note_commits()
        self._note_followers()
        self._count_expiring()
        if self.remote is not None:
            report.rename(self.remote.named)

    def _place_joined(
        self,
        key: kf.TopicPartition,
        planned: PlannedCopies,
        nodes: set[int],
        topic_id: str,
        staged: StagedDirectory | None,
    ) -> None:
        """Put the log that is made of a partition's copies on some nodes."""
        first = self._node_of[planned.leader.path]
        for node_id in sorted(nodes, key=lambda one: (one != first, one)):
            folder = f"{self._by_id[node_id].data}/{key}"
            path = None if staged is None else staged.path / folder
            self.placed.append(planned.write(path, topic_id, node_id, self._limits))
        self._others += [one.path for one in planned.copies if one.path not in self._others]
        # writing has added batches that cannot be decoded, once for each node
        self._add_notes(planned, is_joined=True)

    def _note_known_losses(self) -> None:
        """Repeat the losses of copies that salvage or merge made; a joined log has them among its own."""
        findings = self._report.findings
        is_lost = {(one.path, one.base_offset) for one in findings.rows if one.damage}
        repeated: set[tuple[str, int | None, int | None]] = set()
        for one in self.placed:
            for lost in known_losses(one.copy.path) if one.copy.key not in self._plans else ():
                if (lost.path, lost.first_offset) in is_lost:
                    continue
                is_lost.add((lost.path, lost.first_offset))
                findings.add(lost.to_finding("the source lacks offsets that were reported as lost"))
                repeated.add((lost.path, lost.first_offset, lost.end_offset))
        # the verification has noted the same
        findings.exchange([one for one in findings.rows if one.damage or _extent(one) not in repeated])

    def _note_restored_ends(self) -> None:
        """Report the end of restored partitions that the remote storage never had, as checkpoints prove."""
        ends = self._sources.offsets(*kf.END_CHECKPOINTS)
        for one in self.placed:
            end, known = one.log_end_offset, ends.get(one.copy.key, 0)
            if one.copy.is_restored and end < known:
                detail = f"offsets {offset_range(end, known)} of {one.copy.key} are gone: a checkpoint has them, and"
                detail += " remote storage and the disks have not"
                path = str(one.copy.path)
                self._report.findings.add(offsets_finding(Reason.LOG_END_MISSING, detail, path, end, known))

    def _rule_starts(self) -> None:
        """Let the highest log start of a partition rule that is in the checkpoint of any of its copies."""
        for one in self.placed:
            starts = self._sources.log_starts(self._copies[one.copy.key])
            proven = max((start for start in starts if start <= one.log_end_offset), default=0)
            copies = self._copies[one.copy.key]
            # of equal copies, any may have been taken
            others = [copy.log_start_offset for copy in copies] if len(copies) > 1 else []
            lowest = min([one.log_start_offset, *others])
            if proven > lowest:
                where = starts[proven].path / kf.LOG_START_OFFSET_CHECKPOINT
                detail = (
                    f"{one.copy.key} starts at offset {proven}, as {where} has it: offsets"
                    f" {offset_range(lowest, proven)} of the copies were deleted before"
                )
                self._report.findings.add(Finding(Reason.LEFT_OUT, detail, path=str(one.copy.path), damage=False))
                one.log_start_offset = max(one.log_start_offset, proven)

    def _next_producer_id(self) -> int:
        """Return an id above all known ones: a broker would drop the first records of an old one as resent."""
        used = [self._state.producer_id, *(one.producer_id for one in self.placed)]
        used += [*map(highest_producer_id, self._others)]
        known = -1 if self._metadata is None else self._metadata.next_producer_id
        # controllers hand out whole blocks
        found = -(-max(max(used, default=-1) + 1, known, 0) // _PRODUCER_ID_BLOCK) * _PRODUCER_ID_BLOCK
        if found >= 2**63:
            one = max(self.placed, key=lambda one: one.producer_id)
            detail = f"no producer id is left after {one.producer_id}, which it has: leave it out (--exclude-topics)"
            raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=one.copy.path)
        return found

    def _row(self, one: StagedPartition) -> BootPartition:
        return BootPartition(
            *one.copy.key,
            str(one.copy.path),
            one.node_id,
            one.log_start_offset,
            one.log_end_offset,
            self._cluster.epoch(one.copy.key),
            one.n_segments,
            one.n_bytes,
            self._cluster.placed[one.copy.key][0] is one,
        )

    def _note_transactions(self) -> None:
        known = {one.producer_id: one for one in self._state.transactions}
        at = self._report.nodes[0].listener
        for key, copies in sorted(self._cluster.placed.items()):
            for producer_id, start in copies[0].open_transactions:
                # its transaction is the only one that its producer can have open
                ends = producer_id in known and known[producer_id].ends_in(key)
                command = abort_command(key, start, at)
                self._report.open_transactions.append(BootTransaction(*key, producer_id, start, ends, command))

    def _note_commits(self) -> None:
        for commit in self._state.commits:
            copies = self._cluster.placed.get(commit.key)
            end = None if copies is None else copies[0].log_end_offset
            if end is not None and commit.offset > end:
                detail = (
                    f"group {commit.group} is at offset {commit.offset} of {commit.key}, which ends at"
                    f" {end}: its consumers reset (auto.offset.reset)"
                )
                self._report.findings.add(Finding(Reason.LOG_END_MISSING, detail, damage=False))

    def _note_expiring(self, state: CoordinatorState) -> None:
        """Report commits that brokers delete whatever `offsets.retention.minutes` is, and what becomes of them."""
        if self._commits is not None or not state.expiring:
            return
        names = sorted(state.expiring, key=lambda name: (state.expiring[name], name))
        n_expired = sum(is_expired([*state.expiring.values()], -1, self._now, None).tolist())
        which = f"{counted(len(names), 'group')} ({', '.join(map(repr, names[:8]))}{', ...' if names[8:] else ''})"
        what = f"{which} have committed offsets with a time of expiry of their own, {n_expired} of them in the past"
        if self._keeps_expiry:
            detail = f"{what}: a broker deletes these offsets then. Without --groups as-was, boot removes the time"
        else:
            detail = f"{what}: boot writes them again without it, at the end of {kf.CONSUMER_OFFSETS}"
        self._report.findings.add(Finding(Reason.INTERNAL_RECORD, detail, damage=False))

    def _note_share_groups(self, sources: Sources) -> None:
        """Report share groups that begin anew: a file of commits has none, and new partitions do not know them."""
        copies = [one for key, some in sources.copies.items() for one in some if key.topic == kf.CONSUMER_OFFSETS]
        names = share_groups(copies, self._limits)
        if names:
            which = ", ".join(map(repr, names[:8])) + (", ..." if names[8:] else "")
            detail = (
                f"{counted(len(names), 'share group')} ({which})"
                f" start again, and get records that they have done a second time: {kf.CONSUMER_OFFSETS} of the sources"
                " knows them, and --groups replaces it. Boot without --groups to keep them"
            )
            self._report.findings.add(Finding(Reason.LEFT_OUT, detail))

    def _note_followers(self) -> None:
        for key, (leader, *followers) in sorted(self._cluster.placed.items()):
            for one in followers:
                if one.log_end_offset > leader.log_end_offset:
                    detail = (
                        f"{key} ends at {one.log_end_offset} here. Node {leader.node_id} has a later epoch and leads:"
                        f" node {one.node_id} cuts its offsets from {leader.log_end_offset} on, if not earlier ones"
                    )
                    path = str(one.copy.path)
                    self._report.findings.add(Finding(Reason.PARTITION_TWICE, detail, path=path, damage=False))

    def _count_expiring(self) -> None:
        """Count what a broker deletes once the retention is on again that is off for now."""
        defaults = {} if self._metadata is None else self._metadata.settings.get((BROKER, ""), {})
        leaders: dict[str, list[StagedPartition]] = {}
        for key, (leader, *_) in self._cluster.placed.items():
            leaders.setdefault(key.topic, []).append(leader)
        for topic in self._topics:
            if topic.is_deleted and not topic.is_internal and not self._options.keeps_retention(topic.name):
                config = topic.old_retention(defaults)
                topic.n_expiring = offsets_past_retention(leaders.get(topic.name, ()), config, self._now)

    # what is written besides the partitions

    def write(self, staged: StagedDirectory) -> None:
        """Write the metadata log, checkpoints and settings of each node."""
        self._write_missing(staged)
        self._write_expiring(staged)
        if self._commits is not None:
            plan, data = self._commits_topic, staged.path / self._nodes[0].data
            data.mkdir(parents=True, exist_ok=True)
            epochs = {key: self._cluster.epoch(key) for key in self._cluster.placed}
            kept = [_known_epoch(one, epochs) for one in self._commits]
            write_commits(data, by_partition(kept, plan.n_partitions), plan.topic_id, self._now)
        # an image takes the voters from its configuration
        voters = [node.voter() for node in self._nodes if self._report.image is None]
        snapshot = encode_snapshot(self._records, self._now, voters)
        origin = self._origin()
        levels = encode_snapshot(self._cluster.level_records(), 0, (), epoch=0)
        for node in self._nodes:
            data_name = f"{node.data}/"
            log = f"{data_name}{kf.METADATA_DIRECTORY}/"
            staged.put(log + snapshot_name(len(self._records)), snapshot)
            if voters:
                staged.put(log + kf.QUORUM_STATE, quorum_state())
            staged.put(data_name + kf.BOOTSTRAP_CHECKPOINT, levels)
            staged.put(data_name + ORIGIN_NAME, origin)
            identity: dict[str, object] = {"version": 1, "cluster.id": self._report.cluster_id, "node.id": node.node_id}
            identity["directory.id"] = node.directory_id
            staged.put(data_name + kf.META_PROPERTIES, encode_properties(identity))
            for name, offsets in self._checkpoints(node).items():
                staged.put(data_name + name, encode_offset_checkpoint(dict(sorted(offsets.items()))))
            staged.put(data_name + kf.CLEAN_SHUTDOWN_FILE, kf.CLEAN_SHUTDOWN_TEXT)
            staged.put(node.folder + "server.properties", encode_properties(self._properties(node)))
        if self._report.image == "strimzi":
            staged.put(MANIFESTS, "\n".join(self._manifests()) + "\n")

    def _write_expiring(self, staged: StagedDirectory) -> None:
        """Write commits that expire by themselves again, to the first leaders of their partitions."""
        if self._keeps_expiry or self._commits is not None:
            return
        for number, commits in self._state.expiring_commits.items():
            for leader in self._cluster.placed.get(kf.TopicPartition(kf.CONSUMER_OFFSETS, number), ())[:1]:
                data = staged.path / self._by_id[leader.node_id].data
                leader.log_end_offset = append_commits(data / str(leader.copy.key), commits, self._now)
        self._report.partitions = [self._row(one) for one in self.placed]

    def _origin(self) -> bytes:
        """Where the partitions come from, and what they lack, so that later commands know these losses."""
        keys = {str(one.path): str(key) for key, some in self._copies.items() for one in some}
        losses: dict[str, list[Lost]] = {}
        for finding in self._report.findings.rows:
            path = finding.path or ""
            name = keys.get(path) or keys.get(str(Path(path).parent))
            lost = Lost.of(finding)
            if name is not None and lost is not None and lost.first_offset is not None:
                losses.setdefault(name, []).append(lost)
        roots = [root.path for root in self._sources.roots]
        return encode_origin("boot", roots, losses=losses)

    def _write_missing(self, staged: StagedDirectory) -> None:
        """Begin missing partitions at the offsets where they continue: an empty segment there, and an epoch."""
        for plan in self._topics:
            for number, at in plan.missing.items():
                key = kf.TopicPartition(plan.name, number)
                folder = f"{self._nodes[0].data}/{key}/"
                for suffix in (kf.LOG_SUFFIX, kf.INDEX_SUFFIX, kf.TIME_INDEX_SUFFIX):
                    staged.put(folder + kf.segment_file_name(at, suffix), b"")
                staged.put(folder + kf.LEADER_EPOCH_CHECKPOINT, encode_checkpoint([(self._cluster.epoch(key), at)]))
                staged.put(folder + kf.PARTITION_METADATA, encode_partition_metadata(plan.topic_id))

    def _checkpoints(self, node: Node) -> dict[str, dict[kf.TopicPartition, int]]:
        own = {one.copy.key: one for one in self.placed if one.node_id == node.node_id}
        ends = {key: one.log_end_offset for key, one in own.items()}
        if node is self._nodes[0]:
            for plan in self._topics:
                made = {**plan.missing, **plan.committed}
                ends |= {kf.TopicPartition(plan.name, number): at for number, at in made.items()}
        return {
            kf.RECOVERY_POINT_CHECKPOINT: ends,
            kf.HIGH_WATERMARK_CHECKPOINT: ends,
            # where a log starts inside of a segment, records below come back without it
            kf.LOG_START_OFFSET_CHECKPOINT: {
                key: one.log_start_offset for key, one in own.items() if one.log_start_offset
            },
            # without it, each compacted topic is cleaned from its start on
            kf.CLEANER_OFFSET_CHECKPOINT: {key: at for key, at in self._cleaned.items() if key in own},
        }

    def _properties(self, node: Node) -> dict[str, object]:
        """The content of `server.properties`."""
        listener = f"PLAINTEXT://{node.host}:{node.port}"
        at = [f"{one.host}:{one.controller_port}" for one in self._nodes]
        voters = ",".join(f"{one.node_id}@{place}" for one, place in zip(self._nodes, at, strict=True))
        is_static = self._report.image is not None
        return {
            "process.roles": "broker,controller",
            "node.id": node.node_id,
            **(
                {"controller.quorum.voters": voters}
                if is_static
                else {"controller.quorum.bootstrap.servers": ",".join(at)}
            ),
            "listeners": f"{listener},CONTROLLER://{node.host}:{node.controller_port}",
            "advertised.listeners": listener,
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": node.log_dirs,
            **self._broker_settings(),
        }

    def _broker_settings(self) -> dict[str, object]:
        """The settings that are the same on each node."""
        replication = min(len(self._nodes), 3)
        properties: dict[str, object] = {
            "offsets.topic.replication.factor": replication,
            "transaction.state.log.replication.factor": replication,
            "transaction.state.log.min.isr": 1,
            "default.replication.factor": replication,
            "auto.create.topics.enable": "false",
        }
        if "share.version" in self._options.target.features:
            properties["share.coordinator.state.topic.replication.factor"] = replication
            properties["share.coordinator.state.topic.min.isr"] = 1
        if not self._options.keeps_retention(kf.CONSUMER_OFFSETS):
            # else offsets that groups without members committed a week ago expire at the first check
            properties["offsets.retention.minutes"] = 2**31 - 1
        return properties

    def _manifests(self) -> list[str]:
        """The resources with which Strimzi's operator starts the nodes."""
        n_bytes = max(sum(one.n_bytes for one in self.placed if one.node_id == node.node_id) for node in self._nodes)
        level = level_name(self._options.target.metadata_version)
        ids = [node.node_id for node in self._nodes]
        return cluster_manifests(CLUSTER, ids, n_bytes, level, self._broker_settings())

    def give_away(self, path: Path, target: Path) -> None:
        """Give the output to the user of the image, or to that of the sources."""
        if self._report.image is not None:
            give_ownership(path, IMAGES[self._report.image].owner, 0)
        else:
            copy_ownership(path, next(iter(self.placed)).copy.path if self.placed else target.parent)

    def check(self, staged: StagedDirectory, target: Path) -> None:
        """Check what a broker would do with the stage; CorruptionError if it would not start, or not serve all."""
        for node in self._nodes:
            data = staged.path / node.data
            with warnings.catch_warnings():
                # settings are checked for the release already
                warnings.simplefilter("ignore", ConfigWarning)
                found = preflight(data, config=staged.path / node.folder / "server.properties", limits=self._limits)
            # offsets that were missing in the sources are no fault of the result
            rows = [row for row in found.partitions if row.problem or row.stray or row.n_bytes_lost]
            problems = [
                *(one.detail for one in found.problems),
                *(f"{Path(row.path).name}: {row.stray or row.error or row.verdict}" for row in rows),
            ]
            if problems or not found.is_clean:
                detail = (
                    f"a broker would not start on the result: {problems[:1]}. Nothing is written; please report this"
                )
                raise CorruptionError(Reason.METADATA_INCOMPLETE, detail, path=target)
            expiring = [row for row in found.partitions if any(one.expires for one in row.segments)]
            if expiring:
                names = ", ".join(Path(row.path).name for row in expiring[:8])
                n = counted(len(expiring), "partition")
                detail = f"retention deletes old segments of {n} soon after the start: {names}"
                self._report.findings.add(Finding(Reason.OFFSET_GAP, detail, damage=False))


def _known_epoch(commit: Commit, epochs: Mapping[kf.TopicPartition, int]) -> Commit:
    """Remove a leader epoch from a commit if the log does not have it: clients would report a truncated log."""
    return commit if commit.leader_epoch <= epochs.get(commit.key, -1) else replace(commit, leader_epoch=-1)


def _refuse_differing(plans: Iterable[PlannedCopies]) -> None:
    """Raise CorruptionError if copies are damaged, and UnsafePathError if they differ from the one that leads."""
    damaged: list[Finding] = []
    refused: list[tuple[Copy, Copy, str]] = []
    for planned in plans:
        if (damage := planned.damage) is not None:
            damaged.append(damage)
        elif (how := planned.difference()) is not None:
            refused.append((how[0], planned.leader, how[1]))
    if damaged:
        raise damage_error(damaged[0], len(damaged))
    if not refused:
        return
    one, other, reason = refused[0]
    more = f" ({counted(len(refused) - 1, 'more partition')})" if len(refused) > 1 else ""
    is_one_broker = one.root.node_id is not None and one.root.node_id == other.root.node_id
    detail = f"it differs from {other.path}: {reason}{more}. Boot without --strict (strict=False) to serve what is"
    detail += " intact on any disk"
    detail += f"; both are of broker {one.root.node_id}" if is_one_broker else ", or --nodes N to keep each on its node"
    raise UnsafePathError(Reason.PARTITION_TWICE, detail, path=one.path)


def _extent(finding: Finding) -> tuple[str, int | None, int | None]:
    end = None if finding.last_offset is None else finding.last_offset + 1
    return finding.path or "", finding.base_offset, end
