"""Names of directories and files, as Kafka's own tests have them."""

import pytest

from kafkalog import format as kf
from kafkalog.format import (
    TopicPartition,
    codec_name,
    is_fatal_name,
    parse_base_offset,
    parse_partition_directory,
    segment_file_name,
)
from kafkalog.log.log_dir import logs_among

ID = "c9eefd1639d646409599f16e98f3d811"


@pytest.mark.parametrize(
    ("name", "topic", "partition", "kind"),
    [
        ("orders-0", "orders", 0, None),
        ("a-b-c-17", "a-b-c", 17, None),
        ("with.dots_and-1", "with.dots_and", 1, None),
        ("__cluster_metadata-0", "__cluster_metadata", 0, None),
        ("foo.bar-topic-10", "foo.bar-topic", 10, None),
        (f"orders-0.{ID}-delete", "orders", 0, "delete"),
        (f"foo.bar-topic-10.{ID}-delete", "foo.bar-topic", 10, "delete"),
        (f"orders-3.{ID}-future", "orders", 3, "future"),
        (f"orders-3.{ID}-stray", "orders", 3, "stray"),
        (f"{'x' * 249}-2147483647", "x" * 249, 2147483647, None),
    ],
)
def test_partition_directories(name, topic, partition, kind):
    directory = parse_partition_directory(name)
    assert directory is not None
    assert directory.topic_partition == TopicPartition(topic, partition)
    assert directory.kind == kind


@pytest.mark.parametrize(
    "name",
    [
        *("", "orders", "orders-", "-0", "orders-x", "orders-2147483648", "orders-0.tmp", ".kafkalog-staging"),
        *("t-0.tmp", "snap", "lost+found", "a/b-0", "..-0", f"{'x' * 250}-0", "orders-1e3", "remote-log-index-cache"),
    ],
)
def test_what_is_no_partition_directory(name):
    assert parse_partition_directory(name) is None


@pytest.mark.parametrize(
    ("name", "offset"),
    [
        ("00000000000000000000.log", 0),
        ("00000000000000000430.snapshot", 430),
        ("09223372036854775807.log", 2**63 - 1),
        ("00000000000000000042.log.deleted", 42),
        ("٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٤٣٠.log", 430),
        ("server.log", None),
        (".log", None),
        ("09223372036854775808.log", None),
        ("-0000000000000000001.log", None),
    ],
)
def test_offsets_in_file_names(name, offset):
    assert parse_base_offset(name) == offset


@pytest.mark.parametrize(
    ("name", "is_fatal"),
    [
        *((f"foo{suffix}", True) for suffix in (".log", ".index", ".timeindex", ".txnindex", ".snapshot")),
        *((name, True) for name in ("foo.log.swap", "foo.cleaned", ".log", "-.log", "1e3.index", "1 2.log")),
        ("09223372036854775808.log", True),
        ("00000000000000000042 (copy).index", True),
        *((f"00000000000000000042.{suffix}", False) for suffix in ("log", "index", "snapshot", "log.swap")),
        *((name, False) for name in ("42.log", "+42.log", "-0000000000000000001.log", f"{'0' * 30}42.timeindex")),
        ("٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٤٣٠.log", False),
        *((name, False) for name in ("foo.log.deleted", "00000000000000000042.log.cleaned", "foo.txt", "foo.log.gz")),
        *((name, False) for name in ("leader-epoch-checkpoint", "partition.metadata", "foo.index.kafkalog-backup")),
        *((name, False) for name in ("00000000000000000042-0000000001.checkpoint", "log", "index")),
    ],
)
def test_names_that_end_a_broker(name, is_fatal):
    assert is_fatal_name(name) is is_fatal


def test_names_written_are_ascii_and_read_back():
    assert segment_file_name(430) == "00000000000000000430.log"
    assert segment_file_name(430, ".index") == "00000000000000000430.index"
    assert parse_base_offset(segment_file_name(2**62)) == 2**62


def test_codec_names():
    assert [codec_name(codec) for codec in range(8)][:5] == ["none", "gzip", "snappy", "lz4", "zstd"]
    assert codec_name(6) == "unknown(6)"


def test_each_checkpoint_of_offsets_is_of_starts_or_not_past_the_end_of_a_log():
    assert sorted([kf.LOG_START_OFFSET_CHECKPOINT, *kf.BOUNDED_CHECKPOINTS]) == sorted(kf.OFFSET_CHECKPOINTS)


@pytest.mark.parametrize("name", [*kf.LOG_DIR_FILES, *kf.OFFSET_CHECKPOINTS])
def test_a_glob_in_a_log_dir_leaves_out_the_files_next_to_its_partitions(name, tmp_path):
    (tmp_path / "t-0").mkdir()
    (tmp_path / name).touch()
    assert logs_among([tmp_path / "t-0", tmp_path / name]) == [tmp_path / "t-0"]
