from typing import Final

import numpy as np
from numpy.typing import NDArray

OPTIONS: Final[dict[str, int]]
DECODERS: Final[dict[str, int]]
STATE: Final[dict[str, int]]

def format_rows(
    batches: NDArray[np.uint8],
    n_batches: int,
    records: NDArray[np.uint8],
    n_records: int,
    data: NDArray[np.uint8],
    options: int,
    key_decoder: int,
    value_decoder: int,
    out: NDArray[np.uint8],
    state: NDArray[np.int64],
) -> tuple[int, int]: ...
