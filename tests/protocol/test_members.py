"""Subscriptions and assignments of classic groups' members."""

from __future__ import annotations

import base64

import pytest

from kafkalog.protocol.decoder import MessageError
from kafkalog.protocol.json_form import ASSIGNMENT, SUBSCRIPTION, decode_member, with_members

ONE = b"\0\0\0\1\0\1t\0\0\0\1\0\0\0\7\xff\xff\xff\xff"  # partition 7 of t, no user data


def test_an_assignment_names_partitions() -> None:
    fields = decode_member(ASSIGNMENT, b"\0\1" + ONE)
    assert fields == {"assignedPartitions": [{"topic": "t", "partitions": [7]}], "userData": None}


def test_a_newer_version_is_read_as_far_as_it_is_known() -> None:
    assert decode_member(ASSIGNMENT, b"\0\x09" + ONE + b"more") == decode_member(ASSIGNMENT, b"\0\3" + ONE)


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\0\0\0\0\5"])
def test_other_bytes_are_an_error(data: bytes) -> None:
    with pytest.raises(MessageError):
        decode_member(SUBSCRIPTION, data)


def test_what_cannot_be_decoded_stays_as_it_is_printed() -> None:
    member = {"memberId": "m", "subscription": "AA==", "assignment": base64.b64encode(b"\0\0" + ONE).decode()}
    shown = with_members({"protocolType": "consumer", "members": [member]})["members"][0]
    assert (shown["memberId"], shown["subscription"]) == ("m", "AA==")
    assert shown["assignment"]["assignedPartitions"] == [{"topic": "t", "partitions": [7]}]
    assert with_members({"protocolType": "connect", "members": [member]})["members"] == [member]
