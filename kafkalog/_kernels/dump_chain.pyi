import numpy as np
from numpy.typing import NDArray

def find_last_offsets(
    window: NDArray[np.uint8],
    window_start: int,
    file_size: int,
    position: NDArray[np.int64],
    max_bytes: int,
    last_offset: NDArray[np.int64],
) -> tuple[int, int]: ...
def walk_chain(
    window: NDArray[np.uint8],
    window_start: int,
    start: int,
    file_size: int,
    position: NDArray[np.int64],
    last_offset: NDArray[np.int64],
) -> tuple[int, int, int]: ...
