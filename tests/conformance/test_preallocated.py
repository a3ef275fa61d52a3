"""Beside a broker that writes to a topic with `preallocate=true`, every reader finds whole batches and no damage."""

import time

import pytest
from conformance.kafka import BrokerLife

import kafkalog

pytestmark = [pytest.mark.broker, pytest.mark.slow]

SECONDS = 8


def test_readers_find_no_damage_in_what_a_broker_preallocates_and_writes(tmp_path):
    with BrokerLife(tmp_path) as life:
        life.boot()
        configs = {"preallocate": "true", "internal.segment.bytes": 4_000_000, "retention.ms": -1}
        life.client.ask("create", topics=[{"name": "ahead", "partitions": 1, "configs": configs}])
        life.client.ask("flood", topic="ahead", partitions=1, seed=1)
        directory = life.log_dir / "ahead-0"
        end, n_reads, deadline = 0, 0, time.monotonic() + SECONDS
        while time.monotonic() < deadline or n_reads < 4 or not end:
            scan = kafkalog.scan(directory, columns=["offset"])
            offsets = scan.to_table().column("offset").to_pylist()
            assert not scan.n_damage, scan.findings
            assert offsets == list(range(len(offsets)))
            assert len(offsets) >= end  # what was there once is there
            end = len(offsets)
            assert kafkalog.batches(directory).to_table().num_rows or not end  # at first nothing is written yet
            assert kafkalog.verify(directory).ok
            n_reads += 1
        acknowledged = life.client.ask("dry")["acknowledged"]
        assert acknowledged
        assert any(segment.is_preallocated for segment in kafkalog.open(directory).segments)
