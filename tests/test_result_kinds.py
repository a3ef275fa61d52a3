"""The types of results in Arrow come from the fields of their classes."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from kafkalog.result_kinds import arrow_schema


@dataclass
class Part:
    start_offset: int
    share: float | None = None


@dataclass
class Whole:
    topic: str
    partition: int
    is_open: bool
    last_timestamp: int | None = None
    parts: list[Part] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)


def test_a_schema_has_the_fields_of_a_class_and_of_those_in_its_lists():
    schema = arrow_schema(Whole, {"partition": pa.int32(), "share": pa.float32(), "names": pa.string()})
    part = pa.struct({"start_offset": pa.int64(), "share": pa.float32()})
    assert schema.names == ["topic", "partition", "is_open", "last_timestamp", "parts", "names"]
    assert schema.types[:3] == [pa.string(), pa.int32(), pa.bool_()]
    assert schema.types[3:] == [pa.timestamp("ms", tz="UTC"), pa.list_(part), pa.string()]
