"""How many inputs tests make: a plain run takes a part of what KAFKALOG_THOROUGH=1 takes."""

from __future__ import annotations

import os
from typing import Final

THOROUGH: Final = os.environ.get("KAFKALOG_THOROUGH", "") not in ("", "0")


def examples(n: int) -> int:
    """Examples of a property that is to be tried with `n`: a fifth in a plain run, which has others each time."""
    return n if THOROUGH else max(10, n // 5)


def fuzz_inputs() -> int:
    """Inputs of each fuzzer; `KAFKALOG_FUZZ_N` says how many."""
    return int(os.environ.get("KAFKALOG_FUZZ_N") or (60_000 if THOROUGH else 12_000))
