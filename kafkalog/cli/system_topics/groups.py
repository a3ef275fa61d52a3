"""`kafkalog groups`: prints groups of consumers, where they stand, and who their members are."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kafkalog.cli.console import Console
from kafkalog.cli.options import HelpText, add_command, add_limits, add_names, chosen
from kafkalog.cli.system_topics.state_options import AS_OF, add_as_of, print_history
from kafkalog.cli.text import counted, iso_seconds, table
from kafkalog.format import CONSUMER_OFFSETS, SHARE_GROUP_STATE

if TYPE_CHECKING:
    from kafkalog.system_topics.groups import Group

_HELP: Final = HelpText(
    description="""\
List consumer groups, from __consumer_offsets and __share_group_state: a line per group, its committed offsets with the
lag of each partition, and its members with their assignments.

Classic, consumer (KIP-848), share and streams groups are known. What is shown is what a broker keeps after it has
loaded these topics. The lag needs the partitions themselves in the same log dir; the names of topics that are stored by
their id need __cluster_metadata there.

--end-timestamp shows the state right before a time, as far as compaction has left it.""",
    examples="""\
  kafkalog groups /var/lib/kafka
  kafkalog groups /var/lib/kafka -g billing --members
  kafkalog groups /var/lib/kafka --end-timestamp 2026-11-21T08:00Z
  kafkalog groups /var/lib/kafka --history | jq -c 'select(.key.group == "billing") | [.offset, .type, .value]'
  kafkalog groups /var/lib/kafka --json | jq -c 'select(.lag > 1000) | [.group, .lag]'""",
)


def add_parser(commands: Any) -> None:
    parser = add_command(commands, "groups", _HELP, run)
    what = parser.add_argument_group("which groups")
    add_names(what, "-g", "--groups", what="groups", such="billing-*")
    add_as_of(what)
    how = parser.add_argument_group("how it is shown")
    how.add_argument(
        "--members",
        action="store_true",
        help="also the members and their assignments, and what a share group was delivered",
    )
    how.add_argument("--json", action="store_true", help="a line of JSON for each group, members included")
    add_limits(parser)


def run(args: argparse.Namespace, console: Console) -> None:
    """Print the groups."""
    from kafkalog.system_topics.groups import groups

    if args.history:
        return print_history(args, console, CONSUMER_OFFSETS, SHARE_GROUP_STATE)
    found = groups(args.paths, **chosen(args, "groups", *AS_OF))
    console.findings(found.findings)
    if not found:
        console.note("no groups: there is no __consumer_offsets, or it has none that match")
    for number, group in enumerate(found):
        if args.json:
            console.json(group.as_dict())
        else:
            console.lines([*([""] if number else []), *_text(group, with_members=args.members)])
    return None


_OUT_OF_RANGE: Final = {"past_end": "past the end of the log", "before_start": "before the start of the log"}


def _text(group: Group, *, with_members: bool) -> Iterator[str]:
    lag = "" if group.lag is None else f", lag {group.lag}"
    epoch = "" if group.epoch < 0 else f", {'generation' if group.type == 'classic' else 'epoch'} {group.epoch}"
    yield f"{group.name}: {group.type}, {group.state}{epoch}, {counted(len(group.members), 'member')}{lag}"
    if group.offsets:
        rows = [["TOPIC", "PARTITION", "OFFSET", "END", "LAG", "COMMITTED", "METADATA", ""]]
        for one in group.offsets:
            lag = "-" if one.lag is None else str(one.lag)
            numbers = [*map(_number, (one.offset, one.log_end_offset)), lag]
            note = "" if one.out_of_range is None else _OUT_OF_RANGE[one.out_of_range]
            time = iso_seconds(one.commit_timestamp)
            rows.append([one.topic, str(one.partition), *numbers, time, one.metadata, note])
        yield from (f"  {line}" for line in table(rows, [False, True, True, True, True, False, False, False]))
    for one in group.offsets:
        for part in one.deliveries if with_members else ():
            span = f"offsets {part.first_offset}..{part.last_offset + 1}"
            times = counted(part.delivery_count, "delivery", "deliveries")
            yield f"  {one.topic}-{one.partition}: {span} {part.state}, {times}"
    if with_members:
        for member in group.members:
            client = " ".join(part for part in (member.client_id, member.client_host) if part)
            yield f"  member {member.member_id} ({client})"
            for topic, partitions in sorted(member.assigned.items()):
                yield f"    {topic}: {', '.join(map(str, partitions))}"


def _number(value: int | None) -> str:
    return "-" if value is None or value < 0 else str(value)
