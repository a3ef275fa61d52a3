"""Of a log that was cut at any byte, recovery keeps what Kafka's own classes keep."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace

import golden_sets
import pytest
from conformance.jars import KAFKA_VERSION, OLD_KAFKA_VERSION, class_path, java

from kafkalog import format as kf
from kafkalog.errors import DEFAULT_LIMITS
from kafkalog.log.recovery import recover
from kafkalog.storage.source import BufferSource

pytestmark = [pytest.mark.broker, pytest.mark.slow]

PACKAGES = {
    OLD_KAFKA_VERSION: "org.apache.kafka.common.record",
    KAFKA_VERSION: "org.apache.kafka.common.record.internal",
}
N_SEGMENTS = 20
MOST_BYTES = 6000


def segments():
    """Segments of all formats and codecs, no two of one topic; those that are not too long."""
    found = {}
    for name in ("k44", "k28"):
        for partition in sorted(golden_sets.partitions(name).values()):
            for path in sorted(partition.glob("*.log")):
                topic = f"{name} {partition.name.rpartition('-')[0]}"
                size = path.stat().st_size
                if 300 < size <= MOST_BYTES and not partition.name.startswith("__"):
                    found[topic] = max(path, found.get(topic, path), key=lambda one: one.stat().st_size)
    topics = sorted(found)
    return [found[topics[number * len(topics) // N_SEGMENTS]] for number in range(N_SEGMENTS)]


def ours(path):
    """Bytes that recovery keeps of each prefix of a segment."""
    data = path.read_bytes()
    kept = []
    for length in range(len(data) + 1):
        cut = SimpleNamespace(
            path=path,
            base_offset=int(path.stem),
            limits=DEFAULT_LIMITS,
            size_in_bytes=length,
            is_last=True,
            open=lambda length=length: BufferSource(data[:length]),
        )
        kept.append(recover(cut, kf.INDEX_INTERVAL_BYTES, with_producers=False).n_valid_bytes)
    return kept


@pytest.fixture(scope="module")
def expected():
    chosen = segments()
    assert len(chosen) == N_SEGMENTS
    return {path: ours(path) for path in chosen}


@pytest.mark.parametrize("version", [OLD_KAFKA_VERSION, KAFKA_VERSION])
def test_every_cut_point_keeps_what_kafka_keeps(version, expected, tmp_path):
    program = java()
    jars = class_path(program, version)
    source = (Path(__file__).parent / "Prefixes.java").read_text().replace("RECORD.", PACKAGES[version] + ".")
    (tmp_path / "Prefixes.java").write_text(source)
    command = [program, "-cp", jars, str(tmp_path / "Prefixes.java"), str(tmp_path / "out")]
    subprocess.run([*command, *map(os.fspath, expected)], check=True, capture_output=True, timeout=600)
    theirs = [list(map(int, line.split())) for line in (tmp_path / "out").read_text().splitlines()]
    assert len(theirs) == len(expected)
    for (path, kept), other in zip(expected.items(), theirs, strict=True):
        assert kept == other, path
    assert sum(map(len, theirs)) > 50_000
