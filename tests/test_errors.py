"""Errors and findings turn into one another, and errors survive pickling, as between processes."""

from __future__ import annotations

import pickle

from kafkalog.errors import CorruptionError, Reason, TruncatedTailError, UnwritableError

_TAIL = TruncatedTailError(
    Reason.PARTIAL_TAIL, "10 bytes are left", path="o-0/0.log", position=61, base_offset=7, length=10
)


def test_an_error_about_another_error_or_a_finding_has_its_place() -> None:
    error = CorruptionError.about(_TAIL, "cut off", reason=Reason.SIZE_EXCEEDS_FILE)
    assert type(error) is CorruptionError
    assert error.as_dict() == {**_TAIL.as_dict(), "reason": "size_exceeds_file", "detail": "cut off"}
    again = TruncatedTailError.about(_TAIL.to_finding(), "10 bytes are left")
    assert again.as_dict() == _TAIL.as_dict()


def test_a_pickled_error_has_all_its_fields() -> None:
    for error in (_TAIL, UnwritableError(Reason.COLUMN_VALUE, "too long", row=3)):
        copy = pickle.loads(pickle.dumps(error))
        assert (type(copy), copy.as_dict(), str(copy)) == (type(error), error.as_dict(), str(error))
