"""kafkalog itself as a side: open, read or map, check CRCs, decode into Arrow batches of its own, drop them."""

from __future__ import annotations

from typing import Any

import kafkalog
from peers import Side, consume, timed


def streaming(path: str, **options: Any) -> Side:
    """`scan(path, **options).to_reader()` batch by batch; one thread unless `threads` says otherwise."""
    options = {"threads": 1, **options}
    return timed(lambda: consume(kafkalog.scan(path, **options).to_reader()))
