"""Draws index statistics with Matplotlib: a histogram of the gaps, and index size against lookup cost."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from kafkalog.indexes.distribution import bucket_numbers, bucket_starts
from kafkalog.indexes.statistics import IndexStatistics, find_knee

if TYPE_CHECKING:
    from kafkalog.indexes.measures import IndexMeasures

FORMATS: Final = ("svg", "png", "pdf")

# from Okabe and Ito's palette, safe for colour-blind readers; marker shapes differ too
_BLUE: Final = "#0072B2"
_ORANGE: Final = "#D55E00"
_GREY: Final = "#666666"
_PALE: Final = "#8FC1E0"
_MOST_BINS: Final = 48
_LABEL_WIDTH: Final = 0.09  # fraction of the axis
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


def draw(statistics: IndexStatistics, name: str, *, format: str = "svg") -> bytes:
    """Draw the distribution of gaps and the trade-off curve, side by side.

    Parameters
    ----------
    statistics : IndexStatistics
        From `Partition.index_statistics` with `what_if`, which are the points of the curve.
    name : str
        Name in the title.
    format : {"svg", "png", "pdf"}

    Returns
    -------
    bytes
        The picture, as a file of that format.
    """
    if format not in FORMATS:
        raise ValueError(f"pictures are {', '.join(FORMATS)}, not {format!r}")
    shown = next((one for one in (statistics.index, find_knee(statistics.what_if), *statistics.what_if) if one), None)
    if shown is None or shown.gaps is None or not shown.gaps.n:
        raise ValueError("there are no batches to draw a picture of")
    mpl = import_matplotlib()
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")  # the font may lack characters of a topic name
        figure = Figure(figsize=(11.5, 5.0), dpi=150, layout="constrained")
        # parse_math: a $ in a name must not start a formula
        options = {"fontsize": 13, "fontweight": "bold", "parse_math": False}
        figure.suptitle(f"Offset index of {name}", x=0.012, ha="left", **options)
        left, right = figure.subplots(1, 2)
        _draw_gaps(left, shown)
        _draw_curve(right, statistics)
        file = io.BytesIO()
        metadata = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(format)
        figure.savefig(file, format=format, metadata=metadata)
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
    from matplotlib.ticker import MaxNLocator

    if measures.gaps is None:
        return
    sizes, counts = measures.gaps.histogram()
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
    variation = spread.coefficient_of_variation
    axes.set_title(
        f"Gaps between entries, {which}\n{measures.gaps.n:,} gaps"
        + ("" if variation is None else f", coefficient of variation {variation:.2f}")
    )
    axes.set_xlabel("Gap in the log")
    axes.set_ylabel("Share of gaps (%)")
    middle = max(spread.p50 or 1, 1)
    _log_bytes(axes, "x", min(float(edges[0]) / 1.1, middle / 1.7), max(float(edges[-1]) * 1.1, middle * 1.7))
    # room for the legend, without shares above 100
    axes.set_ylim(0, float(shares.max()) * 1.38)
    ticks = MaxNLocator(7, steps=[1, 2, 5, 10]).tick_values(0, float(shares.max()) * 1.3)
    axes.set_yticks([tick for tick in ticks if tick <= 100])
    axes.grid(visible=False, axis="x")
    axes.legend(loc="upper left", frameon=True, framealpha=0.9, edgecolor="none")


def _draw_curve(axes: Any, statistics: IndexStatistics) -> None:
    """Draw index size against the bytes that a lookup scans, both logarithmic."""
    points = sorted(
        (one for one in statistics.what_if if one.index_bytes and one.expected_scan_by_offset),
        key=lambda one: (one.index_bytes, -(one.index_interval_bytes or 0)),
    )
    size = [_percent(one) for one in points]
    expected = [one.expected_scan_by_offset or 0.0 for one in points]
    axes.plot(size, [one.worst_scan for one in points], "s--", ms=5, lw=1.2, color=_GREY, label="at worst")
    axes.plot(size, expected, "o-", ms=6, lw=1.8, color=_BLUE, label="expected (each offset as likely)")
    labels: dict[tuple[float, float], list[int]] = {}
    for one, x, y in zip(points, size, expected, strict=True):
        labels.setdefault((x, y), []).append(one.index_interval_bytes or 0)
    reach = np.log(max(size, default=1.0) / min(size, default=1.0))
    before, is_above = -np.inf, True
    for place, intervals in labels.items():
        text = " to ".join(_interval(interval) for interval in dict.fromkeys((min(intervals), max(intervals))))
        # if two points are too close for both labels, the second label goes above
        is_above = not is_above and np.log(place[0]) - before < _LABEL_WIDTH * reach
        before = np.log(place[0])
        side: dict[str, Any] = (
            {"xytext": (5, 6), "ha": "left", "va": "bottom"}
            if is_above
            else {"xytext": (-6, -7), "ha": "right", "va": "top"}
        )
        axes.annotate(text, place, textcoords="offset points", color=_BLUE, **side)
    now = statistics.index
    if now is not None and now.index_bytes and now.expected_scan_by_offset:
        axes.plot([_percent(now)], [now.expected_scan_by_offset], "D", ms=9, color=_ORANGE, label="the index as it is")
    knee = find_knee(points)
    if knee is not None:
        label = f"knee: {knee.index_interval_bytes:,}"
        axes.plot(
            [_percent(knee)], [knee.expected_scan_by_offset], "o", ms=15, mfc="none", mew=2, color="black", label=label
        )
    axes.set_title("Trade-off: index size against lookup cost\nlabels: index.interval.bytes")
    axes.set_xlabel("Offset and time index, share of the log (%)")
    axes.set_ylabel("Bytes of log passed over by a lookup")
    axes.set_xscale("log")
    worst = [one.worst_scan for one in points]
    costs = [cost for cost in (*expected, *worst, (now and now.expected_scan_by_offset) or 0) if cost]
    _log_bytes(axes, "y", min(costs, default=1.0) / 2.2, max(costs, default=1.0) * 2.2)
    sizes = [*size, *([_percent(now)] if now is not None and now.index_bytes else [])]
    if sizes:
        low, high = min(sizes) / 2.6, max(sizes) * 1.6
        axes.set_xlim(low, high)
        steps = (1, 2, 5) if high < 300 * low else (1,)
        ticks = [step * 10.0**power for power in range(-9, 4) for step in steps]
        axes.xaxis.set_major_locator(_fixed([tick for tick in ticks if low <= tick <= high]))
        axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.xaxis.set_minor_locator(_fixed([]))
    axes.legend(loc="upper right", frameon=True, framealpha=0.9, edgecolor="none")


def _log_bytes(axes: Any, which: str, low: float, high: float) -> None:
    """Set up a logarithmic axis of bytes, with as many ticks at powers of two as are legible."""
    axis = {"x": axes.xaxis, "y": axes.yaxis}[which]
    getattr(axes, f"set_{which}scale")("log", base=2)
    getattr(axes, f"set_{which}lim")(low, high)
    powers = 2.0 ** np.arange(np.floor(np.log2(low)), np.ceil(np.log2(high)) + 1)
    parts = (1.0, 1.25, 1.5, 1.75) if high < 6 * low else (1.0, 1.5) if high < 20 * low else (1.0,)
    ticks = np.sort(np.outer(powers, parts).ravel())
    ticks = ticks[(ticks >= low) & (ticks <= high)]
    ticks = ticks[:: -(-ticks.size // 9)]
    axis.set_major_locator(_fixed(ticks))
    axis.set_major_formatter(lambda value, _: _bytes(value))
    axis.set_minor_locator(_fixed(np.empty(0)))


def _fixed(ticks: Any) -> Any:
    from matplotlib.ticker import FixedLocator

    return FixedLocator(ticks)


def _percent(measures: IndexMeasures) -> float:
    return 100 * (measures.index_bytes_per_log_byte or 0.0)


def _bytes(value: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024 or unit == "GiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 or value == int(value) else f"{value:.1f} {unit}"


def _interval(value: int) -> str:
    return f"{value >> 10}K" if value >= 1024 and value % 1024 == 0 else str(value)
