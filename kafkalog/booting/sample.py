"""`sample`: a small log dir to try the commands on, made by kafkalog itself."""

from __future__ import annotations

import json
import os
import random
import tempfile
import uuid
import warnings
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from kafkalog import format as kf
from kafkalog.booting.coordinators import DEFAULT_PARTITIONS, coordinator_partition, write_commits
from kafkalog.errors import TransactionWarning
from kafkalog.log.log_dir import LogDir
from kafkalog.parsing import parse_milliseconds
from kafkalog.state.checkpoints import encode_offset_checkpoint, parse_topic_id
from kafkalog.storage.output_paths import check_outside
from kafkalog.storage.staging import staged_directory
from kafkalog.system_topics.commits_file import Commit
from kafkalog.text import MILLISECONDS
from kafkalog.writing.partition_writer import PartitionWriter, Producer

_DAY_MS: Final = MILLISECONDS["d"]
_N_ORDERS: Final = 400
"""Of each partition, over two days."""
_FRUIT: Final = ("apple", "banana", "cherry", "pear", "plum")
_TORN_BYTES: Final = 90


def sample(output: str | os.PathLike[str], *, now: int | str | datetime | None = None) -> LogDir:
    """Write a small log dir to try things on: topics, consumer groups, transactions and a torn last batch.

    Parameters
    ----------
    output : path-like
        A new directory, outside of any log dir.
    now : int (ms), str or aware datetime, optional
        The time of the last records; default: the system clock. The records of one time are always the same.

    Returns
    -------
    LogDir

    Raises
    ------
    OutputExistsError, UnsafePathError, WriteError
        The output exists, lies in a log dir, or cannot be written.

    Notes
    -----
    ``orders`` has three partitions of JSON, the last of which ends in a torn batch, as after a crash. ``customers`` has
    several records per key. ``payments`` has committed and aborted transactions, and one that is open. The groups
    ``billing`` and ``reports`` have committed offsets.

    Examples
    --------
    >>> import tempfile
    >>> log_dir = kafkalog.sample(tempfile.mkdtemp())
    >>> log_dir.topics
    ['__consumer_offsets', 'customers', 'orders', 'payments']
    """
    now_ms = parse_milliseconds("now", "now" if now is None else now)
    check_outside(output, [], is_new=True)
    chance = random.Random(7)
    with staged_directory(output) as staged:
        topic_ids = {topic: _topic_id(chance) for topic in ("orders", "customers", "payments", kf.CONSUMER_OFFSETS)}
        ends = _write_orders(staged.path, topic_ids["orders"], now_ms, chance)
        ends |= _write_customers(staged.path, topic_ids["customers"], now_ms)
        ends |= _write_payments(staged.path, topic_ids["payments"], now_ms)
        _write_groups(staged.path, topic_ids[kf.CONSUMER_OFFSETS], ends, now_ms)
        staged.put(kf.META_PROPERTIES, b"version=1\nnode.id=1\ncluster.id=" + _topic_id(chance).encode() + b"\n")
        staged.put(kf.HIGH_WATERMARK_CHECKPOINT, encode_offset_checkpoint(ends))
    return LogDir([output])


def _write_orders(root: Path, topic_id: str, now_ms: int, chance: random.Random) -> dict[kf.TopicPartition, int]:
    ends = {}
    for number in range(3):
        step = 2 * _DAY_MS // _N_ORDERS
        stamps = [now_ms - (_N_ORDERS - index) * step + number for index in range(_N_ORDERS)]
        orders = [
            {
                "id": 3 * index + number,
                "user": f"user-{chance.randrange(50)}",
                "fruit": chance.choice(_FRUIT),
                "total": chance.randrange(100, 10_000) / 100,
            }
            for index in range(_N_ORDERS)
        ]
        path = root / f"orders-{number}"
        with PartitionWriter(path, topic_id=topic_id, compression="zstd", batch_size=4096) as writer:
            writer.append(_table([str(order["user"]) for order in orders], orders, stamps))
            end = writer.next_offset
        ends[kf.TopicPartition("orders", number)] = end
    _tear(path, end, now_ms)
    return ends


def _tear(path: Path, end: int, now_ms: int) -> None:
    """Append the first bytes of one more batch, as a crash leaves it."""
    with tempfile.TemporaryDirectory() as scratch:
        with PartitionWriter(Path(scratch, path.name), start_offset=end) as writer:
            writer.append(_table(["user-1"], [{"id": -1, "user": "user-1", "fruit": "plum", "total": 1.0}], [now_ms]))
        batch = Path(scratch, path.name, kf.segment_file_name(end)).read_bytes()
    with (path / kf.segment_file_name(0)).open("ab") as file:
        file.write(batch[:_TORN_BYTES])
        file.flush()
        os.fsync(file.fileno())


def _write_customers(root: Path, topic_id: str, now_ms: int) -> dict[kf.TopicPartition, int]:
    rows = [{"name": f"user-{index % 50}", "level": index // 50} for index in range(200)]
    stamps = [now_ms - _DAY_MS + index * 1000 for index in range(len(rows))]
    with PartitionWriter(root / "customers-0", topic_id=topic_id, compression="lz4") as writer:
        writer.append(_table([str(row["name"]) for row in rows], rows, stamps))
        return {writer.topic_partition: writer.next_offset}


def _write_payments(root: Path, topic_id: str, now_ms: int) -> dict[kf.TopicPartition, int]:
    producers = [Producer(1000 + number, 0) for number in range(3)]
    with warnings.catch_warnings(), PartitionWriter(root / "payments-0", topic_id=topic_id) as writer:
        warnings.simplefilter("ignore", TransactionWarning)  # the last one stays open on purpose
        for number in range(12):
            time_ms = now_ms - (12 - number) * 3_600_000
            rows = [{"order": 10 * number + index, "paid": True} for index in range(10)]
            producer = producers[number % 2] if number < 11 else producers[2]
            keys = [f"order-{row['order']}" for row in rows]
            writer.append(_table(keys, rows, [time_ms] * len(rows)), producer=producer, transactional=True)
            if number == 5:
                writer.abort_transaction(producer=producer, timestamp=time_ms + 500)
            elif number < 11:
                writer.commit_transaction(producer=producer, timestamp=time_ms + 500)
        end = writer.next_offset
        writer.close()
    return {kf.TopicPartition("payments", 0): end}


def _write_groups(root: Path, topic_id: str, ends: dict[kf.TopicPartition, int], now_ms: int) -> None:
    by_partition: dict[int, list[Commit]] = {}
    for group, lag in (("billing", 0), ("reports", 120)):
        commits = [
            Commit(group, key.topic, key.partition, end - lag * (key.partition + 1), 0, "", now_ms)
            for key, end in ends.items()
            if key.topic == "orders"
        ]
        by_partition.setdefault(coordinator_partition(group, DEFAULT_PARTITIONS), []).extend(commits)
    write_commits(root, by_partition, topic_id, now_ms)


def _table(keys: list[str], rows: list[dict[str, Any]], stamps: list[int]) -> dict[str, Any]:
    import pyarrow as pa

    return {
        "key": [key.encode() for key in keys],
        "value": [json.dumps(row).encode() for row in rows],
        "timestamp": pa.array(stamps, pa.int64()),
    }


def _topic_id(chance: random.Random) -> str:
    return parse_topic_id(uuid.UUID(int=chance.getrandbits(128), version=4))
