"""Files of records: what is read of CSV, JSON and others, and what is refused with its line."""

import json
import os

import pytest
from exported import records
from refusals import fails_with

import kafkalog
from kafkalog import load
from kafkalog.errors import ReadError, UnwritableError
from kafkalog.interchange import record_files


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "line 2: not a JSON object"),
        ("[1]", "line 2: a JSON object is expected, not list"),
        ('{"value": "x", "value": "y"}', "'value' twice"),
        ('{"value": 5}', "line 2: value must be text in base64"),
        ('{"value": "?"}', "line 2: value is not base64"),
        ('{"value": {"hex": "00"}}', "line 2: value must be text"),
        ('{"value": "", "timestamp": true}', "line 2: timestamp must be milliseconds"),
        ('{"value": "", "timestamp": 9223372036854775808}', "line 2: timestamp does not fit"),
        ('{"value": "", "timestamp": "yesterday"}', "ISO 8601"),
        ('{"value": "", "offset": 1.5}', "line 2: offset must be a whole number"),
        ('{"value": "", "headers": {"a": "b"}}', "line 2: headers must be a list"),
        ('{"value": "", "headers": [["a"]]}', "line 2: headers must be a list"),
        ('{"value": "", "headers": [[null, ""]]}', "line 2: headers must be a list"),
        ('{"value": "", "headers": [["a", "?"]]}', "line 2: headers is not base64"),
        (r'{"value": "", "headers": [["\ud800", ""]]}', "line 2: headers is not utf8"),
        ('{"value": "", "topic": 7}', "topic"),
        ('{"value": "", "colour": "red"}', "unknown column 'colour'"),
        ('{"value": "' + "[" * 100_000, "line 2"),
        ("[" * 100_000, "line 2"),
        ('"\xff"', "line 2"),
    ],
)
def test_a_line_of_json_that_is_no_record_is_refused_with_its_number(tmp_path, line, what):
    first = b'{"value": "", "timestamp": 1, "topic": "t"}\n'
    refused(tmp_path / "x.jsonl", first + line.encode("latin-1") + b"\n", what)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (b"", "line 1 must have the column names"),
        (b"\n", "line 1"),
        (b"\xff\n", "line 1"),
        (b"value,value\n,\n", "more than one column 'value'"),
        (b"value,key\n,\nx\n", "2 columns"),
        (b"value,timestamp\n,abc\n", "timestamp"),
        (b"value,timestamp\n,2024-01-01T00:00:00\n", "time zone"),
        (b"value,offset\n,abc\n", "line 2: offset must be a whole number, not 'abc'"),
        (b"value\n?\n", "line 2: value is not base64"),
        (b'value,headers\n,"[[1]]"\n', "line 2: headers must be a list"),
        (b"value,headers\n,{\n", "line 2: headers is no JSON"),
        (b"value,topic\n,\xff\n", "line 2: topic is not UTF-8"),
        (b"key\n\n", "no column 'value'"),
        (b"value,colour\n,red\n", "unknown column 'colour'"),
    ],
)
def test_csv_that_holds_no_records_is_refused(tmp_path, text, what):
    refused(tmp_path / "x.csv", text, what, topic="t")


def refused(file, content, what, **options):
    file.write_bytes(content)
    with pytest.raises(UnwritableError) as caught:
        load([file], file.parent / "log", encoding="base64", **options)
    assert what in str(caught.value)
    assert caught.value.path == str(file)
    assert os.listdir(file.parent) == [file.name]


def test_csv_and_json_of_others_are_read_as_text(tmp_path):
    (tmp_path / "x.csv").write_text('\ufeffid,body,at\n1,"a, ""b""\nc",2024-01-01T00:00:00Z\n,"",\n,NULL,\n')
    names = {"key": "id", "value": "body", "timestamp": "at"}
    load([tmp_path / "x.csv"], tmp_path / "csv", topic="t", encoding="utf8", columns=names)
    expected = [(1_704_067_200_000, b"1", b'a, "b"\nc', "[]"), (-1, None, b"", "[]"), (-1, None, b"NULL", "[]")]
    assert records(kafkalog.read_table(tmp_path / "csv")) == expected
    load([tmp_path / "x.csv"], tmp_path / "null", topic="t", encoding="utf8", columns=names, null="NULL")
    assert records(kafkalog.read_table(tmp_path / "null"), "key", "value")[1:] == [(b"", b""), (b"", None)]
    lines = [{"body": "é", "at": "2024-01-01T01:00:00+01:00"}, {"body": {"base64": "/w=="}, "id": "2", "at": None}]
    (tmp_path / "x.ndjson").write_text("".join(json.dumps(line) + "\n" for line in lines))
    load([tmp_path / "x.ndjson"], tmp_path / "json", topic="t", encoding="utf8", columns=names)
    expected = [(1_704_067_200_000, None, "é".encode(), "[]"), (-1, b"2", b"\xff", "[]")]
    assert records(kafkalog.read_table(tmp_path / "json")) == expected


def test_an_empty_line_of_a_single_column_is_a_null(tmp_path):
    (tmp_path / "x.csv").write_bytes(b'value\n\n""\nYQ==\n\n')
    load([tmp_path / "x.csv"], tmp_path / "log", topic="t", encoding="base64")
    assert kafkalog.read_table(tmp_path / "log").column("value").to_pylist() == [None, b"", b"a", None]
    for text in (b"value\n", b"value"):
        (tmp_path / "x.csv").write_bytes(text)
        assert load([tmp_path / "x.csv"], tmp_path / "empty", topic="t", dry_run=True, encoding="base64").n_records == 0


def test_a_file_that_is_not_what_it_says_is_refused(tmp_path):
    for name in ("x.parquet", "x.arrow", "x.arrows", "x.csv.gz", "x.jsonl.zst"):
        for content in (b"",) * ("jsonl" not in name) + (b"nothing of that kind" * 10,):
            (tmp_path / name).write_bytes(content)
            with pytest.raises((ReadError, UnwritableError)) as caught:
                load([tmp_path / name], tmp_path / "log", topic="t")
            assert caught.value.path == str(tmp_path / name)
    with pytest.raises(ReadError):
        load([tmp_path / "absent.parquet"], tmp_path / "log", topic="t")
    (tmp_path / "folder.parquet").mkdir()
    with fails_with("not_a_file"):
        load([tmp_path / "folder.parquet"], tmp_path / "log", topic="t")
    for name in ("x.txt", "x", "x.parquet.gz"):
        with fails_with("file_unreadable"):
            load([tmp_path / name], tmp_path / "log", topic="t")
        (tmp_path / name).touch()
        with pytest.raises(ValueError, match=r"format|unpack"):
            load([tmp_path / name], tmp_path / "log", topic="t")
    assert not (tmp_path / "log").exists()


@pytest.mark.parametrize(("name", "text"), [("x.csv", "value\nabcd\n"), ("x.jsonl", '{"value": "abcd"}\n')])
def test_text_that_may_be_base64_needs_a_choice(tmp_path, name, text):
    """Only the files of an export are base64 without being asked for."""
    file = tmp_path / name
    file.write_text(text)
    with fails_with("column_type"):
        load([file], tmp_path / "log", topic="t")
    for encoding, value in (("utf8", b"abcd"), ("base64", b"i\xb7\x1d")):
        load([file], tmp_path / encoding, topic="t", encoding=encoding)
        assert kafkalog.read_table(tmp_path / encoding).column("value").to_pylist() == [value]
        kafkalog.export(tmp_path / encoding, tmp_path / f"{encoding}-{name}")
        load([tmp_path / f"{encoding}-{name}"], tmp_path / f"{encoding}-again")
        assert kafkalog.read_table(tmp_path / f"{encoding}-again").column("value").to_pylist() == [value]


def test_a_format_that_is_only_written_is_named_as_one_that_cannot_be_read(tmp_path, monkeypatch):
    monkeypatch.delitem(record_files._READERS, "csv")
    (tmp_path / "a.csv").write_text("key\n1\n")
    with pytest.raises(ValueError, match="format must be one of parquet, arrow, arrows, jsonl, not 'csv'"):
        record_files.RecordFile(tmp_path / "a.csv")
