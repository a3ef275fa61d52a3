"""Whether reading a file or mapping it takes less time here.

Mapping saves a copy, and costs page tables: how much depends on the system, and on the pieces in which it keeps a file
in memory. So both are tried in turns now and then, and the faster one is taken until the next trial.
"""

from __future__ import annotations

from typing import Final

_BETWEEN_TRIALS: Final = 32  # windows, of which a trial takes two: one mapped, one read
_FIRST_RATIO: Final = 0.9
_WEIGHT: Final = 0.3  # of a new trial: other work on the machine disturbs each of them
_MOST: Final = 2.0  # and makes no more difference than that


class Pace:
    """The time of mapping as a share of that of reading, over windows of all files.

    Threads may use it at once: what one of them overwrites is an estimate.
    """

    def __init__(self) -> None:
        self.ratio = _FIRST_RATIO
        self._n_windows = 0
        self._mapped = 0.0  # ns a byte of the last window, if that was mapped

    def maps_next(self) -> bool:
        """Whether to map the next window."""
        step, self._n_windows = self._n_windows % _BETWEEN_TRIALS, self._n_windows + 1
        return step == 0 or (step > 1 and self.ratio < 1)

    def took(self, maps: bool, ns: int, n_bytes: int) -> None:
        """Learn how long a window took, that `maps_next` was asked about.

        Parameters
        ----------
        maps : bool
            Whether it was mapped.
        ns : int
            Nanoseconds.
        n_bytes : int
            Size of the window.
        """
        if n_bytes <= 0:
            return
        if maps:
            self._mapped = ns / n_bytes
        elif self._mapped:
            trial = min(max(self._mapped * n_bytes / max(ns, 1), 1 / _MOST), _MOST)
            self.ratio += _WEIGHT * (trial - self.ratio)
            self._mapped = 0.0


PACE: Final = Pace()
"""Of this process."""
