import numpy as np
from numpy.typing import NDArray

def walk_records(
    data: NDArray[np.uint8],
    payload_start: NDArray[np.int64],
    payload_end: NDArray[np.int64],
    base_offset: NDArray[np.int64],
    base_timestamp: NDArray[np.int64],
    max_timestamp: NDArray[np.int64],
    attributes: NDArray[np.int16],
    records_count: NDArray[np.int32],
    crc: NDArray[np.uint32],
    check_crc: bool,
    max_headers: int,
    max_batch_headers: int,
    offset: NDArray[np.int64],
    timestamp: NDArray[np.int64],
    key_start: NDArray[np.int32],
    key_size: NDArray[np.int32],
    value_start: NDArray[np.int32],
    value_size: NDArray[np.int32],
    headers_start: NDArray[np.int32] | None,
    headers_count: NDArray[np.int32] | None,
) -> tuple[int, int, int, int, int]: ...
def measure_binary(size: NDArray[np.int32], rows: NDArray[np.int64] | None) -> tuple[int, int]: ...
def fill_binary(
    data: NDArray[np.uint8],
    start: NDArray[np.int32],
    size: NDArray[np.int32],
    rows: NDArray[np.int64] | None,
    out_offsets: NDArray[np.int64],
    out_data: NDArray[np.uint8],
    out_validity: NDArray[np.uint8] | None,
) -> int: ...
def walk_headers(
    data: NDArray[np.uint8],
    headers_start: NDArray[np.int32],
    headers_count: NDArray[np.int32],
    rows: NDArray[np.int64] | None,
    out_offsets: NDArray[np.int64],
    key_start: NDArray[np.int32],
    key_size: NDArray[np.int32],
    value_start: NDArray[np.int32],
    value_size: NDArray[np.int32],
) -> tuple[int, int]: ...
