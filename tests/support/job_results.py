"""What Spark jobs gave, in plain values."""

import functools

from files import content
from files import flip as flip_bits

from kafkalog.errors import Finding, Reason

SMALL = 2**16
KINDS = ("offset", "time", "txn", "snapshot", "epochs")
NOW = 1_700_100_000_000


def ordered(table):
    return table.sort_by([(name, "ascending") for name in ("topic", "partition", "offset")]).to_pylist()


def arrow(frame):
    return frame.toArrow()


def findings_of(rows):
    return [Finding(**{**row, "reason": Reason(row["reason"])}) for row in rows or ()]


tree = content
flip = functools.partial(flip_bits, bits=0xFF)
