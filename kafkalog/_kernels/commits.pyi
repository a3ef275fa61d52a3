from typing import Self, final

import numpy as np
from numpy.typing import NDArray

@final
class Texts:
    def __new__(cls, offsets: NDArray[np.int64], data: NDArray[np.uint8]) -> Self: ...

def read_commits(
    keys: tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.uint8] | None],
    values: tuple[NDArray[np.int64], NDArray[np.uint8], NDArray[np.uint8] | None],
    is_commit: NDArray[np.uint8],
    group: Texts,
    topic: Texts,
    partition: NDArray[np.int32],
    offset: NDArray[np.int64],
    leader_epoch: NDArray[np.int32],
    metadata: Texts,
    time: NDArray[np.int64],
) -> int: ...
