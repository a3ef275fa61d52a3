"""The commit log of a log dir: a small JSON file beside it that lists committed jobs and streaming batches.

A job that may be retried records its id, or its query and batch number, in the commit that publishes its records (see
`kafkalog.writing.job_commit`). A retry finds the entry and does not write the records twice. The file is replaced as a
whole. This module does not write records.
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
"""Number of job ids that are kept; the oldest are dropped."""
_MAX_BYTES: Final = 2**26
_VERSION: Final = 1


@dataclass(slots=True)
class CommitLog:
    """The commits recorded for a log dir.

    Attributes
    ----------
    path : pathlib.Path
        The commit log's file.
    queries : dict of str to int
        The last committed batch of each streaming query.
    jobs : list of str
        Ids of committed jobs, the oldest first.
    """

    path: Path
    queries: dict[str, int] = field(default_factory=dict)
    jobs: list[str] = field(default_factory=list)

    def has(self, record: Mapping[str, Any] | None) -> bool:
        """Whether a record was committed before: ``{"query": str, "batch": int}``, or ``{"job": str}``."""
        if not record:
            return False
        if "job" in record:
            return str(record["job"]) in self.jobs
        # a query commits its batches in order: a lower number is a retry, too
        return self.queries.get(record["query"], -1) >= int(record["batch"])

    def add(self, record: Mapping[str, Any] | None) -> None:
        """Add a record and write the file durably.

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
    """Read the commit log of a log dir; an empty one if there is no file.

    Parameters
    ----------
    place : Path
        The directory of the commit log: see `kafkalog.storage.output_paths.staging_directory`.
    log_dir_name : str
        Name of the log dir, which the file is named after.

    Raises
    ------
    SidecarError
        The file is invalid. Without it a retried job would write its records twice.
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
    """Raise a `SidecarError` when the content of the file is invalid."""
    try:
        yield
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        detail = f"what was committed before cannot be told ({error}): restore the file, or remove it to forget"
        raise SidecarError(Reason.CHECKPOINT_SYNTAX, detail, path=path) from error
