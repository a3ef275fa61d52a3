"""Where the partitions of a load are written meanwhile, and the step that brings them into the log dir.

A log dir that is not there appears whole. Into one that is there partitions are moved one by one, to a stopped broker
as `kafkalog.operations.loading.install` gives it a single one.
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
    """A directory to write partitions in, and what is to be called with their names when all are complete."""

    path: Path
    publish: Callable[[set[kf.TopicPartition]], object]


@contextlib.contextmanager
def load_target(
    log_dir: Path, stage_in: str | os.PathLike[str] | None, targets: BrokerLogDir | None
) -> Iterator[LoadTarget]:
    """Where partitions are written, which are in the log dir when the block has ended well, and else not.

    Parameters
    ----------
    log_dir : Path
    stage_in : path-like, optional
        See `kafkalog.write_table`.
    targets : BrokerLogDir, optional
        What a stopped broker expects of them; they replace what it has then. Default: none of them is there.

    Raises
    ------
    UnsafePathError
        It is staged where a broker would trip over it.
    OutputExistsError, WriteError
        See `kafkalog.storage.staging`.
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
            if checkpoints is not None:
                checkpoints.forget(keys)

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
            checkpoints.settle()
