"""Settings and partitions are those that Kafka's own classes have; no broker runs for this."""

import base64
import random
import warnings

import numpy as np
import pytest

from kafkalog import ConfigWarning, LogConfig, codec
from kafkalog.interchange.arrow_input import record_slices
from kafkalog.records.partitioner import Partitioner, hash_keys

pytestmark = [pytest.mark.broker, pytest.mark.slow]


def ask(client, *pairs):
    """What Kafka makes of (broker's, topic's) properties."""
    answers = client.ask("log_configs", configs=[{"broker": broker, "topic": topic} for broker, topic in pairs])
    return list(answers["configs"])


def as_kafka(config):
    return {**config.to_properties(), "internal.segment.bytes": "null"}


def test_defaults_are_those_of_kafkas_class(client):
    (answer,) = ask(client, ({}, {}))
    assert len(answer["values"]) > 30
    assert as_kafka(LogConfig()) == answer["values"]


def test_no_name_that_kafka_has_is_taken_for_a_misspelt_one(client):
    names = client.ask("setting_names")["names"]
    assert len(names) > 300
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for name in names:
            try:
                LogConfig.from_properties({name: "x"})
            except ValueError:
                continue  # known, and no x
    assert [str(warning.message) for warning in caught] == []


SETTINGS = {
    "topic": ["segment.bytes", "segment.ms", "segment.jitter.ms", "retention.ms", "max.message.bytes", "flush.ms"],
    "broker": [
        *("log.segment.bytes", "log.roll.ms", "log.roll.hours", "log.roll.jitter.ms", "log.roll.jitter.hours"),
        *("log.retention.ms", "log.retention.minutes", "log.retention.hours", "message.max.bytes"),
        *("log.flush.interval.ms", "log.flush.scheduler.interval.ms", "log.index.size.max.bytes"),
        *("log.index.interval.bytes", "log.cleaner.delete.retention.ms", "log.cleaner.max.compaction.lag.ms"),
    ],
}


def test_precedence_is_kafkas(client):
    draw = random.Random(20261121)
    pairs = []
    for _ in range(300):
        broker, topic = (
            {name: str(draw.choice([2, 3, 5, 7]) * 2**20) for name in SETTINGS[where] if draw.random() < 0.4}
            for where in ("broker", "topic")
        )
        for hours in ("log.roll.hours", "log.roll.jitter.hours", "log.retention.hours", "log.retention.minutes"):
            if hours in broker:
                broker[hours] = str(draw.choice([1, 2, 3]))
        if draw.random() < 0.5:
            broker["log.cleanup.policy"] = draw.choice(["compact", "delete", "compact,delete"])
        if draw.random() < 0.2:
            broker["log.retention.ms"] = draw.choice(["-1", "-7"])
        pairs.append((broker, topic))
    answers = ask(client, *pairs)
    for (broker, topic), answer in zip(pairs, answers, strict=True):
        config = LogConfig.from_properties({**broker, **topic})
        assert as_kafka(config) == answer["values"], (broker, topic)
        assert config.max_segment_ms == answer["max_segment_ms"]


LONGEST = 2**63 - 1
VALUES = ["", " 5 ", "+5", "-5", "-2", "-1", "0", "1", "9", "10", "17", "18", "22", "23", "2147483647", "2147483648"]
VALUES += [str(LONGEST), str(LONGEST + 1), str(-LONGEST), "5.0", "1_000", "0x10", "true", "TRUE", "yes", "0.5", "1.5"]
VALUES += ["none", "uncompressed", "zstd", "ZSTD", "CreateTime", "createtime", "delete", "compact, delete", "compact,"]
VALUES += ["1048575", "1048576", "13", "14", "-131072", "-131073", "delete,delete", "x"]


def test_values_are_refused_or_warned_about_where_kafka_refuses_them(client):
    cases = [
        (name, value)
        for name in LogConfig().to_properties()
        for value in VALUES
        # read from the file, and never judged here: which replicas are throttled is nothing to a log
        if not name.endswith("throttled.replicas")
    ]
    answers = ask(client, *(({}, {name: value}) for name, value in cases))
    refused_here = refused_there = 0
    for (name, value), answer in zip(cases, answers, strict=True):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", ConfigWarning)
            try:
                config = LogConfig.from_properties({name: value})
                refused = bool(caught)
            except ValueError:
                config, refused = None, True
        refused_here += refused
        refused_there += "refused" in answer
        if name == "segment.index.bytes" and value in ("9", "10", " 5 ", "+5"):
            assert config is None  # a broker starts, and fails at every append
        elif name == "retention.ms" and value == "0":
            assert config is not None
        else:
            assert refused == ("refused" in answer), (name, value, answer)
        if config is not None and not refused:
            assert as_kafka(config)[name] == answer["values"][name]
    assert refused_there > 500
    assert abs(refused_here - refused_there) <= 4


def test_keys_are_hashed_and_spread_as_kafka_does(client):
    draw = random.Random(5)
    keys = [b"", b"a", b"ab", b"abc", *(draw.randbytes(draw.randrange(70)) for _ in range(3000)), bytes(100_000)]
    (columns,) = record_slices({"key": keys, "value": keys}, max_bytes=2**30)
    for n in (1, 2, 7, 12, 1000, 2**31 - 1):
        answer = client.ask("murmur2", keys=[base64.b64encode(key).decode() for key in keys], partitions=n)
        assert hash_keys(columns.key).tolist() == answer["hashes"]
        assert Partitioner(n).assign(columns).tolist() == answer["partitions"]
        assert codec.partitions(keys, n).tolist() == answer["partitions"]
    assert len(np.unique(hash_keys(columns.key))) > 2900
