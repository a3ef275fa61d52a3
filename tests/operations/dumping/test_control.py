"""Raft's control records are shown as JSON."""

from __future__ import annotations

import pytest

from kafkalog.errors import CorruptionError, Reason
from kafkalog.operations.dumping import control


@pytest.mark.parametrize("kind", [2, 3, 4, 5, 6])
def test_a_control_record_that_ends_early_is_an_error(kind: int) -> None:
    for value in (None, b"", b"\0"):
        with pytest.raises(CorruptionError) as caught:
            control.describe(kind, value)
        assert caught.value.reason == Reason.CONTROL_RECORD


def test_a_type_that_nobody_knows_is_named_by_its_number() -> None:
    assert control.describe(77, None) == " controlType: UNKNOWN(77)"
    assert control.describe(2, None, is_2_8=True) == " controlType: LEADER_CHANGE(2)"
