"""Conditions on fields of values drop, keep and redact exactly the records that a scan finds by them."""

import json
import random

import pyarrow as pa
import pytest
from effort import trials

import kafkalog
from kafkalog.cli import main
from kafkalog.errors import Reason
from kafkalog.values.decoding import DecodeWarning


def write(directory, values, *, compression="none"):
    """Write values to two partitions of a topic; a value that is no text is JSON."""
    texts = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in values]
    columns = {"partition": pa.array([number % 2 for number in range(len(texts))], pa.int32()), "value": texts}
    kafkalog.write_table(pa.table(columns), directory, topic="t", compression=compression, batch_size=200)
    return directory


def values_of(directory):
    return [one.as_py() for one in kafkalog.read_table(directory, columns=["value"]).column(0)]


@pytest.mark.parametrize("seed", range(trials(1, 12)))
def test_what_is_left_is_what_the_condition_leaves(seed, tmp_path):
    rng = random.Random(seed)
    values = [{"user": rng.randrange(5), "n": number} for number in range(rng.randrange(2, 80))]
    source = write(tmp_path / "source", values, compression=rng.choice(["none", "zstd", "gzip"]))
    user = rng.randrange(6)
    rule, options = [("value.user", "==", user)], {"decode": {"value": "json"}}
    matching = kafkalog.scan(source, filters=rule, value_format="json").count_rows()

    report = kafkalog.convert(source, tmp_path / "dropped", drop=rule, **options)
    assert report.total("n_records_dropped") == matching
    assert all(json.loads(one)["user"] != user for one in values_of(tmp_path / "dropped"))
    assert kafkalog.verify(tmp_path / "dropped").ok
    report = kafkalog.convert(source, tmp_path / "kept", filters=rule, **options)
    assert report.total("n_records_after") == matching
    report = kafkalog.convert(source, tmp_path / "redacted", redact={"value": "null"}, redact_where=rule, **options)
    assert report.total("n_records_redacted") == matching
    assert values_of(tmp_path / "redacted").count(None) == matching


def test_a_value_that_does_not_decode_is_kept_and_said(tmp_path, capsys):
    source = write(tmp_path / "source", [{"user": 1}, b"no JSON {", {"user": 2}, {"user": 1}])
    rule = ["--value-format", "json", "--drop", "value.user == 1"]
    assert main(["convert", str(source), "-o", str(tmp_path / "copy"), *rule]) == 1
    assert "1 value did not decode: whether a condition matches is not known" in capsys.readouterr().err
    assert sorted(values_of(tmp_path / "copy")) == sorted([b"no JSON {", b'{"user": 2}'])


def test_a_field_that_no_value_has_is_said(tmp_path):
    source = write(tmp_path / "source", [{"user": 1}])
    rule = [("value.usr", "==", 1)]
    with pytest.warns(DecodeWarning, match="value.user"):
        report = kafkalog.convert(source, tmp_path / "copy", drop=rule, decode={"value": "json"}, dry_run=True)
    assert report.total("n_records_dropped") == 0
    assert Reason.COLUMN_MISSING in {one.reason for one in report.findings.rows}


def test_a_segment_alone_is_converted_by_fields(tmp_path):
    source = write(tmp_path / "source", [{"user": 1}, {"user": 2}, {"user": 2}])
    (tmp_path / "alone").mkdir()
    path = tmp_path / "alone" / f"{0:020d}.log"
    path.write_bytes((source / "t-0" / path.name).read_bytes())
    rule = [("value.user", "==", 2)]
    report = kafkalog.convert(path, tmp_path / "t-0", drop=rule, decode={"value": "json"})
    assert report.total("n_records_dropped") == 1
