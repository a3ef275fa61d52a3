"""Draws a histogram of the gaps between the entries of an index with Matplotlib."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafkalog.indexes.distribution import bucket_numbers, bucket_starts
from kafkalog.indexes.statistics import IndexStatistics

if TYPE_CHECKING:
    from kafkalog.indexes.measures import IndexMeasures

FORMATS: Final = (".svg", ".png", ".pdf")

# from Okabe and Ito's palette, safe for colour-blind readers; marker shapes differ too
_BLUE: Final = "#0072B2"
_ORANGE: Final = "#D55E00"
_PALE: Final = "#8FC1E0"
_MOST_BINS: Final = 48
_STYLE: Final = {
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.8,
    "axes.titlesize": 11.0,
    "axes.titlelocation": "left",
    "svg.hashsalt": "kafkalog",  # the same statistics give the same bytes
}


def draw(statistics: IndexStatistics, name: str, *, format: str = ".svg") -> bytes:
    """Return a picture of the gaps of an index, or else of the first of `what_if`; `name` is in the title."""
    if format not in FORMATS:
        raise ValueError(f"pictures are {', '.join(FORMATS)}, not {format!r}")
    shown = next((one for one in (statistics.index, *statistics.what_if) if one), None)
    if shown is None or not shown.gap_bytes.n:
        raise ValueError("there are no batches to draw a picture of")
    mpl = import_matplotlib()
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the font may lack characters of a topic name
        figure = Figure(figsize=(7.0, 5.0), dpi=150, layout="constrained")
        # parse_math: a $ in a name must not start a formula
        options = {"fontsize": 13, "fontweight": "bold", "parse_math": False}
        figure.suptitle(f"Offset index of {name}", x=0.012, ha="left", **options)
        _draw_gaps(figure.subplots(), shown)
        file = io.BytesIO()
        metadata = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}.get(format)
        figure.savefig(file, format=format[1:], metadata=metadata)
    return file.getvalue()


def import_matplotlib() -> Any:
    """Import Matplotlib."""
    try:
        import matplotlib as mpl
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("pictures need Matplotlib: pip install matplotlib", name="matplotlib") from error
    return mpl


def _draw_gaps(axes: Any, measures: IndexMeasures) -> None:
    """Draw a histogram on a logarithmic axis. A bin is one bucket of the distribution, or a power of two of them."""
    sizes, counts = measures.gaps
    numbers = bucket_numbers(sizes)
    width = 1
    while (numbers[-1] - numbers[0]) // width > _MOST_BINS:
        width *= 2
    bins = np.arange(numbers[0] // width, numbers[-1] // width + 2)
    edges = np.maximum(bucket_starts(bins * width), 0.5)
    shares = np.bincount(numbers // width - bins[0], weights=counts, minlength=bins.size - 1) / counts.sum() * 100
    axes.bar(edges[:-1], shares, np.diff(edges), align="edge", color=_PALE, edgecolor=_BLUE, lw=0.5)
    spread = measures.gap_bytes
    for value, text, style, colour in (
        (spread.p50, "median", "-", _BLUE),
        (spread.p99, "99th percentile", "--", _BLUE),
        (spread.max, "largest", ":", _ORANGE),
    ):
        if value:
            axes.axvline(value, ls=style, lw=1.6, color=colour, label=f"{text}: {_bytes(value)}")
    which = (
        "as it is"
        if measures.index_interval_bytes is None
        else f"with index.interval.bytes = {measures.index_interval_bytes:,}"
    )
    axes.set_title(f"Gaps between entries, {which}\n{measures.gap_bytes.n:,} gaps")
    axes.set_xlabel("Gap in the log")
    axes.set_ylabel("Share of gaps (%)")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: _bytes(value))
    axes.grid(visible=False, axis="x")
    axes.legend(loc="upper left", frameon=True, framealpha=0.9, edgecolor="none")


def _bytes(value: float) -> str:
    power = min(int(value).bit_length() // 10, 3)
    return f"{value / 1024**power:.{1 if power else 0}f} {('B', 'KiB', 'MiB', 'GiB')[power]}"
