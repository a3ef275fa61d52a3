from typing import final

from kafkalog._kernels.buffer_pool import Block

@final
class HeaderRows:
    block: Block
    capacity: int
    n: int
    magics: int
    attribute_bits: int
    common_bits: int
    largest: int
    first_offset: int
    last_offset: int
    last_position: int
    end_position: int
    has_empty: bool
    has_hidden: bool
    next_offset: int | None
    def __new__(cls, capacity: int) -> HeaderRows: ...
