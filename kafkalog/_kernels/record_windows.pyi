from collections.abc import Callable, Collection, Sequence
from typing import Any, Final, final

import numpy as np
from numpy.typing import NDArray

from kafkalog._kernels.buffer_pool import Block
from kafkalog._kernels.fill import Codecs
from kafkalog._kernels.header_rows import HeaderRows

KINDS: Final[dict[str, int]]
FORMS: Final[dict[str, int]]

@final
class RecordWindow:
    n_batches: int
    n_records: int
    first_offset: int
    last_offset: int
    last_position: int
    end_position: int
    next_offset: int | None
    is_plain: bool
    batch: Any
    block: Block | None
    columns: dict[str, Any] | None
    rows: HeaderRows | None
    data: Any
    arena: Any

@final
class RecordWindows:
    def __init__(
        self,
        names: Collection[str],
        form: str,
        window_bytes: int,
        *,
        read_bytes: int,
        max_batch_bytes: int,
        max_records: int,
        max_headers: int,
        max_batch_headers: int,
        max_decompressed: int,
        check_crc: bool,
        stop_at: int,
        offsets: tuple[int, int],
        fields: Sequence[tuple[int, Any]] = (),
        schema: Any = None,
        import_batch: Callable[[int, Any], Any] | None = None,
        is_kept: bool = False,
    ) -> None: ...
    def next(
        self,
        codecs: Codecs,
        descriptor: int,
        start: int,
        stop: int,
        size: int,
        previous_offset: int,
        data: NDArray[np.uint8] | None = None,
    ) -> RecordWindow | None: ...
