"""What tests need that a machine may lack: Java, Kafka's jars, Spark, packages of the extra ``test``.

A test that lacks it is skipped, and the end of the run says so; with CI set it fails.
"""

import doctest
import os
import shutil
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

_LACKING = "not tested here: "


def missing(what):
    """Skip the test, or fail in CI, where all must run; the first line is repeated at the end of the run."""
    reason = _LACKING + what
    if os.environ.get("CI"):
        pytest.fail(reason, pytrace=False)
    pytest.skip(reason)


def by_todays_clock():
    """The environment without the clock of `.ci/run`: years ahead, certificates of registries have expired."""
    return {name: value for name, value in os.environ.items() if name not in ("LD_PRELOAD", "SECONDS_AHEAD")}


def java_program():
    """The `java` of JAVA_HOME or PATH."""
    home = os.environ.get("JAVA_HOME")
    program = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if program is None or not Path(program).exists():
        missing("no java on PATH or in JAVA_HOME (Java 17 or later is needed)")
    return program


def skip_without_package(report, error):
    """Make a failure a skip where a package is not installed that the test, or what it calls, imports; not in CI."""
    while isinstance(error, ImportError):
        package = (error.name or "").partition(".")[0]
        if package and package != "kafkalog" and find_spec(package) is None and not os.environ.get("CI"):
            report.outcome = "skipped"
            report.longrepr = (report.nodeid, 0, f"{_LACKING}the package {package} is not installed")
        error = error.__cause__


class Examples(doctest.DocTestRunner):
    """Runs examples, and raises what they raise when a package is not installed."""

    def report_unexpected_exception(self, out, test, example, exc_info):
        """Report all but an ImportError."""
        if isinstance(exc_info[1], ImportError):
            raise exc_info[1]
        super().report_unexpected_exception(out, test, example, exc_info)


def not_tested(reports):
    """A line for each thing that was missing, with the number of tests, or files of tests, that were skipped for it."""
    reasons = Counter()
    for report in reports:
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        first, *_ = reason.removeprefix("Skipped: ").splitlines() or [""]
        if first.startswith(_LACKING):
            reasons[first.removeprefix(_LACKING)] += 1
    return [f"{n} tests DID NOT RUN: {what}" for what, n in reasons.most_common()]
