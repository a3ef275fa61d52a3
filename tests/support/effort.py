"""How many inputs tests make: a plain run takes few, `KAFKALOG_THOROUGH=1` as many as CI has time for, 2 all."""

import os
import random

import pytest
from hypothesis.internal.conjecture import providers

RANDOM = os.environ.get("KAFKALOG_RANDOM", "") not in ("", "0")
"""Whether Hypothesis draws new inputs; else those of a test depend on nothing but its source."""
_TIMES = int(os.environ.get("KAFKALOG_THOROUGH") or 0)
THOROUGH = _TIMES > 0
_PART = 1 / 4 if _TIMES == 1 else _TIMES / 2
"""What a run takes of the inputs that a thorough one has."""


def examples(n):
    """Examples of a property: `n` with `KAFKALOG_THOROUGH=4`, an eighth in CI, a fiftieth in a plain run."""
    return max(4, int(n * _PART / 2) if THOROUGH else n // 50)


def trials(plain, thorough):
    """Trials of a test each of which takes long: `thorough` with `KAFKALOG_THOROUGH=2`, a quarter in CI, or `plain`."""
    return max(plain, int(thorough * _PART))


def seeds(n):
    """The seeds of `n` trials; `KAFKALOG_SEEDS=5000:300` takes 300 others, from 5000 on."""
    first, _, count = os.environ.get("KAFKALOG_SEEDS", "").partition(":")
    return range(int(first or 0), int(first or 0) + int(count or n))


def fuzz_inputs(part=1):
    """Inputs of each fuzzer; `KAFKALOG_FUZZ_N` says how many. Some take a part of them: theirs take longer to make."""
    return int(os.environ.get("KAFKALOG_FUZZ_N") or (15_000 if THOROUGH else 1_000)) // part


def forget_constants():
    """Have Hypothesis draw no constants out of the modules that are imported, for which it has no setting.

    Each commit changes these constants, and so does the order of tests. Returns whether this version of Hypothesis
    keeps them where the known ones do.
    """
    if not hasattr(providers, "_get_local_constants"):
        return False
    nothing = providers.Constants()
    providers._get_local_constants = lambda: nothing
    return True


def counted(inputs):
    """The inputs of a fuzzer, counted: a run says at its end how many there were."""
    for one in inputs:
        _taken["inputs"] += 1
        yield one


def n_counted():
    """Inputs that this process has taken."""
    return _taken["inputs"]


_taken = {"inputs": 0}


def thinned(values, every, spare=4):
    """Parameters of a test, of which a plain run takes each `every`-th. The others are slow: CI takes one of `spare`.

    Tuples hold several.
    """
    parameters = []
    for number, value in enumerate(values):
        several = value if isinstance(value, tuple) else (value,)
        parameters.append(pytest.param(*several, marks=pytest.mark.slow if number % every else []))
    plain = [one for one in parameters if not one.marks]
    return plain + spared([one for one in parameters if one.marks], spare)


def spared(values, every):
    """Inputs each of which takes long: CI takes one of `every`, in no order, and `KAFKALOG_THOROUGH=2` all."""
    values = list(values)
    if _TIMES != 1 or not values:
        return values
    return [values[number] for number in sorted(random.Random(1).sample(range(len(values)), -(-len(values) // every)))]
