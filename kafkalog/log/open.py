"""`open` turns a path into a `Segment`, a `Partition` or a `LogDir`, depending on what is at the path."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, Never, NoReturn, TypedDict, Unpack

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS, Finding, KafkalogError, Limits, NotKafkaError, Reason
from kafkalog.log.log_dir import Located, LogDir, as_set, is_partition_directory, located, missing_path
from kafkalog.log.lookups.timestamp_search import latest_timestamp
from kafkalog.log.partition import Partition
from kafkalog.log.segment import Segment
from kafkalog.log.segment_files import open_segment as open_file
from kafkalog.log.set_apart import OnlyCopy, about_only_copies, only_copies, why_renamed
from kafkalog.parsing import TopicPatterns, check_partitions, integer
from kafkalog.read_methods import with_remote_segments
from kafkalog.storage.location import Place, kind_of, list_directory, parent_of, place_of
from kafkalog.storage.memory import MemoryStore
from kafkalog.text import first_names

Paths = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


class PlaceOfFiles(TypedDict, total=False):
    """The options of `open` for files that are elsewhere. Whatever takes a path takes them."""

    storage_options: Mapping[str, Any] | None
    tiered: str | os.PathLike[str] | None
    tiered_keys: Mapping[str, str | bytes | os.PathLike[str]] | None


class OpenOptions(PlaceOfFiles, total=False):
    """The keyword arguments of `open`."""

    memory_map: bool | Literal["auto"]
    limits: Limits


def open(
    path: Paths,
    *,
    memory_map: bool | Literal["auto"] = "auto",
    limits: Limits = DEFAULT_LIMITS,
    storage_options: Mapping[str, Any] | None = None,
    tiered: str | os.PathLike[str] | None = None,
    tiered_keys: Mapping[str, str | bytes | os.PathLike[str]] | None = None,
    **others: Never,
) -> Segment | Partition | LogDir:
    """Open a segment, a partition, or a log dir.

    Parameters
    ----------
    path : path-like or sequence of path-like
        A `.log` file, a topic-partition directory, or a log dir (a value of a broker's `log.dirs`). Several paths make
        one `LogDir`. Each may be a URL, or a `kafkalog.location`.
    memory_map : {"auto", True, False}
        Whether to map `.log` files into memory; see `scan`.
    limits : Limits
    storage_options : mapping, optional
        Options for URLs; see `kafkalog.location`.
    tiered : path-like or URL, optional
        The root of the remote storage (KIP-405), whose segments are read as well.
    tiered_keys : mapping of str to str, optional
        Private keys by id, if it is encrypted; see `kafkalog.tiered_location`.

    Returns
    -------
    Segment or Partition or LogDir

    Raises
    ------
    NotKafkaError
        Nothing at the path looks like a Kafka log.
    ReadError
        The path does not exist or cannot be read.

    Examples
    --------
    >>> log_dir = kafkalog.open("tests/golden/log_dir")
    >>> log_dir.topics[:2]
    ['p-compact', 'p-delrec']
    >>> log_dir["p-multi", 0].log_end_offset
    125
    """
    for name in others:
        raise TypeError(f"open has no option {name!r}: it reads no records; scan(path, start_offset=...) has options")
    if tiered is not None:
        path = with_remote_segments(path, tiered, keys=tiered_keys, storage_options=storage_options)
    path = located(path, storage_options)
    if isinstance(path, (str, os.PathLike)):
        location = place_of(path)
        kind = kind_of(location)
        if kind == "directory":
            entries = list_directory(location)
            if is_partition_directory(location, entries):
                return Partition(location, entries=entries, memory_map=memory_map, limits=limits)
            return LogDir(Located([location]), memory_map=memory_map, limits=limits)
        if kind is not None:
            return open_file(location, memory_map=memory_map, limits=limits)
        raise missing_path(path)
    if not path:
        raise ValueError("no path given")
    return LogDir(path, memory_map=memory_map, limits=limits)


def open_log_dir(path: Paths, **options: Unpack[OpenOptions]) -> LogDir:
    """Open a log dir, or several as one; a partition directory or a `.log` file as a log dir with only this.

    The parameters are those of `open`.

    Raises
    ------
    NotKafkaError, ReadError
        See `open`.
    """
    opened = open(path, **options)
    if isinstance(opened, LogDir):
        return opened
    return LogDir(
        [opened.path], limits=options.get("limits", DEFAULT_LIMITS), memory_map=options.get("memory_map", "auto")
    )


def open_partition(path: str | os.PathLike[str], **options: Unpack[OpenOptions]) -> Partition:
    """Open a topic-partition directory, such as ``orders-0``. The parameters are those of `open`.

    Raises
    ------
    NotKafkaError
        There is something else at the path.
    ReadError
        The path does not exist or cannot be read.
    """
    opened = open(path, **options)
    return opened if isinstance(opened, Partition) else _refuse(opened, path, "a topic-partition directory")


def open_segment(path: str | os.PathLike[str], **options: Unpack[OpenOptions]) -> Segment:
    """Open a `.log` file. The parameters are those of `open`.

    Raises
    ------
    NotKafkaError
        There is something else at the path.
    ReadError
        The path does not exist or cannot be read.
    """
    opened = open(path, **options)
    return opened if isinstance(opened, Segment) else _refuse(opened, path, "a .log file")


def open_buffer(
    data: Any,
    *,
    name: str = "buffer",
    base_offset: int = 0,
    topic_partition: tuple[str, int] | None = None,
    limits: Limits = DEFAULT_LIMITS,
) -> Segment:
    """Open the bytes of a `.log` that are in memory: an object of tiered storage, the record set of a fetch response.

    Parameters
    ----------
    data : buffer
        Whole record batches from the first byte on; a partial one at the end is noted, as at the end of a log. `bytes`,
        `mmap`, `pyarrow.Buffer`, `numpy.ndarray` or anything else with contiguous bytes. They are not copied, and must
        not change while they are read.
    name : str
        What errors and the column `segment` call it.
    base_offset : int
        Offsets below this one are damage.
    topic_partition : tuple of str and int, optional
        For the columns `topic` and `partition`.
    limits : Limits

    Returns
    -------
    Segment
        With the methods of one; `kafkalog.scan`, `kafkalog.verify` and `kafkalog.export` take it. What makes other
        files of a segment, as `kafkalog.reindex` does, needs it on disk.

    Examples
    --------
    >>> from pathlib import Path
    >>> data = Path("tests/golden/log_dir/p-multi-0/00000000000000000000.log").read_bytes()
    >>> kafkalog.open_buffer(data).to_table(columns=["offset"]).num_rows
    120
    """
    try:
        place: Any = MemoryStore(data, name).location
    except TypeError:
        lead = "; kafkalog.open(path) opens a file" if isinstance(data, (str, os.PathLike)) else ""
        raise TypeError(f"data must be bytes or another buffer, not {type(data).__name__}{lead}") from None
    segment = Segment(place, limits=limits, is_last=True)
    segment.topic_partition = None if topic_partition is None else kf.TopicPartition(*topic_partition)
    segment.base_offset, segment.has_base_offset = integer("base_offset", base_offset, 0), base_offset > 0
    return segment


def _refuse(opened: LogDir | Partition | Segment, path: str | os.PathLike[str], wanted: str) -> NoReturn:
    kinds = {LogDir: ("a log dir", "open_log_dir"), Partition: ("a topic-partition directory", "open_partition")}
    kind, function = kinds.get(type(opened), ("a .log file", "open_segment"))
    raise NotKafkaError(Reason.NOT_KAFKA, f"this is {kind}, not {wanted}; {function} opens it", path=os.fspath(path))


def notes_apart(
    opened: object,
    topics: Iterable[str] | str | None = None,
    partitions: Iterable[int] | int | None = None,
    *,
    are_read: bool = False,
) -> Iterator[Finding]:
    """Yield notes about directories that a broker has renamed: one that is open, or those that a log dir passes over.

    The selection is that of `partitions_of`. If they `are_read`, only those are noted that hold the only copy of a
    partition: a broker does not serve it. The notes have the command that does.
    """
    if isinstance(opened, Partition) and opened.kind is not None:
        yield Finding(Reason.UNKNOWN_FILE, why_renamed(opened.path.name), path=str(opened.path), damage=False)
    if not isinstance(opened, LogDir) or not any(opened.set_apart.values()):
        return
    patterns, numbered = TopicPatterns(topics), as_set(partitions)
    parsed = [(path, kf.parse_partition_directory(path.name)) for path in itertools.chain(*opened.set_apart.values())]
    chosen = [
        path
        for path, one in parsed
        if one is not None and patterns.wants(one.topic_partition.topic)
        if numbered is None or one.topic_partition.partition in numbered
    ]
    if are_read:
        yield from _notes_on_only_copies(only_copies(chosen, opened, opened.paths))
        return
    passed_over: dict[tuple[Place, str], list[Place]] = {}
    for path in chosen:
        passed_over.setdefault((parent_of(path), why_renamed(path.name)), []).append(path)
    for (_, why), paths in passed_over.items():
        yield _note_apart(paths, f"{why}. Name the directory to read its records", start="not read: ")


def _notes_on_only_copies(copies: Iterable[OnlyCopy]) -> Iterator[Finding]:
    alike: dict[tuple[Place, str, bool], list[OnlyCopy]] = {}
    # that a broker deletes a topic, or that a replica moves, is nothing unusual
    for one in (one for one in copies if not one.is_moved and (one.exists or one.kind != "delete")):
        alike.setdefault((parent_of(one.path), one.kind, one.exists), []).append(one)
    for some in alike.values():
        paths = [one.path for one in some]
        yield _note_apart(paths, f"{why_renamed(paths[0].name)}. {about_only_copies(some)}")


def _note_apart(paths: Sequence[Place], what: str, start: str = "") -> Finding:
    which = f"{first_names([path.name for path in paths])}: " if paths[1:] else ""
    path = parent_of(paths[0]) if paths[1:] else paths[0]
    return Finding(Reason.LEFT_OUT, f"{start}{which}{what}", path=str(path), damage=False)


_LISTED_AHEAD: Final = 64
"""Partitions of a store that are listed together: many for a plan, few for a caller that wants only the first."""


def partitions_of(
    opened: LogDir | Partition | Segment,
    topics: Iterable[str] | str | None = None,
    partitions: Iterable[int] | int | None = None,
    *,
    among: Collection[kf.TopicPartition] | None = None,
    internal: bool = True,
    set_apart: bool = False,
) -> Iterator[Partition | KafkalogError]:
    """Yield the selected partitions in order; for one that cannot be opened, yield the error instead.

    A segment counts as a partition of one segment. For `topics`, `partitions` and `internal` see `LogDir.select`.
    `among` limits the partitions of a log dir. `set_apart` includes directories that a broker has renamed, after the
    others.
    """
    if isinstance(opened, Segment):
        opened = Partition.of_segment(opened)
    if isinstance(opened, Partition):
        if (topics is None and partitions is None) or _is_chosen(opened, TopicPatterns(topics), as_set(partitions)):
            yield opened
        return
    patterns, numbered = TopicPatterns(topics), as_set(partitions)

    def is_wanted(key: kf.TopicPartition) -> bool:
        return patterns.wants(key.topic) and (numbered is None or key.partition in numbered)

    keys = [key for key in opened.select(topics, numbered, internal=internal) if among is None or key in among]
    openers: list[Callable[[], Partition]] = [partial(opened.__getitem__, key) for key in keys]
    for paths in opened.set_apart.values() if set_apart else ():
        parsed = [(kf.parse_partition_directory(path.name), path) for path in paths]
        named = [(one.topic_partition, path) for one, path in parsed if one is not None]
        openers += [partial(opened.open_set_apart, path) for key, path in sorted(named) if is_wanted(key)]
    # opened one by one: one that cannot be opened must not hide the others
    for number, open_partition in enumerate(openers):
        if number % _LISTED_AHEAD == 0:
            opened.list_ahead(keys[number : number + _LISTED_AHEAD])
        try:
            yield open_partition()
        except KafkalogError as error:
            yield error


def _is_chosen(partition: Partition, patterns: TopicPatterns, numbers: Collection[int] | None) -> bool:
    """Whether a partition that was named is wanted by topic and number, too; raises for those that it is not of."""
    keys = [] if partition.topic_partition is None else [partition.topic_partition]
    patterns.check([key.topic for key in keys])
    wanted = [key.partition for key in keys if patterns.wants(key.topic)]
    check_partitions(numbers, wanted)
    return bool(wanted)


def latest_of(partitions: Iterable[Partition | KafkalogError]) -> int:
    """The latest timestamp of records in some partitions, in milliseconds: what ``end`` is in times of these."""
    return latest_timestamp(segment for one in partitions if isinstance(one, Partition) for segment in one.segments)


def removed_from(opened: object, error: KafkalogError) -> Finding | None:
    """The note about a partition that a broker removed from a log dir while it was read; None for any other error.

    Also None for a partition whose directory or files were named: a partition that was named explicitly must raise.
    """
    if error.reason is not Reason.PARTITION_REMOVED or not isinstance(opened, LogDir):
        return None
    directory = Path(error.path or "").absolute()
    named = {path.absolute() for path in opened.paths}
    is_named = directory in named or any(path.parent == directory for path in named)
    return None if is_named else error.to_finding()
