"""Keys and values that a decoder rejects: the first one of each topic, how many there are, and why."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from kafkalog.calls import leading_names
from kafkalog.errors import CorruptionWarning, Finding, KafkalogError, Reason
from kafkalog.format import SCHEMAS_TOPIC
from kafkalog.log.open import partitions_of
from kafkalog.log.partition import Partition
from kafkalog.scanning.scan import Scan
from kafkalog.values.decoding import OTHER_REASONS, DecodeWarning
from kafkalog.values.options import parse_decode

_MOST_REASONS: Final = 20


@leading_names
@dataclass(slots=True)
class VerifiedValues:
    """The keys or the values of a topic, decoded."""

    topic: str | None
    column: str
    """``"key"`` or ``"value"``."""
    n_records: int = 0
    n_undecoded: int = 0
    """Those that do not decode, or of which a field is lost."""
    first_partition: int | None = None
    first_offset: int | None = None
    first_reason: str | None = None
    """The first one in the order of partitions and offsets."""
    reasons: dict[str, int] = field(default_factory=dict)
    """How many there are for each reason, the most frequent first."""
    path: str | None = None
    """The partition of the first one."""

    @property
    def ok(self) -> bool:
        """Whether everything decodes."""
        return not self.n_undecoded

    def to_finding(self) -> Finding:
        """A finding about the first one."""
        what = f"{self.n_undecoded} of {self.n_records} {self.column}s do not decode, the first: {self.first_reason}"
        return Finding(Reason.VALUE_UNDECODED, what, path=self.path, base_offset=self.first_offset)


def verify_values(path: Any, progress: Callable[[int], object] | None = None, **options: Any) -> list[VerifiedValues]:
    """Decode all keys or values of the topics; `progress` gets numbers of bytes of `.log` files.

    `options` are `decode`, and others of `kafkalog.scan`. The topic with schemas is left out unless `topics` names it.
    """
    columns = sorted(parse_decode(options["decode"]), reverse=True)
    options = {"on_corruption": "skip", **options}
    chosen = options.pop("topics", None), options.get("partitions")
    found: list[VerifiedValues] = []
    for topic, paths in sorted(_topics(path, *chosen).items(), key=lambda one: one[0] or ""):
        scan = Scan(
            path,
            columns=["partition", "offset", *(f"{name}_error" for name in columns)],
            **{**options, "topics": None if topic is None else [topic]},
        )
        scan.progress = progress
        rows = [VerifiedValues(topic, name) for name in columns]
        with warnings.catch_warnings():
            # damage is reported by the check of the files
            warnings.simplefilter("ignore", CorruptionWarning)
            warnings.simplefilter("ignore", DecodeWarning)
            for batch in scan.to_batches():
                for row in rows:
                    _count(row, batch, paths)
        found += rows
    return found


def _topics(path: Any, topics: Any, partitions: Any) -> dict[str | None, dict[int | None, str]]:
    """The topics, and the paths of their partitions."""
    found: dict[str | None, dict[int | None, str]] = {}
    for one in _opened(path, topics, partitions):
        topic, partition = one.topic_partition or (None, None)
        if topic != SCHEMAS_TOPIC or topics is not None or isinstance(path, Partition):
            found.setdefault(topic, {})[partition] = str(one.path)
    return found


def _opened(path: Any, topics: Any, partitions: Any) -> Iterator[Partition]:
    for one in partitions_of(path, topics, partitions, internal=topics is not None):
        if not isinstance(one, KafkalogError):
            yield one


def _count(row: VerifiedValues, batch: pa.RecordBatch, paths: dict[int | None, str]) -> None:
    row.n_records += batch.num_rows
    errors = batch.column(f"{row.column}_error")
    if errors.null_count == len(errors):
        return
    counts = Counter(row.reasons)
    for i, reason in enumerate(errors.to_pylist()):
        if reason is None:
            continue
        if not row.n_undecoded:
            row.first_partition, row.first_offset = (
                batch.column("partition")[i].as_py(),
                batch.column("offset")[i].as_py(),
            )
            row.first_reason, row.path = reason, paths.get(row.first_partition)
        row.n_undecoded += 1
        # reasons may name what the bytes hold: their number has to have a bound
        counts[reason if reason in counts or len(counts) < _MOST_REASONS else OTHER_REASONS] += 1
    row.reasons = dict(counts.most_common())
