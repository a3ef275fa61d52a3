from typing import Final, Self, final

import numpy as np
from numpy.typing import NDArray

OPERATIONS: Final[dict[str, int]]

def match_bytes(
    data: NDArray[np.uint8],
    start: NDArray[np.int32],
    size: NDArray[np.int32],
    operation: int,
    needle: NDArray[np.uint8],
    mask: NDArray[np.uint8],
) -> None: ...

@final
class TextSet:
    @property
    def n_texts(self) -> int: ...
    def __new__(cls, texts: NDArray[np.uint8], offsets: NDArray[np.int64]) -> Self: ...

def match_set(
    data: NDArray[np.uint8],
    start: NDArray[np.int32],
    size: NDArray[np.int32],
    texts: TextSet,
    null_is_in: bool,
    negate: bool,
    mask: NDArray[np.uint8],
) -> None: ...
def match_header(
    data: NDArray[np.uint8],
    headers_start: NDArray[np.int32],
    headers_count: NDArray[np.int32],
    name: NDArray[np.uint8],
    operation: int,
    needle: NDArray[np.uint8],
    any_value: bool,
    negate: bool,
    mask: NDArray[np.uint8],
) -> None: ...
