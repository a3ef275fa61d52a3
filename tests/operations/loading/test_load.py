"""Loaded records are those that a scan reads, from any table or file; all of them are there, or none."""

import base64
import contextlib
import errno
import json
import os
import shutil
import tempfile
import time
import warnings
import zlib
from collections import defaultdict
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from effort import examples, thinned
from exported import records
from faults import Faulty
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import fails_with

import kafkalog
from kafkalog import LogConfig, OutputExistsError, TopicPartition, UnsafePathError, WriteError, load, write_table
from kafkalog.errors import Reason, UnwritableError
from kafkalog.records.byte_columns import BinaryColumn, HeadersColumn
from kafkalog.records.columns import RecordColumns
from kafkalog.records.partitioner import murmur2
from kafkalog.state.cluster_image import TOPIC, ClusterMetadata
from kafkalog.survey.retention import retention_note

PAIR = pa.struct([("key", pa.string()), ("value", pa.binary())])


def table_of(n, **more):
    """Records with everything that records have."""
    columns = {
        "timestamp": pa.array([None if i % 11 == 5 else 1_700_000_000_000 + i for i in range(n)], kafkalog_timestamp()),
        "key": pa.array([None if i % 7 == 3 else b"key-%d" % (i % 50) for i in range(n)], pa.binary()),
        "value": pa.array([None if i % 13 == 0 else b"v" * (i % 90) for i in range(n)], pa.binary()),
        "headers": pa.array(
            [[{"key": "h", "value": None if i % 2 else b"%d" % i}] * (i % 3) for i in range(n)], pa.list_(PAIR)
        ),
    }
    return pa.table({**columns, **more})


def kafkalog_timestamp():
    return pa.timestamp("ms", "UTC")


def by_partition(path):
    table = kafkalog.read_table(path)
    found = defaultdict(list)
    for place, row in zip(records(table, "topic", "partition"), records(table), strict=True):
        found[place].append(row)
    return dict(found)


def sound(path):
    report = kafkalog.verify(path)
    assert [str(finding) for finding in report.findings if finding.damage] == []


BLOBS = st.none() | st.binary(max_size=30)
HEADERS = st.lists(st.fixed_dictionaries({"key": st.text(max_size=4), "value": BLOBS}), max_size=3)
ROWS = st.lists(st.tuples(st.integers(-1, 2**45), BLOBS, BLOBS, HEADERS), min_size=1, max_size=25)
FORMS = ["table", "reader", "dict", "polars", "duckdb", "pandas", "parquet", "arrow", "arrows", "csv", "jsonl"]


@pytest.fixture
def memory(tmp_path):
    """A directory where fsync takes no time, for what is done hundreds of times."""
    with in_memory(tmp_path) as path:
        yield path


@contextlib.contextmanager
def in_memory(otherwise=None):
    with tempfile.TemporaryDirectory(dir="/dev/shm" if os.access("/dev/shm", os.W_OK) else otherwise) as name:
        yield Path(name)


@settings(max_examples=examples(40))
@given(ROWS, st.sampled_from(["none", "gzip", "snappy", "lz4", "zstd"]), st.sampled_from(FORMS), st.data())
def test_any_records_in_any_form_come_back(rows, compression, form, data):
    with in_memory() as folder:
        comes_back(folder, rows, compression, form, data)


def comes_back(folder, rows, compression, form, data):
    stamps, keys, values, headers = (list(column) for column in zip(*rows, strict=True))
    table = pa.table(
        {
            "timestamp": pa.array(stamps, kafkalog_timestamp()),
            "key": pa.array(keys, pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(headers, pa.list_(PAIR)),
        }
    )
    options = {
        "topic": "t",
        "compression": compression,
        "batch_size": data.draw(st.sampled_from([60, 200, 16384])),
        "config": LogConfig(segment_bytes=data.draw(st.sampled_from([150, 2**20]))),
        "partitions": data.draw(st.none() | st.integers(1, 4)),
    }
    if form in ("parquet", "arrow", "arrows", "csv", "jsonl"):
        write_table(table, folder / "first", topic="u")
        kafkalog.export(folder / "first", folder / f"x.{form}")
        load([folder / f"x.{form}"], folder / "log", **options)
    else:
        write_table(in_form(table, form), folder / "log", **options)
    found = by_partition(folder / "log")
    expected = defaultdict(list)
    n = options["partitions"] or 1
    for key, row in zip(keys, records(table), strict=True):
        expected["t", 0 if key is None else (murmur2(key) & 0x7FFFFFFF) % n].append(row)
    if None in keys and n > 1:  # those take turns, by size: all are somewhere, in order
        assert sorted(repr(row) for rows in found.values() for row in rows) == sorted(map(repr, records(table)))
    else:
        assert found == dict(expected)
    sound(folder / "log")


def in_form(table, form):
    if form == "polars":
        return pytest.importorskip("polars").from_arrow(table)
    if form == "duckdb":
        return pytest.importorskip("duckdb").from_arrow(table)
    if form == "pandas":
        return table.to_pandas()
    if form == "dict":
        return {name: table.column(name).to_pylist() for name in table.column_names}
    return table.to_reader(3) if form == "reader" else table


def test_a_log_dir_comes_back_as_it_was_with_its_topics_partitions_and_offsets(log_dir, tmp_path):
    table = kafkalog.read_table(log_dir)
    result = write_table(table, tmp_path / "copy")
    names = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
    assert records(kafkalog.read_table(tmp_path / "copy"), *names) == records(table, *names)
    assert len(result.partitions) == len(set(records(table, "topic", "partition"))) > 5
    assert result.n_records == table.num_rows


def test_every_partition_of_a_number_is_there_also_without_records(tmp_path):
    result = write_table({"key": [b"a"], "value": [b"1"]}, tmp_path / "log", topic="t", partitions=4)
    assert sorted(os.listdir(tmp_path / "log")) == ["t-0", "t-1", "t-2", "t-3"]
    assert [each.n_records for each in result.partitions] == [1, 0, 0, 0]
    assert murmur2(b"a") % 4 == 0
    assert write_table({"value": pa.nulls(0)}, tmp_path / "log", topic="empty").n_records == 0
    assert kafkalog.open(tmp_path / "log" / "empty-0").log_end_offset == 0
    sound(tmp_path / "log")


def test_offsets_are_kept_and_have_to_rise_or_are_counted_anew(tmp_path):
    table = pa.table({"offset": [5, 7, 2**40], "value": [b"a", b"b", b"c"]})
    (each,) = write_table(table, tmp_path / "kept", topic="t").partitions
    assert (each.first_offset, each.next_offset) == (5, 2**40 + 1)
    assert kafkalog.read_table(tmp_path / "kept").column("offset").to_pylist() == [5, 7, 2**40]
    (each,) = write_table(table, tmp_path / "anew", topic="t", keep_offsets=False).partitions
    assert (each.first_offset, each.next_offset) == (0, 3)
    for falling in ([5, 4], [5, 5]):
        table = pa.table({"offset": falling, "value": [b"a", b"b"]})
        with pytest.raises(UnwritableError) as caught:
            write_table(table, tmp_path / "falling", topic="t")
        assert caught.value.reason is Reason.OFFSET_ORDER
        assert "keep_offsets=False" in caught.value.__notes__[0]
    pieces = pa.concat_tables([pa.table({"offset": [i], "value": [b""]}) for i in (3, 2)])
    with fails_with("offset_order"):
        write_table(pieces, tmp_path / "falling", topic="t")
    assert sorted(os.listdir(tmp_path)) == ["anew", "kept"]


@pytest.mark.parametrize(
    "topic", ["", ".", "..", "a/b", "../../etc", "a b", "é", "x" * 250, "a\0b", "a\n", "-", "__cluster_metadata"]
)
def test_a_topic_whose_name_leads_astray_is_refused(tmp_path, topic):
    if topic != "-":
        with pytest.raises(ValueError):
            write_table({"value": [b""]}, tmp_path / "log", topic=topic)
        with pytest.raises(UnsafePathError):
            write_table({"value": [b"", b""], "topic": ["fine", topic]}, tmp_path / "log", internal=True)
    assert os.listdir(tmp_path) == []


def test_a_topic_or_partition_that_is_none_is_refused_with_its_row(tmp_path):
    for column in (
        {"topic": ["a", None]},
        {"partition": [0, None]},
        {"partition": [0, -1]},
        {"partition": [0, 2**31]},
    ):
        with pytest.raises(UnwritableError) as caught:
            write_table({"value": [b"", b""], "topic": ["a", "a"], **column}, tmp_path / "log")
        assert caught.value.row == 1
    with fails_with("column_missing"):
        write_table({"value": [b""]}, tmp_path / "log")
    many = {"value": [b""] * 20, "partition": list(range(20))}
    with fails_with("too_many_directories"):
        write_table(many, tmp_path / "log", topic="t", limits=kafkalog.Limits(max_directories=10))
    assert os.listdir(tmp_path) == []


def test_impossible_options_are_refused(tmp_path):
    for options in (
        {"partitions": 0},
        {"partitions": 10**9},
        {"batch_size": 0},
        {"compression": "brotli"},
        {"topic_id": "short"},
        {"timestamp_type": "Never"},
        {"columns": {"what": "x"}},
    ):
        with pytest.raises(ValueError):
            write_table({"value": [b""]}, tmp_path / "log", **{"topic": "t", **options})
    with pytest.raises(ValueError, match="topic"):
        write_table({"value": [b""], "topic": ["t"]}, tmp_path / "log", topic_id="A" * 22)
    assert os.listdir(tmp_path) == []


CODES = (errno.ENOSPC, errno.EIO)


def load_two(log):
    write_table(table_of(40, partition=[i % 2 for i in range(40)]), log, topic="new", batch_size=300)


@pytest.mark.parametrize("is_there", [True, False])
def test_what_fails_leaves_nothing_behind(memory, is_there):
    step = 3
    n_failed = 0
    for n in range(1, 5000, step):
        log = memory / str(n) / "log"
        log.parent.mkdir()
        if is_there:
            log.mkdir()
            (log / "meta.properties").write_text("version=1\n")
        code = CODES[n % 2]

        def fail(name, code=code):
            raise OSError(code, os.strerror(code))

        faulty = Faulty(n, fail)
        failed, detail = False, ""
        try:
            with faulty.installed():
                load_two(log)
        except WriteError as error:
            failed, detail = True, error.detail
        assert not failed or detail.startswith(os.strerror(code))
        n_failed += failed
        here = set(os.listdir(log)) - {"meta.properties", ".lock"} if log.exists() else None
        if failed:
            assert here == (set() if is_there else None)
        else:
            assert here == {"new-0", "new-1"}
            assert kafkalog.scan(log).count_rows() == 40
        assert set(os.listdir(log.parent)) <= {"log"}
        shutil.rmtree(log.parent)
        if faulty.n_calls < n:
            break
    else:
        raise AssertionError("it never came to an end")
    assert n_failed > 15


def b64(data):
    return base64.b64encode(data).decode()


def test_several_files_are_one_load(tmp_path):
    for i in range(3):
        line = {"value": b64(b"v%d" % i), "timestamp": i}
        (tmp_path / f"{i}.jsonl").write_text(json.dumps(line) + "\n")
    done = []
    files = [tmp_path / f"{i}.jsonl" for i in range(3)]
    load(files, tmp_path / "log", topic="t", progress=done.append, encoding="base64")
    assert kafkalog.read_table(tmp_path / "log").column("value").to_pylist() == [b"v0", b"v1", b"v2"]
    assert done == sorted(done)
    assert done[-1] == sum(file.stat().st_size for file in files)


def test_damaged_files_never_crash_it(memory, log_dir):
    draw = np.random.default_rng(7)
    for name in ("x.parquet", "x.arrow", "x.arrows", "x.csv", "x.jsonl", "x.csv.gz"):
        kafkalog.export(log_dir, memory / name, topics="p-headers")
        whole = np.frombuffer((memory / name).read_bytes(), np.uint8)
        n_refused = 0
        for i in range(25):
            data = whole.copy()
            data[draw.integers(0, data.size, 3)] = draw.integers(0, 256, 3)
            (memory / name).write_bytes(data[: draw.integers(1, data.size)] if i % 3 == 0 else data)
            try:
                load([memory / name], memory / "log")
                shutil.rmtree(memory / "log")
            except kafkalog.KafkalogError:
                n_refused += 1
            assert not (memory / "log").exists()
        assert n_refused > 3


@pytest.mark.parametrize("packed", thinned([".gz", ""], 2))
def test_an_export_with_a_long_value_is_loaded_from_csv(memory, packed):
    values = [b"a" * 300_000 for _ in range(30)] + [b"x" * 9_000_000, b"b"]
    config = LogConfig(max_message_bytes=10**7)
    write_table({"value": values}, memory / "log", topic="t", config=config)
    kafkalog.export(memory / "log", memory / f"x.csv{packed}")
    load([memory / f"x.csv{packed}"], memory / "copy", config=config)
    assert kafkalog.read_table(memory / "copy").column("value").to_pylist() == values


# ------------------------------------------------------------------------------------------------- internal topics


MIXED = ["orders", "__consumer_offsets", "orders", "__transaction_state", "refunds", "__consumer_offsets"]


LEFT_OUT = (
    "internal topics are left out: __consumer_offsets (2 records), __transaction_state (1 record);"
    " to include them, name them in only_topics (--only-topics), or use internal=True (--internal)"
)


def mixed():
    n = len(MIXED)
    return pa.table(
        {"topic": MIXED, "value": [b"%d" % i for i in range(n)], "partition": pa.array([0] * n, pa.int32())}
    )


@pytest.mark.parametrize(
    ("options", "expected", "notes"),
    [
        (
            {},
            {"orders-0": [b"0", b"2"], "refunds-0": [b"4"]},
            [LEFT_OUT],
        ),
        (
            {"internal": True},
            {
                "__consumer_offsets-0": [b"1", b"5"],
                "__transaction_state-0": [b"3"],
                "orders-0": [b"0", b"2"],
                "refunds-0": [b"4"],
            },
            [],
        ),
        ({"only_topics": ["__consumer_offsets"]}, {"__consumer_offsets-0": [b"1", b"5"]}, []),
        (
            {"only_topics": ["refunds", "other"]},
            {"refunds-0": [b"4"]},
            ["no records of topic 'other'"],
        ),
        ({"only_topics": "orders", "partitions": 1}, {"orders-0": [b"0", b"2"]}, []),
        ({"topic": "all"}, {"all-0": [b"%d" % i for i in range(6)]}, []),
    ],
)
@pytest.mark.parametrize("dry_run", [False, True])
def test_records_of_internal_topics_are_left_out_unless_they_are_wanted(tmp_path, options, expected, notes, dry_run):
    result = write_table(mixed(), tmp_path / "log", dry_run=dry_run, **options)
    assert result.notes == notes
    assert {f"{each.topic}-{each.partition}": each.n_records for each in result.partitions} == {
        name: len(values) for name, values in expected.items()
    }
    if not dry_run:
        assert sorted(os.listdir(tmp_path / "log")) == sorted(expected)
        for name, values in expected.items():
            assert kafkalog.read_table(tmp_path / "log" / name)["value"].to_pylist() == values


def test_the_cluster_s_metadata_are_left_out_and_never_written(tmp_path):
    table = pa.table({"topic": ["__cluster_metadata", "orders"], "value": [b"0", b"1"]})
    result = write_table(table, tmp_path / "log")
    assert [each.topic for each in result.partitions] == ["orders"]
    assert result.notes[0].startswith("internal topics are left out: __cluster_metadata (1 record)")
    assert repr(result).endswith(f", notes={result.notes})")
    for options in ({"internal": True}, {"only_topics": ["__cluster_metadata"]}):
        with fails_with("unsafe_path"):
            write_table(table, tmp_path / "other", **options)


def test_a_file_of_nothing_but_what_is_left_out_makes_an_empty_log_dir(tmp_path):
    result = write_table(pa.table({"topic": ["__consumer_offsets"], "value": [b"0"]}), tmp_path / "log")
    assert (result.partitions, len(result.notes)) == ([], 1)


def test_topics_and_one_topic_for_all_exclude_one_another(tmp_path):
    with pytest.raises(ValueError, match="only_topics"):
        write_table(mixed(), tmp_path / "log", topic="x", only_topics=["orders"])


def test_data_in_memory_names_write_table(tmp_path):
    with pytest.raises(TypeError, match="write_table"):
        kafkalog.load(pa.table({"value": [b"1"]}), tmp_path / "log", topic="orders")
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize("name", ["x.parquet", "x.csv", "x.jsonl", "x.arrow"])
def test_append_times_come_back(tmp_path, name):
    """Records of LogAppendTime keep their type and times, unless a type is chosen; others get the topic's type."""
    source = tmp_path / "a" / "t-0"
    source.parent.mkdir()
    for stamp, kind, n in ((1_000, "LogAppendTime", 3), (1_500, "LogAppendTime", 1), (1_200, "CreateTime", 2)):
        with kafkalog.PartitionWriter(source, timestamp_type=kind, log_append_time=stamp) as writer:
            writer.append({"value": [b"v"] * n, "timestamp": [stamp] * n})
    kafkalog.export(source.parent, tmp_path / name)
    columns = ["offset", "timestamp", "timestamp_type"]
    want = kafkalog.read_table(source, columns=columns)
    load(tmp_path / name, tmp_path / "same")
    assert kafkalog.read_table(tmp_path / "same", columns=columns).equals(want)
    assert kafkalog.verify(tmp_path / "same").ok
    load(tmp_path / name, tmp_path / "created", timestamp_type="CreateTime")
    created = kafkalog.read_table(tmp_path / "created", columns=columns)
    assert created.column("timestamp_type").to_pylist() == [0] * 6
    assert created.column("timestamp").equals(want.column("timestamp"))
    config = kafkalog.LogConfig(message_timestamp_type="LogAppendTime")
    load(tmp_path / name, tmp_path / "topic", config=config, log_append_time=9_000)
    stamps = kafkalog.read_table(tmp_path / "topic", columns=columns).column("timestamp").cast("int64").to_pylist()
    assert stamps == [1_000] * 3 + [1_500] + [9_000] * 2


def test_a_dry_run_reads_everything_and_writes_nothing(tmp_path):
    table = table_of(100, partition=[i % 4 for i in range(100)])
    dry = write_table(table, tmp_path / "log", topic="t", dry_run=True)
    assert os.listdir(tmp_path) == []
    wet = write_table(table, tmp_path / "log", topic="t")
    assert [(e.partition, e.n_records, e.next_offset) for e in dry.partitions] == [
        (e.partition, e.n_records, e.next_offset) for e in wet.partitions
    ]
    with pytest.raises(OutputExistsError):
        write_table(table, tmp_path / "log", topic="t", dry_run=True)
    with pytest.raises(UnwritableError):
        write_table({"value": [b""], "offset": [-5]}, tmp_path / "log", topic="u", dry_run=True)


def test_partitions_come_to_a_log_dir_that_is_there_and_never_over_others(tmp_path):
    write_table(table_of(10), tmp_path / "log", topic="t")
    (tmp_path / "log" / "meta.properties").write_text("version=1\ncluster.id=x\nnode.id=1\n")
    write_table(table_of(20), tmp_path / "log", topic="u", partitions=3)
    assert sorted(os.listdir(tmp_path / "log")) == [".lock", "meta.properties", "t-0", "u-0", "u-1", "u-2"]
    before = kafkalog.read_table(tmp_path / "log")
    with fails_with("output_exists"):
        write_table(pa.table({"topic": ["v", "t"], "value": [b"", b""]}), tmp_path / "log")
    assert kafkalog.read_table(tmp_path / "log").equals(before)
    assert sorted(os.listdir(tmp_path / "log")) == [".lock", "meta.properties", "t-0", "u-0", "u-1", "u-2"]
    assert os.listdir(tmp_path) == ["log"]


def test_a_place_where_a_broker_would_trip_is_refused(tmp_path):
    write_table(table_of(5), tmp_path / "log", topic="t")
    (tmp_path / "log" / "meta.properties").write_text("version=1\n")
    for path in (tmp_path / "log" / "t-0", tmp_path / "log" / "t-0" / "x", tmp_path / "log" / "below"):
        with pytest.raises(UnsafePathError):
            write_table(table_of(5), path, topic="u")
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputExistsError):
        write_table(table_of(5), tmp_path / "file", topic="u")
    with pytest.raises(WriteError):
        write_table(table_of(5), tmp_path / "file" / "log", topic="u")


def test_a_log_dir_is_no_place_to_stage_in(tmp_path):
    write_table(table_of(5), tmp_path / "log", topic="t")
    for target in ("log", "new"):
        for place in (tmp_path / "log", tmp_path / "log" / "t-0"):
            with pytest.raises(UnsafePathError):
                write_table(table_of(5), tmp_path / target, topic="u", stage_in=place)
    (tmp_path / "stage").mkdir()
    write_table(table_of(5), tmp_path / "log", topic="u", stage_in=tmp_path / "stage")
    assert sorted(os.listdir(tmp_path / "log")) == ["t-0", "u-0"]
    assert os.listdir(tmp_path / "stage") == []


DAY = 86_400_000
KEY = TopicPartition("t", 0)


def test_the_limit_is_that_of_a_broker():
    def note(timestamp, **settings):
        return retention_note({KEY: timestamp}, config=LogConfig(**settings), cluster=None, now_ms=100 * DAY)

    assert note(93 * DAY) is None
    said = note(93 * DAY - 1)
    assert said is not None
    assert said.startswith(
        "a broker will soon delete the records of t-0: the newest, 1970-04-03T23:59:59.999Z, is older than retention"
    )
    assert note(93 * DAY, retention_ms=7 * DAY - 1) is not None
    assert note(0) is not None
    assert note(-1) is None  # a broker goes by when the file was written
    assert note(0, retention_ms=-1) is None
    assert note(0, cleanup_policy="compact") is None
    assert note(0, cleanup_policy="compact,delete") is not None


def test_what_the_cluster_says_of_a_topic_counts_first():
    cluster = ClusterMetadata()

    def note(**settings):
        return retention_note({KEY: 0}, config=LogConfig(**settings), cluster=cluster, now_ms=100 * DAY)

    assert note() is not None
    for overrides in ({"retention.ms": "-1"}, {"cleanup.policy": "compact"}):
        cluster.settings[TOPIC, "t"] = overrides
        assert note() is None
        cluster.settings = {(TOPIC, "other"): overrides}
        assert note() is not None
    cluster.settings[TOPIC, "t"] = {"retention.ms": "1000", "cleanup.policy": "compact, delete"}
    assert "retention.ms=1000." in (note(retention_ms=-1) or "")
    cluster.settings[TOPIC, "t"] = {"retention.ms": "damaged"}
    assert "retention.ms=5." in (note(retention_ms=5) or "")


@pytest.mark.parametrize("dry_run", [False, True])
def test_a_load_notes_it(tmp_path, dry_run):
    now = time.time_ns() // 10**6
    table = {"value": [b"1", b"2", b"3", b"4"], "timestamp": [now, 1000, 2000, None], "partition": [0, 0, 1, 2]}

    def notes(name, **options):
        return write_table(table, tmp_path / name, topic="t", dry_run=dry_run, **options).notes

    (note,) = notes("default")
    assert note.startswith("a broker will soon delete the records of t-1: the newest, 1970-01-01T00:00:02.000Z")
    assert " more: " not in note
    assert notes("for-ever", config=LogConfig(retention_ms=-1)) == []
    assert notes("stamped", timestamp_type="LogAppendTime") == []
    assert notes("config", config=LogConfig(message_timestamp_type="LogAppendTime")) == []
    (note,) = notes("stamped-early", timestamp_type="LogAppendTime", log_append_time=5)
    assert "t-0 and 2 more: the newest, 1970-01-01T00:00:00.005Z" in note
    assert "2 more: " in note


NAMES = [b"\xff\xfe", b"", b"\xc3\xa4", b"\xed\xa0\x80", b"plain", b"plain"]


@pytest.fixture
def any_names(tmp_path):
    """A log dir whose header names are any bytes, as clients other than Java's send them; and its headers."""
    (tmp_path / "from").mkdir()
    headers = [[(name, b"v")] * (row // 6 % 3) for row in range(40) for name in NAMES[row % 6 :][:1]]
    column = HeadersColumn.of(headers)
    records_of = RecordColumns(len(headers), {"value": BinaryColumn.of([b"x"] * 40), "headers": column})
    with fails_with("header_key_utf8"), kafkalog.PartitionWriter(tmp_path / "from/t-0") as writer:
        writer.append(records_of)
    with kafkalog.PartitionWriter(tmp_path / "from/t-0") as writer:
        writer.append(records_of, any_header_names=True)
    return tmp_path / "from", headers


@pytest.mark.parametrize(
    "source",
    [
        kafkalog.scan,
        kafkalog.open_log_dir,
        lambda path: kafkalog.open(path / "t-0"),
        lambda path: kafkalog.scan(path, batch_size=7),
        lambda path: kafkalog.scan(path, binary_type=pa.large_binary()),
        lambda path: kafkalog.scan(path, columns=["topic", "offset", "value", "headers"]),
    ],
)
def test_copies_of_a_log_keep_header_names_that_are_not_utf_8(tmp_path, any_names, source):
    path, headers = any_names
    data = source(path)
    for options in ({}, {"topic": "t", "partitions": 1}):
        to = tmp_path / f"to{len(options)}"
        write_table(data, to, **options)
        assert kafkalog.read_numpy(to).headers.to_pylist() == headers
    (tmp_path / "other").mkdir()
    with kafkalog.PartitionWriter(tmp_path / "other/t-0") as writer:
        writer.append(data)
    assert kafkalog.read_numpy(tmp_path / "other").headers.to_pylist() == headers


def test_a_decoded_scan_with_such_names_is_not_written(tmp_path, any_names):
    with fails_with("header_key_utf8"):
        write_table(kafkalog.scan(any_names[0], decode={"value": "utf8"}), tmp_path / "to")
    assert not (tmp_path / "to").exists()


@pytest.mark.parametrize("suffix", ["parquet", "arrow", "csv", "jsonl"])
def test_times_before_1970_are_exported_and_loaded(tmp_path, suffix):
    times = [-1, 0, -5000, -7000, 1, -62_135_596_800_000]
    write_table({"value": [b"x"] * 6, "timestamp": times}, tmp_path / "from", topic="t")
    kafkalog.export(tmp_path / "from", tmp_path / f"t.{suffix}")
    load(tmp_path / f"t.{suffix}", tmp_path / "to")
    assert kafkalog.read_numpy(tmp_path / "to").timestamp.tolist() == times
    write_table(kafkalog.scan(tmp_path / "from"), tmp_path / "copy")
    assert kafkalog.read_numpy(tmp_path / "copy").timestamp.tolist() == times


def test_the_partitioner_is_that_of_another_client(tmp_path):
    keys = [b"k%d" % i for i in range(200)]
    result = write_table(
        {"key": keys, "value": keys}, tmp_path / "log", topic="t", partitions=7, partitioner="consistent_random"
    )
    assert result.partitioner == "consistent_random"
    read = kafkalog.read_table(tmp_path / "log").to_pylist()
    assert {row["key"]: row["partition"] for row in read} == {key: zlib.crc32(key) % 7 for key in keys}
    assert write_table({"value": [b""]}, tmp_path / "a", topic="t", partitions=2).partitioner == "kafka"
    assert write_table({"value": [b""]}, tmp_path / "b", topic="t").partitioner is None
    with pytest.raises(ValueError, match="--partitions"):
        write_table({"value": [b""]}, tmp_path / "c", topic="t", partitioner="kafka")
    with pytest.raises(ValueError, match="'sarama', not 'crc'"):
        write_table({"value": [b""]}, tmp_path / "c", topic="t", partitions=2, partitioner="crc")


@settings(max_examples=examples(20), deadline=None)
@given(
    jumps=st.lists(st.sampled_from([1, 1, 1, 2, 1000, 2**31 - 2, 2**31 - 1, 2**31, 2**31 + 1, 2**33]), max_size=12),
    first=st.sampled_from([0, 5, 2**31 - 1]),
    batch_size=st.sampled_from([60, 16384]),
)
def test_offsets_that_jump_as_far_as_they_like_are_accepted_by_verify(jumps, first, batch_size):
    offsets = np.cumsum([first, *jumps])
    n = len(offsets)
    table = pa.table({"topic": ["t"] * n, "partition": [0] * n, "offset": offsets, "value": [b"v" * 40] * n})
    with tempfile.TemporaryDirectory() as directory, warnings.catch_warnings():
        warnings.simplefilter("ignore", kafkalog.CorruptionWarning)  # the notes about gaps
        path = Path(directory, "log")
        write_table(table, path, batch_size=batch_size)
        assert kafkalog.verify(path).ok
        assert kafkalog.scan(path).to_numpy().offset.tolist() == offsets.tolist()
        for log in path.glob("t-0/*.log"):
            batches = kafkalog.open(log).batches
            assert (batches.last_offset - int(log.stem) <= 2**31 - 1).all()
