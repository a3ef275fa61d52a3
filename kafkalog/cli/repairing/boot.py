"""`kafkalog boot`: builds a directory on which a stock broker starts, from partition directories."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkalog.cli.console import Console
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import Command, chosen, selected_bytes
from kafkalog.cli.scan_options import usage_errors
from kafkalog.cli.text import iso_seconds
from kafkalog.protocol.releases import DEFAULT_RELEASE, span
from kafkalog.text import counted

if TYPE_CHECKING:
    from kafkalog.booting.quorum import QuorumRescue
    from kafkalog.booting.report import BootReport

_PATHS: Final = (
    "DIR",
    "log dir or partition directory",
    """\
DIRs are log dirs of one or more brokers (values of log.dirs, or copies of them), or single topic-partition directories.
Outputs of kafkalog load, convert, salvage, merge and tiered restore also work. Files are only read, never written.""",
)
COMMAND: Final = Command(
    description="""\
Build a directory on which a stock broker starts and serves all partitions with their offsets. Use it if the cluster's
metadata or quorum is lost.

boot verifies and copies every segment. It rebuilds indexes, producer snapshots, leader epochs and checkpoints, and
writes topics, settings and ids to a new metadata log. If any DIR has a copy of __cluster_metadata-0, boot keeps
settings, ACLs, SCRAM users and quotas. Retention is off for each topic until you turn it on again. Committed offsets do
not expire, and the next producer id is larger than all known ones. Settings that stop a broker are errors.

Of several copies of a partition, the one with the latest leader epoch leads, then the longest. What it lost comes from
the other copies, and damaged copies give their intact batches. The report says what no copy has. --strict refuses
damage, and copies that differ.

With --tiered URL, the segments of tiered topics in remote storage are restored. These topics are local then, with the
whole log on the new disks. They need their size once more next to -o DIR while boot runs. Without it, offsets that only
the remote storage has are a loss.

-o DIR gets data/, server.properties, report.json and report.txt, which ends with the next commands. The exit code is 0
only if nothing is lost, unknown or guessed; the report says in one line why it is not 0.

--rescue-quorum is for a cluster with intact brokers whose controllers lost their majority. It makes one survivor the
only voter, after a backup.

A crash leaves the output absent or complete. --rescue-quorum replaces one file in one step.""",
    examples="""\
  kafkalog boot /mnt/disk-1 /mnt/disk-2 -o /var/lib/kafka-new
  kafkalog boot /mnt/broker-1 /mnt/broker-2 /mnt/broker-3 -o /new --release 4.0
  kafkalog boot /mnt/broker-1 /mnt/broker-2 /mnt/broker-3 -o /new --nodes k1:9092,k2:9092,k3:9092
  kafkalog boot /mnt/disk -o /new --groups offsets.jsonl --set 'orders:cleanup.policy=compact'
  kafkalog boot /mnt/disk -o /new --tiered s3://tiered/kafka
  kafkalog boot /volumes -o /new/kafka --image strimzi --keep-cluster-id
  kafkalog boot /mnt/disk --dry-run --json
  kafkalog boot /var/lib/kafka-metadata --rescue-quorum --dry-run
  kafkalog boot /var/lib/kafka-metadata --rescue-quorum --backup /var/tmp/before""",
    options=f"""
  --json    the report as a JSON object, as in report.json
  @limits
output (one of these, or --rescue-quorum):
  | -o --output DIR    write to this new directory, outside of any log dir
  | --dry-run          verify, show the result, and write nothing
what:
  @topics
the new cluster:
  --release RELEASE        the release of Kafka that starts on it, {span()} (default: that of the old cluster if it is
                           {span(DEFAULT_RELEASE)}; else {DEFAULT_RELEASE})
  --image IMAGE            strimzi, apache, bitnami or confluent: paths, owner, static quorum and next commands for this
                           image of a container; for Strimzi also the resources, in strimzi.yaml
  --nodes N|NODE,...       number of nodes, each a broker and a controller (default: 1), or ID@HOST:PORT:CONTROLLER_PORT
                           of each; the id and the controller's port may be left out
  --listeners NODE,...     the same as --nodes NODE,... (default: 127.0.0.1, from 9092 on)
  --cluster-id ID          default: a new one, so that no old node can join. With it, the ids of the DIRs may differ
  --keep-cluster-id        the old one, as in meta.properties of the DIRs; no old node may start any more
instead, a quorum of which one controller survives:
  --rescue-quorum    make the controller whose metadata log dir is DIR the only voter, in place; needs --backup or
                     --dry-run
  --backup DIR       a new directory for the file that is replaced
facts that the directories lack:
  @tiered
  @remote
  --metadata PATH*    a log dir with a copy of __cluster_metadata-0, or a file with the topics as they were: JSON lines
                      of kafkalog metadata --show topics --json, or one JSON object such as
                      {{"orders": {{"cleanup.policy": "compact"}}}}; repeatable
  --set:settings TOPIC:NAME=VALUE*    a setting of topics, by name or glob; without VALUE it is removed; repeatable.
                                      TOPIC:retention=as-was keeps the old retention, TOPIC:topic.id=ID is an id
  --groups keep|as-was|none|FILE    committed offsets: those of __consumer_offsets (default; as-was keeps those that
                                    expire as they are), none, or those of a file of kafkalog groups -o
  --strict          refuse damaged or missing partitions, and copies of a partition that differ
  --best            no effect: every intact batch of any disk is served
  --include-unknown    bring topics back that the metadata log does not have, and partitions that a broker has renamed,
                       such as orders-0.ID-stray; without it, they are named and left out
  --include-stray:include_unknown    the same as --include-unknown
""",
    paths=_PATHS,
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Boot, and print the report."""
    if args.rescue_quorum:
        _rescue(args, console)
        return
    if args.backup is not None:
        raise UsageError("--backup goes with --rescue-quorum")
    from kafkalog.booting.boot import KEEP_CLUSTER_ID, boot
    from kafkalog.errors import KafkalogError
    from kafkalog.log.open import open as open_path

    if console.shows_progress:
        # boot's own errors about paths that are no log dirs, and about missing topics, are better
        with contextlib.suppress(KafkalogError):
            opened = [open_path(path, limits=args.limits) for path in args.paths]
            console.start_progress(sum(selected_bytes(one, args) for one in opened), "bytes")
    options = {name: value for name, value in chosen(args, boot).items() if value is not None}
    options["nodes"] = _nodes(args)
    if args.keep_cluster_id:
        if args.cluster_id is not None:
            raise UsageError("--keep-cluster-id and --cluster-id exclude each other")
        options["cluster_id"] = KEEP_CLUSTER_ID
    if args.settings:
        options["settings"] = _settings(args.settings)
    with usage_errors():
        report = boot(
            args.paths,
            progress=console.progress.advance,
            **options,
        )
    console.progress.close()
    _show(report, console)


def _show(report: BootReport, console: Console) -> None:
    from kafkalog.errors import Finding, Reason

    console.show([report], report.text().splitlines())
    console.count_findings(Finding(Reason.METADATA_INCOMPLETE, doubt) for doubt in report.doubts)
    if console.is_json:
        console.all_findings(report.findings)
        return
    # the text has the findings, in its own order
    console.count_findings(report.findings.rows)
    console.unkept_findings(report.findings.n_more)
    if report.doubts or not report.ok:
        console.note(report.verdict)


def _rescue(args: argparse.Namespace, console: Console) -> None:
    from kafkalog.booting.quorum import rescue_quorum

    if len(args.paths) != 1 or args.output is not None:
        raise UsageError("--rescue-quorum takes one DIR, the survivor's metadata log dir, and no -o")
    with usage_errors():
        found = rescue_quorum(args.paths[0], backup=args.backup, dry_run=args.dry_run, limits=args.limits)
    console.show([found], _quorum_lines(found))


def _quorum_lines(found: QuorumRescue) -> Iterator[str]:
    kind = f"dynamic, voters {', '.join(map(str, found.voters))}" if found.is_dynamic else "static"
    yield f"{found.path}: node {found.node_id}, quorum {kind}"
    end = f"offset {found.end_offset} (leader epoch {found.leader_epoch}, {iso_seconds(found.timestamp)})"
    yield f"The metadata log ends at {end}. Records that the other voters committed later are lost."
    if found.is_dynamic:
        verb = "is appended" if found.is_written else "would be appended"
        yield f"One batch {verb} that names node {found.node_id} the only voter."
    else:
        yield "Nothing to write: the voters are a setting."
    for topic, numbers in found.orphaned.items():
        yield f"No replica on this node: {topic}, partitions {', '.join(map(str, numbers))}"
    yield "Next steps"
    yield from (f"  {step}" for step in found.next_steps())


def _nodes(args: argparse.Namespace) -> int | list[str]:
    """The nodes: a number, or the place of each."""
    texts, given = [*(args.listeners or ())], args.nodes or []
    if len(given) != 1 or not given[0].isdecimal():
        return [*texts, *given] or 1
    if texts and len(texts) != int(given[0]):
        raise UsageError(f"--nodes is {given[0]}, and --listeners has {counted(len(texts), 'node')}")
    return texts or int(given[0])


def _settings(texts: list[str]) -> dict[str, dict[str, str | None]]:
    found: dict[str, dict[str, str | None]] = {}
    for text in texts:
        topic, colon, setting = text.partition(":")
        if not colon or not topic:
            raise UsageError(f"--set takes TOPIC:NAME=VALUE, not {text!r}")
        name, sign, value = setting.partition("=")
        if not sign or not name:
            raise UsageError(f"--set takes NAME=VALUE, not {setting!r}")
        found.setdefault(topic, {})[name] = value or None
    return found
