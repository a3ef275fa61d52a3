"""Kafka's `DumpLogSegments` and `kafkalog dump` as sides: all that the tool's process burns, its start too.

Both write to /dev/null. The tool is a process a pass, as its users run it; `startup` is that of one that has nothing to
dump, for who wants to subtract it.
"""

from __future__ import annotations

import os
import resource
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import kafkalog
from peers import Pass, Side, java, timed

TOOL = "org.apache.kafka.tools.DumpLogSegments"


def command() -> tuple[str, ...]:
    """What starts the tool, less its arguments.

    Raises
    ------
    JavaUnavailableError
        There is no JDK, or no jars and no way to fetch them.
    """
    program = java.require_java()[0]
    return (program, "-Xmx1g", "-Dfile.encoding=UTF-8", "-cp", java.class_path(program, "kafka-tools"), TOOL)


def tool(path: str, *options: str) -> Side:
    """The tool on one file."""
    arguments = (*command(), *options, "--files", path)

    def side() -> Pass:
        before = _children()
        subprocess.run(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
        return Pass(_children() - before, 0)

    return side


def startup() -> Side:
    """The tool on a file that holds nothing."""
    empty = Path(tempfile.mkdtemp(prefix="kafkalog-bench-")) / f"{0:020d}.txnindex"
    empty.touch()
    return tool(str(empty))


def ours(path: str, **options: Any) -> Side:
    """`kafkalog.dump` in this process."""
    null = os.open(os.devnull, os.O_WRONLY)

    def work() -> tuple[int, int]:
        for chunk in kafkalog.dump(path, **options).chunks():
            os.write(null, chunk)
        return 0, -1

    return timed(work)


def check_same_text(path: str, tool_option: str | None, **options: Any) -> None:
    """Both print as many bytes; what the bytes are is a test's matter.

    Raises
    ------
    DisagreementError
    """
    from peers import DisagreementError

    arguments = (*command(), *((tool_option,) if tool_option else ()), "--files", path)
    printed = 0
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        while chunk := process.stdout.read(2**20):
            printed += len(chunk)
    mine = sum(map(len, kafkalog.dump(path, **options).chunks()))
    if printed != mine:
        raise DisagreementError(f"the tool prints {printed} bytes of {path}, kafkalog {mine}")


def _children() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
