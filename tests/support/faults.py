"""Faults before a chosen call of the operating system, for tests of what a crash or a full disk leaves."""

import contextlib
import errno
import itertools
import os
import signal
import threading
import traceback

from kafkalog.storage import atomic as file_steps
from kafkalog.storage import copying, moves
from kafkalog.storage import output_paths as places
from kafkalog.storage import staging as publish

# what asks the operating system to do something about files; each may fail, or be the last thing a process does
CALLS = ("open", "write", "fsync", "mkdir", "rename", "replace", "link", "stat", "fchmod", "dup", "lstat")


def at_call(monkeypatch, number, change, functions):
    """Make a change right before the n-th call of functions, pairs of owner and name; return what counts the calls."""
    calls = itertools.count()

    def hook(owner, name):
        real = getattr(owner, name)

        def hooked(*args, **options):
            if next(calls) == number:
                change()
            return real(*args, **options)

        monkeypatch.setattr(owner, name, hooked)

    for owner, name in functions:
        hook(owner, name)
    return calls


def forbid(monkeypatch, *paths):
    """Take the permission to read files and directories away, for root too; what is in a directory goes with it."""
    forbidden = tuple(map(str, paths))

    def checked(function):
        def call(path=".", *args, **options):
            where = os.path.abspath(path) if isinstance(path, (str, os.PathLike)) else ""
            if any(where == one or where.startswith(f"{one}/") for one in forbidden):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
            return function(path, *args, **options)

        return call

    for name in ("open", "scandir", "listdir"):
        monkeypatch.setattr(os, name, checked(getattr(os, name)))


class Faulty:
    """`os`, with something done before the n-th of the calls that count."""

    def __init__(self, when, fault):
        self.n_calls, self._when, self._fault = 0, when, fault
        self._lock = threading.Lock()  # files are made durable by several threads

    def __getattr__(self, name):
        value = getattr(os, name)
        return self.counted(name, value) if name in CALLS else value

    def counted(self, name, function):
        def call(*args, **options):
            with self._lock:
                self.n_calls += 1
                is_now = self.n_calls == self._when
            if is_now:
                self._fault(name)
            return function(*args, **options)

        return call

    @contextlib.contextmanager
    def installed(self):
        renameat2 = file_steps._renameat2
        for module in (publish, moves, places, file_steps, copying):
            module.os = self
        file_steps._renameat2 = self.counted("renameat2", renameat2)
        try:
            yield
        finally:
            for module in (publish, moves, places, file_steps, copying):
                module.os = os
            file_steps._renameat2 = renameat2


def is_killed_at(n, act):
    """Whether a fork that acts is killed before the n-th of the calls; that it raises is an error."""
    child = os.fork()
    if not child:
        try:
            with Faulty(n, lambda name: os.kill(os.getpid(), signal.SIGKILL)).installed():
                act()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL), status
    return status != 0
