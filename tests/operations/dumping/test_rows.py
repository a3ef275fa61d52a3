"""Objects hold what was written, and what the lines say."""

from collections import Counter

import builder
import golden_sets
import strategies
from dumping_support import ONE, dumped, write_log
from effort import examples
from hypothesis import HealthCheck, given, settings

import kafkalog
from kafkalog.operations.dumping.rows import fields_of


@settings(max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(segment=strategies.segments())
def test_objects_hold_what_was_written_and_what_the_text_says(segment, tmp_path):
    path = write_log(tmp_path, segment.data)
    dump = kafkalog.dump(path, print_data_log=True)
    rows = list(dump.rows())
    by_kind = Counter(row["kind"] for row in rows)
    assert all([*row] == ["kind", *(name for name in fields_of(row["kind"]) if name in row)] for row in rows)
    lines = dumped(path, deep_iteration=True)
    assert by_kind["batch"] == sum(line.startswith(("baseOffset", "offset")) for line in lines)
    assert by_kind["record"] == sum(line.startswith("| offset") for line in lines)
    records = [row for row in rows if row["kind"] == "record"]
    assert [row["offset"] for row in records] == [record.offset for record in segment.records]
    assert [row["timestamp"] for row in records] == [
        -1 if record.timestamp is None else record.timestamp for record in segment.records
    ]
    data = [(row, record) for row, record in zip(records, segment.records, strict=True) if not record.is_control]
    assert [(row["key"], row["value"]) for row, _ in data] == [(record.key, record.value) for _, record in data]
    assert [[value for _, value in row["headers"]] for row, _ in data] == [
        [value for _, value in record.headers] for _, record in data
    ]
    assert [list(dump.mismatches())] == [list(text_report(path))]


def text_report(path):
    dump = kafkalog.dump(path, deep_iteration=True)
    for _ in dump.chunks():
        pass
    return dump.mismatches()


def test_many_small_batches_are_walked_together(tmp_path):
    gap = [builder.batch_v2([ONE], base_offset=n) for n in range(5000)]
    del gap[2000]
    dump = kafkalog.dump(write_log(tmp_path, b"".join(gap)), print_data_log=True)
    assert [row["kind"] for row in dump.rows()] == ["file", *["batch", "record"] * 4999, "mismatch"]
    assert 1 <= sum(1 for _ in dump.chunks()) < 10


def test_objects_of_control_records_say_what_they_mean():
    logs_of = {
        "p-txn-0": {"ABORT", "COMMIT"},
        "__cluster_metadata-0": {"LEADER_CHANGE"},
    }
    for partition, expected in logs_of.items():
        paths = golden_sets.log_files(golden_sets.partitions("k44")[partition])
        rows = kafkalog.dump(paths, deep_iteration=True).rows()
        assert {row["control"]["type"] for row in rows if "control" in row} == expected


def test_records_of_an_internal_topic_are_dicts(tmp_path):
    key, unknown = b"\0\2\0\1g", b"\0\x63"
    data = builder.batch_v2([builder.record_v2(0, 0, key, None), builder.record_v2(1, 0, unknown, b"v")])
    dump = kafkalog.dump(write_log(tmp_path, data), topic_decoder="offsets")
    first, second = [row for row in dump.rows() if row["kind"] == "record"]
    assert (first["key"], first["value"]) == ({"type": "2", "data": {"group": "g"}}, None)
    assert "not_decoded" not in first
    assert (second["key"], second["value"]) == (unknown, b"v")
    assert second["not_decoded"] == "record type 99 is not known in __consumer_offsets"
