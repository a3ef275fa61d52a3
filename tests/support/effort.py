"""How many inputs tests make: a plain run takes a part of what KAFKALOG_THOROUGH=1 takes."""

import os

import pytest

THOROUGH = os.environ.get("KAFKALOG_THOROUGH", "") not in ("", "0")


def examples(n):
    """Examples of a property that is to be tried with `n`: a twentieth in a plain run."""
    return n if THOROUGH else max(5, n // 25)


def fuzz_inputs(part=1):
    """Inputs of each fuzzer; `KAFKALOG_FUZZ_N` says how many.

    Where it says nothing, a fuzzer whose inputs take long to make has a part of the others'.
    """
    return int(os.environ.get("KAFKALOG_FUZZ_N") or (60_000 if THOROUGH else 2_000) // part)


def counted(inputs):
    """The inputs of a fuzzer, counted: a run says at its end how many there were."""
    for one in inputs:
        _taken["inputs"] += 1
        yield one


def n_counted():
    """Inputs that this process has taken."""
    return _taken["inputs"]


_taken = {"inputs": 0}


def thinned(values, every):
    """Parameters of a test, of which a plain run takes each `every`-th: the others are slow. Tuples hold several."""
    parameters = []
    for number, value in enumerate(values):
        several = value if isinstance(value, tuple) else (value,)
        parameters.append(pytest.param(*several, marks=pytest.mark.slow if number % every else []))
    return parameters
