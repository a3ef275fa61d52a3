"""Options as Spark passes them: names without case, values as text."""

from __future__ import annotations

import pytest

from kafkalog.spark.options import Options

pytestmark = pytest.mark.spark


def test_values_are_read_by_names_in_any_case() -> None:
    options = Options({"TaskBytes": "32m", "maxTriggerDelay": "90s", "fail": "TRUE", "n": "7", "names": " a,,b "})
    assert (options.n_bytes("taskBytes", 1), options.seconds("MAXTRIGGERDELAY", "1s")) == (2**25, 90)
    assert (options.flag("fail", default=False), options.number("n"), options.names("names")) == (True, 7, ["a", "b"])
    assert (options.flag("other", default=True), options.number("other"), options.names("other")) == (True, None, None)


def test_an_invalid_value_is_named_with_its_option() -> None:
    options = Options({"a": "x"})
    for read in (
        lambda: options.flag("A", default=True),
        lambda: options.number("A"),
        lambda: options.n_bytes("A", 1),
        lambda: options.seconds("A", "1s"),
    ):
        with pytest.raises(ValueError, match=r"^A must be .*'x'"):
            read()


def test_names_that_are_refused_or_unknown_raise() -> None:
    for name, word in (("acks", "uses no broker"), ("kafka.x", "uses no broker"), ("nwe", "did you mean new")):
        with pytest.raises(ValueError, match=word):
            Options({name: "1"}).check_names(["new"])
