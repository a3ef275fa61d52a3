"""`kafkalog.verify` as a Spark job: executors check each segment, then each partition across its segments."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from kafkalog import format as kf
from kafkalog.errors import Finding, Limits, Loss
from kafkalog.log.partition import Partition
from kafkalog.operations.verifying.segment import SegmentCheck
from kafkalog.operations.verifying.verified_partitions import VerifiedSegment
from kafkalog.operations.verifying.verify import partitions_to_verify, verified_partition
from kafkalog.scanning.planning import TASK_BYTES
from kafkalog.spark import runner
from kafkalog.survey.evidence import LogDirState
from kafkalog.survey.losses import Lost

_NUMBERS: Final = ("base_offset", "last_offset", "size_in_bytes", "n_batches")
SCHEMA: Final = pa.schema(
    [
        pa.field("kind", pa.string()),
        *runner.PLACE_FIELDS,
        *(pa.field(name, pa.int64()) for name in _NUMBERS),
        pa.field("ok", pa.bool_()),
        pa.field("n_damage", pa.int64()),
        pa.field("lost", runner.row_type(Loss)),
        pa.field("losses", pa.list_(runner.row_type(Lost))),
        runner.FINDINGS_FIELD,
    ]
)


def verify(
    spark: SparkSession,
    path: Any,
    *,
    topics: str | Sequence[str] | None = None,
    partitions: int | Sequence[int] | None = None,
    indexes_only: bool = False,
    deep: bool = False,
    index_interval_bytes: int | None = None,
    task_bytes: int = 4 * TASK_BYTES,
    limits: Limits | None = None,
) -> DataFrame:
    """Verify log dirs; the job runs before this returns.

    Parameters
    ----------
    spark : pyspark.sql.SparkSession
    path, topics, partitions, indexes_only, deep, index_interval_bytes
        See `kafkalog.verify`.
    task_bytes : int
        About how many bytes of `.log` files a task checks; at least one segment.
    limits : Limits, optional
        `max_findings` are kept for each segment, by default 100; further ones are only counted.

    Returns
    -------
    pyspark.sql.DataFrame
        A row for each segment (`kind` is "segment"), for each partition ("partition": `ok` is about the whole
        partition, the findings are about its other files), and one for the log dirs ("log_dir").

    Raises
    ------
    NotKafkaError, ReadError
        There is nothing to verify, or an executor cannot open what the driver has listed.

    Examples
    --------
    >>> kafkalog.spark.verify(spark, "/backup/kafka").where("not ok").show()  # doctest: +SKIP
    """
    limits = limits or Limits(max_findings=runner.MAX_FINDINGS)
    found: list[Finding] = []
    chosen = partitions_to_verify(runner.absolute(path), topics, partitions, limits, found)
    wholes = [(partition, LogDirState.of(partition)) for partition in chosen]
    check = SegmentCheck(
        crcs=not indexes_only, deep=deep, interval_bytes=index_interval_bytes, limits=limits, progress=lambda n: None
    )
    pieces = [runner.piece_of(one, state) for whole, state in wholes for one in whole.segments]
    checked = iter(runner.results(spark, pieces, lambda about: check.run(*about), task_bytes=task_bytes))
    joined = [
        runner.Piece((whole, state, [next(checked) for _ in whole.segments]), whole.size_in_bytes)
        for whole, state in wholes
    ]
    across = partial(_check_across, indexes_only=indexes_only, limits=limits)
    # reads little but transaction indexes, epochs and snapshots
    verified = runner.results(spark, joined, across, task_bytes=16 * task_bytes)
    return runner.frame_of(spark, [*itertools.chain(*verified), _row("log_dir", None, None, None, found, 0)], SCHEMA)


def _check_across(
    about: tuple[Partition, LogDirState, list[VerifiedSegment]], *, indexes_only: bool, limits: Limits
) -> list[dict[str, Any]]:
    """Return the rows of a partition and of its segments."""
    partition, state, segments = about
    found = verified_partition(partition, segments, state, indexes_only=indexes_only, limits=limits)
    key = found.topic_partition
    rows = [_row("segment", one.path, key, one, one.findings, one.n_more_findings) for one in found.segments]
    n_more = found.n_more_findings - sum(one.n_more_findings for one in found.segments)
    more = {"lost": found.loss.as_dict(), "losses": [one.as_dict() for one in found.losses]}
    row = _row("partition", found.path, key, None, found.own_findings, n_more)
    return [*rows, {**row, **more, "ok": found.ok and not n_more}]


def _row(
    kind: str,
    path: str | None,
    key: kf.TopicPartition | None,
    segment: VerifiedSegment | None,
    findings: Sequence[Finding],
    n_more: int,
) -> dict[str, Any]:
    n_damage = sum(finding.damage for finding in findings) + n_more
    return {
        "kind": kind,
        **runner.place_of(path, key),
        **{name: getattr(segment, name, None) for name in _NUMBERS},
        "ok": not n_damage,
        "n_damage": n_damage,
        "findings": [one.as_dict() for one in findings],
    }
