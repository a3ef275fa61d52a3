"""What a disk may hold after a power loss, or a kill, at any call of a recorded command.

| model | a disk may have                                                                                     |
|-------|-----------------------------------------------------------------------------------------------------|
| A     | all calls before one, the last write torn: a kill, or a file system that journals data              |
| B     | names and owners in the order of the calls, data of files later: ext4 as it is mounted by default   |
| C     | what was fsynced, and any of the rest; only a rename is one step: what POSIX promises               |

Source: fsync(2) and rename(2) of POSIX.1-2017; the kernel's documentation of ext4 (`data=ordered`, `auto_da_alloc`).
"""

import hashlib
import os
import random
from typing import Any, NamedTuple

from recorded_disk import Names, New, Own, Recording, Sync, Write, changed

SECTOR = 512


class State(NamedTuple):
    """A tree: by path, the hash of a file (None: a directory), and its owner."""

    tree: dict[str, tuple[str | None, tuple]]
    why: str
    is_after: bool
    """Whether the command had returned: then all that it did must be there."""


class Disk:
    """The states of one recording in one model."""

    def __init__(self, recording: Recording, model: str, *, without: int | None = None, n_random: int = 4) -> None:
        """`without` is an inode whose fsyncs count as not made."""
        self.contents: dict[str, bytes] = {}
        self._recording, self._model, self._without, self._n_random = recording, model, without, n_random
        self._random = random.Random(1)
        before = recording.before
        self._names = {inode: dict(node) for inode, node in before.items() if isinstance(node, dict)}
        self._data = {inode: node for inode, node in before.items() if not isinstance(node, dict)}
        self._owners = dict(recording.owners_before)
        self._late_names: list[tuple[int, Names]] = []
        self._late: dict[int, list[tuple[int, Any]]] = {}  # writes, sizes and owners, by inode
        self._seen: set[int] = set()
        self._hashes: dict[int, tuple[str, bytes]] = {}

    def states(self):
        """Yield each state that differs from those before it."""
        for number, op in enumerate(self._recording.ops):
            if isinstance(op, Sync):
                if op.inode != self._without:
                    self._settle(op)
                continue  # nothing new can be on the disk because of it
            if isinstance(op, New):
                self._owners[op.inode] = op.owner
                if op.is_directory:
                    self._names[op.inode] = {}
                else:
                    self._data[op.inode] = b""
                continue
            if isinstance(op, Names):
                self._late_names.append((number, op))
            else:
                self._late.setdefault(op.inode, []).append((number, op))
            yield from self._cut(number, is_after=False)
        self._seen.clear()  # judged by another rule
        yield from self._cut(len(self._recording.ops), is_after=True)

    # what is durable

    def _settle(self, sync):
        is_journal = self._model != "C"  # one commit for all names and owners before
        for inode in [*self._late] if is_journal else [sync.inode]:
            done = [one for one in self._late.get(inode, []) if one[0] < sync.start]
            if inode != sync.inode:
                done = [one for one in done if isinstance(one[1], Own)]
            self._apply(inode, [op for _, op in done])
            self._late[inode] = [one for one in self._late.get(inode, []) if one not in done]
            if not self._late[inode]:
                del self._late[inode]
        done = [one for one in self._late_names if one[0] < sync.start]
        if not is_journal:
            done = self._with_causes([one for one in done if any(at == sync.inode for at, *_ in one[1].changes)])
        for _, names in done:
            for at, name, inode in names.changes:
                _put(self._names[at], name, inode)
        self._late_names = [one for one in self._late_names if one not in done]

    def _apply(self, inode, ops):
        for op in ops:
            if isinstance(op, Own):
                self._owners[inode] = op.owner
            else:
                self._data[inode] = changed(self._data[inode], op)

    def _with_causes(self, chosen):
        """These changes of names, with those before them of the same names and inodes."""
        kept, inodes, places = [], set(), set()
        for one in reversed(self._late_names):
            names = one[1]
            own = {change[:2] for change in names.changes}
            if one in chosen or names.inode in inodes or own & places:
                kept.append(one)
                inodes.add(names.inode)
                places |= own
        return kept[::-1]

    # what may be on the disk

    def _cut(self, number, *, is_after):
        for why, names, files, owners in self._choices(number):
            state = self._state(names, files, owners, f"call {number}: {why}", is_after)
            if state is not None:
                yield state

    def _choices(self, number):
        """Changes of names, contents of files with late writes, and owners."""
        names = self._late_names
        contents = {inode: self._contents(inode) for inode in self._late if inode in self._data}
        whole = {inode: found["all"] for inode, found in contents.items()}
        owners = {inode: op.owner for inode, ops in self._late.items() for _, op in ops if isinstance(op, Own)}
        last = self._recording.ops[number] if number < len(self._recording.ops) else None
        if self._model == "A":
            yield "all", names, whole, owners
            if isinstance(last, Write) and last.inode in contents:
                yield "torn", names, {**whole, last.inode: contents[last.inode]["torn"]}, owners
        elif self._model == "B":
            yield from self._journaled(names, contents, whole)
        else:
            for why, chosen in self._any_of(names, number):
                yield f"{why}; all data", chosen, whole, owners
                for kind in ("none", "zeros", "torn") if contents or owners else ():
                    yield f"{why}; data {kind}", chosen, {inode: found[kind] for inode, found in contents.items()}, {}
            for inode in contents if len(contents) > 1 else ():
                yield f"without data of {inode}", names, {**whole, inode: contents[inode]["none"]}, owners

    def _journaled(self, names, contents, whole):
        for n in range(len(names), -1, -1):
            end = names[n][0] if n < len(names) else len(self._recording.ops)
            owners = {
                inode: op.owner
                for inode, ops in self._late.items()
                for at, op in ops
                if isinstance(op, Own) and at < end
            }
            # ext4 writes the data of a file that replaces another with the rename
            forced = {one.inode for _, one in names[:n] if one.replaces}
            for kind in ("all", "none", "torn") if contents else ("all",):
                files = {inode: found["all" if inode in forced else kind] for inode, found in contents.items()}
                yield f"{n} of {len(names)} names; data {kind}", names[:n], files, owners
            for inode in contents if n == len(names) and len(contents) > 1 else ():
                if inode not in forced:
                    yield (
                        f"all names; without data of {inode}",
                        names,
                        {**whole, inode: contents[inode]["none"]},
                        owners,
                    )

    def _any_of(self, names, number):
        yield "all names", names
        yield "no names", []
        newest = [one for one in names if one[0] == number]
        for one in names:
            yield f"only name {one[0]}", self._with_causes([one])
            yield f"without name {one[0]}", self._without_effects(one)
            if newest and one not in newest:
                yield f"names {one[0]} and {number}", self._with_causes([one, *newest])
        for _ in range(self._n_random if len(names) > 2 else 0):
            yield "some names", self._with_causes([one for one in names if self._random.random() < 0.5])

    def _without_effects(self, left_out):
        kept, inodes, places = [], set(), set()
        for one in self._late_names:
            own = {change[:2] for change in one[1].changes}
            if one is left_out or (one[0] > left_out[0] and (one[1].inode in inodes or own & places)):
                inodes.add(one[1].inode)
                places |= own
            else:
                kept.append(one)
        return kept

    def _contents(self, inode):
        """The contents that a file with late writes may have."""
        ops = [op for _, op in self._late[inode] if not isinstance(op, Own)]
        none = whole = zeros = self._data[inode]
        for op in ops:
            whole = changed(whole, op)
            zeros = changed(zeros, op._replace(data=bytes(len(op.data))) if isinstance(op, Write) else op)
        # the last sector of what was written is missing
        torn = whole[: max(len(none), (len(whole) - 1) // SECTOR * SECTOR)] if len(whole) > len(none) else none
        return {"all": whole, "none": none, "zeros": zeros, "torn": torn}

    def _state(self, names, files, owners, why, is_after):
        new: dict[int, dict[str, int | None]] = {}
        for _, one in names:
            for at, name, inode in one.changes:
                new.setdefault(at, {})[name] = inode
        tree: dict[str, tuple[str | None, tuple]] = {}

        def walk(inode, path):
            owner = owners.get(inode, self._owners[inode])
            if inode in self._names:
                tree[path] = None, owner
                for name, child in {**self._names[inode], **new.get(inode, {})}.items():
                    if child is not None:
                        walk(child, f"{path}/{name}")
            else:
                tree[path] = self._hash(files.get(inode, self._data[inode])), owner

        walk(self._recording.tree.top, "")
        key = hash(frozenset(tree.items()))
        if key in self._seen:
            return None
        self._seen.add(key)
        return State(tree, why, is_after)

    def _hash(self, data):
        found = self._hashes.get(id(data))
        if found is None or found[1] is not data:
            self._hashes[id(data)] = found = hash_of(data), data
            self.contents[found[0]] = data
        return found[0]

    def materialise(self, state, root):
        """Make a state on the disk."""
        for path, (content, (uid, gid, mode)) in state.tree.items():
            there = f"{root}{path}"
            if content is None:
                os.makedirs(there, exist_ok=True)
            else:
                with open(there, "wb") as file:
                    file.write(self.contents[content])
            if os.geteuid() == 0:
                os.chown(there, uid, gid)
            os.chmod(there, mode)


def hash_of(data):
    return hashlib.blake2b(data, digest_size=10).hexdigest()


def _put(names, name, inode):
    if inode is None:
        names.pop(name, None)
    else:
        names[name] = inode
