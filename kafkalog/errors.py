"""Exceptions, warnings and findings about files, and the limits on the memory that reading a file may take.

Every exception about bad data is a `KafkalogError`. It has the file, the position in it, and a `Reason` from a
closed list. Wrong arguments raise `TypeError` or `ValueError`. A `Finding` is one issue as a value, for readers
that continue after damage. Kernels return a status; only `error_from_status` turns it into an exception.
"""

from __future__ import annotations

import errno
import os
import sys
import warnings
from dataclasses import dataclass, field, fields
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from kafkalog._kernels.wire import STATUS
from kafkalog.calls import leading_class, leading_names
from kafkalog.html import JsonFields, PartsReport, PublicNames, ReportList
from kafkalog.text import LeadingText, counted, missing_in_module, near, offset_range

OnCorruption = Literal["raise", "stop", "skip"]
"""What to do about damage: raise, stop reading that partition at the damage, or skip it."""


class Reason(LeadingText):
    """Why something is wrong. The strings are stable, so programs can compare them."""

    SIZE_NEGATIVE = "size_negative"
    SIZE_TOO_SMALL = "size_too_small"
    SIZE_EXCEEDS_FILE = "size_exceeds_file"
    BAD_MAGIC = "bad_magic"
    CRC_MISMATCH = "crc_mismatch"
    HEADER_INCONSISTENT = "header_inconsistent"
    OFFSET_ORDER = "offset_order"
    OFFSET_OUTSIDE_SEGMENT = "offset_outside_segment"
    RECORD_COUNT = "record_count"
    RECORD_LENGTH = "record_length"
    RECORD_TRAILING_BYTES = "record_trailing_bytes"
    VARINT_OVERLONG = "varint_overlong"
    VARINT_TRUNCATED = "varint_truncated"
    KEY_LENGTH = "key_length"
    VALUE_LENGTH = "value_length"
    HEADER_COUNT = "header_count"
    HEADER_KEY_NULL = "header_key_null"
    HEADER_LENGTH = "header_length"
    HEADER_KEY_UTF8 = "header_key_utf8"
    CODEC_STREAM = "codec_stream"
    CODEC_RATIO = "codec_ratio"
    UNKNOWN_CODEC = "unknown_codec"
    COMPRESSED_FILE = "compressed_file"
    LEGACY_NESTED = "legacy_nested"
    LEGACY_INNER_MAGIC = "legacy_inner_magic"
    LEGACY_WRAPPER_OFFSET = "legacy_wrapper_offset"
    LEGACY_EMPTY_WRAPPER = "legacy_empty_wrapper"
    LEGACY_NULL_WRAPPER = "legacy_null_wrapper"
    LEGACY_CODEC = "legacy_codec"
    CONTROL_RECORD = "control_record"
    TRANSACTION_OUTCOME = "transaction_outcome"
    OPEN_TRANSACTION = "open_transaction"
    PARTIAL_TAIL = "partial_tail"
    ZERO_FILL = "zero_fill"
    SEGMENT_TOO_LARGE = "segment_too_large"
    BATCH_TOO_LARGE = "batch_too_large"
    DECOMPRESSED_TOO_LARGE = "decompressed_too_large"
    TOO_MANY_HEADERS = "too_many_headers"
    TOO_MANY_RECORDS = "too_many_records"
    TOO_MANY_OPEN_TRANSACTIONS = "too_many_open_transactions"
    FILE_CHANGED = "file_changed"
    FILE_UNREADABLE = "file_unreadable"
    NOT_A_FILE = "not_a_file"
    NOT_KAFKA = "not_kafka"
    CHECKPOINT_SYNTAX = "checkpoint_syntax"
    META_PROPERTIES = "meta_properties"
    TOPIC_ID_MISSING = "topic_id_missing"
    INDEX_SIZE = "index_size"
    INDEX_MISLEADS = "index_misleads"
    INDEX_ENTRY = "index_entry"
    INDEX_MISSING = "index_missing"
    INDEX_ORDER = "index_order"
    INDEX_POSITION = "index_position"
    INDEX_OFFSET = "index_offset"
    INDEX_TIMESTAMP = "index_timestamp"
    INDEX_SPARSE = "index_sparse"
    INDEX_PADDING = "index_padding"
    INDEX_TRANSACTION = "index_transaction"
    LOG_START_BEHIND_END = "log_start_behind_end"
    LOG_END_MISSING = "log_end_missing"
    SEGMENT_MISSING = "segment_missing"
    LOG_PART_MISSING = "log_part_missing"
    OTHER_SEGMENT = "other_segment"
    OFFSET_GAP = "offset_gap"
    CONTENT_DIFFERS = "content_differs"
    END_ASSUMED = "end_assumed"
    UNPROVEN = "unproven"
    EPOCH_ORDER = "epoch_order"
    EPOCH_CHECKPOINT = "epoch_checkpoint"
    SNAPSHOT_SIZE = "snapshot_size"
    SNAPSHOT_VERSION = "snapshot_version"
    SNAPSHOT_CRC = "snapshot_crc"
    FUNCTION_ERROR = "function_error"
    VALUE_UNDECODED = "value_undecoded"
    INTERNAL_RECORD = "internal_record"
    METADATA_INCOMPLETE = "metadata_incomplete"
    PARTITION_TWICE = "partition_twice"
    PARTITION_REMOVED = "partition_removed"
    LINK_OUTSIDE = "link_outside"
    SWAP_FILE = "swap_file"
    UNKNOWN_FILE = "unknown_file"
    LEFT_OUT = "left_out"
    WRITE_FAILED = "write_failed"
    OUTPUT_EXISTS = "output_exists"
    UNSAFE_PATH = "unsafe_path"
    NOT_LOCAL = "not_local"
    UNSUPPORTED_SYSTEM = "unsupported_system"
    NOT_INSTALLED = "not_installed"
    TOO_MANY_DIRECTORIES = "too_many_directories"
    COLUMN_TYPE = "column_type"
    COLUMN_MISSING = "column_missing"
    COLUMN_TWICE = "column_twice"
    COLUMN_UNKNOWN = "column_unknown"
    COLUMN_VALUE = "column_value"


LIMIT_NAMES: Final = {
    Reason.SEGMENT_TOO_LARGE: "max_segment_bytes",
    Reason.BATCH_TOO_LARGE: "max_batch_bytes",
    Reason.DECOMPRESSED_TOO_LARGE: "max_decompressed_bytes",
    Reason.TOO_MANY_RECORDS: "max_records_per_batch",
    Reason.TOO_MANY_HEADERS: "max_headers_per_record max_headers_per_batch",
    Reason.TOO_MANY_DIRECTORIES: "max_directories",
    Reason.TOO_MANY_OPEN_TRANSACTIONS: "max_open_transactions",
}
"""The limits that each of these reasons is about."""
UNREADABLE: Final = (Reason.FILE_UNREADABLE, Reason.FILE_CHANGED)
"""Reasons why bytes could not be read, or changed meanwhile: they need not be damaged."""
MISSING: Final = (Reason.SEGMENT_MISSING, Reason.LOG_PART_MISSING, Reason.LOG_END_MISSING, Reason.OFFSET_GAP)
"""Reasons of findings about offsets that no file has."""

Certainty = Literal["exact", "header", "at_most"]
"""How reliable a number of lost records is; see `Finding`."""


class KafkalogError(PublicNames, Exception):
    """Base class of all exceptions about a file's content.

    Attributes
    ----------
    path : str or None
        File or directory.
    position : int or None
        Bytes from the start of the file.
    base_offset : int or None
        Base offset of the batch, as far as it could be read.
    reason : Reason
    detail : str
        What was found and what was expected.
    length : int or None
        Number of bytes affected, from `position` on.
    """

    def __init__(
        self,
        reason: Reason | str,
        detail: str = "",
        *,
        path: str | os.PathLike[str] | None = None,
        position: int | None = None,
        base_offset: int | None = None,
        length: int | None = None,
    ) -> None:
        self.reason = Reason(reason)
        self.detail = detail
        self.path = None if path is None else os.fspath(path)
        self.position = position
        self.base_offset = base_offset
        self.length = length
        super().__init__(self.reason, detail)

    @classmethod
    def about(cls, problem: KafkalogError | Finding, detail: str, *, reason: Reason | None = None) -> Self:
        """Return an error about the bytes of another error or of a finding, with a detail of its own."""
        return cls(**{**_common_fields(problem), "reason": reason or problem.reason, "detail": detail})

    def __str__(self) -> str:
        return _described(self)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({str(self)!r})"

    def __reduce__(self) -> Any:
        # exceptions pickle their arguments alone; Spark and process pools send errors with all fields
        return partial(type(self), **self.as_dict()), ()

    def as_dict(self) -> dict[str, Any]:
        """The fields, for JSON."""
        return {**_common_fields(self), "reason": self.reason.value}

    def to_finding(self, *, damage: bool = True) -> Finding:
        """Convert the error to a finding with the same fields; that a broker removed a partition is no damage."""
        return Finding(**_common_fields(self), damage=damage and self.reason is not Reason.PARTITION_REMOVED)


def _common_fields(problem: KafkalogError | Finding) -> dict[str, Any]:
    """Return the fields that errors and findings have in common."""
    return {name: getattr(problem, name) for name in ("path", "position", "base_offset", "reason", "detail", "length")}


def _described(problem: KafkalogError | Finding) -> str:
    """One line: path, position and base offset, then reason and detail."""
    where = problem.path or ("" if problem.position is None else "<buffer>")
    if problem.position is not None:
        where += f"@{problem.position}"
    if problem.base_offset is not None:
        where += f" base_offset={problem.base_offset}"
    return ": ".join(part for part in (where.strip(), problem.reason.value, problem.detail) if part)


class CorruptionError(KafkalogError, ValueError):
    """Bytes of a `.log` that no Kafka broker could have written."""


class TruncatedTailError(CorruptionError):
    """A segment ends inside a batch, or in zeros. That is normal only in the last segment, and this is another."""


class SidecarError(KafkalogError, ValueError):
    """An index, a snapshot or a checkpoint is invalid; the records are not affected."""


class LimitExceededError(KafkalogError, ValueError):
    """Something is larger than a limit allows; it may be intact. Raise the limit (`Limits`) to read it."""


class UnsupportedError(KafkalogError, NotImplementedError):
    """A codec, a format version or an operating system that this release does not support."""


class FileChangedError(KafkalogError, OSError):
    """A file changed, shrank or was replaced while it was read."""


class ReadError(KafkalogError, OSError):
    """The operating system could not read the bytes."""

    @classmethod
    def of(cls, error: OSError, path: str | os.PathLike[str] | None, position: int | None = None) -> ReadError:
        """The error for an `OSError`, with advice if permission is missing or the path is not a directory."""
        detail = error.strerror or str(error)
        if error.errno == errno.EACCES:
            detail += f"; read permission is needed: {_permitted(path)}"
        elif error.errno == errno.ENOTDIR:
            detail += "; name a log dir, or a partition directory in it such as orders-0"
        return cls(Reason.FILE_UNREADABLE, detail, path=path, position=position)


def is_forbidden(error: BaseException) -> bool:
    """Whether a file could not be read for lack of permission: another user may read it."""
    return isinstance(error.__cause__, PermissionError)


def _permitted(path: str | os.PathLike[str] | None) -> str:
    """How a file is read that its mode forbids: as its owner, or that of a directory above it, or as root."""
    import shlex  # for an error alone
    import stat

    where = None if path is None else os.path.abspath(path)
    while where is not None:
        try:
            status = os.stat(where)
        except (OSError, ValueError):
            where = None if where == os.path.dirname(where) else os.path.dirname(where)
            continue
        if not status.st_uid:
            return "run it as root (sudo)"
        if status.st_uid == getattr(os, "geteuid", lambda: None)():
            return f"chmod u+r{'x' if stat.S_ISDIR(status.st_mode) else ''} {shlex.quote(where)}"
        name = _name_of(status.st_uid)
        return f"run it as {name} (sudo -u {shlex.quote(name)}), or as root (sudo)"
    return "run it as the user that ran the broker, or as root (sudo)"


def _name_of(user: int) -> str:
    """The name of a user, or the number as `sudo` takes it."""
    try:
        import pwd  # not on every system

        return pwd.getpwuid(user).pw_name
    except (ImportError, KeyError):
        return f"#{user}"


class NotKafkaError(KafkalogError, ValueError):
    """The path contains nothing that looks like Kafka's log."""


class WriteError(KafkalogError, OSError):
    """The operating system refused a write; the destination is unchanged unless the detail says otherwise."""


class OutputExistsError(KafkalogError, FileExistsError):
    """The output already exists, and `overwrite` was not given."""

    @classmethod
    def at(cls, path: str | os.PathLike[str], *, is_replaceable: bool = False) -> Self:
        """Return the error about an output that is there; `is_replaceable` if its writer can `overwrite` it."""
        error = cls(Reason.OUTPUT_EXISTS, "the output exists", path=path)
        error.advise(f"{_REPLACE if is_replaceable else 'remove it'}, or name another output")
        return error

    def advise(self, what: str) -> None:
        """Replace the advice in the message."""
        self.__notes__ = [what]


_REPLACE: Final = "use overwrite=True (--overwrite) to replace it"


class UnsafePathError(KafkalogError, ValueError):
    """Output would do harm at this path: among the files of a log dir, over its input, or over another kind of file."""


class UnwritableError(KafkalogError, ValueError):
    """Records that Kafka's format cannot represent, or that no reader would accept; they are not written.

    Attributes
    ----------
    row : int or None
        Row of the record in the columns passed.
    """

    def __init__(self, reason: Reason | str, detail: str = "", *, row: int | None = None, **where: Any) -> None:
        super().__init__(reason, detail, **where)
        self.row = row

    def __str__(self) -> str:
        return f"{self.reason.value}: {self.detail}" if self.path is None else super().__str__()

    def as_dict(self) -> dict[str, Any]:
        return {**super().as_dict(), "row": self.row}


class ConditionError(ValueError):
    """A condition on a decoded column does not fit the type that its values have."""


class UnknownNameError(ValueError):
    """An option names something that does not exist, such as a topic."""


class CorruptionWarning(UserWarning):
    """Damage was skipped, or reading stopped at it (`on_corruption="skip"` or `"stop"`); see the findings."""


class FunctionWarning(UserWarning):
    """A function passed as `where=` or `extract=` failed on some records; the findings list them."""


class ConfigWarning(UserWarning):
    """A misspelt setting, a value that a current broker rejects, a batch that a setting does not allow, or a time in
    seconds where milliseconds are expected.
    """


class TransactionWarning(UserWarning):
    """A transaction was left open: `read_committed` readers get no records from its first offset on."""


@dataclass(frozen=True, slots=True)
class Finding(JsonFields):
    """One issue found in a file: where, why, how many records, and whether it is damage or only information."""

    reason: Reason
    detail: str = ""
    path: str | None = None
    position: int | None = None
    length: int | None = None
    """Bytes from `position` on in the file."""
    base_offset: int | None = None
    last_offset: int | None = None
    """The offsets affected, as far as known."""
    damage: bool = True
    """False for what is normal, such as a partial batch at the end of the last segment."""
    n_records: int | None = None
    """Records lost there; 0 if a reader returns them nevertheless, None if unknown."""
    certainty: Certainty | None = None
    """Where `n_records` comes from. "exact": the header of a batch that is intact, or that its neighbours confirm.
    "header": the header of a damaged batch alone. "at_most": the number of offsets between the neighbours."""
    n_markers: int = 0
    """Transaction markers lost there, as headers show them; they are no records."""
    n_returned: int = 0
    """Records that another finding counts as lost, and of which a copy is returned. A sum of losses excludes them."""
    n_intact: int = 0
    """Of the records lost, those in intact batches that a broker deletes. `salvage` and `boot` keep them."""

    def __str__(self) -> str:
        return _described(self)

    @property
    def is_unreadable(self) -> bool:
        """Whether a whole file or directory cannot be read, as without permission or key: it need not be damaged.

        Nor is a `.log` that somebody compressed as a whole, or what is larger than a limit.
        """
        is_whole = self.reason is Reason.FILE_UNREADABLE and self.position is None
        return self.damage and (is_whole or self.reason is Reason.COMPRESSED_FILE or self.is_limit)

    @property
    def is_torn(self) -> bool:
        """Whether it is about what a crash leaves at the end of a log: an incomplete batch, or zeros."""
        return self.reason in (Reason.PARTIAL_TAIL, Reason.ZERO_FILL)

    @property
    def is_limit(self) -> bool:
        """Whether more than a limit allows was not read; it may be intact."""
        return self.damage and self.reason in LIMIT_NAMES


@leading_names
@leading_class
@dataclass(frozen=True, slots=True)
class Limits:
    """How much memory a file may make its reader allocate; a file that needs more raises `LimitExceededError`.

    Notes
    -----
    Each thread decodes one batch at a time. For each such batch, reading, verifying and converting need at most
    `max_batch_bytes` and twice `max_decompressed_bytes`. They also need 80 bytes per record, and 64 MiB in total.
    Converting also needs the new batch twice: while it is compressed, and while it is appended to others. Exporting
    and dumping need five times `max_decompressed_bytes`, and 120 bytes per record, because text is longer than its
    value. They need eight times as much for bytes that are not text: each becomes a character of three bytes.
    """

    max_batch_bytes: int = 100 * 2**20
    """Largest batch in the file. The default is a broker's `socket.request.max.bytes`."""
    max_decompressed_bytes: int = 256 * 2**20
    """Largest decompressed batch."""
    max_records_per_batch: int = 2_000_000
    """Each record takes up to 80 bytes in columns. Compressed, a thousand of them can take less than a byte."""
    max_headers_per_record: int = 65_536
    max_headers_per_batch: int = 1_000_000
    """Each header takes about 50 bytes in columns, however short it is."""
    max_segment_bytes: int = 2**31 - 1
    """Kafka cannot read a segment of 2 GiB or more."""
    max_open_transactions: int = 100_000
    """Transactions of one partition that are open at the same time."""
    max_findings: int = 10_000
    """Findings kept in memory; further ones are only counted."""
    max_directories: int = 100_000
    """Directories that an export by date creates; with arbitrary timestamps, each record may need its own."""

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise ValueError(f"{item.name} must be a positive int, not {value!r}")
        for name in ("max_batch_bytes", "max_decompressed_bytes", "max_segment_bytes"):
            if getattr(self, name) > 2**31 - 1:
                raise ValueError(f"{name} must be below 2 GiB: Kafka's sizes are 32-bit")


DEFAULT_LIMITS: Final = Limits()


@dataclass(slots=True)
class Loss(JsonFields):
    """Records lost from a partition: the sum over its findings."""

    n_findings: int = 0
    """Findings about damaged or missing batches."""
    n_records: int = 0
    """Records lost, as far as known."""
    certainty: Certainty | None = None
    """The least certain of the numbers that were added; see `Finding`."""
    n_unknown: int = 0
    """Findings for which the number of lost records is unknown."""
    first_offset: int | None = None
    last_offset: int | None = None
    """Range of offsets that includes all losses, as far as known."""
    n_markers: int = 0
    """Transaction markers lost, as headers show them; they are no records."""
    n_intact: int = 0
    """Of the records lost, those in intact batches that a broker deletes. `salvage` and `boot` keep them."""
    _n_lost: int = field(default=0, init=False, repr=False, compare=False)
    _n_returned: int = field(default=0, init=False, repr=False, compare=False)
    _open_offset: int = field(default=-1, init=False, repr=False, compare=False)
    _json_without = ("_n_lost", "_n_returned", "_open_offset")

    def add(self, finding: Finding) -> None:
        """Add a finding to the sums."""
        self.n_findings += 1
        self._n_lost += finding.n_records or 0
        self._n_returned += finding.n_returned
        self.n_markers += finding.n_markers
        self.n_unknown += finding.n_records is None
        if finding.n_records is None and finding.last_offset is None and finding.base_offset is not None:
            self._open_offset = max(self._open_offset, finding.base_offset)
        # a sum is only as certain as its least certain part
        self.certainty = least_certain(self.certainty, finding.certainty)
        known = (self.first_offset, self.last_offset, finding.base_offset, finding.last_offset)
        offsets = [offset for offset in known if offset is not None]
        if offsets and (finding.n_records != 0 or finding.n_markers):
            self.first_offset, self.last_offset = min(offsets), max(offsets)
        # findings may be about the same offsets
        if self.first_offset is not None and self.last_offset is not None and not self.n_unknown:
            self._n_lost = min(self._n_lost, self.last_offset + 1 - self.first_offset)
        # copies may be found before the loss that they make up for
        self.n_records = max(self._n_lost - self._n_returned, 0)
        self.n_intact = min(self.n_intact + finding.n_intact, self.n_records)

    def __str__(self) -> str:
        text = lost_records(self.n_records, self.certainty)
        if self.n_unknown:
            more = counted(self.n_unknown, "more finding")
            text = f"{text}, and an unknown number in {more}" if self.n_records else lost_records(None)
        if self.n_markers:
            text = f"{text} and " if self.n_records or self.n_unknown else ""
            text += lost_markers(self.n_markers)
        if self.last_offset is not None:
            end = None if self.last_offset == self._open_offset else self.last_offset + 1
            text = f"{text}, offsets {offset_range(self.first_offset, end)}"
        is_all = self.n_intact == self.n_records and not self.n_unknown
        return text + intact_records(self.n_intact, is_all=is_all)


_SURE: Final[dict[Certainty | None, str]] = {
    None: "{}",
    "exact": "{}",
    "header": "{} by their headers",
    "at_most": "at most {}",
}
"""By the certainty of a number, the surest first: its wording."""


def least_certain(*certainties: Certainty | None) -> Certainty | None:
    """The certainty of a sum, by those of its parts."""
    return max((None, *certainties), key=[*_SURE].index)


def lost_records(n: int | None, certainty: Certainty | None = None, n_markers: int = 0) -> str:
    """How many records are lost, in words, with how certain that is, and how many markers; None is unknown.

    >>> lost_records(10, "at_most"), lost_records(1, "exact"), lost_records(None)
    ('at most 10 records', '1 record', 'an unknown number of records')
    """
    text = "an unknown number of records" if n is None else _SURE[certainty].format(counted(n, "record"))
    return f"{text}, and {lost_markers(n_markers)}" if n_markers else text


def lost_markers(n: int) -> str:
    """Lost transaction markers in words, with what that means for consumers."""
    return (
        f"{counted(n, 'transaction marker')} (read_committed consumers wait for its transaction, or see its records"
        " differently)"
    )


def intact_records(n: int, *, is_all: bool) -> str:
    """How many of the records lost are in intact batches, as the end of a line about the loss."""
    return f", {'all' if is_all else f'{n:,}'} of them in intact batches" if n else ""


def add_loss(losses: dict[str, Loss], finding: Finding) -> None:
    """Add a finding to the losses of its partition directory, if records may be lost."""
    if not finding.damage or finding.path is None or finding.is_unreadable:
        return
    # `.log` anywhere in the name: that of a `.log.swap`, too
    is_log = ".log" in os.path.basename(finding.path)
    if is_log or finding.n_records is not None:
        directory = os.path.dirname(finding.path) if is_log else finding.path
        losses.setdefault(directory, Loss()).add(finding)


class FindingList(ReportList[Finding]):
    """Findings: a list, and a table with a row for each."""

    noun = "finding"

    def summary(self) -> str:
        """Return how many of them are damage."""
        return f"{sum(one.damage for one in self):,} of damage" if self else ""


@dataclass(slots=True)
class Findings(PartsReport):
    """Findings in the order found, up to a limit; further ones are only counted. Losses are summed per directory."""

    limit: int = DEFAULT_LIMITS.max_findings
    rows: list[Finding] = field(default_factory=list)
    n_more: int = 0
    n_damage: int = 0
    n_unreadable: int = 0
    """How many of the findings of damage are files that cannot be read."""
    losses: dict[str, Loss] = field(default_factory=dict)

    def __repr__(self) -> str:
        more = f", and {self.n_more:,} more" if self.n_more else ""
        return f"{FindingList(self.rows)!r}{more}"

    def _rows(self) -> list[object]:
        return [*self.rows]

    def add(self, finding: Finding) -> None:
        """Keep a finding, or only count it once the limit is reached."""
        self.n_damage += finding.damage
        self.n_unreadable += finding.is_unreadable
        add_loss(self.losses, finding)
        # a file may be damaged in millions of places: memory must not grow with their number
        if len(self.rows) < self.limit:
            self.rows.append(finding)
        else:
            self.n_more += 1

    def exchange(self, rows: list[Finding]) -> None:
        """Keep other findings in place of those that are kept; the numbers change with them, the losses do not."""
        self.n_damage += sum(one.damage for one in rows) - sum(one.damage for one in self.rows)
        self.n_unreadable += sum(one.is_unreadable for one in rows) - sum(one.is_unreadable for one in self.rows)
        self.rows = rows


def not_installed(what: str, extra: str) -> str:
    """Say which of kafkalog's extras has the library that something needs; the extra has the versions that work."""
    return f"{what}: pip install 'kafkalog[{extra}]'"


def warn(message: object, category: type[Warning]) -> None:
    """Issue a warning that points at the caller's line, the first one outside this package and PyArrow."""
    # a warning that points into this package would be shown once for all places that cause it
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] in _INSIDE:
        level, frame = level + 1, frame.f_back
    warnings.warn(str(message), category, stacklevel=level + 1)


_INSIDE: Final = frozenset({"kafkalog", "pyarrow"})

_CODES: Final = {code: name for name, code in STATUS.items()}
_LIMIT_STATUS: Final = frozenset({"TOO_MANY_HEADERS"})
WRONG_CHECKSUM: Final = "the checksum does not match the batch's bytes"
_DETAILS: Final = {
    "SIZE_NEGATIVE": "the size field is negative",
    "SIZE_TOO_SMALL": "the size field is smaller than any batch of this format",
    "BAD_MAGIC": "the magic byte is not 0, 1 or 2: damage, or a format newer than Kafka 4.3",
    "HEADER_INCONSISTENT": "the last offset lies before the base offset",
    "OFFSET_ORDER": "the offset is not larger than that of the previous batch",
    "CRC_MISMATCH": WRONG_CHECKSUM,
    "RECORD_COUNT": "the record count is negative or larger than the batch can hold",
    "RECORD_LENGTH": "a record's length does not fit its content or the batch",
    "RECORD_TRAILING_BYTES": "bytes follow the last record",
    "VARINT_OVERLONG": "a variable-length integer is too long",
    "VARINT_TRUNCATED": "the bytes end inside a variable-length integer",
    "KEY_LENGTH": "a key is longer than the rest of its record",
    "VALUE_LENGTH": "a value is longer than the rest of its record",
    "HEADER_COUNT": "the number of headers is negative or larger than the record can hold",
    "HEADER_KEY_NULL": "a header has no key",
    "HEADER_LENGTH": "a header is longer than the rest of its record",
    "TOO_MANY_HEADERS": "there are more headers than max_headers_per_record or max_headers_per_batch allows",
    "LEGACY_NESTED": "a message inside a compressed one is compressed again",
    "LEGACY_INNER_MAGIC": "a message inside a compressed one has a magic other than 0 or 1",
    "LEGACY_WRAPPER_OFFSET": "a compressed message's offset is smaller than the last relative offset inside",
    "LEGACY_EMPTY_WRAPPER": "a compressed message holds no messages",
}


def error_from_status(
    status: int,
    *,
    path: str | None,
    position: int,
    base_offset: int | None = None,
    length: int | None = None,
    detail: str = "",
) -> KafkalogError:
    """Return the exception for a kernel's status; nothing else turns a status into an exception."""
    name = _CODES[status]
    cls = LimitExceededError if name in _LIMIT_STATUS else CorruptionError
    text = _DETAILS[name] + (f" ({detail})" if detail else "")
    return cls(Reason.__members__[name], text, path=path, position=position, base_offset=base_offset, length=length)


if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Raise AttributeError, with the error or warning that is meant."""
        classes = [one for one in globals() if one.endswith(("Error", "Warning")) or one in _OTHER_CLASSES]
        if name.endswith(("Error", "Exception", "Warning")) and near(name, classes) is None:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(f"{message}; KafkalogError is the base of all errors about files", name=name, obj=None)
        missing_in_module(__name__, classes, name)

    _OTHER_CLASSES: Final = ("Finding", "Limits", "Loss", "Reason")
