"""What preflight foretells is what real brokers do: with every kind of damage, clean and unclean, 4.3.1 and 2.8.2."""

from __future__ import annotations

import random
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import golden_sets
import pytest
from conformance.jars import OLD_KAFKA_VERSION, class_path, java
from conformance.kafka import Broker, OldBroker
from conformance.test_rebuild import QUIET
from conformance.test_recovery import DAMAGES

import kafkalog
from kafkalog.repair.startup.forecast import PartitionForecast, Preflight
from kafkalog.repair.startup.preflight import BrokerVersion

pytestmark = [pytest.mark.broker, pytest.mark.slow]

Change = Callable[[Path, list[Path]], None]
"""Changes a partition directory, given its logs."""

LOADED = re.compile(r"Completed load of (?:Unified)?Log\(dir=(\S+), .*?logStartOffset=(\d+), logEndOffset=(\d+)\)")
START_OFFSETS: dict[str, int] = {"start_above_end": 100_000, "start_inside": 40}
POINTS: dict[str, int] = {"point_above_end": 10**9}


def missing(suffix: str, number: int = -1) -> Change:
    return lambda partition, logs: logs[number].with_suffix(suffix).unlink()


def content(suffix: str, data: bytes, number: int = -1) -> Change:
    return lambda partition, logs: _write(logs[number].with_suffix(suffix), data)


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def extra(name: str, data: bytes = b"") -> Change:
    return lambda partition, logs: _write(partition / name, data)


def no_snapshots(partition: Path, logs: list[Path]) -> None:
    for path in partition.glob("*.snapshot"):
        path.unlink()


def damaged_snapshots(partition: Path, logs: list[Path]) -> None:
    for path in partition.glob("*.snapshot"):
        path.write_bytes(path.read_bytes()[:-3] + b"abc")


def swapped(partition: Path, logs: list[Path]) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        path = logs[1].with_suffix(suffix)
        path.rename(f"{path}.swap")


def unfinished_split(partition: Path, logs: list[Path]) -> None:
    shutil.copy(logs[1], f"{logs[1]}.swap")
    (partition / f"{logs[1].name}.cleaned").write_bytes(b"")


def no_middle_segment(partition: Path, logs: list[Path]) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        logs[1].with_suffix(suffix).unlink()


def damaged_without_index(partition: Path, logs: list[Path]) -> None:
    data = bytearray(logs[1].read_bytes())
    data[len(data) // 2] ^= 4
    logs[1].write_bytes(data)
    logs[1].with_suffix(".index").unlink()


def far_offset(number: int) -> Change:
    """The last (-1) or the first batch of the last segment gets an offset that no index entry can hold."""

    def change(partition: Path, logs: list[Path]) -> None:
        segment = kafkalog.Segment(logs[-1])
        at = int(segment.batches.position[number])
        data = bytearray(logs[-1].read_bytes())
        data[at : at + 8] = (segment.base_offset + 2**31 + 10).to_bytes(8, "big")
        logs[-1].write_bytes(data)

    return change


def low_offset(partition: Path, logs: list[Path]) -> None:
    data = bytearray(logs[-1].read_bytes())
    data[:8] = bytes(8)
    logs[-1].write_bytes(data)


def high_epoch(partition: Path, logs: list[Path]) -> None:
    data = bytearray(logs[-1].read_bytes())
    data[12] ^= 0x40
    logs[-1].write_bytes(data)


def in_log(damage: Callable[..., None], number: int) -> Change:
    def change(partition: Path, logs: list[Path]) -> None:
        data = bytearray(logs[number].read_bytes())
        positions = kafkalog.Segment(logs[number]).batches.position.tolist()
        damage(data, [*positions, len(data)], random.Random(7))
        logs[number].write_bytes(data)

    return change


CASES: dict[str, Change] = {
    "healthy": lambda partition, logs: None,
    **{f"{damage.__name__}_last": in_log(damage, -1) for damage in DAMAGES},
    **{f"{damage.__name__}_middle": in_log(damage, 1) for damage in DAMAGES},
    "index_missing": missing(".index"),
    "old_index_missing": missing(".index", 0),
    "time_index_missing": missing(".timeindex", 0),
    "indexes_garbage": content(".index", b"\xff" * 24, 0),
    "last_index_garbage": content(".index", b"\x00\x00\x00\x09\x7f\xff\xff\x00"),
    "last_index_empty": content(".index", b""),
    "txn_index_below": content(".txnindex", bytes(34), 1),
    "txn_index_odd": content(".txnindex", b"12345", 1),
    "no_snapshots": no_snapshots,
    "damaged_snapshots": damaged_snapshots,
    "epochs_missing": lambda partition, logs: (partition / "leader-epoch-checkpoint").unlink(),
    "epochs_malformed": extra("leader-epoch-checkpoint", b"0\n5\n1 2\n"),
    "topic_id_missing": lambda partition, logs: (partition / "partition.metadata").unlink(),
    "topic_id_malformed": extra("partition.metadata", b"what"),
    "orphan_index": extra("00000000000000007777.index", bytes(8)),
    "left_deleted": extra("00000000000000000001.log.deleted", b"old"),
    "left_cleaned": extra("00000000000000000000.log.cleaned", b"half"),
    "swapped": swapped,
    "unfinished_split": unfinished_split,
    "no_middle_segment": no_middle_segment,
    "middle_emptied": lambda partition, logs: _write(logs[1], b""),
    "last_emptied": lambda partition, logs: _write(logs[-1], b""),
    "damaged_without_index": damaged_without_index,
    "far_at_the_end": far_offset(-1),
    "far_in_front": far_offset(0),
    "offset_below_the_segment": low_offset,
    "high_epoch": high_epoch,
    "stray_log_name": extra("server.log", b"text"),
    "plain_extra_file": extra("notes.txt", b"text"),
    "start_above_end": lambda partition, logs: None,
    "start_inside": lambda partition, logs: None,
    "point_above_end": lambda partition, logs: None,
}


def build(target: Path, mode: str, cases: dict[str, Change]) -> None:
    """A log dir with a partition a case, as after a clean shutdown, or a crash with or without recovery points."""
    sources = golden_sets.partitions("k44_extra")
    points, starts = {}, {}
    for name, change in cases.items():
        partition = target / f"{name}-0"
        # where batches of transactions change places, a broker may die of a transaction that has not begun
        source = "p-idem-now-0" if name.startswith(("swap_", "repeat", "leave_out")) else "p-txn-now-0"
        shutil.copytree(sources[source], partition)
        logs = sorted(partition.glob("*.log"))
        if name in START_OFFSETS:
            starts[name] = START_OFFSETS[name]
        if mode != "unclean":
            points[name] = POINTS.get(name, int(logs[-1].stem))
        change(partition, logs)
    for file, offsets in (("recovery-point-offset-checkpoint", points), ("log-start-offset-checkpoint", starts)):
        lines = [f"{topic} 0 {offset}" for topic, offset in offsets.items()]
        (target / file).write_text("\n".join(["0", str(len(lines)), *lines, ""]))
    marker = target / ".kafka_cleanshutdown"
    marker.unlink(missing_ok=True)
    if mode == "clean":
        marker.write_bytes(b"")


class Trial:
    """A broker that is started on one log dir after the other."""

    def __init__(self, broker: Broker, version: BrokerVersion) -> None:
        self.broker, self.version = broker, version
        self.bare = broker.folder / "bare"
        if not (broker.log_dir / "meta.properties").exists():
            broker.start()
            broker.stop()
        shutil.copytree(broker.log_dir, self.bare)
        for path in self.bare.glob("*-checkpoint"):
            path.unlink()

    def run(self, mode: str, cases: dict[str, Change]) -> tuple[Preflight, str | None]:
        """What is foretold, and the log of a broker that did not start."""
        shutil.rmtree(self.broker.log_dir)
        shutil.copytree(self.bare, self.broker.log_dir)
        build(self.broker.log_dir, mode, cases)
        result = kafkalog.preflight(self.broker.log_dir, broker=self.version, index_interval_bytes=4096)
        assert result.is_clean == (mode == "clean")
        try:
            self.broker.start()
        except RuntimeError:
            return result, self.broker.log.read_text()
        finally:
            if self.broker.is_running:
                self.broker.kill()
        return result, None


@pytest.fixture(scope="module", params=["4.3", "2.8"])
def trial(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trial]:
    program = java()
    folder = tmp_path_factory.mktemp("preflight")
    broker: Broker
    if request.param == "4.3":
        broker = Broker(program, class_path(program), folder, **QUIET)
    else:
        broker = OldBroker(program, class_path(program, OLD_KAFKA_VERSION), folder, **{"log.cleaner.enable": "false"})
    try:
        yield Trial(broker, request.param)
    finally:
        if broker.is_running:
            Broker.kill(broker)
        if isinstance(broker, OldBroker):
            broker.close()


@pytest.mark.parametrize("mode", ["unclean", "unclean with recovery points", "clean"])
def test_what_is_foretold_happens(trial: Trial, mode: str) -> None:
    assert len(CASES) >= 40
    foretold = {}
    root = trial.broker.folder / "all"
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(trial.bare, root)
    build(root, mode, CASES)
    for row in kafkalog.preflight(root, broker=trial.version, index_interval_bytes=4096).partitions:
        foretold[Path(row.path).name.removesuffix("-0")] = row
    deadly = [name for name in CASES if foretold[name].verdict == "does not start"]
    result, log = trial.run(mode, {name: change for name, change in CASES.items() if name not in deadly})
    assert log is None, log[-6000:]
    loaded = {
        Path(path).name.partition(".")[0]: (int(start), int(end))
        for path, start, end in LOADED.findall(trial.broker.log.read_text())
    }
    wrong = [
        problem
        for row in result.partitions
        if not Path(row.path).name.startswith("__")
        for problem in disagreements(row, trial.broker.log_dir, loaded, is_stray_known=trial.version != "2.8")
    ]
    assert wrong == []
    for name in deadly:
        result, log = trial.run(mode, {name: CASES[name]})
        (row,) = [one for one in result.partitions if Path(one.path).name == f"{name}-0"]
        first = row.exceptions[0]
        expected = "Shutdown broker because all log dirs" if first.is_offline else first.name
        assert log is not None, f"{name}: foretold {expected}, and the broker started"
        assert expected in log, f"{name}: foretold {expected}\n{log[-3000:]}"


def disagreements(
    row: PartitionForecast, root: Path, loaded: dict[str, tuple[int, int]], *, is_stray_known: bool
) -> Iterator[str]:
    name = Path(row.path).name
    there = [path for path in root.iterdir() if path.name == name or path.name.startswith(f"{name}.")]
    if row.stray is not None and is_stray_known and not any(path.name.endswith("-stray") for path in there):
        yield f"{name}: not stray, but foretold: {row.stray}"
    directory = next((path for path in there if path.name.endswith("-stray")), Path(row.path))
    logs = {path.name: path.stat().st_size for path in directory.glob("*.log")}
    foretold = {one.name: one.n_bytes for one in row.segments if one.action not in ("deleted", "split")}
    if row.log_end_offset == row.log_start_offset and not foretold:
        foretold = {f"{row.log_start_offset:020d}.log": 0}
    if any(one.action == "split" for one in row.segments):
        foretold = logs
    if logs != foretold:
        yield f"{name}: logs {logs}, foretold {foretold}"
    if name not in loaded:
        yield f"{name}: not loaded"
    elif loaded[name] != (row.log_start_offset, row.log_end_offset):
        yield f"{name}: offsets {loaded[name]}, foretold {(row.log_start_offset, row.log_end_offset)}"
    for removed in row.removed:
        # recovery may write a snapshot or a transaction index of that name anew
        if (directory / removed).exists() and not removed.endswith((".snapshot", ".txnindex")):
            yield f"{name}: {removed} is there"
