"""Reads the names of topics from records of `__cluster_metadata` that were found in an image."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from kafkalog import format as kf
from kafkalog.protocol.framing import decode_record


@dataclass(slots=True)
class _Topic:
    name: str = ""
    partitions: set[int] = field(default_factory=set)
    is_deleted: bool = False


def is_metadata(keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> bool:
    """Whether records are those of `__cluster_metadata`: without keys, and each value is a message of its protocol."""
    return bool(values) and not any(keys) and all(_decoded(value) is not None for value in values)


def _decoded(value: bytes | None) -> tuple[str, dict[str, object]] | None:
    try:
        record = decode_record(kf.METADATA_TOPIC, None, value)
    except ValueError:
        return None
    return record.type, record.value or {}


class TopicNames:
    """What records say of topics, in whatever order they come."""

    def __init__(self) -> None:
        self._topics: dict[object, _Topic] = {}

    def add(self, values: Iterable[bytes | None]) -> None:
        """Note what the values of records say; those of unknown types are left out."""
        for kind, fields in filter(None, map(_decoded, values)):
            if kind not in ("Topic", "Partition", "RemoveTopic"):
                continue
            topic = self._topics.setdefault(fields["topicId"], _Topic())
            if kind == "Topic":
                topic.name = str(fields["name"])
            elif kind == "RemoveTopic":
                topic.is_deleted = True
            else:
                topic.partitions.add(int(str(fields["partitionId"])))

    def rows(self) -> Iterator[tuple[str, str, int, bool]]:
        """Yield name, id, number of partitions, and whether it was deleted, of each topic whose name is known."""
        named = [(topic.name, str(number), topic) for number, topic in self._topics.items() if topic.name]
        for name, number, topic in sorted(named, key=lambda one: one[:2]):
            yield name, number, len(topic.partitions), topic.is_deleted
