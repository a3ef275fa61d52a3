"""Brings deleted batches back from images and devices, as log dirs: one for each degree of certainty.

Nothing is written to an image. Every batch is checked again while it is copied.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from kafkalog import codec
from kafkalog import format as kf
from kafkalog.booting.coordinators import DEFAULT_PARTITIONS, coordinator_partition
from kafkalog.errors import DEFAULT_LIMITS, Finding, Findings, KafkalogError, Limits, Reason
from kafkalog.log.log_dir import LogDir
from kafkalog.parsing import check_output
from kafkalog.records.batch_table import HeaderParser, Window, valid_crcs
from kafkalog.records.header_walk import window_of
from kafkalog.repair.salvaging.salvage import write_origin
from kafkalog.reporting.page import page
from kafkalog.reporting.tables import Table, TablesResult, tables_of
from kafkalog.state.log_config import NEVER_ROLLS, LogConfig, default_config
from kafkalog.storage.atomic import StrPath, check_free
from kafkalog.storage.bad_sectors import BadSectorSource
from kafkalog.storage.copying import COPY_BYTES
from kafkalog.storage.output_paths import check_outside
from kafkalog.storage.room import check_room
from kafkalog.storage.staging import StagedDirectory, scratch_directory, staged_directory
from kafkalog.survey.next_steps import NextStep, boot_step, log_dirs_of
from kafkalog.survey.startup_files import unnamed_segments
from kafkalog.text import counted
from kafkalog.undeleting.divided_batches import DividedBatches, Places, parts_of
from kafkalog.undeleting.fragments import Fragment, LiveBatches, find_fragments, mark_copies, torn_rows
from kafkalog.undeleting.images import Journal, block_size, open_image, rows_of, search_image
from kafkalog.undeleting.joining import LEVELS, Certainty, Chain, Joiner, chains_of
from kafkalog.undeleting.topic_names import TopicNames, is_metadata
from kafkalog.writing.batch_builder import now_ms
from kafkalog.writing.partition_writer import PartitionWriter

SEARCH_LIMITS: Final = Limits(max_batch_bytes=2**25)
"""Those of a search by default: random bytes look like the start of large batches."""
REPORT_NAME: Final = "undelete.json"
VERSION: Final = 1
_UNKNOWN: Final = "unknown-"
_BY_METADATA: Final = f"by its records {kf.METADATA_DIRECTORY}"
_NAMED_BY: Final = 64  # keys that are read to name a partition of an internal topic

TABLES: Final = """
partitions: Partitions. Each was written, or would be.
  name, certainty, start_offset number ~5, end_offset number ~7, n_batches number ~3, n_bytes bytes ~6, \
n_fragments number ~2, why ~4, output ~1
fragments: Fragments. Batches of an image without a gap between them.
  name, certainty, image, position bytes, n_bytes bytes, first_offset number, last_offset number, n_batches number, \
first_timestamp time?, last_timestamp time?, first_epoch number, last_epoch number
topics: Topics. Metadata records in the images name them: rename partitions to these when you know which they are.
  topic, topic_id ~1, n_partitions number, is_deleted bool
copies: Copies. Fragments whose batches are all in another one, too: they were written once, in this partition.
  name, image, position bytes, n_bytes bytes, first_offset number, last_offset number, n_batches number
contradictions: Contradictions. Batches that were left out of a partition, since it has others at their offsets.
  name, written_to, first_offset number, last_offset number, n_batches number
"""


@dataclass(slots=True, repr=False)
class Undeleted(TablesResult):
    """What was brought back."""

    images: list[str]
    log_dirs: list[str]
    """What is left of the broker."""
    is_written: bool
    summary: dict[str, int]
    """Counts of batches: deleted ones, live ones, copies, those of metadata snapshots."""
    tables: dict[str, Table]
    findings: Findings

    @property
    def ok(self) -> bool:
        """Whether all was read, and all deleted batches are in partitions that are certain."""
        return not self.findings.n_damage

    @property
    def next(self) -> list[NextStep]:
        """How a broker serves what was brought back, with what is left; without fragments of images that are alone."""
        if not self.is_written:
            return []
        # batches at the start of a file are no fragment, but a segment that a file system check has found
        whole = {name for name, _, _, position, *_ in self.tables["fragments"].rows if position == 0}
        rows = [row for row in self.tables["partitions"].rows if row[1] != "alone" or row[0] in whole]
        unnamed = [row[0] for row in rows if row[0].startswith(_UNKNOWN)]
        places = dict.fromkeys(row[-1] if row[1] == "alone" else os.path.dirname(row[-1]) for row in rows)
        return [boot_step([*log_dirs_of(self.log_dirs), *places], unnamed=unnamed)] if places else []

    def as_dict(self) -> dict[str, Any]:
        """All fields, for JSON."""
        return {
            "version": VERSION,
            "images": self.images,
            "is_written": self.is_written,
            "ok": self.ok,
            "summary": self.summary,
            **self.rows_of_tables(),
            "findings": [one.as_dict() for one in self.findings.rows],
            "next": [step.as_dict() for step in self.next],
        }

    def to_html(self) -> str:
        """Return one page that needs no network."""
        figures = [(name.removeprefix("n_").replace("_", " "), f"{n:,}") for name, n in self.summary.items()]
        return "".join(page("kafkalog undelete", now_ms(), figures, self.tables.values(), is_ok=self.ok))

    def __repr__(self) -> str:
        n = counted(len(self.tables["partitions"].rows), "partition")
        return f"Undeleted({n}, {counted(self.summary['n_deleted_batches'], 'batch')})"


class _CopiedRows(NamedTuple):
    """Batches to copy: rows of the journal, or a batch that is divided between two places."""

    fragment: Fragment
    rows: npt.NDArray[np.void]
    end_offset: int
    parts: tuple[tuple[int, int], ...] = ()

    @property
    def n_batches(self) -> int:
        """Batches of the search."""
        return self.rows.size or 1

    @property
    def n_bytes(self) -> int:
        """Their bytes."""
        return sum(end - start for start, end in self.parts) or int(self.rows["size"].sum(dtype=np.int64))

    def spans(self) -> Iterator[tuple[int, int]]:
        """Rows to read together: batches after each other, some MiB at a time."""
        ends = np.cumsum(self.rows["size"], dtype=np.int64)
        is_apart = self.rows["position"][1:] != self.rows["position"][:-1] + self.rows["size"][:-1]
        breaks = np.flatnonzero(is_apart | (np.diff(ends // COPY_BYTES) > 0)) + 1
        yield from itertools.pairwise([0, *breaks.tolist(), self.rows.size])


def undelete(
    images: Sequence[str | os.PathLike[str]] | str | os.PathLike[str],
    output: str | os.PathLike[str] | None = None,
    *,
    log_dir: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    all: bool = False,
    journal: str | os.PathLike[str] | None = None,
    dry_run: bool = False,
    progress: Callable[[int], object] = lambda n_bytes: None,
    limits: Limits = SEARCH_LIMITS,
) -> Undeleted:
    """Find the batches of deleted segments in images of disks, and write them as partitions.

    Parameters
    ----------
    images : path-like, or sequence of path-like
        Images of disks or partitions, block devices, or files that a file system check has found. A directory such as
        ``lost+found`` stands for its files that begin with a record batch. They are only read.
    output : path-like, optional
        The directory to create, with the log dirs ``certain``, ``likely`` and ``alone`` and the report,
        ``undelete.json`` and ``undelete.html``. Not needed for a dry run.
    log_dir : path-like, or several, optional
        What is left: log dirs of the same broker. Their batches are not deleted, and they name partitions.
    all : bool
        Also write batches that are in these log dirs, and fragments whose batches are all in another one.
    journal : path-like, optional
        A file for what was found so far. If it exists, the search goes on from there.
    dry_run : bool
        Search, join and report, but write nothing.
    progress : callable
        ``progress(n_bytes)`` is called with the number of bytes searched since the last call.
    limits : Limits
        Larger batches than `max_batch_bytes` are not found; it is 32 MiB without `limits`.

    Returns
    -------
    Undeleted

    Raises
    ------
    ReadError
        An image or a log dir cannot be read.
    UnsafePathError
        `output` or `journal` lies in a log dir, or is an image; or `journal` is that of other images or limits.
    OutputExistsError
        `output` exists.
    WriteError
        The output could not be written; it does not appear.

    Notes
    -----
    A batch has its length, checksum, offsets, leader epoch, producer and times, but no topic. Batches without a gap
    between them are a fragment. A fragment continues in another one if offsets, epochs and the sequences of producers
    do, and if no other one fits. It is *certain* if the checksum of a batch between them proves it, and *likely* if the
    sequences of a producer or times agree. Otherwise the fragment stays *alone*, under a name such as
    ``unknown-0001-0``. Partitions of live log dirs that have the same batches, or that go on from them, give their
    names. Nothing that is not certain is in ``certain``.

    What was overwritten or trimmed (SSDs, thin volumes) does not come back, nor does an encrypted volume without its
    key. Rows of the search take 80 bytes per batch of a temporary file, or of `journal`.

    Examples
    --------
    >>> found = kafkalog.undelete("tests/golden/log_dir/p-multi-0/00000000000000000000.log", dry_run=True)
    >>> found.summary["n_deleted_batches"]
    19
    """
    check_output(output, dry_run=dry_run)
    paths, log_dirs = [*itertools.chain.from_iterable(map(_files_of, _several(images)))], _several(log_dir)
    if not paths:
        raise ValueError("images is a sequence of at least one path")
    target = None if output is None else Path(output)
    if target is not None and not dry_run:
        check_free(target)
        check_outside(target, [*paths, *log_dirs], is_new=True)
    if journal is not None:
        check_outside(journal, [*paths, *log_dirs])
    with contextlib.ExitStack() as stack:
        sources = [stack.enter_context(open_image(path)) for path in paths]
        staged = None if dry_run else stack.enter_context(staged_directory(target or Path()))
        kept = None if journal is None else Path(journal)
        place = kept or Path(stack.enter_context(_scratch(staged)), "journal")
        rows_file = stack.enter_context(Journal(place, sources, limits, is_kept=kept is not None))
        findings = Findings(limits.max_findings)
        live = _live_batches(log_dirs, findings, limits)
        for number, source in enumerate(sources):
            start = rows_file.resume_at(number) if kept is not None else 0
            progress(start)
            search_image(number, source, rows_file, start, limits, progress)
        search = _FoundBatches(sources, rows_file.rows(), live, limits, takes_live=all)
        search.report_unreadable(findings)
        writer = _ChainWriter(search, staged, target, Undeleted(
            [*map(str, paths)], [*map(str, log_dirs)], not dry_run, search.summary, tables_of(TABLES), findings
        ))  # fmt: skip
        writer.write_all(log_dirs)
        return writer.report


def _several(paths: Sequence[StrPath] | StrPath | None) -> list[StrPath]:
    if paths is None:
        return []
    return [paths] if isinstance(paths, (str, os.PathLike)) else [*paths]


def _files_of(path: StrPath) -> list[StrPath]:
    """The files in a directory that begin with a record batch; the path itself if it is no such directory."""
    found = unnamed_segments(Path(path)) if os.path.isdir(path) else []
    return [Path(path) / name for name in found] or [path]


def _scratch(staged: StagedDirectory | None) -> contextlib.AbstractContextManager[str | Path]:
    """A directory for the journal, on the file system of the output."""
    if staged is None:
        return tempfile.TemporaryDirectory(prefix="kafkalog-")
    return scratch_directory(staged.path.parent, staged.target.name)


def _live_batches(log_dirs: Iterable[str | os.PathLike[str]], findings: Findings, limits: Limits) -> LiveBatches:
    # batches that a broker accepts are read, even if they are smaller than those that are searched for
    most = max(limits.max_batch_bytes, DEFAULT_LIMITS.max_batch_bytes)
    live, limits = LiveBatches(), replace(limits, max_batch_bytes=most)
    for root in log_dirs:
        for partition in LogDir(root, limits=limits).values():
            for segment in partition.segments:
                try:
                    live.add(str(partition.topic_partition), rows_of(segment.batches))
                except KafkalogError as error:
                    findings.add(error.to_finding(damage=False))
    return live


class _FoundBatches:
    """What was found, and the bytes of it."""

    def __init__(
        self,
        sources: Sequence[BadSectorSource],
        rows: npt.NDArray[np.void],
        live: LiveBatches,
        limits: Limits,
        *,
        takes_live: bool,
    ) -> None:
        self.sources, self.rows, self.limits, self._live = sources, rows, limits, live
        self._takes_live = takes_live
        self._names: dict[int, str | None] = {}
        """By the id of a fragment, what its records show."""
        blocks = [block_size(source) for source in sources]
        fragments = [*find_fragments(rows, blocks, live)]
        self._all_fragments = fragments
        mark_copies([one for one in fragments if not one.is_checkpoint], rows)
        # a fragment that is all in the log dir stands for its segment already
        gone = [one for one in fragments if one.n_live < one.n_batches or takes_live]
        self.fragments = gone + live.segments
        self._divided = DividedBatches(sources, blocks, limits)
        places = Places(self._divided, fragments, None if takes_live else live)
        self.fragments += places.find([one for one in gone if one.is_v2 and not one.is_copy], torn_rows(rows))
        joiner = Joiner(self.fragments, self._divided.after, self._divided.cut)
        self.joins = joiner.joins()
        self.summary = _counts(fragments, gone) | {
            "n_ambiguous_fragments": joiner.n_ambiguous,
            "n_untried_batches": places.n_untried,
        }

    def report_unreadable(self, findings: Findings) -> None:
        """Add a finding for each range of bad sectors, and one if nothing was found at all."""
        if not self.summary["n_batches"]:
            most = self.limits.max_batch_bytes
            detail = (
                "no batches of Kafka were found: name an image of the disk that had the log dir"
                f" (batches above max_batch_bytes={most} are not searched for)"
            )
            findings.add(Finding(Reason.SEGMENT_MISSING, detail, path=self.sources[0].path, n_records=0))
        for source in self.sources:
            for start, end in source.unreadable:
                detail = f"{counted(end - start, 'byte')} cannot be read"
                findings.add(
                    Finding(Reason.FILE_UNREADABLE, detail, path=source.path, position=start, length=end - start)
                )

    def chains(self) -> Iterator[Chain]:
        """Chains with something to write. Keys show a partition of an internal topic."""
        for chain in chains_of(self.fragments, self.joins):
            some = [self.fragments[number] for number in chain.fragments if self.fragments[number].image >= 0]
            is_divided = any(join.cut for join in chain.joins)
            if (not is_divided and not any(one.n_batches for one in some)) or all(one.is_checkpoint for one in some):
                continue
            some = [one for one in some if one.n_batches]
            if some and chain.name is None and (name := self._internal_name(some[0])) is not None:
                chain.why += f"; {name}"
            yield chain

    def left_out(self, chain: Chain) -> Fragment | None:
        """The fragment of a chain that is a copy of another one; None for other chains, and if all is written."""
        first = self.fragments[chain.fragments[0]]
        return first if first.is_copy and not self._takes_live else None

    def topic_names(self) -> Iterator[tuple[str, str, int, bool]]:
        """The topics that metadata records and snapshots in the images name, deleted ones included."""
        names = TopicNames()
        for fragment in self._all_fragments:
            if not fragment.is_copy and (fragment.is_checkpoint or self._is_metadata(fragment)):
                piece = _CopiedRows(fragment, np.asarray(self.rows[fragment.first_row : fragment.stop_row]), 0)
                for first, stop in piece.spans():
                    names.add(self._records(piece, first, stop)[1])
        return names.rows()

    def pieces(self, chain: Chain) -> Iterator[_CopiedRows]:
        """What to copy of a chain, in the order of its offsets."""
        cuts = {join.before: join for join in chain.joins if join.cut}
        for number in chain.fragments:
            fragment = self.fragments[number]
            if fragment.image < 0:
                continue
            rows = np.asarray(self.rows[fragment.first_row : fragment.stop_row])
            if fragment.n_live and not self._takes_live:
                rows = rows[~self._live.names_of(rows)[0]]
            if rows.size:
                yield _CopiedRows(fragment, rows, int(rows["last_offset"][-1]) + 1)
            if number in cuts:
                divided = self._divided.after(fragment)
                assert divided is not None
                parts = parts_of(fragment, self.fragments[cuts[number].after], divided, cuts[number].cut)
                yield _CopiedRows(fragment, self.rows[:0], divided.last_offset + 1, parts)

    def window(self, piece: _CopiedRows, first: int, stop: int) -> Window | None:
        """Read some batches of a piece again; None if they have changed."""
        source = self.sources[piece.fragment.image]
        if piece.parts:
            return self._divided.whole(piece.fragment.image, piece.parts)
        last = piece.rows[stop - 1]
        data = window_of(source, int(piece.rows["position"][first]), int(last["position"] + last["size"]))
        tables, *_ = HeaderParser(stop - first).parse(data, 0, -1)
        n = sum(map(len, tables))
        if n != stop - first:
            return None
        table = tables[0] if len(tables) == 1 else tables[0].concatenate(tables)
        window = Window(data, 0, table)
        return window if valid_crcs(window).all() else None

    def _internal_name(self, fragment: Fragment) -> str | None:
        """The internal topic that the first records belong to, with the partition; None for records of other topics."""
        if id(fragment) not in self._names:
            self._names[id(fragment)] = self._name_by_records(fragment)
        return self._names[id(fragment)]

    def _name_by_records(self, fragment: Fragment) -> str | None:
        rows = self.rows[fragment.first_row : fragment.stop_row]
        piece = _CopiedRows(fragment, rows, 0)
        keys: list[bytes | None] = []
        values: list[bytes | None] = []
        names: set[str | None] = set()
        for row in np.flatnonzero((rows["attributes"] & kf.CONTROL_BIT) == 0)[:4].tolist():
            some_keys, some_values = self._records(piece, row, row + 1)
            keys, values = keys + some_keys[:_NAMED_BY], values + some_values[:_NAMED_BY]
            names = {_coordinator_of(key) for key in keys}
            if not some_keys or not (is_metadata(keys, values) or (len(names) == 1 and None not in names)):
                return None
        if is_metadata(keys, values):
            return _BY_METADATA
        return f"by its keys {names.pop()}, if that topic has {DEFAULT_PARTITIONS} partitions" if names else None

    def _is_metadata(self, fragment: Fragment) -> bool:
        # what the controllers write has no producer and is not compressed
        row = self.rows[fragment.first_row]
        return int(row["producer_id"]) < 0 and self._internal_name(fragment) == _BY_METADATA

    def _records(self, piece: _CopiedRows, first: int, stop: int) -> tuple[list[bytes | None], list[bytes | None]]:
        """Keys and values of the records of some batches; none if they have changed, or cannot be decoded."""
        window = self.window(piece, first, stop)
        if window is None:
            return [], []
        try:
            found = codec.decode(window.data, columns=["key", "value"], limits=self.limits)
        except KafkalogError:
            return [], []
        return found.key.to_pylist(), found.value.to_pylist()


def _coordinator_of(key: bytes | None) -> str | None:
    """The partition that a key of `__consumer_offsets` or `__transaction_state` belongs to; None for other keys."""
    if key is None or len(key) < 5:
        return None
    version, length = int.from_bytes(key[:2], "big"), int.from_bytes(key[2:4], "big")
    name, rest = key[4 : 4 + length], key[4 + length :]
    if not length or len(name) < length:
        return None
    is_commit = version < 2 and len(rest) > 6 and int.from_bytes(rest[:2], "big") == len(rest) - 6
    is_group = version == 2 and not rest
    is_transaction = version == 0 and not rest
    if not (is_commit or is_group or is_transaction):
        return None
    try:
        number = coordinator_partition(name.decode(), DEFAULT_PARTITIONS)
    except UnicodeDecodeError:
        return None
    return f"{kf.TRANSACTION_STATE if is_transaction else kf.CONSUMER_OFFSETS}-{number}"


def _counts(fragments: Sequence[Fragment], gone: Sequence[Fragment]) -> dict[str, int]:
    """Batches of all fragments, and of those that are not wholly live."""
    of_logs = [one for one in gone if not one.is_checkpoint]
    return {
        "n_batches": sum(one.n_batches for one in fragments),
        "n_live_batches": sum(one.n_live for one in fragments),
        "n_snapshot_batches": sum(one.n_batches for one in gone if one.is_checkpoint),
        "n_copied_batches": sum(one.n_batches for one in of_logs if one.is_copy),
        "n_deleted_batches": sum(one.n_batches - one.n_live for one in of_logs),
    }


@contextlib.contextmanager
def _opened_log(directory: Path, start: int) -> Iterator[PartitionWriter]:
    """The writer of a new partition that begins at an offset."""
    directory.parent.mkdir(exist_ok=True)
    config = LogConfig(**NEVER_ROLLS)
    with PartitionWriter(directory, config=config, start_offset=start) as writer:
        writer.roll(start)
        yield writer


class _ChainWriter:
    """Writes chains as partitions, and fills in the report."""

    def __init__(
        self, search: _FoundBatches, staged: StagedDirectory | None, target: Path | None, report: Undeleted
    ) -> None:
        self._search, self._staged, self._target, self.report = search, staged, target, report
        self._n_unknown = 0
        self._names: dict[int, str] = {}
        """By the id of a fragment, the partition with it."""

    def write_all(self, log_dirs: Sequence[str | os.PathLike[str]]) -> None:
        """Write all partitions and the report."""
        groups: dict[tuple[Certainty, str], list[Chain]] = defaultdict(list)
        copies: list[Fragment] = []
        for chain in self._search.chains():
            if (copy := self._search.left_out(chain)) is not None:
                copies.append(copy)
                continue
            groups[chain.certainty, chain.name or self._unknown()].append(chain)
        n_bytes = sum(
            piece.n_bytes for chains in groups.values() for chain in chains for piece in self._search.pieces(chain)
        )
        check_room(self._target, (), self.report.findings.add, dry_run=self._staged is None, n_more=n_bytes)
        apart: list[Chain] = []
        for certainty in LEVELS:
            for (level, name), chains in sorted(groups.items()):
                if level == certainty:
                    apart += self._write(level, name, chains)
        for chain in apart:
            self._write("alone", self._unknown(), [chain])
        for one in copies:
            self._add_copy(one)
        self.report.tables["topics"].rows.extend(self._search.topic_names())
        if self._staged is not None:
            used = {row[1] for row in self.report.tables["partitions"].rows}
            for certainty in sorted(used):
                write_origin(self._staged, "undelete", log_dirs, is_whole=False, folder=certainty)
            self._staged.put(REPORT_NAME, json.dumps(self.report.as_dict(), indent=1) + "\n")
            self._staged.put("undelete.html", self.report.to_html())

    def _add_copy(self, fragment: Fragment) -> None:
        """Report a fragment that was not written, since a longer one has its batches."""
        original = fragment
        while original.copy_of is not None:
            original = original.copy_of
        self.report.tables["copies"].rows.append((
            self._names.get(id(original), ""), str(self._search.sources[fragment.image].path), fragment.start,
            fragment.end - fragment.start, fragment.first_offset, fragment.last_offset, fragment.n_batches,
        ))  # fmt: skip

    def _unknown(self) -> str:
        self._n_unknown += 1
        return f"{_UNKNOWN}{self._n_unknown:04}-0"

    def _write(self, certainty: Certainty, name: str, chains: list[Chain]) -> list[Chain]:
        """Write chains of one partition; returns those at whose offsets it has other batches: later epochs win."""
        fragments = self._search.fragments
        chains = sorted(chains, key=lambda one: (-fragments[one.fragments[-1]].last_epoch, -len(one.fragments)))
        kept: list[Chain] = []
        apart = []
        for chain in chains:
            first, last = fragments[chain.fragments[0]].first_offset, fragments[chain.fragments[-1]].last_offset
            overlaps = any(
                first <= fragments[one.fragments[-1]].last_offset and fragments[one.fragments[0]].first_offset <= last
                for one in kept
            )
            if overlaps:
                apart.append(chain)
                n = sum(fragments[number].n_batches for number in chain.fragments)
                self.report.tables["contradictions"].rows.append((name, "alone", first, last, n))
            else:
                kept.append(chain)
        kept.sort(key=lambda one: fragments[one.fragments[0]].first_offset)
        pieces = [piece for chain in kept for piece in self._search.pieces(chain)]
        if pieces:
            self._write_pieces(certainty, name, pieces, kept)
        return apart

    def _write_pieces(self, certainty: Certainty, name: str, pieces: list[_CopiedRows], chains: list[Chain]) -> None:
        fragments = [piece.fragment for piece in pieces if not piece.parts]
        start = int(pieces[0].rows["first_offset"][0]) if pieces[0].rows.size else pieces[0].fragment.last_offset + 1
        if self._staged is None:
            n_batches, n_bytes = sum(piece.n_batches for piece in pieces), sum(piece.n_bytes for piece in pieces)
            end = pieces[-1].end_offset
        else:
            with _opened_log(self._staged.path / certainty / name, start) as log:
                n_batches, n_bytes, end = self._append(pieces, log, start)
        place = "" if self._target is None else str(self._target / certainty / name)
        if certainty != "certain":
            detail = f"{counted(n_batches, 'batch')} of {name}: {chains[0].why}"
            path = self._search.sources[pieces[0].fragment.image].path
            position = pieces[0].fragment.start
            # a doubt about the name is no loss
            self.report.findings.add(Finding(Reason.UNPROVEN, detail, path=path, position=position, n_records=0))
        self.report.tables["partitions"].rows.append((
            name, certainty, start, end, n_batches, n_bytes, len(fragments), chains[0].why, place
        ))  # fmt: skip
        for one in fragments:
            self._names[id(one)] = name
            times = [None if time < 0 else time for time in (one.first_timestamp, one.last_timestamp)]
            self.report.tables["fragments"].rows.append((
                name, certainty, str(self._search.sources[one.image].path), one.start, one.end - one.start,
                one.first_offset, one.last_offset, one.n_batches, *times, one.first_epoch, one.last_epoch,
            ))  # fmt: skip

    def _append(self, pieces: Iterable[_CopiedRows], log: PartitionWriter, end: int) -> tuple[int, int, int]:
        """Append batches; returns their number and bytes, and the end offset."""
        n_batches = n_bytes = rolled = 0
        for window in (window for piece in pieces for window in self._windows(piece)):
            first = window.batches.first_offset
            if n_bytes and (first > end or n_bytes - rolled > default_config().segment_bytes):
                log.roll(first)
                rolled = n_bytes
            log.append_batches(window)
            n_batches += len(window.batches)
            n_bytes += window.data.size
            end = window.batches.end_offset
        return n_batches, n_bytes, end

    def _windows(self, piece: _CopiedRows) -> Iterator[Window]:
        """The batches of a piece, some at a time. Batches that changed after the search are left out, and reported."""
        for first, stop in [(0, 0)] if piece.parts else piece.spans():
            window = self._search.window(piece, first, stop)
            if window is not None:
                yield window
                continue
            source = self._search.sources[piece.fragment.image]
            self.report.findings.add(Finding(
                Reason.FILE_CHANGED, "batches have changed since they were found: left out", path=source.path,
                position=int(piece.rows["position"][first]) if piece.rows.size else piece.fragment.end,
            ))  # fmt: skip
