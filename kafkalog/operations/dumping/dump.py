"""Turns segment files into the lines that Kafka's `DumpLogSegments` prints for them, or into objects.

Lines of undamaged files are exactly those of Kafka's tool. It trusts every header that it can read; here damage ends a
file with the error of the ordinary reader, after the lines of the batches before. Only a wrong checksum does not.

Mirrors `org.apache.kafka.tools.DumpLogSegments`.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, Unpack

from kafkalog import format as kf
from kafkalog.calls import leading_names
from kafkalog.errors import Finding, KafkalogError
from kafkalog.log.log_dir import missing_path
from kafkalog.log.segment import is_last_segment
from kafkalog.operations.dumping.dump_text import text_of_log, title
from kafkalog.operations.dumping.files import absolute, as_file, open_file, suffix_of
from kafkalog.operations.dumping.log_walk import LogWalk
from kafkalog.operations.dumping.mismatches import Mismatches
from kafkalog.operations.dumping.options import DECODERS, DIALECTS, DumpKeywords, DumpOptions
from kafkalog.operations.dumping.rows import Row, rows_of_log, rows_of_report
from kafkalog.operations.dumping.sidecars import (
    Entry,
    read_index,
    read_producers,
    read_time_index,
    read_transaction_index,
)
from kafkalog.storage.files import size_of
from kafkalog.storage.listing import Listing
from kafkalog.storage.location import AnyPath, kind_of, place_of, plain
from kafkalog.text import counted

__all__ = ["DECODERS", "DIALECTS", "Dump", "DumpOptions", "dump"]

Pathish = str | os.PathLike[str]


class FilesProgress:
    """Progress over several files: adds the size of the finished files to the position in the current one."""

    def __init__(self, progress: Callable[[int], None] | None, done: int) -> None:
        self._progress, self._done = progress, done

    def reach(self, position: int) -> None:
        if self._progress is not None:
            self._progress(self._done + position)


@leading_names
class Dump:
    """A dump of files; each iteration reads the files again and yields the lines.

    Parameters
    ----------
    paths : sequence of str
    options : DumpOptions

    Attributes
    ----------
    paths : list of str
    options : DumpOptions
    """

    def __init__(self, paths: Iterable[AnyPath], options: DumpOptions) -> None:
        self.paths = list(paths)
        self.options = options
        self._report = Mismatches()

    def __iter__(self) -> Iterator[str]:
        """Yield lines without line ends; a value with line breaks in it gives several, as in the tool's output."""
        for chunk in self.chunks():
            for line in chunk[:-1].split(b"\n"):
                yield line.decode(errors="surrogateescape")

    def __repr__(self) -> str:
        return f"Dump({counted(len(self.paths), 'file')}, dialect {self.options.dialect})"

    @property
    def findings(self) -> list[Finding]:
        """Issues found by the last pass, up to `Limits.max_findings`."""
        return self._report.findings.rows

    @property
    def n_damage(self) -> int:
        """How many issues of the last pass are damage, including those beyond `Limits.max_findings`."""
        return self._report.findings.n_damage

    @property
    def notes(self) -> list[str]:
        """The lines that the tool prints to stderr while it reads."""
        return self._report.notes

    def mismatches(self) -> Iterator[str]:
        """Yield the lists of the last pass that the tool prints to stderr at the end: mismatches and offset gaps."""
        return self._report.lines()

    def chunks(self, progress: Callable[[int], None] | None = None) -> Iterator[bytes]:
        """Yield the text in UTF-8, in pieces of up to a few megabytes.

        Parameters
        ----------
        progress : callable, optional
            Called with the number of bytes of all files that are done.

        Raises
        ------
        KafkalogError
            A file is damaged: after the lines before the damage. Later files are not read, unless `keep_going`.
        """
        yield from self._each(self._text, progress)

    def rows(self, progress: Callable[[int], None] | None = None) -> Iterator[dict[str, Any]]:
        """Yield the content as dicts; keys, values and header values are `bytes`. For parameters see `chunks`.

        Each dict has a `kind`: `file`, `batch`, `record`, `trailing_bytes`, `offset_index_entry`, `time_index_entry`,
        `sanity`, `aborted_transaction`, `producer`, or `mismatch` for an entry of the lists at the end.
        """
        yield from self._each(self._rows, progress)
        yield from rows_of_report(self._report)

    def _each(
        self, one: Callable[[AnyPath, FilesProgress], Iterator[Any]], progress: Callable[[int], None] | None
    ) -> Iterator[Any]:
        self._report = Mismatches(self.options.limits.max_findings, is_2_8=self.options.is_2_8)
        done = 0
        for path in self.paths:
            try:
                yield from one(as_file(path), FilesProgress(progress, done))
            except KafkalogError as error:
                if not self.options.keep_going:
                    raise
                self._report.findings.add(error.to_finding())
            if progress is not None:
                done += size_of(path)
                progress(done)

    def _text(self, path: AnyPath, progress: FilesProgress) -> Iterator[bytes]:
        yield f"Dumping {path}\n".encode(errors="surrogateescape")
        if not self._is_log(path):
            entries = self._entries(path)
            while lines := [f"{line}\n" for line, _ in itertools.islice(entries, _LINES_AT_A_TIME)]:
                yield "".join(lines).encode(errors="surrogateescape")
            return
        yield f"{title(os.path.basename(path), is_2_8=self.options.is_2_8)}\n".encode()
        with self._walk(path) as walk:
            for chunk in text_of_log(walk, self.options):
                yield chunk
                progress.reach(walk.position)

    def _rows(self, path: AnyPath, progress: FilesProgress) -> Iterator[Row]:
        yield {"kind": "file", "path": str(path), "base_offset": kf.parse_base_offset(os.path.basename(path))}
        if not self._is_log(path):
            yield from (row for _, row in self._entries(path) if row is not None)
            return
        with self._walk(path) as walk:
            for row in rows_of_log(walk, self.options):
                yield row
                if row["kind"] == "batch":
                    progress.reach(walk.position)

    def _is_log(self, path: AnyPath) -> bool:
        return suffix_of(path, self.options) in (kf.LOG_SUFFIX, kf.RAFT_SNAPSHOT_SUFFIX)

    @contextlib.contextmanager
    def _walk(self, path: AnyPath) -> Iterator[LogWalk]:
        name = os.path.basename(path)
        is_last = not name.endswith(kf.LOG_SUFFIX) or is_last_segment(place_of(path), kf.parse_base_offset(name))
        with open_file(path, self.options) as source:
            yield LogWalk(source, self.options, self._report, str(absolute(path)), is_last=is_last)

    def _entries(self, path: AnyPath) -> Iterator[Entry]:
        read = _READERS.get(suffix_of(path, self.options))
        if read is None:
            self._report.notes.append(f"Ignoring unknown file {path}")
            return iter(())
        return read(path, absolute(path), self.options, self._report)


_LINES_AT_A_TIME: Final = 4096
_READERS: Final[dict[str, Callable[..., Iterator[Any]]]] = {
    kf.INDEX_SUFFIX: read_index,
    kf.TIME_INDEX_SUFFIX: read_time_index,
    kf.TRANSACTION_INDEX_SUFFIX: read_transaction_index,
    kf.PRODUCER_SNAPSHOT_SUFFIX: read_producers,
}


def dump(paths: Pathish | Iterable[Pathish], **options: Unpack[DumpKeywords]) -> Dump:
    """Dump segment files as Kafka's `DumpLogSegments` does: `.log`, `.index`, `.timeindex`, `.txnindex`, `.snapshot`.

    Parameters
    ----------
    paths : path-like or several
        Files, in the order in which they are dumped.
    **options
        The options of `DumpOptions`: `deep_iteration`, `print_data_log`, `skip_record_metadata`, `max_bytes`,
        `index_sanity_check`, `verify_index_only`, `max_message_size`, `dialect`, `key_decoder`, `value_decoder`,
        `topic_decoder`, `keep_going`, `limits`.

    Returns
    -------
    Dump
        Iterate over it for lines of `str`, over `chunks()` for UTF-8, or over `rows()` for objects. Nothing is read
        before that.

    Examples
    --------
    >>> import kafkalog
    >>> lines = list(kafkalog.dump("tests/golden/log_dir/p-txn-0/00000000000000000014.txnindex"))
    >>> print(lines[1])
    version: 0 producerId: 2 firstOffset: 20 lastOffset: 31 lastStableOffset: 16
    """
    checked = DumpOptions(**options)
    several = [plain(path) for path in ([paths] if isinstance(paths, (str, os.PathLike)) else paths)]
    if not several:
        raise ValueError("no path given")
    for path in several:
        # before the first file is read: a mistake in the last one would come late
        if (kind := kind_of(path)) == "directory":
            raise ValueError(f"{path} is a directory; name files, such as {_files_in(path)}")
        if kind is None:
            raise missing_path(path)
    return Dump(several, checked)


def _files_in(path: AnyPath) -> str:
    """A pattern for the segments in a directory, or in the first partition of a log dir."""
    listing = Listing.or_empty(place_of(path))
    partitions = [name for name in listing.directories if kf.parse_partition_directory(name)]
    # internal topics, whose names begin with _, last
    return os.path.join(path, *sorted(partitions, key=lambda name: name.startswith("_"))[:1], "*.log")
