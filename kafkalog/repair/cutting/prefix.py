"""The first bytes of a segment, read as though the file ended there."""

from __future__ import annotations

from kafkalog.log.segment import Segment
from kafkalog.storage.source import ByteSource


class SegmentPrefix(Segment):
    """A segment without the bytes from `end` on, the position of a batch."""

    def __init__(self, segment: Segment, end: int) -> None:
        self._end = end
        super().__init__(segment.path, limits=segment.limits, is_last=True, topic_partition=segment.topic_partition)

    def open(self) -> ByteSource:
        """The bytes before the end."""
        source = super().open()
        source.size = min(source.size, self._end)
        return source


def position_of(segment: Segment, offset: int) -> int:
    """Position of the first batch that reaches an offset; the size of the segment if none does.

    A batch that begins before the offset and reaches it counts, too: batches are removed whole. Raises KafkalogError if
    the segment is damaged before it. Source: LogSegment.truncateTo, LogSegment.translateOffset, Kafka 4.3.
    """
    found = int(segment.find_offsets([offset])["position"][0])
    return segment.size_in_bytes if found < 0 else found
