from collections.abc import Sequence
from typing import Self, final

import numpy as np
from numpy.typing import NDArray

@final
class LastRows:
    @property
    def n_keys(self) -> int: ...
    @property
    def key_bytes(self) -> int: ...
    @property
    def value_bytes(self) -> int: ...
    def __new__(cls, seed: int, other: int) -> Self: ...
    def feed(
        self,
        key: tuple[NDArray[np.uint8], Sequence[NDArray[np.uint8]], NDArray[np.uint8] | None],
        value: tuple[NDArray[np.uint8], Sequence[NDArray[np.uint8]], NDArray[np.uint8] | None],
        offset: NDArray[np.int64],
        timestamp: NDArray[np.int64],
        partition: int,
        wanted: NDArray[np.uint8] | None,
        only_newer: bool,
    ) -> None: ...
    def copy(
        self,
        key_offsets: NDArray[np.int64],
        keys: NDArray[np.uint8],
        value_offsets: NDArray[np.int64],
        values: NDArray[np.uint8],
        valid: NDArray[np.uint8],
        offset: NDArray[np.int64],
        timestamp: NDArray[np.int64],
        partition: NDArray[np.int32],
    ) -> int: ...
