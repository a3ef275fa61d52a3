from typing import Final, Self, final

import numpy as np
from numpy.typing import NDArray

from kafkalog._kernels.batch_spec import Heads

STATUSES: Final[dict[str, int]]
SLACK: Final[int]

@final
class Columns:
    def __new__(
        cls,
        offset: NDArray[np.int64],
        timestamp: NDArray[np.int64],
        key_offsets: NDArray[np.int64] | None,
        key_data: NDArray[np.uint8] | None,
        key_valid: NDArray[np.uint8] | None,
        value_offsets: NDArray[np.int64] | None,
        value_data: NDArray[np.uint8] | None,
        value_valid: NDArray[np.uint8] | None,
        headers_offsets: NDArray[np.int64] | None,
        header_key_offsets: NDArray[np.int64] | None,
        header_key_data: NDArray[np.uint8] | None,
        header_key_valid: NDArray[np.uint8] | None,
        header_value_offsets: NDArray[np.int64] | None,
        header_value_data: NDArray[np.uint8] | None,
        header_value_valid: NDArray[np.uint8] | None,
        any_header_keys: bool = False,
    ) -> Self: ...
    def __len__(self) -> int: ...

def cut_batches(
    columns: Columns, batch_size: int, max_records: int, boundaries: NDArray[np.int64]
) -> tuple[int, int, int]: ...
def measure_batches(
    columns: Columns,
    boundaries: NDArray[np.int64],
    base_offset: NDArray[np.int64],
    base_timestamp: NDArray[np.int64],
    body_size: NDArray[np.int32],
    payload_size: NDArray[np.int64],
    max_timestamp: NDArray[np.int64],
) -> tuple[int, int, int]: ...
def write_batches(
    columns: Columns,
    boundaries: NDArray[np.int64],
    heads: Heads,
    body_size: NDArray[np.int32],
    payload_size: NDArray[np.int64],
    first_batch: int,
    stop_batch: int,
    framed: bool,
    out: NDArray[np.uint8],
) -> tuple[int, int]: ...
