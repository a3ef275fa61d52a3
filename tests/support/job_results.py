"""What Spark jobs gave, in plain values."""

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


def tree(root):
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def flip(path, position):
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)
