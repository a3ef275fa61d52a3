"""Real log dirs of brokers that were killed: recovered offline, a broker starts on them as on what it recovers itself.

CRASHES.md has the last result of the soak. `KAFKALOG_CRASHES_SEED` chooses other moments and damages,
`KAFKALOG_CRASHES_N` how many.
"""

import os

import pytest
from conformance.crashes import DAMAGES, Crashes

SEED = int(os.environ.get("KAFKALOG_CRASHES_SEED", "20261122"))


@pytest.mark.broker
@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("version", "n"), [("4.3", 14), ("2.8", 6)])
def test_twenty_crashes_of_real_brokers(version, n, tmp_path):
    n, n_said = int(os.environ.get("KAFKALOG_CRASHES_N") or n), 0
    with Crashes(version, tmp_path, SEED) as crashes:
        for tally in crashes.run(range(n)):
            print(*tally.wrong[n_said:], tally, sep="\n", flush=True)
            n_said = len(tally.wrong)
    assert crashes.tally.wrong == []
    assert n < 6 or len(crashes.tally.damages) == len(DAMAGES)
