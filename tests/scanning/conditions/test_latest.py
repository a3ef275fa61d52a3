"""`latest="key"`: a topic read as a table equals a dict that was fed its records in order.

The last run with twenty million keys (`soak`): 19,000,000 records at a peak of 454 MiB, 27 s of CPU time.
"""

import gc
import os
import pickle
import random
import tempfile

import builder
import golden_sets
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from effort import thinned

import kafkalog
from kafkalog import format as kf
from kafkalog.scanning.conditions.latest import LatestOffsets
from kafkalog.storage.file_locks import lock

TOPICS = [
    ("k44", "p-compact"),
    ("k44", "p-compact-txn"),
    ("k44", "p-tombstone"),
    ("k44", "p-txn"),
    ("k44", "p-multi"),
    ("k28", "p-v0-compact-gzip"),
    ("k28", "p-v0v1v2-mixed"),
    ("k28", "p-v1-nulls"),
    ("k28", "p-v2-tombstone"),
]


def state(path, **options):
    """What a consumer has in a dict for each partition after reading all records."""
    tables = {}
    for row in kafkalog.read_table(path, **options).to_pylist():
        if row["key"] is not None:
            held = tables.setdefault((row["topic"], row["partition"]), {})
            held.pop(row["key"], None)
            if row["value"] is not None:
                held[row["key"]] = row
    rows = [row for held in tables.values() for row in held.values()]
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


@pytest.mark.parametrize(
    "options", thinned([{}, {"isolation_level": "read_committed"}, {"start_offset": 30, "end_offset": 90}], 3)
)
@pytest.mark.parametrize(("broker", "topic"), TOPICS)
def test_the_latest_records_are_those_of_a_dict(broker, topic, options):
    root = golden_sets.unpacked(broker)
    expected = state(root, topics=topic, **options)
    scan = kafkalog.scan(root, topics=topic, latest="key", **options)
    assert scan.to_table().to_pylist() == expected
    assert scan.count_rows() == len(expected)
    parts = pickle.loads(pickle.dumps(scan.plan(target_bytes=2**12)))
    assert [row for part in parts for row in part.to_table().to_pylist()] == expected
    assert expected or options


def test_conditions_choose_among_the_latest_records():
    root = golden_sets.unpacked("k44")
    expected = state(root, topics=["p-multi", "p-tombstone"])
    late = [row for row in expected if row["offset"] > 60]
    scan = kafkalog.scan(root, topics=["p-multi", "p-tombstone"], latest="key")
    kinds = [[("offset", ">", 60)], pc.field("offset") > 60, (pc.field("offset") + 1) > 61]
    for filters in kinds:
        options = {"topics": ["p-multi", "p-tombstone"], "filters": filters, "latest": "key"}
        assert kafkalog.read_table(root, **options).to_pylist() == late
        assert kafkalog.read_table(root, limit=3, **options).to_pylist() == late[:3]
        assert sum(part.count_rows() for part in kafkalog.scan(root, **options).plan(target_bytes=2**12)) == len(late)
    assert late
    assert len(late) < len(expected)
    key = late[0]["key"]
    some = [row for row in expected if row["key"] == key or row["partition"] == 1]
    assert (
        kafkalog.read_table(
            root,
            topics=["p-multi", "p-tombstone"],
            filters=[[("key", "==", key)], [("partition", "==", 1)]],
            latest="key",
        ).to_pylist()
        == some
    )
    assert scan.to_dataset().to_table(filter=pc.field("offset") > 60).to_pylist() == late
    assert scan.to_dataset().count_rows(filter=pc.field("offset") > 60) == len(late)
    assert sum(fragment.count_rows() for fragment in scan.to_dataset().get_fragments()) == len(expected)
    assert scan.head(4).to_pylist() == expected[:4]
    last = [row["offset"] for row in expected if (row["topic"], row["partition"]) == ("p-multi", 0)][-2:]
    tail = kafkalog.scan(root / "p-multi-0", latest="key").tail(2)
    assert tail["offset"].to_pylist() == last
    assert "latest=key" in str(scan.explain())
    records = kafkalog.read_numpy(root, topics=["p-multi", "p-tombstone"], latest="key", columns=["key"])
    assert list(records.key) == [row["key"] for row in expected]


def test_an_option_that_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="latest"):
        kafkalog.scan(golden_sets.LOG_DIR, latest="value")
    with pytest.raises(ValueError, match="include_control"):
        kafkalog.scan(golden_sets.LOG_DIR, latest="key", include_control=True)


def test_damage_is_reported_once(tmp_path):
    path = tmp_path / "t-0"
    path.mkdir()
    batches = [
        builder.batch_v2([builder.record_v2(0, 0, b"k%d" % (n % 3), b"%d" % n)], base_offset=n) for n in range(9)
    ]
    data = bytearray(b"".join(batches))
    data[-1] ^= 1
    (path / kf.segment_file_name(0)).write_bytes(data)
    with pytest.raises(kafkalog.CorruptionError):
        kafkalog.read_table(path, latest="key")
    scan = kafkalog.scan(path, latest="key", on_corruption="skip")
    with pytest.warns(kafkalog.CorruptionWarning) as warned:
        assert scan.to_table()["offset"].to_pylist() == [5, 6, 7]
    assert len(warned) == 1
    assert scan.n_damage == 1


@pytest.mark.parametrize("memory_bytes", thinned([2**12, 2**9, 2**20, 2**14], 2))
def test_keys_that_do_not_fit_in_memory_are_sorted_out_in_files(memory_bytes):
    rng = random.Random(memory_bytes)
    keys = [b"", b"\0", *(rng.randbytes(rng.randrange(1, 30)) for _ in range(300))]
    keys += [b"same prefix of all keys " + b"%d" % n for n in range(300)]
    keys.append(b"a key larger than the memory" * 50)
    latest, expected = LatestOffsets(memory_bytes), {}
    at = 0
    for _ in range(40):
        some = [rng.choice(keys) for _ in range(100)]
        offsets = [at := at + rng.choice([1, 1, 7]) for _ in some]
        expected.update(zip(some, offsets, strict=True))
        latest.add(pa.array(some, pa.binary()), pa.array(offsets, pa.int64()))
    latest.finish()
    assert (len(latest.runs) > 1) == (memory_bytes < 2**20)
    everything = np.arange(at + 10)
    assert latest.rows(everything).tolist() == sorted(expected.values())
    assert latest.rows(everything[5:50]).tolist() == [one - 5 for one in sorted(expected.values()) if 5 <= one < 50]
    assert latest.rows(np.empty(0, np.int64)).size == 0


def test_files_are_gone_with_the_pass(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(LatestOffsets.__init__, "__defaults__", (2**10, None))
    root = golden_sets.unpacked("k44")
    batches = kafkalog.scan(root, topics="p-multi", latest="key").to_batches()
    found = [next(batches)]
    assert [path.name.startswith("kafkalog-latest-") for path in tmp_path.iterdir()][:1] == [True]
    found += batches
    del batches
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    assert pa.Table.from_batches(found).to_pylist() == state(root, topics="p-multi")


def test_files_that_a_killed_process_left_are_removed_and_those_of_a_live_one_are_not(monkeypatch, tmp_path):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    left, live, other = (tmp_path / name for name in ("kafkalog-latest-1", "kafkalog-latest-2", "something-else"))
    for path in (left, live, other):
        path.mkdir()
        (path / "0.arrow").touch()
    descriptor = os.open(live, os.O_RDONLY)
    lock(descriptor)
    one, another = LatestOffsets(1), LatestOffsets(1)
    for latest in (one, another):
        latest.add(pa.array([b"a", b"b"]), pa.array([1, 2]))
    assert {path.name for path in tmp_path.iterdir()} > {live.name, other.name}
    assert len(list(tmp_path.iterdir())) == 4
    assert not left.exists()
    another.finish()
    del one, another, latest
    gc.collect()
    assert sorted(tmp_path.iterdir()) == [live, other]
    os.close(descriptor)
