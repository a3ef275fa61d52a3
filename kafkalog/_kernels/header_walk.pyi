from typing import Final

import numpy as np
from numpy.typing import NDArray

from kafkalog._kernels.fill import Filler
from kafkalog._kernels.header_rows import HeaderRows

__pyx_capi__: Final[dict[str, object]]

def walk_batches(
    window: NDArray[np.uint8],
    start: int,
    window_start: int,
    previous_offset: int,
    position: NDArray[np.int64],
    size_in_bytes: NDArray[np.int32],
    base_offset: NDArray[np.int64],
    last_offset: NDArray[np.int64],
    leader_epoch: NDArray[np.int32],
    magic: NDArray[np.int8],
    crc: NDArray[np.uint32],
    attributes: NDArray[np.int16],
    base_timestamp: NDArray[np.int64],
    max_timestamp: NDArray[np.int64],
    producer_id: NDArray[np.int64],
    producer_epoch: NDArray[np.int16],
    base_sequence: NDArray[np.int32],
    records_count: NDArray[np.int32],
    control_type: NDArray[np.int16],
) -> tuple[int, int, int, int]: ...
def read_intact(
    descriptor: int,
    start: int,
    stop: int,
    previous_offset: int,
    max_batch_bytes: int,
    check_crc: bool,
    stop_at: int,
    start_offset: int,
    end_offset: int,
    read_bytes: int,
    room: NDArray[np.uint8] | None,
    data: NDArray[np.uint8] | None,
    filler: Filler | None,
    rows: HeaderRows,
) -> tuple[int, int, int]: ...
def read_headers(
    descriptor: int,
    start: int,
    stop: int,
    previous_offset: int,
    max_batch_bytes: int,
    stop_at: int,
    rows: HeaderRows,
    data: NDArray[np.uint8] | None = None,
) -> int: ...
def find_boundary(of: int | NDArray[np.uint8], start: int, stop: int, n_bytes: int) -> int: ...
def survey_batches(
    position: NDArray[np.int64],
    size_in_bytes: NDArray[np.int32],
    magic: NDArray[np.int8],
    attributes: NDArray[np.int16],
    records_count: NDArray[np.int32],
    window_start: int,
    payload_start: NDArray[np.int64],
    payload_end: NDArray[np.int64],
) -> tuple[int, int, int, int]: ...
