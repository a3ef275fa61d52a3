"""Committed offsets of groups as offsets of another topic with the same records, such as a mirror or a backup."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, Literal

import pyarrow as pa

from kafkalog.comparing.content import check_fields
from kafkalog.comparing.digests import Database, Field
from kafkalog.comparing.matching_topics import Sides
from kafkalog.comparing.record_pairs import pair
from kafkalog.errors import Finding, NotKafkaError, Reason
from kafkalog.format import partition_order
from kafkalog.html import JsonFields
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import Paths
from kafkalog.parsing import Time
from kafkalog.system_topics.commits_file import Commit
from kafkalog.system_topics.group_types import GROUP_TYPES
from kafkalog.system_topics.groups import Group, GroupOffset, Groups, groups
from kafkalog.text import counted

Certainty = Literal["exact", "bounded", "impossible"]


@dataclass(frozen=True, slots=True)
class TranslatedOffset(JsonFields):
    """A committed offset, and the offset in the other topic at which the group continues."""

    group: str
    topic: str
    partition: int
    """In which the group goes on."""
    offset: int | None
    """From here on, no record is missed that the group has not read; None if that cannot be known."""
    certainty: Certainty
    """``exact``: nothing is missed, and nothing is read twice. ``bounded``: only between `earliest` and `latest`."""
    earliest: int | None
    """Nothing is missed from here on, even if what cannot be known is to the group's disadvantage."""
    latest: int | None
    """Nothing is read twice from here on."""
    n_again: int
    """Records that the group reads again from `offset` on."""
    n_absent: int
    """Records that the group has not read, and that the other topic does not have."""
    from_topic: str
    from_partition: int
    from_offset: int
    """The committed offset; of several partitions that go to one, the first."""
    metadata: str = ""
    why: str = ""
    """Why it is not exact."""


@dataclass(slots=True)
class TranslatedOffsets(JsonFields):
    """Committed offsets of groups, translated."""

    _json_properties = ("ok",)

    a: str
    b: str
    offsets: list[TranslatedOffset] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    """Damage in the topics of groups, as in `Groups.findings`."""

    @property
    def ok(self) -> bool:
        """Whether each offset is exact."""
        return all(one.certainty == "exact" for one in self.offsets)

    def _rows(self) -> list[object]:
        return [*self.offsets]


def translate(
    a: Paths | LogDir,
    b: Paths | LogDir,
    *,
    groups: str | Sequence[str] | None = None,
    topics: str | Sequence[str] | None = None,
    end_offset: int | None = None,
    end_timestamp: Time | None = None,
    ignore: Sequence[Field] | None = None,
    memory: int | None = None,
    temporary_directory: str | os.PathLike[str] | None = None,
    progress: Callable[[int], object] = lambda n_records: None,
    **options: Any,
) -> TranslatedOffsets:
    """Translate the committed offsets of groups in `a` to offsets of the same records in `b`.

    Parameters
    ----------
    a, b : path-like, sequence of path-like, or what `open` returned
        See `compare`. `a` has ``__consumer_offsets``.
    groups : str or sequence of str, optional
        Names or globs. Default: all but share groups, which have no such offsets.
    end_offset, end_timestamp
        The state of the groups right before these, as `kafkalog.groups` has it.
    topics, ignore, memory, temporary_directory, progress, **options
        See `compare`.

    Returns
    -------
    TranslatedOffsets

    Notes
    -----
    `TranslatedOffset.offset` follows every record that the group has read, and no record that it has not, where the
    order of records allows. Where equal records make it uncertain which one is which, or records are in another
    order, it is the offset from which nothing is missed.

    Raises
    ------
    NotKafkaError, KafkalogError, ImportError
        See `compare`.
    """
    fields = check_fields(ignore)
    sides = Sides(a, b, topics, options)
    found = TranslatedOffsets(sides.paths["a"], sides.paths["b"])
    log_dir = sides.log_dir_of_a
    if log_dir is None:
        raise NotKafkaError(Reason.NOT_KAFKA, "an exported table has no groups", path=found.a)
    state = _groups(log_dir, groups, end_offset, end_timestamp)
    found.findings = [*state.findings]
    known = [group for group in state if GROUP_TYPES[group.type].commits_offsets]
    wanted = {one.topic for group in known for one in group.offsets}
    pairs = dict(sides.pairs)
    with Database(fields, memory, temporary_directory) as database:
        for topic, other in pairs.items():
            if topic in wanted:
                sides.fill(database, fields, (topic, other), progress)
                pair(database)
                bounds = partial(sides.log_bounds, "b", other)
                found.offsets += _translated(database, topic, other, known, bounds)
    for group in known:
        found.offsets += _of_other_topics(group, pairs, topics is None)
    found.offsets.sort(key=lambda one: (one.group, partition_order(one)))
    return found


def commits_of_translation(found: TranslatedOffsets) -> list[Commit]:
    """The translated offsets as commits; those that are impossible are left out."""
    return [
        Commit(one.group, one.topic, one.partition, one.offset, metadata=one.metadata)
        for one in found.offsets
        if one.offset is not None
    ]


def _groups(
    log_dir: LogDir, names: str | Sequence[str] | None, end_offset: int | None, end_timestamp: Time | None
) -> Groups:
    return groups(log_dir, groups=names, end_offset=end_offset, end_timestamp=end_timestamp)


def _of_other_topics(group: Group, pairs: dict[str, str], is_all: bool) -> Iterator[TranslatedOffset]:
    """Offsets in topics that not both sides have."""
    for one in group.offsets:
        if one.topic not in pairs and is_all:
            yield _impossible(group, one, one.topic, "only one of the two sides has this topic")


def _without_records(
    group: Group, one: GroupOffset, topic: str, bounds: tuple[int, int] | None, *, is_empty: bool
) -> TranslatedOffset:
    """An offset in a partition of which the other topic has no record.

    `bounds` has start and end of the other partition, if this one has no record left; `is_empty` says whether the other
    one has none, either.
    """
    name = f"{one.topic}-{one.partition}"
    if bounds is None:
        return _impossible(group, one, topic, f"{topic} has none of the records that are left of {name}")
    start, end = bounds
    place = (one.topic, one.partition, one.offset, one.metadata)
    if is_empty:
        return TranslatedOffset(group.name, topic, one.partition, end, "exact", end, end, 0, 0, *place)
    why = f"no record is left of {name}: nothing shows which of those there the group has read"
    return TranslatedOffset(group.name, topic, one.partition, start, "bounded", start, end, 0, 0, *place, why)


def _impossible(group: Group, one: GroupOffset, topic: str, why: str) -> TranslatedOffset:
    place = (one.topic, one.partition, one.offset, one.metadata)
    return TranslatedOffset(group.name, topic, one.partition, None, "impossible", None, None, 0, 0, *place, why)


# if records went to other partitions, or what is there more often may have come from one: those that stand several
# times, of which each may be any of those there, unless all went the same way
_SPREAD: Final = """
create or replace table spread as
select digest from (select digest, partition, true as is_a from a union all select digest, partition, false from b)
where exists (from pairs where a_partition <> b_partition)
    or exists (from b_alone join a using (digest) where b_alone.partition <> a.partition)
    or exists (from a_alone join b using (digest) where a_alone.partition <> b.partition)
group by digest
having count(*) filter (is_a) > 0 and count(*) filter (not is_a) > 0 and (
    count(distinct partition) filter (is_a) > 1 or count(distinct partition) filter (not is_a) > 1
    or count(*) filter (is_a) <> count(*) filter (not is_a)
)
"""
# ways of records from one partition to another
_WAYS: Final = """
create or replace table ways as
select a_partition, b_partition from pairs where a_partition <> b_partition
union
select a.partition, b.partition from (select distinct partition, digest from a semi join spread using (digest)) a
join (select distinct partition, digest from b semi join spread using (digest)) b using (digest)
where a.partition <> b.partition
"""
# between which records of b a record of a is. The last of copies counts. Where records are missing, repeated or in
# another order, and equal ones stand between the same anchors, a record is any of these.
_PLACES: Final = """
create or replace table places as
with unsure as (
    select distinct partition, gap from counts where na <> nb
    union select distinct a_partition, gap from pairs where is_moved and gap is not null
)
select a.partition, a."offset" as a_offset, digest, gap,
    case when na > 1 and is_unsure then 1
        -- another copy may be the one of a record that has moved
        when digest in (select digest from a_left join b_left using (digest, k)) then k
        else k + (nb - na) end as first_k,
    if(na > 1 and is_unsure, nb, k + (nb - na)) as last_k
from a_rows a join counts using (partition, digest, gap)
left join (select *, true as is_unsure from unsure) using (partition, gap)
where nb > 0 and digest not in (select digest from spread)
"""
# one large join per query: the tables of several at once are not written to disk
_PARTNERS: Final = """
create or replace table partners as
select p.partition as a_partition, p.a_offset, p.partition as b_partition, b."offset" as first, b."offset" as last
from places p join b_rows b on (b.partition, b.digest, b.gap, b.k) = (p.partition, p.digest, p.gap, p.first_k)
where first_k = last_k
"""
_MORE_PARTNERS: Final = """
insert into partners
select p.partition as a_partition, p.a_offset, p.partition as b_partition, f."offset" as first, l."offset" as last
from places p
join b_rows f on (f.partition, f.digest, f.gap, f.k) = (p.partition, p.digest, p.gap, p.first_k)
join b_rows l on (l.partition, l.digest, l.gap, l.k) = (p.partition, p.digest, p.gap, p.last_k)
where first_k <> last_k
union all
select a_partition, a_offset, b_partition, b_offset, b_offset
from pairs
-- joins, for a large "not in" has to fit into memory
anti join (select i as ai from a_rows join counts using (partition, digest, gap) where nb > 0) known using (ai)
anti join (select i as ai from a semi join spread using (digest)) everywhere using (ai)
where is_moved
and (a_partition = b_partition or (a_partition, b_partition) in (select (a_partition, b_partition) from ways))
union all
select a.partition, a."offset", b.partition, b.first, b.last
from a join (
    select digest, partition, min("offset") as first, max("offset") as last
    from b where digest in (select digest from spread) group by all
) b using (digest)
where a.partition = b.partition
    or (a.partition, b.partition) in (select (a_partition, b_partition) from ways)
"""
_BOUNDS: Final = """
select c.number, b_partition, max(last) filter (a_offset < c."offset") + 1 as low,
    min(first) filter (a_offset >= c."offset") as high,
    coalesce(min(c.partition) filter (c."offset" >= 0 and c.partition = b_partition),
        min(c.partition) filter (c."offset" >= 0)) as a_partition,
    list(distinct c.partition) filter (c."offset" >= 0) as a_partitions
from partners join commits c on a_partition = c.partition
group by all having a_partition is not null
"""
_AGAIN: Final = """
select c.number, t.b_partition, count(*) from partners p
join commits c on p.a_partition = c.partition and p.a_offset < c."offset"
join chosen t on t.number = c.number and t.b_partition = p.b_partition and p.last >= t."offset"
group by all
"""
_ABSENT: Final = """
select c.number, c.partition, count(*) from a_alone a
join commits c on a.partition = c.partition and a."offset" >= c."offset" and c."offset" >= 0
where not a.is_known group by all
"""
# records that are there once more than here, further on, where the group has read an equal one
_SENT_AGAIN: Final = """
select t.number, t.b_partition, count(*), max(b."offset") from b_alone b
join chosen t on b.partition = t.b_partition and b."offset" >= t."offset"
where b.is_known and exists (
    select 1 from a join commits c on a.partition = c.partition and a."offset" < c."offset"
    where a.digest = b.digest and c.number = t.number
    and (a.partition = b.partition or (a.partition, b.partition) in (select (a_partition, b_partition) from ways))
)
group by all
"""
_UNKNOWN: Final = """
select t.number, t.b_partition, count(*), min(b."offset") from b_alone b
join chosen t on b.partition = t.b_partition and b."offset" >= coalesce(t.low, -1) and b."offset" < t.high
where not b.is_known group by all
"""


# where both partitions end with the same records, those that b does not have at all aside
_ENDS: Final = """
create or replace table ends as
select partition, a."offset" as a_offset, b."offset" as b_offset,
    bool_and(coalesce(a.digest = b.digest, false)) over (partition by partition order by n) as is_same
from (
    select partition, "offset", digest, row_number() over (partition by partition order by i desc) as n
    from a semi join b using (partition, digest)
    where partition in (select b_partition from doubtful)
) a
left join (
    select partition, "offset", digest, row_number() over (partition by partition order by i desc) as n
    from b where partition in (select b_partition from doubtful)
) b using (partition, n)
"""
_SAME_ENDS: Final = """
select number, b_partition, found.low from (
    select number, b_partition, d."offset", min(e.b_offset) as low from doubtful d
    join commits c using (number) join ends e on e.partition = b_partition and e.partition = c.partition
    where e.a_offset >= c."offset"
    group by all having bool_and(is_same)
) found
where not exists (
    select 1 from b_alone
    where partition = b_partition and not is_known and b_alone."offset" between found."offset" and low
)
"""


def _translated(
    database: Database,
    topic: str,
    other: str,
    known: Sequence[Group],
    log_bounds: Callable[[int], tuple[int, int] | None],
) -> Iterator[TranslatedOffset]:
    """The offsets of all groups in a topic; `log_bounds` returns start and end offset of a partition of `other`."""
    of_group = [_committed(group, topic) for group in known]
    _register_commits(database, of_group)
    for query in (_SPREAD, _WAYS, _PLACES, _PARTNERS, _MORE_PARTNERS):
        database.run(query)
    bounds = [_Bounds(*row) for row in database.run(_BOUNDS).fetchall()]
    _register_chosen(database, bounds)
    unknown = _by_place(database.run(_UNKNOWN).fetchall())
    ends = dict(database.run('select partition, max("offset") + 1 from b group by all').fetchall())
    for one in bounds:
        out_of_range = {of_group[one.number][of].out_of_range for of in one.from_partitions}
        n_unknown, first_unknown = unknown.get(one.place, (0, None))
        one.choose(n_unknown, first_unknown, ends[one.partition], out_of_range)
    _register_chosen(database, bounds)
    _follow_same_ends(database, bounds)
    again = _by_place(database.run(_AGAIN).fetchall())
    sent = _by_place(database.run(_SENT_AGAIN).fetchall())
    absent = _by_place(database.run(_ABSENT).fetchall())
    for one in sorted(bounds, key=lambda one: one.place):
        commit = of_group[one.number][one.from_partition]
        if not one.is_same_end:
            one.add_again(again.get(one.place, (0,))[0], *sent.get(one.place, (0, None)))
        n_absent = sum(absent.get((one.number, of), (0,))[0] for of in one.from_partitions)
        certainty: Certainty = "bounded" if one.why else "exact"
        yield TranslatedOffset(
            *(known[one.number].name, other, one.partition, one.offset, certainty, one.earliest, one.latest),
            *(one.n_again, n_absent, topic, one.from_partition, commit.offset, commit.metadata, one.why),
        )
    yield from _unreached(database, topic, other, known, bounds, log_bounds)


def _unreached(
    database: Database,
    topic: str,
    other: str,
    known: Sequence[Group],
    bounds: Sequence[_Bounds],
    log_bounds: Callable[[int], tuple[int, int] | None],
) -> Iterator[TranslatedOffset]:
    """The offsets in partitions of which the other topic has no record."""
    reached = {(one.number, of) for one in bounds for of in one.from_partitions}
    here, there = (
        {partition for (partition,) in database.run(f"select distinct partition from {side}").fetchall()}
        for side in "ab"
    )
    for number, group in enumerate(known):
        for partition, commit in sorted(_committed(group, topic).items()):
            if (number, partition) not in reached:
                ends = None if partition in here else log_bounds(partition)
                yield _without_records(group, commit, other, ends, is_empty=partition not in there)


def _follow_same_ends(database: Database, bounds: Sequence[_Bounds]) -> None:
    """Move offsets that are not exact to where the last records of b are just those that the group has not read."""
    again = {row[:2] for row in [*database.run(_AGAIN).fetchall(), *database.run(_SENT_AGAIN).fetchall()]}
    doubtful = [one for one in bounds if one.place in again and one.from_partitions == [one.partition]]
    if not doubtful:
        return
    _register(database, "doubtful", ("number", "b_partition", "offset"), [(*one.place, one.offset) for one in doubtful])
    database.run(_ENDS)
    same_ends = _by_place(database.run(_SAME_ENDS).fetchall())
    for one in doubtful:
        (offset,) = same_ends.get(one.place, (-1,))
        if offset > one.offset:
            one.offset, one.is_same_end, one.latest = offset, True, max(one.latest, offset)
            one.why = (
                "equal records are there in several places: from here on are just those that the group has not read"
            )
    _register_chosen(database, bounds)


@dataclass(slots=True)
class _Bounds:
    """The bounds of the offset at which a group may continue in a partition."""

    number: int
    """Of the group."""
    partition: int
    low: int | None
    """Behind all records that the group has read."""
    high: int | None
    """The first record that it has not read."""
    from_partition: int
    from_partitions: list[int]
    """Those with a committed offset whose records are here."""
    offset: int = -1
    earliest: int = -1
    latest: int = -1
    n_again: int = 0
    why: str = ""
    is_same_end: bool = False
    """Whether the records from `offset` on are just those that the group has not read."""

    @property
    def place(self) -> tuple[int, int]:
        return self.number, self.partition

    def choose(self, n_unknown: int, first_unknown: int | None, end: int, out_of_range: set[str | None]) -> None:
        """Choose the offset, by the records before `high` that are only there, and by the end of the partition."""
        low, high = self.low, self.high
        place = high if high is not None else low
        assert place is not None
        self.offset = self.earliest = self.latest = place
        if low is not None and high is not None and high < low:
            self.latest = low
            self.why = "records are in another order, or several are equal"
        elif n_unknown and high is not None and first_unknown is not None:
            self.earliest = first_unknown if low is None else low
            # what is only there before the first common record is older than what is left here, and the group has
            # read it, unless its offset is older as well
            is_older = low is None and "before_start" not in out_of_range
            self.offset = high if is_older else self.earliest
            self.why = (
                f"{counted(n_unknown, 'record')} before offset {high} {'is' if n_unknown == 1 else 'are'} only there"
            )
        if "past_end" in out_of_range and end > self.latest:
            self.latest = end
            self.why = "the group has read past the end of the log here: it may read later records there again"

    def add_again(self, n_again: int, n_sent: int, last: int | None) -> None:
        """Add records that the group reads again: partners of records that it has read, and duplicates."""
        self.n_again = n_again + n_sent
        if last is not None:
            self.latest = max(self.latest, last + 1)
            self.why = self.why or "records are there more often than here"
        if self.n_again:
            self.why += f": up to {counted(self.n_again, 'record')} may be read again"


def _committed(group: Group, topic: str) -> dict[int, GroupOffset]:
    """The committed offsets of a group in a topic, by partition."""
    return {one.partition: one for one in group.offsets if one.topic == topic and one.offset >= 0}


def _register_commits(database: Database, of_group: Sequence[Mapping[int, GroupOffset]]) -> None:
    """Make committed offsets a table; of a partition without one, the group has read nothing."""
    ((n_partitions,),) = database.run("select coalesce(max(partition), -1) + 1 from a").fetchall()
    rows = [
        (number, at, offsets[at].offset if at in offsets else -1)
        for number, offsets in enumerate(of_group)
        if offsets
        for at in range(n_partitions)
    ]
    _register(database, "commits", ("number", "partition", "offset"), rows)


def _register_chosen(database: Database, bounds: Iterable[_Bounds]) -> None:
    rows = [(one.number, one.partition, one.offset, one.low, one.high) for one in bounds]
    _register(database, "chosen", ("number", "b_partition", "offset", "low", "high"), rows)


def _register(database: Database, name: str, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Make rows of whole numbers a table."""
    cells = [*zip(*rows, strict=True)] or [()] * len(columns)
    table = pa.table([pa.array(column, pa.int64()) for column in cells], names=[*columns])
    with database.input("rows", table):
        database.run(f"create or replace table {name} as select * from rows")


def _by_place(rows: Iterable[Sequence[int]]) -> dict[tuple[int, int], tuple[Any, ...]]:
    return {(row[0], row[1]): tuple(row[2:]) for row in rows}
