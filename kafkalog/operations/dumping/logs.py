"""Turns `.log` and `.checkpoint` files into the lines that Kafka's tool prints for them.

The kernel turns the bytes of a window into text. This module reads windows, decompresses batches, and turns the status
at which the kernel stops into an error, after the same lines as in Kafka.

Mirrors `DumpLogSegments.dumpLog`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import Final

import numpy as np

from kafkalog import format as kf
from kafkalog._kernels import dump as kernels
from kafkalog._kernels.wire import STATUS
from kafkalog.errors import (
    CorruptionError,
    KafkalogError,
    LimitExceededError,
    Limits,
    NotKafkaError,
    Reason,
    UnsupportedError,
    error_from_status,
)
from kafkalog.operations.dumping.control import describe
from kafkalog.operations.dumping.options import DumpOptions
from kafkalog.operations.dumping.report import Report
from kafkalog.records.codecs import Arena, decompress_into
from kafkalog.records.header_walk import walk
from kafkalog.storage.source import Bytes, ByteSource

WINDOW_BYTES: Final = 2**20
"""Bytes read at a time; small enough that they and their text stay in a core's cache."""

OUT_BYTES: Final = 2**18
_PAIRS: Final = 2**14
_INVALID: Final = 2**10
_KEPT_ARENA: Final = 2**22

_OK = STATUS["OK"]
_NEED_MORE = STATUS["NEED_MORE"]
_OUTPUT_FULL = STATUS["OUTPUT_FULL"]
_TOO_SMALL = (STATUS["SIZE_NEGATIVE"], STATUS["SIZE_TOO_SMALL"])
_END = kernels.STATUSES["END"]
_PAYLOAD = kernels.STATUSES["PAYLOAD"]
_CONTROL = kernels.STATUSES["CONTROL"]

_POSITION = kernels.STATE["position"]
_PREVIOUS = kernels.STATE["previous"]
_N_PAIRS = kernels.STATE["n_pairs"]
_N_INVALID = kernels.STATE["n_invalid"]
_NEEDED = kernels.STATE["needed"]
_VALUE_START = kernels.STATE["value_start"]
_VALUE_SIZE = kernels.STATE["value_size"]
_CONTROL_TYPE = kernels.STATE["control_type"]

BOOTSTRAP_CHECKPOINT: Final = "bootstrap.checkpoint"
_SNAPSHOT_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


def title(name: str, *, is_2_8: bool) -> str:
    """Return the line after ``Dumping``: the start offset of a log, or the end offset and epoch of a Raft snapshot.

    Raises
    ------
    NotKafkaError
        The name of the file has no offset.
    """
    if name.endswith(kf.LOG_SUFFIX):
        offset = start_offset(name)
        return f"Starting offset: {offset}" if is_2_8 else f"Log starting offset: {offset}"
    if name == BOOTSTRAP_CHECKPOINT:
        return "KRaft bootstrap snapshot"
    match = _SNAPSHOT_NAME.fullmatch(name)
    if match is None:
        raise NotKafkaError(Reason.NOT_KAFKA, "the name is not that of a Raft snapshot", path=name)
    return f"Snapshot end offset: {int(match[1])}, epoch: {int(match[2])}"


def start_offset(name: str) -> int:
    """Return the offset in the name of a segment's file.

    Raises
    ------
    NotKafkaError
        The name does not begin with an offset.
    """
    offset = kf.parse_base_offset(name)
    if offset is None:
        raise NotKafkaError(Reason.NOT_KAFKA, "the name does not begin with an offset", path=name)
    return offset


class LogDumper:
    """Dumps one file.

    Parameters
    ----------
    source : ByteSource
    options : DumpOptions
    report : Report
    path : str
        The path to show in the lists at the end.
    is_last : bool
        Whether no other segment follows, so that a torn tail is normal.
    """

    def __init__(self, source: ByteSource, options: DumpOptions, report: Report, path: str, *, is_last: bool) -> None:
        self._source, self._options, self._report = source, options, report
        self._path, self._is_last = path, is_last
        self._flags = options.kernel_flags
        self._decoders = options.kernel_decoders
        self._state = np.zeros(kernels.STATE["size"], np.int64)
        self._state[_PREVIOUS] = -1
        self._out = np.empty(OUT_BYTES, np.uint8)
        self._pairs = np.empty((2, _PAIRS), np.int64)
        self._invalid = np.empty(_INVALID, np.int64)
        self._payloads = Payloads(options.limits)
        self._stop = source.size if options.max_bytes is None else min(source.size, options.max_bytes)

    @property
    def position(self) -> int:
        """The position in the file that the dump has reached."""
        return int(self._state[_POSITION])

    def chunks(self) -> Iterator[bytes]:
        """Yield the text in pieces.

        Raises
        ------
        CorruptionError
            Where Kafka's tool throws, after the text that it has printed by then.
        LimitExceededError
            A batch is larger than a limit allows.
        UnsupportedError
            A batch has a codec that Kafka does not define.
        ValueError
            A key or a value is shorter than its decoder needs.
        """
        source, start = self._source, 0
        window = source.window(0, min(WINDOW_BYTES, source.size))
        try:
            while True:
                status, n = kernels.dump_batches(
                    window,
                    start,
                    self._stop,
                    source.size,
                    self._flags,
                    *self._decoders,
                    self._options.limits.max_headers_per_record,
                    self._out,
                    self._state,
                    self._pairs[0],
                    self._pairs[1],
                    self._invalid,
                )
                self._drain(window, start)
                if n:
                    yield self._out[:n].tobytes()
                if status == _NEED_MORE:
                    position, needed = self.position, int(self._state[_NEEDED])
                    self._check_batch_size(position, needed)
                    source.release(window, start)
                    start = position
                    window = source.window(start, min(start + max(WINDOW_BYTES, needed), source.size))
                elif status == _OUTPUT_FULL:
                    self._make_room()
                elif status == _PAYLOAD:
                    yield from self._payload(self._batch(window, start))
                elif status == _CONTROL:
                    batch = self._batch(window, start)
                    yield self._control(batch[kf.RECORD_BATCH_OVERHEAD :], batch)
                elif status == _END:
                    break
                else:
                    raise self._error(status, window, start)
        finally:
            source.release(window, start)
        yield from self._tail()

    def _batch(self, window: Bytes, start: int) -> Bytes:
        """Return the bytes of the current batch."""
        batch = window[self.position - start :]
        return batch[: kf.LOG_OVERHEAD + int.from_bytes(batch[8:12].tobytes(), "big")]

    def _payload(self, batch: Bytes) -> Iterator[bytes]:
        """Yield the text of the records of a compressed batch."""
        position = self.position
        payload = self._payloads.decompress(batch, position, self._source.path)
        while True:
            status, n = kernels.dump_payload(
                batch,
                position,
                payload,
                self._flags,
                *self._decoders,
                self._options.limits.max_headers_per_record,
                self._out,
                self._state,
                self._pairs[0],
                self._pairs[1],
            )
            self._drain_pairs()
            if n:
                yield self._out[:n].tobytes()
            if status == _OK:
                return
            if status == _OUTPUT_FULL:
                self._make_room()
            elif status == _CONTROL:
                yield self._control(payload, batch)
            else:
                raise self._error(status, batch, position)

    def _control(self, data: Bytes, batch: Bytes) -> bytes:
        size, start = int(self._state[_VALUE_SIZE]), int(self._state[_VALUE_START])
        value = None if size < 0 else data[start : start + size].tobytes()
        try:
            text = describe(int(self._state[_CONTROL_TYPE]), value, is_2_8=self._options.is_2_8)
        except CorruptionError as error:
            error.path, error.position = self._source.path, self.position
            error.base_offset = int.from_bytes(batch[:8].tobytes(), "big", signed=True)
            raise
        return f"{text}\n".encode()

    def _drain(self, window: Bytes, start: int) -> None:
        """Report the gaps and the wrong checksums that the kernel found."""
        self._drain_pairs()
        n = int(self._state[_N_INVALID])
        self._state[_N_INVALID] = 0
        for position in self._invalid[:n].tolist():
            self._report.add_bad_crc(self._source.path or self._path, position, window[position - start :])

    def _drain_pairs(self) -> None:
        n = int(self._state[_N_PAIRS])
        if n:
            self._state[_N_PAIRS] = 0
            self._report.add_pairs("gap", self._path, self._pairs[:, :n].copy())

    def _make_room(self) -> None:
        needed = int(self._state[_NEEDED])
        if needed > self._out.size:
            self._out = np.empty(needed, np.uint8)

    def _check_batch_size(self, position: int, needed: int) -> None:
        limit = self._options.limits.max_batch_bytes
        if needed > limit:
            raise LimitExceededError(
                Reason.BATCH_TOO_LARGE,
                f"the batch has {needed} bytes, max_batch_bytes is {limit}",
                path=self._source.path,
                position=position,
                length=needed,
            )

    def _tail(self) -> Iterator[bytes]:
        """Yield the line about bytes after the last batch, and report them."""
        position = self.position
        n = self._stop - position
        if n <= 0 or self._options.max_bytes is not None:
            return
        yield f"Found {n} invalid bytes at the end of {os.path.basename(self._path)}\n".encode()
        error = explain_end(self._source, position, self._stop, self._options)
        self._report.add_tail(error, is_last=self._is_last)

    def _error(self, status: int, window: Bytes, start: int) -> Exception:
        """Return the exception for the batch at which the kernel stopped."""
        position = self.position
        path = self._source.path
        batch = window[position - start :]
        base_offset = int.from_bytes(batch[:8].tobytes(), "big", signed=True)
        if status == kernels.STATUSES["DECODER"]:
            return ValueError(
                f"{path}@{position} base_offset={base_offset}: a key or a value is shorter than its decoder needs"
            )
        if status == kernels.STATUSES["CODEC_ID"]:
            return unknown_codec(batch, path, position)
        detail = _DETAILS.get(status)
        if detail is not None:
            return CorruptionError(*detail, path=path, position=position, base_offset=base_offset)
        if status in _TOO_SMALL and int.from_bytes(batch[8:12].tobytes(), "big", signed=True) < kf.MESSAGE_V0_OVERHEAD:
            return explain_end(self._source, position, self._stop, self._options)
        return error_from_status(status, path=path, position=position, base_offset=base_offset)


class Payloads:
    """Decompresses batches, one at a time.

    Parameters
    ----------
    limits : Limits
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._arena = Arena()

    def decompress(self, batch: Bytes, position: int, path: str | None) -> Bytes:
        """Return the records of a batch, or the messages in a v0 or v1 message; valid until the next call.

        Raises
        ------
        KafkalogError
            The compressed bytes are damaged or exceed a limit when decompressed; the error names the batch.
        """
        if self._arena.data.size > _KEPT_ARENA:
            self._arena = Arena()
        self._arena.used = 0
        magic = int(batch[16])
        is_v2 = magic >= 2
        codec = int(batch[22 if is_v2 else 17]) & kf.CODEC_MASK
        try:
            data = batch[kf.RECORD_BATCH_OVERHEAD :] if is_v2 else wrapper_value(batch, magic)
            if is_v2 and not codec:
                return data
            decompress_into(self._arena, codec, data, magic=min(magic, 2), limits=self._limits)
        except KafkalogError as error:
            raise _placed(error, path, position, batch) from error
        return self._arena.data[: self._arena.used]


_DETAILS: Final = {
    kernels.STATUSES["CONTROL_KEY"]: (Reason.CONTROL_RECORD, "a control record's key is not one"),
    kernels.STATUSES["CONTROL_VALUE"]: (Reason.CONTROL_RECORD, "the value of a transaction's marker is not one"),
    kernels.STATUSES["HEADER_CUT"]: (Reason.SIZE_TOO_SMALL, "the file ends inside the header of a batch"),
}


def unknown_codec(batch: Bytes, path: str | None, position: int) -> UnsupportedError:
    """Return the error for a batch with a codec that Kafka does not define."""
    codec = int(batch[22 if batch[16] >= 2 else 17]) & kf.CODEC_MASK
    detail = f"codec {codec}; Kafka has 0 to 4"
    base_offset = int.from_bytes(batch[:8].tobytes(), "big", signed=True)
    return UnsupportedError(Reason.UNKNOWN_CODEC, detail, path=path, position=position, base_offset=base_offset)


def wrapper_value(batch: Bytes, magic: int) -> Bytes:
    """Return the value of a compressed v0 or v1 message: the compressed messages in it.

    Raises
    ------
    CorruptionError
        The key or the value does not fit into the message, or the value is null.
    """
    at = kf.LOG_OVERHEAD + (6 if magic == 0 else 14)
    for reason, what in ((Reason.KEY_LENGTH, "key"), (Reason.VALUE_LENGTH, "value")):
        if batch.size - at < 4:
            raise CorruptionError(reason, f"the message ends before its {what}")
        size = int.from_bytes(batch[at : at + 4].tobytes(), "big", signed=True)
        at += 4
        if size > batch.size - at:
            raise CorruptionError(reason, f"a {what} is longer than what is left of its message")
        if what == "key":
            at += max(size, 0)
    if size < 0:
        raise CorruptionError(Reason.LEGACY_NULL_WRAPPER, "a compressed message has no value")
    return batch[at : at + size]


def _placed(error: KafkalogError, path: str | None, position: int, batch: Bytes) -> KafkalogError:
    base_offset = int.from_bytes(batch[:8].tobytes(), "big", signed=True)
    return type(error)(
        error.reason, error.detail, path=path, position=position, base_offset=base_offset, length=batch.size
    )


def explain_end(source: ByteSource, position: int, stop: int, options: DumpOptions) -> KafkalogError:
    """Return the error that the rest of kafkalog raises at a position: a torn tail, zeros, or damage."""
    try:
        for window in walk(source, start=position, stop=stop, limits=options.limits):
            source.release(window.data, window.start)
            break
    except KafkalogError as error:
        return error
    return CorruptionError(
        Reason.SIZE_EXCEEDS_FILE,
        f"the last {stop - position} bytes are not a batch",
        path=source.path,
        position=position,
        length=stop - position,
    )
