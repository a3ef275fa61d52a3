"""Errors by their fields, whatever their words are."""

import pytest

from kafkalog.errors import KafkalogError


def fails_with(reason):
    """Expect an error with a reason; gives what `pytest.raises` gives."""
    return pytest.raises(KafkalogError, check=lambda error: error.reason == reason)
