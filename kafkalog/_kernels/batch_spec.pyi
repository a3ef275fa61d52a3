from typing import Self, final

import numpy as np
from numpy.typing import NDArray

@final
class Heads:
    def __new__(
        cls,
        base_offset: NDArray[np.int64],
        last_offset: NDArray[np.int64],
        leader_epoch: NDArray[np.int32],
        attributes: NDArray[np.int16],
        base_timestamp: NDArray[np.int64],
        max_timestamp: NDArray[np.int64],
        producer_id: NDArray[np.int64],
        producer_epoch: NDArray[np.int16],
        base_sequence: NDArray[np.int32],
        records_count: NDArray[np.int32],
    ) -> Self: ...
    def __len__(self) -> int: ...

def write_heads(
    heads: Heads,
    first_batch: int,
    position: NDArray[np.int64],
    size: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> None: ...
