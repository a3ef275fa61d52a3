"""What Spark reads is what was written, in the types of its own Kafka source, however the work is cut."""

from datetime import UTC, datetime, timedelta

import golden_sets
import pytest

import kafkalog
import kafkalog.spark
from kafkalog import format as kf
from kafkalog.spark import types

pytestmark = pytest.mark.spark

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def rows_of(frame):
    """Rows by topic, partition and offset; timestamps as milliseconds, headers as pairs."""
    table = frame.toArrow()
    columns = {name: table.column(name).to_pylist() for name in table.schema.names}
    if "timestamp" in columns:
        columns["timestamp"] = [
            None if moment is None else (moment - EPOCH) // timedelta(milliseconds=1) for moment in columns["timestamp"]
        ]
    if "headers" in columns:
        columns["headers"] = [
            None if headers is None else [(one["key"], one["value"]) for one in headers]
            for headers in columns["headers"]
        ]
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    rows.sort(key=lambda row: (row["topic"], row["partition"], row["offset"]))
    return [tuple(row.values()) for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("name", golden_sets.SETS)
def test_every_golden_topic_is_what_a_consumer_read(source, name, level):
    root = golden_sets.unpacked(name)
    got = {}
    topics = ",".join(golden_sets.truth_topics(name))  # the internal ones have to be named
    frame = source(root, subscribe=topics, includeHeaders=True, kafka__isolation__level=level, taskBytes="256k")
    assert frame.schema == types.spark_schema((*types.KAFKA_COLUMNS, "headers"))
    for row in rows_of(frame):
        got.setdefault(row[2], []).append(row)
    expected = {}
    for topic in golden_sets.truth_topics(name):
        records = golden_sets.truth(name, topic, level)
        expected[topic] = [
            (
                record["key"],
                record["value"],
                topic,
                record["partition"],
                record["offset"],
                record["timestamp"],
                record["timestamp_type"],
                [(key.decode(errors="replace"), value) for key, value in record["headers"]] or None,
            )
            for record in records
        ]
    assert {topic for topic, rows in expected.items() if rows} == set(got)
    for topic, rows in got.items():
        assert [without_timestamp(row) for row in rows] == [without_timestamp(row) for row in expected[topic]], topic
        for mine, theirs in zip(rows, expected[topic], strict=True):
            # a v0 record has no timestamp, and a consumer shows 0; a v1 record of 1970 is shown like that, too
            if theirs[6] == -1:
                assert mine[5:7] in ((None, -1), (0, 0))
            else:
                assert mine[5:7] == theirs[5:7]


def without_timestamp(row):
    return (*row[:5], *row[7:])


@pytest.mark.slow
def test_filter_union_and_join_over_one_frame_count_right(source, log):
    frame = source(log, taskBytes="128k")
    assert frame.rdd.getNumPartitions() > 2
    assert frame.filter("partition = 1").count() == 1000
    assert frame.count() == 4000
    one, two = frame.filter("partition = 1 and offset < 700"), frame.filter("partition = 2")
    counts = {row["partition"]: row["count"] for row in one.union(two).groupBy("partition").count().collect()}
    assert counts == {1: 700, 2: 1000}
    assert one.join(frame, ["partition", "offset"]).count() == 700
    assert frame.alias("a").join(frame.alias("b"), ["topic", "partition", "offset"]).count() == 4000


@pytest.mark.slow
def test_a_users_schema_prunes_what_is_read(source, log):
    frame = source(log, "OFFSET bigint, partition int")
    assert frame.columns == ["OFFSET", "partition"]
    assert frame.selectExpr("sum(OFFSET)", "max(partition)").first() == (4 * 999 * 500, 3)
    with pytest.raises(Exception, match="column offset"):
        source(log, "offset int").count()
    with pytest.raises(Exception, match="nothing"):
        source(log, "nothing int").count()


@pytest.mark.slow
def test_columns_may_be_those_of_batches_and_files(source, log):
    names = "segment,batch_position,batch_base_offset,compression,leader_epoch,producer_id,offset"
    frame = source(log, columns=names, assign='{"t":[2]}')
    assert frame.columns == names.split(",")
    row = frame.filter("offset = 511").first()
    table = kafkalog.read_table(log / "t-2", columns=names.split(","), filters=[("offset", "==", 511)])
    assert row.asDict() == table.to_pylist()[0]


def test_filters_are_judged_before_records_are_copied(source, log):
    frame = source(log, filters='[["key == k7"], ["offset >= 998", "partition == 3"]]')
    assert sorted((row.partition, row.offset) for row in frame.collect()) == [
        *((number, 7) for number in range(4)),
        (3, 998),
        (3, 999),
    ]


def test_timestamps_are_the_same_instants_in_any_zone(spark, source, log):
    frame = source(log, assign='{"t":[0]}', endingOffsets='{"t":{"0":2}}')
    expected = [1_000_000_000.0, 1_000_000_000.001]
    for zone in ("UTC", "America/New_York"):
        spark.conf.set("spark.sql.session.timeZone", zone)
        try:
            assert sorted(row[0] for row in frame.selectExpr("cast(timestamp as double)").collect()) == expected
        finally:
            spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_nothing_to_read_is_an_empty_frame(source, tmp_path):
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / kf.segment_file_name(0)).write_bytes(b"")
    frame = source(tmp_path)
    assert frame.count() == 0
    assert frame.columns == list(types.KAFKA_COLUMNS)


def test_several_paths_make_one_log_dir(spark, source, log):
    frame = spark.read.format("kafkalog").load([str(log / "t-0"), str(log / "t-3")])
    assert {row["partition"]: row["count"] for row in frame.groupBy("partition").count().collect()} == {
        0: 1000,
        3: 1000,
    }


def test_a_path_that_is_no_log_is_said_to_be_none(source, tmp_path):
    with pytest.raises(Exception, match=f"{tmp_path}.*not_kafka"):
        source(tmp_path).count()
    with pytest.raises(Exception, match="no such"):
        source(tmp_path / "nowhere").count()
