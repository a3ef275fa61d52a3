"""Fixtures that more than one test file uses."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from needs import not_tested

settings.register_profile(
    "kafkalog",
    deadline=None,
    derandomize="CI" in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("kafkalog")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # as a shell's background job we would hand that on to the processes that tests interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)

GOLDEN = Path(__file__).parent / "golden"
_SHARED = ("history", "spark")
_OF_KERNELS = ("kernels", "records", "robustness")
"""Folders whose tests run mostly in kernels."""


@pytest.hookimpl(tryfirst=True)  # before -m is looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep a file's tests, and files that share a broker or a Spark, in one of the processes that tests run in."""
    groups: dict[Path, str] = {}
    for item in items:
        if item.path.parent.name in _OF_KERNELS:
            item.add_marker(pytest.mark.kernels)
        shared = next((name for name in _SHARED if name in getattr(item, "fixturenames", ())), None)
        if shared is not None:
            # all of the file, for else its own fixtures would be made in two processes
            groups.setdefault(item.path, shared)
    for item in items:
        item.add_marker(pytest.mark.xdist_group(groups.get(item.path, str(item.path))))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> Iterator[None]:
    """Say last, and loudly, what was not tested for want of Java or jars."""
    yield
    for line in not_tested(terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(line, red=True, bold=True)


@pytest.fixture(scope="session")
def log_dir() -> Path:
    """A small log dir as real brokers left it; not to be written to."""
    return GOLDEN / "log_dir"


@pytest.fixture
def log_dir_copy(tmp_path: Path, log_dir: Path) -> Path:
    """The same, to damage."""
    return Path(shutil.copytree(log_dir, tmp_path / "log_dir"))
