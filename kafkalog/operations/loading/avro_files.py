"""Reads Avro's container files, such as those of Kafka Connect's sinks, as record batches (with `fastavro`)."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.types as pt

from kafkalog.errors import ReadError, Reason, not_installed
from kafkalog.protocol.encoder import uvarint
from kafkalog.storage.files import file_status
from kafkalog.values.formats.avro import AvroValues
from kafkalog.values.payloads import Payloads
from kafkalog.values.types import SchemaError, TooWideError


class AvroFile:
    """A container file; has what `kafkalog.interchange.record_files.RecordFile` has: `name`, and `size` and `done`.

    fastavro reads and unpacks the blocks; their rows are decoded as values of this format are, into the same types.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.name, self.done = os.fspath(path), 0
        self.size: int = file_status(path).st_size

    def batches(self, wanted: Callable[[pa.Schema], Sequence[str]]) -> Iterator[pa.RecordBatch]:
        """The rows, a record batch for each block; a value that is no record is in the column `value`."""
        try:
            import fastavro
        except ImportError as error:
            raise ImportError(not_installed("a load of Avro files needs fastavro", "avro")) from error
        try:
            with open(self.name, "rb") as file:
                blocks = fastavro.block_reader(file)
                values = _values(blocks.metadata["avro.schema"])
                for block in blocks:
                    yield _rows(values, block)
                    self.done = file.tell()
        # fastavro and the codecs raise errors of many types about bytes that are no Avro
        except Exception as error:
            detail = f"not readable as avro, near byte {self.done}: {' '.join(str(error).split())}"
            raise ReadError(Reason.FILE_UNREADABLE, detail, path=self.name) from error


def _values(schema: str) -> AvroValues:
    try:
        # a block is the items of an array
        return AvroValues(json.dumps({"type": "array", "items": json.loads(schema)}))
    except (SchemaError, TooWideError) as error:
        raise ValueError(f"its schema: {error}") from None


def _rows(values: AvroValues, block: Any) -> pa.RecordBatch:
    array = b"".join((uvarint(block.num_records << 1), block.bytes_.read(), b"\0"))
    decoded = values.decode(Payloads.of(pa.array([array], pa.large_binary())))
    if decoded.failures:
        raise ValueError(decoded.failures[0])
    items = decoded.array.flatten()
    if not pt.is_struct(items.type):
        return pa.RecordBatch.from_arrays([items], ["value"])
    return pa.RecordBatch.from_arrays(items.flatten(), [field.name for field in items.type])
