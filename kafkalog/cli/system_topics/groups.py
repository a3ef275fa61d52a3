"""`kafkalog groups`: prints consumer groups with their offsets, lag and members."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kafkalog.cli.console import Console
from kafkalog.cli.exits import UsageError
from kafkalog.cli.options import COMPARING, Command, chosen
from kafkalog.cli.system_topics.state_options import AS_OF, or_before, print_history
from kafkalog.cli.terminal import shown_table
from kafkalog.cli.text import counted, iso_seconds
from kafkalog.format import CONSUMER_OFFSETS, SHARE_GROUP_STATE
from kafkalog.text import offset_range

if TYPE_CHECKING:
    from kafkalog.comparing.translation import TranslatedOffset, TranslatedOffsets
    from kafkalog.system_topics.commits_file import Commit
    from kafkalog.system_topics.groups import Group, GroupOffset, Groups
    from kafkalog.system_topics.history import StateRecord

COMMAND: Final = Command(
    description="""\
List consumer groups, from __consumer_offsets and __share_group_state: a line per group, then its committed offsets with
the lag of each partition.

The result is the state that a broker has after it loads these topics, for classic, consumer (KIP-848), share and
streams groups. The lag needs the partitions in the same log dirs. Some records have topic ids; their names come from
__cluster_metadata. Each broker has only some partitions of __consumer_offsets, so name the log dirs of all brokers.

--end-timestamp shows the state right before a time, as far as compaction has kept it.

--translate-to B finds, for each committed offset, the offset in another cluster from which the group misses no record
and reads none twice: in a mirror, or in a restored backup. Records are compared by content, as 'kafkalog diff
--content' does. With -o, the file is for 'kafkalog boot --groups', and in CSV also for Kafka's
kafka-consumer-groups --reset-offsets --from-file. That tool takes no header, so this CSV has none. Without
--translate-to, it has one. The exit code is 1 unless every offset is exact.""",
    examples="""\
  kafkalog groups /var/lib/kafka
  kafkalog groups /var/lib/kafka -g billing --members
  kafkalog groups /var/lib/kafka --end-timestamp 2026-11-21T08:00Z
  kafkalog groups /var/lib/kafka --history | jq -c 'select(.key.group == "billing") | [.offset, .type, .value]'
  kafkalog groups /var/lib/kafka -o offsets.jsonl
  kafkalog groups /mnt/primary --translate-to /mnt/mirror -o groups.csv
  kafkalog groups /var/lib/kafka --json | jq -c 'select(.lag > 1000) | [.group, .lag]'""",
    options="""
  @limits
which groups:
  -g --groups G,...    only these groups: names or globs such as 'billing-*'; repeatable
  @as_of
in another cluster:
  --translate-to B    translate committed offsets to these of B: log dir, URL, or partition directory
  @topics
  @comparing
output:
  --members           also print members with their assignments, and deliveries of share groups
  -o --output FILE    write the committed offsets to this file; CSV has a header, except with --translate-to
  --json              one object a line, per group, with members
""",
    needs=dict.fromkeys(COMPARING, "translate-to") | {"topics": "translate-to; without both, all topics are listed"},
)


def run(args: argparse.Namespace, console: Console) -> None:
    """Print the groups."""
    from kafkalog.system_topics.groups import groups

    if args.translate_to is not None and (args.history or args.members):
        raise UsageError("--history and --members do not go with --translate-to")
    if args.output is not None:
        from kafkalog.cli.scan_options import usage_errors
        from kafkalog.system_topics.commits_file import is_csv

        with usage_errors():
            is_csv(args.output)  # raises for the name of another format, before anything is read
    if args.history:
        return print_history(args, console, CONSUMER_OFFSETS, SHARE_GROUP_STATE, is_wanted=_is_wanted(args.groups))
    if args.translate_to is not None:
        return _translate(args, console)
    found = groups(args.paths, **chosen(args, "groups", *AS_OF))
    console.findings(found.findings)
    if args.output is not None:
        return _write(found, args, console)
    if not found:
        why = "none matches -g" if args.groups else "the log dirs have no __consumer_offsets, or it is empty"
        console.note(f"no groups: {why}{or_before(args)}")
    for number, group in enumerate(found):
        console.show([group], _text(group, with_members=args.members, is_first=not number))
    return None


def _is_wanted(names: Sequence[str] | None) -> Callable[[StateRecord], bool]:
    """Whether a record of the history is of one of some groups; a marker or record without a known group is of none."""
    if not names:
        return lambda record: True
    from kafkalog.parsing import name_matcher

    matches = name_matcher(names)

    def is_wanted(record: StateRecord) -> bool:
        key = record.key or {}
        name = key.get("group", key.get("groupId"))
        return isinstance(name, str) and matches(name)

    return is_wanted


def _write(found: Groups, args: argparse.Namespace, console: Console) -> None:
    from kafkalog.system_topics.commits_file import commits_of, encode_commits, is_csv

    commits = commits_of(found)
    _write_commits(commits, encode_commits(commits, as_csv=is_csv(args.output)), args, console)


def _translate(args: argparse.Namespace, console: Console) -> None:
    """Translate committed offsets, and print or write them."""
    from kafkalog.cli.scan_options import usage_errors
    from kafkalog.comparing.translation import commits_of_translation, translate
    from kafkalog.storage.location import is_url
    from kafkalog.storage.stores import locate
    from kafkalog.system_topics.commits_file import encode_commits, encode_for_kafka, is_csv

    other = args.translate_to
    if is_url(other):
        other = locate(other, dict(args.storage_options or ()))
    console.start_progress(0, "records", unit=" records")
    with usage_errors():
        found = translate(
            args.paths, other, **chosen(args, "groups", "topics", *COMPARING, *AS_OF), progress=console.progress.advance
        )
    console.progress.close()
    console.findings(found.findings)
    if not found.offsets:
        console.note("no committed offsets: the log dirs have no __consumer_offsets, or no group matches")
    if args.output is None:
        console.show([found], _translated(found))
    else:
        commits = commits_of_translation(found)
        encoded = encode_for_kafka(commits) if is_csv(args.output) else encode_commits(commits)
        _write_commits(commits, encoded, args, console)
        for one in found.offsets:
            if one.certainty != "exact":
                console.note(_doubt(one))
    if not found.ok:
        from kafkalog.errors import Finding, Reason

        console.count_findings([Finding(Reason.UNPROVEN, "offsets are not exact", path=found.a)])


def _translated(found: TranslatedOffsets) -> Iterator[str]:
    rows = [["GROUP", "TOPIC", "PARTITION", "OFFSET", "THERE", "CERTAINTY", "BETWEEN", "READ AGAIN", "NOT THERE"]]
    for one in found.offsets:
        between = "" if one.certainty != "bounded" else offset_range(one.earliest, one.latest)
        place = [one.group, one.topic, str(one.partition), str(one.from_offset), _number(one.offset)]
        rows.append([*place, one.certainty, between, *(str(n or "") for n in (one.n_again, one.n_absent))])
    yield from shown_table(rows, [False, False, True, True, True, False, False, True, True])
    yield from (_doubt(one) for one in found.offsets if one.certainty != "exact")


def _doubt(one: TranslatedOffset) -> str:
    what = "cannot be translated" if one.offset is None else "is not exact"
    return f"{one.group}: {one.from_topic}-{one.from_partition} offset {one.from_offset} {what}: {one.why}"


def _write_commits(commits: Sequence[Commit], encoded: bytes, args: argparse.Namespace, console: Console) -> None:
    from kafkalog.storage.output_paths import check_outside
    from kafkalog.storage.staging import staged_file

    check_outside(args.output, args.paths, is_new=True)
    with staged_file(args.output, parents=True) as file:
        file.write(encoded)
    n_groups = len({one.group for one in commits})
    console.note(f"{counted(len(commits), 'committed offset')} of {counted(n_groups, 'group')} in {args.output}")


_OUT_OF_RANGE: Final = {"past_end": "past the end of the log", "before_start": "before the start of the log"}


def _text(group: Group, *, with_members: bool, is_first: bool) -> Iterator[str]:
    if not is_first:
        yield ""
    lag = "" if group.lag is None else f", lag {group.lag}"
    epoch = "" if group.epoch < 0 else f", {'generation' if group.type == 'classic' else 'epoch'} {group.epoch}"
    yield f"{group.name}: {group.type}, {group.state}{epoch}, {counted(len(group.members), 'member')}{lag}"
    if group.offsets:
        yield from shown_table([_HEADER, *map(_row, group.offsets)], _RIGHT, ["METADATA", "COMMITTED"], indent=2)
    for one in group.pending:
        why = "in an open transaction (kafkalog producers -t __consumer_offsets): consumers wait for its end"
        yield f"  {one.topic}-{one.partition}: offset {one.offset} was committed {why}"
    if with_members:
        yield from _deliveries(group)
        yield from _members(group)


_HEADER: Final = ["TOPIC", "PARTITION", "OFFSET", "END", "LAG", "COMMITTED", "METADATA", ""]
_RIGHT: Final = [False, True, True, True, True, False, False, False]


def _row(one: GroupOffset) -> list[str]:
    lag = "-" if one.lag is None else str(one.lag)
    numbers = [*map(_number, (one.offset, one.log_end_offset)), lag]
    note = "" if one.out_of_range is None else _OUT_OF_RANGE[one.out_of_range]
    return [one.topic, str(one.partition), *numbers, iso_seconds(one.commit_timestamp), one.metadata, note]


def _deliveries(group: Group) -> Iterator[str]:
    for one in group.offsets:
        for part in one.deliveries:
            span = f"offsets {offset_range(part.first_offset, part.last_offset + 1)}"
            times = counted(part.delivery_count, "delivery", "deliveries")
            yield f"  {one.topic}-{one.partition}: {span} {part.state}, {times}"


def _members(group: Group) -> Iterator[str]:
    for member in group.members:
        client = " ".join(part for part in (member.client_id, member.client_host) if part)
        yield f"  member {member.member_id} ({client})"
        for topic, partitions in sorted(member.assigned.items()):
            yield f"    {topic}: {', '.join(map(str, partitions))}"


def _number(value: int | None) -> str:
    return "-" if value is None or value < 0 else str(value)
