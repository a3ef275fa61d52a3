"""A converted partition goes on from the state of its source."""

from __future__ import annotations

from pathlib import Path

import golden_sets
import pytest
from conversions import (
    rows,
    stands,
)
from effort import thinned

import kafkalog


@pytest.mark.parametrize(
    ("set_name", "name"),
    thinned(
        [
            ("k44", "p-txn-0"),
            ("k44", "p-idem-0"),
            ("k28", "p-v1v2-mixed-0"),
            ("k44", "p-compact-idem-0"),
            ("k44_extra", "p-compact-txn-now-0"),
            ("k28", "p-v2-txn-0"),
        ],
        2,
    ),
)
def test_what_is_left_of_a_real_log_is_healthy_and_its_producers_are_known(
    set_name: str, name: str, tmp_path: Path
) -> None:
    source = golden_sets.partitions(set_name)[name]
    for number, share in enumerate((7, 2, 1)):
        drop = [("offset", "in", [offset for offset in range(2000) if offset % share == 0])]
        (tmp_path / str(number)).mkdir()
        report = kafkalog.convert(source, tmp_path / str(number) / name, drop=drop)
        target = Path(report.partitions[0].path)
        assert report.partitions[0].n_records_dropped > 0
        assert [row[0] for row in rows(target)] == [row[0] for row in rows(source) if row[0] % share]
        assert stands(target) == stands(source)
        verification = kafkalog.verify(target, deep=True)
        assert [str(finding) for finding in verification.all_findings() if finding.damage] == []
