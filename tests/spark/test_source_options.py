"""Options mean what they mean to Spark's Kafka source, and what is wrong with one is said."""

import os

import pytest

from kafkalog import format as kf
from kafkalog.spark.source_options import EARLIEST, LATEST, Bound, parse_options

pytestmark = pytest.mark.spark

A0 = kf.TopicPartition("a", 0)


def parse(**options):
    return parse_options({"path": "/log", **{name.replace("__", "."): value for name, value in options.items()}})


def test_without_options_everything_is_read_but_internal_topics():
    options = parse()
    assert (options.starting, options.ending) == (Bound(EARLIEST), Bound(LATEST))
    assert options.fail_on_data_loss
    assert options.topics.wants(A0)
    assert not options.topics.wants(kf.TopicPartition("__consumer_offsets", 3))
    assert parse(subscribe="__consumer_offsets").topics.wants(kf.TopicPartition("__consumer_offsets", 3))
    assert parse(internal="true", subscribePattern="__.*").topics.wants(kf.TopicPartition("__consumer_offsets", 3))
    for path in ("/log/__consumer_offsets-3", f"/log/__consumer_offsets-3/{0:020d}.log"):
        assert parse(path=path).topics.wants(kf.TopicPartition("__consumer_offsets", 3))


def test_topics_mean_what_subscribe_means():
    for name in ("topic", "topics", "subscribe"):
        assert parse(**{name: "a,b"}).topics == parse(subscribe="a,b").topics
    with pytest.raises(ValueError, match="subscribe, which is there twice"):
        parse(topics="a", subscribe="a")
    with pytest.raises(ValueError, match=r"no option 'nonsense'; there are (\w+, ){8}\.\.\.$"):
        parse(nonsense="a")


def test_a_path_may_be_a_url_of_a_local_file():
    assert parse(path="/a:b").paths == ("/a:b",)
    assert parse(path="logs/t-0").paths == (os.path.abspath("logs/t-0"),)
    assert parse(paths='["file:///a%20b", "file:/c"]').paths == ("/a b", "/c")
    assert parse(path="/of/spark", log_dir="/log").paths == ("/log",)


@pytest.mark.parametrize(
    ("options", "topics"),
    [
        ({"subscribe": " a , b,"}, {"a", "b"}),
        ({"subscribePattern": "bc|^b"}, {"b", "abc"}),
        ({"subscribePattern": "a"}, {"a", "ab", "abc"}),
        ({"subscribePattern": "^a$"}, {"a"}),
        ({"SUBSCRIBEPATTERN": ".*b.*"}, {"ab", "b", "abc"}),
        ({"assign": '{"a":[0],"b":[7]}'}, {"a"}),
    ],
)
def test_topics_are_chosen_by_name_by_a_pattern_of_part_of_the_name_or_one_by_one(options, topics):
    wants = parse(**options).topics.wants
    assert {name for name in ("a", "ab", "b", "abc", "c") if wants(kf.TopicPartition(name, 0))} == topics


def test_a_timestamp_goes_before_timestamps_and_those_before_offsets():
    both = {"startingOffsets": '{"a":{"0":5}}', "startingOffsetsByTimestamp": '{"a":{"0":1000}}'}
    assert parse(**both).starting == Bound(timestamps={A0: 1000})
    assert parse(**both, startingTimestamp="7").starting == Bound(timestamps=7)
    assert parse(startingOffsets=both["startingOffsets"]).starting == Bound({A0: 5})
    ending = {name.replace("starting", "ending"): value for name, value in both.items()}
    assert parse(**ending).ending == Bound(timestamps={A0: 1000})
    assert parse(endingTimestamp="7", **ending).ending == Bound(timestamps=7)


def test_names_and_values_are_read_whatever_their_case():
    options = parse(STARTINGOFFSETS="Earliest", FailOnDataLoss="FALSE", kafka__isolation__level="read_committed")
    assert options.starting == Bound(EARLIEST)
    assert not options.fail_on_data_loss
    assert options.planning["isolation_level"] == "read_committed"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"subscribe": "a", "assign": "{}"}, "only one of subscribe, subscribePattern and assign"),
        ({"assign": "a"}, "Expected e.g."),
        ({"subscribe": " , "}, "subscribe is empty"),
        ({"subscribePattern": " "}, "subscribePattern is empty"),
        ({"subscribePattern": "("}, "no regular expression"),
        ({"minPartitions": "0"}, "minPartitions must be"),
        ({"maxRecordsPerPartition": "x"}, "maxRecordsPerPartition must be"),
        ({"startingOffsets": "{x"}, 'Expected e.g. {"topicA":{"0":23,"1":-1},"topicB":{"0":-2}}, got {x'),
        ({"startingOffsets": '{"a":{"0":true}}'}, "Expected e.g."),
        ({"startingOffsets": '{"a":{"-1":0}}'}, "Expected e.g."),
        ({"startingTimestamp": "today"}, "startingTimestamp: expected milliseconds"),
        ({"assign": '{"a":0}'}, 'Expected e.g. {"topicA":[0,1],"topicB":[0,1]}, got {"a":0}'),
        ({"kafka.bootstrap.servers": "x"}, "uses no broker"),
        ({"kafka.ssl.truststore.location": "x"}, "for Kafka clients"),
        ({"groupIdPrefix": "x"}, "uses no broker"),
        ({"startingOffset": "x"}, "did you mean startingOffsets?"),
        ({"kafka.isolation.level": "x"}, "kafka.isolation.level must be"),
        ({"failOnDataLoss": "x"}, "failOnDataLoss must be true or false"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay: expected a duration such as 250ms, 30s, 15m or 1h, not 'soon'"),
        ({"minOffsetsPerTrigger": "0"}, "minOffsetsPerTrigger must be"),
        ({"columns": "key,nothing"}, "no column 'nothing'"),
        ({"columns": " "}, "columns is empty"),
        ({"filters": "key"}, "COLUMN OP VALUE"),
        ({"filters": '[["offset", ">", 5]]'}, "COLUMN OP VALUE"),
        ({"filters": '{"offset": 5}'}, "Expected e.g."),
        ({"filters": "[5]"}, "Expected e.g."),
        ({"filters": "partition == x"}, "a whole number"),
        ({"onCorruption": "x"}, "onCorruption must be"),
        ({"taskBytes": "0"}, "number of bytes"),
        ({"paths": "x"}, "paths"),
        ({"path": "s3://key:secret@bucket/log"}, "user info"),
        (
            {"path": "s3://bucket/log", "storage.endpiont": "x"},
            "no option 'storage.endpiont'; did you mean",
        ),
        ({"path": "s3://bucket/log", "storage.secret_access_key": "x"}, "this credential"),
        ({"path": "dbfs:/backup/kafka"}, "mounted on every node, such as /dbfs/backup/kafka"),
        ({"path": "hdfs:/backup/kafka"}, "mounted on every node, such as /mnt/hdfs/backup/kafka"),
        ({"path": "/backup/kafka/orders-*"}, "Name the log dir, and choose topics by name"),
    ],
)
def test_what_is_wrong_is_said(options, message):
    with pytest.raises(ValueError) as raised:
        parse(**options)
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"startingOffsets": "latest"}, "starting offset can't be latest for batch queries on Kafka"),
        ({"endingOffsets": "earliest"}, "ending offset can't be earliest for batch queries on Kafka"),
        ({"startingOffsets": '{"a":{"0":-1}}'}, "starting offset can't be latest"),
        ({"endingOffsets": '{"a":{"0":-2}}'}, "ending offset can't be earliest"),
    ],
)
def test_a_batch_query_has_to_begin_before_the_end(options, message):
    with pytest.raises(ValueError, match=message):
        parse(**options).check_batch()
    if "startingOffsets" in options:
        parse(**options).check_stream()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"endingOffsets": "latest"}, "endingoffsets is not valid in streaming"),
        ({"endingTimestamp": "1"}, "endingtimestamp is not valid in streaming"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "minOffsetsPerTrigger 5 is higher"),
    ],
)
def test_what_is_not_for_streams_is_refused_for_them_alone(options, message):
    with pytest.raises(ValueError, match=message):
        parse(**options).check_stream()
    parse(**options).check_batch()


def test_filters_may_be_text_as_on_the_command_line():
    assert parse(filters="offset >= 5 and key == a").reading["filters"] == [[("offset", ">=", 5), ("key", "==", "a")]]
    found = parse(filters='["key == k1", "timestampType == CreateTime", "offset < 9"]').reading["filters"]
    assert found == [[("key", "==", "k1"), ("timestamp_type", "==", "CreateTime"), ("offset", "<", 9)]]
    found = parse(filters='[["key == a"], ["value is null", "offset > 3"]]').reading["filters"]
    assert found == [[("key", "==", "a")], [("value", "is null"), ("offset", ">", 3)]]
    decoded = parse(filters="value.id >= 98", valueFormat="json")
    assert decoded.reading["filters"] is None
    assert decoded.decode is not None
