"""A topic's settings: Kafka's names, defaults, synonyms, precedence and ranges."""

import warnings

import pytest

from kafkalog import ConfigWarning, LogConfig, ReadError, convert
from kafkalog.state.log_config import checked_config

HOUR = 3_600_000


def test_every_setting_survives_a_round_trip_through_properties():
    config = LogConfig(
        cleanup_policy="compact, delete",
        preallocate=True,
        min_cleanable_dirty_ratio=0.25,
        segment_ms=5,
        follower_replication_throttled_replicas=("1:2", "3:4"),
    )
    assert config.cleanup_policy == ("compact", "delete")
    assert LogConfig.from_properties(config.to_properties()) == config
    assert LogConfig.from_properties(LogConfig().to_properties()) == LogConfig()


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"segment.bytes": "13"}, r"segment.bytes=13: must be 14 to 2147483647"),
        ({"log.segment.bytes": "2147483648"}, r"log.segment.bytes=2147483648: must be 14 to 2147483647"),
        ({"segment.bytes": "1e9"}, "whole number"),
        ({"segment.bytes": "1_000_000_000"}, "whole number"),
        ({"segment.bytes": ""}, "whole number"),
        ({"segment.ms": "0"}, "1 to 9223372036854775807"),
        ({"log.roll.hours": "0"}, "log.roll.hours"),
        ({"log.roll.hours": "9000000000000000"}, "log.roll.hours"),
        ({"log.retention.ms": "0"}, "no limit"),
        ({"retention.ms": "-2"}, "-1 to"),
        ({"segment.index.bytes": "11"}, "12 to"),
        ({"compression.gzip.level": "0"}, "1 to 9, or -1"),
        ({"compression.lz4.level": "18"}, "1 to 17"),
        ({"compression.zstd.level": "23"}, "-131072 to 22"),
        ({"compression.type": "none"}, "uncompressed, zstd"),
        ({"message.timestamp.type": "createtime"}, "CreateTime, LogAppendTime"),
        ({"cleanup.policy": "compact,"}, "compact, delete"),
        ({"cleanup.policy": "squash"}, "compact, delete"),
        ({"preallocate": "yes"}, "true or false"),
        ({"min.cleanable.dirty.ratio": "nan"}, "0 to 1"),
        ({"min.cleanable.dirty.ratio": "much"}, "a number"),
        ({"min.compaction.lag.ms": "5", "max.compaction.lag.ms": "4"}, "larger than"),
    ],
)
def test_an_impossible_value_is_refused_with_its_range(properties, message):
    with pytest.raises(ValueError, match=message):
        LogConfig.from_properties(properties)


def test_a_value_of_another_type_is_refused():
    for name, value in [
        ("segment_bytes", True),
        ("segment_bytes", 1.5e6),
        ("preallocate", 1),
        ("compression_type", 4),
        ("cleanup_policy", b"delete"),
        ("cleanup_policy", [1]),
        ("min_cleanable_dirty_ratio", None),
    ]:
        with pytest.raises(TypeError, match=name.replace("_", ".")):
            LogConfig(**{name: value})
    with pytest.raises(TypeError):
        LogConfig.from_properties({1: "x"})


def test_a_value_that_only_old_brokers_take_is_warned_about():
    with pytest.warns(ConfigWarning, match="segment.bytes=1048575"):
        assert LogConfig.from_properties({"log.segment.bytes": "1048575"}).segment_bytes == 1_048_575
    assert LogConfig(segment_bytes=14).segment_bytes == 14


def test_a_misspelt_name_is_warned_about_and_those_of_a_broker_are_not():
    with pytest.warns(ConfigWarning, match="segment.byte") as caught:
        LogConfig.from_properties({"log.segment.byte": "1", "node.id": "1", "listener.name.x.ssl.key.password": "y"})
    assert len(caught) == 1
    assert caught[0].filename == __file__
    known = ("log.dirs", "message.format.version", "log.message.format.version", "zookeeper.connect", "num.partitions")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert LogConfig.from_properties(dict.fromkeys(known, "x")) == LogConfig()


def test_a_properties_file_is_read_as_java_reads_it(tmp_path):
    file = tmp_path / "server.properties"
    file.write_bytes(
        b"# comment\n! another\n\n  log.segment.bytes = 52428800\r\nlog.roll.ms:\t500\nlog.cleanup.policy compact,\\\n"
        b"    delete\nlog.retention\\.hours=1\ncompression.type=\\u007a\\std\nlog.preallocate=false\r"
        b"log.preallocate=true\nlog.dirs=/a\\\\\nbroker.rack=\xe4\nnode.id\\"
    )
    config = LogConfig.from_properties(file)
    assert (config.segment_bytes, config.segment_ms, config.retention_ms) == (52_428_800, 500, HOUR)
    assert config.cleanup_policy == ("compact", "delete")
    assert config.preallocate
    assert LogConfig.from_properties(str(file)) == config


def test_a_properties_file_that_cannot_be_read_is_our_error(tmp_path):
    with pytest.raises(ReadError):
        LogConfig.from_properties(tmp_path / "absent")
    with pytest.raises(ReadError):
        LogConfig.from_properties(tmp_path)


def test_a_compaction_lag_shortens_segments_of_compacted_topics_alone():
    assert LogConfig(max_compaction_lag_ms=7).max_segment_ms == 168 * HOUR
    compacted = LogConfig(max_compaction_lag_ms=7, cleanup_policy=("compact",))
    assert (compacted.is_compacted, compacted.max_segment_ms) == (True, 7)


def test_what_is_no_config_is_refused_with_the_way_to_make_one(tmp_path):
    assert checked_config(None) == LogConfig()
    assert checked_config(LogConfig(segment_ms=5)).segment_ms == 5
    for wrong in ({"segment.bytes": 1}, "server.properties", 5):
        with pytest.raises(TypeError, match="from_properties"):
            checked_config(wrong)
        with pytest.raises(TypeError, match="LogConfig"):
            convert("tests/golden/log_dir/p-multi-0", tmp_path / "p-multi-0", config=wrong)
    assert list(tmp_path.iterdir()) == []
