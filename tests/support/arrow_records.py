"""What is written of an Arrow table: rows, or the refusal."""

import pyarrow as pa
import pytest

from kafkalog.errors import UnwritableError
from kafkalog.interchange.arrow_input import record_slices


def rows(slices):
    """Timestamp, key, value and headers of all records."""
    return [
        row
        for part in slices
        for row in zip(
            part.timestamp.tolist(),
            part.key.to_pylist(),
            part.value.to_pylist(),
            part.headers.to_pylist(),
            strict=True,
        )
    ]


def values(data, **options):
    return [row[2] for row in rows(record_slices(data, **options))]


def stamps(array, **options):
    return [row[0] for row in rows(record_slices({"value": pa.nulls(len(array)), "timestamp": array}, **options))]


def refusal(data, **options):
    with pytest.raises(UnwritableError) as caught:
        list(record_slices(data, **options))
    return caught.value
