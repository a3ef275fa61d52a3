"""Draws a histogram of the gaps between the entries of an index with Matplotlib."""

from __future__ import annotations

import io
import warnings
from typing import Any, Final

import numpy as np

from kafkalog.errors import not_installed
from kafkalog.indexes.statistics import IndexStatistics
from kafkalog.text import human_bytes

FORMATS: Final = (".svg", ".png", ".pdf")

# from Okabe and Ito's palette, safe for colour-blind readers; line styles differ too
_BLUE: Final = "#0072B2"
_ORANGE: Final = "#D55E00"
_PALE: Final = "#8FC1E0"
_BINS_PER_DOUBLING: Final = 8  # each is wider than the error of the sizes
_STYLE: Final = {
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.hashsalt": "kafkalog",  # the same statistics give the same bytes
}


def draw(statistics: IndexStatistics, name: str, suffix: str) -> bytes:
    """Return a picture of the gaps of an index, or else of the first of `what_if`; `name` is in the title."""
    shown = next((one for one in (statistics.index, *statistics.what_if) if one), None)
    if shown is None or not shown.gap_bytes.n:
        raise ValueError("there are no batches to draw a picture of")
    mpl = import_matplotlib()
    from matplotlib.figure import Figure

    sizes, counts = np.maximum(shown.gaps[0], 1), shown.gaps[1]
    first, last = np.floor(np.log2(sizes[[0, -1]]) * _BINS_PER_DOUBLING)
    edges = 2 ** (np.arange(first, last + 2) / _BINS_PER_DOUBLING)
    interval = shown.index_interval_bytes
    which = "as it is" if interval is None else f"with index.interval.bytes = {interval:,}"
    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the font may lack characters of a topic name
        figure = Figure(figsize=(7.0, 5.0), dpi=150, layout="constrained")
        # parse_math: a $ in a name must not start a formula
        figure.suptitle(f"Offset index of {name}", fontweight="bold", parse_math=False)
        axes = figure.subplots()
        axes.hist(sizes, edges, weights=counts / counts.sum() * 100, color=_PALE, edgecolor=_BLUE)
        spread = shown.gap_bytes
        for value, text, style, colour in (
            (spread.p50, "median", "-", _BLUE),
            (spread.p99, "99th percentile", "--", _BLUE),
            (spread.max, "largest", ":", _ORANGE),
        ):
            if value:
                axes.axvline(value, ls=style, color=colour, label=f"{text}: {human_bytes(value)}")
        axes.set_title(f"Gaps between entries, {which}\n{spread.n:,} gaps")
        axes.set_xlabel("Gap in the log")
        axes.set_ylabel("Share of gaps (%)")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda value, _: human_bytes(round(value)))
        axes.legend(loc="upper left")
        file = io.BytesIO()
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(suffix)
        figure.savefig(file, format=suffix[1:], metadata=metadata)
    return file.getvalue()


def import_matplotlib() -> Any:
    """Import Matplotlib."""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(not_installed("pictures need Matplotlib", "plot"), name="matplotlib") from error
    return mpl
