"""Times and sizes as text: a time has one text wherever it is shown."""

import re

import numpy as np
import pytest

from kafkalog.text import iso_milliseconds, iso_seconds, iso_times, parse_bytes

DAY = 86_400_000


OF_PYTHON = (-62135596800000, -DAY - 1, -5, -2, -1, 0, 999, 1700000000123, 253402300799999)
OF_NUMPY_ALONE = (-(2**63), -62135596800001, 253402300800000, 2**53, 2**63 - 1)


@pytest.mark.parametrize("time", [*OF_PYTHON, *OF_NUMPY_ALONE])
def test_a_time_has_one_text(time):
    (text,) = iso_times(np.array([time], np.int64))
    assert iso_milliseconds(time) == text
    assert iso_seconds(time) == re.sub(r"\.\d{3}Z", "Z", text)
    assert (text == "-") is (time == -1)


@pytest.mark.parametrize("text", ["", "k", "-1", "1.5m", "1 t"])
def test_what_is_no_number_of_bytes_is_refused(text):
    with pytest.raises(ValueError, match="not a number"):
        parse_bytes(text)
