"""Programs: what a kernel has no memory for is divided."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from kafkalog.values.formats.program import Columns, ProgramValues
from kafkalog.values.payloads import Payloads


class _Kernel:
    """Has memory for two values at a time, and for none of the bytes `large`."""

    FAILURES: ClassVar[dict[int, str]] = {7: "odd"}

    @staticmethod
    def decode(data: Any, start: Any, stop: Any, room: int, failures: Any) -> list[Any]:
        values = [data[a:b].tobytes() for a, b in zip(start, stop, strict=True)]
        if len(values) > 2 or b"large" in values:
            raise MemoryError
        failures[:] = [7 if value == b"odd" else 0 for value in values]
        numbers = np.array([len(value) for value in values], np.int32)
        return [(len(values), (failures == 0).tobytes(), None, numbers.tobytes())]


class _Values(ProgramValues):
    kernel: ClassVar[Any] = _Kernel


def test_values_that_take_too_much_memory_together_are_decoded_in_parts() -> None:
    columns = Columns()
    columns.add("flat", pa.int32(), True, 4)
    found = _Values(columns, []).decode(Payloads.of(pa.array([b"a", b"bb", b"large", b"odd", b""], pa.binary())))
    assert found.array.to_pylist() == [1, 2, None, None, 0]
    assert found.failures == {2: "the value takes too much memory", 3: "odd"}
