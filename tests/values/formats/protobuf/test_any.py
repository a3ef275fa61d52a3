"""Contents of `google.protobuf.Any`, next to Google's library."""

import json
import random

import pytest
from google.protobuf import json_format, message_factory
from proto_cases import compiled, pool_of

import kafkalog
from kafkalog import DecodeWarning
from kafkalog.values.encoding import ValueEncoder

PROTO = """syntax = "proto3"; package shop;
import "google/protobuf/any.proto"; import "google/protobuf/timestamp.proto";
message Paid { int32 cents = 1; string by = 2; google.protobuf.Timestamp at = 3; }
message Sent { repeated string parcels = 1; optional bytes code = 2; }
message Event { int32 id = 1; google.protobuf.Any body = 2; repeated google.protobuf.Any more = 3; }
"""


@pytest.fixture(scope="module")
def classes():
    pool = pool_of(compiled({"shop.proto": PROTO}))
    names = ("Paid", "Sent", "Event")
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"shop.{name}")) for name in names}


def decode(tmp_path, values, columns=("value",), **more):
    kafkalog.write_table({"value": values}, tmp_path / "log", topic="t")
    how = {"format": "protobuf", "schema": PROTO, "message": "Event", "framed": False}
    return kafkalog.read_table(tmp_path / "log", decode={"value": how}, columns=[*columns], **more)


def message(classes, chance):
    if chance.random() < 0.5:
        return classes["Paid"](cents=chance.randrange(9), by="é", at={"seconds": 5} if chance.random() < 0.5 else None)
    return classes["Sent"](parcels=["a", "b"][: chance.randrange(3)], code=b"\1" if chance.random() < 0.5 else None)


def test_contents_are_those_of_googles_library(tmp_path, classes):
    chance = random.Random(2)
    events = []
    for number in range(40):
        event = classes["Event"](id=number)
        if chance.random() < 0.8:
            event.body.Pack(message(classes, chance))
        for _ in range(chance.randrange(3)):
            event.more.add().Pack(message(classes, chance), type_url_prefix="example.org/types/")
        events.append(event)
    table = decode(tmp_path, [event.SerializeToString() for event in events])
    found = table.column(0).to_pylist()

    def check(shown, any_message):
        assert shown["type_url"] == any_message.type_url
        assert shown["value"] == any_message.value
        one = classes[any_message.TypeName().removeprefix("shop.")]()
        any_message.Unpack(one)
        content = {
            name: value for name, value in json.loads(shown["content"]).items() if value not in (None, [], "", 0)
        }
        assert content == json_format.MessageToDict(one, preserving_proto_field_name=True)

    for event, row in zip(events, found, strict=True):
        assert (row["body"] is not None) == event.HasField("body")
        if row["body"] is not None:
            check(row["body"], event.body)
        for shown, one in zip(row["more"], event.more, strict=True):
            check(shown, one)
    alone = kafkalog.read_table(
        tmp_path / "log",
        decode={"value": {"format": "protobuf", "schema": PROTO, "message": "Event", "framed": False}},
        columns=["value.body.content"],
    )
    assert alone.column(0).to_pylist() == [row["body"] and row["body"]["content"] for row in found]
    encoder = ValueEncoder("protobuf", PROTO, message="Event")
    again = [classes["Event"].FromString(encoder.encode(row)) for row in found]
    assert again == events


def test_an_unknown_type_has_no_content_and_a_damaged_one_is_null(tmp_path, classes):
    unknown = classes["Event"](id=1)
    unknown.body.type_url = "type.googleapis.com/other.Thing"
    unknown.body.value = b"\1\2"
    damaged = classes["Event"](id=2)
    damaged.body.type_url = "type.googleapis.com/shop.Paid"
    damaged.body.value = b"\x12\xff"
    empty = classes["Event"](id=3)
    empty.body.SetInParent()
    values = [one.SerializeToString() for one in (unknown, damaged, empty)]
    with pytest.warns(DecodeWarning):
        table = decode(tmp_path, values, ["value", "value_error"])
    assert [row["body"] for row in table.column("value").to_pylist()] == [
        {"type_url": "type.googleapis.com/other.Thing", "value": b"\1\2", "content": None},
        None,
        {"type_url": "", "value": b"", "content": None},
    ]
    assert [row["id"] for row in table.column("value").to_pylist()] == [1, 2, 3]
    errors = table.column("value_error").to_pylist()
    assert errors[0] is errors[2] is None
    assert errors[1].startswith("body: its content is not shop.Paid: ")
