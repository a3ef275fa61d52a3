"""Stages the partitions of a load and moves them into the log dir.

A new log dir appears in one step. Into an existing log dir, partitions are moved one by one; into that of a stopped
broker they are moved as `kafkalog.operations.loading.install` moves a single one. This module does not write records.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from kafkalog import format as kf
from kafkalog.operations.loading.install import BrokerLogDir, Checkpoints
from kafkalog.storage.moves import Move, staged_additions
from kafkalog.storage.output_paths import check_stage_in, copy_ownership, staging_directory
from kafkalog.storage.staging import staged_directory


class LoadTarget(NamedTuple):
    """A directory to write partitions in, and a function to call with their keys when all are complete."""

    path: Path
    publish: Callable[[set[kf.TopicPartition]], object]


@contextlib.contextmanager
def load_target(
    log_dir: Path, stage_in: str | os.PathLike[str] | None, targets: BrokerLogDir | None
) -> Iterator[LoadTarget]:
    """Yield a directory to write partitions in; move them into the log dir when the block ends without an error.

    With `targets`, the log dir is that of a stopped broker, and existing partitions are replaced. Otherwise none of the
    partitions may exist. Raises UnsafePathError if `stage_in` lies where a broker would find the staged files.
    """
    if stage_in is not None:
        check_stage_in(stage_in)
    if not log_dir.is_dir():
        with staged_directory(log_dir, stage_in=stage_in) as staged:
            yield LoadTarget(staged.path, lambda _keys: None)
        return
    groups: list[list[Move]] = [[]]
    keys: set[kf.TopicPartition] = set()
    near = staging_directory(log_dir / "staged-0") if stage_in is None else stage_in
    with contextlib.nullcontext() if targets is None else Checkpoints(log_dir, near) as checkpoints:

        def prepare() -> None:
            # before the first partition is moved: a crash in between must not leave old offsets for new files
            if checkpoints is not None:
                checkpoints.remove_partitions(keys)

        with staged_additions(log_dir, groups, stage_in=near, prepare=prepare) as staged:

            def publish(loaded: set[kf.TopicPartition]) -> None:
                keys.update(loaded)
                for name in sorted(map(str, loaded)):
                    if targets is not None:
                        targets.complete(staged.path / name)
                    groups[0].append(Move(name, "add" if targets is None else "put"))
                copy_ownership(staged.path, log_dir)

            yield LoadTarget(staged.path, publish)
        if checkpoints is not None:
            checkpoints.keep_removals()
