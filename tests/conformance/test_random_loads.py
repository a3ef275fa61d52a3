"""What preflight foretells and recover leaves, of log dirs with random damage, against Kafka's own classes.

LOADS.md has the last result of the soak.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from conformance import loads

from kafkalog.repair.startup.preflight import BrokerVersion

pytestmark = [pytest.mark.broker]


@pytest.mark.slow
@pytest.mark.parametrize("version", [*loads.VERSIONS])
def test_random_log_dirs_are_loaded_as_foretold(version: BrokerVersion, tmp_path: Path) -> None:
    tally = loads.run(version, 7, range(80), tmp_path)
    assert tally.wrong == []
    assert tally.n_partitions >= 80
    assert min(tally.verdicts[one] for one in ("starts", "recovers", "loses", "dies")) >= 3
    assert version == "2.8" or tally.n_recovered >= 40


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("version", "numbers"), [("4.3", range(12_000)), ("2.8", range(12_000, 20_000))])
def test_twenty_thousand_log_dirs(version: BrokerVersion, numbers: range, tmp_path: Path) -> None:
    tally = loads.run(version, 20261122, numbers, tmp_path)
    print(tally)
    print("\n".join(tally.wrong))
    # LOADS.md names the kinds that are left: under 1 % of the partitions
    assert len(tally.wrong) <= tally.n_partitions // 100
