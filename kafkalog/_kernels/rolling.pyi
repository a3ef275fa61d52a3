import numpy as np
from numpy.typing import NDArray

def count_until_roll(
    size_in_bytes: NDArray[np.int32],
    last_offset: NDArray[np.int64],
    max_timestamp: NDArray[np.int64],
    base_offset: int,
    segment_bytes: int,
    roll_ms: int,
    interval: int,
    max_offset_entries: int,
    max_time_entries: int,
    carried: NDArray[np.int64],
) -> int: ...
