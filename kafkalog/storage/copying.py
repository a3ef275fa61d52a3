"""Copies a file, or the start of one, into a staged directory. Does not know what is in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from kafkalog.storage.source import open_source
from kafkalog.storage.staging import StagedDirectory

_WINDOW_BYTES: Final = 2**23


def copy_file(
    path: Path,
    staged: StagedDirectory,
    name: str,
    *,
    size: int | None = None,
    progress: Callable[[int], object] = lambda n_bytes: None,
) -> None:
    """Copy a file with its modification time.

    Parameters
    ----------
    path : pathlib.Path
    staged : StagedDirectory
    name : str
        Relative path of the copy.
    size : int, optional
        Copy only that many bytes; default: all.
    progress : callable
        Called with the number of bytes copied since the last call.

    Raises
    ------
    FileChangedError
        Somebody wrote to the file meanwhile.
    ReadError, WriteError
        It cannot be read or written.
    """
    with open_source(path, memory_map=False) as source, staged.create(name) as file:
        end = source.size if size is None else min(size, source.size)
        for start in range(0, end, _WINDOW_BYTES):
            stop = min(start + _WINDOW_BYTES, end)
            window = source.window(start, stop)
            file.write(window)
            source.release(window, start)
            progress(stop - start)
        source.check_unchanged()
        # a broker's retention uses the modification time of segments without timestamps
        file.set_modified(path.stat().st_mtime_ns // 10**6)
