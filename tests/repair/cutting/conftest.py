"""A log dir to cut."""

import shutil

import golden_sets
import pytest


@pytest.fixture
def log_dir(tmp_path):
    source = golden_sets.unpacked("k44")
    root = tmp_path / "data"
    root.mkdir()
    for name in ("p-multi-0", "p-txn-0", "p-epochs-0"):
        shutil.copytree(source / name, root / name)
    for path in source.iterdir():
        if path.is_file():
            shutil.copy(path, root)
    return root
