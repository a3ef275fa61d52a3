"""Publishing: the destination is as it was or complete, whatever fails and wherever the process dies."""

import errno
import itertools
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from effort import thinned
from faults import Faulty
from refusals import fails_with

from kafkalog.errors import OutputExistsError, WriteError
from kafkalog.storage import atomic as file_steps
from kafkalog.storage import staging as publish
from kafkalog.storage.own_names import STAGED_SUFFIX
from kafkalog.storage.staging import scratch_directory, staged_directory, staged_file

NEW = {"a": b"new" * 1000, "d/b": b"", "d/e/c": b"more"}
OLD = {"old": b"kept"}


def write_new(target, is_directory, overwrite):
    """Publish `NEW` as a directory, or one file of it."""
    if not is_directory:
        with staged_file(target, overwrite=overwrite) as file:
            file.write(NEW["a"][:10])
            file.write(NEW["a"][10:])
        return
    with staged_directory(target, overwrite=overwrite) as directory:
        for name, data in NEW.items():
            with directory.create(name) as file:
                file.write(data)


def write_old(target, is_directory):
    if is_directory:
        target.mkdir()
        (target / "old").write_bytes(OLD["old"])
    else:
        target.write_bytes(OLD["old"])


def content(target):
    """What is there; None for nothing."""
    if not target.exists():
        return None
    if target.is_file():
        return target.read_bytes()
    return {str(path.relative_to(target)): path.read_bytes() for path in sorted(target.rglob("*")) if path.is_file()}


def expected(is_directory):
    """The new state and the old one."""
    return (NEW, OLD) if is_directory else (NEW["a"], OLD["old"])


SCENARIOS = [(directory, overwrite) for directory in (False, True) for overwrite in (False, True)]
scenarios = pytest.mark.parametrize(("is_directory", "overwrite"), SCENARIOS)


@scenarios
def test_output_appears_when_the_block_ends_and_not_before(tmp_path, is_directory, overwrite):
    target = tmp_path / "out"
    new, old = expected(is_directory)
    before = None
    if overwrite:
        write_old(target, is_directory)
        before = old
    stage = staged_directory if is_directory else staged_file
    seen = []

    def fail():
        with stage(target, overwrite=overwrite):
            seen.append(content(target))
            raise RuntimeError("in the block")

    with pytest.raises(RuntimeError):
        fail()
    assert seen == [before]
    assert content(target) == before
    write_new(target, is_directory, overwrite)
    assert content(target) == new
    assert os.listdir(tmp_path) == ["out"]


@scenarios
def test_an_interrupt_at_any_moment_leaves_nothing_temporary(tmp_path, is_directory, overwrite):
    new, old = expected(is_directory)
    begins = {step.__code__ for step in (publish.Stage.__enter__, publish.Stage._create)}
    for n in itertools.count(1):
        target = tmp_path / str(n) / "out"
        target.parent.mkdir()
        if overwrite:
            write_old(target, is_directory)
        left = n

        def count(frame, event, argument):
            nonlocal left
            # where the interpreter looks whether there was a signal: at the start of functions, and behind calls in C
            if event in ("call", "c_return") and frame.f_code in begins:
                left -= 1
                if not left:
                    raise KeyboardInterrupt

        before = sys.getprofile()
        sys.setprofile(count)
        try:
            write_new(target, is_directory, overwrite)
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(before)
        assert content(target) in (new, old if overwrite else None), n
        assert os.listdir(target.parent) == (["out"] if target.exists() else []), n
        if left > 0:
            assert content(target) == new
            break
    assert n > 5


@scenarios
@pytest.mark.parametrize("code", thinned([errno.ENOSPC, errno.EIO, errno.EMFILE, errno.EROFS, None], 4))
def test_the_nth_failure_or_interrupt_is_told_and_leaves_what_was_there(tmp_path, is_directory, overwrite, code):
    said = "an interrupt" if code is None else os.strerror(code)
    new, old = expected(is_directory)
    n_raised = 0
    for n in range(1, 200):
        target = tmp_path / str(n) / "out"
        target.parent.mkdir()
        if overwrite:
            write_old(target, is_directory)

        def fault(name):
            raise KeyboardInterrupt("an interrupt") if code is None else OSError(code, said)

        faulty = Faulty(n, fault)
        told = None
        try:
            with faulty.installed():
                write_new(target, is_directory, overwrite)
        except WriteError as error:
            told = error.detail
        except KeyboardInterrupt as error:
            told = str(error)
        if told is None:
            assert content(target) == new
        else:
            assert told == said
            assert content(target) == (old if overwrite else None)
            n_raised += 1
        assert os.listdir(target.parent) in ([], ["out"])
        if faulty.n_calls < n:
            break
    else:
        raise AssertionError("it never came to an end")
    assert n_raised > 10


KILLED = """
import sys
from pathlib import Path
from types import FrameType
from faults import is_killed_at
from test_staging import write_new, write_old, content

root, is_directory, overwrite = Path(sys.argv[1]), sys.argv[2] == "True", sys.argv[3] == "True"
for n in range(1, 200):
    target = root / str(n) / "out"
    target.parent.mkdir()
    if overwrite:
        write_old(target, is_directory)
    if not is_killed_at(n, lambda: write_new(target, is_directory, overwrite)):
        print(n)
        break
"""


@pytest.mark.parametrize(
    ("is_directory", "overwrite"),
    [pytest.param(*one, marks=[] if all(one) else pytest.mark.slow) for one in SCENARIOS],
)
def test_killed_anywhere_the_destination_is_old_or_complete_and_the_next_run_cleans_up(
    tmp_path, is_directory, overwrite
):
    command = [sys.executable, "-c", KILLED, str(tmp_path), str(is_directory), str(overwrite)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])}
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=environment)
    n_points = int(done.stdout) - 1
    assert n_points > 10
    new, old = expected(is_directory)
    states = []
    for n in range(1, n_points + 1):
        target = tmp_path / str(n) / "out"
        states.append(content(target))
        assert states[-1] in (new, old if overwrite else None)
        left = sorted(set(os.listdir(target.parent)) - {"out"})
        assert len(left) <= 1
        assert all(name.startswith(".out.") and name.endswith(STAGED_SUFFIX) for name in left)
        write_new(target, is_directory, overwrite or content(target) is not None)
        assert content(target) == new
        assert os.listdir(target.parent) == ["out"]
    assert new in states
    assert (old if overwrite else None) in states


@scenarios
def test_a_file_system_that_cannot_exchange_names_will_do(tmp_path, monkeypatch, is_directory, overwrite):
    def cannot(*_):
        raise OSError(errno.EINVAL, "no flags here")

    monkeypatch.setattr(file_steps, "_renameat2", cannot)
    new, _ = expected(is_directory)
    target = tmp_path / "out"
    if overwrite:
        write_old(target, is_directory)
    write_new(target, is_directory, overwrite)
    assert content(target) == new
    assert os.listdir(tmp_path) == ["out"]
    if overwrite:
        return
    # and a failed fsync of the directory is undone: nothing was there, nothing is
    target = tmp_path / "again" / "out"
    target.parent.mkdir()

    def fail(path):
        if os.fspath(path) == str(target.parent):
            raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(publish, "fsync_directory", fail)
    with pytest.raises(WriteError):
        write_new(target, is_directory, False)
    assert os.listdir(target.parent) == []


def test_where_nothing_can_be_undone_the_error_says_that_the_new_is_in_place(tmp_path, monkeypatch):
    def cannot(*_):
        raise OSError(errno.ENOSYS, "not here")

    def fail(*_):
        raise OSError(errno.EIO, "bad disk")

    monkeypatch.setattr(file_steps, "_renameat2", cannot)
    monkeypatch.setattr(publish, "fsync_directory", fail)
    target = tmp_path / "out"
    write_old(target, False)
    with fails_with("write_failed"):
        write_new(target, False, True)
    assert content(target) == NEW["a"]
    assert os.listdir(tmp_path) == ["out"]


def test_a_full_disk_is_a_write_error(tmp_path):
    program = """
import resource, signal, sys
sys.dont_write_bytecode = True  # a module that is kept cut off breaks the processes that import it later
from kafkalog.errors import WriteError
from kafkalog.storage.staging import staged_file
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
try:
    with staged_file(sys.argv[1]) as file:
        for _ in range(100):
            file.write(bytes(10_000))
except WriteError as error:
    print(error.detail, error.path)
"""
    target = tmp_path / "out"
    done = subprocess.run([sys.executable, "-c", program, str(target)], capture_output=True, text=True, check=True)
    assert done.stdout == f"{os.strerror(errno.EFBIG)} {target}\n"
    assert os.listdir(tmp_path) == []


def test_what_is_there_is_not_replaced_unasked(tmp_path):
    for is_directory in (False, True):
        target = tmp_path / str(is_directory)
        write_old(target, is_directory)
        with fails_with("output_exists"):
            write_new(target, is_directory, False)
        with fails_with("unsafe_path"):
            write_new(target, not is_directory, True)
        assert content(target) == (OLD if is_directory else OLD["old"])
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with fails_with("unsafe_path"):
        write_new(fifo, False, True)
    assert sorted(os.listdir(tmp_path)) == ["False", "True", "fifo"]


@pytest.mark.parametrize("is_directory", [False, True])
def test_what_appears_meanwhile_is_not_replaced(tmp_path, is_directory):
    target = tmp_path / "out"
    stage = staged_directory if is_directory else staged_file
    with pytest.raises(OutputExistsError), stage(target):
        write_old(target, is_directory)
    assert content(target) == (OLD if is_directory else OLD["old"])
    assert os.listdir(tmp_path) == ["out"]


def test_a_publication_that_is_alive_is_left_alone(tmp_path):
    target = tmp_path / "out"
    with staged_file(target, overwrite=True) as slow:
        slow.write(b"slow")
        write_new(target, False, False)
        assert len(os.listdir(tmp_path)) == 2
    assert target.read_bytes() == b"slow"
    assert os.listdir(tmp_path) == ["out"]


def test_a_directory_that_another_process_takes_for_abandoned_is_made_again(tmp_path, monkeypatch):
    """Between making and opening it, nothing tells that its owner is alive."""
    made, mkdir = [], os.mkdir

    def removed_at_first(path, *args, **options):
        mkdir(path, *args, **options)
        made.append(path)
        if len(made) == 1:
            os.rmdir(path)

    monkeypatch.setattr(os, "mkdir", removed_at_first)
    with staged_directory(tmp_path / "out") as staged:
        staged.put("file", b"whole")
    assert len({*made}) == 2
    assert [path.name for path in tmp_path.iterdir()] == ["out"]
    assert (tmp_path / "out" / "file").read_bytes() == b"whole"


def test_only_abandoned_entries_of_the_same_name_are_removed(tmp_path):
    others = [
        ".other.01234567.kafkalog-staged",
        ".out.kafkalog-staged",
        ".out.012.kafkalog-staged",
        ".out.01234567.tmp",
    ]
    for name in others:
        (tmp_path / name).touch()
    dead = tmp_path / ".out.01234567.kafkalog-staged"
    (dead / "deep").mkdir(parents=True)
    write_new(tmp_path / "out", False, False)
    assert sorted(os.listdir(tmp_path)) == sorted([*others, "out"])


@pytest.mark.parametrize("is_directory", [False, True])
def test_a_refused_publication_removes_what_a_killed_one_left(tmp_path, is_directory):
    write_old(tmp_path / "out", is_directory)
    (tmp_path / ".out.01234567.kafkalog-staged").touch()
    with pytest.raises(OutputExistsError), (staged_directory if is_directory else staged_file)(tmp_path / "out"):
        pass
    assert os.listdir(tmp_path) == ["out"]


def test_a_link_is_followed_and_permissions_are_kept(tmp_path):
    real = tmp_path / "real"
    real.write_bytes(b"old")
    real.chmod(0o640)
    (tmp_path / "link").symlink_to(real)
    write_new(tmp_path / "link", False, True)
    assert (tmp_path / "link").is_symlink()
    assert real.read_bytes() == NEW["a"]
    assert stat.S_IMODE(real.stat().st_mode) == 0o640


def test_staging_may_be_elsewhere_on_the_same_file_system(tmp_path):
    (tmp_path / "stage").mkdir()
    target = tmp_path / "logs" / "out"
    target.parent.mkdir()
    with staged_directory(target, stage_in=tmp_path / "stage") as directory:
        assert directory.path.parent == tmp_path / "stage"
        assert os.listdir(target.parent) == []
        directory.create("x").close()
    assert content(target) == {"x": b""}
    assert os.listdir(tmp_path / "stage") == []
    places = [Path(name) for name in ("/dev/shm", "/var/tmp") if os.access(name, os.W_OK)]
    for place in places:
        if place.stat().st_dev != tmp_path.stat().st_dev:
            with fails_with("write_failed"), staged_file(target.parent / "f", stage_in=place):
                pass


def test_names_in_a_directory_stay_in_it(tmp_path):
    with staged_directory(tmp_path / "out") as directory:
        for name in ("../x", "/x", "", "a/../../x"):
            with pytest.raises(ValueError):
                directory.create(name)
        directory.create("a")
        with pytest.raises(OutputExistsError):
            directory.create("a")


# ------------------------------------------------------------------------------------ what others do to staged files


@pytest.mark.parametrize("change", ["removed", "cut"])
@pytest.mark.parametrize("is_closed", [False, True])
def test_a_staged_file_that_somebody_removed_or_cut_is_not_published(tmp_path, change, is_closed):
    def publish_it():
        with staged_directory(tmp_path / "out") as directory:
            directory.create("other").write(b"untouched")
            file = directory.create("d/a")
            file.write(b"written")
            if is_closed:
                file.close()
            if change == "removed":
                (directory.path / "d/a").unlink()
            else:
                os.truncate(directory.path / "d/a", 3)

    with pytest.raises(WriteError):
        publish_it()
    assert os.listdir(tmp_path) == []


def test_a_directory_for_temporary_files_goes_at_the_end_or_with_the_next_one_after_a_crash(tmp_path):
    with scratch_directory(tmp_path, "out") as mine, scratch_directory(tmp_path, "out") as other:
        (mine / "file").touch()
        assert mine != other
    assert os.listdir(tmp_path) == []
    (tmp_path / f".out.scratch.{7:08x}{STAGED_SUFFIX}").mkdir()
    with scratch_directory(tmp_path, "out") as mine:
        assert [*tmp_path.iterdir()] == [mine]


def test_what_dead_processes_left_goes_whatever_lies_beside_it(tmp_path):
    for number in range(8):
        (tmp_path / f".out.{number:08x}{STAGED_SUFFIX}").symlink_to(tmp_path / "nowhere")
        (tmp_path / f".out.{number:08d}x").touch()
        left = tmp_path / f".out.{number + 16:08x}{STAGED_SUFFIX}"
        left.mkdir()
        (left / "file").write_bytes(b"left")
    write_new(tmp_path / "out", False, False)
    left_over = [path for path in tmp_path.iterdir() if path.is_dir() and not path.is_symlink()]
    assert left_over == []
    assert sum(path.is_symlink() for path in tmp_path.iterdir()) == 8
