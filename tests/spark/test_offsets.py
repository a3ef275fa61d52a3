"""Where a query begins and ends, and what is gone from between."""

import golden_sets
import pytest
from effort import thinned

import kafkalog
import kafkalog.spark

pytestmark = pytest.mark.spark


@pytest.mark.parametrize(
    ("options", "offsets"),
    [
        ({"startingOffsets": '{"t":{"0":990,"1":-2,"2":1000,"3":5}}'}, {0: (990, 999), 1: (0, 999), 3: (5, 999)}),
        ({"endingOffsets": '{"t":{"0":3,"1":0,"2":-1,"3":555}}'}, {0: (0, 2), 2: (0, 999), 3: (0, 554)}),
        # partitions that are not named begin and end at the defaults
        (
            {"startingOffsets": '{"t":{"0":990}}', "endingOffsets": '{"t":{"1":7}}'},
            {0: (990, 999), 1: (0, 6), 2: (0, 999), 3: (0, 999)},
        ),
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
        ({"startingTimestamp": "end-5ms", "endingTimestamp": "end-2ms"}, dict.fromkeys(range(4), (994, 996))),
        ({"startingTimestamp": 2 * 10**12, "startingOffsetsByTimestampStrategy": "latest"}, {}),
        ({"subscribePattern": "t", "startingOffsets": "earliest"}, dict.fromkeys(range(4), (0, 999))),
    ],
)
def test_offsets_and_timestamps_say_where_to_begin_and_end(source, log, options, offsets):
    from pyspark.sql import functions as F

    frame = source(log, "partition int, offset bigint", **options)
    rows = frame.groupBy("partition").agg(F.min("offset"), F.max("offset")).collect()
    assert {row[0]: (row[1], row[2]) for row in rows} == offsets


@pytest.mark.parametrize(
    ("options", "message"),
    thinned(
        [
            ({"subscribe": "t,u"}, r"not in .*: u; there are t"),
            ({"subscribePattern": "^u"}, r"not in .*: a topic that '\^u' matches; there are t"),
            ({"assign": '{"t":[0,9]}'}, r"t-9"),
            ({"startingOffsets": '{"t":{"0":1},"u":{"0":1}}'}, r"names u-0, which the query does not read"),
            ({"startingTimestamp": 2 * 10**12}, r"No offset matched from request of topic-partition t-0"),
            ({"assign": '{"t":[0]}', "startingOffsets": '{"t":{"0":1001}}'}, r"start offset 1001 is greater than"),
            (
                {"assign": '{"t":[0]}', "endingOffsets": '{"t":{"0":1001}}'},
                r"Could not read records in offset \[0, 1001\)",
            ),
            ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
            ({"kafka__bootstrap__servers": "x:9092"}, "uses no broker"),
        ],
        5,
    ),
)
def test_what_cannot_be_read_is_refused(source, log, options, message):
    with pytest.raises(Exception, match=message):
        source(log, **options).count()


@pytest.mark.slow
def test_records_below_the_log_start_are_data_loss_unless_that_is_allowed(source):
    root = golden_sets.LOG_DIR
    start = kafkalog.open(root)["p-delrec", 0].log_start_offset
    options = {"subscribe": "p-delrec", "startingOffsets": '{"p-delrec":{"0":1}}'}
    with pytest.raises(Exception, match="p-delrec-0"):
        source(root, **options).count()
    frame = source(root, failOnDataLoss=False, **options)
    assert frame.agg({"offset": "min"}).first()[0] == start
