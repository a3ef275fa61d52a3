import numpy as np
from numpy.typing import NDArray

def choose_rising(
    weight: NDArray[np.int64],
    rank_first: NDArray[np.int64],
    rank_last: NDArray[np.int64],
    tree: NDArray[np.int64],
    tree_row: NDArray[np.int32],
    before: NDArray[np.int32],
    chosen: NDArray[np.uint8],
) -> None: ...
