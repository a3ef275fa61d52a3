"""Names of files and directories that kafkalog makes for itself: staged output, replaced output, backups, jobs."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

STAGED_SUFFIX: Final = ".kafkalog-staged"
"""Of output before it appears under its own name, and of directories for temporary files."""
OLD_SUFFIX: Final = ".kafkalog-old"
"""Of what output replaces, where the file system cannot exchange two names."""
EXPORT_SUFFIX: Final = ".kafkalog-export"
"""Of the directory in which exports that can be resumed are staged."""
COMMITS_SUFFIX: Final = ".kafkalog-commits"
"""Of the list of committed jobs next to a log dir."""
BACKUP_SUFFIX: Final = ".kafkalog-backup"
"""Of old files that `reindex` keeps."""
QUARANTINE_SUFFIX: Final = ".quarantine"
"""Of the file in which `salvage` keeps the bytes of a partition that are in no segment of its output."""
ORIGIN_NAME: Final = "origin.json"
"""Of the file in an output that has its sources and their losses."""
SALVAGE_REPORT: Final = "salvage.json"
MERGE_REPORT: Final = "merge.json"
INTENT_NAME: Final = "commit.json"
"""Of the file that says that staged files may be moved into place, in a job and in an export that can be resumed."""

STAGED_FORM: Final = f".{{}}.{{}}{STAGED_SUFFIX}"
"""The name of a staged entry, from that of its destination and eight hex digits."""
STAGED_NAME: Final = re.compile(rf"\.(.+)\.[0-9a-f]{{8}}{re.escape(STAGED_SUFFIX)}", re.DOTALL)
MAX_NAME_BYTES: Final = 200  # of the destination's name in it: file names are limited to 255 bytes


def is_staged(path: Path) -> bool:
    """Whether a path is that of output before it appears, or is in it."""
    return f"{STAGED_SUFFIX}{os.sep}" in f"{os.fspath(path)}{os.sep}"
