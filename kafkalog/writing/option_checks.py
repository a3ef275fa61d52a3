"""Checks the options of a writer; each error names the option and the values it accepts.

This module does not touch records or files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final, NamedTuple, NoReturn

from kafkalog import format as kf
from kafkalog.argument_types import WRITES
from kafkalog.calls import leading_class
from kafkalog.errors import Reason, UnsafePathError
from kafkalog.parsing import integer
from kafkalog.records.codecs import Compression
from kafkalog.state.log_config import LogConfig

LAST_OFFSET: Final = 2**63 - 2
"""Largest offset of a record: the log end offset after it must still fit 64 bits."""


@leading_class
class Producer(NamedTuple):
    """Id and epoch by which a broker recognises an idempotent or transactional producer."""

    producer_id: int
    producer_epoch: int = 0

    def __getattr__(self, name: str) -> NoReturn:
        """Raise AttributeError: what writes may be meant."""
        lead = "" if name.startswith("_") else f"; it has producer_id and producer_epoch, and {WRITES}"
        raise AttributeError(f"'Producer' object has no attribute {name!r}{lead}", name=name, obj=None)


def check_partition_name(path: Path) -> kf.TopicPartition:
    """Parse topic and partition from a directory's name; UnsafePathError for another name, or that of the metadata log.

    Source: Topic.validate, LocalLog.parseTopicPartitionName, Kafka 4.3.
    """
    directory = kf.parse_partition_directory(path.name)
    if directory is None or directory.kind is not None or str(directory.topic_partition) != path.name:
        detail = (
            f"{path.name!r} is not a partition name such as orders-0: a topic of 1 to 249 ASCII letters, digits, '.',"
            " '_' and '-', a hyphen and a number"
        )
        raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=path)
    if directory.topic_partition.topic == kf.METADATA_TOPIC:
        detail = "this is the cluster's metadata log, which only controllers write"
        raise UnsafePathError(Reason.UNSAFE_PATH, detail, path=path)
    return directory.topic_partition


def chosen_compression(config: LogConfig, given: str | Compression | None, level: int | None) -> Compression:
    """The given compression, else the topic's; a codec without a level gets the topic's level."""
    if given is None:
        name = config.compression_type
        # "producer" leaves the choice to producers, and theirs is none by default
        given = "none" if name in ("producer", "uncompressed") else name
    if isinstance(given, str) and level is None:
        level = vars(config).get(f"compression_{given}_level")
    return Compression.parse(given, level=level)


def chosen_timestamp_type(config: LogConfig, given: kf.TimestampType | str | None) -> kf.TimestampType:
    """The given timestamp type, else the topic's."""
    given = config.message_timestamp_type if given is None else given
    for one in (kf.TimestampType.CREATE_TIME, kf.TimestampType.LOG_APPEND_TIME):
        if given in (one, kf.TIMESTAMP_TYPE_NAMES[one]):
            return one
    raise ValueError(f"timestamp_type is CreateTime or LogAppendTime, not {given!r}")


def checked_producer(given: Producer | tuple[int, int]) -> Producer:
    """A producer given as a `Producer`, a tuple or a list of id and epoch."""
    if not isinstance(given, tuple | list) or len(given) not in (1, 2):
        raise TypeError(f"producer must be a Producer or a tuple of int and int, not {given!r}")
    producer_id = integer("producer_id", given[0], 0, 2**63 - 1)
    return Producer(producer_id, *(integer("producer_epoch", epoch, 0, 2**15 - 1) for epoch in given[1:]))
