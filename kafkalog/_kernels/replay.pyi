from typing import Self, final

import numpy as np
from numpy.typing import NDArray

@final
class LastRows:
    @property
    def n_keys(self) -> int: ...
    @property
    def n_bytes(self) -> int: ...
    def __new__(cls, seed: int, other: int) -> Self: ...
    def feed(
        self,
        offsets: NDArray[np.int64],
        data: NDArray[np.uint8],
        wanted: NDArray[np.uint8] | None,
        numbers: NDArray[np.int64],
        rows: NDArray[np.int64],
    ) -> int: ...
    def copy_keys(self, offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> None: ...
    def key(self, number: int) -> bytes: ...
