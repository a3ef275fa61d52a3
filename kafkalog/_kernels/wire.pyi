from typing import Final

import numpy as np
from numpy.typing import NDArray

STATUS: Final[dict[str, int]]

def decode_unsigned_varint(data: NDArray[np.uint8]) -> tuple[int, int, int]: ...
def decode_varint(data: NDArray[np.uint8]) -> tuple[int, int, int]: ...
def decode_varlong(data: NDArray[np.uint8]) -> tuple[int, int, int]: ...
