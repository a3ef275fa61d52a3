"""Planted faults of remote storage are named, healthy storage has none, and a restored log dir has all records."""

import base64
import json
import os
import shutil

import golden_sets
import numpy as np
import pytest
from conftest import GOLDEN
from effort import thinned, trials
from tiered_sets import DELETED, DELETING, STARTED, TieredSet, key_pair

import kafkalog
from kafkalog.cli import main
from kafkalog.state.checkpoints import encode_offset_checkpoint

LOG_DIR = GOLDEN / "log_dir"
PARTITION, OTHER = "p-txn-0", "p-headers-0"
KEY = key_pair()
KEYS = {"key1": KEY.export_key(pkcs=8).decode()}
KINDS = {"apache": None, "aiven": {"compressed": True, "key": ("key1", KEY), "chunk": 3000}}


@pytest.fixture(params=KINDS)
def one(request, tmp_path):
    """A log dir with segments in remote storage, whose metadata topic is not written yet."""
    shutil.copytree(LOG_DIR, tmp_path / "data")
    found = TieredSet(tmp_path / "data", tmp_path / "remote", KINDS[request.param])
    found.move(PARTITION)
    found.move(OTHER)
    return found


def checked(one, **options):
    """Write the metadata topic, and check."""
    one.finish()
    return kafkalog.verify_tiered(one.remote, one.log_dir, keys=KEYS, **options)


def test_healthy_storage_has_no_faults(one):
    report = checked(one, deep=True)
    assert not report.faults
    assert report.ok
    assert (report.n_partitions, report.n_copies) == (2, 6)
    assert report.n_bytes == sum(path.stat().st_size for path in one.remote.rglob("*") if path.is_file())
    # without the log dir, too
    assert kafkalog.verify_tiered(one.remote, keys=KEYS).ok


def _objects(one, number, partition=PARTITION):
    """The objects of a copy, by suffix."""
    main = one.copies[partition][number][1]
    return {path.name[len(main.name) :]: path for path in main.parent.glob(f"{main.name}.*")}


def _flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 0x10
    path.write_bytes(data)


def _orphan(one):
    one.copy(OTHER, 294, 587, state=None)


def _damaged(one):
    path = _objects(one, 0)[".log"]
    _flip(path, path.stat().st_size // 2)


def _leftover(one, partition=OTHER):
    of = base64.urlsafe_b64encode(b"0123456789abcdef").decode().rstrip("=")
    place = one.copies[partition][0][1].parent
    topic = place if one.aiven is None else place.parent
    shutil.copytree(topic, topic.with_name(f"{topic.name[:-22]}{of}"))


# --- planted faults, chosen by a seed --------------------------------------------------------------------------------

SOURCE = golden_sets.unpacked("k44")
TOPICS = ("p-idxroll", "p-ooo", "p-retention", "p-segms", "p-txn")
LAYOUTS = {
    "apache": None,
    "plain": {"prefix": "backup/", "chunk": 4096},
    "zstd": {"compressed": True, "chunk": 3000},
    "aes": {"key": ("key1", KEY), "chunk": 5000, "prefix": "x/y_"},
    "zstd-aes": {"compressed": True, "key": ("key1", KEY), "chunk": 2**20},
}
COSTS = {"orphan", "unfinished", "deleting", "replaced", "below_start", "leftover", "unknown_file"}
SEED = int(os.environ.get("KAFKALOG_FUZZ_SEED", "20261127"))
LOST = {"checksum", "unreadable"}


@pytest.fixture(scope="module")
def bases(tmp_path_factory):
    """A log dir of a whole cluster with segments in remote storage, in each layout."""
    found = {}
    for name, aiven in LAYOUTS.items():
        place = tmp_path_factory.mktemp(name)
        for one in ("__cluster_metadata-0", *(f"{topic}-0" for topic in TOPICS)):
            shutil.copytree(SOURCE / one, place / "data" / one)
        for one in ("meta.properties", "log-start-offset-checkpoint"):
            shutil.copy(SOURCE / one, place / "data")
        found[name] = TieredSet(place / "data", place / "remote", aiven)
        for topic in TOPICS:
            found[name].move(f"{topic}-0")
    return found


class Plant:
    """A copy to damage, of some segment; each method plants one fault and returns the kinds that may name it."""

    def __init__(self, one, rng):
        self.one, self.rng = one, rng
        self.partition = f"{rng.choice(TOPICS)}-0"
        self.number = int(rng.integers(len(one.copies[self.partition])))
        self.identity = one.copies[self.partition][self.number][0]
        self.objects = _objects(one, self.number, self.partition)
        bases = [int(path.name[:20]) for _, path in one.copies[self.partition]]
        self.local = int(min((one.log_dir / self.partition).glob("*.log")).stem)
        self.bounds = bases[self.number], [*bases, self.local][self.number + 1] - 1

    def _again(self, state):
        """Another copy of the segment that still is local."""
        end = kafkalog.open(self.one.log_dir / self.partition).log_end_offset - 1
        self.identity = self.one.copy(self.partition, self.local, end, state=state)

    def orphan(self):
        self._again(None if self.rng.random() < 0.5 else DELETED)
        return {"orphan"}

    def unfinished(self):
        self._again(STARTED)
        return {"unfinished"}

    def deleting(self):
        self._again(DELETING)
        return {"deleting"}

    def replaced(self):
        place = self.one.log_dir / self.partition
        files = [*(SOURCE / self.partition).glob(f"{self.bounds[0]:020d}.*[gx]")]
        for path in files:
            shutil.copy(path, place)
        self.one.copy(self.partition, *self.bounds)
        for path in files:
            (place / path.name).unlink()
        return {"replaced"}

    def below_start(self):
        self.number = 0
        self.identity = self.one.copies[self.partition][0][0]
        start = int(self.one.copies[self.partition][1][1].name[:20])
        key = kafkalog.open(self.one.log_dir / self.partition).topic_partition
        path = self.one.log_dir / "log-start-offset-checkpoint"
        path.write_bytes(encode_offset_checkpoint({key: start}))
        return {"below_start"}

    def torn(self):
        needed = [suffix for suffix in self.objects if suffix != ".txnindex"]
        self.objects[str(self.rng.choice(needed))].unlink()
        return {"torn"}

    def hole(self):
        for path in self.objects.values():
            path.unlink()
        self.identity = ""  # of a segment without objects, offsets are reported
        return {"hole"}

    def size(self):
        at = next(
            n
            for n, event in enumerate(self.one.events)
            if event[1] == 0 and base64.urlsafe_b64decode(f"{self.identity}==") in event
        )
        event = self.one.events[at]
        size = int.from_bytes(event[-7:-3], "big") + int(self.rng.integers(1, 1000))
        self.one.events[at] = event[:-7] + size.to_bytes(4, "big") + event[-3:]
        return {"size"}

    def cut(self):
        path = self.objects[".log"]
        data = path.read_bytes()
        path.write_bytes(data[: -int(self.rng.integers(1, len(data)))])
        return {"size", *LOST}

    def longer(self):
        path = self.objects[".log"]
        path.write_bytes(path.read_bytes() + self.rng.bytes(int(self.rng.integers(1, 500))))
        return {"size", *LOST}

    def damaged(self):
        path = self.objects[".log"]
        _flip(path, int(self.rng.integers(path.stat().st_size)))
        return LOST

    def swapped(self):
        path = self.objects[".log"]
        data = path.read_bytes()
        size = int(self.rng.integers(1, len(data) // 2))
        path.write_bytes(data[size : 2 * size] + data[:size] + data[2 * size :])
        return LOST

    def index(self):
        suffix = ".indexes"
        if self.one.aiven is None:
            suffix = str(self.rng.choice([one for one in self.objects if one != ".log"]))
        path = self.objects[suffix]
        if path.stat().st_size == 0:
            return set()
        _flip(path, int(self.rng.integers(path.stat().st_size)))
        return {"index", "unreadable"}

    def manifest(self):
        if self.one.aiven is None:
            return set()
        path = self.objects[".rsm-manifest"]
        path.write_bytes(path.read_bytes()[: -int(self.rng.integers(1, 100))])
        return {"unreadable"}

    def key(self):
        if self.one.aiven is None or "key" not in self.one.aiven:
            return set()
        path = self.objects[".rsm-manifest"]
        path.write_bytes(path.read_bytes().replace(b"key1:", b"key2:"))
        return {"unreadable"}

    def leftover(self):
        _leftover(self.one, self.partition)
        self.identity = ""
        return {"leftover"}

    def unknown_file(self):
        self.objects[".log"].with_name(f"{self.number}.tmp").write_bytes(b"x")
        self.identity = self.partition = ""
        return {"unknown_file"}


PLANTS = [name for name in vars(Plant) if not name.startswith("_")]


@pytest.mark.parametrize("layout", thinned(LAYOUTS, 4))
def test_healthy_storage_of_a_cluster_has_no_faults(layout, bases, tmp_path):
    assert not checked(bases[layout].clone(tmp_path), deep=True).faults


@pytest.mark.parametrize("plant", thinned(PLANTS, 6))
def test_a_planted_fault_is_named(plant, bases, tmp_path):
    rng = np.random.default_rng([SEED, PLANTS.index(plant)])
    n = 0
    while n < trials(1, 4):
        layout = str(rng.choice([*LAYOUTS]))
        planted = Plant(bases[layout].clone(tmp_path / "trial"), rng)
        kinds = getattr(planted, plant)()
        if kinds:
            n += 1
            report = checked(planted.one)
            shown = f"{layout} {planted.partition} {planted.identity}: {[*map(str, report.faults)]}"
            named = {fault.kind for fault in report.faults}
            assert named & kinds, shown
            # indexes do not fit a log that is damaged, and whole batches of another size are those of another segment
            also = ({"index"} if kinds & LOST else set()) | ({"other_segment"} if kinds & {"size"} else set())
            assert named <= kinds | also, shown
            assert report.ok is (kinds <= COSTS), shown
            assert (report.wasted_bytes > 0) is (kinds <= COSTS - {"unknown_file"}), shown
            if planted.identity:
                assert {fault.segment_id for fault in report.faults} == {planted.identity}, shown
            if planted.partition:
                assert {f"{fault.topic}-{fault.partition}" for fault in report.faults} == {planted.partition}, shown
        shutil.rmtree(tmp_path / "trial")


def test_without_a_key_nothing_can_be_read(one):
    one.finish()
    report = kafkalog.verify_tiered(one.remote, one.log_dir)
    assert report.ok is (one.aiven is None)
    assert {fault.kind for fault in report.faults} <= {"unreadable"}


def test_objects_of_other_brokers_are_skipped(one):
    _leftover(one)
    report = checked(one)
    assert not report.faults
    assert report.n_skipped == 1  # the log dir does not know all topics of the cluster


def test_a_restored_log_dir_has_all_records(one, tmp_path):
    one.finish()
    kafkalog.restore_tiered(one.remote, tmp_path / "whole", one.log_dir, topics=["p-*"], keys=KEYS)
    golden = kafkalog.open(LOG_DIR)
    assert kafkalog.read_table(tmp_path / "whole", topics="p-*") == golden.to_table(topics="p-*")
    assert kafkalog.verify(tmp_path / "whole").ok
    kafkalog.restore_tiered(one.remote, tmp_path / "alone", keys=KEYS)
    for name in (PARTITION, OTHER):
        end = golden[name].segments[-1].base_offset
        restored = kafkalog.open(tmp_path / "alone")[name]
        assert restored.to_table() == golden[name].to_table(end_offset=end)
        assert restored.topic_id == golden[name].topic_id
        for segment in golden[name].segments[:-1]:
            assert (restored.path / segment.path.name).read_bytes() == segment.path.read_bytes()
    assert kafkalog.verify(tmp_path / "alone").ok


def test_nothing_is_restored_from_what_cannot_be_read(one, tmp_path):
    one.finish()
    _objects(one, 0)[".log"].write_bytes(b"")
    if one.aiven is not None:
        with pytest.raises(kafkalog.KafkalogError):
            kafkalog.restore_tiered(one.remote, tmp_path / "new", one.log_dir, keys=KEYS)
        assert not (tmp_path / "new").exists()
    else:
        found = kafkalog.restore_tiered(one.remote, tmp_path / "new", one.log_dir)
        assert any(finding.damage for finding in found)


def test_the_command_line(one, tmp_path, capsys):
    _orphan(one)
    one.finish()
    (tmp_path / "key.pem").write_text(KEYS["key1"])
    options = ["--log-dir", str(one.log_dir), "--key", f"key1={tmp_path / 'key.pem'}"]
    assert main(["tiered", "verify", str(one.remote), *options, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["ok"]
    assert [fault["kind"] for fault in report["faults"]] == ["orphan"]
    assert report["wasted_bytes"] > 0
    assert main(["tiered", "restore", str(one.remote), "-q", "-o", str(tmp_path / "new"), *options, "-t", "p-txn"]) == 0
    assert kafkalog.open(tmp_path / "new").topics == ["p-txn"]
    _damaged(one)
    assert main(["tiered", "verify", str(one.remote), *options]) == 1
    assert "faults that lose records" in capsys.readouterr().out
