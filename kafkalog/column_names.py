"""The names of the columns of records, in the order in which they are returned."""

from __future__ import annotations

from typing import Final

PLACE_COLUMNS: Final = ("topic", "partition")
"""Columns for the partition of a record; they are not part of it."""
OWN_COLUMNS: Final = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
"""Columns of a record itself that are read by default."""
EXTRA_COLUMNS: Final = (
    "leader_epoch",
    "producer_id",
    "producer_epoch",
    "sequence",
    "is_transactional",
    "is_control",
    "compression",
    "batch_base_offset",
    "batch_position",
    "segment",
)
"""Columns that are read on request, most of them out of the header of the batch."""
DEFAULT_COLUMNS: Final = (*PLACE_COLUMNS, *OWN_COLUMNS)
ALL_COLUMNS: Final = (*DEFAULT_COLUMNS, *EXTRA_COLUMNS)
CONTEXT_COLUMNS: Final = (*PLACE_COLUMNS, "segment")
"""Columns for where a record or a batch is stored, with one value per segment."""
TEXT_COLUMNS: Final = tuple(name for name in DEFAULT_COLUMNS if name != "timestamp_type")
"""Columns that people get by default: those of lines of text, and the fields of a `Record`."""
