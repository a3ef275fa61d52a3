from typing import Final

import numpy as np
from numpy.typing import NDArray

STATUSES: Final[dict[str, int]]
OPTIONS: Final[dict[str, int]]
DECODERS: Final[dict[str, int]]
STATE: Final[dict[str, int]]

def dump_batches(
    window: NDArray[np.uint8],
    window_start: int,
    stop: int,
    file_size: int,
    options: int,
    key_decoder: int,
    value_decoder: int,
    max_headers: int,
    out: NDArray[np.uint8],
    state: NDArray[np.int64],
    pair_previous: NDArray[np.int64],
    pair_next: NDArray[np.int64],
    invalid: NDArray[np.int64],
) -> tuple[int, int]: ...
def dump_payload(
    batch_bytes: NDArray[np.uint8],
    position: int,
    payload: NDArray[np.uint8],
    options: int,
    key_decoder: int,
    value_decoder: int,
    max_headers: int,
    out: NDArray[np.uint8],
    state: NDArray[np.int64],
    pair_previous: NDArray[np.int64],
    pair_next: NDArray[np.int64],
) -> tuple[int, int]: ...
def find_largest_timestamp(
    batch_bytes: NDArray[np.uint8], payload: NDArray[np.uint8], max_headers: int
) -> tuple[int, int]: ...
def find_last_offsets(
    window: NDArray[np.uint8],
    window_start: int,
    file_size: int,
    position: NDArray[np.int64],
    max_bytes: int,
    last_offset: NDArray[np.int64],
) -> tuple[int, int]: ...
def walk_chain(
    window: NDArray[np.uint8],
    window_start: int,
    start: int,
    stop: int,
    file_size: int,
    position: NDArray[np.int64],
    last_offset: NDArray[np.int64],
) -> tuple[int, int, int]: ...
def dump_pairs(
    base: int, first: NDArray[np.int64], second: NDArray[np.int64], kind: int, out: NDArray[np.uint8]
) -> int: ...
