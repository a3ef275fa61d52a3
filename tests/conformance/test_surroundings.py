"""What preflight says of log dirs with faulty surroundings is what a real 4.3.1 does with them.

The partitions are intact. What is wrong are files next to them, other disks, settings, ids, voters, permissions.
"""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import builder
import pytest
from conformance.kafka import QUIET, Broker, Client, wait_until
from effort import spared

import kafkalog

pytestmark = [pytest.mark.broker, pytest.mark.slow]

META, MARKER, METADATA = "meta.properties", ".kafka_cleanshutdown", "__cluster_metadata-0"
POINTS, STARTS = "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"


class Place:
    """The two disks of a broker, and its settings; a case changes both."""

    def __init__(self, broker):
        self.broker = broker
        self.first, self.second = broker.log_dir, broker.folder / "second"

    def partition(self, name):
        return next(one / name for one in (self.first, self.second) if (one / name).is_dir())

    def other(self, name):
        return self.second if self.partition(name).parent == self.first else self.first

    def set(self, **properties):
        self.broker.properties.update({name.replace("_", "."): value for name, value in properties.items()})

    def edit(self, path, pattern, replacement):
        data, n = re.subn(pattern, replacement, path.read_bytes(), count=1)
        assert n, f"{pattern!r} is not in {path}"
        path.write_bytes(data)

    def unclean(self):
        for root in (self.first, self.second):
            (root / MARKER).unlink(missing_ok=True)

    def log(self, name, number=-1):
        return sorted(self.partition(name).glob("*.log"))[number]


class Case(NamedTuple):
    change: Callable[[Place], object]
    starts: bool = True
    """Whether the broker starts."""
    is_dynamic: bool = False
    """Whether the quorum's voters are in the metadata log."""


def file(root, name, data):
    return lambda place: (getattr(place, root) / name).write_bytes(data)


def meta(root, pattern, replacement):
    return lambda place: place.edit(getattr(place, root) / META, pattern, replacement)


def both(*changes):
    def change(place):
        for one in changes:
            one(place)

    return change


def no_second(place):
    shutil.rmtree(place.second)


def empty_second(place):
    shutil.rmtree(place.second)
    place.second.mkdir()


def clone_second(place):
    shutil.copy(place.first / META, place.second / META)


def folder_for_points(place):
    (place.second / POINTS).unlink()
    (place.second / POINTS).mkdir()


def no_metadata_log(place):
    shutil.rmtree(place.first / METADATA)


def empty_metadata_log(place):
    for path in (place.first / METADATA).glob("0*"):
        path.unlink()


def first_snapshot(data):
    """What `kafka-storage.sh format` writes for a dynamic quorum, next to a static one."""

    def change(place):
        whole = (place.first / "bootstrap.checkpoint").read_bytes()
        path = place.first / METADATA / f"{0:020d}-{0:010d}.checkpoint"
        path.write_bytes(data(whole))

    return change


def swapped_disks(place):
    place.set(log_dirs=f"{place.second},{place.first}")


def same_partition_twice(place):
    shutil.copytree(place.partition("orders-0"), place.other("orders-0") / "orders-0")


def partition_moved(place):
    shutil.move(place.partition("orders-0"), place.other("orders-0") / "orders-0")


def future(place):
    shutil.copytree(place.partition("orders-0"), place.other("orders-0") / f"orders-0.{'a' * 32}-future")


def lone_future(place):
    place.partition("orders-0").rename(place.other("orders-0") / f"orders-0.{'a' * 32}-future")


def emptied(place):
    for path in place.partition("orders-0").iterdir():
        if path.suffix in (".log", ".index", ".timeindex", ".snapshot"):
            path.unlink()


def no_partition(place):
    shutil.rmtree(place.partition("orders-0"))


def no_snapshots(place):
    for path in place.partition("orders-0").glob("*.snapshot"):
        path.unlink()


def no_index(number):
    def change(place):
        no_snapshots(place)
        place.log("orders-0", number).with_suffix(".index").unlink()

    return change


def swapped(suffixes):
    def change(place):
        no_snapshots(place)
        log = place.log("orders-0", 1)
        for suffix in suffixes:
            path = log.with_suffix(suffix)
            path.rename(f"{path}.swap")
        log.with_suffix(".index").unlink(missing_ok=True)

    return change


def overflow(*, is_clean):
    """Compacted segments whose offsets reach more than 2^31 beyond their base."""

    def change(place):
        far = 2**31 + 100
        for name, offsets in {"orders-0": [0, 5, far, far + 7, 2 * far], "other-0": [far, far + 9]}.items():
            emptied_partition = place.partition(name)
            for path in emptied_partition.iterdir():
                if path.suffix in (".log", ".index", ".timeindex", ".snapshot"):
                    path.unlink()
            data = b"".join(
                builder.batch_v2([builder.record_v2(0, 0, b"k%d" % offset, b"v")], base_offset=offset)
                for offset in offsets
            )
            (emptied_partition / f"{0:020d}.log").write_bytes(data)
        if not is_clean:
            place.unclean()

    return change


def points(place, **offsets):
    """Recovery points of what a case writes."""
    for root in (place.first, place.second):
        known = {name: at for name, at in offsets.items() if (root / f"{name}-0").is_dir()}
        lines = [f"{name} 0 {at}" for name, at in known.items()]
        (root / POINTS).write_text("\n".join(["0", str(len(lines)), *lines, ""]))


def mixed_producer(kinds):
    """A producer with batches in and outside of transactions."""

    def change(place):
        emptied(place)
        data, now = b"", time.time_ns() // 10**6
        for at, kind in enumerate(kinds):
            if kind == "marker":
                data += builder.control_batch(1, base_offset=at, producer_id=5, producer_epoch=0, timestamp=now)
            else:
                data += builder.batch_v2(
                    [builder.record_v2(0, 0, b"k", b"v")],
                    base_offset=at,
                    transactional=kind == "in",
                    producer_id=5,
                    producer_epoch=0,
                    base_timestamp=now,
                    base_sequence=sum(one != "marker" for one in kinds[:at]),
                )
        (place.partition("orders-0") / f"{0:020d}.log").write_bytes(data)
        points(place, orders=0, other=0)
        place.unclean()

    return change


def setting(place, *, kind, name, key, value):
    """Append a setting to the metadata log."""
    log = max((place.first / METADATA).glob("*.log"))
    batches = kafkalog.Segment(log).batches
    config = bytes([1, 4, 0, kind])  # frame version, ConfigRecord, version 0, resource type
    for text in (name, key, value):
        config += builder.unsigned_varint(len(text) + 1) + text.encode()
    with log.open("ab") as target:
        target.write(
            builder.batch_v2(
                [builder.record_v2(0, 0, None, config + b"\0")],
                base_offset=int(batches.last_offset[-1]) + 1,
                leader_epoch=int(batches.partition_leader_epoch[-1]),
                base_timestamp=int(batches.max_timestamp[-1]),
            )
        )


def tiered():
    """The local part of a partition whose older segments are in remote storage."""

    def change(place):
        setting(place, kind=2, name="orders", key="remote.storage.enable", value="true")
        partition = place.partition("orders-0")
        second = place.log("orders-0", 1)
        for path in partition.glob(f"{0:020d}.*"):
            path.unlink()
        path = partition.parent / STARTS
        path.write_text("0\n1\norders 0 0\n")
        assert second.exists()

    return change


def old_metadata(place):
    """Retention of the broker reaches topics, and not the metadata log."""
    place.set(log_retention_ms=1, log_retention_check_interval_ms=500, log_initial_task_delay_ms=500)


CASES = {
    "healthy": Case(lambda place: None),
    "crashed": Case(Place.unclean),
    # disks
    "second_absent": Case(no_second, starts=False),
    "second_empty": Case(empty_second, starts=False),
    "second_is_a_clone": Case(clone_second, starts=False),
    "second_of_another_cluster": Case(meta("second", rb"cluster.id=.*", b"cluster.id=kafkalogConformance02w"), False),
    "second_of_another_node": Case(meta("second", rb"node.id=1", b"node.id=2"), False),
    "disks_in_another_order": Case(swapped_disks, starts=False),
    "dirs_with_an_empty_entry": Case(lambda place: place.set(log_dirs=f"{place.first},{place.second},"), starts=False),
    "metadata_dir_named": Case(lambda place: place.set(metadata_log_dir=place.first)),
    "metadata_dir_is_the_second": Case(lambda place: place.set(metadata_log_dir=place.second), starts=False),
    "metadata_dir_apart": Case(lambda place: place.set(metadata_log_dir=place.broker.folder / "third"), False),
    "other_node_id": Case(lambda place: place.set(node_id=7), starts=False),
    "partition_twice": Case(same_partition_twice, starts=False),
    "partition_on_the_other_disk": Case(partition_moved),
    "future_on_the_other_disk": Case(future),
    "future_alone": Case(lone_future),
    "folder_next_to_partitions": Case(lambda place: (place.second / "lost+found").mkdir(), starts=False),
    "partition_missing": Case(no_partition),
    "partition_emptied": Case(emptied),
    # checkpoints
    **{
        f"{name}_{root}_{what}": Case(file(root, checkpoint, data), starts=root == "second" or what == "negative")
        for name, checkpoint in (("points", POINTS), ("starts", STARTS))
        for root in ("first", "second")
        for what, data in (("zeros", bytes(80)), ("words", b"0\n1\norders 0\n"), ("negative", b"0\n-1\n"))
    },
    "points_of_no_number": Case(file("second", POINTS, b"0\n1\norders 0 x\n")),
    "points_is_a_directory": Case(folder_for_points, starts=False),
    # the metadata log
    "metadata_missing": Case(no_metadata_log),
    "metadata_emptied": Case(empty_metadata_log),
    "first_snapshot_whole": Case(first_snapshot(lambda whole: whole)),
    "first_snapshot_cut": Case(first_snapshot(lambda whole: whole[:-10])),
    "first_snapshot_head": Case(first_snapshot(lambda whole: whole[:30])),
    "first_snapshot_empty": Case(first_snapshot(lambda whole: b"")),
    "first_snapshot_zeros": Case(first_snapshot(lambda whole: bytes(200)), starts=False),
    "bootstrap_missing": Case(lambda place: (place.first / "bootstrap.checkpoint").unlink()),
    # partitions with what surrounds them
    "overflow_clean": Case(overflow(is_clean=True)),
    "overflow_unclean": Case(overflow(is_clean=False)),
    "no_snapshots": Case(no_snapshots),
    "no_index_first": Case(no_index(0)),
    "no_index_last": Case(no_index(-1)),
    "swap_whole": Case(swapped((".log", ".index", ".timeindex"))),
    "swap_without_index": Case(swapped((".log", ".timeindex"))),
    "producer_out_then_in": Case(mixed_producer(["out", "in"])),
    "producer_in_then_out": Case(mixed_producer(["in", "out"]), starts=False),
    "producer_in_marker_out": Case(mixed_producer(["in", "marker", "out"])),
    # settings
    "retention": Case(old_metadata),
    "tiered_without_storage": Case(tiered()),
}


class Trial:
    """A broker whose disks are put back before each case."""

    def __init__(self, broker, client):
        self.broker, self.client, self.place = broker, client, Place(broker)
        self.properties = dict(broker.properties)
        self.kept = broker.folder / "kept"
        for root in ("first", "second"):
            shutil.copytree(getattr(self.place, root), self.kept / root)

    def forecast(self, case):
        """Put the disks back, change them; what preflight says."""
        self.broker.properties = dict(self.properties)
        for root in ("first", "second"):
            path = getattr(self.place, root)
            shutil.rmtree(path, ignore_errors=True)
            shutil.copytree(self.kept / root, path)
        case.change(self.place)
        self.broker._write_properties()
        return kafkalog.preflight(self.place.first, config=self.broker.folder / "server.properties")

    def run(self):
        """Whether the broker starts; offsets of its partitions, and its producers by partition, if it does."""
        if not self.broker.comes_up():
            if self.broker.is_running:
                self.broker.kill()
            return None
        if self.broker._said("Stopping serving logs in dir"):
            self.broker.kill()
            return None, None
        try:
            self.client.server = self.broker.address
            self.client.ask("ready")
            if self.broker.properties.get("log.retention.ms") == 1:
                wait_until(lambda: self.broker._said("Deleting segment"), "retention deletes")
            served = {
                f"{one['topic']}-{one['partition']}": one for one in self.client.ask("offsets", times={})["partitions"]
            }
            producers = {
                f"{one['topic']}-{one['partition']}": sorted(state[0] for state in one["producers"])
                for one in self.client.ask("producers")["partitions"]
            }
            return served, producers
        finally:
            self.broker.kill() if self.broker.is_running else None


def write_partition(directory, n_segments=3):
    """Segments of an idempotent producer, in place of an empty partition."""
    for path in directory.iterdir():
        if path.name not in ("partition.metadata",):
            path.unlink()
    config = kafkalog.LogConfig(segment_bytes=800)
    first = time.time_ns() // 10**6 - 3_600_000  # producers expire after a day
    with kafkalog.PartitionWriter(directory, config=config, batch_size=300, producer=(7, 0)) as writer:
        writer.append(
            {"value": [b"v" * 50] * 12 * n_segments, "timestamp": list(range(first, first + 12 * n_segments))}
        )


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    folder = tmp_path_factory.mktemp("surroundings")
    dirs = {"log.dirs": f"{folder / 'data'},{folder / 'second'}", "log.retention.ms": -1}
    with Client(folder) as client, Broker(folder, **{**QUIET, **dirs}) as broker:
        broker.start()
        client.server = broker.address
        client.ask("ready")
        client.ask("create", topics=[{"name": name, "partitions": 1, "configs": {}} for name in ("orders", "other")])
        broker.stop()
        place = Place(broker)
        for name in ("orders-0", "other-0"):
            write_partition(place.partition(name))
        for root in (place.first, place.second):
            names = [name for name in ("orders-0", "other-0") if (root / name).is_dir()]
            (root / POINTS).write_text("\n".join(["0", str(len(names)), *(f"{name[:-2]} 0 36" for name in names), ""]))
            (root / STARTS).write_text("0\n0\n")
        yield Trial(broker, client)


def differences(case_name, forecast, actual):
    """Where a forecast and a start differ."""
    served, producers = actual
    is_offline = any(one.effect == "log dir offline" for one in forecast.problems)
    if is_offline != (served is None):
        yield "a log dir is offline" if served is None else "all log dirs are online"
    if any(one.effect == "loses metadata" for one in forecast.problems) != (served == {}):
        yield f"{len(served or ())} partitions are known"
    if not served:
        return
    for row in forecast.partitions:
        name = Path(row.path).name
        if name.startswith("__") or row.stray is not None or name not in ("orders-0", "other-0"):
            continue
        left = [one for one in row.segments if one.action != "deleted"]
        gone = [one for one in left if one.expires]
        start = row.log_start_offset
        if gone:
            start = row.log_end_offset if len(gone) == len(left) else left[len(gone)].base_offset
        real = served[name]
        if (start, row.log_end_offset) != (real["earliest"], real["latest"]):
            yield f"{name}: {start}..{row.log_end_offset}, but {real['earliest']}..{real['latest']}"
        forgets = any("state of producers" in remark for remark in row.remarks)
        if forgets and producers[name]:
            yield f"{name}: producers {producers[name]} are not forgotten"
        # the batches of that case have no producers
        has_producers = real["latest"] > real["earliest"] and not case_name.startswith("overflow")
        if not forgets and not producers[name] and has_producers:
            yield f"{name}: producers are forgotten"


@pytest.mark.timeout(1800)
def test_forecasts_with_faulty_surroundings_come_true(trial):
    assert len(CASES) >= 40
    wrong = []
    for name, case in spared(CASES.items(), 5):
        try:
            forecast = trial.forecast(case)
        except kafkalog.KafkalogError as error:
            wrong.append(f"{name}: {error}")
            forecast = None
        actual = trial.run()
        if case.starts != (actual is not None):
            wrong.append(f"{name}: the broker {'does not start' if actual is None else 'starts'}")
        if forecast is None:
            continue
        if (forecast.verdict == "does not start") != (actual is None):
            wrong.append(f"{name}: {forecast.verdict} is said, {[one.detail for one in forecast.problems]}")
        elif actual is not None:
            wrong += [f"{name}: {one}" for one in differences(name, forecast, actual)]
    assert not wrong, "\n".join(wrong)
