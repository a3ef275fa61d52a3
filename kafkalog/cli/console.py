"""stdout and stderr of one run: data goes to stdout; notes, damage, errors and a progress bar go to stderr.

Also collects the exit code, and the findings for ``--report``, which it writes.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic, Protocol, TextIO, TypeVar

from kafkalog.cli import terminal
from kafkalog.cli.exits import (
    WORDS,
    Exit,
    OutputError,
    exit_of_error,
    exit_of_finding,
    is_out_of_memory,
    is_out_of_threads,
    limit_hint,
    worst,
)
from kafkalog.cli.text import counted, escape_line, escape_lines, in_shell
from kafkalog.errors import KafkalogError

if TYPE_CHECKING:
    from kafkalog.errors import Finding, Findings, Loss
    from kafkalog.survey.next_steps import NextStep

Row = TypeVar("Row")


class HasDict(Protocol):
    """A result with a dict for JSON."""

    def as_dict(self) -> dict[str, Any]:
        """Return the fields, for JSON."""


_CALM: Final = ("note", "next")
MAX_DAMAGE_LINES: Final = 50
"""The most findings printed without -v; with it all are."""


class Console:
    """The output of a command, and the exit code so far.

    With `quiet`, no progress bar and no notes are printed, only damage and errors. With `verbose`, also what is normal,
    such as a torn tail, and every finding. `is_json` is the option of that name.
    """

    def __init__(self, *, quiet: bool = False, verbose: bool = False, is_json: bool = False) -> None:
        self.quiet, self.verbose, self.is_json = quiet, verbose, is_json
        self.progress = terminal.Progress(enabled=False)
        self._codes: set[Exit] = set()
        self._n_printed = 0
        self._n_unprinted = 0
        self._losses: dict[str, Loss] = {}
        self._sources: Sequence[str] = ()
        self._tiered: str | None = None
        self._damage: Finding | None = None
        """One against which a boot of what was read helps."""
        self._advice: list[NextStep] = []
        """What helps against it, for which partitions are listed."""
        self._steps: list[NextStep] | None = None
        """What was printed as the next steps."""
        self._limits: set[str] = set()
        """Hints about limits, unless they were printed with a finding."""
        self._hinted: set[str] = set()
        self._report: FindingsFile | None = None

    def report_to(self, path: str | None, command: str, sources: Iterable[str]) -> None:
        """Write all findings to a file when the run ends; UnsafePathError inside a log dir or a source."""
        if path is not None:
            self._report = FindingsFile(path, command, list(sources))

    @property
    def exit_code(self) -> Exit:
        """The exit code for everything reported so far."""
        return worst(self._codes)

    @property
    def shows_progress(self) -> bool:
        """Whether stderr is a terminal, and -q was not given."""
        return not self.quiet and sys.stderr.isatty()

    def start_progress(self, total: int, what: str, *, unit: str = "B") -> None:
        """Show a progress bar after the first second, in bytes or another unit, if stderr is a terminal."""
        self.progress = terminal.Progress(total, what, unit=unit, enabled=self.shows_progress)

    def write(self, text: str) -> None:
        """Write data to stdout; at a terminal, unprintable characters are escaped.

        Raises BrokenPipeError if the reader has closed the pipe, and OutputError if the write fails, as on a full disk.
        """
        # the last of several barriers: what a file has must not control the terminal, in any format
        self._put(escape_lines(text) if sys.stdout.isatty() else text)

    def _put(self, text: str) -> None:
        with self._output():
            if self.progress.is_shown and sys.stdout.isatty():
                with self.progress.hidden():
                    sys.stdout.write(text)
                    sys.stdout.flush()
            else:
                sys.stdout.write(text)

    def write_bytes(self, data: bytes | memoryview) -> None:
        """Write bytes of text to stdout regardless of its encoding, at a terminal as `write` does; raises as that."""
        stream = getattr(sys.stdout, "buffer", None)
        if stream is None or sys.stdout.isatty():
            self.write(bytes(data).decode(errors="surrogateescape"))
            return
        with self._output():
            sys.stdout.flush()
            stream.write(data)

    def line(self, text: str) -> None:
        """Write a line of text, unprintable characters escaped; raises as `write` does."""
        self.write(escape_line(text) + "\n")

    def lines(self, texts: Iterable[str]) -> None:
        """Write lines of text, unprintable characters escaped; raises as `write` does.

        On a terminal, long lines are wrapped between words, and damage has a colour.
        """
        lines: Iterable[str] = map(escape_line, texts)
        if (width := terminal.terminal_width()) is not None:
            paint = terminal.alarming if terminal.has_colour(sys.stdout) else str
            lines = (paint(part) for line in lines for part in terminal.wrapped(line, width))
        self._put("".join(f"{line}\n" for line in lines))

    def json(self, *values: Mapping[str, Any]) -> None:
        """Write each object as a line of JSON; raises as `write` does."""
        self.write("".join(json.dumps(value) + "\n" for value in values))

    def show(self, objects: Iterable[Mapping[str, Any] | HasDict], texts: Iterable[str]) -> None:
        """Write results with ``--json`` as a line each, else as lines for people; only one of the two is made.

        This is the one place where that is decided. Raises as `write` does.
        """
        if self.is_json:
            self.json(*(one if isinstance(one, Mapping) else one.as_dict() for one in objects))
        else:
            self.lines(texts)

    def flush(self) -> None:
        """Flush stdout; raises as `write` does."""
        with self._output():
            sys.stdout.flush()

    @contextlib.contextmanager
    def _output(self) -> Any:
        try:
            yield
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputError(f"the output could not be written: {error.strerror or error}") from error

    def message(self, word: str, text: str) -> None:
        """Print a line to stderr: a word for its kind, and a text."""
        lines = [f"kafkalog: {word}: {escape_line(in_shell(text))}"]
        if sys.stderr.isatty():
            lines = terminal.wrapped(lines[0], shutil.get_terminal_size().columns)
            if word not in _CALM and terminal.has_colour(sys.stderr):
                lines[0] = lines[0].replace(word, terminal.red(word), 1)
        with self.progress.hidden(), _unless_broken():
            print("\n".join(lines), file=sys.stderr, flush=True)

    def list(self, lines: Iterable[str]) -> None:
        """Print lines to stderr without a prefix."""
        with self.progress.hidden(), _unless_broken():
            for line in lines:
                print(escape_line(line), file=sys.stderr)
            sys.stderr.flush()

    def note(self, text: str) -> None:
        """Print a note, unless -q is set."""
        if not self.quiet:
            self.message("note", text)

    def advise_on(self, paths: Sequence[str], tiered: str | None) -> None:
        """Print what to type next when the run ends, if there is damage in these paths of logs.

        `tiered` is their remote storage. A command with `next_steps` of its own has these in its place.
        """
        self._sources, self._tiered = paths, tiered

    @property
    def steps(self) -> Sequence[NextStep]:
        """What the command has said to type next, or else what helps against the damage so far."""
        if self._steps is None and self._damage is not None:
            from kafkalog.survey.next_steps import log_dirs_of, steps_after_damage

            self._advice = self._advice or steps_after_damage(
                [self._damage], log_dirs_of(self._sources), tiered=self._tiered
            )
        return self._advice if self._steps is None else self._steps

    def next_steps(self, steps: Iterable[NextStep]) -> None:
        """Print what to type next, as notes; on a terminal, the command has a line of its own, to be copied."""
        self._steps = [*steps]
        for step in self._steps:
            if sys.stderr.isatty() and not self.quiet:
                self.message("next", step.why)
                self.list([f"  {step}"])
            else:
                self.note(f"next: {step} ({step.why})")

    def detail(self, text: str) -> None:
        """Print a note if -v is set."""
        if self.verbose:
            self.message("note", text)

    def findings(self, findings: Iterable[Finding]) -> None:
        """Print findings, and count them for the exit code and the report."""
        for finding in findings:
            code = self._count(finding)
            if code is Exit.GOOD:
                (self.detail if finding.is_torn else self.note)(str(finding))
            # a disk that is failing may have a finding in each batch
            elif self._n_printed < MAX_DAMAGE_LINES or self.verbose:
                self._n_printed += 1
                hint = limit_hint(finding.reason)
                self._hinted.add(hint)
                self.message(WORDS[code], f"{finding}; {hint}" if hint else str(finding))
            else:
                self._n_unprinted += 1

    def unknown_matches(self, n: int) -> None:
        """Report values that did not decode, so that conditions on fields could not judge their records."""
        self._codes.add(Exit.DAMAGE)
        self.message("error", f"{counted(n, 'value')} did not decode: whether a condition matches is not known")

    def undecoded(self, n: int, args: Any) -> None:
        """Report values that did not decode: an error, also with -q, unless ``--on-decode-error`` accepts them."""
        if not n:
            return
        accepted = args.on_decode_error
        names = [name for name in ("key", "value") if getattr(args, f"{name}_format", None)]
        values = counted(n, "key or value", "keys or values") if names[1:] else counted(n, *names or ["value"])
        if accepted is not None:
            outcome = "left out, with the records that have them" if accepted == "skip" else "null"
            self.note(f"{values} did not decode: {outcome}")
            return
        self._codes.add(Exit.DAMAGE)
        advice = "--on-decode-error null accepts that, skip leaves their records out"
        self.message("error", f"{values} did not decode, so null; {advice}")

    def all_findings(self, found: Findings) -> None:
        """Print the findings that were kept, and count those that were not."""
        self.findings(found.rows)
        self.unkept_findings(found.n_more)

    def count_findings(self, findings: Iterable[Finding]) -> None:
        """Count findings that a command prints itself for the exit code and the report."""
        for finding in findings:
            self._count(finding)

    def _count(self, finding: Finding) -> Exit:
        from kafkalog.errors import add_loss

        code = exit_of_finding(finding)
        self._codes.add(code)
        if code is Exit.LIMIT:
            self._limits.add(limit_hint(finding.reason))
        add_loss(self._losses, finding)
        self._note_damage(finding)
        if self._report is not None:
            self._report.add(finding)
        return code

    def _note_damage(self, finding: Finding) -> None:
        if finding.damage and self._damage is None:
            from kafkalog.survey.next_steps import needs_boot

            self._damage = finding if needs_boot(finding) else None

    def losses(self, losses: Mapping[str, Loss]) -> None:
        """Replace the sums over findings of partition directories; these also count findings that were not kept."""
        self._losses.update(losses)

    def unkept_findings(self, n: int) -> None:
        """Count damage whose findings were not kept."""
        if n:
            self._codes.add(Exit.DAMAGE)
            if self._report is not None:
                self._report.n_more_findings += n
            self._n_unprinted += n

    def error(self, error: BaseException) -> None:
        """Print an error, with its notes as a hint, and count it for the exit code."""
        code = exit_of_error(error)
        self._codes.add(code)
        if code is Exit.DAMAGE and isinstance(error, KafkalogError):
            self._note_damage(error.to_finding())
        if self._report is not None:
            self._report.add_error(error)
        text = str(error)
        hint = limit_hint(getattr(error, "reason", "")) or "; ".join(getattr(error, "__notes__", ()))
        # an OSError of Python's own shows its number and quotes its path
        if isinstance(error, OSError) and error.strerror and not hasattr(error, "reason"):
            text = f"{error.filename}: {error.strerror}" if error.filename else error.strerror
        if is_out_of_memory(error):
            text = f"out of memory ({text})" if text else "out of memory"
            hint = "free memory, or use --threads 1 if the command has it"
        if is_out_of_threads(error):
            text, hint = (
                f"the system starts no more threads ({text})",
                "use --threads 1, or raise the limit (ulimit -u)",
            )
        self.message(WORDS[code], f"{text}; {hint}" if hint else text)

    def close(self) -> None:
        """Remove the progress bar, print the losses and how many findings were not printed, and write the report."""
        self.progress.close()
        for hint in sorted(self._limits - self._hinted):
            self.message("limit", hint)
        # last, so that what was lost is what stays on the screen
        for path, loss in self._losses.items():
            if loss.n_records or loss.n_unknown or loss.n_markers:
                self.message("lost", f"{path}: {loss}")
        if self._steps is None:
            self.next_steps(self.steps)
        if self._report is not None:
            self._report.losses, self._report.next = self._losses, [step.as_dict() for step in self.steps]
            try:
                self._report.write(int(self.exit_code))
            except KafkalogError as error:
                self._report = None
                self.error(OutputError(f"the report could not be written: {error}"))
        if self._n_unprinted:
            self.message("damage", f"{self._n_unprinted:,} more findings of damage; use -v to print all")
            self._n_unprinted = 0


class UntilBroken(Generic[Row]):
    """Calls a function that prints until stdout fails, and raises the error after the work is done."""

    def __init__(self, show: Callable[[Row], object]) -> None:
        self._show = show
        self._error: Exception | None = None

    def __call__(self, row: Row) -> None:
        # half of the work done would be worse than a report that nobody reads
        if self._error is None:
            try:
                self._show(row)
            except (BrokenPipeError, OutputError) as error:
                self._error = error

    def finish(self) -> None:
        """Raise the error."""
        if self._error is not None:
            raise self._error


def prepare_stdout(*, is_json: bool) -> None:
    """Set the encoding of stdout: UTF-8 for JSON; for text escape what the terminal's encoding lacks."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        if is_json:
            sys.stdout.reconfigure(encoding="utf-8")
        else:
            # a terminal without UTF-8 must not end a run in the middle
            sys.stdout.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def _unless_broken() -> Iterator[None]:
    """Continue without stderr if it cannot be written, as on a full disk: the exit code still has the result."""
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError:
        discard(sys.stderr)


def discard(stream: TextIO) -> None:
    """Redirect a broken stdout or stderr to the null device, or Python's flush at exit would print an error."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        try:
            os.dup2(null, stream.fileno())
        finally:
            os.close(null)


class FindingsFile:
    """Collects findings, and writes them to a file when the run ends."""

    def __init__(self, path: str, command: str, sources: Sequence[str]) -> None:
        from kafkalog.storage.output_paths import check_outside

        check_outside(path, sources)
        self._path, self._command, self._sources = path, command, list(sources)
        self._findings: list[dict[str, Any]] = []
        self.n_more_findings = 0
        self.losses: dict[str, Loss] = {}
        self.next: list[dict[str, Any]] = []

    def add(self, finding: Finding) -> None:
        """Add a finding."""
        self._findings.append(finding.as_dict())

    def add_error(self, error: BaseException) -> None:
        """Add the error that ended the run, if it is about a file."""
        # other errors are about options or stdout, not about what was read
        if isinstance(error, KafkalogError):
            self.add(error.to_finding())

    def write(self, exit_code: int) -> None:
        """Write the file, durably; replaces an existing one."""
        from kafkalog.storage.staging import staged_file

        content = {
            "version": 1,
            "command": self._command,
            "paths": self._sources,
            "exit_code": exit_code,
            "partitions": [{"path": path, **loss.as_dict()} for path, loss in self.losses.items()],
            "findings": self._findings,
            "n_more_findings": self.n_more_findings,
            "next": self.next,
        }
        with staged_file(self._path, overwrite=True, parents=True) as file:
            file.write((json.dumps(content, indent=1) + "\n").encode())
