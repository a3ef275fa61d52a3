"""`kafkalog.codec` in memory: small calls, and next to the record code of Python clients.

kafkalog returns columns and takes columns; clients make an object for each record. Both check checksums.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
from peers import Side, clients, compare, timed

from kafkalog import RecordColumns, codec
from kafkalog.records.byte_columns import BinaryColumn

from .common import CpuTimed

RECORDS = {"1 record": 1, "100 records": 100, "5,000 records": 5000}
CODECS = ["none", "lz4", "snappy", "zstd", "gzip"]
TOTAL = 20_000
ROUNDS = 7


def _rows(n: int) -> clients.Rows:
    return [
        (at, 1_700_000_000_000 + at, b"key-%d" % (at % 97), b'{"id": %d, "name": "Ann"}' % at, []) for at in range(n)
    ]


def _columns(rows: clients.Rows) -> RecordColumns:
    return RecordColumns(
        len(rows),
        {
            "timestamp": np.array([row[1] for row in rows], np.int64),
            "key": BinaryColumn.of([row[2] for row in rows]),
            "value": BinaryColumn.of([row[3] for row in rows]),
        },
    )


class SmallCalls(CpuTimed):
    """What one call costs."""

    number = 200
    params = (list(RECORDS), CODECS)
    param_names = ("batch", "codec")

    def setup(self, batch: str, name: str) -> None:
        if RECORDS[batch] > 100:
            raise NotImplementedError("not small")
        self.columns = _columns(_rows(RECORDS[batch]))
        self.data = codec.encode(self.columns, compression=name)

    def time_encode(self, batch: str, name: str) -> None:
        codec.encode(self.columns, compression=name)

    def time_decode(self, batch: str, name: str) -> None:
        codec.decode(self.data)


class Clients:
    """Batches of some records, 20,000 in all, without compression."""

    params = (list(clients.PACKAGES), list(RECORDS))
    param_names = ("client", "batch")
    timeout = 600.0

    def setup(self, client: str, batch: str) -> None:
        package = clients.PACKAGES[client]
        if find_spec(package.partition(".")[0]) is None:
            raise NotImplementedError(f"{client} is missing: pip install {client}")
        rows = _rows(RECORDS[batch])
        self.batches = [rows] * (TOTAL // len(rows))
        columns = _columns(rows)
        self.columns = [columns] * len(self.batches)
        self.fetches = [codec.encode(columns)] * len(self.batches)

    def track_ratio_decode(self, client: str, batch: str) -> float:
        def work() -> tuple[int, int]:
            n_records = value_bytes = 0
            for fetch in self.fetches:
                records = codec.decode(fetch)
                n_records += records.n_records
                value_bytes += int(records.value.offsets[-1])
            return n_records, value_bytes

        return _ratio(work, clients.decoding(self.fetches, client))

    def track_ratio_encode(self, client: str, batch: str) -> float:
        def work() -> tuple[int, int]:
            n_records = value_bytes = 0
            for columns in self.columns:
                codec.encode(columns)
                n_records += columns.n_records
                value_bytes += int(columns.value.offsets[-1])
            return n_records, value_bytes

        return _ratio(work, clients.building(self.batches, client))

    track_ratio_decode.unit = "kafkalog / client, CPU time"
    track_ratio_encode.unit = "kafkalog / client, CPU time"


def _ratio(ours: Callable[[], tuple[int, int]], theirs: Side) -> float:
    best = compare({"kafkalog": timed(ours), "client": theirs}, ROUNDS)
    return best["kafkalog"] / best["client"]
