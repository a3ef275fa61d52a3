"""`Source`: an input of record batches for a load."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import pyarrow as pa


class Source(NamedTuple):
    """An input of record batches: a table or a file.

    `batches` is called with a function that chooses the columns to read from a schema. `path` is for messages. `done`
    returns how many bytes of all inputs are read.
    """

    batches: Callable[[Callable[[pa.Schema], Sequence[str]]], Iterable[pa.RecordBatch]]
    path: str | None = None
    done: Callable[[], int] = lambda: 0
    schema: pa.Schema | None = None
    """The schema, if it is known without reading a batch; it is checked even if there are no batches."""
