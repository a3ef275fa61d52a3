import numpy as np
from numpy.typing import NDArray

KINDS: dict[str, int]
BLOCK_BYTES: int
EXPECTED: int
LOOK_INSIDE: int

def scan_window(
    window: NDArray[np.uint8],
    start: int,
    window_start: int,
    file_size: int,
    max_batch_bytes: int,
    sums: NDArray[np.uint32],
    legacy_sums: NDArray[np.uint32],
    n_sums: NDArray[np.int64],
    state: NDArray[np.int64],
    position: NDArray[np.int64],
    size_in_bytes: NDArray[np.int32],
    first_offset: NDArray[np.int64],
    last_offset: NDArray[np.int64],
    leader_epoch: NDArray[np.int32],
    kind: NDArray[np.int8],
) -> tuple[int, int, int, int]: ...
def choose_rising(
    weight: NDArray[np.int64],
    rank_first: NDArray[np.int64],
    rank_last: NDArray[np.int64],
    tree: NDArray[np.int64],
    tree_row: NDArray[np.int32],
    before: NDArray[np.int32],
    chosen: NDArray[np.uint8],
) -> None: ...
