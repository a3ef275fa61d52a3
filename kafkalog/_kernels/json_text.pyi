from typing import Any

import numpy as np
import numpy.typing as npt

OPS: dict[str, int]
KINDS: dict[str, int]
FAILURES: dict[int, str]

def decode(
    nodes: npt.NDArray[np.int32],
    columns: npt.NDArray[np.int32],
    column_children: npt.NDArray[np.int32],
    symbol_offsets: npt.NDArray[np.int32],
    symbols: npt.NDArray[np.uint8],
    powers: npt.NDArray[np.uint64],
    data: npt.NDArray[np.uint8],
    start: npt.NDArray[np.int64],
    stop: npt.NDArray[np.int64],
    room: int,
    failures: npt.NDArray[np.int32],
) -> list[tuple[int, Any, Any, Any]]: ...
