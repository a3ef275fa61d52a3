"""The result of a boot, and the next commands: as an object, as JSON, and as text."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from kafkalog.booting.images import IMAGES
from kafkalog.booting.metadata_log import Node
from kafkalog.booting.topics import KEPT, OFF, TopicPlan
from kafkalog.calls import leading_names
from kafkalog.errors import DEFAULT_LIMITS, Finding, Findings
from kafkalog.html import PartsReport, ReportList
from kafkalog.repair.recovering.targets import TARGETS
from kafkalog.survey.next_steps import NextStep
from kafkalog.text import counted, first_names


@leading_names
@dataclass(slots=True)
class BootNode:
    """A node of the new cluster."""

    node_id: int
    directory: str
    """With `data/` and `server.properties`."""
    directory_id: str
    listener: str
    controller: str
    """Both are HOST:PORT."""
    log_dirs: str = ""
    """The setting `log.dirs`: with an image, a path in its container."""

    @classmethod
    def of(cls, node: Node, directory: str) -> BootNode:
        """The node of a cluster, and its directory in the output."""
        listener, controller = (f"{node.host}:{port}" for port in (node.port, node.controller_port))
        return cls(node.node_id, directory, node.directory_id, listener, controller, node.log_dirs)


@leading_names
@dataclass(slots=True)
class BootPartition:
    """A partition from the sources."""

    topic: str
    partition: int
    source: str
    node_id: int
    log_start_offset: int
    log_end_offset: int
    leader_epoch: int
    n_segments: int
    n_bytes: int
    is_leader: bool = True
    """Whether this copy is the first leader; the other copies follow it."""


@leading_names
@dataclass(slots=True)
class BootTransaction:
    """A transaction that is open at the end of a partition."""

    topic: str
    partition: int
    producer_id: int
    start_offset: int
    ends_by_itself: bool
    """Whether its coordinator still has it, and aborts it after its timeout."""
    command: str
    """The command that ends it."""


@dataclass(slots=True)
class BootReport(PartsReport):
    """The result of `boot`."""

    path: str
    """The output."""
    release: str
    cluster_id: str
    nodes: list[BootNode] = field(default_factory=list)
    topics: list[TopicPlan] = field(default_factory=list)
    partitions: list[BootPartition] = field(default_factory=ReportList)
    metadata: str | None = None
    """The log dir whose metadata log was carried over; None if none survives."""
    metadata_doubt: str = ""
    """Why that metadata log lacks the last changes; "" if nothing shows that it does."""
    carried: dict[str, int] = field(default_factory=dict)
    """Number of other records from the old cluster, by kind: ACLs, SCRAM credentials, quotas and so on."""
    next_producer_id: int = 0
    n_groups: int = 0
    n_commits: int = 0
    image: str | None = None
    """The image that runs the nodes, if one was named."""
    open_transactions: list[BootTransaction] = field(default_factory=list)
    findings: Findings = field(default_factory=lambda: Findings(DEFAULT_LIMITS.max_findings))
    """What is lost (`damage`), and what is guessed or left out."""
    is_written: bool = False
    """False after a dry run."""

    @property
    def ok(self) -> bool:
        """Whether nothing is lost; see `doubts` for what is unknown or guessed."""
        return not self.findings.n_damage

    @property
    def doubts(self) -> list[str]:
        """What is unknown or guessed: a sentence each."""
        found = [f"the metadata log lacks the last changes ({self.metadata_doubt})"] if self.metadata_doubt else []
        topics = [topic for topic in self.topics if not topic.is_internal]
        unset = [topic.name for topic in topics if self.metadata is None and not topic.is_set]
        if unset:
            how = "no metadata log survives: name a copy or a file (--metadata), or settings (--set)"
            found.append(f"the settings of {counted(len(unset), 'topic')} are unknown ({first_names(unset)}); {how}")
        guessed = [
            f"{name} of {topic.name}"
            for topic in topics
            for name, origin in topic.origins.items()
            if origin.startswith("guessed")
        ]
        return [*found, f"guessed: {first_names(guessed)}"] if guessed else found

    @property
    def verdict(self) -> str:
        """One line: why the exit code of the command is 1, or that nothing is lost, unknown or guessed."""
        n = self.findings.n_damage
        reasons = [f"{counted(n, 'line')} under Lost"] if n else []
        reasons += self.doubts
        return (
            f"Not complete, so the exit code is 1: {'; '.join(reasons)}"
            if reasons
            else "Nothing is lost, unknown or guessed"
        )

    @property
    def leaders(self) -> list[BootPartition]:
        """The first leaders, one per partition."""
        return [one for one in self.partitions if one.is_leader]

    def add_notes(self, findings: list[Finding]) -> None:
        """Add findings that are not losses."""
        for finding in findings:
            self.findings.add(finding)

    def rename(self, named: Callable[[str], str]) -> None:
        """Give paths in findings and of sources other names."""
        for number, one in enumerate(self.findings.rows):
            self.findings.rows[number] = replace(one, path=one.path and named(one.path), detail=named(one.detail))
        self.metadata_doubt = named(self.metadata_doubt)
        for partition in self.partitions:
            partition.source = named(partition.source)

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "ok": self.ok,
            "doubts": self.doubts,
            "nodes": [asdict(one) for one in self.nodes],
            "topics": [one.as_dict() for one in self.topics],
            "partitions": [asdict(one) for one in self.partitions],
            "open_transactions": [asdict(one) for one in self.open_transactions],
            "findings": [finding.as_dict() for finding in self.findings.rows],
            "n_more_findings": self.findings.n_more,
            "next_commands": self.next_commands(),
            "next": [step.as_dict() for step in self.next],
        }

    def __repr__(self) -> str:
        n_topics = sum(not one.is_internal for one in self.topics)
        parts = [counted(n_topics, "topic"), counted(len(self.leaders), "partition"), counted(len(self.nodes), "node")]
        return f"BootReport({', '.join(parts)}, {'nothing lost' if self.ok else 'with losses'})"

    @property
    def next(self) -> list[NextStep]:
        """The commands to run next, in order, each with its reason."""
        at = f"--bootstrap-server {self.nodes[0].listener}"
        steps = self._start_steps()

        def add(command: str, why: str, after: str = "") -> None:
            steps.append(NextStep(tuple(command.split()), why, after))

        add(f"kafka-topics.sh {at} --describe --unavailable-partitions", "prints nothing if all partitions are served")
        for open_one in self.open_transactions:
            if not open_one.ends_by_itself:
                add(open_one.command, "ends a transaction for which read_committed consumers wait")
        if TARGETS[self.release].is_below_release:
            add(f"kafka-features.sh {at} upgrade --release-version {self.release}", "raises the levels of features")
        for topic in self.topics:
            changes, deletes = _retention_changes(topic)
            for change in changes:
                why = "turns retention on again, once you have checked the topic: the broker deletes old records then"
                n = f" ({topic.n_expiring:,} or less of {topic.name} go at once)" if topic.n_expiring else ""
                after = f"{_DELETES}{n}" if deletes else ""
                add(f"kafka-configs.sh {at} --alter --topic {topic.name} {change}", why, after)
        return steps

    def _start_steps(self) -> list[NextStep]:
        """The commands that start the nodes."""
        if self.image is not None:
            image = IMAGES[self.image]
            is_owner = os.geteuid() in (0, image.owner)
            return [*image.steps(self.path, self.cluster_id, is_owner=is_owner)]
        files = [str(Path(node.directory) / "server.properties") for node in self.nodes]
        return [NextStep(("kafka-server-start.sh", file), "starts the broker") for file in files]

    def next_commands(self) -> list[str]:
        """The command lines to run next, in order; see `next`.

        None deletes a record: those that restore a retention by which a broker would delete are comments of a shell.
        """
        return [str(step) for step in self.next]

    def text(self) -> str:
        """The report for people; it ends with the commands to run next."""
        return "\n".join(self._lines()) + "\n"

    def _lines(self) -> Iterator[str]:
        yield from self._cluster_lines()
        yield from self._topic_lines()
        yield from self._finding_lines()
        yield from self._transaction_lines()
        yield from self._retention_lines()
        yield ""
        yield "Before you start"
        for risk in _RISKS:
            yield f"  {risk}"
        yield ""
        yield "Next commands" if self.is_written else "Next commands, after a run with -o"
        for command in self.next_commands():
            yield f"  {command}"

    def _cluster_lines(self) -> Iterator[str]:
        """The nodes, and what was taken over from the old cluster."""
        if not self.is_written:
            yield "Dry run: nothing was written. A run with -o would make this (the cluster id differs in each run):"
        yield f"Cluster {self.cluster_id} for Kafka {self.release} in {self.path}"
        for node in self.nodes:
            yield f"  node {node.node_id}: {node.directory}, clients at {node.listener}"
        if self.image is not None:
            yield f"For the image {self.image}:"
            places = {str(Path(one.directory) / Path(one.log_dirs).name): one.log_dirs for one in self.nodes}
            yield from IMAGES[self.image].lines(self.cluster_id, places)
        size = sum(one.n_bytes for one in self.leaders)
        yield f"{counted(len(self.leaders), 'partition')}, {size:,} bytes; next producer id {self.next_producer_id}"
        yield f"{counted(self.n_groups, 'group')} with {counted(self.n_commits, 'committed offset')}"
        yield from self._metadata_lines()
        yield self.verdict

    def _metadata_lines(self) -> Iterator[str]:
        """What was taken over from the old metadata log."""
        if self.metadata is None:
            yield "No metadata log survives: ACLs, SCRAM users, quotas and settings of topics are not known."
            return
        carried = ", ".join(f"{n:,} {kind}" for kind, n in self.carried.items() if n) or "nothing else"
        if self.metadata_doubt:
            yield f"The metadata log of {self.metadata} lacks the last changes: {self.metadata_doubt}"
            yield f"From it: settings of some topics, and {carried}"
        else:
            yield f"From the metadata log of {self.metadata}: settings of topics, and {carried}"

    def _topic_lines(self) -> Iterator[str]:
        yield ""
        yield "Topics, and the origin of each setting"
        held: dict[str, int] = {}
        for one in self.leaders:
            held[one.topic] = held.get(one.topic, 0) + one.log_end_offset - one.log_start_offset
        for topic in self.topics:
            settings = ", ".join(f"{name}={value} ({topic.origins[name]})" for name, value in topic.settings.items())
            extent = f"{counted(topic.n_partitions, 'partition')}, {counted(held.get(topic.name, 0), 'offset')}"
            yield f"  {topic.name}: {extent}; {settings or 'no settings'}"

    def _finding_lines(self) -> Iterator[str]:
        for heading, findings in (
            ("Lost", [finding for finding in self.findings.rows if finding.damage]),
            ("Guessed, left out, or good to know", [finding for finding in self.findings.rows if not finding.damage]),
        ):
            if findings:
                yield ""
                yield heading
                # a torn metadata log is found twice: by its readers, and by those of all logs
                yield from dict.fromkeys(_short(findings))

    def _retention_lines(self) -> Iterator[str]:
        """The topics that lose records once their retention is on again."""
        expiring = [topic for topic in self.topics if topic.n_expiring]
        if expiring:
            yield ""
            yield "Retention is off. If you turn it on again, as the commands below do, the broker deletes at most"
            for topic in expiring:
                yield f"  {topic.name}: {counted(topic.n_expiring, 'record')}"

    def _transaction_lines(self) -> Iterator[str]:
        if not self.open_transactions:
            return
        yield ""
        yield "Open transactions: read_committed consumers wait for them"
        for open_one in self.open_transactions:
            how = "its coordinator aborts it after its timeout" if open_one.ends_by_itself else open_one.command
            where = f"{open_one.topic}-{open_one.partition} from offset {open_one.start_offset}"
            yield f"  {where}, producer {open_one.producer_id}: {how}"


def _short(findings: Sequence[Finding]) -> Iterator[str]:
    """A line for each finding, but one for all copies of a log dir that are left out for better or equal ones."""
    others: dict[str, list[str]] = {}
    for finding in findings:
        if finding.path and finding.detail.endswith(BETTER):
            others.setdefault(os.path.dirname(finding.path), []).append(os.path.basename(finding.path))
        else:
            yield f"  {finding.path + ': ' if finding.path else ''}{finding.detail}"
    for log_dir, names in others.items():
        copies = "1 copy is" if len(names) == 1 else f"{len(names):,} copies are"
        yield f"  {log_dir}: {copies} left out, since others are better or equal: {first_names(names)}"


def _retention_changes(topic: TopicPlan) -> tuple[list[str], bool]:
    """The options that restore the retention of a topic, and whether records may go then."""
    # a topic's own -1 is not one of these: without it, a broker deletes by its defaults
    changed = [name for name in KEPT if topic.origins.get(name) == OFF]
    old = {name: topic.replaced[name] for name in changed if name in topic.replaced}
    new = [name for name in changed if name not in old]
    changes = [f"--delete-config {','.join(new)}"] if new else []
    changes += [f"--add-config {','.join(f'{name}={value}' for name, value in old.items())}"] if old else []
    return changes, _deletes(topic, new, old)


def _deletes(topic: TopicPlan, new: list[str], old: Mapping[str, str]) -> bool:
    """Whether records may go if settings are removed (`new`) or get their `old` values again."""
    if not topic.is_deleted:
        return False
    # the default of brokers is a week, and any size
    return "retention.ms" in new or any(value != "-1" for value in old.values())


BETTER = "is a better or equal copy of the same partition"
_DELETES = "when records past the retention may go"
_PLAIN = (
    *("path", "release", "cluster_id", "metadata", "metadata_doubt", "carried", "next_producer_id"),
    *("n_groups", "n_commits", "image", "is_written"),
)
_RISKS = (
    "Keep the sources until you have checked the result. Start it first with clients cut off.",
    "Retention is off for every topic, and offsets.retention.minutes is unlimited for commits: the disk fills up.",
    "Records after the last replicated offset of a source are now committed.",
    "Nodes of the old cluster must not join: the cluster id is new unless you named or kept one.",
    "Partitions have as many replicas as copies were found. Reassign them for more.",
)
