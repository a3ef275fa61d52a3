"""Options of a query: what names nothing, or makes no sense together, is refused with what there is."""

from datetime import datetime

import golden_sets
import numpy as np
import pyarrow as pa
import pytest
from refusals import fails_with

import kafkalog


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"columns": []}, "count_rows"),
        ({"topics": "nope"}, "p-multi"),
        ({"partitions": 9}, "0, 1, 2"),
        ({"partitions": -1}, "0, 1, 2"),
        ({"topics": "p-txn", "partitions": 2}, "there are 0"),
        ({"partitions": "0"}, "a list of int"),
        ({"partitions": ["0"]}, "int"),
        ({"start_offset": {("nope", 0): 3}}, "p-multi-0"),
        ({"end_offset": {"p-multi": 3}}, "(topic, partition)"),
        ({"start_offset": 2**63}, "start_offset must be"),
        ({"end_offset": 2**63 + 1}, "end_offset must be"),
    ],
)
def test_what_names_nothing_is_refused_and_what_there_is_is_shown(log_dir, options, said):
    with pytest.raises((TypeError, ValueError)) as caught:
        kafkalog.scan(log_dir, **options)
    assert said in str(caught.value)


def test_numpy_numbers_are_numbers_too(log_dir):
    one = kafkalog.scan(log_dir, topics="p-multi", partitions=np.int64(1), start_offset=np.int32(3))
    assert one.count_rows() == kafkalog.scan(log_dir / "p-multi-1", start_offset=3).count_rows() > 0


def test_the_end_behind_the_largest_offset_is_one(log_dir):
    for isolation_level in ("read_uncommitted", "read_committed"):
        scan = kafkalog.scan(log_dir, end_offset=2**63, isolation_level=isolation_level)
        assert scan.count_rows() == kafkalog.scan(log_dir, isolation_level=isolation_level).count_rows() > 0


def test_a_segment_outside_the_topics_asked_for_is_refused(log_dir):
    segment = next((log_dir / "p-multi-0").glob("*.log"))
    with pytest.raises(ValueError):
        kafkalog.scan(segment, topics="nope")


def test_limits_of_what_is_open_cannot_be_changed(log_dir):
    opened = kafkalog.open(log_dir, limits=kafkalog.Limits(max_batch_bytes=100))
    with pytest.raises(kafkalog.LimitExceededError):
        kafkalog.scan(opened).count_rows()
    with pytest.raises(ValueError):
        kafkalog.scan(opened, limits=kafkalog.Limits())


def test_a_list_of_segments_is_read_as_one_partition(log_dir):
    paths = sorted((log_dir / "p-txn-0").glob("*.log"))
    assert kafkalog.scan(paths).count_rows() == 358
    assert kafkalog.scan(paths[1:2], columns=["offset"]).head(1).column(0).to_pylist() == [16]


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"columns": ["valeu"]}, ValueError, "did you mean .value.\\?$"),
        ({"columns": "value"}, TypeError, r"columns=\['value'\]"),
        ({"columns": ["offset", "offset"]}, ValueError, "twice"),
        ({"topics": "nope"}, ValueError, "p-multi"),
        ({"start_timestamp": datetime(2023, 1, 1)}, ValueError, "naive"),
        ({"start_offset": 1.5}, TypeError, "start_offset"),
        ({"on_corruption": "ignore"}, ValueError, "'skip'"),
        ({"threads": 0}, ValueError, "threads"),
        ({"batch_size": -1}, ValueError, "batch_size"),
        ({"memory_map": "yes"}, ValueError, "memory_map"),
        ({"binary_type": pa.string()}, ValueError, "binary_view"),
        ({"wher": 1}, TypeError, "wher"),
    ],
)
def test_misuse_is_a_type_or_value_error_that_says_what_to_do(log_dir, options, error, words):
    with pytest.raises(error, match=words):
        kafkalog.read_table(log_dir, **options)


def test_a_path_that_holds_nothing_says_what_to_name(tmp_path, log_dir):
    with fails_with("not_kafka"):
        kafkalog.open(tmp_path)
    with fails_with("file_unreadable"):
        kafkalog.open(tmp_path / "absent")
    with fails_with("not_kafka"):
        kafkalog.open(log_dir / "p-multi-0" / "00000000000000000000.index")
    with pytest.raises(ValueError):
        kafkalog.open([])


def test_named_files_are_read_whole(log_dir):
    paths = sorted((log_dir / "p-delrec-0").glob("*.log"))
    whole = kafkalog.scan(log_dir / "p-delrec-0", include_deleted=True).count_rows()
    assert kafkalog.scan(paths).count_rows() == whole
    assert sum(kafkalog.scan(path).count_rows() for path in paths) == whole
    assert whole > kafkalog.scan(log_dir / "p-delrec-0").count_rows()


def test_times_before_the_latest_timestamp():
    options = {"topics": "p-multi", "columns": ["timestamp"]}
    stamps = kafkalog.read_table(golden_sets.LOG_DIR, **options)["timestamp"].cast("int64").to_pylist()
    latest = max(stamps)
    for text, start in (("end", latest), ("end-1m", latest - 60_000), (" end-2000ms ", latest - 2000)):
        found = kafkalog.scan(golden_sets.LOG_DIR, **options, start_timestamp=text).count_rows()
        assert found == sum(one >= start for one in stamps)
        before = kafkalog.scan(golden_sets.LOG_DIR, **options, end_timestamp=text).count_rows()
        assert before == len(stamps) - found
    with pytest.raises(ValueError, match="start_timestamp"):
        kafkalog.scan(golden_sets.LOG_DIR, start_timestamp="end+1h")
