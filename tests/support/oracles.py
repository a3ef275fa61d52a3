"""What a broker answers, found the slow way: every batch of the twin is looked at, in plain Python."""

import reference

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
NONE = (-1, -1, -1)


class BruteForce:
    """ListOffsets by the rules of `UnifiedLog.fetchOffsetByTimestamp`, over all records, without any index."""

    def __init__(self, partition):
        self.start = partition.log_start_offset
        self._bases = [segment.base_offset for segment in partition.segments]
        self.segments = [
            (reference.read_segment(segment.path.read_bytes()).batches, segment.path.stat().st_mtime_ns // 1_000_000)
            for segment in partition.segments
        ]

    @property
    def end(self):
        """Behind the last batch of the last segment."""
        ends = [batch.last_offset + 1 for batches, _ in self.segments[-1:] for batch in batches]
        return max([*self._bases[-1:], *ends], default=0)

    def answer(self, timestamp):
        """(timestamp, offset, leader epoch); the epoch of the latest and the earliest offset is not known here."""
        if timestamp == EARLIEST:
            return -1, self.start, -1
        if timestamp == LATEST:
            return -1, max(self.start, self.end), -1
        if timestamp == MAX_TIMESTAMP:
            return self._max_timestamp()
        for batches, modified in self.segments:
            largest = _largest(batches)
            if (largest if largest >= 0 else modified) >= timestamp:
                return self._first(batches, timestamp)
        return NONE

    def _first(self, batches, timestamp):
        for batch in batches:
            for record in batch.records if batch.max_timestamp >= timestamp else ():
                if record.timestamp is not None and record.timestamp >= timestamp and record.offset >= self.start:
                    return record.timestamp, record.offset, record.leader_epoch
        return NONE

    def _max_timestamp(self):
        if not self.segments:
            return NONE
        most = max(_largest(batches) for batches, _ in self.segments)
        batches = next(batches for batches, _ in self.segments if _largest(batches) == most)
        for batch in batches:
            if batch.max_timestamp == most:
                for record in batch.records:
                    if record.timestamp == most:
                        return most, record.offset, record.leader_epoch
                break
        return NONE


def _largest(batches):
    return max((batch.max_timestamp for batch in batches), default=-1)
