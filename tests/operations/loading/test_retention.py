"""Who writes records that a broker would delete at once hears of it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from kafkalog import LogConfig, TopicPartition, write_table
from kafkalog.operations.loading.retention import retention_note
from kafkalog.state.cluster_image import TOPIC, ClusterMetadata

DAY = 86_400_000
KEY = TopicPartition("t", 0)


def test_the_limit_is_that_of_a_broker() -> None:
    def note(timestamp: int, **settings: Any) -> str | None:
        return retention_note({KEY: timestamp}, config=LogConfig(**settings), cluster=None, now_ms=100 * DAY)

    assert note(93 * DAY) is None
    said = note(93 * DAY - 1)
    assert said is not None
    assert said.startswith(
        "a broker will soon delete the records of t-0: the newest, 1970-04-03T23:59:59.999Z, is older than retention"
    )
    assert note(93 * DAY, retention_ms=7 * DAY - 1) is not None
    assert note(0) is not None
    assert note(-1) is None  # a broker goes by when the file was written
    assert note(0, retention_ms=-1) is None
    assert note(0, cleanup_policy="compact") is None
    assert note(0, cleanup_policy="compact,delete") is not None


def test_what_the_cluster_says_of_a_topic_counts_first() -> None:
    cluster = ClusterMetadata()

    def note(**settings: Any) -> str | None:
        return retention_note({KEY: 0}, config=LogConfig(**settings), cluster=cluster, now_ms=100 * DAY)

    assert note() is not None
    for settings in ({"retention.ms": "-1"}, {"cleanup.policy": "compact"}):
        cluster.settings[TOPIC, "t"] = settings
        assert note() is None
        cluster.settings = {(TOPIC, "other"): settings}
        assert note() is not None
    cluster.settings[TOPIC, "t"] = {"retention.ms": "1000", "cleanup.policy": "compact, delete"}
    assert "retention.ms=1000." in (note(retention_ms=-1) or "")
    cluster.settings[TOPIC, "t"] = {"retention.ms": "damaged"}
    assert "retention.ms=5." in (note(retention_ms=5) or "")


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_load_notes_it(tmp_path: Path, dry_run: bool) -> None:
    now = time.time_ns() // 10**6
    table = {"value": [b"1", b"2", b"3", b"4"], "timestamp": [now, 1000, 2000, None], "partition": [0, 0, 1, 2]}

    def notes(name: str, **options: Any) -> list[str]:
        return write_table(table, tmp_path / name, topic="t", dry_run=dry_run, **options).notes

    (note,) = notes("default")
    assert note.startswith("a broker will soon delete the records of t-1: the newest, 1970-01-01T00:00:02.000Z")
    assert " more: " not in note
    assert notes("for-ever", config=LogConfig(retention_ms=-1)) == []
    assert notes("stamped", timestamp_type="LogAppendTime") == []
    assert notes("config", config=LogConfig(message_timestamp_type="LogAppendTime")) == []
    (note,) = notes("stamped-early", timestamp_type="LogAppendTime", log_append_time=5)
    assert "t-0 and 2 more: the newest, 1970-01-01T00:00:00.005Z" in note
    assert "2 more: " in note
