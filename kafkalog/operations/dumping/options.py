"""The options of a dump, with the names and defaults of Kafka's tool."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypedDict

from kafkalog.calls import leading_names
from kafkalog.errors import DEFAULT_LIMITS, Limits
from kafkalog.protocol.framing import TOPIC_DECODERS
from kafkalog.protocol.printed import DECODED_2_8

DIALECTS: Final = ("4.3", "2.8")
"""Releases of Kafka whose output format is available; the first is the default."""

DECODERS: Final = {
    "string": "string",
    "integer": "integer",
    "long": "long",
    "org.apache.kafka.tools.api.StringDecoder": "string",
    "org.apache.kafka.tools.api.IntegerDecoder": "integer",
    "org.apache.kafka.tools.api.LongDecoder": "long",
    "kafka.serializer.StringDecoder": "string",
    "kafka.serializer.IntegerDecoder": "integer",
    "kafka.serializer.LongDecoder": "long",
}
"""Decoders of keys and values, by short name and by the name of Kafka's class."""

DEFAULT_MAX_MESSAGE_SIZE: Final = 5 * 2**20
MAX_INT: Final = 2**31 - 1


class DumpKeywords(TypedDict, total=False):
    """The keyword arguments of `dump`: see `DumpOptions`."""

    deep_iteration: bool
    print_data_log: bool
    skip_record_metadata: bool
    max_bytes: int | None
    index_sanity_check: bool
    verify_index_only: bool
    max_message_size: int
    dialect: str
    key_decoder: str | None
    value_decoder: str | None
    topic_decoder: str | None
    keep_going: bool
    limits: Limits


@leading_names
@dataclass(frozen=True, slots=True)
class DumpOptions:
    """Options of `DumpLogSegments`."""

    deep_iteration: bool = False
    """Also print records; implied by `print_data_log`."""
    print_data_log: bool = False
    """Print keys and values; implied by each of the decoders."""
    skip_record_metadata: bool = False
    """Print only the key and the value of a record."""
    max_bytes: int | None = None
    """Read at most this many bytes of a log."""
    index_sanity_check: bool = False
    """Only run the sanity check of an index, and print that it passed."""
    verify_index_only: bool = False
    """Compare an index with the log without printing its entries."""
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE
    """The largest batch, in bytes, that is read at an indexed position."""
    dialect: str = DIALECTS[0]
    """One of `DIALECTS`."""
    key_decoder: str | None = None
    value_decoder: str | None = None
    """One of `DECODERS`; None for strings."""
    topic_decoder: str | None = None
    """One of `TOPIC_DECODERS`: keys and values are those of this internal topic. 2.8 has the first three."""
    keep_going: bool = False
    """After an error continue with the next file. Kafka's tool does not."""
    limits: Limits = DEFAULT_LIMITS

    def __post_init__(self) -> None:
        if self.dialect not in DIALECTS:
            raise ValueError(f"no dialect {self.dialect!r}; there are {', '.join(DIALECTS)}")
        for decoder in (self.key_decoder, self.value_decoder):
            if decoder is not None and decoder not in DECODERS:
                raise ValueError(f"no decoder {decoder!r}; there are {', '.join(DECODERS)}")
        if self.topic_decoder is not None:
            self._check_topic_decoder(self.topic_decoder)
        for name in ("max_bytes", "max_message_size"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= MAX_INT:
                raise ValueError(f"{name} must be from 0 to {MAX_INT}, not {value}")

    def _check_topic_decoder(self, decoder: str) -> None:
        if decoder not in TOPIC_DECODERS:
            raise ValueError(f"no decoder {decoder!r} of a topic; there are {', '.join(TOPIC_DECODERS)}")
        if self.key_decoder is not None or self.value_decoder is not None:
            raise ValueError(f"the {decoder} decoder is for keys and values both: give no other decoder with it")
        if self.is_2_8 and TOPIC_DECODERS[decoder] not in DECODED_2_8:
            raise ValueError(f"dialect 2.8 has no {decoder} decoder")

    @property
    def topic(self) -> str | None:
        """The internal topic whose records keys and values are decoded as."""
        return None if self.topic_decoder is None else TOPIC_DECODERS[self.topic_decoder]

    @property
    def shows_contents(self) -> bool:
        """Whether keys and values are printed."""
        decoders = (self.key_decoder, self.value_decoder, self.topic_decoder)
        return self.print_data_log or any(decoder is not None for decoder in decoders)

    @property
    def is_deep(self) -> bool:
        """Whether records are read."""
        return self.deep_iteration or self.shows_contents

    @property
    def is_2_8(self) -> bool:
        """Whether the dialect is that of 2.8."""
        return self.dialect == "2.8"
