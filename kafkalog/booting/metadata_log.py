"""Writes what a controller's metadata log needs for a first start: a snapshot of all records, and the state of raft.

Every version replays a snapshot at an offset above 0, as after a crash that followed a fetched snapshot. 4.3 does not
replay one at offset 0: its topics would be unknown, and their directories set aside as strays.
Mirrors `RecordsSnapshotWriter` and `FileQuorumStateStore`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from kafkalog.format import ControlRecordType
from kafkalog.protocol.encoder import encode_message
from kafkalog.records.batch_spec import BatchSpec
from kafkalog.records.columns import BinaryColumn, RecordColumns
from kafkalog.records.encode import cut_batches, encode_batches

EPOCH: Final = 1
"""Leader epoch of the snapshot; the first election makes it 2."""
_BATCH_BYTES, _BATCH_RECORDS = 500_000, 1000


def voter(node_id: int, directory_id: str, host: str, port: int) -> dict[str, Any]:
    """The fields of a voter in Kafka's record.

    `directory_id` must be the `directory.id` of its metadata log dir, or it never elects.
    """
    return {
        "voterId": node_id,
        "voterDirectoryId": directory_id,
        "endpoints": [{"name": "CONTROLLER", "host": host, "port": port}],
        "kRaftVersionFeature": {"minSupportedVersion": 0, "maxSupportedVersion": 1},
    }


def snapshot_name(n_records: int) -> str:
    """The file name of a snapshot with a number of records."""
    return f"{n_records + 1:020d}-{EPOCH:010d}.checkpoint"


def encode_snapshot(
    records: Sequence[bytes], timestamp: int, voters: Sequence[dict[str, Any]], *, epoch: int = EPOCH
) -> bytes:
    """Encode a snapshot: a header with the voters, the records, a footer; `timestamp` (ms) is that of all batches.

    `voters` are those of a dynamic quorum; empty for a file without a quorum, such as `bootstrap.checkpoint`.
    """
    kinds = ControlRecordType
    head = [control(kinds.SNAPSHOT_HEADER, "SnapshotHeaderRecord", lastContainedLogTimestamp=timestamp)]
    if voters:
        head.append(control(kinds.KRAFT_VERSION, "KRaftVersionRecord", kRaftVersion=1))
        head.append(control(kinds.KRAFT_VOTERS, "VotersRecord", voters=voters))
    foot = [control(kinds.SNAPSHOT_FOOTER, "SnapshotFooterRecord")]
    body = [(None, value) for value in records]
    parts = [
        control_batch(0, head, timestamp, epoch),
        _batches(len(head), body, timestamp, epoch),
        control_batch(len(head) + len(body), foot, timestamp, epoch),
    ]
    return b"".join(parts)


def control(kind: ControlRecordType, name: str, **fields: Any) -> tuple[bytes, bytes]:
    """Key and value of a control record."""
    return (0).to_bytes(2, "big") + int(kind).to_bytes(2, "big"), encode_message(name, 0, fields)


def control_batch(offset: int, records: Sequence[tuple[bytes, bytes]], timestamp: int, epoch: int) -> bytes:
    """Encode one batch of control records of raft, which have no producer."""
    spec = BatchSpec(leader_epoch=epoch, is_control=True)
    return _encoded(_columns(offset, records, timestamp), np.array([0, len(records)]), spec)


def _batches(offset: int, records: Sequence[tuple[bytes | None, bytes]], timestamp: int, epoch: int) -> bytes:
    if not records:
        return b""
    columns = _columns(offset, records, timestamp)
    boundaries = cut_batches(columns, batch_size=_BATCH_BYTES, max_records=_BATCH_RECORDS)
    return _encoded(columns, boundaries, BatchSpec(leader_epoch=epoch))


def _encoded(columns: RecordColumns, boundaries: Any, spec: BatchSpec) -> bytes:
    data: bytes = encode_batches(columns, boundaries, spec).data.tobytes()
    return data


def _columns(offset: int, records: Sequence[tuple[bytes | None, bytes]], timestamp: int) -> RecordColumns:
    n = len(records)
    return RecordColumns(
        n,
        {
            "offset": np.arange(offset, offset + n),
            "timestamp": np.full(n, timestamp, np.int64),
            "key": BinaryColumn.of([key for key, _ in records]),
            "value": BinaryColumn.of([value for _, value in records]),
        },
    )


def quorum_state(epoch: int = EPOCH) -> bytes:
    """The content of `quorum-state` of a dynamic quorum without a leader."""
    state = {
        "leaderId": -1,
        "leaderEpoch": epoch,
        "votedId": -1,
        "votedDirectoryId": "A" * 22,
        "data_version": 1,
    }
    return json.dumps(state, separators=(",", ":")).encode()
