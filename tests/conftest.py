"""Fixtures that more than one test file uses."""

import ast
import atexit
import functools
import gc
import itertools
import os
import re
import shutil
import signal
import sys
import tempfile
from pathlib import Path

import pytest
from effort import RANDOM, THOROUGH, examples, forget_constants, n_counted
from golden_sets import changed_files, listing, partitions, session_root, shared_log_dir
from hypothesis import HealthCheck, settings
from needs import not_tested, skip_without_package

settings.register_profile(
    "kafkalog",
    max_examples=examples(200) if THOROUGH else 6,
    deadline=None,
    derandomize=not RANDOM,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("kafkalog")
if not RANDOM:
    forget_constants()

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # as a shell's background job we would hand that on to the processes that tests interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)

session_root()  # here, so that the processes of a run have the same
_IS_WORKER = "PYTEST_XDIST_WORKER" in os.environ


def _end(pid):
    if os.getpid() == pid:  # and not a fork of that process
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(0)


if _IS_WORKER:
    # the last that it does: what it had to report is sent, and to free its memory piece by piece takes seconds
    atexit.register(_end, os.getpid())
_MEMORY = "/dev/shm"
"""Where Linux has files in memory: a file is made there in a tenth of the time, and a plain run makes very many."""


def _has_room_in_memory():
    try:
        place = os.statvfs(_MEMORY)
        available = re.search(r"^MemAvailable: +(\d+) kB$", Path("/proc/meminfo").read_text(), re.MULTILINE)
    except OSError:
        return False
    free = min(place.f_bavail * place.f_frsize, int(available[1]) << 10 if available else 0)
    return free >= 12 << 30 and not place.f_flag & os.ST_NOEXEC and os.access(_MEMORY, os.W_OK)


if "TMPDIR" not in os.environ and not THOROUGH and _has_room_in_memory():
    os.environ["TMPDIR"] = _MEMORY
    tempfile.tempdir = None
if sys.dont_write_bytecode:
    # where nothing may be written beside the sources, each of the hundred processes of a run would compile all of them,
    # and those of the libraries, which take longer. Runs share none: a process that a test stops may leave a part
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix = str(session_root() / "bytecode")
    sys.dont_write_bytecode = False
GOLDEN = Path(__file__).parent / "golden"
_SHARING = {
    "conformance": re.compile(r"^def \w+\((.*, )?history\b", re.MULTILINE),
    "spark": re.compile(r"^def \w+\((.*, )?(spark|session|source)\b", re.MULTILINE),
}
"""Folders whose files share a broker or a Spark, and so the process that they are tested in: those with this text."""
_LONGEST = (
    "scanning/test_user_functions.py",
    "operations/exporting/test_export.py",
    "cli/test_app.py",
    "robustness/test_memory_bound.py",
    "repair/recovering/test_recover.py",
    "repair/salvaging/test_salvage.py",
    "log/lookups/test_list_offsets.py",
    "scanning/test_planning.py",
    "operations/verifying/test_verify.py",
    "robustness/test_fuzz_records.py",
    "records/test_fill.py",
    "indexes/test_time_hints.py",
    "scanning/conditions/test_filters.py",
    "state/test_read_committed.py",
    "tests/test_package.py",
    "tests/test_functions.py",
    "tests/test_docs.py",
    "writing/test_partition_staging.py",
    "writing/test_routing.py",
    "writing/test_job_commit.py",
)
"""Files that are begun before the others, so that the processes end together; a name that is none does no harm."""
_APART = ("robustness/test_power_loss.py", "robustness/test_queries.py", "robustness/test_surfaces.py")
"""Files of long tests that share nothing: each test may go to another process. They begin before `_LONGEST`."""
_OF_KERNELS = ("kernels", "records", "robustness")
"""Folders whose tests run mostly in kernels, but for those of `_OF_FILES`."""
_OF_FILES = ("test_power_loss", "test_sources_unchanged")
_INPUTS = "inputs of fuzzers"
_SETS = pytest.StashKey[dict[str, list[int]]]()
_CHANGED = pytest.StashKey[list[str]]()
_ON_DISK = {"test_staging", "test_moves", "test_durability", "test_partition_staging", "test_job_commit"}
"""Files whose tests are more thorough when `fsync` is real."""


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Look for no garbage while thousands of tests are collected, and never again among them: it is an eighth less.

    Tests of small inputs make more garbage than most programs: look for it less often.
    """
    gc.disable()
    result = yield
    gc.freeze()
    gc.set_threshold(10_000, 20, 20)
    gc.enable()
    return result


def pytest_unconfigure():
    """Let the interpreter find all when it ends, or extension modules complain of leaks."""
    if not _IS_WORKER:
        gc.unfreeze()


def pytest_addoption(parser):
    """Add --soak."""
    parser.addoption("--soak", action="store_true", help="run the tests that take hours, if -m does not rule them out")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Mark the tests of kernels, and begin with those that share a broker or a Spark, then with long files.

    Soaks are skipped unless --soak asks for them: an -m of the command line replaces the default one.
    """
    asked = "thorough" in config.getoption("-m")
    for item in items:
        if item.get_closest_marker("soak") and not config.getoption("--soak"):
            item.add_marker(pytest.mark.skip(reason="takes hours; --soak runs it"))
        if item.path.parent.name in _OF_KERNELS and item.path.stem not in _OF_FILES:
            item.add_marker(pytest.mark.kernels)
        if asked and (item.originalname in _taking_more(item.path) or (THOROUGH and item.path.stem in _ON_DISK)):
            item.add_marker(pytest.mark.thorough)
    items[:] = _in_turn(sorted(items, key=lambda item: (_rank(item.path), item.path)))


def _in_turn(items):
    """Begin with those that share a broker or a Spark; of the others, tests that wait for one go beside long ones."""
    units = {}
    for item in items:
        units.setdefault(_scope(item.nodeid), []).append(item)
    shared = [units.pop(name) for name in _SHARING if name in units]
    waiting = [unit for unit in units.values() if _rank(unit[0].path) == 0]
    others = [unit for unit in units.values() if _rank(unit[0].path) != 0]
    # the last of those that wait begins when a quarter of the others is left
    n = max(1, len(others) * 3 // 4 // max(1, len(waiting)))
    parts = [others[at : at + n] for at in range(0, len(others), n)]
    pairs = (unit for one, part in itertools.zip_longest(waiting, parts) for unit in (one or [], *(part or [])))
    return [item for unit in (*shared, *pairs) for item in unit]


def _scope(nodeid):
    """What is tested in one process: a file, the files of a folder that share something, or a single test."""
    path = nodeid.partition("::")[0]
    if path.endswith(_APART):
        return nodeid
    return next((folder for folder in _SHARING if f"/{folder}/" in path and _shares(path)), path)


_EFFORT = {"THOROUGH", "N_INPUTS", "counted", "examples", "fuzz_inputs", "given", "trials"}
"""What files import that take more inputs in a thorough run."""


@functools.cache
def _taking_more(path):
    """The names in a file that stand for more inputs in a thorough run: of tests, fixtures, helpers and constants."""
    uses = {}
    found = set()
    for statement in ast.parse(path.read_text()).body:
        nodes = list(ast.walk(statement))
        if isinstance(statement, ast.ImportFrom):
            found |= {alias.name for alias in statement.names} & _EFFORT
        made = {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
            made = {statement.name}
        words = {str(getattr(node, kind, "")) for node in nodes for kind in ("id", "arg")}
        uses |= dict.fromkeys(made, words)
    while more := {name for name, words in uses.items() if words & found} - found:
        found |= more
    return frozenset(found)


def _rank(path):
    if {*path.parent.parts} & {*_SHARING}:
        return 0
    return 1 if str(path).endswith(_APART) else 2 if str(path).endswith(_LONGEST) else 3


@functools.cache
def _shares(path):
    file = Path(path)
    text = (GOLDEN.parents[1] / file).read_text()
    return any(shared.search(text) for folder, shared in _SHARING.items() if folder in file.parts)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Keep a file's tests, and files that share a broker or a Spark, in one of the processes that tests run in.

    xdist's own groups do that by a suffix of test ids, which pytest 9.2 does not hand on.
    """
    from xdist.scheduler import LoadScopeScheduling

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            return _scope(str(nodeid))

    return Scheduling(config, log)


def pytest_sessionstart(session):
    """Note what the golden sets are."""
    if not hasattr(session.config, "workerinput"):
        session.config.stash[_SETS] = listing(GOLDEN)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session):
    """Fail if a test has written to the golden sets: later tests read something else then."""
    before = session.config.stash.get(_SETS, None)
    session.config.stash[_CHANGED] = [] if before is None else changed_files(before)
    if session.config.stash[_CHANGED]:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """Note how many inputs a fuzzer takes."""
    before = n_counted()
    result = yield
    if n_counted() > before:
        item.user_properties.append((_INPUTS, n_counted() - before))
    return result


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Skip files that import what is not installed.

    Every other process collects from the end, and the third from the middle: what one has rewritten for `assert`, the
    others find in the cache.
    """
    report = yield
    if isinstance(collector, pytest.Directory):
        worker = os.environ.get("PYTEST_XDIST_WORKER", "gw0")
        if worker[-1] in "13579":
            report.result.reverse()
        elif worker != "gw0":
            middle = len(report.result) // 2
            report.result = report.result[middle:] + report.result[:middle]
    if report.failed:
        call = vars(report)["call"]
        skip_without_package(report, call.excinfo.value.__cause__)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call):
    """Skip tests that import what is not installed."""
    report = yield
    if report.failed and call.excinfo:
        skip_without_package(report, call.excinfo.value)
    return report


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_terminal_summary(terminalreporter):
    """Say last, and loudly, what was not tested for want of Java, jars or packages; and count inputs."""
    yield
    passed = terminalreporter.stats.get("passed", [])
    n = sum(value for one in passed for name, value in one.user_properties if name == _INPUTS and one.when == "call")
    if n:
        terminalreporter.write_line(f"{n:,} {_INPUTS}")
    for path in terminalreporter.config.stash.get(_CHANGED, []):
        terminalreporter.write_line(f"A TEST CHANGED THE GOLDEN SETS: {path}", red=True, bold=True)
    for line in not_tested(terminalreporter.stats.get("skipped", [])):
        terminalreporter.write_line(line, red=True, bold=True)


@pytest.fixture(scope="session", autouse=True)
def _no_wait_for_the_disk():
    """In a plain run an fsync only looks whether the descriptor is one: it takes long, and no power is cut here."""
    with pytest.MonkeyPatch.context() as patch:
        if not THOROUGH:
            patch.setattr(os, "fsync", _fsync_nothing)
        yield


def _fsync_nothing(descriptor):
    os.fstat(descriptor)


@pytest.fixture
def disk_path():
    """A directory on a disk, where the system can be asked for what it has in memory: of files there, it cannot."""
    with tempfile.TemporaryDirectory(dir=session_root()) as name:
        path = Path(name)
        with (path / "file").open("w+b", buffering=0) as file:
            file.write(b"x")
            try:
                os.preadv(file.fileno(), [bytearray(1)], 0, os.RWF_NOWAIT)
            except OSError as error:
                pytest.skip(f"{session_root()} is not on a disk: {error.strerror}")
        (path / "file").unlink()
        yield path


@pytest.fixture(scope="session")
def log_dir():
    """A small log dir as real brokers left it; not to be written to."""
    return shared_log_dir()


@pytest.fixture
def log_dir_copy(tmp_path, log_dir):
    """The same, to damage."""
    return Path(shutil.copytree(log_dir, tmp_path / "log_dir"))


@pytest.fixture
def partition(tmp_path):
    """Three segments, in a log dir with recovery points that name the last."""
    target = tmp_path / "data" / "p-txn-now-0"
    shutil.copytree(partitions("k44_extra")["p-txn-now-0"], target)
    (target.parent / "recovery-point-offset-checkpoint").write_text("0\n1\np-txn-now 0 300\n")
    return target


@pytest.fixture
def run(capsys):
    """Call the command: exit code, stdout, stderr."""
    from kafkalog.cli import main

    def call(*argv):
        code = main([str(arg) for arg in argv])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def run_lines(run):
    """The same with the lines of stdout."""

    def call(*argv):
        code, out, err = run(*argv)
        return code, out.splitlines(), err

    return call
