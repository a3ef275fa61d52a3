"""The same records from Parquet, read by pyarrow: what one gets by converting a segment before asking a question.

Written with pyarrow's defaults, but without dictionaries: values that hardly repeat read faster so. Read by
`ParquetFile.iter_batches` in one thread, which streams like `Scan.to_reader` does.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from page_cache import read_from_disk
from shapes import BenchSegment

from peers import Side, consume, timed

COLUMNS = ["offset", "timestamp", "key", "value"]
BATCH_ROWS = 16384


def version() -> str:
    return pa.__version__


def written_from(segment: BenchSegment) -> str:
    """The path of a Parquet file with the segment's records, compressed with its codec; written once, next to it.

    It is read from disk once, as the segment is.
    """
    import kafkalog

    path = Path(segment.path).parent.parent / "records.parquet"
    if not path.exists():
        staged = path.with_suffix(".staged")
        reader = kafkalog.scan(segment.path, columns=COLUMNS).to_reader()
        with pq.ParquetWriter(
            staged,
            reader.schema,
            compression=segment.codec.upper(),
            use_dictionary=False,
        ) as writer:
            writer.write_table(reader.read_all())
        staged.rename(path)
    read_from_disk(path)
    return str(path)


def batches_of(path: str, *, memory_map: bool = False) -> Side:
    """The four columns of a Parquet file, batch by batch."""

    def work() -> tuple[int, int]:
        with pq.ParquetFile(path, memory_map=memory_map) as file:
            return consume(file.iter_batches(BATCH_ROWS, columns=COLUMNS, use_threads=False))

    return timed(work)
