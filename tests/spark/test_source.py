"""What Spark reads is what was written, in the types of its own Kafka source, however the work is cut."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import builder
import golden_sets
import pytest

import kafkalog
import kafkalog.spark
from kafkalog import format as kf
from kafkalog.indexes.index_files import OffsetIndex
from kafkalog.scanning.planning import plan
from kafkalog.spark import types

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@pytest.fixture
def source(spark: SparkSession) -> Any:
    """``source(path, option=value, ...)``: a DataFrame."""
    kafkalog.spark.register(spark)

    def load(path: Path | str, schema: str | None = None, **options: object) -> DataFrame:
        reader = spark.read.format("kafkalog")
        if schema is not None:
            reader = reader.schema(schema)
        return reader.options(**{name.replace("__", "."): str(value) for name, value in options.items()}).load(
            str(path)
        )

    return load


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log dir of one topic, four partitions of two segments, 1000 records each."""
    root = tmp_path_factory.mktemp("log")
    for number in range(4):
        path = root / f"t-{number}"
        path.mkdir()
        for base in (0, 500):
            batches = []
            for first in range(base, base + 500, 10):
                records = [builder.record_v2(i, i, b"k%d" % (first + i), b"v" * 50) for i in range(10)]
                batches.append(
                    builder.batch_v2(
                        records,
                        base_offset=first,
                        base_timestamp=10**12 + 1000 * first,
                        max_timestamp=10**12 + 1000 * first + 9,
                    )
                )
            (path / kf.segment_file_name(base)).write_bytes(b"".join(batches))
        for segment in kafkalog.Partition(path).segments:
            built = OffsetIndex.build(segment.batches, segment.base_offset, index_interval_bytes=1024)
            segment.path.with_suffix(".index").write_bytes(built.entries.tobytes())
    return root


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
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


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize(
    "name", [pytest.param(one, marks=[] if one == "k28" else pytest.mark.slow) for one in golden_sets.SETS]
)
def test_every_golden_topic_is_what_a_consumer_read(source: Any, name: str, level: str) -> None:
    root = golden_sets.unpacked(name)
    got: dict[str, list[tuple[Any, ...]]] = {}
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


def without_timestamp(row: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*row[:5], *row[7:])


@pytest.mark.slow
def test_filter_union_and_join_over_one_frame_count_right(source: Any, log: Path) -> None:
    frame = source(log, taskBytes="128k")
    assert frame.rdd.getNumPartitions() > 2
    assert frame.filter("partition = 1").count() == 1000
    assert frame.count() == 4000
    one, two = frame.filter("partition = 1 and offset < 700"), frame.filter("partition = 2")
    counts = {row["partition"]: row["count"] for row in one.union(two).groupBy("partition").count().collect()}
    assert counts == {1: 700, 2: 1000}
    assert one.join(frame, ["partition", "offset"]).count() == 700
    assert frame.alias("a").join(frame.alias("b"), ["topic", "partition", "offset"]).count() == 4000


def test_a_users_schema_prunes_what_is_read(source: Any, log: Path) -> None:
    frame = source(log, "OFFSET bigint, partition int")
    assert frame.columns == ["OFFSET", "partition"]
    assert frame.selectExpr("sum(OFFSET)", "max(partition)").first() == (4 * 999 * 500, 3)
    with pytest.raises(Exception, match="column offset is of type bigint, not int"):
        source(log, "offset int").count()
    with pytest.raises(Exception, match="no column 'nothing'"):
        source(log, "nothing int").count()


def test_columns_may_be_those_of_batches_and_files(source: Any, log: Path) -> None:
    names = "segment,batch_position,batch_base_offset,compression,leader_epoch,producer_id,offset"
    frame = source(log, columns=names, assign='{"t":[2]}')
    assert frame.columns == names.split(",")
    row = frame.filter("offset = 511").first()
    table = kafkalog.read_table(log / "t-2", columns=names.split(","), filters=[("offset", "==", 511)])
    assert row.asDict() == table.to_pylist()[0]


def test_filters_are_judged_before_records_are_copied(source: Any, log: Path) -> None:
    frame = source(log, filters='[[["key", "==", "k7"]], [["offset", ">=", 998], ["partition", "==", 3]]]')
    assert sorted((row.partition, row.offset) for row in frame.collect()) == [
        *((number, 7) for number in range(4)),
        (3, 998),
        (3, 999),
    ]


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        ({"startingOffsets": '{"t":{"0":990,"1":-2,"2":1000,"3":5}}'}, {0: (990, 999), 1: (0, 999), 3: (5, 999)}),
        ({"endingOffsets": '{"t":{"0":3,"1":0,"2":-1,"3":555}}'}, {0: (0, 2), 2: (0, 999), 3: (0, 554)}),
        (
            {"startingTimestamp": 10**12 + 500_004, "endingTimestamp": 10**12 + 500_006},
            dict.fromkeys(range(4), (504, 505)),
        ),
        (
            {
                "assign": '{"t":[1]}',
                "startingOffsetsByTimestamp": f'{{"t":{{"1":{10**12 + 990_001}}}}}',
                "endingTimestamp": 2 * 10**12,
            },
            {1: (991, 999)},
        ),
        ({"startingTimestamp": 2 * 10**12, "startingOffsetsByTimestampStrategy": "latest"}, {}),
        ({"subscribePattern": "t", "startingOffsets": "earliest"}, dict.fromkeys(range(4), (0, 999))),
    ],
)
def test_offsets_and_timestamps_say_where_to_begin_and_end(
    source: Any, log: Path, options: dict[str, Any], offsets: dict[int, tuple[int, int]]
) -> None:
    from pyspark.sql import functions as F

    frame = source(log, "partition int, offset bigint", **options)
    rows = frame.groupBy("partition").agg(F.min("offset"), F.max("offset")).collect()
    assert {row[0]: (row[1], row[2]) for row in rows} == offsets


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "t,u"}, r"not in .*: u; there are t"),
        ({"assign": '{"t":[0,9]}'}, r"t-9"),
        ({"startingOffsets": '{"t":{"0":1}}'}, r"you must specify all TopicPartitions"),
        ({"startingTimestamp": 2 * 10**12}, r"No offset matched from request of topic-partition t-0"),
        ({"assign": '{"t":[0]}', "startingOffsets": '{"t":{"0":1001}}'}, r"start offset 1001 is greater than"),
        ({"assign": '{"t":[0]}', "endingOffsets": '{"t":{"0":1001}}'}, r"Could not read records in offset \[0, 1001\)"),
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        ({"kafka__bootstrap__servers": "x:9092"}, "asks no broker"),
    ],
)
def test_what_cannot_be_read_is_refused(source: Any, log: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        source(log, **options).count()


def test_the_number_of_tasks_follows_bytes_and_what_is_asked_for(source: Any, log: Path) -> None:
    n_bytes = plan(log).n_bytes
    assert source(log).rdd.getNumPartitions() == 1
    assert source(log, minPartitions=7).rdd.getNumPartitions() >= 7
    assert source(log, maxRecordsPerPartition=600).rdd.getNumPartitions() == 8
    assert source(log, taskBytes=n_bytes // 4).rdd.getNumPartitions() in (4, 5, 6, 7, 8)
    largest = source(log, "partition int", maxRecordsPerPartition=600).selectExpr("spark_partition_id() p").groupBy("p")
    assert max(row["count"] for row in largest.count().collect()) <= 600
    assert source(log, maxRecordsPerPartition=600).count() == 4000


def test_records_below_the_log_start_are_data_loss_unless_that_is_allowed(source: Any) -> None:
    root = golden_sets.LOG_DIR
    start = kafkalog.open(root)["p-delrec", 0].log_start_offset
    options = {"subscribe": "p-delrec", "startingOffsets": '{"p-delrec":{"0":1}}'}
    with pytest.raises(Exception, match=f"Starting offset for p-delrec-0 was 1 but the log starts at {start}"):
        source(root, **options).count()
    frame = source(root, failOnDataLoss=False, **options)
    assert frame.agg({"offset": "min"}).first()[0] == start


def test_a_segment_that_goes_after_planning_is_data_loss_unless_that_is_allowed(
    source: Any, log: Path, tmp_path: Path
) -> None:
    root = Path(shutil.copytree(log, tmp_path / "log"))
    strict, lax = source(root), source(root, failOnDataLoss=False)
    assert (strict.count(), lax.count()) == (4000, 4000)
    gone = root / "t-1" / kf.segment_file_name(0)
    gone.unlink()
    with pytest.raises(Exception, match=str(gone)):
        strict.count()
    assert lax.count() == 3500


def test_damage_in_one_segment_names_it_and_leaves_the_others_alone(source: Any, log: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(log, tmp_path / "log"))
    path = root / "t-2" / kf.segment_file_name(500)
    data = bytearray(path.read_bytes())
    position, _ = builder.batch_positions(bytes(data))[30]
    data[position + 70] ^= 1
    path.write_bytes(data)
    with pytest.raises(Exception, match=f"{path}@{position} base_offset=800: crc_mismatch"):
        source(root).count()
    skipped = source(root, onCorruption="skip", taskBytes="64k")
    assert skipped.count() == 3990
    assert skipped.filter("partition = 2 and offset between 790 and 820").count() == 21
    counts = source(root, onCorruption="stop").groupBy("partition").count().collect()
    assert {row["partition"]: row["count"] for row in counts} == {0: 1000, 1: 1000, 2: 800, 3: 1000}
    assert source(root, filters='[["partition", "!=", 2]]').count() == 3000


def test_timestamps_are_the_same_instants_in_any_zone(spark: SparkSession, source: Any, log: Path) -> None:
    frame = source(log, assign='{"t":[0]}', endingOffsets='{"t":{"0":2}}')
    expected = [1_000_000_000.0, 1_000_000_000.001]
    for zone in ("UTC", "America/New_York"):
        spark.conf.set("spark.sql.session.timeZone", zone)
        try:
            assert sorted(row[0] for row in frame.selectExpr("cast(timestamp as double)").collect()) == expected
        finally:
            spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_nothing_to_read_is_an_empty_frame(source: Any, tmp_path: Path) -> None:
    (tmp_path / "t-0").mkdir()
    (tmp_path / "t-0" / kf.segment_file_name(0)).write_bytes(b"")
    frame = source(tmp_path)
    assert frame.count() == 0
    assert frame.columns == list(types.KAFKA_COLUMNS)


def test_several_paths_make_one_log_dir(spark: SparkSession, source: Any, log: Path) -> None:
    frame = spark.read.format("kafkalog").load([str(log / "t-0"), str(log / "t-3")])
    assert {row["partition"]: row["count"] for row in frame.groupBy("partition").count().collect()} == {
        0: 1000,
        3: 1000,
    }


def test_a_path_that_is_no_log_is_said_to_be_none(source: Any, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=f"{tmp_path}.*no .log files"):
        source(tmp_path).count()
    with pytest.raises(Exception, match="no such file or directory"):
        source(tmp_path / "nowhere").count()
