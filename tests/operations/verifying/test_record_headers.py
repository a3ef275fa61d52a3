"""Headers of batches against their records."""

from functools import partial

import builder
import pytest

import kafkalog
from kafkalog.errors import Reason
from kafkalog.operations.verifying.record_headers import miscounted
from kafkalog.records.batch_table import lost_batch
from kafkalog.records.header_walk import walk
from kafkalog.storage.source import BufferSource


def batch(base, deltas, stamps, **fields):
    records = [builder.record_v2(delta, stamp) for delta, stamp in zip(deltas, stamps, strict=True)]
    fields = {"last_offset_delta": 2, "max_timestamp": 1009, **fields}
    return builder.batch_v2(records, base_offset=base, base_timestamp=1000, **fields)


GOOD = batch(0, [0, 1, 2], [0, 9, 4])


@pytest.mark.parametrize(
    ("codec", "count", "reason", "lost"),
    [
        (0, -1, "record_count", None),
        (1, -(2**31), "record_count", None),
        (0, 2**31 - 1, "record_count", None),
        (0, 0, "record_trailing_bytes", 0),
        (1, 0, "record_trailing_bytes", 0),
        (0, 2, None, None),  # which only decoding shows
    ],
)
def test_counts_that_the_batch_cannot_hold_are_found_in_its_header(codec, count, reason, lost):
    records = [builder.record_v2(delta, 0, bytes(range(100))) for delta in range(3)]
    bad = builder.batch_v2(records, base_offset=10, codec=codec, records_count=count)
    empty = builder.batch_v2(base_offset=20, last_offset_delta=5)
    (window,) = walk(BufferSource(GOOD + bad + empty))
    findings = list(miscounted(window.batches, "x.log", partial(lost_batch, batches=window.batches)))
    assert [finding.reason for finding in findings] == ([reason] if reason else [])
    if reason == "record_trailing_bytes":
        assert [(one.position, one.base_offset, one.last_offset, one.n_records) for one in findings] == [
            (len(GOOD), 10, 12, lost)
        ]


def set_of(offsets, magic):
    """A compressed message of these offsets."""
    first = offsets[0] * magic
    return builder.wrapper(
        [builder.message(offset - first, b"k%d" % offset, b"v" * 10, magic=magic) for offset in offsets],
        offset=offsets[-1],
        magic=magic,
    )


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize(
    ("third", "first_back", "n_twice"), [([*range(99, 109)], 99, 4), ([102, 108], 102, 1), ([104, 106], None, 0)]
)
def test_a_set_that_begins_below_the_end_of_the_one_before_is_reported(tmp_path, magic, third, first_back, n_twice):
    sets = [[100, 101], [102, 103], third, [109, 110]]
    log = tmp_path / "bets-0" / f"{100:020d}.log"
    log.parent.mkdir()
    data = [set_of(one, magic) for one in sets]
    log.write_bytes(b"".join(data))
    position = len(data[0]) + len(data[1])
    deep = [one for one in kafkalog.verify(log.parent, deep=True).findings if one.damage]
    salvaged = [one for one in kafkalog.salvage(log.parent, dry_run=True).findings.rows if one.damage]
    assert [(one.reason, one.position, one.base_offset) for one in deep] == (
        [(Reason.OFFSET_ORDER, position, first_back)] if n_twice else []
    )
    assert [(one.reason, one.position) for one in salvaged] == [(one.reason, one.position) for one in deep]
    for threads in (1, 3):
        scan = kafkalog.scan(log.parent, columns=["offset"], threads=threads)
        offsets = scan.to_table()["offset"].to_pylist()
        assert len(offsets) - len(set(offsets)) == n_twice
        assert [(one.reason, one.position, one.damage) for one in scan.findings] == (
            [(Reason.OFFSET_ORDER, position, False)] if n_twice else []
        )


def test_offsets_that_fall_within_a_set_of_v0_are_reported(tmp_path):
    log = tmp_path / "t-0" / f"{0:020d}.log"
    log.parent.mkdir()
    log.write_bytes(set_of([0, 1], 0) + set_of([2, 5, 3, 6], 0))
    (finding,) = (one for one in kafkalog.verify(log.parent, deep=True).findings if one.damage)
    assert (finding.reason, finding.base_offset) == (Reason.OFFSET_ORDER, 3)
    assert kafkalog.verify(log.parent).ok
