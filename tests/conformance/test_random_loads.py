"""What preflight foretells and recover leaves, of log dirs with random damage, against Kafka's own classes.

LOADS.md has the last result of the soak. `KAFKALOG_LOADS_SEED` chooses other directories, `KAFKALOG_LOADS_N` how many.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from conformance import loads

from kafkalog.repair.startup.preflight import BrokerVersion

SEED = int(os.environ.get("KAFKALOG_LOADS_SEED", "20261122"))
pytestmark = [pytest.mark.broker]


@pytest.mark.slow
@pytest.mark.parametrize("version", [*loads.VERSIONS])
def test_random_log_dirs_are_loaded_as_foretold(version: BrokerVersion, tmp_path: Path) -> None:
    tally = loads.run(version, 7, range(80), tmp_path)
    assert tally.wrong == []
    assert tally.n_partitions >= 80
    assert min(tally.verdicts[one] for one in ("starts", "recovers", "loses", "does not start")) >= 3
    assert version == "2.8" or tally.n_recovered >= 40


@pytest.mark.slow
def test_log_dirs_that_were_foretold_wrong_once(tmp_path: Path) -> None:
    tally = loads.Tally()
    for version, once_wrong in _ONCE_WRONG.items():
        with loads.loader(version, tmp_path) as one:
            for seed, number in once_wrong:
                loads.trial(one, version, seed, number, tmp_path, tally)
    assert tally.wrong == []
    assert tally.n_partitions >= 20


_ONCE_WRONG: dict[BrokerVersion, list[tuple[int, int]]] = {
    "4.3": [
        *((4801, one) for one in (132, 859, 1096, 1388, 2859, 3294, 3825, 4816)),
        *((4802, one) for one in (105, 660, 670, 803, 854, 982, 1807)),
        *((4803, one) for one in (79, 735, 1240, 3070, 3727, 3862, 4424, 5526, 5582, 6254, 6515, 6758, 7176, 7448)),
        *((4811, one) for one in (883, 2067, 5849)),
        *((4812, one) for one in (678, 6075)),
        *((4813, one) for one in (182, 204, 5595, 9827)),
        *((4814, one) for one in (2946, 5418, 12395, 32007, 33981, 36864, 38415, 39533, 57279)),
        *((4814, one) for one in (142772, 148756, 157480, 182034, 183965, 184092, 195112, 198264)),
        *((4814, one) for one in (136821, 163144, 193240, 197954, 233457, 279999, 412957, 479892)),
        *((4814, one) for one in (84253, 141479, 167620, 188658, 211045, 217525, 221445, 233192)),
        *((4803, one) for one in (7762, 8410, 8763, 9408, 9860, 9993, 10098, 11325, 12037)),
    ],
    "2.8": [
        *((4803, one) for one in (19, 262, 681, 1036, 1946, 2417, 4424)),
        (4805, 919),
        (4811, 883),
        (4812, 6477),
        (4813, 204),
        (4813, 2996),
        *((4814, one) for one in (14013, 36864, 86795, 89026, 105415, 158890, 167649, 245503, 274736, 276732)),
        *((4814, one) for one in (233457, 279999, 334860, 362213, 372271, 399457, 412957)),
    ],
}


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize(("version", "n"), [("4.3", 12_000), ("2.8", 8_000)])
def test_twenty_thousand_log_dirs(version: BrokerVersion, n: int, tmp_path: Path) -> None:
    tally, n_said = loads.Tally(), 0
    n = int(os.environ.get("KAFKALOG_LOADS_N") or n)
    for start in range(0, n, 500):
        loads.run(version, SEED, range(start, min(start + 500, n)), tmp_path, tally)
        print(*tally.wrong[n_said:], tally, sep="\n", flush=True)
        n_said = len(tally.wrong)
    # LOADS.md names the kinds that are left
    assert len(tally.wrong) <= tally.n_partitions // 200
