"""Random partitions of compacted topics: producers, transactions, tombstones, codecs, formats, small segments."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field

import numpy as np
from builder import message, wrapper
from encoding import columns_of

from kafkalog import LogConfig
from kafkalog import format as kf
from kafkalog.records.batch_spec import BatchSpec
from kafkalog.records.batch_table import Window, table_of
from kafkalog.records.codecs import Compression
from kafkalog.records.encode import encode_batches, encode_marker
from kafkalog.state.producers import ProducerState, encode_snapshot, with_markers
from kafkalog.state.transactions import aborted_entries
from kafkalog.storage.staging import StagedFile
from kafkalog.writing.segment_writer import SegmentWriter

HOUR = 3_600_000
DAY = 24 * HOUR


class Plain:
    """Files that are made where they stay."""

    def __init__(self, directory):
        self.directory = directory

    def create(self, name):
        path = self.directory / name
        return _QuickFile(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY), path)


class _QuickFile(StagedFile):
    """A file that need not be durable."""

    def close(self):
        self.discard()


@dataclass
class Producer:
    """A producer, and what it does next."""

    producer_id: int
    is_transactional: bool
    bumps_epoch: bool
    """As the second version of transactions: each marker has a higher epoch."""
    epoch: int = 0
    sequence: int = 0
    is_open: bool = False
    is_idle: bool = False


@dataclass
class RandomPartition:
    """A partition to which segments are appended."""

    seed: int
    now: int
    codecs: tuple[str, ...] = ("none",)
    old_formats: bool = False
    ends_transactions: bool = False
    """Whether the last segment begins with the markers of all open transactions."""
    has_gaps: bool = True
    end: int = 0
    producers: list[Producer] = field(default_factory=list)

    def __post_init__(self):
        self.rng = rng = random.Random(self.seed)
        self.config = LogConfig(index_interval_bytes=rng.choice((0, 100, 4096)))
        self.state = ProducerState()
        self.n_keys = rng.choice((2, 8, 40))
        for number in range(rng.randrange(5)):
            producer = Producer(rng.choice((7, 4000, 2**40)) + number, rng.random() < 0.6, rng.random() < 0.4)
            producer.is_idle = rng.random() < 0.2
            self.producers.append(producer)
        self.stamp = self.now - 20 * HOUR

    def append(self, directory, n_segments, *, is_first):
        """Write further segments, each after a producer snapshot at its base offset."""
        for number in range(n_segments):
            self._take_snapshot(directory)
            writer = SegmentWriter(Plain(directory), self.end, self.config)
            self.end += self.rng.choice((0, 0, 0, 3, 50)) * self.has_gaps
            if self.ends_transactions and number == n_segments - 1:
                for one in self.producers:
                    if one.is_open:
                        self._write(writer, self._marker(one))
            for _ in range(self.rng.randrange(1, 9)):
                self._put(writer)
            writer.set_modified(self.now - self.rng.randrange(48) * HOUR)
            writer.close()
            if is_first and number == n_segments - 1:
                self._take_snapshot(directory)  # as a shutdown does
            self.end += self.rng.choice((0, 0, 0, 2)) * self.has_gaps

    def _take_snapshot(self, directory):
        name = kf.segment_file_name(self.end, kf.PRODUCER_SNAPSHOT_SUFFIX)
        (directory / name).write_bytes(encode_snapshot(self.state.entries()))

    def _put(self, writer):
        rng = self.rng
        producer = rng.choice([None, *self.producers])
        if self.old_formats:
            window = self._old_messages()
        elif producer is None:
            window = self._batch(None)
        elif producer.is_open and rng.random() < 0.4:
            window = self._marker(producer)
        else:
            window = self._batch(producer)
        self._write(writer, window)

    def _write(self, writer, window):
        assert writer.take(window) == len(window.batches)
        self.end = int(window.batches.last_offset[-1]) + 1
        told, epochs = with_markers(window, window.batches)
        ended = self.state.update(told, log_position=told.base_offset, coordinator_epoch=epochs)
        writer.add_aborted(aborted_entries(ended))

    def _rows(self, is_old=False):
        rng, rows = self.rng, []
        for number in range(rng.choice((1, 1, 2, 5))):
            key = None if rng.random() < 0.03 else b"k%d" % rng.randrange(self.n_keys)
            value = None if rng.random() < 0.25 else rng.choice((b"", b"v" * rng.randrange(30)))
            headers = [("h", None), ("g", b"x")][: rng.randrange(3)] if rng.random() < 0.2 and not is_old else []
            self.stamp += rng.randrange(-1000, 5000)
            rows.append((self.end + number, self.stamp, key, value, [(n.encode(), v) for n, v in headers]))
        return rows

    def _batch(self, producer):
        rng, rows = self.rng, self._rows()
        options = {"leader_epoch": 0}
        if producer is not None:
            if producer.is_idle:
                rows = [(row[0], row[1] - 3 * DAY, *row[2:]) for row in rows]
            options |= {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
            options |= {"base_sequence": producer.sequence, "is_transactional": producer.is_transactional}
            producer.sequence += len(rows)
            producer.is_open |= producer.is_transactional
        codec = rng.choice(self.codecs)
        options["compression"] = Compression(codec)
        if rng.random() < 0.15:
            options |= {"timestamp_type": 1, "log_append_time": self.stamp}
        return encode_batches(columns_of(rows), np.array([0, len(rows)]), BatchSpec(**options))

    def _marker(self, producer):
        producer.is_open = False
        if producer.bumps_epoch:
            producer.epoch, producer.sequence = producer.epoch + 1, 0
        self.stamp += 10
        return encode_marker(
            self.end,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            coordinator_epoch=3,
            is_commit=self.rng.random() < 0.5,
            timestamp=self.stamp - (3 * DAY if producer.is_idle else 0),
            leader_epoch=0,
        )

    def _old_messages(self):
        rng, rows = self.rng, self._rows(is_old=True)
        magic = rng.randrange(2)
        codec = Compression(rng.choice(self.codecs)).codec
        stamps = [row[1] if magic else -1 for row in rows]
        if not codec:
            parts = [
                message(offset, key, value, magic=magic, timestamp=stamp)
                for (offset, _, key, value, _), stamp in zip(rows, stamps, strict=True)
            ]
            data = b"".join(parts)
        else:
            inner = [
                message(number if magic else row[0], row[2], row[3], magic=magic, timestamp=stamp)
                for number, (row, stamp) in enumerate(zip(rows, stamps, strict=True))
            ]
            data = wrapper(inner, offset=rows[-1][0], magic=magic, codec=codec, timestamp=max(stamps))
        array = np.frombuffer(data, np.uint8)
        return Window(array, 0, table_of(array, 1 if codec else len(rows)))
