"""Log dirs with random damage, loaded by Kafka's own classes in one JVM, and what kafkalog says of them before."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from unittest import mock

import damaged_partitions
import misplaced_files
import numpy as np
from conformance.kafka import jvm

import kafkalog
from kafkalog import format as kf
from kafkalog.storage import source as byte_source

_INTERVAL = 4096
_SECONDS = 60.0
_CASES_PER_JVM = 500
"""A load that fails leaves files open."""
_WRITTEN = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint")


class Loader:
    """A JVM that loads log dirs one after the other."""

    def __init__(self, folder):
        sources = Path(__file__).parent
        file = folder / "Loads.java"
        file.write_text((sources / "Loads.java").read_text() + (sources / "Opened43.java").read_text())
        self._command = jvm(file, memory="448m", said="off")
        self._n_left = 0
        self._process = None

    def load(self, root, *, clean):
        """What becomes of each partition: "loaded" with two offsets, "died" with an exception, or "raft"."""
        if not self._n_left:
            self._restart()
        self._n_left -= 1
        self._process.stdin.write(f"{root}\t{'clean' if clean else 'unclean'}\n")
        self._process.stdin.flush()
        found = {}
        # some damage sends Kafka round in circles: it splits a segment, and finds that it has to split it
        watch = threading.Timer(_SECONDS, self._process.kill)
        watch.start()
        try:
            for line in self._process.stdout:
                if line == "end\n":
                    return found
                name, *answer = line.rstrip("\n").split("\t")
                found[name] = answer
        finally:
            watch.cancel()
        self._n_left = 0
        return {**found, "": ["hung", ""]}

    def _restart(self):
        self.close()
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self._n_left = _CASES_PER_JVM

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.close()

    def close(self):
        """End the JVM."""
        if self._process is not None:
            with self._process as process, contextlib.suppress(OSError):
                process.stdin.close()


@dataclass
class Tally:
    """Counts of some trials: verdicts among them, and partitions that `recover` recovered; and what disagrees."""

    n: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lost_silently: list[str] = field(default_factory=list)
    """Partitions of which it was said that nothing happens, and Kafka lost records."""

    def __str__(self):
        return f"{dict(self.n)}; {len(self.wrong)} disagreements"


def trial(loader, seed, number, folder, tally):
    """Make a log dir, ask kafkalog, ask Kafka, compare."""
    rng = np.random.default_rng([seed, number, 1])
    root, ours = folder / "data", folder / "ours"
    for old in (root, ours):
        shutil.rmtree(old, ignore_errors=True)
    with damaged_partitions.without_right_checksums():
        case = damaged_partitions.damaged(seed, number, root)
    for _ in range(int(rng.integers(0, 3))):
        case.what.append(misplaced_files.misplace(rng, case.partition))
    is_clean = rng.random() < 0.33
    if rng.random() < 0.3:
        points = root / kf.RECOVERY_POINT_CHECKPOINT
        if points.is_file():
            points.unlink()
    names = [*case.partition.iterdir()]
    if any(path.is_dir() or _is_loop(path) for path in names) or sum(not path.exists() for path in names) > 1:
        return  # no crash makes these of a file, or two links to one place that is nowhere
    if any(path.name.startswith(f"{2**63 - 1:020d}.") and path.name.endswith(".swap") for path in names):
        return  # no cleaner writes a segment that has no offset left for a record
    what = f"{number} {'clean' if is_clean else 'unclean'} {case.what}"
    forecast = kafkalog.preflight(root, clean=is_clean, index_interval_bytes=_INTERVAL, threads=1)
    rows = {Path(row.path).name: row for row in forecast.partitions}
    recovered = {}
    if not is_clean:
        report = kafkalog.recover(
            root, output=ours, index_interval_bytes=_INTERVAL, threads=1, now=int(time.time() * 1000)
        )
        recovered = {Path(row.path).name: row for row in report.partitions}
    tally.n["log dirs"] += 1
    for name, answer in loader.load(root, clean=is_clean).items():
        if answer[0] == "raft":
            continue
        # a damaged length may make Kafka ask for more memory than this JVM has, so that it dies before all else
        if not name or answer[1] in ("OutOfMemoryError", "SnappyError"):
            tally.n["hung or short of memory"] += 1
            continue
        tally.n["partitions"] += 1
        row = rows.get(name)
        if row is None:
            if answer[0] != "died":
                tally.wrong.append(f"{what}: no forecast of {name}, and it was {answer}")
            continue
        tally.n[row.verdict] += 1
        problems = list(disagreements(row, root / name, answer))
        done = recovered.get(name)
        if done is not None and done.error is None and answer[0] == "loaded":
            if done.log_end_offset != int(answer[2]) and any(one.action != "kept" for one in done.segments):
                problems.append(f"recover: ends at {done.log_end_offset}")
            with_epochs = not any("leader" in one for one in case.what)
            problems += [f"recover: {one}" for one in differences(ours / name, root / name, with_epochs)]
            tally.n["recovered"] += 1
        elif done is not None and done.error is None and not _is_about_epochs(row):
            problems.append(f"recover: recovered what Kafka cannot load: {answer}")
        tally.wrong += [f"{what}: {name}: {one}" for one in problems]
        end = row.log_end_offset_before
        if answer[0] == "loaded" and row.verdict in ("starts", "recovers") and end is not None and int(answer[2]) < end:
            tally.lost_silently.append(f"{what}: {name}: {row.verdict} with {end}, but {answer}")


def _is_loop(path):
    return path.is_symlink() and path.readlink() == Path(path.name)


def disagreements(row, directory, answer):
    """What preflight said of a partition and Kafka did not do."""
    if (answer[0] == "died") != (row.verdict == "does not start"):
        yield f"{row.verdict} ({row.error}), but {answer}"
    if answer[0] != "died" and row.problem is None:
        yield from plan_differences(row, directory, (int(answer[1]), int(answer[2])))


def plan_differences(row, directory, offsets):
    """Log start and end offsets, and sizes of segments, that are not those that preflight planned."""
    if (row.log_start_offset, row.log_end_offset) != offsets:
        yield f"{(row.log_start_offset, row.log_end_offset)}, but {offsets}"
    planned = {one.name: one.n_bytes for one in row.segments if one.action != "deleted"}
    planned = planned or {kf.segment_file_name(row.log_start_offset): 0}
    logs = {path.name: path.stat().st_size for path in directory.glob("*.log") if path.is_file()}
    if logs != planned:
        yield f"{planned}, but {logs}"


def _is_about_epochs(row):
    """Whether a broker fails at the leader epochs alone: recovery writes them again."""
    return row.problem is not None and (row.problem.path or "").endswith(kf.LEADER_EPOCH_CHECKPOINT)


def differences(ours, theirs, with_epochs):
    """Files of a partition that are not equal."""
    names = [
        {path.name for path in one.iterdir() if path.name.endswith(_WRITTEN) and path.is_file()}
        for one in (ours, theirs)
    ]
    for name in sorted(names[0] ^ names[1]):
        # a broker makes an empty one for v0 and v1
        there = (theirs if name in names[1] else ours) / name
        if name == "leader-epoch-checkpoint" and not (with_epochs and there.read_bytes().split()[2:]):
            continue
        yield f"{name} {'is not' if name in names[0] else 'is'} with Kafka"
    for name in sorted(names[0] & names[1]):
        data, other = (ours / name).read_bytes(), (theirs / name).read_bytes()
        if name == "leader-epoch-checkpoint" and not (with_epochs and (data.split()[2:] or other.split()[2:])):
            continue
        if data != other and not _is_cut_to_entries(data, other, name):
            yield f"{name} has {len(data)} bytes, {len(other)} with Kafka"


def _is_cut_to_entries(data, other, name):
    """Whether only the end of an index is gone that is no whole entry, or the zeros of preallocation.

    Recovery leaves the former, and a shutdown cuts it off. Recovery trims the latter, which a broker keeps.
    """
    size = {".index": 8, ".timeindex": 12}.get(Path(name).suffix, 1)
    is_trimmed = size > 1 and other[: len(data)] == data and not any(other[len(data) :])
    return is_trimmed or data[: len(data) // size * size] == other


def run(seed, numbers, folder, tally=None):
    """Make the trials with these numbers, and add them to a tally; each is the same every time, but for the clock."""
    tally = tally or Tally()
    # no broker is about to finish what is half written
    with Loader(folder) as one, mock.patch.object(byte_source, "_RECENT_SECONDS", -1):
        for number in numbers:
            trial(one, seed, number, folder, tally)
    return tally
