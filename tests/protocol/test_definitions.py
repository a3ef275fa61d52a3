"""The definitions of messages are those of Kafka."""

from __future__ import annotations

from pathlib import Path

import pytest
from conformance.jars import OLD_KAFKA_VERSION, class_path, java
from message_definitions import PREVIEW, definitions

import kafkalog
from kafkalog.protocol.definitions import Versions, messages

DATA = Path(kafkalog.__file__).parent / "protocol"


@pytest.mark.broker
def test_the_data_are_those_in_kafkas_jars() -> None:
    program = java()
    assert (DATA / "definitions.json").read_text() == definitions(class_path(program))
    preview = definitions(class_path(program, OLD_KAFKA_VERSION), PREVIEW)
    assert (DATA / "preview.json").read_text() == preview


@pytest.mark.parametrize(
    ("text", "inside", "outside"),
    [("3", [3], [2, 4]), ("0-4", [0, 4], [-1, 5]), ("2+", [2, 900], [1]), ("none", [], [0, -1]), (None, [], [0])],
)
def test_ranges_of_versions(text: str | None, inside: list[int], outside: list[int]) -> None:
    versions = Versions.parse(text)
    assert all(version in versions for version in inside)
    assert not any(version in versions for version in outside)


def test_types_of_records_are_unique_in_a_topic() -> None:
    keyed = [(message.topic, message.kind, message.key) for message in messages().values() if message.topic]
    assert len(keyed) == len(set(keyed)) > 70
