"""`decode=` from end to end: scans and commands over logs with text, numbers and JSON."""

import io
import json
import uuid
import warnings
from contextlib import redirect_stderr, redirect_stdout

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from orders import BROKEN, ORDERS, written_orders

import kafkalog
from kafkalog import DecodeWarning, Reason
from kafkalog.cli import main
from kafkalog.values.frames import FrameReader
from kafkalog.values.options import FORMATS
from kafkalog.values.payloads import Payloads


@pytest.fixture(scope="module")
def orders(tmp_path_factory):
    return written_orders(tmp_path_factory.mktemp("log"))


@BROKEN
def test_json_becomes_structs_and_what_is_none_becomes_null(orders):
    scan = kafkalog.scan(orders, decode={"value": "json", "key": "long"}, columns=["offset", "key", "value"])
    customer = pa.struct([("name", pa.string()), ("age", pa.int64())])
    value = pa.struct([("id", pa.int64()), ("customer", customer), ("tags", pa.list_(pa.string()))])
    assert scan.schema == pa.schema([("offset", pa.int64()), ("key", pa.int64()), ("value", value)])
    table = scan.to_table()
    table.validate(full=True)
    expected = [None if i in (7, 9, 11) else order for i, order in enumerate(ORDERS)]
    assert table.column("value").to_pylist() == expected
    assert table.column("key").to_pylist() == list(range(40))
    assert [(one.reason, one.base_offset, one.damage) for one in scan.findings] == [
        (Reason.VALUE_UNDECODED, 9, False),
        (Reason.VALUE_UNDECODED, 11, False),
    ]
    assert "1 value" in scan.findings[0].detail or "a value" in scan.findings[0].detail


@BROKEN
def test_reason_and_bytes_stand_in_columns_of_their_own(orders):
    table = kafkalog.read_table(
        orders,
        decode={"value": "json"},
        columns=["value.id", "value_error", "value_bytes"],
        start_offset=8,
        end_offset=10,
    )
    assert table.to_pylist() == [
        {"value.id": 8, "value_error": None, "value_bytes": json.dumps(ORDERS[8]).encode()},
        {"value.id": None, "value_error": "not JSON", "value_bytes": b"{oops"},
    ]


@BROKEN
@pytest.mark.parametrize(
    ("filters", "wanted"),
    [
        ("value.customer.age >= 35", [35, 37, 39]),
        ("value.customer.name == c8", [8]),
        ([("value.id", "in", [3, 4]), ("offset", "<", 4)], [3]),
        ([("value.id", "not in", [*range(1, 40)])], [0, 7, 9, 11]),
        ([[("value.id", "==", 1)], [("offset", "==", 2)]], [1, 2]),
        ([[("value.id", "==", 1), ("key", "==", 1)], [("value.id", "==", 5), ("key", ">", 5)]], [1]),
        ("value is null", [7, 9, 11]),
        ([("value.customer.age", "is null"), ("offset", "<", 4)], [0, 2]),
        ([("value.customer.name", "contains", "39")], [39]),
        ([("value.customer.name", "starts_with", "c3"), ("offset", ">", 37)], [38, 39]),
        ("key > 37", [38, 39]),
    ],
)
def test_filters_on_decoded_fields_are_exact(orders, filters, wanted):
    options = {"decode": {"value": "json", "key": "long"}, "filters": filters}
    assert kafkalog.read_table(orders, columns=["offset"], **options).column(0).to_pylist() == wanted
    assert kafkalog.scan(orders, **options).count_rows() == len(wanted)
    assert kafkalog.read_table(orders, limit=1, **options).num_rows == 1


def command(*arguments):
    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        code = main([str(argument) for argument in arguments])
    return code, out.buffer.getvalue().decode(), err.getvalue()


def test_cat_prints_decoded_columns(orders):
    code, out, err = command(
        "cat", orders, "--value-format", "json", "--key-format", "long", "--start-offset", 8, "-n", 2
    )
    assert code == 0
    assert out.splitlines() == [
        f"orders-0@8  1970-01-01T00:00:00.000Z  key=8 value={json.dumps(ORDERS[8])}",
        "orders-0@9  1970-01-01T00:00:00.000Z  key=9 value=null",
    ]
    assert "not JSON" in err


def test_cat_prints_json_lines_of_fields_and_filters_them(orders):
    options = ["--json", "--columns", "offset,value.customer,value.tags", "--filter", "value.customer.name == c5"]
    code, out, _ = command("cat", orders, "--value-format", "json", *options)
    assert code == 0
    assert [json.loads(line) for line in out.splitlines()] == [
        {"offset": 5, "value.customer": ORDERS[5]["customer"], "value.tags": ORDERS[5]["tags"]}
    ]


def test_a_field_that_no_value_has_is_null_and_a_note_says_so(orders):
    code, out, err = command("cat", orders, "--value-format", "json", "--columns", "value.idd", "-n", 2, "--json")
    assert code == 0
    assert [json.loads(line) for line in out.splitlines()] == [{"value.idd": None}] * 2
    assert "did you mean value.id" in err


@pytest.mark.parametrize("more", [{"start_offset": 1}, {"filters": [("offset", ">=", 1)]}, {"end_offset": 1}])
def test_a_field_that_the_chosen_range_lacks_is_null(tmp_path, more):
    values = [b'{"a": 1, "b": {"c": [1]}}', b'{"a": 3}', b'{"a": 4}']
    kafkalog.write_table({"value": values}, tmp_path / "log", topic="t")
    columns = ["offset", "value.b", "value.b.c", "value.a.d"]
    options = {"decode": {"value": "json"}, "columns": columns}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DecodeWarning)
        whole = kafkalog.read_table(tmp_path / "log", **options).to_pylist()
        found = kafkalog.read_table(tmp_path / "log", **options, **more).to_pylist()
        assert found == [row for row in whole if ("end_offset" in more) == (row["offset"] < 1)]
        scan = kafkalog.scan(tmp_path / "log", **options, **{**more, "filters": [("value.b.x", "is null")]})
        assert scan.count_rows() == (3 if "filters" in more else len(found))
        assert kafkalog.scan(tmp_path / "log", **options, filters="value.x == 1").count_rows() == 0
    given = {"value": {"format": "avro", "schema": '{"type":"record","name":"R","fields":[]}', "framed": False}}
    with pytest.raises(ValueError, match=r"value\.b"):
        kafkalog.scan(tmp_path / "log", decode=given, columns=["value.b"]).to_table()


def test_the_command_line_knows_all_formats(capsys):
    main(["cat", "--help"])
    assert f"--value-format {{{','.join(FORMATS)}}}" in capsys.readouterr().out


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
GUID = uuid.UUID("0b7d6f0e-8a3d-4f3e-9a5e-0123456789ab")
ZEROS = uuid.UUID("0b7d6f0e-8a3d-4f3e-9a5e-012345670000")


def groups(values, headers=None, *, has_messages=False):
    payloads = Payloads.of(pa.array(values, pa.binary()))
    found, failures = FrameReader("value", has_messages=has_messages).read(payloads, headers)
    rows = {
        (group.key, group.selector): {row: group.payloads.bytes(i) for i, row in enumerate(group.rows.tolist())}
        for group in found
    }
    return rows, failures


def test_values_are_grouped_by_the_schema_in_front_of_them():
    values = [b"\0\0\0\0\7a", None, b"\1" + GUID.bytes + b"b", b"\0\0\0\0\7", b"\0\xff\0\0\0c", b"\1" + ZEROS.bytes]
    rows, failures = groups(values)
    assert not failures
    assert rows == {
        (7, ()): {0: b"a", 3: b""},
        (0xFF000000, ()): {4: b"c"},
        (str(GUID), ()): {2: b"b"},
        (str(ZEROS), ()): {5: b""},
    }


def test_what_has_no_frame_says_why():
    _, failures = groups([b"", b"\0\0\0", b"\1short", b"\2\0\0\0\0\0", b'{"a": 1}'])
    no_frame = "no schema id: the first byte is not 0, 1 or 3 (without ids: framed=False, --no-frame)"
    inside = "the bytes end inside the schema id"
    assert failures == {0: "empty, so there is no schema id", 1: inside, 2: inside, 3: no_frame, 4: no_frame}


def test_the_first_header_of_the_name_stands_for_a_frame():
    name = "__value_schema_id"
    frame = {"key": name, "value": b"\1" + GUID.bytes}
    other = {"key": "trace", "value": b"x"}
    again = {"key": name, "value": b"\0\0\0\0\1"}
    headers = pa.array(
        [[other], [other, frame, again], [], [{"key": name, "value": b"?"}], [{"key": name, "value": None}], [frame]],
        HEADERS,
    )
    values = [b"\0\0\0\0\7a", b"whole", b"\0\0\0\0\7b", b"c", b"\0\0\0\0\7d", None]
    rows, failures = groups(values, headers)
    assert rows == {(7, ()): {0: b"a", 2: b"b", 4: b"d"}, (str(GUID), ()): {1: b"whole"}}
    assert failures == {3: "the header holds no schema id"}
    rows, _ = groups(values[1:3], headers[1:3])
    assert rows == {(7, ()): {1: b"b"}, (str(GUID), ()): {0: b"whole"}}


def test_message_indexes_stand_behind_the_id():
    # zigzag varints: a count and as many numbers; no count for the first message
    values = [
        b"\0\0\0\0\7\0a",
        b"\0\0\0\0\7\2\4b",
        b"\0\0\0\0\7\4\0\2",
        b"\0\0\0\0\7",
        b"\0\0\0\0\7\xff\xff\xff\xff\x0f",
    ]
    rows, failures = groups(values, has_messages=True)
    assert rows == {(7, (0,)): {0: b"a"}, (7, (2,)): {1: b"b"}, (7, (0, 1)): {2: b""}}
    assert failures == dict.fromkeys((3, 4), "the message indexes are damaged")


def test_frames_are_stripped_whatever_they_name():
    payloads, failures = FrameReader("key").strip(
        Payloads.of(pa.array([b"\0\0\0\0\7a", b"?", b"\0\0\0\0\1bc"], pa.binary())), None
    )
    assert [payloads.bytes(row) for row in range(3)] == [b"a", None, b"bc"]
    assert [*failures] == [1]


def test_fields_with_dots_and_keys_of_maps_have_names(tmp_path, capsys):
    (tmp_path / "log").mkdir()
    with kafkalog.PartitionWriter(tmp_path / "log" / "t-0") as writer:
        writer.append({"value": [b'{"user.id": 1, "m": {"a.b": {"c d": 5}}}', b'{"user.id": 2, "user": {"id": 3}}']})
    columns = ['value."user.id"', "value.user.id", 'value.m."a.b".c d']
    decode = {"value": "json"}
    table = kafkalog.read_table(tmp_path / "log", decode=decode, columns=columns)
    assert [list(row.values()) for row in table.to_pylist()] == [[1, None, 5], [2, 3, None]]
    for filters in ('value."user.id" == 2', [('value."user.id"', "==", 2)], pc.field("value", "user.id") == 2):
        found = kafkalog.read_table(tmp_path / "log", decode=decode, columns=["offset"], filters=filters)
        assert found.to_pylist() == [{"offset": 1}]
    dataset = kafkalog.dataset(tmp_path / "log", decode=decode, columns=columns)
    assert dataset.to_table(filter=pc.field('value."user.id"') == 2).num_rows == 1
    assert main(["cat", str(tmp_path / "log"), "--value-format", "json", "--filter", "value.users.id == 1"]) == 0
    out, err = capsys.readouterr()
    assert not out
    assert "has a field value.users.id" in err
    schema = '{"type": "record", "name": "R", "fields": [{"name": "m", "type": {"type": "map", "values": "int"}}]}'
    kafkalog.write_table({"value": [b"\2\2a\2\0", b"\0"]}, tmp_path / "maps", topic="t")
    decode = {"value": {"format": "avro", "schema": schema, "framed": False}}
    for columns in (["value.m.a"], ["value.m.a", "value"]):
        table = kafkalog.read_table(tmp_path / "maps", decode=decode, columns=columns)
        assert table.column("value.m.a").to_pylist() == [1, None]
    assert kafkalog.read_table(tmp_path / "maps", decode=decode, filters="value.m.a == 1").num_rows == 1


def test_a_schema_may_be_a_dict_and_a_message_class_says_what_to_give(tmp_path):
    kafkalog.write_table({"value": [b"\x06"]}, tmp_path, topic="t")
    form = {"format": "avro", "schema": {"type": "long", "__named_schemas": {}}, "framed": False}
    assert kafkalog.read_table(tmp_path, value_format=form)["value"].to_pylist() == [3]
    message = type("Order", (), {"DESCRIPTOR": None})
    with pytest.raises(TypeError, match=r"a schema is the \.proto file of the message, as text or a path, not <class"):
        kafkalog.read_table(tmp_path, value_format={"format": "protobuf", "schema": message})
