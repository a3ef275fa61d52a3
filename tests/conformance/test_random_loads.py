"""What preflight says of log dirs with random damage and what recover leaves, against Kafka's own classes.

LOADS.md has the last result of the soak. `KAFKALOG_LOADS_SEED` chooses other directories, `KAFKALOG_LOADS_N` how many.
"""

import os

import pytest
from conformance import loads
from effort import trials

SEED = int(os.environ.get("KAFKALOG_LOADS_SEED", "20261122"))
N = int(os.environ.get("KAFKALOG_LOADS_N") or trials(200, 400))
pytestmark = [pytest.mark.broker, pytest.mark.slow]


@pytest.mark.timeout(1800)
def test_random_log_dirs_are_loaded_as_planned(tmp_path):
    tally = loads.run(SEED, range(N), tmp_path)
    print(*tally.wrong, tally, sep="\n")
    # a partition that differs has a line for each file; what recover leaves is compared where Kafka loads it
    about_files = {one.partition(": recover: ")[0] for one in tally.wrong if ": recover: " in one}
    about_plans = {one.partition("]: ")[0] for one in tally.wrong if ": recover: " not in one}
    assert len(about_plans) <= tally.n["partitions"] // 100
    assert (
        len({one for one in about_files if one.partition("]: ")[0] not in about_plans}) <= tally.n["recovered"] // 100
    )
    assert tally.lost_silently == []
    assert tally.n["partitions"] >= N * 4 // 5
    assert min(tally.n[one] for one in ("starts", "recovers", "loses", "does not start")) >= N // 50
    assert tally.n["recovered"] >= N // 3
