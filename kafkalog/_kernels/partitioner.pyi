import numpy as np
from numpy.typing import NDArray

def hash_keys(offsets: NDArray[np.int64], data: NDArray[np.uint8], hashes: NDArray[np.int32]) -> int: ...
