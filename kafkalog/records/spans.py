"""Finds the spans of a window's records: start and size of each field, before selecting and copying.

A *payload* is the bytes of a batch after its header. It lies in the window if it is not compressed, else in an arena
that belongs to the thread. A call stops at a damaged batch, or once it has decompressed enough bytes; the caller
continues with another call. Mirrors `DefaultRecordBatch` and its iterators; `kafkalog.records.legacy` handles v0 and
v1.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

import kafkalog._kernels.decode as kernels
import kafkalog._kernels.fill as fill_kernels
import kafkalog._kernels.header_walk as batch_kernels
from kafkalog import format as kf
from kafkalog._kernels.wire import STATUS
from kafkalog.errors import KafkalogError, LimitExceededError, Limits, Reason, error_from_status
from kafkalog.records.batch_table import BatchTable, Window, valid_crcs
from kafkalog.records.codecs import Arena, decompress_into, unknown_codec
from kafkalog.storage.buffer_pool import empty
from kafkalog.storage.listing import Listing
from kafkalog.storage.source import Bytes

ARENA_BYTES: Final = 2 * 2**20
"""Decompressed bytes after which a call stops; the next call continues with the rest of the window."""

_OK = STATUS["OK"]
_INT32_MAX: Final = 2**31 - 1
_DECODERS_VARIABLE: Final = "KAFKALOG_DECODERS"


@dataclass(slots=True)
class Spans:
    """Start and size of each record's fields in a buffer, in memory that the thread's next walk overwrites.

    A size of -1 means null.
    """

    data: Bytes
    """Buffer that the starts refer to: a window of the file, or decompressed bytes."""
    batches: BatchTable
    """The batches that the records come from."""
    counts: npt.NDArray[np.int64]
    """Number of records of each batch."""
    offset: npt.NDArray[np.int64]
    timestamp: npt.NDArray[np.int64]
    key_start: npt.NDArray[np.int32]
    key_size: npt.NDArray[np.int32]
    value_start: npt.NDArray[np.int32]
    value_size: npt.NDArray[np.int32]
    headers_start: npt.NDArray[np.int32] | None = None
    headers_count: npt.NDArray[np.int32] | None = None
    """Both None for v0 and v1, which have no headers, and if headers were not requested."""
    n_headers: int = 0
    timestamp_type: npt.NDArray[np.int8] | None = None
    """Set if records have their own; None if the batch's applies."""
    batch_base_offset: npt.NDArray[np.int64] | None = None
    """Set if only the content of a wrapper has it; None if the batch's applies."""

    def __len__(self) -> int:
        return self.offset.size

    def batch_row(self) -> npt.NDArray[np.int64]:
        """int64[n]: row of `batches` of each record."""
        return np.repeat(np.arange(self.counts.size), self.counts)


@dataclass(slots=True)
class PayloadSpans:
    """Positions of the payloads of some v2 batches in a buffer."""

    data: Bytes
    """The window, or an arena."""
    start: npt.NDArray[np.int64]
    stop: npt.NDArray[np.int64]
    batches: BatchTable
    """These batches, from the first one on; fewer than given if one is bad or enough bytes were decompressed."""
    n_records: int
    """Upper bound on the number of records."""
    check_crcs: bool
    """Whether the checksums must still be compared; then headers precede the payloads in `data`."""
    attribute_bits: int
    """Attribute bits of all batches, combined by OR."""
    error: KafkalogError | None = None
    """The error about the batch after the last one, if it is bad."""


def survey(window: Window, batches: BatchTable) -> tuple[int, PayloadSpans]:
    """Return the magics (bit m for magic m), and the payloads, valid if all batches are uncompressed v2."""
    start, stop = np.empty(len(batches), np.int64), np.empty(len(batches), np.int64)
    magics, bits, n_records = batch_kernels.survey_batches(
        batches.position,
        batches.size_in_bytes,
        batches.magic,
        batches.attributes,
        batches.records_count,
        window.start,
        start,
        stop,
    )
    return magics, PayloadSpans(window.data, start, stop, batches, n_records, True, bits)


def decompress_payloads(
    window: Window, batches: BatchTable, *, check_crcs: bool, room: int, limits: Limits, path: str | None
) -> PayloadSpans:
    """Decompress the payloads of v2 batches one after another into the thread's arena; copy uncompressed ones."""
    error: KafkalogError | None = None
    n_valid = len(batches)
    if check_crcs:
        n_valid = _first_bad_crc(window, batches)
        if n_valid < len(batches):
            error = batch_error(STATUS["CRC_MISMATCH"], batches, n_valid, path)
    starts = batches.position - window.start + kf.RECORD_BATCH_OVERHEAD
    stops = batches.next_position - window.start
    counts = batches.records_count.tolist()
    codecs = (batches.attributes & kf.CODEC_MASK).tolist()
    arena = thread_arena()
    ends = [0]
    in_kernel = can_decompress(batches.codec)
    while (row := len(ends) - 1) < n_valid:
        if in_kernel and ends[-1] < room:
            new_ends = np.empty(n_valid - row, np.int64)
            n_done = fill_kernels.decompress_payloads(
                window.data,
                starts[row:n_valid],
                stops[row:n_valid],
                batches.attributes[row:n_valid],
                batches.records_count[row:n_valid],
                min(limits.max_records_per_batch, _INT32_MAX),
                limits.max_decompressed_bytes,
                thread_codecs(),
                arena.data,
                ends[-1],
                room,
                new_ends,
            )
            if n_done:
                ends += new_ends[:n_done].tolist()
                arena.used = ends[-1]
                continue
        # the next one is unusual or wrong, or does not fit
        # Kafka does not read the payload of a batch whose record count is 0
        if counts[row] != 0:
            if ends[-1] >= room or arena.used > MAX_ARENA - limits.max_decompressed_bytes:
                error = None  # the batch with the wrong checksum was not reached: the next call finds it again
                break
            payload = window.data[starts[row] : stops[row]]
            try:
                decompress_into(arena, codecs[row], payload, magic=2, limits=limits)
            except KafkalogError as problem:
                error = locate_error(problem, batches, row, path)
                break
            # an impossible record count is damage, which the walk reports; a possible one may exceed the limit
            n_most = (arena.used - ends[-1]) // kf.MIN_RECORD_BYTES
            if limits.max_records_per_batch < counts[row] <= n_most:
                arena.used = ends[-1]
                error = too_many_records(batches, row, limits, path)
                break
        elif codecs[row] > kf.LAST_CODEC:
            unknown = unknown_codec(codecs[row])
            error = locate_error(unknown, batches, row, path)
            break
        ends.append(arena.used)
    bounds = np.array(ends, np.int64)
    start, stop = bounds[:-1], bounds[1:]
    chosen = batches if start.size == len(batches) else batches[: start.size]
    n_records = int(np.clip(chosen.records_count, 0, (stop - start) // kf.MIN_RECORD_BYTES).sum(dtype=np.int64))
    data = arena.data[: arena.used]
    bits = int(np.bitwise_or.reduce(chosen.attributes))
    return PayloadSpans(data, start, stop, chosen, n_records, False, bits, error)


def limit_records(payloads: PayloadSpans, window: Window, limits: Limits, path: str | None) -> PayloadSpans:
    """Return the payloads before the first batch with more records than the limit, with the error about that batch.

    The record count counts only if it is possible for the batch's size and the checksum matches; otherwise the walk
    reports the batch as damaged.
    """
    if payloads.n_records <= limits.max_records_per_batch:
        return payloads
    batches = payloads.batches
    n_most = (payloads.stop - payloads.start) // kf.MIN_RECORD_BYTES
    over = (batches.records_count > limits.max_records_per_batch) & (batches.records_count <= n_most)
    if payloads.check_crcs:
        over[over] = valid_crcs(window, batches[np.flatnonzero(over)])
    if not over.any():
        return payloads
    row = int(np.argmax(over))
    n_records = int(np.clip(batches.records_count[:row], 0, n_most[:row]).sum(dtype=np.int64))
    return replace(
        payloads,
        start=payloads.start[:row],
        stop=payloads.stop[:row],
        batches=batches[:row],
        n_records=n_records,
        error=too_many_records(batches, row, limits, path),
    )


def too_many_records(batches: BatchTable, row: int, limits: Limits, path: str | None) -> LimitExceededError:
    base_offset = int(batches.base_offset[row])
    return LimitExceededError(
        Reason.TOO_MANY_RECORDS,
        f"there are more records than max_records_per_batch allows, {limits.max_records_per_batch}",
        path=path,
        position=int(batches.position[row]),
        base_offset=base_offset if base_offset >= 0 else int(batches.last_offset[row]),
        length=int(batches.size_in_bytes[row]),
    )


def walk_v2(
    payloads: PayloadSpans, *, headers: bool, limits: Limits, path: str | None
) -> tuple[Spans, int, KafkalogError | None]:
    """Return spans of the records of v2 batches, the number of batches done, and the error about the next one."""
    batches, n = payloads.batches, payloads.n_records
    names = [*_SPAN_NAMES, *(_HEADER_SPAN_NAMES if headers else ())]
    room = {name: scratch(name, n, np.int32) for name in names}
    offset, timestamp = empty(n, np.int64), empty(n, np.int64)
    status, n_done, n_records, _, n_headers = kernels.walk_records(
        payloads.data,
        payloads.start,
        payloads.stop,
        batches.base_offset,
        batches.base_timestamp,
        batches.max_timestamp,
        batches.attributes,
        batches.records_count,
        batches.crc,
        payloads.check_crcs,
        limits.max_headers_per_record,
        limits.max_headers_per_batch,
        offset,
        timestamp,
        room["key_start"],
        room["key_size"],
        room["value_start"],
        room["value_size"],
        room.get("headers_start"),
        room.get("headers_count"),
    )
    error = payloads.error if status == _OK else batch_error(status, batches, n_done, path)
    spans = Spans(
        data=payloads.data,
        batches=batches,
        counts=record_counts(batches, n_done),
        offset=offset[:n_records],
        timestamp=timestamp[:n_records],
        n_headers=n_headers,
        **{name: column[:n_records] for name, column in room.items()},
    )
    return spans, n_done, error


_SPAN_NAMES = ("key_start", "key_size", "value_start", "value_size")
_HEADER_SPAN_NAMES = ("headers_start", "headers_count")


def record_counts(batches: BatchTable, n_done: int) -> npt.NDArray[np.int64]:
    """Number of records of each batch; 0 for batches after the first `n_done`."""
    counts = batches.records_count.astype(np.int64)
    counts[n_done:] = 0
    return counts


def batch_error(status: int, batches: BatchTable, row: int, path: str | None, *, detail: str = "") -> KafkalogError:
    base_offset = int(batches.base_offset[row])
    return error_from_status(
        status,
        path=path,
        position=int(batches.position[row]),
        base_offset=base_offset if base_offset >= 0 else int(batches.last_offset[row]),
        length=int(batches.size_in_bytes[row]),
        detail=detail,
    )


def locate_error(error: KafkalogError, batches: BatchTable, row: int, path: str | None) -> KafkalogError:
    """Add path, position and base offset of a batch to an error about it; returns the error."""
    base_offset = int(batches.base_offset[row])
    error.path = path
    error.position = int(batches.position[row])
    error.base_offset = base_offset if base_offset >= 0 else int(batches.last_offset[row])
    if error.length is None:
        error.length = int(batches.size_in_bytes[row])
    # returned, not raised: the frames of its traceback would keep the arena alive in a reference cycle
    error.__traceback__ = None
    if error.__cause__ is not None:
        error.__cause__.__traceback__ = None
    return error


def _first_bad_crc(window: Window, batches: BatchTable) -> int:
    bad = np.flatnonzero(~valid_crcs(window, batches))
    return int(bad[0]) if bad.size else len(batches)


MAX_ARENA: Final = 2**31 - 1
_ARENA_MORE = 2**18  # for the batch that exceeds the size, and for padding that kernels write after it
_KEPT_ARENA = 2 * ARENA_BYTES
_KEPT_SCRATCH_BYTES = 2**23
_threads = threading.local()


def thread_arena() -> Arena:
    """Return an empty arena that reuses the memory of the thread's last one, unless that grew large.

    The content of the last one must have been copied before.
    """
    arena: Arena | None = getattr(_threads, "arena", None)
    if arena is None or arena.data.size > _KEPT_ARENA:
        arena = _threads.arena = Arena(ARENA_BYTES + _ARENA_MORE)
    arena.used = 0
    return arena


def release_arena() -> None:
    """Free the thread's arena if it grew large; spans must not be used after this."""
    arena: Arena | None = getattr(_threads, "arena", None)
    if arena is not None and arena.data.size > _KEPT_ARENA:
        _threads.arena = None


def scratch(name: str, n: int, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Memory for one column of spans, reused by each walk of a thread: page faults cost more than filling the pages."""
    kept: dict[str, npt.NDArray[Any]] = _threads.__dict__.setdefault("scratch", {})
    memory = kept.get(name)
    if memory is None or memory.size < n:
        memory = np.empty(n + n // 4, dtype)
        if memory.nbytes <= _KEPT_SCRATCH_BYTES:
            kept[name] = memory
    return memory[:n]


def concatenate_columns(
    parts: Sequence[Sequence[npt.NDArray[Any]]], names: Sequence[str]
) -> dict[str, npt.NDArray[Any]]:
    return {name: np.concatenate(column) for name, column in zip(names, zip(*parts, strict=True), strict=True)}


# --- decompressors ----------------------------------------------------------------------------------------------------


def thread_codecs() -> fill_kernels.Codecs:
    codecs: fill_kernels.Codecs | None = getattr(_threads, "codecs", None)
    if codecs is None:
        codecs = _threads.codecs = new_codecs(os.environ.get(_DECODERS_VARIABLE, ""))
    return codecs


def uses_kernels() -> bool:
    """Whether kernels decompress; tests can switch it off."""
    return os.environ.get(_DECODERS_VARIABLE) != "python"


def can_decompress(codecs: npt.NDArray[np.int8]) -> bool:
    """Whether the kernel can handle all these codecs; it also handles unknown ids."""
    if not uses_kernels():
        return False
    known = thread_codecs()
    return all(known.knows(codec) for codec in kf.Codec if codec and (codecs == codec).any())


def new_codecs(decoders: str = "") -> fill_kernels.Codecs:
    """Decompressors that use the libraries of this machine; none of them if `decoders` is ``"own"``.

    Functions are looked up by name in installed libraries, first in the `zstandard` package. Without any,
    `kafkalog.records.codecs` decompresses the same streams.
    """
    global _found
    if decoders == "own":
        return fill_kernels.Codecs()
    if _found is None:
        zstd, deflate = _functions("ZSTD_", _ZSTD, _zstd_files()), _functions("libdeflate_", _DEFLATE, _DEFLATE_FILES)
        _found = (zstd, deflate)
    zstd, deflate = _found
    return fill_kernels.Codecs(
        None if zstd is None else zstd[1],
        None if deflate is None else deflate[1],
        [each and each[0] for each in _found],
    )


_Functions = tuple[ctypes.CDLL, list[int]]
_found: tuple[_Functions | None, _Functions | None] | None = None  # two threads may both search: they find the same

_ZSTD: Final = ("createDCtx", "freeDCtx", "decompressDCtx", "findFrameCompressedSize")
_LEAST_ZSTD: Final = 1_05_06
"""Older versions accept blocks larger than their window, which Kafka's consumer rejects."""
_DEFLATE: Final = ("alloc_decompressor", "free_decompressor", "gzip_decompress_ex")
_DEFLATE_FILES: Final = ["libdeflate.so.0"]


def _zstd_files() -> list[str]:
    package = Listing.or_empty(Path(sys.modules["zstandard"].__file__ or "").parent)
    bundled = [str(package.path / name) for name in package.names if name.startswith("_cffi") and name.endswith(".so")]
    return [*bundled, "libzstd.so.1"]


def _functions(prefix: str, names: Sequence[str], files: Sequence[str]) -> _Functions | None:
    """The first library with functions of all these names, and their addresses."""
    for file in files:
        try:
            library = ctypes.CDLL(file)
            addresses = [ctypes.cast(getattr(library, prefix + name), ctypes.c_void_p).value for name in names]
            is_strict = prefix != "ZSTD_" or library.ZSTD_versionNumber() >= _LEAST_ZSTD
        except (OSError, AttributeError):
            continue
        if all(addresses) and is_strict:
            return library, [address or 0 for address in addresses]
    return None
