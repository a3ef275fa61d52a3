from typing import Final

import numpy as np
from numpy.typing import NDArray

STATUSES: Final[dict[str, int]]
STATE: Final[dict[str, int]]
BATCH_SIZE: Final[int]
RECORD_SIZE: Final[int]

def walk_batches(
    window: NDArray[np.uint8],
    window_start: int,
    stop: int,
    file_size: int,
    deep: bool,
    max_batch_bytes: int,
    max_headers: int,
    state: NDArray[np.int64],
    batches: NDArray[np.uint8],
    records: NDArray[np.uint8],
) -> tuple[int, int, int]: ...
def walk_payload(
    batch_bytes: NDArray[np.uint8],
    position: int,
    payload: NDArray[np.uint8],
    max_headers: int,
    state: NDArray[np.int64],
    batches: NDArray[np.uint8],
    records: NDArray[np.uint8],
) -> tuple[int, int]: ...
