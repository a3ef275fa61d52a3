"""A log dir reads as a consumer read it: under a running broker, after a clean stop, after a crash."""

import numpy as np
import pytest
from conformance.history import FLOODED, INTERNAL, TOPICS, rows
from conformance.kafka import lines_said, parse_dump, wait_until
from files import content
from golden_sets import listing

import kafkalog
from kafkalog import format as kf

pytestmark = [pytest.mark.broker, pytest.mark.slow]

PREALLOCATED = 10 * 2**20


def partitions(stage):
    log_dir = kafkalog.open(stage.log_dir)
    for topic, partition in stage.truth.partitions:
        yield kafkalog.TopicPartition(topic, partition), log_dir[topic, partition]


def quiet(stage):
    """The partitions that no test writes to; of `held-back`, markers with later timestamps are left in front."""
    return ((key, partition) for key, partition in partitions(stage) if key.topic not in (*FLOODED, "held-back"))


@pytest.mark.parametrize("topic", [*TOPICS, *INTERNAL])
def test_the_log_of_a_running_broker_reads_as_a_consumer_reads_it(history, topic):
    assert rows(history.live.log_dir, topic) == history.live.truth.records[topic]


@pytest.mark.parametrize("topic", [*TOPICS, *INTERNAL])
def test_the_log_of_a_stopped_broker_reads_as_a_consumer_read_it(history, topic):
    assert rows(history.clean.log_dir, topic) == history.clean.truth.records[topic]


@pytest.mark.parametrize("topic", [*TOPICS, *FLOODED, *INTERNAL])
def test_the_log_of_a_killed_broker_reads_as_a_consumer_reads_it_after_recovery(history, topic):
    assert rows(history.crashed.log_dir, topic) == history.crashed.truth.records[topic]


def test_the_workload_is_what_these_tests_think_it_is(history):
    for stage in history.stages:
        assert sorted(stage.truth.records) == sorted([*TOPICS, *FLOODED, *INTERNAL])
        records = [record for topic in stage.truth.records.values() for record in topic]
        assert len(records) > 4000
        for value in (None, b""):
            assert sum(record["key"] == value for record in records) > 100
            assert sum(record["value"] == value for record in records) > 100
            assert sum((name, value) in record["headers"] for record in records for name in ("trace", "")) > 50
        assert any(
            [name for name, _ in record["headers"]].count("trace") > 1 for record in stage.truth.records["headers"]
        )
        assert {record["timestamp_type"] for record in stage.truth.records["appended"]} == {1}
        batches = {key: [segment.batches for segment in part.segments] for key, part in partitions(stage)}
        for codec, name in enumerate(kf.CODEC_NAMES[:5]):
            assert any((table.codec == codec).any() for table in batches[kafkalog.TopicPartition(name, 0)])
        transactions = [table for key, tables in batches.items() if "transactions" in key.topic for table in tables]
        assert {kind for table in transactions for kind in table.control_type.tolist()} >= {-1, 0, 1}
        many = sum(len(tables) > 3 for tables in batches.values())
        assert many > 20
    compacted = history.stages[0].truth.records["compacted"]
    assert len(compacted) < TOPICS["compacted"].records
    assert any(record["value"] is None for record in compacted)


def test_a_log_dir_is_live_while_a_broker_holds_its_lock(history):
    assert kafkalog.open(history.live.log_dir).is_live
    assert not kafkalog.open(history.clean.log_dir).is_live
    assert not kafkalog.open(history.crashed.log_dir).is_live
    assert (history.live.was_live, history.clean.was_live, history.crashed.was_live) == (True, False, False)
    assert (history.clean.log_dir / kf.CLEAN_SHUTDOWN_FILE).exists()
    assert not (history.crashed.log_dir / kf.CLEAN_SHUTDOWN_FILE).exists()


@pytest.mark.parametrize("stage", ["live", "crashed"])
def test_indexes_of_active_segments_are_preallocated_and_read_without_their_zeros(history, stage):
    for key, partition in partitions(getattr(history, stage)):
        active = partition.segments[-1]
        if key.topic == "dense" or key.topic in FLOODED:
            continue  # its index is small; a new segment may be half made
        assert active.path.with_suffix(kf.INDEX_SUFFIX).stat().st_size in range(PREALLOCATED - 12, PREALLOCATED + 1)
        index, batches = active.offset_index, active.batches
        assert index is not None
        assert len(index) <= len(batches)
        assert np.isin(index.offset, batches.last_offset).all()
        assert np.isin(index.position, batches.position).all()


def test_what_a_broker_acknowledged_before_it_was_killed_is_read(history):
    assert sorted(history.acknowledged) == ["crashed-0", "crashed-1"]
    read = rows(history.crashed.log_dir, "crashed")
    for place, acknowledged in history.acknowledged.items():
        offsets = [row["offset"] for row in read if row["partition"] == int(place[-1])]
        assert offsets == list(range(len(offsets)))
        assert len(offsets) > acknowledged > 100


def test_a_log_that_grows_while_it_is_read_reads_as_a_prefix_of_what_a_consumer_gets_later(history):
    live = history.live.log_dir
    history.client.ask("flood", topic="growing", partitions=2, seed=5)
    wait_until(lambda: bool(rows(live, "growing")), "the first record is there")
    readings = [rows(live, "growing", threads=1 + number % 2) for number in range(12)]
    wait_until(lambda: len(rows(live, "growing")) > len(readings[-1]), "more is there")
    readings.append(rows(live, "growing"))
    acknowledged = history.client.ask("dry")["acknowledged"]
    later = history.client.consume(history.folder / "growing.jsonl", ["growing"]).records["growing"]
    assert len(readings[0]) < len(readings[-1]) <= len(later)
    for number in range(2):
        truth = [record for record in later if record["partition"] == number]
        assert len(truth) > acknowledged[f"growing-{number}"]
        for reading in readings:
            read = [row for row in reading if row["partition"] == number]
            assert read == truth[: len(read)]
    assert rows(live, "growing") == later


def test_log_start_and_end_offsets_are_what_the_broker_lists(history):
    listed = {(row["topic"], row["partition"]): row for row in history.client.ask("offsets", times={})["partitions"]}
    seen = dict(quiet(history.live))
    for key, partition in seen.items():
        found = (partition.log_start_offset, partition.log_end_offset)
        assert (key, *found) == (key, listed[key]["earliest"], listed[key]["latest"])
    deleted = seen[kafkalog.TopicPartition("trimmed-live", 0)]
    # more segments may lie below it: the retention task deletes them, half a minute after a start
    assert deleted.log_start_offset == 222 > deleted.segments[0].base_offset


def dumped(history, stage):
    """What `DumpLogSegments` says of every segment; it gives up at zeros behind the last batch."""
    logs = sorted(
        str(path)
        for path in stage.log_dir.glob("*/*.log")
        if stage is not history.crashed or not path.parent.name.startswith(("preallocated", "growing"))
    )
    file = history.folder / f"{stage.log_dir.name}.dump"
    history.client.ask("dump", logs=logs, file=str(file))
    files = parse_dump(file.read_text())
    assert sorted(files) == logs
    return files


@pytest.mark.parametrize("name", ["clean", "crashed"])
def test_batches_are_those_that_kafkas_own_dump_tool_lists(history, name):
    files = dumped(history, getattr(history, name))
    assert len(files) > 150
    for path, expected in files.items():
        table = kafkalog.Segment(path).batches
        columns = {
            "baseOffset": table.base_offset,
            "lastOffset": table.last_offset,
            "count": table.records_count,
            "baseSequence": table.base_sequence,
            "producerId": table.producer_id,
            "producerEpoch": table.producer_epoch,
            "partitionLeaderEpoch": table.partition_leader_epoch,
            "position": table.position,
            "size": table.size_in_bytes,
            "magic": table.magic,
            "crc": table.crc,
        }
        seen = {column: [str(cell) for cell in cells.tolist()] for column, cells in columns.items()}
        seen["isTransactional"] = [str(bit).lower() for bit in table.is_transactional.tolist()]
        seen["isControl"] = [str(bit).lower() for bit in table.is_control.tolist()]
        seen["compresscodec"] = [kf.codec_name(codec) for codec in table.codec.tolist()]
        seen["deleteHorizonMs"] = [
            "OptionalLong.empty" if stamp < 0 else f"OptionalLong[{stamp}]"
            for stamp in table.delete_horizon_ms.tolist()
        ]
        for column, cells in seen.items():
            assert (path, column, cells) == (path, column, [row[column] for row in expected])
        for row, kind, stamp in zip(expected, table.timestamp_type, table.max_timestamp, strict=True):
            assert row[kf.TIMESTAMP_TYPE_NAMES[int(kind)]] == str(stamp)
            assert row["isvalid"] == "true"


@pytest.mark.parametrize("name", ["clean", "crashed"])
def test_reading_leaves_every_byte_and_time_of_a_log_dir_as_it_was(history, name):
    stage = getattr(history, name)
    before = content(stage.log_dir), listing(stage.log_dir)
    for memory_map in (False, True):
        kafkalog.read_table(stage.log_dir, memory_map=memory_map, include_control=True, include_deleted=True)
        for segment in (segment for _, partition in partitions(stage) for segment in partition.segments):
            segment.find_offsets([segment.base_offset, 2**62])
            segment.find_timestamps([0, 2**62])
            _ = segment.offset_index, segment.time_index, segment.transaction_index
    assert (content(stage.log_dir), listing(stage.log_dir)) == before


def test_a_broker_whose_log_was_read_works_on_and_stops_cleanly_at_no_error(history):
    kafkalog.read_table(history.live.log_dir, include_control=True)
    TOPICS["none"].produce(history.client, "growing", 9, 50)
    later = history.client.consume(history.folder / "after.jsonl", ["growing"]).records["growing"]
    assert rows(history.live.log_dir, "growing") == later
    assert history.broker.is_running
    assert not [line for line in lines_said(history.broker.log.read_text()) if " ERROR " in line]
