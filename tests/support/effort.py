"""How many inputs tests make: a plain run takes a part of what KAFKALOG_THOROUGH=1 takes."""

import os

import pytest
from hypothesis.internal.conjecture import providers

RANDOM = os.environ.get("KAFKALOG_RANDOM", "") not in ("", "0")
"""Whether Hypothesis draws new inputs; else those of a test depend on nothing but its source."""
_TIMES = int(os.environ.get("KAFKALOG_THOROUGH") or 0)
THOROUGH = _TIMES > 0


def examples(n):
    """Examples of a property: `n` with `KAFKALOG_THOROUGH=2`, half in CI, a twenty-fifth in a plain run."""
    return max(5, n * _TIMES // 2 if THOROUGH else n // 25)


def trials(plain, thorough):
    """Trials of a test each of which takes long: `KAFKALOG_THOROUGH=5` takes five times as many as CI does."""
    return thorough * _TIMES if THOROUGH else plain


def fuzz_inputs(part=1):
    """Inputs of each fuzzer; `KAFKALOG_FUZZ_N` says how many. Some take a part of them: theirs take longer to make."""
    return int(os.environ.get("KAFKALOG_FUZZ_N") or (30_000 if THOROUGH else 2_000)) // part


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


def thinned(values, every):
    """Parameters of a test, of which a plain run takes each `every`-th: the others are slow. Tuples hold several."""
    parameters = []
    for number, value in enumerate(values):
        several = value if isinstance(value, tuple) else (value,)
        parameters.append(pytest.param(*several, marks=pytest.mark.slow if number % every else []))
    return parameters
