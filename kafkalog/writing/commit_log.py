"""What was committed to a log dir by jobs that may be run again: a small file beside it, replaced whole.

A batch of a stream and a job with an id of its own are written down in the same step that publishes their records (see
`kafkalog.writing.job_commit`), so that whoever repeats them finds out. Nothing here knows who writes.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kafkalog.errors import Reason, SidecarError
from kafkalog.storage.source import read_file
from kafkalog.storage.staging import staged_file

COMMITS_SUFFIX: Final = ".kafkalog-commits"
MAX_JOBS: Final = 10_000
"""Ids of jobs that are remembered; the oldest are forgotten."""
_MAX_BYTES: Final = 2**26
_VERSION: Final = 1


@dataclass(slots=True)
class CommitLog:
    """What is written down of a log dir.

    Attributes
    ----------
    path : pathlib.Path
    queries : dict of str to int
        The last batch of each streaming query.
    jobs : list of str
        Ids of jobs, the oldest first.
    """

    path: Path
    queries: dict[str, int] = field(default_factory=dict)
    jobs: list[str] = field(default_factory=list)

    def has(self, record: Mapping[str, Any] | None) -> bool:
        """Whether something was committed before: ``{"query": str, "batch": int}``, or ``{"job": str}``."""
        if not record:
            return False
        if "job" in record:
            return str(record["job"]) in self.jobs
        return self.queries.get(record["query"], -1) >= int(record["batch"])

    def add(self, record: Mapping[str, Any] | None) -> None:
        """Write down that it was, durably.

        Raises
        ------
        WriteError
        """
        if not record or self.has(record):
            return
        if "job" in record:
            self.jobs = [*self.jobs, record["job"]][-MAX_JOBS:]
        else:
            self.queries[record["query"]] = record["batch"]
        content = {"version": _VERSION, "queries": self.queries, "jobs": self.jobs}
        with staged_file(self.path, overwrite=True) as file:
            file.write(json.dumps(content, indent=1).encode() + b"\n")


def read_commits(place: Path, log_dir_name: str) -> CommitLog:
    """What is written down of a log dir.

    Parameters
    ----------
    place : Path
        Where files about it are kept: see `kafkalog.storage.output_paths.staging_directory`.
    log_dir_name : str

    Raises
    ------
    SidecarError
        The file cannot be understood: without it nobody knows what was committed.
    """
    commits = CommitLog(place / f".{log_dir_name}{COMMITS_SUFFIX}")
    if not commits.path.exists():
        return commits
    with _understanding(commits.path):
        content = json.loads(read_file(commits.path, max_bytes=_MAX_BYTES))
        if content["version"] != _VERSION:
            raise ValueError(f"version {content['version']} is not known")
        commits.queries = {str(query): int(batch) for query, batch in content["queries"].items()}
        commits.jobs = [str(job) for job in content["jobs"]]
    return commits


@contextlib.contextmanager
def _understanding(path: Path) -> Iterator[None]:
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        detail = f"what was committed before cannot be told ({error}): restore the file, or remove it to forget"
        raise SidecarError(Reason.CHECKPOINT_SYNTAX, detail, path=path) from error
