"""Random bytes in the remote log metadata, in records that are intact: no crash, and no record that was not there."""

import contextlib
import shutil
import struct
import warnings

import numpy as np
import pytest
from conftest import GOLDEN
from effort import trials
from tiered_sets import TieredSet

import kafkalog
from kafkalog.errors import CorruptionWarning

LOG_DIR = GOLDEN / "log_dir"
MOVED = ("p-txn-0", "p-delrec-0")
COLUMNS = ["offset", "timestamp", "key", "value"]
SEED = 20261128


@pytest.fixture(scope="module", params=[None, {"chunk": 4096}], ids=["apache", "aiven"])
def base(request, tmp_path_factory):
    place = tmp_path_factory.mktemp("mutants")
    shutil.copytree(LOG_DIR, place / "data")
    stored = TieredSet(place / "data", place / "remote", request.param)
    for partition in MOVED:
        stored.move(partition)
    return stored


@pytest.fixture(scope="module")
def expected():
    """The records by partition and offset."""
    golden = kafkalog.open(LOG_DIR)
    rows = {name: golden[name].to_table(columns=COLUMNS).to_pylist() for name in MOVED}
    return {name: {row["offset"]: row for row in rows[name]} for name in MOVED}


def mutated(events, rng):
    """Events with random faults: bytes, numbers at limits, cuts, copies, another order."""
    events = [bytearray(event) for event in events]
    for _ in range(int(rng.integers(1, 4))):
        number = int(rng.integers(len(events)))
        event, kind = events[number], int(rng.integers(6))
        at = int(rng.integers(max(len(event), 1)))
        if kind == 0 and event:
            event[at] = int(rng.integers(256))
        elif kind == 1:
            width = int(rng.choice([1, 4, 8]))
            limits = {1: (0x7F, 0x80, 0xFF), 4: (0, -1, 2**31 - 1, -(2**31)), 8: (0, -1, 2**63 - 1, -(2**63))}[width]
            value = int(rng.choice(np.array(limits, object)))
            event[at : at + width] = bytes([value]) if width == 1 else struct.pack(f">{'iq'[width == 8]}", value)
        elif kind == 2:
            del event[at:]
        elif kind == 3:
            event[at:at] = rng.bytes(int(rng.integers(1, 40)))
        elif kind == 4:
            events.insert(int(rng.integers(len(events))), bytearray(event))
        else:
            events.insert(int(rng.integers(len(events))), events.pop(number))
    return [bytes(event) for event in events]


def check(log_dir, remote, expected):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CorruptionWarning)
        with contextlib.suppress(kafkalog.KafkalogError):
            kafkalog.remote_log(log_dir)
        with contextlib.suppress(kafkalog.KafkalogError):
            kafkalog.verify_tiered(remote, log_dir)
        for name, rows in expected.items():
            for on_corruption in ("raise", "skip"):
                with contextlib.suppress(kafkalog.KafkalogError):
                    opened = kafkalog.open(log_dir, tiered=remote)
                    table = opened[name].to_table(columns=COLUMNS, on_corruption=on_corruption).to_pylist()
                    assert all(row == rows.get(row["offset"]) for row in table)
                    offsets = [row["offset"] for row in table]
                    assert offsets == sorted(set(offsets))


def test_random_bytes_in_events_never_crash_and_never_invent_records(base, expected, tmp_path):
    rng = np.random.default_rng(SEED)
    for trial in range(trials(2, 25)):
        stored = base.clone(tmp_path / str(trial))
        stored.events = mutated(stored.events, rng)
        stored.finish()
        check(stored.log_dir, stored.remote, expected)
        shutil.rmtree(tmp_path / str(trial))


def test_random_bytes_in_the_topic_never_crash_and_never_invent_records(base, expected, tmp_path):
    rng = np.random.default_rng(SEED + 1)
    stored = base.clone(tmp_path)
    stored.finish()
    (path,) = (stored.log_dir / "__remote_log_metadata-0").glob("*.log")
    content = path.read_bytes()
    for _ in range(trials(2, 25)):
        data = bytearray(content)
        for _ in range(int(rng.integers(1, 4))):
            at = int(rng.integers(len(data)))
            data[at : at + int(rng.integers(0, 3))] = rng.bytes(int(rng.integers(1, 4)))
        path.write_bytes(data)
        check(stored.log_dir, stored.remote, expected)
