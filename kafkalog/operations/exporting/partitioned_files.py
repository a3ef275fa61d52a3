"""The files of a partitioned directory: records go to the file of their topic, partition and date."""

from __future__ import annotations

import itertools
import re
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from kafkalog.errors import LimitExceededError, Reason
from kafkalog.interchange.arrow_buffers import milliseconds
from kafkalog.interchange.input_paths import NULL_DIRECTORY
from kafkalog.interchange.record_writers import ROW_GROUP_BYTES, OutputFormat, RecordSink
from kafkalog.interchange.table_types import FIRST_DAY, LAST_DAY

PARTITION_KEYS: Final = ("topic", "partition", "date")
"""What `partition_by` takes."""

MAX_OPEN_FILES: Final = 64
"""The most files of a partitioned export that are open at a time; a closed one is continued by another part."""

_MS_PER_DAY: Final = 86_400_000
_MOST_DIGITS: Final = 300
NO_DAY: Final = np.iinfo(np.int64).min


_NUMBER: Final = re.compile(r"-?(\d+\.?\d*|\.\d+)(e-?\d+)?", re.IGNORECASE | re.ASCII)
_HEX: Final = re.compile(r"-?0x[0-9a-f]+", re.IGNORECASE)
_DATE: Final = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})", re.ASCII)


def check_topics(topics: Iterable[str]) -> None:
    """Raise ValueError for topics that readers of a partitioned directory read as one value, or as null.

    DuckDB, pyarrow, Polars and Spark read the 007 of ``topic=007`` as a number, if the other values are numbers, too.
    """
    advice = "export one at a time (topics, --topics), or do not partition by topic"
    known: dict[Hashable, str] = {}
    names = sorted(topics)
    for topic in names:
        # DuckDB takes the word for null next to numbers and dates
        if topic == NULL_DIRECTORY or (topic.lower() == "null" and names[1:]):
            raise ValueError(f"in a partitioned directory, readers take the topic {topic} for null: {advice}")
        other = known.setdefault(_as_read(topic), topic)
        if other != topic:
            raise ValueError(
                f"in a partitioned directory, readers take the topics {other} and {topic} for the same value: {advice}"
            )


def _as_read(value: str) -> Hashable:
    """The value that readers make of the name of a directory."""
    if _NUMBER.fullmatch(value):
        return Decimal(value) if len(value) < _MOST_DIGITS else float(value)
    if _HEX.fullmatch(value):
        return int(value, 16)
    if date := _DATE.fullmatch(value):
        return tuple(map(int, date.groups()))
    word = value.lower()
    return {"true": True, "false": False, "inf": "infinity", "infinity": "infinity"}.get(word, value)


class FileDirectory(Protocol):
    """Where files are created: a `StagedDirectory`, a `RemoteDirectory`, or that of a table."""

    @property
    def target(self) -> Any: ...
    def create(self, name: str) -> Any: ...


class PartitionedFiles:
    """The files of a partitioned directory, with names that begin with `name`.

    At most `MAX_OPEN_FILES` are open at a time. Together they buffer no more than one row group. A file ends at about
    `max_file_bytes`. The totals count the files that are closed; for `lost` see
    `kafkalog.interchange.table_types.Conversion`. `files` has what `describe` returns of each; by default its bytes.
    """

    def __init__(
        self,
        directory: FileDirectory,
        schema: pa.Schema,
        options: OutputFormat,
        max_directories: int,
        name: str = "part",
        *,
        max_file_bytes: int | None = None,
        describe: Callable[[RecordSink], Any] = lambda sink: sink.n_bytes,
    ) -> None:
        self._directory, self._schema, self._options = directory, schema, options
        self._max_directories, self._name = max_directories, name
        self._max_file_bytes, self._describe = max_file_bytes, describe
        self._open: OrderedDict[str, tuple[RecordSink, Any, str]] = OrderedDict()
        self._n_parts: dict[str, int] = {}
        self.files: dict[str, Any] = {}
        self.n_records = self.n_bytes = 0
        self.lost: Counter[tuple[tuple[str, ...], str]] = Counter()

    def write(self, key: str, batch: pa.RecordBatch) -> None:
        """Write records to the directory whose relative path is `key`."""
        if key not in self._open:
            self._create(key)
        self._open.move_to_end(key)
        self._open[key][0].write(batch.select([name for name in self._schema.names if name in batch.schema.names]))
        # flush only the file that holds most: this frees the memory with the fewest small row groups
        if sum(sink.held_bytes for sink, *_ in self._open.values()) >= ROW_GROUP_BYTES:
            max((sink for sink, *_ in self._open.values()), key=lambda sink: sink.held_bytes).flush()
        if self._max_file_bytes is not None and self._open[key][0].n_bytes >= self._max_file_bytes:
            self._close(key)

    def _create(self, key: str) -> None:
        part = self._n_parts.get(key, 0)
        if not part and len(self._n_parts) == self._max_directories:
            raise LimitExceededError(
                Reason.TOO_MANY_DIRECTORIES,
                f"the records need more than {self._max_directories} directories",
                path=self._directory.target,
            )
        while len(self._open) >= getattr(self._directory, "max_open_files", MAX_OPEN_FILES):
            self._close(next(iter(self._open)))  # the least recently used
        self._n_parts[key] = part + 1
        name = f"{self._name}-{part}{self._options.suffix}"
        path = f"{key}/{name}" if key else name
        file = self._directory.create(path)
        self._open[key] = self._options.open(file, self._schema), file, path

    def _close(self, key: str) -> None:
        sink, file, path = self._open[key]
        sink.close()
        file.close()
        del self._open[key]
        self.files[path] = self._describe(sink)
        self.n_records += sink.n_records
        self.n_bytes += sink.n_bytes
        self.lost.update(sink.lost)

    def close(self) -> None:
        """Finish all files."""
        for key in list(self._open):
            self._close(key)

    def abandon(self) -> None:
        """Drop what the open files have buffered, and write nothing more."""
        for sink, *_ in self._open.values():
            sink.abandon()


def split_by_directory(batch: pa.RecordBatch, keys: Sequence[str]) -> Iterator[tuple[str, pa.RecordBatch]]:
    """Split the records of a batch by directory, and keep their order in each.

    The batch must be of one segment: its topic and partition are taken from the first record.
    """
    names = {
        name: f"{name}={NULL_DIRECTORY if (value := batch.column(name)[0].as_py()) is None else value}"
        for name in keys
        if name != "date"
    }
    if "date" not in keys:
        yield "/".join(names[key] for key in keys), batch
        return
    for day, part in _split_by_day(batch):
        names["date"] = f"date={NULL_DIRECTORY if day == NO_DAY else np.datetime64(day, 'D')}"
        yield "/".join(names[key] for key in keys), part


def _split_by_day(batch: pa.RecordBatch) -> Iterator[tuple[int, pa.RecordBatch]]:
    days = days_of(batch.column("timestamp"))
    starts = np.flatnonzero(np.diff(days)) + 1
    if starts.size >= np.unique(days).size:  # the records of a day are not contiguous: sort, and keep their order
        order = np.argsort(days, kind="stable")
        batch = batch.take(pa.Array.from_buffers(pa.int64(), order.size, [None, pa.py_buffer(order)]))
        days = days[order]
        starts = np.flatnonzero(np.diff(days)) + 1
    bounds = [0, *starts.tolist(), days.size]
    for start, stop in itertools.pairwise(bounds):
        yield int(days[start]), batch.slice(start, stop - start)


def days_of(timestamps: pa.Array) -> npt.NDArray[np.int64]:
    """Return days since 1970 (UTC); `NO_DAY` without a timestamp, or outside of the years 1 to 9999."""
    stamps = milliseconds(timestamps)
    days: npt.NDArray[np.int64] = stamps // _MS_PER_DAY
    days[(stamps == -1) | (days < FIRST_DAY) | (days > LAST_DAY)] = NO_DAY
    return days
