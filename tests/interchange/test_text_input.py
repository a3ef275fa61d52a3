"""CSV and JSON lines as people bring them: from pandas, DuckDB, Postgres and jq, with what is odd about them."""

import base64
import io
import json
import os
import threading

import pyarrow as pa
import pytest
from effort import examples
from hypothesis import example, given, settings
from hypothesis import strategies as st
from refusals import fails_with

import kafkalog
from kafkalog.errors import Reason, UnwritableError
from kafkalog.interchange import text_input
from kafkalog.interchange.text_input import TextOptions, read_csv, read_json_lines


@pytest.fixture
def load(tmp_path):
    """Load a file with this content; the records of the partition, timestamps as milliseconds."""

    def call(name, content, **options):
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
        kafkalog.load([tmp_path / name], tmp_path / "log", **{"topic": "t", "encoding": "utf8", **options})
        table = kafkalog.read_table(tmp_path / "log", columns=["offset", "timestamp", "key", "value", "headers"])
        place = table.schema.get_field_index("timestamp")
        table = table.set_column(place, "timestamp", table.column("timestamp").cast(pa.int64()))
        (tmp_path / "log").rename(tmp_path / f"done-{len(os.listdir(tmp_path))}")
        return table.to_pylist()

    return call


def refused(load, name, content, **options):
    with pytest.raises(UnwritableError) as caught:
        load(name, content, **options)
    assert caught.value.path is not None
    assert caught.value.path.endswith(name)
    return caught.value.detail


def values(rows):
    return [row["value"] for row in rows]


def test_a_line_without_a_value_is_a_mistake_and_null_a_tombstone(load):
    lines = ['{"value": "a"}', '{"key": "k"}']
    for content, line in (("\n".join(lines), 2), ("\n\n".join(reversed(lines)), 1)):
        detail = refused(load, "x.jsonl", content)
        assert detail.startswith(f"line {line}: value is missing here and present in other lines")
        assert '"value": null' in detail
    assert values(load("x.jsonl", '{"value": "a"}\n{"key": "k", "value": null}')) == [b"a", None]
    assert "no column 'value'" in refused(load, "x.jsonl", '{"key": "k"}\n{"key": "l"}')
    detail = refused(load, "x.jsonl", '{"body": "a"}\n{}', columns={"value": "body"})
    assert "line 2: body is missing here" in detail
    rows = load("x.jsonl", '{"value": "a", "key": "k", "headers": [["h", "v"]], "timestamp": 7}\n{"value": "b"}')
    assert {**rows[1], "timestamp": -1} == {"offset": 1, "timestamp": -1, "key": None, "value": b"b", "headers": []}


def test_a_value_that_is_missing_far_behind_is_found(load, monkeypatch):
    monkeypatch.setattr("kafkalog.interchange.text_input._READ_BYTES", 300)
    lines = [json.dumps({"value": str(i)} if i != 70 else {"key": "k"}) for i in range(100)]
    assert refused(load, "x.jsonl", "\n\n".join(lines)).startswith("line 141: value is missing here")


@pytest.mark.parametrize("name", ["x.jsonl", "x.csv"])
def test_a_byte_order_mark_crlf_blank_lines_and_no_end_of_the_last_line_do_no_harm(load, name):
    lines = {
        "x.jsonl": ['{"value": "a", "key": "1"}', '{"value": "b", "key": "2"}'],
        "x.csv": ["value,key", "a,1", "b,2"],
    }
    for end in ("\n", "\r\n", "\n\n", "\r\n\r\n"):
        for mark, last in (("", ""), ("\ufeff", end), ("", end * 3)):
            rows = load(name, mark + end.join(lines[name]) + last)
            assert [(row["value"], row["key"]) for row in rows] == [(b"a", b"1"), (b"b", b"2")]
    assert load("x.jsonl", "\ufeff") == load("x.jsonl", "\n \n\r\n") == load("x.csv", "value,key\n\n\n") == []


def test_columns_that_are_left_out_are_not_looked_at(load):
    lines = '{"value": "a", "timestamp": "yesterday", "key": {"b": 1}, "n": 1}\n{"value": "b", "n": NaN}'
    ignored = ["timestamp", "key", "n"]
    assert values(load("x.jsonl", lines, ignore_columns=ignored)) == [b"a", b"b"]
    text = "value,timestamp,key,n\nYQ==,yesterday,?,\xff\nYg==,,,\n"
    assert values(load("x.csv", text.encode("latin-1"), ignore_columns=ignored, encoding="base64")) == [b"a", b"b"]
    renamed = {"value": "body"}
    assert values(load("x.csv", "body,value\nYQ==,?\n", columns=renamed, encoding="base64")) == [b"a"]


def test_markers_are_no_records_in_text_either(load):
    for text in ("true", "True", "t"):
        detail = refused(load, "x.csv", f"value,is_control\na,false\nb,{text}\n")
        assert "row 1 is set: markers cannot be written" in detail
    assert "row 1 is set" in refused(load, "x.jsonl", '{"value": "a"}\n{"value": "b", "is_control": true}')
    assert values(load("x.csv", "value,is_control\na,false\nb,\n")) == [b"a", b"b"]


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (
            '{"value": {"a": 1}}',
            "line 1: value must be text in utf8 or null, not {'a': 1}; to load values of any type",
        ),
        ('{"value": 5}', "--value-format json"),
        ('{"value": NaN}', "line 1: value must be text in utf8 or null, not nan"),
        ('[{"value": "a"},\n{"value": "b"}]', "jq -c"),
        ('[{"value": "a"}]', "jq -c '.[]'"),
        ('{\n  "value": "a"\n}', "expected an object per line"),
        (
            '{"value": "a", "timestamp": 1.5}',
            "line 1: timestamp must be milliseconds or ISO 8601",
        ),
        ('{"value": "a", "offset": NaN}', "line 1: offset must be a whole number, not 'NaN'"),
        ('{"value": "a", "timestamp": "1"}\n{"value": "a", "timestamp": 1.5}', "line 2: timestamp must be"),
        ('{"value": "a", "topic": 7}', "line 1: topic must be text, not 7"),
        (b'{"value": "\xff"}', "line 1: not a JSON object: 'utf-8'"),
        ("Value,key\na,b\n", "to use 'Value', name it (columns={...}, --value-column)"),
        ("key, value\na,b\n", "to use ' value', name it"),
        ("value,key\ra,b\r", "it ends in CR alone"),
        ('value,key\na,"b\nc,d\n', "line 2: a quote has no end"),
        ("value,key\na,b\nc\n", "line 3: expected 2 columns, not 1: 'c'"),
        ("value," + "x" * 2**21 + "\n", "longer than 1048576 bytes"),
        ("value,timestamp\na,\\N\n", "line 2: timestamp must be milliseconds or ISO 8601 with Z or an offset"),
    ],
)
def test_text_of_another_shape_is_refused_with_a_way_out(load, content, what):
    is_csv = isinstance(content, str) and content[0] not in "{["
    assert what in refused(load, "x.csv" if is_csv else "x.jsonl", content)


def test_nul_and_bytes_that_are_no_text_are_kept_in_csv_values(load):
    assert values(load("x.csv", b"value,key\na\0b,\xff\n\\N,\n")) == [b"a\0b", b"\\N"]
    assert values(load("x.csv", b'value,key\n\\N,a\n"\\N",b\n', null="\\N")) == [None, b"\\N"]


LARGE = kafkalog.LogConfig(max_message_bytes=10**7)


def test_a_pipe_is_read_once(tmp_path):
    os.mkfifo(tmp_path / "x.csv")
    text = b"value,key\n" + b"a" * 9_000_000 + b",b\nc,d\n"
    writer = threading.Thread(target=(tmp_path / "x.csv").write_bytes, args=(text,), daemon=True)
    writer.start()
    kafkalog.load([tmp_path / "x.csv"], tmp_path / "log", topic="t", encoding="utf8", config=LARGE)
    writer.join(10)
    assert kafkalog.read_table(tmp_path / "log").column("key").to_pylist() == [b"b", b"d"]


def test_a_column_that_is_absent_in_the_first_lines_is_read_from_where_it_comes(load, monkeypatch):
    monkeypatch.setattr("kafkalog.interchange.text_input._READ_BYTES", 300)
    lines = [{"value": str(i), **({"key": "k"} if i > 50 else {})} for i in range(60)]
    rows = load("x.jsonl", "\n".join(map(json.dumps, lines)))
    assert [row["key"] for row in rows] == [None] * 51 + [b"k"] * 9
    lines[55]["colour"] = "red"
    detail = refused(load, "x.jsonl", "\n".join(map(json.dumps, lines)))
    assert "unknown column 'colour'" in detail


def test_what_is_refused_has_its_reason(load):
    for content, reason in (('{"value": 5}', Reason.COLUMN_TYPE), ('{"value": "a"}\n{}', Reason.COLUMN_MISSING)):
        with pytest.raises(UnwritableError) as caught:
            load("x.jsonl", content)
        assert caught.value.reason is reason


def test_bytes_as_postgres_writes_them_are_read(load):
    folded = base64.encodebytes(b"v" * 100).decode()
    assert folded.count("\n") == 2
    assert values(load("x.csv", f'value,key\n"{folded}",\n', encoding="base64")) == [b"v" * 100]
    assert values(load("x.jsonl", json.dumps({"value": folded.replace("\n", "\r\n")}), encoding="base64")) == [
        b"v" * 100
    ]
    assert "line 2: value is not base64" in refused(load, "x.csv", 'value,key\n"YQ=\n?",\n', encoding="base64")
    rows = load("x.csv", "value,key\n\\x00ff,\\x\n0a,\\x0A\n", encoding="hex")
    assert [(row["value"], row["key"]) for row in rows] == [(b"\0\xff", b""), (b"\n", b"\n")]
    assert "line 2: value is not hex" in refused(load, "x.csv", "value,key\n\\x0,\n", encoding="hex")


# the line that a row of CSV begins in, whatever is in the rows before it and between them
VALUES = st.text("a\n\r", max_size=6).map(lambda text: text.replace("\r", "\r\n")) | st.sampled_from(
    ['"', ",", '\n"\n']
)
ROWS = st.lists(st.tuples(VALUES, VALUES, st.integers(0, 3)), max_size=20)
ENDS = st.sampled_from(["\n", "\r\n"])


def quoted(text):
    return '"' + text.replace('"', '""') + '"' if set(text) & set('"\n,') else text


def known(schema):
    return [name for name in schema.names if name in ("timestamp", "key", "value")]


def written(rows, end, header="timestamp,key,value"):
    """The text of rows with blank lines behind them, and the line behind it."""
    text = header + end + "".join(f"1,{quoted(a)},{quoted(b)}{end}{end * n}" for a, b, n in rows)
    return text, text.count("\n") + 1


def refusal(text, block_bytes):
    def opened():
        return io.BytesIO(text.encode())

    options = TextOptions(encoding="utf8")
    with pytest.raises(UnwritableError) as caught:
        list(read_csv(opened(), options, known, block_bytes=block_bytes, reopened=opened))
    return caught.value.detail


@settings(max_examples=examples(40))
@given(ROWS, ROWS, ENDS, st.sampled_from([60, 100, 10_000]))
@example([("a", "", 0)], [], "\r\n", 100)
@example([('\n"\n', "\n\n", 2)] * 9, [("\n", "", 3)], "\n", 60)
def test_the_line_of_a_value_or_row_that_is_refused_is_right(rows, behind, end, block_bytes):
    text, line = written(rows, end)
    rest = written(behind, end, "")[0].removeprefix(end)
    assert refusal(f"{text}?,a,b{end}{rest}", block_bytes).startswith(f"line {line}: timestamp must be milliseconds")
    assert refusal(f"{text}1,b{end}{rest}", block_bytes) == f"line {line}: expected 3 columns, not 2: '1,b'"
    assert refusal(f'{text}1,a,"{"x" * 30}', block_bytes).startswith(f"line {line}: ")
    unclosed = f'{text}1,"x{end}","y{end}{end}z'
    assert refusal(unclosed, block_bytes) == f"line {line + 1}: a quote has no end; the file may be cut off"
    assert refusal(text + "a" * 20_000, block_bytes).startswith(f"line {line}: ")


@given(st.lists(st.sampled_from(['a"', '"', 'b "c" d"', 'x""y"']), min_size=1, max_size=9), st.booleans())
def test_quotes_within_a_value_that_is_in_none_are_its_own(values, has_end):
    if values[-1] == '"':
        values = [*values, "z"]
    values = ["k" + value for value in values]
    text = "key,value\n" + "\n".join(f"a,{value}" for value in values) + "\n" * has_end
    batches = list(read_csv(io.BytesIO(text.encode()), TextOptions(encoding="utf8"), known))
    assert [value.decode() for batch in batches for value in batch.column("value").to_pylist()] == values


@pytest.mark.parametrize("text", ["\r\n", "\r", "\n", "\r\n\r\n"])
def test_line_ends_in_quotes_are_kept_where_a_block_ends(text):
    for n in range(40):
        content = f'key,value\n{"k" * n},"{text}a{text}b{text}"\nx,y\n'.encode()
        batches = list(read_csv(io.BytesIO(content), TextOptions(encoding="utf8"), known, block_bytes=50))
        found = [value.decode() for batch in batches for value in batch.column("value").to_pylist()]
        assert found == [f"{text}a{text}b{text}", "y"]


def test_names_of_columns_may_take_several_lines():
    text = 'value,"a\nb\n",timestamp\nx,y,?\n'
    assert refusal(text, 1000).startswith("line 4: timestamp")
    assert "unexpected end of data" in refusal('"value,key\nx,y\n', 1000)


def test_of_a_stream_that_is_read_once_the_row_is_told():
    stream = io.BytesIO(b'timestamp,key,value\n\n1,"a\nb",c\n\n?,a,b\n')
    with fails_with("column_value"):
        list(read_csv(stream, TextOptions(encoding="utf8"), known))


# what Arrow reads differently from Python's decoder, or not at all, among lines that it reads
ODD_LINES = [
    '{"key": "k", "value": "v", "value": "w"}',
    '{"key": "k", "value": null}',
    '{"key": "k"}',
    '{"key": "k", "value": "v"} {"key": "k", "value": "v"}',
    '{"key": "k", "value": "v", "offset": 7.0}',
    '{"key": "k", "value": "v", "offset": true}',
    '{"key": "k", "value": "v", "offset": 99999999999999999999}',
    '{"key": "k", "value": "v", "timestamp": -2}',
    '{"key": "k", "value": "v", "timestamp": "2024-01-01T00:00:00Z"}',
    '{"key": "k", "value": "v", "timestamp": null}',
    '{"key": "k", "value": "v", "headers": [["a", null], ["", "b"]]}',
    '{"key": "k", "value": "v", "headers": [["a"]]}',
    '{"key": "k", "value": {"base64": "AA=="}}',
    '{"key": "\\ud800", "value": "v"}',
    '{"key": "\\ud83d\\ude00\\u0000", "value": "v"}',
    '{"key": "k", "value": 1}',
    '{"key": "k", "value": "v", "more": "x"}',
    '  {"key": "k", "value": "v"}  ',
    '{"key": "k", "value": "v"},',
    '[{"key": "k", "value": "v"}]',
    '{"key": "k", "value": "v"',
    "",
    b'{"key": "\xff", "value": "v"}',
    '{"key": "caf\u00e9", "value": "v"}',
    '{"key": "k", "value": "v", "timestamp_type": 0}',
]


def outcome(text):
    batches = read_json_lines(io.BytesIO(text), TextOptions(encoding="utf8"), lambda schema: schema.names)
    try:
        return pa.Table.from_batches(batches).to_pydict()
    except (UnwritableError, KeyError) as error:
        return str(error)


@pytest.mark.parametrize("place", ["first", "in the middle", "last", "at the end of the file", "CR LF"])
@pytest.mark.parametrize("odd", ODD_LINES)
def test_lines_read_by_arrow_are_those_read_one_by_one(odd, place, monkeypatch):
    line = odd if isinstance(odd, bytes) else odd.encode()
    usual = [
        b'{"key": "%d", "value": "v%d", "offset": %d, "timestamp": %d, "headers": []}' % (n, n, n, n) for n in range(5)
    ]
    usual.insert({"first": 0, "in the middle": 3}.get(place, 5), line)
    end = b"\r\n" if place == "CR LF" else b"\n"
    text = end.join(usual) + (b"" if place == "at the end of the file" else end)
    found = outcome(text)
    monkeypatch.setattr(text_input, "json_table", lambda lines, types: None)
    assert found == outcome(text)
