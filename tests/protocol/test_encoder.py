"""Every message is encoded to the bytes that the decoder reads, and back."""

from __future__ import annotations

import random
from typing import Any

import pytest
from golden_sets import partitions
from message_bytes import made_up

import kafkalog
from kafkalog.protocol.decoder import decode_message
from kafkalog.protocol.definitions import messages
from kafkalog.protocol.encoder import encode_keyed_record, encode_message, encode_metadata_record
from kafkalog.protocol.framing import decode_record


@pytest.mark.parametrize("name", messages())
def test_what_is_encoded_is_decoded(name: str) -> None:
    message, rng = messages()[name], random.Random(name)
    for version in range(message.versions.first, message.versions.last + 1):
        for _ in range(20):
            wanted = made_up(message.fields, version, rng)
            assert plain(decode_message(name, version, encode_message(name, version, wanted))) == plain(wanted)


def plain(found: Any) -> Any:
    """Lists in place of the tuples of defaults, and dicts in place of their mappings."""
    if isinstance(found, (list, tuple)):
        return [plain(one) for one in found]
    return {name: plain(one) for name, one in found.items()} if hasattr(found, "items") else found


def test_records_of_a_broker_are_encoded_to_the_same_bytes() -> None:
    n = 0
    path = partitions("k44")["__cluster_metadata-0"]
    for record in kafkalog.read_table(path, columns=["value"], include_control=False)["value"].to_pylist():
        decoded = decode_record("__cluster_metadata", None, record)
        assert decoded.version is not None
        fields = decoded.value or {}
        assert encode_metadata_record(decoded.type, decoded.version, **fields) == record
        n += 1
    assert n > 50


def test_a_commit_of_a_broker_is_encoded_to_the_same_bytes() -> None:
    n = 0
    for name, path in partitions("k44").items():
        if not name.startswith("__consumer_offsets-"):
            continue
        table = kafkalog.read_table(path, columns=["key", "value"])
        for key, data in zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True):
            if data is None:
                continue
            decoded = decode_record("__consumer_offsets", key, data)
            assert decoded.version is not None
            pair = encode_keyed_record(decoded.type, decoded.version, decoded.key or {}, decoded.value or {})
            assert pair == (key, data)
            n += 1
    assert n > 20


def test_wrong_fields_and_versions_raise() -> None:
    with pytest.raises(ValueError, match="no field"):
        encode_message("TopicRecord", 0, {"nme": "x"})
    with pytest.raises(ValueError, match="no version"):
        encode_message("TopicRecord", 99, {})
    with pytest.raises(ValueError, match="null"):
        encode_message("TopicRecord", 0, {"name": None})
