"""The cluster's metadata as of an offset, or of a time, is what a real broker's Admin client told at that moment."""

import json
import shutil
from pathlib import Path

import pytest
from conformance.kafka import Broker, run_java

import kafkalog

pytestmark = [pytest.mark.broker, pytest.mark.slow]

_PROGRAM = Path(__file__).with_name("Changes.java")


def state(found):
    assert not found.findings
    return {
        "topics": {row["topic"]: [row["topic_id"], row["partitions"]] for row in found.topics},
        "configs": {
            f"{row['resource_name']}|{row['name']}": row["value"]
            for row in found.configs
            if row["resource_type"] == "topic"
        },
        "acls": sorted(f"{row['resource_name']}|{row['principal']}|{row['operation'].upper()}" for row in found.acls),
        "quotas": {row["entity"]["user"]: {row["key"]: row["value"]} for row in found.quotas},
    }


def test_states_as_of_offsets_and_times(tmp_path):
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "metadata.log.max.record.bytes.between.snapshots": 1500,
        # a change has the time at which its batch was begun: no record that nobody asked for may have begun it before
        "metadata.max.idle.interval.ms": 0,
    }
    with Broker(tmp_path, **properties) as broker:
        broker.start()
        told = json.loads(run_java(_PROGRAM, broker.address).splitlines()[-1])
    directory = broker.log_dir / "__cluster_metadata-0"
    snapshots = [int(path.name[:20]) for path in directory.glob("*.checkpoint")]
    assert any(told[0]["offset"] < offset <= told[-1]["offset"] for offset in snapshots)
    without = tmp_path / "log alone"
    shutil.copytree(directory, without / directory.name, ignore=shutil.ignore_patterns("*.checkpoint"))
    for one in told:
        expected = {name: one[name] for name in ("topics", "configs", "acls", "quotas")}
        for path in (broker.log_dir, without):
            assert state(kafkalog.metadata(path, end_offset=one["offset"])) == expected
            assert state(kafkalog.metadata(path, end_timestamp=one["time"])) == expected
    assert state(kafkalog.metadata(broker.log_dir)) == expected
