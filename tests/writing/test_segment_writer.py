"""Segments are written until the settings say that the next one begins."""

from __future__ import annotations

from pathlib import Path

from loaded import table_of

import kafkalog
from kafkalog import LogConfig, write_table


def test_segments_roll_as_the_settings_say(tmp_path: Path) -> None:
    write_table(table_of(500), tmp_path / "log", topic="t", config=LogConfig(segment_bytes=5000), batch_size=1000)
    assert len(kafkalog.open(tmp_path / "log" / "t-0").segments) > 4
    config = LogConfig(compression_type="zstd", message_timestamp_type="LogAppendTime")
    write_table(table_of(50), tmp_path / "log", topic="u", config=config, log_append_time=77)
    assert set(kafkalog.read_table(tmp_path / "log", topics="u").column("timestamp_type").to_pylist()) == {1}
