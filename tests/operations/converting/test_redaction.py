"""Redaction: parts of records become null or a hash, and their bytes are gone."""

from __future__ import annotations

import hashlib
import hmac
import warnings
from pathlib import Path

import builder
import golden_sets
import pytest
from conversions import (
    logs,
    rows,
    write_partition,
)

import kafkalog
from kafkalog.operations.converting.redaction import Redaction


def test_a_value_made_null_is_a_tombstone_and_its_bytes_are_gone(tmp_path: Path) -> None:
    records = [builder.record_v2(i, 0, b"user-%d" % (i % 3), b"secret %d" % i, [(b"h", b"x")]) for i in range(6)]
    source = write_partition(tmp_path / "t-0", [(0, builder.batch_v2(records))])
    report = kafkalog.convert(
        source, tmp_path / "u-0", redact={"value": "null"}, redact_where=[("key", "==", b"user-1")]
    )
    assert [row[3:5] for row in rows(tmp_path / "u-0")] == [
        (b"user-%d" % (i % 3), None if i % 3 == 1 else b"secret %d" % i) for i in range(6)
    ]
    assert b"secret 1" not in b"".join(logs(tmp_path / "u-0").values())
    assert report.partitions[0].n_records_redacted == 2


def test_keys_and_headers_can_be_hashed_or_removed(tmp_path: Path) -> None:
    headers = [(b"mail", b"a@b"), (b"n", None), (b"mail", None), (b"mail", b"")]
    records = [builder.record_v2(0, 0, b"ann", None, headers), builder.record_v2(1, 0, None, b"v", headers)]
    source = write_partition(tmp_path / "t-0", [(0, builder.batch_v2(records))])
    kafkalog.convert(source, tmp_path / "u-0", redact={"key": "hash", "headers.mail": "hash"}, redact_secret="s")
    first, second = rows(tmp_path / "u-0")

    def digest(data: bytes) -> bytes:
        return hmac.new(b"s", data, hashlib.sha256).hexdigest().encode()

    hashed = [(b"mail", digest(b"a@b")), (b"n", None), (b"mail", None), (b"mail", digest(b""))]
    assert first[3:] == (digest(b"ann"), None, hashed)
    assert second[3:] == (None, b"v", hashed)
    kafkalog.convert(
        source, tmp_path / "u-1", redact={"headers": None, "value": "hash"}, redact_where=[("offset", "==", 1)]
    )
    first, second = rows(tmp_path / "u-1")
    assert first[3:] == (b"ann", None, headers)
    assert second[3:] == (None, hashlib.sha256(b"v").hexdigest().encode(), [])


def test_null_keys_in_a_compacted_topic_are_warned_of(tmp_path: Path) -> None:
    compacted = golden_sets.partitions("k44")["p-compact-0"]
    plain = golden_sets.partitions("k44")["p-multi-0"]
    compact = kafkalog.LogConfig(cleanup_policy="compact")  # type: ignore[arg-type]
    nulls, hashes = {"key": "null"}, {"key": "hash"}
    with pytest.warns(kafkalog.ConfigWarning, match="^p-compact is compacted, and its keys become null"):
        kafkalog.convert(compacted, tmp_path / "p-compact-0", redact=nulls)
    assert {row[3] for row in rows(tmp_path / "p-compact-0")} == {None}
    with pytest.warns(kafkalog.ConfigWarning, match="^p-multi is compacted"):
        kafkalog.convert(plain, tmp_path / "p-multi-0", redact=nulls, config=compact, dry_run=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        kafkalog.convert(plain, tmp_path / "p-multi-0", redact=nulls, dry_run=True)
        kafkalog.convert(compacted, tmp_path / "p-multi-0", redact=hashes, dry_run=True)


@pytest.mark.parametrize(
    ("redact", "words"),
    [
        ({}, "names nothing"),
        ({"offset": "null"}, "key, value, headers, headers.NAME"),
        ({"value": "md5"}, "'null' or 'hash'"),
        ({"headers": "hash"}, "headers.NAME"),
        ({"headers.": "null"}, "redact"),
    ],
)
def test_a_redaction_that_is_none_is_refused(redact: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        Redaction.parse(redact)
