"""The golden sets: log dirs that real brokers wrote, and what a real consumer read from them.

The sets are packed under ``tests/golden`` (its README describes them) and unpacked once a run into a temporary
directory that all processes of the run share. A missing file is an error, never a reason to skip.

How truth maps to the files:

- A v0 record has no timestamp in the file; truth shows timestamp 0 and type ``NONE``. A v1 record whose timestamp is 0
  (``p-v1-ooo``) shows the same, though the file has CreateTime 0.
- Truth has no control records, and none below the log start offset (``p-delrec``), which is in the log dir's
  log-start-offset-checkpoint; the files still have both.
- leader_epoch is -1 (in the packed files: null) for v0 and v1 records.
- Where read_committed returned the same records as read_uncommitted, only the latter is stored; ``truth`` knows.
"""

import atexit
import base64
import fcntl
import functools
import json
import os
import shutil
import tarfile
import tempfile
from pathlib import Path

GOLDEN = Path(__file__).parents[1] / "golden"
LOG_DIR = GOLDEN / "log_dir"
SETS = ("k44", "k28", "k44_extra")

_SHARED_ROOT = "KAFKALOG_GOLDEN_ROOT"
_DONE = ".done"
_TIMESTAMP_TYPES = {"NONE": -1, "CreateTime": 0, "LogAppendTime": 1}


@functools.cache
def session_root():
    """Directory of what is unpacked; processes started by the first one that asks have the same."""
    shared = os.environ.get(_SHARED_ROOT)
    if shared:
        return Path(shared)
    root = Path(tempfile.mkdtemp(prefix="golden-"))
    os.environ[_SHARED_ROOT] = str(root)
    atexit.register(_remove, root, os.getpid())
    return root


def _remove(root, pid):
    if os.getpid() == pid:  # and not a fork of that process
        shutil.rmtree(root, ignore_errors=True)


def _extract(set_name, archive, target):
    source = GOLDEN / set_name / f"{archive}.tar.xz"
    if not source.is_file():
        raise FileNotFoundError(f"golden archive {set_name}/{archive}.tar.xz is missing")
    target.mkdir(parents=True)
    with tarfile.open(source) as tar:  # preallocated files are stored, and come out, sparse
        tar.extraction_filter = getattr(tarfile, "data_filter", None)  # filter= came with Python 3.11.4
        tar.extractall(target)
    return target


@functools.cache
def unpacked(set_name, archive="clean"):
    """Directory with the content of one archive, shared by the whole run: do not change what is in it.

    ``archive`` is ``clean``, ``unclean``, ``unclean_recovered`` (k44 only), ``rebuilt``, ``truth`` or ``dumps``;
    ``set`` of ``tiered``.
    """
    return made_once(set_name, archive, lambda target: _extract(set_name, archive, target))


def tiered():
    """A log dir and the storage of its remote segments, shared by the whole run."""
    root = unpacked("tiered", "set")
    return root / "data", root / "remote"


def tiered_truth(isolation):
    """Topic, partition, offset, timestamp, key and value of each record of `tiered`, in order."""
    found = []
    for row in map(json.loads, (unpacked("tiered", "set") / "truth.jsonl").read_text().splitlines()):
        if isolation in row["isolation"]:
            key, value = (None if row[name] is None else base64.b64decode(row[name]) for name in ("key", "value"))
            found.append((row["topic"], row["partition"], row["offset"], row["timestamp"], key, value))
    return sorted(found, key=lambda row: row[:3])


@functools.cache
def shared_log_dir():
    """A copy of the small log dir, shared by the whole run: do not change what is in it."""
    return made_once("small", LOG_DIR.name, lambda target: shutil.copytree(LOG_DIR, target))


def made_once(folder, name, make):
    """A directory that the first process of the run makes, and a list of its files as they were then."""
    target = session_root() / folder / name
    with (session_root() / f"{folder}-{name}.lock").open("wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = target.with_name(name + _DONE)
        if not done.exists():
            make(target)
            done.write_text(json.dumps(listing(target)))
    return target


def listing(root):
    """Size and time of the last change of each file under a directory."""
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            status = os.lstat(os.path.join(folder, name))
            found[os.path.join(os.path.relpath(folder, root), name)] = [status.st_size, status.st_mtime_ns]
    return found


def changed_files(before):
    """Files of the golden sets, and of what was made of them for this run, that a test changed, made or deleted."""
    pairs = [(GOLDEN, before)]
    for done in sorted(session_root().glob(f"*/*{_DONE}")):
        pairs.append((done.with_name(done.name.removesuffix(_DONE)), json.loads(done.read_text())))
    found = []
    for root, then in pairs:
        now = listing(root)
        found += [str(root / name) for name in sorted({*then, *now}) if then.get(name) != now.get(name)]
    return found


def unpack(tmp_root, set_name="k44", archive="clean"):
    """Unpack one archive into ``tmp_root/SET/ARCHIVE``, a copy of one's own to change; return that directory."""
    return _extract(set_name, archive, Path(tmp_root) / set_name / archive)


def partitions(set_name, archive="clean"):
    """Partition directories of a log dir by name, in name order, ``-delete`` directories and all."""
    root = unpacked(set_name, archive)
    found = {path.name: path for path in sorted(root.iterdir()) if path.is_dir()}
    if not found:
        raise FileNotFoundError(f"no partitions in {set_name}/{archive}")
    return found


def log_files(partition):
    """The ``.log`` files of a partition directory in offset order."""
    found = sorted(partition.glob("*.log"))
    if not found:
        raise FileNotFoundError(f"no .log file in {partition.name}")
    return found


def log_start_offsets(set_name, archive="clean"):
    """Log start offsets by partition directory name, where one was written; elsewhere it is the first base offset."""
    return checkpoint(unpacked(set_name, archive) / "log-start-offset-checkpoint")


def checkpoint(path):
    """The lines of a root checkpoint file as ``{"topic-partition": offset}``."""
    _, count, *lines = path.read_text().splitlines()
    entries = {f"{topic}-{partition}": int(offset) for topic, partition, offset in map(str.split, lines)}
    if len(entries) != int(count):
        raise ValueError(f"{path.name}: {len(entries)} entries, {count} announced")
    return entries


@functools.cache
def truth_topics(set_name, archive="clean"):
    """Topics that have a truth file, for the clean or the unclean log dir."""
    root = _truth_root(set_name, archive)
    suffix = ".read_uncommitted.jsonl"
    topics = tuple(sorted(path.name.removesuffix(suffix) for path in root.glob(f"*{suffix}")))
    if not topics:
        raise FileNotFoundError(f"no truth for {set_name}/{archive}")
    return topics


def truth(set_name, topic, isolation="read_uncommitted", archive="clean"):
    """What a consumer returned for a topic, in offset order per partition.

    Each is a dict of ``partition``, ``offset``, ``timestamp`` and ``timestamp_type`` (as shown by the consumer),
    ``leader_epoch`` (-1 if none), ``key``, ``value`` (bytes or None) and ``headers`` ([(name bytes, value)]).
    """
    root = _truth_root(set_name, archive)
    path = root / f"{topic}.{isolation}.jsonl"
    if isolation == "read_committed" and not path.exists():
        summary = json.loads((root / "_summary.json").read_text())[topic]
        if summary.get("read_committed", summary["read_uncommitted"]) != summary["read_uncommitted"]:
            raise FileNotFoundError(path.name)
        path = root / f"{topic}.read_uncommitted.jsonl"
    records = [_decode(json.loads(line)) for line in path.read_text().splitlines()]
    records.sort(key=lambda record: (record["partition"], record["offset"]))
    return records


def seed_batch():
    """The batch of seed-batch.hex, a v2 batch once printed in a public article."""
    lines = (GOLDEN / "seed-batch.hex").read_text().splitlines()
    return bytes.fromhex("".join(line for line in lines if not line.startswith("#")))


def _truth_root(set_name, archive):
    root = unpacked(set_name, "truth") / {"clean": "truth", "unclean": "truth_unclean"}[archive]
    if not root.is_dir():
        raise FileNotFoundError(f"no truth for {set_name}/{archive}")
    return root


def _bytes(text):
    return None if text is None else base64.b64decode(text)


def _decode(line):
    return {
        "partition": line["partition"],
        "offset": line["offset"],
        "timestamp": line["timestamp"],
        "timestamp_type": _TIMESTAMP_TYPES[line["timestampType"]],
        "leader_epoch": -1 if line["leaderEpoch"] is None else line["leaderEpoch"],
        "key": _bytes(line["key"]),
        "value": _bytes(line["value"]),
        "headers": [(name.encode(), _bytes(value)) for name, value in line["headers"]],
    }
