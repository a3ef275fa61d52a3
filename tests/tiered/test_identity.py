"""Objects that were exchanged in the store are intact, and never returned as records of what they are named after."""

import itertools
import json
import shutil
import uuid
import warnings
from pathlib import Path

import builder
import numpy as np
import pytest
from conftest import GOLDEN
from effort import THOROUGH, thinned, trials
from tiered_sets import TieredSet, key_pair

import kafkalog
from kafkalog.errors import CorruptionWarning, ReadError, Reason
from kafkalog.tiered.identity import SegmentIdentity

LOG_DIR = GOLDEN / "log_dir"
MOVED = ("p-txn-0", "p-multi-0", "p-delrec-0", "p-headers-0")
KEY = key_pair()
KINDS = {
    "apache": None,
    "plain": {"prefix": "backup/", "chunk": 4096},
    "zstd-aes": {"compressed": True, "key": ("key1", KEY), "chunk": 5000},
}
KEYS = {"key1": KEY.export_key(pkcs=8).decode()}
COLUMNS = ["offset", "timestamp", "key", "value"]


@pytest.fixture(scope="module", params=KINDS)
def base(request, tmp_path_factory):
    place = tmp_path_factory.mktemp(request.param)
    shutil.copytree(LOG_DIR, place / "data")
    stored = TieredSet(place / "data", place / "remote", KINDS[request.param])
    for partition in MOVED:
        stored.move(partition)
    return stored


def _objects(stored, partition, number, suffixes):
    main = stored.copies[partition][number][1]
    there = {path.name[len(main.name) :]: path for path in main.parent.glob(f"{main.name}.*")}
    return {suffix: path for suffix, path in there.items() if suffixes is None or suffix in suffixes}


def exchange(first, second):
    """Exchange the content of objects of the same suffixes."""
    for suffix in first.keys() & second.keys():
        one, other = first[suffix].read_bytes(), second[suffix].read_bytes()
        first[suffix].write_bytes(other)
        second[suffix].write_bytes(one)


def check(stored, log_dir, changed):
    """Returned records are golden ones; `changed` has the ids of copies that must be named."""
    report = kafkalog.verify_tiered(stored.remote, log_dir, keys=KEYS)
    shown = [*map(str, report.faults)]
    assert not report.ok
    named = {fault.segment_id for fault in report.faults if fault.damage}
    assert changed <= named, shown
    opened = kafkalog.open(kafkalog.tiered_location(log_dir, stored.remote, keys=KEYS))
    for partition in {partition for partition in MOVED if changed & {one for one, _ in stored.copies[partition]}}:
        golden = kafkalog.open(LOG_DIR)[partition].to_table(columns=COLUMNS).to_pylist()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", CorruptionWarning)
            table = opened[partition].to_table(columns=COLUMNS, on_corruption="skip").to_pylist()
        expected = {row["offset"]: row for row in golden}
        assert all(row == expected.get(row["offset"]) for row in table), partition
        assert len(table) < len(golden)
        with pytest.raises(kafkalog.KafkalogError):
            opened[partition].to_table()
    return report


@pytest.mark.parametrize("has_metadata", [True, False])
def test_exchanged_objects_are_never_returned_as_records(base, has_metadata, tmp_path):
    rng = np.random.default_rng(20261128)
    copies = [(partition, number) for partition in MOVED for number in range(len(base.copies[partition]))]
    pairs = [*itertools.combinations(copies, 2)]
    for trial in range(trials(1, 6)):
        stored = base.clone(tmp_path / str(trial))
        if has_metadata:
            stored.finish()
        (first, second) = (copies[at] for at in rng.choice(len(copies), 2, replace=False))
        if trial == 0:  # two of the same partition
            first, second = next(pair for pair in pairs if pair[0][0] == pair[1][0])
        # without metadata, nothing but its names tells of what segment a whole set of LocalTieredStorage is
        suffixes = (".log",) if trial % 2 or (base.aiven is None and not has_metadata) else None
        exchange(_objects(stored, *first, suffixes), _objects(stored, *second, suffixes))
        changed = {stored.copies[partition][number][0] for partition, number in (first, second)}
        report = check(stored, stored.log_dir, changed)
        if suffixes is None or base.aiven is None:
            assert {fault.kind for fault in report.faults} >= {"other_segment"}, [*map(str, report.faults)]
        shutil.rmtree(tmp_path / str(trial))


@pytest.mark.parametrize("change", thinned([1, 1000], 2))
def test_a_manifest_of_another_offset_than_its_name_is_of_another_segment(base, change, tmp_path):
    if base.aiven is None:
        pytest.skip("no manifests")
    stored = base.clone(tmp_path)
    stored.finish()
    partition, number = MOVED[1], 0
    manifest = _objects(stored, partition, number, (".rsm-manifest",))[".rsm-manifest"]
    content = json.loads(manifest.read_bytes())
    content["remoteLogSegmentMetadata"]["startOffset"] += change
    manifest.write_text(json.dumps(content))
    report = check(stored, stored.log_dir, {stored.copies[partition][number][0]})
    assert "other_segment" in {fault.kind for fault in report.faults}
    opened = kafkalog.open(stored.log_dir, tiered=stored.remote, tiered_keys=KEYS)
    offset = content["remoteLogSegmentMetadata"]["startOffset"]
    with pytest.raises(ReadError, match=f"object of another segment: .* at offset {offset} ") as error:
        opened[partition].to_table()
    assert error.value.path == manifest.as_uri()


def test_an_exchanged_manifest_is_named(base, tmp_path):
    if base.aiven is None:
        pytest.skip("no manifests")
    stored = base.clone(tmp_path)
    stored.finish()
    suffixes = (".rsm-manifest",)
    first, second = (_objects(stored, partition, 0, suffixes) for partition in MOVED[:2])
    exchange(first, second)
    check(stored, stored.log_dir, {stored.copies[partition][0][0] for partition in MOVED[:2]})
    opened = kafkalog.open(stored.log_dir, tiered=stored.remote, tiered_keys=KEYS)
    with pytest.raises(ReadError, match=r"object of another segment: .* of topic p-multi") as error:
        opened[MOVED[0]].to_table()
    assert error.value.reason is Reason.OTHER_SEGMENT
    assert error.value.path == first[".rsm-manifest"].as_uri()


def test_only_the_timestamps_tell_segments_of_one_size_apart(tmp_path):
    config = kafkalog.LogConfig(segment_bytes=9000)
    for kind in KINDS if THOROUGH else [*KINDS][:2]:
        (tmp_path / kind / "data").mkdir(parents=True)
        for topic, time in (("a", 1_700_000_000_000), ("b", 1_700_000_500_000)):
            with kafkalog.PartitionWriter(
                tmp_path / kind / "data" / f"{topic}-0", config=config, topic_id=uuid.UUID(int=ord(topic))
            ) as writer:
                for number in range(60):
                    values = [bytes([number]) * 300] * 2
                    writer.append({"value": values, "timestamp": [time + number] * 2})
        stored = TieredSet(tmp_path / kind / "data", tmp_path / kind / "remote", KINDS[kind])
        for topic in "ab":
            stored.move(f"{topic}-0")
        logs = [Path(f"{stored.copies[f'{topic}-0'][0][1]}.log") for topic in "ab"]
        for has_metadata in (False, True):
            if has_metadata:
                stored.finish()
            assert kafkalog.verify_tiered(stored.remote, stored.log_dir, keys=KEYS).ok
            whole = kafkalog.open(stored.log_dir, tiered=stored.remote, tiered_keys=KEYS)["a-0"].to_table()
            assert whole.num_rows == 120
            exchange({".log": logs[0]}, {".log": logs[1]})
            with pytest.raises(kafkalog.KafkalogError) as error:
                kafkalog.open(stored.log_dir, tiered=stored.remote, tiered_keys=KEYS)["a-0"].to_table()
            assert error.value.path == logs[0].as_uri()
            faults = kafkalog.verify_tiered(stored.remote, stored.log_dir, keys=KEYS).faults
            assert {fault.segment_id for fault in faults} == {stored.copies[f"{topic}-0"][0][0] for topic in "ab"}
            exchange({".log": logs[0]}, {".log": logs[1]})


def write_plain(remote, n_segments=3):
    """A plain layout of small segments, whose offsets only their names have."""
    for base in range(0, 3 * n_segments, 3):
        records = [builder.record_v2(i, 0, b"k", b"%d" % (base + i)) for i in range(3)]
        path = remote / "t-0" / f"{base:020d}.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(builder.batch_v2(records, base_offset=base))
    return sorted((remote / "t-0").glob("*.log"))


@pytest.mark.parametrize("other", [1, 2])
def test_offsets_above_the_name_of_an_object_are_those_of_another_segment(other, tmp_path):
    logs = write_plain(tmp_path / "remote")
    assert kafkalog.verify_tiered(tmp_path / "remote").ok
    exchange({".log": logs[0]}, {".log": logs[other]})
    faults = kafkalog.verify_tiered(tmp_path / "remote").faults
    assert [fault.kind for fault in faults if fault.damage].count("other_segment") == 2, [*map(str, faults)]


def test_a_healthy_copy_is_not_read_whole(base, monkeypatch):
    def read_whole(self):
        raise AssertionError("a few batches settle it")

    monkeypatch.setattr(SegmentIdentity, "_read", read_whole)
    assert kafkalog.verify_tiered(base.remote, base.log_dir, keys=KEYS).ok
