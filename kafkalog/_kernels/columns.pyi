import numpy as np
from numpy.typing import NDArray

def gather(
    offsets: NDArray[np.int64],
    data: NDArray[np.uint8],
    rows: NDArray[np.int64],
    to_offsets: NDArray[np.int64],
    to: NDArray[np.uint8],
) -> int: ...
def make_objects(
    offsets: NDArray[np.int64], data: NDArray[np.uint8], valid: NDArray[np.uint8] | None, to: NDArray[np.object_]
) -> int: ...
