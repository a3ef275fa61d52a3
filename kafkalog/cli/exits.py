"""Exit codes: the codes, their precedence, and the code for an error or a finding."""

from __future__ import annotations

import errno
from collections.abc import Iterable
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kafkalog.errors import Finding


class Exit(IntEnum):
    """The exit codes of the process."""

    GOOD = 0
    DAMAGE = 1
    USAGE = 2
    UNREADABLE = 3
    UNSUPPORTED = 4
    LIMIT = 5
    REFUSED = 6
    NOT_WRITTEN = 7
    BUG = 70
    INTERRUPTED = 130
    BROKEN_PIPE = 141


WORDS: Final = {
    **dict.fromkeys(Exit, "error"),
    Exit.GOOD: "note",
    Exit.DAMAGE: "damage",
    Exit.LIMIT: "limit",
    Exit.UNSUPPORTED: "unsupported",
}
"""The word before the message about an error or a finding with a code."""
SEVERITY: Final = (
    Exit.INTERRUPTED,
    Exit.BROKEN_PIPE,
    Exit.USAGE,
    Exit.BUG,
    Exit.NOT_WRITTEN,
    Exit.REFUSED,
    Exit.UNREADABLE,
    Exit.DAMAGE,
    Exit.LIMIT,
    Exit.UNSUPPORTED,
    Exit.GOOD,
)
"""The codes by precedence, highest first. The first three end a run at once."""

EXIT_CODES_HELP: Final = """\
exit codes:
  0  success                         5  a limit (see --limits), memory or threads ran out
  1  damage was found                6  refused: the output exists or is unsafe
  2  wrong usage                     7  the output could not be written
  3  input could not be read        70  a bug in kafkalog
  4  input of an unknown kind      130  interrupted (Ctrl-C)
                                   141  the reader of the output closed the pipe
If several apply, the first of 70, 7, 6, 3, 1, 5, 4."""

_OTHER_FILES: Final = frozenset({"not_a_file", "not_kafka", "other_segment"})
_UNSUPPORTED_REASONS: Final = frozenset({"unknown_codec", "compressed_file"})


class UsageError(Exception):
    """The arguments are invalid; the message says why."""


class OutputError(Exception):
    """A write to stdout failed."""


def worst(codes: Iterable[int]) -> Exit:
    """Return the code with the highest precedence, `Exit.GOOD` if there is none."""
    present = set(codes)
    return next((code for code in SEVERITY if code in present), Exit.GOOD)


def exit_of_error(error: BaseException) -> Exit:
    """Return the exit code for an exception."""
    from kafkalog import errors

    if isinstance(error, (UsageError, errors.ConditionError)):
        return Exit.USAGE
    if isinstance(error, (OutputError, errors.WriteError)):
        return Exit.NOT_WRITTEN
    if isinstance(error, (errors.OutputExistsError, errors.UnsafePathError)):
        return Exit.USAGE if error.reason is errors.Reason.NOT_LOCAL else Exit.REFUSED
    if isinstance(error, errors.LimitExceededError) or is_out_of_memory(error) or is_out_of_threads(error):
        return Exit.LIMIT
    if isinstance(error, errors.UnsupportedError):
        return Exit.UNSUPPORTED
    if isinstance(error, (errors.CorruptionError, errors.SidecarError)):
        return Exit.DAMAGE
    if isinstance(error, (errors.KafkalogError, OSError)):
        return Exit.UNREADABLE
    return Exit.BUG


def is_out_of_memory(error: BaseException | None) -> bool:
    """Whether an exception or its cause is a lack of memory; those of Arrow and NumPy are MemoryErrors.

    A library that is loaded when memory ends is an ImportError, whose text is that of the system's linker.
    """
    while error is not None:
        if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
            return True
        if isinstance(error, (ImportError, OSError)) and any(text in str(error).lower() for text in _NO_MEMORY):
            return True
        error = error.__cause__
    return False


_NO_MEMORY: Final = ("failed to map segment", "cannot allocate memory", "cannot create shared object descriptor")
"""What glibc says if it has no memory for a library."""


def is_out_of_threads(error: BaseException | None) -> bool:
    """Whether an exception or its cause is that the system starts no more threads; Python's has no class of its own."""
    while error is not None:
        if isinstance(error, RuntimeError) and "start new thread" in str(error):
            return True
        error = error.__cause__
    return False


def exit_of_finding(finding: Finding) -> Exit:
    """Return the exit code for a finding."""
    from kafkalog.errors import UNREADABLE, Reason

    if not finding.damage:
        return Exit.GOOD
    if finding.is_limit:
        return Exit.LIMIT
    if finding.reason in UNREADABLE or finding.reason in _OTHER_FILES:
        return Exit.UNREADABLE
    if finding.reason is Reason.WRITE_FAILED:
        return Exit.NOT_WRITTEN
    if finding.reason in _UNSUPPORTED_REASONS:
        return Exit.UNSUPPORTED
    return Exit.DAMAGE


def limit_hint(reason: Any) -> str:
    """Return a hint about the option that changes the limit in `reason`; "" for other reasons."""
    from kafkalog.errors import LIMIT_NAMES

    names = " or ".join(f"{name}=N" for name in LIMIT_NAMES.get(reason, "").split())
    return f"use --limits {names} to change the limit" if names else ""
