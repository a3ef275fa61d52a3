"""Log dirs to recover."""

import shutil
from pathlib import Path

import golden_sets


def small_log_dir(root, names=("p-multi-0", "p-txn-0", "p-ooo-0")):
    """A log dir of some partitions, as after a crash: no marker, and no recovery points."""
    log_dir = root / "data"
    log_dir.mkdir(parents=True)
    source = golden_sets.unpacked("k44")
    for name in names:
        shutil.copytree(source / name, log_dir / name)
    shutil.copy(source / "meta.properties", log_dir)
    return log_dir


def logs(partition):
    return sorted(partition.glob("*.log"))


def row(report, name):
    (found,) = [one for one in report.partitions if Path(one.path).name == name]
    return found


RECOVERY_POINTS = "recovery-point-offset-checkpoint"
