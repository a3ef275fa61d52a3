"""The command `kafkalog`: parses arguments, runs one command, and turns its outcome into an exit code."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from types import FrameType
from typing import Any, Final, cast

from kafkalog import __version__
from kafkalog.cli.commands import LOCAL, MODULES, SUMMARIES, WITHOUT_ADVICE
from kafkalog.cli.console import Console, discard, prepare_stdout
from kafkalog.cli.exits import EXIT_CODES_HELP, Exit, OutputError, UsageError, exit_of_error
from kafkalog.cli.json_schemas import OUTPUTS, PrintSchema
from kafkalog.cli.options import add_command, make_limits
from kafkalog.cli.parser import Completion, Misuse, Parser
from kafkalog.cli.text import escape_line, in_shell
from kafkalog.errors import DEFAULT_LIMITS, ConfigWarning, CorruptionWarning, Limits, UnknownNameError

_DESCRIPTION: Final = """\
kafkalog reads, verifies, repairs and writes Apache Kafka's on-disk log without
a broker. Nothing to read at hand? 'kafkalog sample DIR' makes a log dir.\
"""

_FIRST_EXAMPLES: Final = """\
  kafkalog ls /var/lib/kafka                     a line per partition
  kafkalog cat /var/lib/kafka -t orders -n 10    ten records of a topic
  kafkalog verify /var/lib/kafka                 is anything damaged?"""

_EPILOG: Final = f"""\
examples:
  kafkalog ls /var/lib/kafka                     a line per partition
  kafkalog ls -s /var/lib/kafka/orders-0         a line per segment
  kafkalog cat /var/lib/kafka -t orders -n 10    the first ten records of a topic
  kafkalog cat orders-0 --json | jq .offset      records as JSON lines
  kafkalog batches orders-0 --summary            sizes, codecs and producers of batches
  kafkalog export orders-0 -o orders.parquet     records as Parquet, Arrow, CSV or JSON lines
  kafkalog lookup orders-0 --offset 42           find an offset or a time, step by step
  kafkalog dump orders-0/*.log --print-data-log  the lines of Kafka's DumpLogSegments
  kafkalog index-stats orders-0 --what-if 1024   density of the indexes, now and with another interval
  kafkalog verify /var/lib/kafka                 check checksums, indexes, snapshots and checkpoints
  kafkalog producers --open /var/lib/kafka       open and hanging transactions
  kafkalog epochs orders-0 --follower 7,1200     leader epochs; where this follower would truncate
  kafkalog groups /var/lib/kafka                 consumer groups: offsets, lag, members
  kafkalog preflight /var/lib/kafka              what a broker would do at its next start
  kafkalog salvage /mnt/disk -o saved            save every intact batch of a damaged log
  kafkalog recover /var/lib/kafka --dry-run      what a broker's recovery would cut
  kafkalog truncate orders-0 --to-offset 120 -o copy         remove the end of a log (trim: its start)
  kafkalog reindex orders-0 --in-place           rebuild indexes, as a broker's recovery does
  kafkalog convert orders-0 -o copy --drop 'key == user-42'   rewrite a log without some records
  kafkalog load orders.parquet -o log --topic t  write records as partitions that a broker serves

'kafkalog COMMAND -h' shows the purpose and the usual options, 'kafkalog COMMAND --help' shows everything.

{EXIT_CODES_HELP}"""


def build_parser(argv: Sequence[str] | None = None) -> argparse.ArgumentParser:
    """Return the parser of the command line.

    A command that `argv` does not name gets only its summary, and is not imported; None adds all commands in full.
    """
    parser = Parser(
        prog="kafkalog",
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    Parser.whole = build_parser
    parser.short_help = (_DESCRIPTION, _FIRST_EXAMPLES)
    parser.add_argument("--version", action="version", version=f"kafkalog {__version__}")
    parser.add_argument(
        "--completion",
        metavar="SHELL",
        action=Completion,
        build_parser=build_parser,
        help="print a completion script for bash, zsh or fish; needs the extra completion",
    )
    parser.add_argument(
        "--json-schema",
        metavar="COMMAND",
        action=PrintSchema,
        choices=OUTPUTS,
        help="print the JSON Schema of a command's --json; findings-file is that of --report",
    )
    # one stands for all that get a summary: 33 parsers would take four milliseconds
    unnamed = Parser()

    def parser_of(**options: Any) -> Parser:
        return Parser(**options) if "description" in options else unnamed

    commands = parser.add_subparsers(
        title="commands", metavar="COMMAND", dest="command", parser_class=cast("type[Parser]", parser_of)
    )
    for name, summary in SUMMARIES.items():
        # importing the modules of all commands would take longer than running `ls`
        if argv is None or name in argv:
            _add(commands, name, importlib.import_module(MODULES[name]))
        else:
            commands.add_parser(name, help=summary)
    return parser


def _add(commands: Any, name: str, module: Any) -> None:
    """Add the parser of a command; a module with several of them adds its own."""
    if hasattr(module, "COMMAND"):
        add_command(commands, name, module.COMMAND, module.run)
    else:
        module.add_parser(commands)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (default: that of the process), and return the exit code: see `kafkalog.cli.exits.Exit`."""
    if sys.stdout is None:  # the parent process closed it: make a write fail with OSError, as on any other stdout
        sys.stdout = open(os.open(os.devnull, os.O_RDONLY), "w", encoding="utf-8")  # noqa: SIM115
    if sys.stderr is None:  # what is printed to it would go to stdout
        sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115
    if argv is None:
        sys.meta_path.insert(0, _WithoutPandas())
    # no command does linear algebra, and the threads that OpenBLAS starts for it slow down the import of NumPy
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    try:
        with _signals():
            return int(_main(argv))
    except BrokenPipeError:
        discard(sys.stdout)
        return int(Exit.BROKEN_PIPE)
    except _Terminated:
        # what was staged is removed by now: end as a process without a handler does, which a service manager expects
        signal.raise_signal(signal.SIGTERM)
        return 128 + signal.SIGTERM
    except KeyboardInterrupt:
        return int(Exit.INTERRUPTED)


class _WithoutPandas:
    """Hides pandas from Arrow, which imports it where it is installed: as long as a small job. No command needs it."""

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        """Raise ImportError for pandas."""
        if name == "pandas":
            raise ModuleNotFoundError("the command kafkalog uses no pandas", name=name)


class _Terminated(KeyboardInterrupt):
    """SIGTERM: the command undoes everything, as after Ctrl-C."""


def _terminate(signum: int, frame: FrameType | None) -> None:
    raise _Terminated


@contextlib.contextmanager
def _signals() -> Iterator[None]:
    """Let SIGTERM end a command as Ctrl-C does."""
    handles = threading.current_thread() is threading.main_thread() and (
        signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    )
    if handles:
        signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        if handles:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _translated(argv: Sequence[str]) -> Sequence[str]:
    """A command line in our words, if those of other tools mean the same."""
    from kafkalog.cli.leads import translated, without_verb

    if argv and argv[0] not in SUMMARIES:
        argv = translated(argv, SUMMARIES)
    return without_verb(argv) if len(argv) > 1 else argv


def _main(argv: Sequence[str] | None) -> int:
    argv = _translated(sys.argv[1:] if argv is None else argv)
    parser = build_parser(argv)
    try:
        args = parser.parse_args(argv)
    except Misuse as error:
        line = _that_works(error)
        print(
            f"kafkalog: error: {in_shell(error.text(line))} (see {error.prog} -h)",
            *error.lines,
            sep="\n",
            file=sys.stderr,
        )
        return Exit.USAGE
    except SystemExit as error:
        return _flushed(error.code if isinstance(error.code, int) else Exit.USAGE)
    except BrokenPipeError:
        raise
    except OSError as error:
        return _no_output(error)
    if args.command is None:
        parser.print_help(sys.stderr)
        return Exit.USAGE
    return _run(args.run, args)


_MOST_STEPS: Final = 5


def _that_works(error: Misuse, n_steps: int = _MOST_STEPS) -> Sequence[str] | None:
    """The command line that an error advises, or what the errors about that one advise; None if none parses."""
    if error.advice is None or not error.advice.line or n_steps == 0:
        return None
    if n_steps < _MOST_STEPS and "did you mean" in f"{error.message}{error.advice.text}":
        return None  # of what was made from an advice, nothing else is guessed
    argv = _translated(error.advice.line)
    if {"-h", "--help", "--version"}.isdisjoint(argv):
        try:
            build_parser(argv).parse_args(argv)
        except Misuse as other:
            return _that_works(other, n_steps - 1)
        except SystemExit:
            return None
    return argv


def _flushed(code: int) -> int:
    """Flush stdout after help or the version was printed; return `code`, or another if stdout is full."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        return _no_output(error)
    return code


def _no_output(error: OSError) -> int:
    discard(sys.stdout)
    print(f"kafkalog: error: stdout: {error.strerror}", file=sys.stderr)
    return Exit.NOT_WRITTEN


def _run(command: Callable[[argparse.Namespace, Console], None], args: argparse.Namespace) -> int:
    """Run one command; report what it raises, and return the exit code."""
    console = Console(quiet=args.quiet, verbose=args.verbose, is_json=getattr(args, "json", False))
    try:
        try:
            name = " ".join(filter(None, [args.command, getattr(args, "job", None)]))
            if args.command not in WITHOUT_ADVICE:
                console.advise_on(args.paths, getattr(args, "tiered", None))
            args.paths = _places(args)
            _check_stdout(args)
            _note_ranges(args, console)
            console.report_to(getattr(args, "report", None), name, args.paths)
            prepare_stdout(is_json=console.is_json)
            args.limits = make_limits(getattr(args, "limits", None) or [], _default_limits(args.command))
            with _reported_warnings(console):
                command(args, console)
        finally:
            console.progress.close()
            # a failed stdout would fail again here, and hide the first error
            if not isinstance(sys.exception(), (OutputError, BrokenPipeError)):
                console.flush()
    except (BrokenPipeError, KeyboardInterrupt):
        raise
    except (UsageError, UnknownNameError) as error:
        console.message("error", f"{error} (see kafkalog {args.command} -h)")
        return Exit.USAGE
    except OutputError as error:
        discard(sys.stdout)
        console.error(error)
    except Exception as error:
        if exit_of_error(error) is Exit.BUG:
            _report_bug(error, console)
        console.error(error)
    console.close()
    return console.exit_code


def _default_limits(command: str) -> Limits:
    """The limits that `--limits` changes."""
    if command == "undelete":
        from kafkalog.undeleting.undelete import SEARCH_LIMITS

        return SEARCH_LIMITS
    return DEFAULT_LIMITS


def _places(args: argparse.Namespace) -> list[Any]:
    """The paths, with a location for each URL."""
    from kafkalog.storage.location import is_url, refuse_url

    tiered = getattr(args, "tiered", None)
    if not any(map(is_url, args.paths)) and tiered is None:
        return list(args.paths)
    from kafkalog.storage.stores import locate

    if args.command in LOCAL:
        refuse_url(args.paths, is_output=args.command == "sample")
    try:
        if tiered is not None:
            from kafkalog.tiered.joined import tiered_location

            options = {
                "keys": dict(args.tiered_keys or ()),
                "storage_options": dict(getattr(args, "storage_options", None) or ()),
            }
            return [tiered_location(path, tiered, **options) for path in args.paths]
        return [locate(path, dict(args.storage_options or ())) for path in args.paths]
    except ValueError as error:
        raise UsageError(str(error)) from None


_STDOUT: Final = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def _check_stdout(args: argparse.Namespace) -> None:
    """Raise UsageError for stdout as an output, except of `export`."""
    if (output := getattr(args, "output", None)) not in _STDOUT:
        return
    if args.command == "export":
        args.output = "-"
    elif args.command in ("groups", "report", "sql"):
        raise UsageError(f"leave out -o {output}: {args.command} prints to stdout; --json prints JSON lines")
    else:
        raise UsageError(f"-o {output} is stdout, which only export writes to; name a new file or directory")


def _note_ranges(args: argparse.Namespace, console: Console) -> None:
    """Print notes about times that were not meant, and about an end before the start."""
    for name in ("now", "start_timestamp", "end_timestamp", "to_timestamp", "before_timestamp"):
        time = getattr(args, name, None)
        if isinstance(time, int) and (time < 0 or (name == "now" and 0 < time < 10**9)):
            year, meant = (1969, f"before now has a unit, as {time}m") if time < 0 else (1970, "is ISO 8601 or -1h")
            console.note(f"{name} {time} is in {year}, as numbers are milliseconds; a time {meant}")
    for what in ("offset", "timestamp"):
        start: Any = getattr(args, f"start_{what}", None)
        end: Any = getattr(args, f"end_{what}", None)
        is_known = isinstance(end, (int, datetime)) and type(start) is type(end)
        if is_known and end < start:
            console.note(f"end_{what} {end} is before start_{what} {start}, so that no record is read")


@contextlib.contextmanager
def _reported_warnings(console: Console) -> Iterator[None]:
    """Print warnings about settings as notes, each once, and none about damage: the findings report it."""
    with warnings.catch_warnings():
        shown = warnings.showwarning
        noted: set[str] = set()

        def show(message: Warning | str, category: type[Warning], *where: Any, **more: Any) -> None:
            if issubclass(category, ConfigWarning):
                # the same for each partition
                if str(message) not in noted:
                    console.note(str(message))
                noted.add(str(message))
            else:
                # those of other libraries may quote what they read
                shown(escape_line(str(message)), category, *where, **more)

        warnings.simplefilter("ignore", CorruptionWarning)
        warnings.simplefilter("always", ConfigWarning)
        warnings.showwarning = show
        yield


def _report_bug(error: Exception, console: Console) -> None:
    if console.verbose:
        console.list("".join(traceback.format_exception(error)).splitlines())
    console.message(
        "bug",
        f"internal error in kafkalog {__version__} ({type(error).__name__}). Please report it with the command,"
        + (" the traceback above" if console.verbose else " the traceback (run again with -v)")
        + " and, if possible, the file.",
    )
