"""`latest="key"` is a dict fed by a real consumer; `use_time_index` believes what a real broker wrote."""

import pytest
from conformance.history import TOPICS, rows
from effort import thinned

pytestmark = [pytest.mark.broker, pytest.mark.slow]

LEVELS = ("read_uncommitted", "read_committed")
KEYED = [*TOPICS, "crashed"]


def state(records):
    """What somebody has in dicts who consumed these records, one dict for each partition."""
    tables = {}
    for record in records:
        if record["key"] is None:
            continue
        table = tables.setdefault(record["partition"], {})
        table.pop(record["key"], None)
        if record["value"] is not None:
            table[record["key"]] = record
    return [record for number in sorted(tables) for record in tables[number].values()]


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("topic", KEYED)
def test_the_latest_records_are_those_of_a_dict_that_a_consumer_filled(history, topic, level):
    for stage in history.stages:
        if topic == "crashed" and stage is history.clean:
            continue
        truth = stage.truth if level == "read_uncommitted" else stage.committed
        expected = state(truth.records[topic])
        assert rows(stage.log_dir, topic, latest="key", isolation_level=level) == expected
        assert expected or topic in ("empty", "trimmed-whole", "held-back")


def test_the_cleaner_took_records_that_are_not_the_latest(history):
    for topic in ("compacted", "compacted-transactions"):
        records = history.stages[0].truth.records[topic]
        offsets = [record["offset"] for record in records]
        assert len(offsets) < offsets[-1] - offsets[0] + 1
        assert len(state(records)) < len(records)


@pytest.mark.parametrize("topic", thinned([*TOPICS, "crashed"], 3))
def test_time_indexes_of_a_broker_lead_to_all_records_of_a_time(history, topic):
    for stage in history.stages:
        records = stage.truth.records[topic]
        stamps = sorted({record["timestamp"] for record in records})
        for stamp in stamps[:: max(len(stamps) // 5, 1)]:
            expected = [record for record in records if record["timestamp"] >= stamp >= 0]
            assert rows(stage.log_dir, topic, start_timestamp=max(stamp, 0), use_time_index=True) == expected
