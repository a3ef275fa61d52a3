import numpy as np
from numpy.typing import NDArray

def build_entries(
    position: NDArray[np.int64],
    last_offset: NDArray[np.int64],
    max_timestamp: NDArray[np.int64],
    base_offset: int,
    interval: int,
    carried: NDArray[np.int64],
    indexed_offset: NDArray[np.int32],
    indexed_position: NDArray[np.int32],
    indexed_timestamp: NDArray[np.int64],
    timestamp_offset: NDArray[np.int32],
) -> tuple[int, int, int, int]: ...
def look_up(
    key: NDArray[np.int64],
    value: NDArray[np.int64],
    is_sorted: bool,
    query: NDArray[np.int64],
    found: NDArray[np.int64],
) -> None: ...
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
