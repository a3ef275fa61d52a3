import numpy as np
from numpy.typing import NDArray

def walk_messages(
    data: NDArray[np.uint8],
    start: NDArray[np.int64],
    size: NDArray[np.int32],
    magic: NDArray[np.int8],
    crc: NDArray[np.uint32],
    check_crc: bool,
    key_start: NDArray[np.int32],
    key_size: NDArray[np.int32],
    value_start: NDArray[np.int32],
    value_size: NDArray[np.int32],
) -> tuple[int, int]: ...
def walk_message_set(
    data: NDArray[np.uint8],
    start: int,
    stop: int,
    wrapper_offset: int,
    wrapper_magic: int,
    wrapper_attributes: int,
    wrapper_timestamp: int,
    offset: NDArray[np.int64],
    timestamp: NDArray[np.int64],
    timestamp_type: NDArray[np.int8],
    key_start: NDArray[np.int32],
    key_size: NDArray[np.int32],
    value_start: NDArray[np.int32],
    value_size: NDArray[np.int32],
) -> tuple[int, int, int]: ...
