from collections.abc import Sequence
from typing import Any, Final, final

import numpy as np
import numpy.typing as npt

PAD: Final[int]
LEVELS: Final[tuple[str, ...]]
implementation: str
ENDINGS: Final[dict[str, int]]

_Bytes = npt.NDArray[np.uint8]
_I32 = npt.NDArray[np.int32]
_I64 = npt.NDArray[np.int64]
_Strings = tuple[npt.NDArray[Any], _Bytes, _Bytes] | tuple[_Bytes, _Bytes]

def use_level(level: int) -> str: ...

@final
class Codecs:
    def __new__(
        cls, zstd: Sequence[int] | None = None, deflate: Sequence[int] | None = None, libraries: object = None
    ) -> Codecs: ...
    def knows(self, codec: int) -> bool: ...
    def decompress(self, codec: int, data: _Bytes, to: _Bytes) -> int: ...

@final
class Columns:
    n_records: int
    n_headers: int
    def __new__(
        cls,
        capacity: int,
        offset: _I64 | None,
        timestamp: _I64 | None,
        key: _Strings | None,
        value: _Strings | None,
        headers: tuple[npt.NDArray[Any], _Strings, _Strings] | None,
    ) -> Columns: ...
    def sizes(self) -> tuple[tuple[int, int], tuple[int, int], tuple[int, int], tuple[int, int]]: ...

@final
class Filler:
    arena_used: int
    n_bytes: int
    def __new__(
        cls,
        columns: Columns,
        codecs: Codecs | None,
        arena: _Bytes | None,
        max_records: int,
        max_headers: int,
        max_batch_headers: int,
        max_decompressed: int,
    ) -> Filler: ...

def fill_columns(
    data: _Bytes,
    payload_start: _I64,
    payload_end: _I64,
    base_offset: _I64,
    base_timestamp: _I64,
    max_timestamp: _I64,
    attributes: npt.NDArray[np.int16],
    records_count: _I32,
    crc: npt.NDArray[np.uint32],
    check_crc: bool,
    filler: Filler,
) -> tuple[int, int]: ...
def decompress_payloads(
    data: _Bytes,
    payload_start: _I64,
    payload_end: _I64,
    attributes: npt.NDArray[np.int16],
    records_count: _I32,
    max_records: int,
    max_decompressed: int,
    codecs: Codecs,
    arena: _Bytes,
    used: int,
    stop_at: int,
    ends: _I64,
) -> int: ...
def view_strings(offsets: _I64, data: _Bytes, views: _Bytes) -> None: ...
