"""Options of a dump that make no sense are refused."""

from __future__ import annotations

from typing import Any

import pytest

import kafkalog


@pytest.mark.parametrize(
    "options",
    [
        {"dialect": "1.0"},
        {"key_decoder": "avro"},
        {"max_bytes": -1},
        {"max_message_size": 2**31},
        {"topic_decoder": "__consumer_offsets"},
        {"topic_decoder": "offsets", "value_decoder": "long"},
        {"topic_decoder": "share-group-state", "dialect": "2.8"},
    ],
)
def test_options_that_make_no_sense_are_value_errors(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        kafkalog.dump("x.log", **options)
