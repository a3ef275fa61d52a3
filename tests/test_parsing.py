"""Values of options: times, topic patterns, misspelt names; counts in messages; errors as findings."""

import pickle
import re
from datetime import UTC, datetime, timedelta, timezone

import numpy as np
import pytest

import kafkalog
from kafkalog.cli.app import main
from kafkalog.errors import CorruptionError, Reason, TruncatedTailError, UnknownNameError, UnwritableError
from kafkalog.parsing import (
    TopicPatterns,
    hint,
    integer,
    near,
    one_of,
    optional_integer,
    parse_milliseconds,
    parse_time,
    some,
)
from kafkalog.text import counted, near_name

NOW = 1_700_000_000_000


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (5, 5),
        (np.int64(5), 5),
        ("5", 5),
        ("now", NOW),
        ("-90s", NOW - 90_000),
        ("-1h", NOW - 3_600_000),
        ("-2d", NOW - 2 * 86_400_000),
        ("-1w", NOW - 7 * 86_400_000),
        ("-250ms", NOW - 250),
        ("1970-01-01T00:00:01Z", 1000),
        (" 1970-01-01T02:00:01+02:00 ", 1000),
        (datetime(1970, 1, 1, 1, tzinfo=timezone(timedelta(hours=1))), 0),
        (datetime(1970, 1, 1, microsecond=1, tzinfo=UTC), 1),  # rounded up
    ],
)
def test_a_time_is_said_in_many_ways(given, expected):
    assert parse_milliseconds("start_timestamp", given, NOW) == expected


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ("soon", ValueError, "start_timestamp: expected milliseconds, a time such as .*not 'soon'"),
        ("-1y", ValueError, "such as -1h"),
        (datetime(2026, 1, 1), ValueError, "naive datetime"),
        (1.5, TypeError, "not float"),
        (True, TypeError, "not bool"),
        (None, TypeError, "not NoneType"),
    ],
)
def test_what_is_no_time_is_refused_with_the_name_of_the_option(given, error, message):
    with pytest.raises(error, match=message):
        parse_time("start_timestamp", given)


@pytest.mark.parametrize(
    ("given", "same"),
    [
        ("2026-11-21", "2026-11-21T00:00Z"),
        ("2026-11-21Z", "2026-11-21T00:00Z"),
        ("2026-11-21 08:30", "2026-11-21T08:30Z"),
        ("2026-11-21T08:30:00.123", "2026-11-21T08:30:00.123Z"),
        ("20261121T083000", "2026-11-21T08:30+00:00"),
        ("9999-12-31T23:59", "9999-12-31T23:59Z"),
    ],
)
def test_text_without_a_zone_is_utc_as_in_the_scripts_of_kafka(given, same):
    assert parse_time("t", given) == parse_time("t", same)
    assert parse_time("t", given).tzinfo is UTC


def test_the_ends_of_the_calendar_are_times():
    for text in ("0001-01-01T00:00+14:00", "9999-12-31T23:59-12:00"):
        assert isinstance(parse_time("t", text), datetime)


TOPICS = ["orders", "orders.eu", "orders-changelog", "payments", "__consumer_offsets"]


@pytest.mark.parametrize(
    ("patterns", "internal", "expected"),
    [
        (None, True, TOPICS),
        (None, False, TOPICS[:4]),
        ("orders", False, ["orders"]),
        ("orders*", False, ["orders", "orders.eu", "orders-changelog"]),
        (["orders*", "!*-changelog"], False, ["orders", "orders.eu"]),
        ("!orders*", False, ["payments"]),
        (["!orders*"], True, ["payments", "__consumer_offsets"]),
        ("*", False, TOPICS[:4]),
        ("__consumer*", False, ["__consumer_offsets"]),
        ([], False, []),
    ],
)
def test_topics_are_chosen_by_name_glob_and_exclusion(patterns, internal, expected):
    chosen = TopicPatterns(patterns, internal=internal)
    assert [topic for topic in TOPICS if chosen.wants(topic)] == expected


def test_a_topic_that_there_is_not_is_named_with_the_nearest_one():
    with pytest.raises(UnknownNameError):
        TopicPatterns("order").check(TOPICS)
    with pytest.raises(ValueError, match="x\\*"):
        TopicPatterns(["x*"]).check(TOPICS)
    TopicPatterns(["!absent"]).check(TOPICS)  # leaving out what is not there loses nothing
    with pytest.raises(TypeError, match="topics"):
        TopicPatterns([1])


def test_the_nearest_word_is_found_whatever_its_case():
    assert near("STARTINGOFFSET", ["startingOffsets", "path"]) == "startingOffsets"
    assert near("zzz", ["key"]) is None
    assert near("k" * 10**6, ["key"]) is near_name("k" * 10**6, ["key"]) is None  # nor takes this memory or minutes
    assert hint("Vaule", ["value"]) == "did you mean 'value'?"
    assert some([]) == "none"


@pytest.mark.parametrize("value", [5, np.int64(5), np.uint8(5)])
def test_an_integer_becomes_an_int(value):
    assert type(integer("n", value)) is int
    assert integer("n", value, 5, 5) == optional_integer("n", value, 1) == 5
    assert optional_integer("n", None, 1) is None


@pytest.mark.parametrize("value", [True, np.True_, 5.0, "5", None, [5]])
def test_another_type_is_refused_by_name(value):
    with pytest.raises(TypeError, match=r"^n\b"):
        integer("n", value)


def test_a_number_out_of_range_is_refused_with_the_range():
    with pytest.raises(ValueError, match=r"^n\b"):
        integer("n", 0, 1)
    for wrong in (0, 9):
        with pytest.raises(ValueError, match=rf"^n.*{wrong}$"):
            optional_integer("n", wrong, 1, 8)


def test_one_of_some_words():
    assert one_of("how", "b", ["a", "b", "c"]) == "b"
    with pytest.raises(ValueError, match=r"^how\b"):
        one_of("how", "d", ["a", "b", "c"])


@pytest.mark.parametrize(
    ("n", "name", "expected"),
    [
        (0, "file", "0 files"),
        (1, "file", "1 file"),
        (1, "batch", "1 batch"),
        (2, "batch", "2 batches"),
        (1_234_567, "record", "1,234,567 records"),
    ],
)
def test_one_is_singular_and_thousands_are_grouped(n, name, expected):
    assert counted(n, name) == expected


def test_a_plural_of_its_own_is_taken():
    assert [counted(n, "directory", "directories") for n in (1, 2)] == ["1 directory", "2 directories"]


_TAIL = TruncatedTailError(
    Reason.PARTIAL_TAIL, "10 bytes are left", path="o-0/0.log", position=61, base_offset=7, length=10
)


def test_an_error_about_another_error_or_a_finding_has_its_place():
    error = CorruptionError.about(_TAIL, "cut off", reason=Reason.SIZE_EXCEEDS_FILE)
    assert type(error) is CorruptionError
    assert error.as_dict() == {**_TAIL.as_dict(), "reason": "size_exceeds_file", "detail": "cut off"}
    again = TruncatedTailError.about(_TAIL.to_finding(), "10 bytes are left")
    assert again.as_dict() == _TAIL.as_dict()


def test_a_pickled_error_has_all_its_fields():
    for error in (_TAIL, UnwritableError(Reason.COLUMN_VALUE, "too long", row=3)):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), copy.as_dict(), str(copy)) == (type(error), error.as_dict(), str(error))


@pytest.mark.parametrize(
    ("value", "milliseconds"),
    [
        ("2026-11-21", 1_795_219_200_000),
        ("2026-11-21T00:00:00.001", 1_795_219_200_001),
        ("2026-11-21T00:00:00.000000001", 1_795_219_200_001),
        ("1969-12-31T23:59:59.999000001", 0),
        ("1969-12-31T23:59:59.998", -2),
    ],
)
def test_a_datetime64_is_a_time_of_utc(value, milliseconds):
    assert parse_milliseconds("start_timestamp", np.datetime64(value)) == milliseconds


def test_nat_is_no_time():
    with pytest.raises(ValueError, match="start_timestamp is NaT"):
        parse_milliseconds("start_timestamp", np.datetime64("NaT"))


@pytest.mark.parametrize("columns", ["key,key", "offset,key,offset", "key,value.a,value.a", 'value.a,value."a"'])
@pytest.mark.parametrize("command", ["cat", "export", "python", "export in python"])
def test_a_column_that_is_named_twice_is_an_error_that_names_it(command, columns, tmp_path, capsys):
    with kafkalog.PartitionWriter(tmp_path / "t-0") as writer:
        writer.append({"value": [b'{"a": 1}']})
    name = columns.rpartition(",")[2]
    options = {"columns": columns.split(","), "decode": {"value": "json"} if "value" in columns else None}
    to = tmp_path / "x.parquet"
    if "python" in command:
        with pytest.raises(ValueError, match=re.escape(f"columns names {name!r} twice")):
            kafkalog.export(tmp_path, to, **options) if "export" in command else kafkalog.scan(tmp_path, **options)
    else:
        more = ["-o", str(to)] if command == "export" else []
        assert main([command, str(tmp_path), "--columns", columns, "--value-format", "json", *more]) == 2
        assert f"columns names {name!r} twice" in capsys.readouterr().err
    assert not to.exists()


def test_batches_and_spark_name_the_column_too(log_dir, capsys):
    assert main(["batches", str(log_dir), "--columns", "crc,topic", "--columns", "crc"]) == 2
    assert "columns names 'crc' twice" in capsys.readouterr().err
    pytest.importorskip("pyspark")
    from kafkalog.spark.source_options import parse_options

    with pytest.raises(ValueError, match="columns names 'key' twice"):
        parse_options({"path": str(log_dir), "columns": "KEY,offset,key"})


def test_a_time_of_other_tools_is_an_error_that_names_ours():
    with pytest.raises(ValueError, match=r"not '1 hour ago'; did you mean -1h\?"):
        parse_time("start_timestamp", "1 hour ago")
    with pytest.raises(ValueError, match=r"not 'orders'$"):
        parse_time("start_timestamp", "orders")
