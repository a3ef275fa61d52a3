"""How two topics differ by the content of their records, as ranges of offsets."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from kafkalog.comparing.digests import FIELDS, Database, Field
from kafkalog.comparing.matching_topics import Side, Sides
from kafkalog.comparing.record_pairs import pair
from kafkalog.errors import DEFAULT_LIMITS, Findings, NotKafkaError, Reason
from kafkalog.html import JsonFields
from kafkalog.log.log_dir import LogDir
from kafkalog.log.open import Paths
from kafkalog.parsing import one_of
from kafkalog.survey.next_steps import NextStep

Kind = Literal["missing", "moved", "repeated"]
_MOST_RANGES: Final = 1000
"""Per topic."""


@dataclass(frozen=True, slots=True)
class ContentRange(JsonFields):
    """Records of one side, one after the other, that differ in the same way."""

    kind: Kind
    """``missing``: the other side does not have them. ``repeated``: it has them less often. ``moved``: it has them in
    another order, or in another partition.
    """
    side: Side
    """The side that has them."""
    topic: str
    partition: int
    first_offset: int
    last_offset: int
    n_records: int


@dataclass(slots=True)
class TopicContent(JsonFields):
    """A topic on both sides."""

    _json_properties = ("ok",)

    topic_a: str
    topic_b: str
    n_records_a: int
    n_records_b: int
    n_same: int
    """Records that both have, in the same order."""
    n_moved: int
    """Records that both have, in another order or partition."""
    n_missing_in_a: int
    n_missing_in_b: int
    n_repeated_in_a: int
    n_repeated_in_b: int
    """Records that this side has more often than the other."""
    ranges: list[ContentRange] = field(default_factory=list)
    """The first 1,000 ranges that differ."""
    n_more_ranges: int = 0

    @property
    def ok(self) -> bool:
        """Whether both sides have the same records in the same order."""
        return self.n_same == self.n_records_a == self.n_records_b


@dataclass(slots=True)
class ContentDiff(JsonFields):
    """How two clusters, or two topics, differ by content."""

    _json_properties = ("ok", "next")

    a: str
    b: str
    """Their paths."""
    topics: list[TopicContent] = field(default_factory=list)
    only_in_a: list[str] = field(default_factory=list)
    only_in_b: list[str] = field(default_factory=list)
    """Topics that the other side does not have."""
    findings_a: Findings = field(default_factory=lambda: Findings(DEFAULT_LIMITS.max_findings))
    findings_b: Findings = field(default_factory=lambda: Findings(DEFAULT_LIMITS.max_findings))
    """Damage, whose records are missing on this side."""

    @property
    def ok(self) -> bool:
        """Whether both sides have the same topics with the same records in the same order, and no damage."""
        is_damaged = self.findings_a.n_damage or self.findings_b.n_damage
        return not self.only_in_a and not self.only_in_b and not is_damaged and all(one.ok for one in self.topics)

    @property
    def next(self) -> list[NextStep]:
        """How to check the sides that are damaged."""
        sides = ((self.a, self.findings_a), (self.b, self.findings_b))
        why = "its damage may be why records are missing there: verify shows all of it, and the way to what is intact"
        return [NextStep(("kafkalog", "verify", path), why) for path, findings in sides if findings.n_damage]

    def _rows(self) -> list[object]:
        return [*self.topics]


def compare(
    a: Paths | LogDir,
    b: Paths | LogDir,
    *,
    topics: str | Sequence[str] | None = None,
    ignore: Sequence[Field] | None = None,
    memory: int | None = None,
    temporary_directory: str | os.PathLike[str] | None = None,
    progress: Callable[[int], object] = lambda n_records: None,
    **options: Any,
) -> ContentDiff:
    """Compare two clusters, or two topics, by the content of their records.

    Offsets, partitions' batches, compression, transactions and leader epochs do not matter. Without the sources being
    changed, each record is read once, and its digest kept in a database on disk.

    Parameters
    ----------
    a, b : path-like, sequence of path-like, or what `open` returned
        Log dirs, partition directories, URLs, or tables that `export` wrote. Open a tiered log with ``open(path,
        tiered=URL)``.
    topics : str or sequence of str, optional
        Topics of `a`: names or globs, or pairs such as ``orders=copy-of-orders``. Default: all but internal ones.
    ignore : sequence of {"key", "value", "headers", "timestamp"}, optional
        Fields that do not count.
    memory : int, optional
        Bytes of memory for DuckDB, at least 64 MiB; default: 256 MiB. The rest of what it sorts goes to
        `temporary_directory`, about 100 bytes per record.
    progress : callable
        ``progress(n_records)`` is called with the number of records read since the last call.
    **options
        Of `scan`, such as ``isolation_level``. By default, ``on_corruption`` is ``"skip"``: intact records are
        compared, and the damage is in the findings.

    Returns
    -------
    ContentDiff

    Raises
    ------
    NotKafkaError
        The sides have no topic in common.
    UnknownNameError
        A side does not have a topic of `topics`.
    KafkalogError
        A log cannot be read, or is damaged, with ``on_corruption="raise"``.
    ImportError
        DuckDB is not installed.

    Examples
    --------
    >>> from kafkalog.comparing.content import compare
    >>> compare("tests/golden/log_dir", "tests/golden/log_dir", topics="p-multi").ok
    True
    """
    fields = check_fields(ignore)
    sides = Sides(a, b, topics, {"on_corruption": "skip"} | options)
    found = ContentDiff(sides.paths["a"], sides.paths["b"], only_in_a=sides.only_in_a, only_in_b=sides.only_in_b)
    if not sides.pairs:
        raise NotKafkaError(Reason.NOT_KAFKA, f"no topic is also in {found.b}", path=found.a)
    with Database(fields, memory, temporary_directory) as database:
        for names in sides.pairs:
            counts = sides.fill(database, fields, names, progress, {"a": found.findings_a, "b": found.findings_b})
            pair(database)
            found.topics.append(_content(database, names, counts))
    return found


def check_fields(ignore: Sequence[Field] | None) -> list[Field]:
    """The fields that count; ValueError if none is left."""
    ignore = ignore or ()
    for name in ignore:
        one_of("ignore", name, FIELDS)
    fields = [name for name in FIELDS if name not in ignore]
    if not fields:
        raise ValueError("ignore names all fields: nothing is left to compare")
    return fields


def _content(database: Database, names: tuple[str, str], counts: Sequence[int]) -> TopicContent:
    """The result for a topic, from the records that were paired."""
    ((n_same, n_moved),) = database.run(
        "select count(*) filter (not is_moved), count(*) filter (is_moved) from pairs"
    ).fetchall()
    alone = {
        side: database.run(
            f"select count(*) filter (not is_known), count(*) filter (is_known) from {side}_alone"
        ).fetchone()
        for side in "ab"
    }
    ranges, n_more = _ranges(database, names)
    return TopicContent(
        topic_a=names[0],
        topic_b=names[1],
        n_records_a=counts[0],
        n_records_b=counts[1],
        n_same=n_same,
        n_moved=n_moved,
        n_missing_in_a=alone["b"][0],
        n_missing_in_b=alone["a"][0],
        n_repeated_in_a=alone["a"][1],
        n_repeated_in_b=alone["b"][1],
        ranges=ranges,
        n_more_ranges=n_more,
    )


_DIFFERENT: Final = """
create or replace table {side}_ranges as
select partition, kind, min("offset") as first, max("offset") as last, count(*) as n, min(i) as i
from (
    select *, i - row_number() over (partition by partition, kind order by i) as island
    from (
        select i, partition, "offset", if(is_known, 'repeated', 'missing') as kind from {side}_alone
        union all
        select {side}i, {side}_partition, {side}_offset, 'moved' from pairs where is_moved
    )
)
group by partition, kind, island
"""


def _ranges(database: Database, names: tuple[str, str]) -> tuple[list[ContentRange], int]:
    """The first ranges that differ, and how many more there are."""
    found: list[ContentRange] = []
    n_ranges = 0
    sides: list[Side] = ["a", "b"]
    for side, topic in zip(sides, names, strict=True):
        database.run(_DIFFERENT.format(side=side))
        ((n_here,),) = database.run(f"select count(*) from {side}_ranges").fetchall()
        n_ranges += n_here
        rows = database.run(f"select * exclude i from {side}_ranges order by i limit {_MOST_RANGES - len(found)}")
        for partition, kind, *numbers in rows.fetchall():
            found.append(ContentRange(kind, side, topic, partition, *numbers))
    return found, n_ranges - len(found)
