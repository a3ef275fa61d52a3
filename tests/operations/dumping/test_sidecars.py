"""Indexes are compared with the log, and snapshots read, as Kafka's tool does it."""

import struct
from collections import Counter

import builder
import golden_sets
import pytest
from dumping_support import ONE, dumped, findings, write_log

import kafkalog
from kafkalog.errors import Reason


def test_objects_of_what_lies_beside_a_log_are_its_numbers():
    folder = golden_sets.LOG_DIR / "p-txn-0"
    dump = kafkalog.dump(sorted(folder.glob("*index")) + sorted(folder.glob("*.snapshot")))
    rows = list(dump.rows())
    counts = Counter(row["kind"] for row in rows)
    lines = list(dump)
    assert counts["offset_index_entry"] == sum(line.startswith("offset: ") for line in lines) > 10
    assert counts["time_index_entry"] == sum(line.startswith("timestamp: ") for line in lines) > 10
    assert counts["aborted_transaction"] == sum(line.startswith("version: ") for line in lines) > 5
    producers = [row for row in rows if row["kind"] == "producer"]
    assert len(producers) == sum(line.startswith("producerId: ") for line in lines) > 3
    assert {"producer_id", "last_offset", "first_sequence", "current_txn_first_offset"} < set(producers[0])


def test_right_indexes_have_nothing_to_say(indexed):
    for suffix in (".index", ".timeindex"):
        assert findings(indexed.with_suffix(suffix)) == []
        assert dumped(str(indexed.with_suffix(suffix)), index_sanity_check=True)[-1].endswith(" passed sanity check.")


def test_an_entry_that_leads_too_far_is_damage_one_that_leads_to_the_start_of_an_append_is_not(indexed):
    index = indexed.with_suffix(".index")
    size = indexed.stat().st_size // 4
    for position, expected in ((2 * size, [(Reason.INDEX_ENTRY, True)]), (0, [])):
        index.write_bytes(struct.pack(">ii", 1, position))
        dump = kafkalog.dump(index, verify_index_only=True)
        assert list(dump) == [f"Dumping {index}"]
        assert [(finding.reason, finding.damage) for finding in dump.findings] == expected
        assert list(dump.mismatches())[1:] == [f"  Index offset: 1, log offset: {position // size}"]


def test_what_a_broker_preallocated_is_no_damage(indexed):
    for log in (indexed.read_bytes(), b""):
        indexed.write_bytes(log)
        for suffix, size in ((".index", 800), (".timeindex", 1200)):
            indexed.with_suffix(suffix).write_bytes(bytes(size))
        for suffix in (".index", ".timeindex"):
            assert findings(indexed.with_suffix(suffix)) == []


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_a_broker_would_rebuild_fails_the_sanity_check(indexed, suffix):
    index = indexed.with_suffix(suffix)
    index.write_bytes(index.read_bytes() + b"odd")
    assert "index_size" in dumped(str(index), index_sanity_check=True)[-1]
    assert not dumped(str(index))[-1].startswith("EXCEPTION")


def test_a_damaged_snapshot_is_a_finding_and_the_dump_goes_on(tmp_path):
    snapshot = tmp_path / f"{5:020d}.snapshot"
    snapshot.write_bytes(struct.pack(">hIi", 1, 0, 0))
    dump = kafkalog.dump([snapshot, write_log(tmp_path, b"")])
    assert len(list(dump)) == 3
    assert [finding.reason for finding in dump.findings] == [Reason.SNAPSHOT_CRC]


def test_a_wrong_timestamp_is_damage_an_offset_inside_a_batch_is_not(indexed):
    index = indexed.with_suffix(".timeindex")
    index.write_bytes(struct.pack(">qi", 999, 1))
    assert findings(index) == [(Reason.INDEX_ENTRY, True)]
    index.write_bytes(struct.pack(">qi", 101, 9))
    assert findings(index) == [(Reason.INDEX_ENTRY, True)]
    indexed.write_bytes(builder.batch_v2([ONE, ONE, ONE], base_offset=0))
    indexed.with_suffix(".index").write_bytes(b"")
    index.write_bytes(struct.pack(">qi", 0, 1))
    assert findings(index) == []
