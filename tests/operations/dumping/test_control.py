"""Control records are described as Kafka's tool describes them."""

from __future__ import annotations

import struct

import pytest

from kafkalog.errors import CorruptionError, Reason
from kafkalog.operations.dumping.decoders import describe


def key(kind: int) -> bytes:
    return struct.pack(">hh", 0, kind)


def test_a_type_that_is_not_known_is_named_by_its_number() -> None:
    assert describe(key(9), b"x") == " controlType: UNKNOWN(9)"
    assert describe(key(2), b"x", is_2_8=True) == " controlType: LEADER_CHANGE(2)"


@pytest.mark.parametrize("kind", range(7))
def test_a_value_that_ends_early_is_damage(kind: int) -> None:
    for value in (None, b"", b"\0"):
        with pytest.raises(CorruptionError) as caught:
            describe(key(kind), value)
        assert caught.value.reason is Reason.CONTROL_RECORD


@pytest.mark.parametrize("damaged", [None, b"", b"\0\0\0", b"\xff\0\0\1"])
def test_a_key_that_names_no_type_is_damage(damaged: bytes | None) -> None:
    with pytest.raises(CorruptionError) as caught:
        describe(damaged, b"")
    assert caught.value.reason is Reason.CONTROL_RECORD
