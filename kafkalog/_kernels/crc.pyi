from typing import Final

import numpy as np
from numpy.typing import NDArray

LEVELS: Final[tuple[str, ...]]
implementation: Final[str]
# what other kernels cimport; crc.pxd has their types
__pyx_capi__: Final[dict[str, object]]

def use_level(level: int) -> str: ...
def checksum_crc32c(data: NDArray[np.uint8]) -> int: ...
def checksum_crc32(data: NDArray[np.uint8]) -> int: ...
def checksum_xxh32(data: NDArray[np.uint8] | bytes | memoryview) -> int: ...
def check_crcs(
    window: NDArray[np.uint8],
    window_start: int,
    position: NDArray[np.int64],
    size_in_bytes: NDArray[np.int32],
    magic: NDArray[np.int8],
    crc: NDArray[np.uint32],
    valid: NDArray[np.uint8],
) -> tuple[int, int, int]: ...
