"""``--report FILE``: writes all findings of a run as JSON."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kafkalog.errors import KafkalogError

if TYPE_CHECKING:
    from kafkalog.errors import Finding, Loss


class Report:
    """Collects findings, and writes them to a file when the run ends.

    Parameters
    ----------
    sources : sequence of str
        The paths that are read.

    Raises
    ------
    UnsafePathError
        The file would be inside a log dir or a source.
    """

    def __init__(self, path: str, command: str, sources: Sequence[str]) -> None:
        from kafkalog.storage.output_paths import check_outside

        check_outside(path, sources)
        self._path, self._command, self._sources = path, command, list(sources)
        self._findings: list[dict[str, Any]] = []
        self.n_more_findings = 0
        self.losses: dict[str, Loss] = {}

    def add(self, finding: Finding) -> None:
        """Add a finding."""
        self._findings.append(finding.as_dict())

    def add_error(self, error: BaseException) -> None:
        """Add the error that ended the run, if it is about a file."""
        # other errors are about options or stdout, not about what was read
        if isinstance(error, KafkalogError):
            self.add(error.to_finding())

    def write(self, exit_code: int) -> None:
        """Write the file; replaces an existing one.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        content = {
            "version": 1,
            "command": self._command,
            "paths": self._sources,
            "exit_code": exit_code,
            "partitions": [{"path": path, **loss.as_dict()} for path, loss in self.losses.items()],
            "findings": self._findings,
            "n_more_findings": self.n_more_findings,
        }
        # write another file first: an interrupted write must not leave half a report
        staged = Path(f"{self._path}.tmp")
        staged.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
        os.replace(staged, self._path)
