"""Records what a command does to the files below a directory, call by call, in the same process.

The functions of `os` that change files are replaced while the command runs. At the end, the recorder's tree must equal
that of the disk, so that nothing writes past it unnoticed, such as a C library.
"""

import contextlib
import os
import threading
from typing import Any, NamedTuple

from kafkalog.storage import atomic

EXCHANGE = 2


class New(NamedTuple):
    """An inode that is made."""

    inode: int
    is_directory: bool
    owner: tuple


class Write(NamedTuple):
    inode: int
    at: int
    data: bytes


class Resize(NamedTuple):
    inode: int
    size: int


class Own(NamedTuple):
    """Owner, group and mode of an inode from now on."""

    inode: int
    owner: tuple


class Names(NamedTuple):
    """Names that change in one step; each has a directory, a name, and the inode that it has then or None."""

    inode: int
    changes: tuple
    replaces: bool


class Sync(NamedTuple):
    """An fsync; what was called before the call of this number is durable for it."""

    inode: int
    start: int


class Tree:
    """Inodes: of a directory its names, of a file its bytes; and the owner of each."""

    def __init__(self, root):
        self.nodes: dict[int, Any] = {}
        self.owners: dict[int, tuple] = {}
        self._by_disk: dict[int, int] = {}
        self.root = os.path.realpath(root)
        self.top = self._load(self.root)

    def _load(self, path):
        info = os.lstat(path)
        if info.st_ino in self._by_disk:
            return self._by_disk[info.st_ino]
        inode = self._by_disk[info.st_ino] = self.add({} if os.path.isdir(path) else bytearray(), owner_of(info))
        if os.path.isdir(path):
            self.nodes[inode].update({name: self._load(os.path.join(path, name)) for name in os.listdir(path)})
        else:
            with open(path, "rb") as file:
                self.nodes[inode] += file.read()
        return inode

    def add(self, node, owner):
        inode = len(self.nodes) + 1
        self.nodes[inode], self.owners[inode] = node, owner
        return inode

    def place(self, path):
        """Directory, name and inode (None if absent) of a path below the root; None for other paths."""
        path = os.path.normpath(path)
        if path == self.root:
            return None, "", self.top
        if not path.startswith(f"{self.root}/"):
            return None
        *parents, name = path[len(self.root) + 1 :].split("/")
        inode = self.top
        for parent in parents:
            inode = self.nodes[inode].get(parent) if isinstance(self.nodes[inode], dict) else None
            if inode is None:
                return None
        return inode, name, self.nodes[inode].get(name)

    def listed(self):
        """Content and owner by path."""
        found = {}

        def walk(inode, path):
            node = self.nodes[inode]
            found[path] = ("directory" if isinstance(node, dict) else bytes(node), self.owners[inode])
            for name, child in node.items() if isinstance(node, dict) else ():
                walk(child, f"{path}/{name}")

        walk(self.top, "")
        return found


def owner_of(info):
    return info.st_uid, info.st_gid, info.st_mode & 0o7777


def changed(data, op):
    """The bytes of a file after a write, or another size."""
    size = op.size if isinstance(op, Resize) else max(len(data), op.at)
    data = data[:size].ljust(size, b"\0")
    return data if isinstance(op, Resize) else data[: op.at] + op.data + data[op.at + len(op.data) :]


class Recording:
    """The tree before, and what was done to it since."""

    def __init__(self, root):
        self.root = root
        self.tree = Tree(root)
        self.before = {inode: _copy(node) for inode, node in self.tree.nodes.items()}
        self.owners_before = dict(self.tree.owners)
        self.ops: list[Any] = []
        self._descriptors: dict[int, int] = {}
        self._lock = threading.RLock()

    @contextlib.contextmanager
    def running(self):
        """Record what is done in the block."""
        calls = {name: getattr(os, name) for name in (*_BY_PATH, *_BY_DESCRIPTOR)}
        renameat2 = atomic._renameat2
        try:
            for name, call in calls.items():
                setattr(os, name, self._recorded(name, call))
            atomic._renameat2 = lambda *given: self._rename2(renameat2, *given)
            yield
        finally:
            for name, call in calls.items():
                setattr(os, name, call)
            atomic._renameat2 = renameat2
        assert self.tree.listed() == Tree(self.root).listed(), "something wrote past the recorder"

    def _recorded(self, name, call):
        def recorded(*given, **options):
            with self._lock:
                start = len(self.ops)
                place = self._place(given[0], options) if name in _BY_PATH else None
                if name == "close":  # before the call: another thread may get the same number
                    self._descriptors.pop(given[0], None)
            result = call(*given, **options)
            with self._lock:
                getattr(self, f"_{name}")(place, start, result, *given)
            return result

        return recorded

    def _place(self, path, options):
        directory = options.get("dir_fd", options.get("src_dir_fd"))
        if isinstance(path, int):
            return None, "", self._descriptors.get(path)
        path = os.fsdecode(path)
        if directory is None:
            return self.tree.place(os.path.abspath(path))
        inode = self._descriptors.get(directory)
        return None if inode is None else (inode, path, self.tree.nodes[inode].get(path))

    def _note_names(self, inode, *changes):
        replaces = any(
            new is not None and self.tree.nodes[at].get(name) not in (None, new) for at, name, new in changes
        )
        for at, name, new in changes:
            if new is None:
                del self.tree.nodes[at][name]
            else:
                self.tree.nodes[at][name] = new
        self.ops.append(Names(inode, changes, replaces))

    def _note_new(self, place, node, info):
        inode = self.tree.add(node, owner_of(info))
        self.ops.append(New(inode, isinstance(node, dict), owner_of(info)))
        self._note_names(inode, (*place[:2], inode))
        return inode

    def _note_data(self, op):
        self.tree.nodes[op.inode][:] = changed(bytes(self.tree.nodes[op.inode]), op)
        self.ops.append(op)

    def _note_owner(self, inode, info):
        if inode is not None:
            self.tree.owners[inode] = owner_of(info)
            self.ops.append(Own(inode, owner_of(info)))

    def _open(self, place, start, descriptor, path, flags, *more):
        if place is None:
            self._descriptors.pop(descriptor, None)
            return
        inode = place[2]
        if inode is None:
            inode = self._note_new(place, bytearray(), os.fstat(descriptor))
        elif flags & os.O_TRUNC:
            self._note_data(Resize(inode, 0))
        self._descriptors[descriptor] = inode

    def _mkdir(self, place, start, result, path, *more):
        if place is not None:
            self._note_new(place, {}, os.stat(os.path.join(self._path(place[0]), place[1])))

    def _path(self, wanted, at=None, path=None):
        at, path = (self.tree.top, self.tree.root) if at is None else (at, path)
        if at == wanted:
            return path
        nodes = self.tree.nodes[at].items() if isinstance(self.tree.nodes[at], dict) else ()
        return next((one for name, child in nodes if (one := self._path(wanted, child, f"{path}/{name}"))), None)

    def _unlink(self, place, start, result, path):
        if place is not None:
            self._note_names(place[2], (*place[:2], None))

    _rmdir = _remove = _unlink

    def _rename(self, place, start, result, source, target):
        if place is not None:
            there = self.tree.place(os.path.abspath(os.fsdecode(target)))
            self._note_names(place[2], (*place[:2], None), (*there[:2], place[2]))

    _replace = _rename

    def _link(self, place, start, result, source, target):
        there = self.tree.place(os.path.abspath(os.fsdecode(target)))
        if there is not None:
            self._note_names(place[2], (*there[:2], place[2]))

    def _rename2(self, rename, source, target, flags):
        with self._lock:
            place, there = self.tree.place(str(source)), self.tree.place(str(target))
            rename(source, target, flags)
            if flags == EXCHANGE:
                self._note_names(place[2], (*place[:2], there[2]), (*there[:2], place[2]))
            else:
                self._note_names(place[2], (*place[:2], None), (*there[:2], place[2]))

    def _chmod(self, place, start, result, path, *more):
        if place is not None:
            self._note_owner(place[2], os.stat(path))

    _chown = _chmod

    def _dup(self, place, start, result, descriptor):
        if descriptor in self._descriptors:
            self._descriptors[result] = self._descriptors[descriptor]

    def _close(self, place, start, result, descriptor):
        pass

    def _write(self, place, start, n_bytes, descriptor, data):
        if (inode := self._descriptors.get(descriptor)) is not None:
            at = os.lseek(descriptor, 0, os.SEEK_CUR) - n_bytes
            self._note_data(Write(inode, at, bytes(memoryview(data).cast("B")[:n_bytes])))

    def _ftruncate(self, place, start, result, descriptor, size):
        if (inode := self._descriptors.get(descriptor)) is not None:
            self._note_data(Resize(inode, size))

    def _fsync(self, place, start, result, descriptor):
        if (inode := self._descriptors.get(descriptor)) is not None:
            self.ops.append(Sync(inode, start))

    _fdatasync = _fsync

    def _fchmod(self, place, start, result, descriptor, *more):
        self._note_owner(self._descriptors.get(descriptor), os.fstat(descriptor))

    _fchown = _fchmod


def _copy(node):
    return dict(node) if isinstance(node, dict) else bytes(node)


_BY_PATH = ("open", "mkdir", "rmdir", "unlink", "remove", "rename", "replace", "link", "chmod", "chown")
_BY_DESCRIPTOR = ("dup", "close", "write", "fsync", "fdatasync", "ftruncate", "fchmod", "fchown")
