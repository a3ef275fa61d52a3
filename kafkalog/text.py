"""Numbers of things as text for people: ``1 partition``, ``2,000 batches``."""

from __future__ import annotations


def counted(n: int, name: str, plural: str | None = None) -> str:
    """Format a number of things.

    Examples
    --------
    >>> counted(1, "finding"), counted(2000, "batch"), counted(0, "directory", "directories")
    ('1 finding', '2,000 batches', '0 directories')
    """
    if n != 1:
        name = plural or f"{name}{'es' if name.endswith('tch') else 's'}"
    return f"{n:,} {name}"
