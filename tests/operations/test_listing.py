"""What `ls` knows of partitions besides their batches."""

from __future__ import annotations

import shutil
from pathlib import Path

from golden_sets import LOG_DIR, unpacked

import kafkalog


def test_settings_and_strays_are_known_from_the_metadata_log_beside_it(tmp_path: Path) -> None:
    source = unpacked("k44")
    names = ("__cluster_metadata-0", "p-empty-0", "p-delrec-0", "p-txn-0")
    for path in source.iterdir():
        if path.is_file() or path.name in names:
            (shutil.copytree if path.is_dir() else shutil.copy2)(path, tmp_path / path.name)
    shutil.copytree(tmp_path / "p-txn-0", tmp_path / "unknown-0")
    metadata = tmp_path / "p-delrec-0" / "partition.metadata"
    metadata.write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ\n")
    shutil.move(tmp_path / "p-empty-0", tmp_path / "p-empty-7")
    found = {summary.name: summary for summary in kafkalog.ls(tmp_path)}
    strays = {name: summary.stray for name, summary in found.items() if summary.stray}
    assert set(strays) == {"p-delrec-0", "p-empty-7", "unknown-0"}
    assert strays["unknown-0"] == "the cluster has no such topic"
    assert "its topic id is AAAAAAAAAAAAAAAAAAAAAQ" in strays["p-delrec-0"]
    assert strays["p-empty-7"] == "the broker is not one of its replicas"
    configs = found["p-txn-0"].configs
    assert configs is not None
    assert configs["retention.ms"] == "-1"
    assert found["p-txn-0"].as_dict()["configs"] == configs
    assert kafkalog.ls(LOG_DIR)[0].configs is None
