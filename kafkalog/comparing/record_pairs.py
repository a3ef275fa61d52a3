"""Which record of one topic is which of another: by content, and by order where the same content stands several times.

Records that stand once on both sides, in the same order, are anchors. A record that stands several times is paired
between the anchors around it, first with first. The others are paired anywhere, and have moved.

What DuckDB hashes has to fit into its memory. Equal records have equal digests, so these queries run over some of the
digests at a time.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog.comparing.digests import Database

_MOST_SORTED: Final = 5_000_000
"""Of more anchors that are out of order, one run is found without a search for the longest one."""

_BYTES_OF_ROW: Final = 32
"""Of memory, for a query that hashes: it fails at less than 8."""

# records that stand once in a partition of either side
_ONCE: Final = """
select partition, a.i as ai, b.i as bi
from (select partition, digest, min(i) as i from {a} group by all having count(*) = 1) a
join (select partition, digest, min(i) as i from {b} group by all having count(*) = 1) b using (partition, digest)
"""
# with the largest number before each row, and the smallest from it on: between two rows where the one is below the
# other, the order is the same on both sides
_BLOCKS: Final = """
create or replace table ordered as
select partition, ai, bi,
    -- DuckDB takes quadratic time for an aggregate with a filter here
    count(if(coalesce(before < after, true), 1, null))
        over (partition by partition order by ai rows between unbounded preceding and current row) as block
from (
    select *,
        max(bi) over (partition by partition order by ai rows between unbounded preceding and 1 preceding) as before,
        min(bi) over (partition by partition order by ai rows between current row and unbounded following) as after
    from once
)
"""
_ANCHORS: Final = """
create or replace table anchors as
select partition, ai, bi, count(*) over (partition by partition, block) > 1 as is_mixed from ordered
"""
# each record with the anchor before it, its number among equal records there, and how many there are on both sides
_SIDE: Final = """
create or replace table {side}_rows as
select r.i, r.partition, r."offset", r.digest, coalesce(x.ai, -1) as gap,
    row_number() over (partition by r.partition, r.digest, coalesce(x.ai, -1) order by r.i) as k
from {side} r asof left join anchors x on r.partition = x.partition and r.i >= x.{side}i
"""
_COUNTS: Final = """
select partition, digest, gap, coalesce(a.n, 0) as na, coalesce(b.n, 0) as nb
from (select partition, digest, gap, count(*) as n from {a_rows} group by all) a
full join (select partition, digest, gap, count(*) as n from {b_rows} group by all) b using (partition, digest, gap)
"""
# records without a partner between the anchors may have one elsewhere
_LEFT: Final = """
select r.i, r.partition, r."offset", r.digest, row_number() over (partition by r.digest order by r.i) as k
from {rows} r join {counts} c using (partition, digest, gap)
where r.k > least(c.na, c.nb)
"""
_MATCHES: Final = """
select a.i as ai, b.i as bi, a.partition as a_partition, b.partition as b_partition, a."offset" as a_offset,
    b."offset" as b_offset, gap
from {a_rows} a join {b_rows} b using (partition, digest, gap, k)
union all
select a.i, b.i, a.partition, b.partition, a."offset", b."offset", null
from {a_left} a join {b_left} b using (digest, k)
"""
_PAIRS: Final = """
create or replace table pairs as
select ai, bi, a_partition, b_partition, a_offset, b_offset,
    -- of records that stand several times, others may be between the same anchors
    coalesce(max(bi) over (partition by a_partition order by ai rows between unbounded preceding and 1 preceding) > bi,
        false) as is_moved,
    gap
from matches where gap is not null
union all
select ai, bi, a_partition, b_partition, a_offset, b_offset, true, null from matches where gap is null
"""
_ALONE: Final = """
select l.i, l.partition, l."offset", l.digest, l.digest in (select digest from {others}) as is_known
from {left} l anti join {other_left} o using (digest, k)
"""


def pair(database: Database) -> None:
    """Fill the table ``pairs`` of a database, with a row per record of ``a`` that is in ``b``, from both tables.

    Also makes ``a_alone`` and ``b_alone``: records without a partner, and whether the other side has such a record.
    """
    run = database.run
    ((n_records,),) = run("select (select count(*) from a) + (select count(*) from b)").fetchall()
    n_parts = n_records * _BYTES_OF_ROW // database.memory + 1
    _fill(database, "once", _ONCE, n_parts, a="a", b="b")
    run(_BLOCKS)
    run(_ANCHORS)
    _keep_longest_runs(database)
    for side in ("a", "b"):
        run(_SIDE.format(side=side))
    _fill(database, "counts", _COUNTS, n_parts, a_rows="a_rows", b_rows="b_rows")
    for side in ("a", "b"):
        _fill(database, f"{side}_left", _LEFT, n_parts, rows=f"{side}_rows", counts="counts")
    both = {name: name for name in ("a_rows", "b_rows", "a_left", "b_left")}
    _fill(database, "matches", _MATCHES, n_parts, **both)
    run(_PAIRS)
    for side, other in (("a", "b"), ("b", "a")):
        tables = {"left": f"{side}_left", "others": other, "other_left": f"{other}_left"}
        _fill(database, f"{side}_alone", _ALONE, n_parts, **tables)


def _fill(database: Database, name: str, query: str, n_parts: int, **tables: str) -> None:
    """Make a table of a query that joins tables by the digests of records, some digests at a time."""
    for part in range(n_parts):
        rows = {key: f"(from {table} where hash(digest) % {n_parts} = {part})" for key, table in tables.items()}
        selected = query.format(**(rows if n_parts > 1 else tables))
        database.run(f"insert into {name} {selected}" if part else f"create or replace table {name} as {selected}")


def _keep_longest_runs(database: Database) -> None:
    """Keep the longest run of anchors that are in the same order on both sides."""
    run = database.run
    for (partition,) in run("select distinct partition from anchors where is_mixed order by all").fetchall():
        query = "select ai, bi from anchors where is_mixed and partition = $partition order by ai"
        mixed = run(query, partition=partition).fetchnumpy()
        others = np.delete(mixed["ai"], longest_rising(mixed["bi"]))
        with database.input("others", pa.table({"ai": others})):
            run("delete from anchors where ai in (select ai from others)")


def longest_rising(numbers: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The rows of a longest rising run of numbers that are all different, which need not stand side by side.

    >>> longest_rising(np.array([3, 0, 1, 5, 2])).tolist()
    [1, 2, 4]
    """
    if numbers.size > _MOST_SORTED:
        highest = np.maximum.accumulate(numbers)
        return np.flatnonzero(numbers == highest)
    ends: list[int] = []
    rows: list[int] = []
    before = np.full(numbers.size, -1, np.int64)
    for row, number in enumerate(numbers.tolist()):
        length = bisect_left(ends, number)
        if length:
            before[row] = rows[length - 1]
        if length == len(ends):
            ends.append(number)
            rows.append(row)
        else:
            ends[length], rows[length] = number, row
    found = np.empty(len(ends), np.int64)
    row = rows[-1] if rows else -1
    for place in range(len(ends) - 1, -1, -1):
        found[place] = row
        row = int(before[row])
    return found
